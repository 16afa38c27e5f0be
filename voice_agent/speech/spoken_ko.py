"""How Korean reads what is not a word: dates, hours, money, things counted, units, telephone numbers, symbols.

The same table as `spoken_en`. A number takes the Hangul written after it along (5천원, 3개를), because what follows
decides between Sino-Korean and native numerals and the two are said as one word.
"""

import re

from voice_agent.speech import numbers_ko as ko
from voice_agent.speech.forms import NUMBER, Form, form, name_of_address

_CURRENCIES = {"$": "달러", "€": "유로", "£": "파운드", "¥": "엔"}
_UNITS = {
    "km/h": "킬로미터 퍼 아워", "km": "킬로미터", "cm": "센티미터", "mm": "밀리미터", "m": "미터",
    "kg": "킬로그램", "mg": "밀리그램", "g": "그램", "ml": "밀리리터", "mL": "밀리리터", "L": "리터",
    "l": "리터", "KB": "킬로바이트", "MB": "메가바이트", "GB": "기가바이트", "TB": "테라바이트",
    "ms": "밀리초", "Hz": "헤르츠", "kHz": "킬로헤르츠", "MHz": "메가헤르츠", "GHz": "기가헤르츠",
    "kW": "킬로와트", "W": "와트", "V": "볼트", "%p": "퍼센트포인트", "%": "퍼센트", "°": "도",
}  # fmt: skip
_UNIT = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
# Things counted with native numerals; the first alternatives keep longer words that only look alike out.
_COUNTER = (
    "시간|가지|마리|사람|송이|그루|켤레|군데|번째|개|명|살|잔|병|대|권|장|달(?!러)|벌|채|척|곳|줄|배|통|번|시"
)
# What may follow a counter: a particle or a copula. Anything else makes it another word (개월, 대학).
_AFTER_COUNTER = (
    r"(?=(?:을|를|이|가|은|는|도|만|의|에|로|으로|와|과|씩|쯤|정도|이상|이하|뿐|부터|까지|입|예|이에|이고|이나|나|밖|당|마다|째|짜리|반|하고|라|였|이었)"
    r"|[^가-힣]|$)"
)
_SIGN = r"(?:(?<![\w)\]])(?P<sign>[-−])(?=\d))?"

SYMBOLS = {
    "&": "앤드", "@": "골뱅이", "+": "더하기", "*": "곱하기", "×": "곱하기", "÷": "나누기", "<": "작다",
    ">": "크다", "%": "퍼센트", "°": "도", "²": "제곱", "³": "세제곱", "½": "이분의 일", "¼": "사분의 일",
    "¾": "사분의 삼", "−": "빼기", "≤": "이하", "≥": "이상", "π": "파이", "√": "루트",
}  # fmt: skip
WORDS = {
    "dot": "닷", "sharp": "샵", "not_equal": "같지 않다", "code_block": "코드 예시", "heart": "하트",
    "minus": "빼기", "to": "에서", "less": "작다", "divided": "나누기", "number": "번호",
}  # fmt: skip
ABBREVIATIONS: dict[str, str] = {"vs": "대"}


def _date(year: str, month: str, day: str) -> str | None:
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return None
    said = f"{ko.month(int(month))} {ko.sino(int(day))}일"
    return f"{ko.sino(int(year))}년 {said}" if year else said


def _hour(hour: int) -> str:
    return f"{ko.native(hour) if 1 <= hour <= 12 else ko.sino(hour)} 시"


def _time(found: re.Match[str]) -> str | None:
    hour, minute, second = int(found["h"]), int(found["m"]), found["s"]
    if hour > 24 or minute > 59:
        return None
    parts = [_hour(hour)] + ([f"{ko.sino(minute)} 분"] if minute or second else [])
    return " ".join(parts + ([f"{ko.sino(int(second))} 초"] if second else []))


def _counted(number: str, counter: str) -> str:
    whole = number.replace(",", "")
    if not whole.isdecimal() or len(whole) > 15:
        return f"{ko.decimal(number)} {counter}"
    if counter == "시":
        return _hour(int(whole))
    if counter == "번째" and int(whole) == 1:
        return "첫 번째"
    return f"{ko.native(int(whole))} {counter}"


def _range(found: re.Match[str]) -> str | None:
    low, high, counter, unit = found["a"], found["b"], found["counter"], found["unit"]
    if counter:
        return f"{_counted(low, counter)}에서 {_counted(high, counter)}"
    tail = f" {_UNITS[unit]}" if unit else ""
    return f"{ko.decimal(low)}에서 {ko.decimal(high)}{tail}"


def _slashed(found: re.Match[str]) -> str | None:
    above, below = int(found["a"]), int(found["b"])
    if 0 < above < below <= 10:
        return f"{ko.sino(below)}분의 {ko.sino(above)}"
    return _date("", found["a"], found["b"]) or f"{ko.sino(above)} {ko.sino(below)}"


