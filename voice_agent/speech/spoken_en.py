"""How English reads what is not a word: dates, times, money, units, telephone numbers, symbols.

A table of written forms, tried in order at a place in the text; each reading returns None if the form is not what
it looked like (month 13). Dates with slashes are read the American way unless that is impossible.
"""

import re

from voice_agent.speech import numbers_en as en
from voice_agent.speech.forms import NUMBER, Form, form, name_of_address

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_CURRENCIES = {
    "$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "penny"), "₩": ("won", ""),
    "¥": ("yen", ""),
}  # fmt: skip
_SCALES = {"k": "thousand", "m": "million", "bn": "billion", "b": "billion", "t": "trillion"}
_SCALE = "k|m|bn|b|t|thousand|million|billion|trillion"
_UNITS = {
    "km/h": "kilometer per hour", "m/s": "meter per second", "mph": "mile per hour", "km": "kilometer",
    "cm": "centimeter", "mm": "millimeter", "m": "meter", "mi": "mile", "ft": "foot", "kg": "kilogram",
    "mg": "milligram", "g": "gram", "lbs": "pound", "lb": "pound", "oz": "ounce", "ml": "milliliter",
    "mL": "milliliter", "L": "liter", "l": "liter", "kB": "kilobyte", "KB": "kilobyte", "MB": "megabyte",
    "GB": "gigabyte", "TB": "terabyte", "Mbps": "megabit per second", "ms": "millisecond", "s": "second",
    "sec": "second", "min": "minute", "hrs": "hour", "hr": "hour", "h": "hour", "Hz": "hertz",
    "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz", "kWh": "kilowatt hour", "kW": "kilowatt",
    "W": "watt", "V": "volt", "px": "pixel", "°C": "degree Celsius", "°F": "degree Fahrenheit",
    "℃": "degree Celsius", "℉": "degree Fahrenheit", "°": "degree",
}  # fmt: skip
_UNIT = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
_SIGN = r"(?:(?<![\w)\]])(?P<sign>[-−])(?=[\d$€£₩¥]))?"
_YEAR_BEFORE = re.compile(
    r"(?:\b(?:in|since|from|by|until|year|of|before|after|around|circa|to)|\w+ \d{1,2},?) $", re.I
)
_FRACTIONS = {2: "half", 3: "third", 4: "quarter"}

SYMBOLS = {
    "&": "and", "@": "at", "+": "plus", "=": "equals", "*": "times", "×": "times", "÷": "divided by",
    "±": "plus or minus", "<": "less than", ">": "greater than", "≤": "is at most", "≥": "is at least",
    "≠": "is not equal to", "≈": "is about", "%": "percent", "°": "degrees", "√": "the square root of",
    "^": "to the power of", "²": "squared", "³": "cubed", "½": "one half", "¼": "one quarter",
    "¾": "three quarters", "−": "minus", "∞": "infinity", "π": "pi", "§": "section", "µ": "micro",
}  # fmt: skip
WORDS = {
    "dot": "dot", "sharp": "sharp", "not_equal": "is not equal to", "code_block": "code example",
    "heart": "love", "minus": "minus", "to": "to", "less": "less than", "divided": "divided by",
    "number": "number",
}  # fmt: skip
ABBREVIATIONS = {
    "dr": "Doctor", "mr": "Mister", "mrs": "Missus", "ms": "Miz", "prof": "Professor", "vs": "versus",
    "etc": "et cetera", "e.g": "for example", "i.e": "that is", "approx": "approximately", "a.m": "AM",
    "p.m": "PM",
}  # fmt: skip


def _date(year: str, month: str, day: str) -> str | None:
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return None
    said = f"{_MONTHS[int(month) - 1]} {en.ordinal(int(day))}"
    return f"{said}, {en.year(int(year))}" if year else said


def _slash_date(found: re.Match[str]) -> str | None:
    month, day, year = found["a"], found["b"], found["year"]
    if int(month) > 12:
        month, day = day, month
    return _date(("20" if len(year) == 2 else "") + year, month, day)


