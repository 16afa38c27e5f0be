"""Word error rate between a written text and what a recognizer heard of it.

Both sides are brought to one spelling first: case, punctuation and the difference of "12" and "twelve" are no
errors. A number of four digits is read as a count or as a year, whichever fits the other side better.
"""

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
_SCALES = ((1_000_000_000, "billion"), (1_000_000, "million"), (1000, "thousand"), (100, "hundred"))
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_SPELLINGS = {  # the last two lines: as recognizers write, which are American
    "ok": "okay", "mr": "mister", "mrs": "missus", "dr": "doctor", "vs": "versus",
    "colour": "color", "favourite": "favorite", "grey": "gray", "harbour": "harbor", "honour": "honor",
    "metre": "meter", "metres": "meters", "neighbour": "neighbor", "neighbours": "neighbors", "theatre": "theater",
}  # fmt: skip
_SIGNS = {"%": " percent ", "&": " and ", "+": " plus ", "°": " degrees ", "=": " equals "}
_MONEY = re.compile(r"([$€£])\s?(\d[\d,]*(?:\.\d+)?)")
_MONEY_WORDS = {"$": "dollars", "€": "euros", "£": "pounds"}
_NUMBER = re.compile(r"(\d[\d,]*)(?:\.(\d+))?(st|nd|rd|th)?\b")
MOST_DIGITS = 12  # longer runs of digits are read one by one, as people do

Reading = Callable[[int], list[str]]


def word_error_rate(pairs: Iterable[tuple[str, str]]) -> float | None:
    """Errors over words of all (written, heard) pairs together; None if nothing was written."""
    counts = [word_errors(written, heard) for written, heard in pairs]
    words = sum(count for _, count in counts)
    return sum(errors for errors, _ in counts) / words if words else None


def word_errors(written: str, heard: str) -> tuple[int, int]:
    """(substitutions + deletions + insertions, words written) under the readings that fit best."""
    readings: tuple[Reading, ...] = (_count, _year)
    options = itertools.product(readings, readings)
    sides = [(normalised(written, a), normalised(heard, b)) for a, b in options]
    return min((_distance(left, right), len(left)) for left, right in sides)


def normalised(text: str, four_digits: Reading | None = None) -> list[str]:
    """Lower-case words without punctuation, numbers in words."""
    text = unicodedata.normalize("NFKC", text).lower().replace("\u2019", "'")
    text = _MONEY.sub(lambda m: f"{m[2]} {_MONEY_WORDS[m[1]]} ", text)
    for sign, word in _SIGNS.items():
        text = text.replace(sign, word)
    text = _NUMBER.sub(lambda m: f" {' '.join(_number(m, four_digits or _count))} ", text).replace("'", "")
    words = "".join(char if unicodedata.category(char)[0] in "LNM" else " " for char in text).split()
    return [_SPELLINGS.get(word, word) for word in words]


def _number(match: re.Match[str], four_digits: Reading) -> list[str]:
    digits, decimals, ordinal = match[1].replace(",", ""), match[2], match[3]
    if len(digits) > MOST_DIGITS:
        return [_UNITS[int(digit)] for digit in digits]
    words = four_digits(int(digits)) if len(digits) == 4 and "," not in match[1] else _count(int(digits))
    if decimals:
        words = [*words, "point", *(_UNITS[int(digit)] for digit in decimals)]
    return [*words[:-1], _ordinal(words[-1])] if ordinal else words


def _count(value: int) -> list[str]:
    if value < 20:
        return [_UNITS[value]]
    if value < 100:
        return [_TENS[value // 10], *(_count(value % 10) if value % 10 else [])]
    size, name = next(scale for scale in _SCALES if value >= scale[0])
    return [*_count(value // size), name, *(_count(value % size) if value % size else [])]


def _year(value: int) -> list[str]:
    """1984 as nineteen eighty four, 1905 as nineteen oh five; 2007 stays a count."""
    high, low = divmod(value, 100)
    if high % 10 == 0 or not low:
        return _count(value)
    return [*_count(high), *(["oh"] if low < 10 else []), *_count(low)]


def _ordinal(word: str) -> str:
    return _ORDINALS.get(word) or (word[:-1] + "ieth" if word.endswith("y") else word + "th")


def _distance(written: Sequence[str], heard: Sequence[str]) -> int:
    """Levenshtein distance in words."""
    row = list(range(len(heard) + 1))
    for line, word in enumerate(written, 1):
        diagonal, row[0] = row[0], line
        for column, other in enumerate(heard, 1):
            diagonal, row[column] = (
                row[column],
                min(row[column] + 1, row[column - 1] + 1, diagonal + (word != other)),
            )
    return row[-1]