def _temperature(found: re.Match[str]) -> str:
    scale = "섭씨" if found["scale"] in ("°C", "℃") else "화씨"
    return f"{'영하' if found['sign'] else scale} {ko.decimal(found['n'])} 도"


def _minus(found: re.Match[str]) -> str:
    return f"{ko.decimal(found['a'])} 빼기 {ko.decimal(found['b'])}"


def _with_hangul(found: re.Match[str]) -> str:
    """Any other number and the Hangul at its end: "2026년에", "10층", "5천원", "6월"."""
    number, rest = found["n"], found["rest"]
    sign = "마이너스 " if found["sign"] else ""
    if rest.startswith("월") and number in ("6", "06", "10"):
        return ko.month(int(number)) + rest[1:]
    if rest[:1] in ("분", "초", "도") and number.isdecimal():
        return f"{sign}{ko.decimal(number)} {rest}"
    said = ko.decimal(number)
    said = "" if said == "일" and rest[:1] in ("천", "백", "만") else said
    return sign + said + rest


def _grouped_digits(found: re.Match[str]) -> str:
    return ", ".join(ko.digits(group) for group in re.findall(r"\d+", found[0]))


def _version(found: re.Match[str]) -> str:
    said = " 점 ".join(ko.decimal(part) for part in found["n"].split("."))
    return f"버전 {said}" if found["v"] else said


FORMS: list[Form] = [
    form(r"(?P<y>\d{4})-(?P<m>\d{1,2})-(?P<d>\d{1,2})(?![\d-])", lambda f: _date(f["y"], f["m"], f["d"])),
    form(
        r"(?P<y>\d{4})[./](?P<m>\d{1,2})[./](?P<d>\d{1,2})(?![\d/])", lambda f: _date(f["y"], f["m"], f["d"])
    ),
    form(r"(?P<h>\d{1,2}):(?P<m>\d{2})(?::(?P<s>\d{2}))?(?![\d:])", _time),
    form(rf"₩\s?(?P<n>{NUMBER})", lambda f: ko.decimal(f["n"]) + "원"),
    form(
        rf"(?P<currency>[$€£¥])\s?(?P<n>{NUMBER})",
        lambda f: f"{ko.decimal(f['n'])} {_CURRENCIES[f['currency']]}",
    ),
    form(r"(?:\+82[-. ]?\d{1,2}|0\d{1,2}|\(0\d{1,2}\))[-. ]?\d{3,4}[-. ]\d{4}(?![\d-])", _grouped_digits),
    form(r"\d{3,4}-\d(?!000)\d{3}(?![\d-])", _grouped_digits),
    form(r"\+?\d{1,4}(?:-\d{2,4}){2,4}(?![\d-])", _grouped_digits),
    form(r"(?P<v>[vV])\.?(?P<n>\d{1,4}(?:\.\d{1,4}){0,3})(?![\d.]*\d)", _version),
    form(r"(?P<v>)(?P<n>\d{1,4}(?:\.\d{1,4}){2,3})(?!\d)", _version),
    form(rf"(?P<a>{NUMBER})\s?-\s?(?P<b>{NUMBER})(?=\s?=)", _minus),
    form(
        rf"(?P<a>{NUMBER})\s?[-–~∼～]\s?(?P<b>{NUMBER})"
        rf"(?:\s?(?P<counter>{_COUNTER}){_AFTER_COUNTER}|\s?(?P<unit>{_UNIT})(?![A-Za-z]))?(?![\d-])",
        _range,
    ),
    form(r"(?P<a>\d{1,4})/(?P<b>\d{1,4})(?![\d/])", _slashed),
    form(_SIGN + rf"(?P<n>{NUMBER})\s?(?P<scale>°C|℃|°F|℉)", _temperature),
    form(
        rf"(?P<n>{NUMBER})\s?(?P<unit>{_UNIT})(?![A-Za-z])",
        lambda f: f"{ko.decimal(f['n'])} {_UNITS[f['unit']]}",
    ),
    form(
        rf"(?<!제)(?P<n>{NUMBER})\s?(?P<counter>{_COUNTER}){_AFTER_COUNTER}",
        lambda f: _counted(f["n"], f["counter"]),
    ),
    form(_SIGN + rf"(?P<n>{NUMBER})(?P<rest>[가-힣]{{0,20}})", _with_hangul),
    form(r"(?<![\w.])\.(?P<n>\d+)", lambda f: "영 점 " + ko.digits(f["n"], zero="영")),
    form(r"#(?=\d)", lambda _: "번호"),
    form(r"~\s?(?=\d)", lambda _: "약"),
]


TAIL = re.compile("[가-힣]{1,20}")  # particles and whatever else is written on: "50%를"


def equals_after(word: str) -> str:
    """Say "=" after a word: the particle depends on how the word ends."""
    return "은" if ko.has_final_consonant(word) else "는"


def address(written: str) -> str:
    """Say a URL's domain or an e-mail address."""
    return name_of_address(
        written, {".": "닷", "@": "골뱅이", "-": "대시", "_": "언더바", "+": "플러스"}, ko.digits
    )