def _slashed(found: re.Match[str]) -> str | None:
    """A fraction if it can be one, else a date, else two numbers."""
    above, below = int(found["a"]), int(found["b"])
    if 0 < above < below <= 10:
        part = _FRACTIONS.get(below) or en.ordinal(below)
        return f"{en.cardinal(above)} {part if above == 1 else 'halves' if below == 2 else part + 's'}"
    is_date = len(found["a"]) <= 2 and len(found["b"]) <= 2
    return (is_date and _date("", found["a"], found["b"])) or f"{en.cardinal(above)} {en.cardinal(below)}"


def _time(found: re.Match[str]) -> str | None:
    hour, minute, second = int(found["h"]), int(found["m"]), found["s"]
    half = (found["half"] or "").replace(".", "").upper()
    if hour > 24 or minute > 59:
        return None
    if not minute and not second:
        on_the_hour = "o'clock" if 1 <= hour <= 12 else "hundred"
        return f"{en.cardinal(hour)} {half or on_the_hour}"
    said = f"{en.cardinal(hour)} {'oh ' if minute < 10 else ''}{en.cardinal(minute)}"
    said = said + (f" and {en.cardinal(int(second))} seconds" if second else "")
    return f"{said} {half}".rstrip()


def _hour(found: re.Match[str]) -> str:
    return f"{en.cardinal(int(found['h']))} {found['half'].replace('.', '').upper()}"


def _money(found: re.Match[str]) -> str:
    unit, part = _CURRENCIES[found["currency"]]
    amount, scale = found["n"], (found["scale"] or "").lower()
    sign = "minus " if found["sign"] else ""
    if scale:
        return f"{sign}{en.decimal(amount)} {_SCALES.get(scale, scale)} {en.plural(unit, '')}"
    whole, _, places = amount.replace(",", "").partition(".")
    if len(places) != 2 or not part:  # a price has two places; all others are read as they stand
        return f"{sign}{en.decimal(amount)} {en.plural(unit, amount)}"
    cents = f"{en.cardinal(int(places))} {en.plural(part, places.lstrip('0'))}"
    if not whole.strip("0") and places != "00":
        return sign + cents
    said = f"{sign}{en.decimal(whole)} {en.plural(unit, whole)}"
    return said if places == "00" else f"{said} and {cents}"


def _quantity(found: re.Match[str]) -> str:
    number, unit = found["n"], _UNITS[found["unit"]]
    return f"{'minus ' if found['sign'] else ''}{en.decimal(number)} {en.plural(unit, number)}"


def _range(found: re.Match[str]) -> str | None:
    low, high, unit = found["a"], found["b"], found["unit"]
    if found["gap"] and float(low.replace(",", "")) >= float(high.replace(",", "")):
        return _minus(found)
    if low.isdecimal() and len(low) == len(high) == 4 and "1000" <= low < high <= "2099":
        return f"{en.year(int(low))} to {en.year(int(high))}"
    tail = " percent" if found["percent"] else " " + en.plural(_UNITS[unit], high) if unit else ""
    return f"{en.decimal(low)} to {en.decimal(high)}{tail}"


def _minus(found: re.Match[str]) -> str:
    return f"{en.decimal(found['a'])} minus {en.decimal(found['b'])}"


def _divided(found: re.Match[str]) -> str:
    return f"{en.decimal(found['a'])} divided by {en.decimal(found['b'])}"


def _number(found: re.Match[str]) -> str:
    number, sign = found["n"], "minus " if found["sign"] else ""
    if len(number) == 4 and number.isdecimal() and not sign:
        value = int(number)
        if 1900 <= value <= 2099 or (
            1100 <= value < 2100 and _YEAR_BEFORE.search(found.string, 0, found.start())
        ):
            return en.year(value)
    return sign + en.decimal(number)


def _grouped_digits(found: re.Match[str]) -> str:
    return ", ".join(en.digits(group) for group in re.findall(r"\d+", found[0]))


def _version(found: re.Match[str]) -> str:
    said = " point ".join(en.decimal(part) for part in found["n"].split("."))
    return f"version {said}" if found["v"] else said


