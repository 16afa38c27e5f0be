"""English number words: cardinals, ordinals, decimals, years, digits one by one.

Pure text in, text out. Knows nothing of money, dates or units: `speakable` composes those from these. American
usage ("one hundred five", no "and"). From 10**15 on a number is read digit by digit.
"""

_IRREGULAR_PLURALS = {"foot": "feet", "penny": "pence"}
LARGEST = 10**15  # where a listener has lost count anyway

_list = str.split

_ONES = _list(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_TENS = _list("zero ten twenty thirty forty fifty sixty seventy eighty ninety")
_SCALES = ("", " thousand", " million", " billion", " trillion")
_IRREGULAR_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}


def cardinal(number: int) -> str:
    """Say a whole number: -21 is "minus twenty-one"."""
    if number < 0:
        return "minus " + cardinal(-number)
    if number >= LARGEST:
        return digits(str(number))
    if number == 0:
        return "zero"
    groups: list[str] = []
    for scale in _SCALES:
        number, group = divmod(number, 1000)
        if group:
            groups.append(_below_thousand(group) + scale)
    return " ".join(reversed(groups))


def ordinal(number: int) -> str:
    """Say a place in a row: 21 is "twenty-first"."""
    said = cardinal(number)
    cut = max(said.rfind(" "), said.rfind("-")) + 1
    head, last = said[:cut], said[cut:]
    if last in _IRREGULAR_ORDINALS:
        return head + _IRREGULAR_ORDINALS[last]
    return head + (last[:-1] + "ieth" if last.endswith("y") else last + "th")


def decimal(written: str) -> str:
    """Say a number as written, "3.10" or "1,000": places after the point one by one, none of them lost."""
    whole, point, places = written.replace(",", "").partition(".")
    said = digits(whole) if _is_code(whole) else cardinal(int(whole or "0"))
    return f"{said} point {digits(places)}" if point and places else said


def digits(written: str) -> str:
    """Say each digit by itself; anything else is left out."""
    return " ".join(_ONES[int(digit)] for digit in written if digit.isdecimal())


def year(number: int) -> str:
    """Say a year: 2026 is "twenty twenty-six", 1905 "nineteen oh five", 2005 "two thousand five"."""
    century, rest = divmod(number, 100)
    if not 1000 <= number <= 9999 or number % 1000 < 10:
        return cardinal(number)
    if rest == 0:
        return cardinal(century) + " hundred"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def decade(number: int) -> str:
    """Say "1990s" (or "90s") given 1990 (or 90)."""
    said = year(number) if number >= 1000 else cardinal(number)
    return said[:-1] + "ies" if said.endswith("y") else said + "s"


def plural(word: str, number: str) -> str:
    """Choose "dollar" or "dollars" for a number as written."""
    if number == "1":
        return word
    noun, space, rest = word.partition(" ")  # "miles per hour"
    unchanged = noun in ("won", "yen") or noun.endswith("hertz")
    return (noun if unchanged else _IRREGULAR_PLURALS.get(noun, noun + "s")) + space + rest


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    parts = [_ONES[hundreds] + " hundred"] if hundreds else []
    if rest >= 20:
        tens, ones = divmod(rest, 10)
        parts.append(_TENS[tens] + ("-" + _ONES[ones] if ones else ""))
    elif rest:
        parts.append(_ONES[rest])
    return " ".join(parts)


def _is_code(whole: str) -> bool:
    """Tell "007" and endless numbers, which are names rather than amounts."""
    return (len(whole) > 1 and whole.startswith("0")) or len(whole) > 15
