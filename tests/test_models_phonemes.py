import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from voice_agent.models import phonemes

SLOW_FIRST_CALL = settings(max_examples=20)


@pytest.mark.parametrize(
    ("words", "spoken"),
    [
        (["Hello,", "world."], ["həlˈoʊ,", "wˈɜːld."]),
        (["the", "apple"], ["ðiː", "ˈæpəl"]),  # "the" before a vowel
        (["I", "don’t", "know!"], ["ˌaɪ", "dˈoʊnt", "nˈoʊ!"]),
        (["The", "FBI", "and", "JSON"], ["ðiː", "ˌɛfbˌiːˈaɪ", "ænd", "dʒˌeɪˌɛsˌoʊˈɛn"]),
        (["twenty two", "cats"], ["twˈɛnti tˈuː", "kˈæts"]),
    ],
)
def test_words_are_read_as_a_clause_and_told_apart(words: list[str], spoken: list[str]) -> None:
    assert [unicodedata.normalize("NFC", ipa) for ipa in phonemes.phonemize(words)] == [
        unicodedata.normalize("NFC", ipa) for ipa in spoken
    ]


@pytest.mark.parametrize("word", ["—", "...", "😀", "안녕", "", "'", "-", "()", "你好!"])
def test_what_cannot_be_said_is_empty_and_moves_no_other_word(word: str) -> None:
    assert phonemes.phonemize(["Good", word, "morning."]) == [
        *phonemes.phonemize(["Good"]),
        "",
        *phonemes.phonemize(["morning."]),
    ]


@pytest.mark.parametrize(
    "word",
    ["3:30", "x=1/2", "Zorblax's", "USB-C", "c_d", "O'Brien", "(really)", "٣", "rhythm", "brrr", "qwzx"],
)
def test_odd_words_still_sound(word: str) -> None:
    assert any(char.isalpha() for char in phonemes.phonemize([word])[0])


def test_a_number_that_was_left_is_read_piece_by_piece() -> None:
    assert phonemes.phonemize(["3:30,"]) == [" ".join(phonemes.phonemize(["three", "thirty,"]))]


@pytest.mark.parametrize("closing", [*phonemes.END_MARKS, '."', "!)", "?”"])
def test_the_closing_mark_stays_with_its_word(closing: str) -> None:
    mark = next(char for char in closing if char in phonemes.END_MARKS)
    assert phonemes.phonemize(["yes" + closing, "no"])[0].endswith(mark)


@SLOW_FIRST_CALL
@given(st.lists(st.text(max_size=20), max_size=4))
@example(["1" * 24, "9,9", "$5.50", "1st", "1990s", "-5", "1e9", "½"])
@example(["a" * 5_000])
@example(["\ud800", "\x00", "\u202e", "e\u0301" * 8, "ﬁ", "’’’"])
def test_any_text_gives_one_string_per_word(words: list[str]) -> None:
    spoken = phonemes.phonemize(words)
    assert len(spoken) == len(words)
    for ipa in spoken:
        assert ipa == "" or any(char.isalpha() for char in ipa)


@SLOW_FIRST_CALL
@given(st.lists(st.from_regex(r"[A-Za-z]{1,12}[,.?!]?", fullmatch=True), min_size=1, max_size=3))
def test_every_latin_word_sounds(words: list[str]) -> None:
    assert all(phonemes.phonemize(words))


@pytest.mark.parametrize(
    ("texts", "share"),
    [
        (["Hello"], 0.0),
        (["안녕"], 1.0),
        (["ab", "안녕"], 0.5),
        (["café"], 0.0),
        (["123", "..."], 0.0),
        ([], 0.0),
    ],
)
def test_foreign_share_counts_letters_only(texts: list[str], share: float) -> None:
    assert phonemes.foreign_share(texts) == share