FORMS: list[Form] = [
    form(r"(?P<y>\d{4})-(?P<m>\d{1,2})-(?P<d>\d{1,2})(?![\w-])", lambda f: _date(f["y"], f["m"], f["d"])),
    form(r"(?P<a>\d{1,2})/(?P<b>\d{1,2})/(?P<year>\d{4}|\d{2})(?![\w/])", _slash_date),
    form(
        r"(?P<h>\d{1,2}):(?P<m>\d{2})(?::(?P<s>\d{2}))?(?:\s?(?P<half>[ap]\.m\.|[ap]m\b))?(?![\d:])",
        _time,
        re.I,
    ),
    form(r"(?P<h>\d{1,2})(?P<m>)(?P<s>)\s?(?P<half>[ap]\.m\.|[ap]m\b)", _hour, re.I),
    form(
        r"(?P<a>\d{1,4}):(?P<b>\d{1,4})(?![\d:])", lambda f: f"{en.decimal(f['a'])} to {en.decimal(f['b'])}"
    ),
    form(_SIGN + rf"(?P<currency>[$€£₩¥])\s?(?P<n>{NUMBER})(?:\s?(?P<scale>{_SCALE})\b)?", _money, re.I),
    form(_SIGN + rf"(?P<n>{NUMBER})(?P<scale>)\s?(?P<currency>[€£₩¥])", _money),
    form(r"(?:\+\d{1,3}[-. ])?(?:\(\d{3}\)[-. ]?|\d{3}[-. ])\d{3}[-. ]\d{4}(?![\w-])", _grouped_digits),
    form(r"\d{3}-\d(?!000)\d{3}(?![\w-])", _grouped_digits),
    form(r"\+?\d{1,4}(?:-\d{2,4}){2,4}(?![\w-])", _grouped_digits),
    form(
        r"\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)",
        lambda f: " dot ".join(en.decimal(part) for part in f[0].split(".")),
    ),
    form(r"(?P<v>[vV])\.?(?P<n>\d{1,4}(?:\.\d{1,4}){0,3})(?![\w])", _version),
    form(r"(?P<v>)(?P<n>\d{1,4}(?:\.\d{1,4}){2,3})(?!\w)", _version),
    form(rf"(?P<a>{NUMBER})-(?P<b>{NUMBER})(?=\s?=)", _minus),
    form(
        rf"(?P<a>{NUMBER})(?P<gap>\s?)[-–—](?P=gap)(?P<b>{NUMBER})"
        rf"(?:\s?(?P<percent>%)|\s?(?P<unit>{_UNIT})(?!\w))?(?![\w-])",
        _range,
    ),
    form(rf"(?P<a>{NUMBER})/(?P<b>{NUMBER})(?=\s?=)", _divided),
    form(r"(?P<a>\d{1,4})/(?P<b>\d{1,4})(?![\w/])", _slashed),
    form(r"(?P<n>\d{1,6})(?:st|nd|rd|th)\b", lambda f: en.ordinal(int(f["n"]))),
    form(r"['’]?(?P<n>\d{2}|\d{3}0)['’]?s\b", lambda f: en.decade(int(f["n"]))),
    form(
        _SIGN + rf"(?P<n>{NUMBER})\s?%",
        lambda f: f"{'minus ' if f['sign'] else ''}{en.decimal(f['n'])} percent",
    ),
    form(_SIGN + rf"(?P<n>{NUMBER})\s?(?P<unit>{_UNIT})(?!\w)", _quantity),
    form(
        rf"(?P<n>{NUMBER})[kK](?!\w)", lambda f: f"{en.decimal(f['n'])} thousand" if len(f["n"]) > 1 else None
    ),
    form(_SIGN + rf"(?P<n>{NUMBER})", _number),
    form(r"(?<![\w.])\.(?P<n>\d+)", lambda f: "point " + en.digits(f["n"])),
    form(r"#(?=\d)", lambda _: "number"),
    form(r"~\s?(?=[\d$€£])", lambda _: "about"),
]


TAIL = re.compile(r"['’]s\b")  # "2026's"


def equals_after(_word: str) -> str:
    """Say "=" after a word."""
    return "equals"


def address(written: str) -> str:
    """Say a URL's domain or an e-mail address."""
    return name_of_address(
        written, {".": "dot", "@": "at", "-": "dash", "_": "underscore", "+": "plus"}, en.digits
    )
