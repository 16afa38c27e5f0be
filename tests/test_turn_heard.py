"""Heard text: half a word's samples, its punctuation, and what never sounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.audio import WordTime
from voice_agent.turn.heard import HeardText

_TEXT = "Well, **hello** there! 🙂 Bye."


def heard_text() -> HeardText:
    heard = HeardText()
    for delta in (_TEXT[:9], _TEXT[9:]):
        heard.add_text(delta)
    heard.add_words([WordTime(0, 4, 0, 100), WordTime(8, 13, 150, 350)])
    heard.add_words([WordTime(16, 21, 350, 451, exact=False), WordTime(25, 28, 500, 600)])
    return heard


@pytest.mark.parametrize(
    ("played", "text"),
    [
        (-5, ""),
        (0, ""),
        (49, ""),
        (50, "Well,"),
        (249, "Well,"),
        (250, "Well, **hello**"),
        (400, "Well, **hello**"),
        (401, "Well, **hello** there!"),
        (549, "Well, **hello** there!"),
        (550, _TEXT),
        (10**9, _TEXT),
    ],
)
def test_a_word_is_heard_once_half_of_its_samples_were_played(played: int, text: str) -> None:
    assert heard_text().at(played) == text


def test_nothing_written_or_without_sound_is_not_heard() -> None:
    assert HeardText().at(1000) == ""
    captions = HeardText()
    captions.add_text("Only shown.")
    assert captions.at(10**9) == ""
    assert captions.text == "Only shown."


def test_a_clause_without_sound_is_left_out_of_what_was_heard() -> None:
    heard = HeardText()
    heard.add_text("Hello. 안녕하세요. Goodbye.")
    heard.skip(6, 13)
    heard.add_words([WordTime(0, 5, 0, 100), WordTime(14, 21, 100, 200)])
    assert heard.at(100) == "Hello."
    assert heard.at(200) == "Hello. Goodbye."
    assert heard.chars_at(200) == 22


def test_words_that_abut_do_not_swallow_each_other() -> None:
    heard = HeardText()
    heard.add_text("2*3=6")
    heard.add_words([WordTime(n, n + 1, 10 * n, 10 * n + 10) for n in range(5)])
    assert [heard.at(played) for played in (5, 15, 25, 50)] == ["2", "2*", "2*3", "2*3=6"]


def test_a_word_that_comes_twice_or_is_empty_is_left_out() -> None:
    heard = HeardText()
    heard.add_text("one two")
    heard.add_words(
        [WordTime(0, 3, 0, 10), WordTime(0, 3, 10, 20), WordTime(3, 3, 20, 30), WordTime(4, 7, 30, 40)]
    )
    assert heard.at(20) == "one"
    assert heard.at(35) == "one two"


def test_a_word_of_no_length_is_heard_with_the_first_sample_after_it_begins() -> None:
    heard = HeardText()
    heard.add_text("a b")
    heard.add_words([WordTime(0, 1, 0, 0), WordTime(2, 3, 100, 100)])
    assert [heard.at(played) for played in (0, 1, 100, 101)] == ["", "a", "a", "a b"]


@given(
    st.lists(st.tuples(st.text("ab,.🙂", min_size=1, max_size=4), st.integers(0, 50)), max_size=12), st.data()
)
def test_what_was_heard_only_grows_and_is_a_prefix(words: list[tuple[str, int]], data: st.DataObject) -> None:
    heard, char, sample = HeardText(), 0, 0
    for word, samples in words:
        heard.add_text(word + " ")
        heard.add_words([WordTime(char, char + len(word), sample, sample + samples)])
        char, sample = char + len(word) + 1, sample + samples
    first = data.draw(st.integers(0, sample + 2))
    second = data.draw(st.integers(first, sample + 3))
    assert heard.at(second).startswith(heard.at(first))
    assert heard.text.startswith(heard.at(second))
    assert heard.at(sample + 1) == heard.text.rstrip()
