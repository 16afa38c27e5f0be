"""Number words against golden tables, and against their own inverse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.speech import numbers_en as en
from voice_agent.speech import numbers_ko as ko


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (20, "twenty"),
        (-21, "minus twenty-one"),
        (100, "one hundred"),
        (105, "one hundred five"),
        (1_000, "one thousand"),
        (1_001_010, "one million one thousand ten"),
        (
            999_999_999_999_999,
            "nine hundred ninety-nine trillion nine hundred ninety-nine billion nine hundred "
            "ninety-nine million nine hundred ninety-nine thousand nine hundred ninety-nine",
        ),
        (10**15, "one" + " zero" * 15),
    ],
)
def test_english_cardinals(number: int, said: str) -> None:
    assert en.cardinal(number) == said


@pytest.mark.parametrize(
    ("number", "said"),
    [(1, "first"), (2, "second"), (3, "third"), (5, "fifth"), (8, "eighth"), (9, "ninth"), (12, "twelfth"),
     (20, "twentieth"), (21, "twenty-first"), (100, "one hundredth"), (112, "one hundred twelfth"),
     (1000, "one thousandth")],
)  # fmt: skip
def test_english_ordinals(number: int, said: str) -> None:
    assert en.ordinal(number) == said


@pytest.mark.parametrize(
    ("number", "said"),
    [(2026, "twenty twenty-six"), (1905, "nineteen oh five"), (1900, "nineteen hundred"), (2000, "two thousand"),
     (2005, "two thousand five"), (2010, "twenty ten"), (1066, "ten sixty-six"), (1001, "one thousand one"),
     (800, "eight hundred")],
)  # fmt: skip
def test_english_years(number: int, said: str) -> None:
    assert en.year(number) == said


@pytest.mark.parametrize(
    ("written", "said"),
    [("1.0", "one point zero"), ("3.10", "three point one zero"), ("1,000.5", "one thousand point five"),
     ("007", "zero zero seven"), ("0.5", "zero point five"), ("1" * 16, " ".join(["one"] * 16))],
)  # fmt: skip
def test_english_decimals_lose_no_place(written: str, said: str) -> None:
    assert en.decimal(written) == said


def test_english_decades_and_plurals() -> None:
    assert en.decade(1990) == "nineteen nineties"
    assert en.decade(90) == "nineties"
    assert en.decade(1900) == "nineteen hundreds"
    assert en.plural("mile per hour", "2") == "miles per hour"
    assert en.plural("foot", "6") == "feet"
    assert en.plural("foot", "1") == "foot"
    assert en.plural("kilohertz", "3") == "kilohertz"


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "영"), (1, "일"), (10, "십"), (11, "십일"), (100, "백"), (2026, "이천이십육"), (10_000, "만"),
     (12_000, "만 이천"), (20_000, "이만"), (110_000, "십일만"), (100_000_000, "일억"), (100_010_000, "일억 일만"),
     (10**12, "일조"), (-3, "마이너스 삼"), (10**16, "일" + "공" * 16)],
)  # fmt: skip
def test_sino_korean_numbers(number: int, said: str) -> None:
    assert ko.sino(number) == said


@pytest.mark.parametrize(
    ("number", "counting", "alone"),
    [(1, "한", "하나"), (3, "세", "셋"), (4, "네", "넷"), (5, "다섯", "다섯"), (11, "열한", "열하나"),
     (20, "스무", "스물"),
     (21, "스물한", "스물하나"), (99, "아흔아홉", "아흔아홉"), (100, "백", "백"), (0, "영", "영")],
)  # fmt: skip
def test_native_korean_numbers(number: int, counting: str, alone: str) -> None:
    assert ko.native(number) == counting
    assert ko.native(number, counting=False) == alone


def test_korean_decimals_digits_and_months() -> None:
    assert ko.decimal("3.10") == "삼 점 일영"
    assert ko.decimal("1,000") == "천"
    assert ko.digits("010") == "공일공"
    assert [ko.month(n) for n in (1, 6, 10, 12)] == ["일월", "유월", "시월", "십이월"]


_SMALL = {en.cardinal(n): n for n in range(1, 1000)}
_THOUSANDS = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}


def _english_value(said: str) -> int:
    total, group = 0, list[str]()
    for word in said.split():
        if word in _THOUSANDS:
            total += _SMALL[" ".join(group)] * _THOUSANDS[word]
            group = []
        else:
            group.append(word)
    return total + (_SMALL[" ".join(group)] if group else 0)


def _korean_value(said: str) -> int:
    total = group = digit = 0
    for char in said.replace(" ", ""):
        if char in "만억조":
            total += (group + digit or 1) * {"만": 10**4, "억": 10**8}.get(char, 10**12)
            group = digit = 0
        elif char in "십백천":
            group += (digit or 1) * {"십": 10, "백": 100}.get(char, 1000)
            digit = 0
        else:
            digit = "영일이삼사오육칠팔구".index(char)
    return total + group + digit


@given(st.integers(1, 10**15 - 1))
def test_number_words_can_be_read_back(number: int) -> None:
    assert _english_value(en.cardinal(number)) == number
    assert _korean_value(ko.sino(number)) == number
