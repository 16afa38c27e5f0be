"""Korean number words: Sino-Korean for amounts, dates and minutes, native for hours and things counted.

Pure text in, text out; `speakable` composes money, dates and units from these. From 10**16 on a number is read
digit by digit.
"""

LARGEST = 10**16

_DIGITS = "영일이삼사오육칠팔구"
_SCALES = ("", "만", "억", "조")
_NATIVE_ONES = ("", "한", "두", "세", "네", "다섯", "여섯", "일곱", "여덟", "아홉")
_NATIVE_TENS = ("", "열", "스물", "서른", "마흔", "쉰", "예순", "일흔", "여든", "아흔")
_NATIVE_ALONE = {"한": "하나", "두": "둘", "세": "셋", "네": "넷"}
_MONTHS = {6: "유월", 10: "시월"}  # two months lose a sound


def sino(number: int) -> str:
    """Say a whole number the Sino-Korean way: 2026 is "이천이십육"."""
    if number < 0:
        return "마이너스 " + sino(-number)
    if number >= LARGEST:
        return digits(str(number))
    if number == 0:
        return "영"
    groups: list[str] = []
    for scale in _SCALES:
        number, group = divmod(number, 10_000)
        if group:
            # Ten thousand is "만", but a hundred million keeps its one: "일억".
            said = "" if group == 1 and scale == "만" and number == 0 else _below_ten_thousand(group)
            groups.append(said + scale)
    return " ".join(reversed(groups))


def native(number: int, *, counting: bool = True) -> str:
    """Say 1 to 99 the native way, before a counter ("세") or alone ("셋"); others the Sino-Korean way."""
    if not 1 <= number <= 99:
        return sino(number)
    if number == 20 and counting:
        return "스무"
    tens, ones = divmod(number, 10)
    one = _NATIVE_ONES[ones]
    return _NATIVE_TENS[tens] + (one if counting else _NATIVE_ALONE.get(one, one))


def decimal(written: str) -> str:
    """Say a number as written, "3.10" or "1,000": places after the point one by one, none of them lost."""
    whole, point, places = written.replace(",", "").partition(".")
    is_code = (len(whole) > 1 and whole.startswith("0")) or len(whole) > 16
    said = digits(whole) if is_code else sino(int(whole or "0"))
    return f"{said} 점 {digits(places, zero='영')}" if point and places else said


def digits(written: str, *, zero: str = "공") -> str:
    """Say each digit by itself, without spaces; a telephone's zero is "공", a decimal's "영"."""
    return "".join(zero if int(digit) == 0 else _DIGITS[int(digit)] for digit in written if digit.isdecimal())


def month(number: int) -> str:
    """Say a month: June and October are irregular."""
    return _MONTHS.get(number, sino(number) + "월")


def has_final_consonant(word: str) -> bool:
    """Tell whether the last syllable ends in a consonant, which chooses between 은 and 는."""
    code = ord(word[-1]) - 0xAC00 if word else -1
    return 0 <= code < 11172 and code % 28 != 0


def _below_ten_thousand(number: int) -> str:
    said = ""
    for power, name in ((1000, "천"), (100, "백"), (10, "십"), (1, "")):
        digit, number = divmod(number, power)
        if digit:
            said += ("" if digit == 1 and name else _DIGITS[digit]) + name
    return said
