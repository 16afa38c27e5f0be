"""One spelling for what is written and what is heard."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.bench.wer import normalised, word_error_rate, word_errors


@pytest.mark.parametrize(
    ("written", "heard"),
    [
        ("Hello, world!", "hello world"),
        ("It costs 12 dollars.", "It costs twelve dollars"),
        ("$1,250 or 3.5%", "one thousand two hundred fifty dollars or three point five percent"),
        ("In 1984", "in nineteen eighty-four"),
        ("In 1905", "in nineteen oh five"),
        ("1984 sheep", "one thousand nine hundred eighty four sheep"),
        ("the 21st and the 2nd and the 30th", "The twenty-first and the second and the thirtieth."),
        ("Don\u2019t", "dont"),
        ("well-known", "well known"),
        ("OK, Mr. Smith", "okay mister Smith"),
        ("Our neighbour's favourite theatre", "our neighbors favorite theater"),
        ("\uff21\uff22", "ab"),  # full width
        ("at 7:30", "at seven thirty"),
        ("0 and 100", "zero and one hundred"),
        ("안녕하세요, 서울!", "안녕하세요 서울"),
    ],
)
def test_spelling_is_no_error(written: str, heard: str):
    assert word_errors(written, heard)[0] == 0


@pytest.mark.parametrize(
    ("written", "heard", "errors", "words"),
    [
        ("one two three", "one two three", 0, 3),
        ("one two three", "one three", 1, 3),
        ("one three", "one two three", 1, 2),
        ("one two three", "one too three", 1, 3),
        ("a b c", "", 3, 3),
        ("", "a b", 2, 0),
        ("a b c", "c b a", 2, 3),
    ],
)
def test_errors_are_counted_in_words(written: str, heard: str, errors: int, words: int):
    assert word_errors(written, heard) == (errors, words)


def test_the_rate_is_over_all_words_together():
    assert word_error_rate([("a b c d", "a b c d"), ("e", "x")]) == pytest.approx(0.2)
    assert word_error_rate([]) is None
    assert word_error_rate([("", "")]) is None


def test_very_long_numbers_are_read_digit_by_digit():
    assert (
        normalised("1234567890123")
        == "one two three four five six seven eight nine zero one two three".split()
    )


WORDS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=7)


@given(WORDS, WORDS)
def test_distance_is_symmetric_and_bounded(left: list[str], right: list[str]):
    there, back = (
        word_errors(" ".join(left), " ".join(right))[0],
        word_errors(" ".join(right), " ".join(left))[0],
    )
    assert there == back
    assert abs(len(left) - len(right)) <= there <= max(len(left), len(right))
    assert (there == 0) == (left == right)


@given(st.text(max_size=30))
def test_any_text_is_its_own_match(text: str):
    assert word_errors(text, text)[0] == 0
