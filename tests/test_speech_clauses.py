"""Clauses: where they are cut, that the deltas' borders never matter, and that nothing is lost or slow."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.speech.clauses import Clause, ClauseSplitter

_PIECES = [
    "Hello", "world", "Dr.", "e.g.", "3.14", "1,000", "10:05", "No.", "5", "no.", ",", ".", "?", "!", "...", "—", " - ",
    " ", "\n", "\n\n", "```", "`", "**", "[", "](", ")", "https://a.b/c,d", "and", "with",
    "오늘", "맑고", "지만", "요.", "今日は", "。", "、", "🙂", "\u200d", "e\u0301", "<", "|", "1.", "# ", "- ",
]  # fmt: skip
written_texts = st.lists(st.sampled_from(_PIECES), max_size=60).map("".join) | st.text(max_size=80)


def split(text: str, *, latency_first: bool = True) -> list[str]:
    splitter = ClauseSplitter(latency_first)
    return [clause.text for clause in splitter.push(text) + splitter.end()]


def stripped(text: str, *, latency_first: bool = True) -> list[str]:
    return [clause.strip() for clause in split(text, latency_first=latency_first)]


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("Well of course, I can help with that.", ["Well of course,", "I can help with that."]),
        ("Yes, I can.", ["Yes, I can."]),  # one word is too little sound to cover the making of the next
        ("I can help with that. What is it?", ["I can help with that.", "What is it?"]),
        ("They went to see it because the rain stopped", ["They went to see it", "because the rain stopped"]),
        ("The ferry leaves at nine", ["The ferry leaves at nine"]),
        ("The ferry leaves every morning at nine", ["The ferry leaves every morning", "at nine"]),
        ("The capital of France is Paris.", ["The capital of France", "is Paris."]),
        ("It is blue and so am I", ["It is blue and so am I"]),
        ("All good here: two things remain", ["All good here:", "two things remain"]),
        ("That was it — or was it", ["That was it —", "or was it"]),
        ("That was it—or was it", ["That was it—", "or was it"]),
        ("## The plan\nFirst we eat", ["## The plan", "First we eat"]),
        ("Here it is:\nfirst we eat", ["Here it is:", "first we eat"]),
        ("It is a wrapped\nline of text", ["It is a wrapped\nline of text"]),
        ("오늘 날씨는 맑고 기온은 높아요.", ["오늘 날씨는 맑고", "기온은 높아요."]),
        ("네, 알겠습니다. 도와드릴게요.", ["네, 알겠습니다.", "도와드릴게요."]),
        ("이 제품은 최고 품질을 자랑합니다.", ["이 제품은 최고 품질을 자랑합니다."]),
        ("今日はいい天気ですね。明日は雨です。", ["今日はいい天気ですね。", "明日は雨です。"]),
        ("이 iPhone은 정말 좋지만 and it is dear", ["이 iPhone은 정말 좋지만", "and it is dear"]),
    ],
)
def test_first_clause_leaves_at_the_first_natural_break(text: str, clauses: list[str]) -> None:
    assert stripped(text) == clauses


@pytest.mark.parametrize(
    "whole",
    [
        "pi is about 3.14159",
        "we have 1,000,000 of them",
        "be there at 10:05 sharp",
        "ask old Dr. Smith today",
        "eat more fruit e.g. apples",
        "the good J. R. R. Tolkien wrote",
        "take bus No. 5 today",
        "we meet at 5 p.m. today",
        "look at https://ex.am/a,b?c=d,e:f now",
        "look at [the docs, all of them](https://ex.am/a) now",
        "the code `f(a, b, c)` works",
        "the sum 10 - 3 here",
        "1. one",
    ],
)
def test_numbers_names_links_and_code_stay_whole(whole: str) -> None:
    assert stripped(whole) == [whole]


def test_a_break_that_could_still_go_on_waits_for_the_next_character() -> None:
    splitter = ClauseSplitter()
    assert splitter.push("The value is 3.") == []
    assert [c.text for c in splitter.push("14 and so on")] == ["The value is 3.14 "]
    splitter = ClauseSplitter()
    assert splitter.push("The value is 3.") == []
    assert [c.text for c in splitter.push(" ")] == ["The value is 3."]
    splitter = ClauseSplitter()
    assert splitter.push("Well he said no. ") == []
    assert [c.text for c in splitter.push("Then")] == ["Well he said no."]


def test_a_comma_after_a_letter_does_not_wait() -> None:
    splitter = ClauseSplitter()
    assert splitter.push("Well of course,") == [Clause("Well of course,", 0, 15)]


def test_hurry_cuts_between_words_that_do_not_lean_on_each_other_and_only_after_a_few() -> None:
    splitter = ClauseSplitter()
    assert not splitter.push("It was a") and splitter.hurry() == []
    assert not splitter.push(" very old green house on")
    (clause,) = splitter.hurry()
    assert clause.text == "It was a very old green "
    assert [c.text for c in splitter.end()] == ["house on"]
    splitter = ClauseSplitter()
    splitter.push("Take the `one two three four")
    assert splitter.hurry() == []


def test_later_clauses_are_longer() -> None:
    text = (
        "one two three, four five six, seven eight nine, ten eleven twelve, "
        "and so it goes on, for a long time, yes, and more."
    )
    lengths = [len(clause.split()) for clause in split(text)]
    assert lengths[0] == 3
    assert lengths[1] >= 6
    assert all(length >= 12 for length in lengths[2:-1])


def test_quality_first_gives_whole_sentences() -> None:
    text = "Well, of course I can help, and gladly. Dr. Smith, too, is here! Is he?"
    assert stripped(text, latency_first=False) == [
        "Well, of course I can help, and gladly.",
        "Dr. Smith, too, is here!",
        "Is he?",
    ]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("The ferry leaves at nine. See you", ["The", "ferry", "leaves", "at", "nine.", "See", "you"]),
        ("Well, of course", ["Well,", "of", "course"]),
        ("On May 5 we met Dr. Smith", ["On", "May 5 we", "met", "Dr. Smith"]),
        ("It is 20 km away, or $5 million more", ["It", "is 20 km", "away,", "or $5 million", "more"]),
        ("a **very good** plan", ["a **very good** plan"]),
        ("see [the whole page](https://a.b) here", ["see [the whole page](https://a.b) here"]),
        ("오늘 날씨는 맑고 iPhone은 정말", ["오늘", "날씨는", "맑고 iPhone은", "정말"]),
        ("今日はいい天気ですね。明日は", ["今日はいい天気ですね。", "明日は"]),
    ],
)
def test_a_talker_that_takes_text_as_it_comes_gets_plain_words_at_once(text: str, pieces: list[str]) -> None:
    splitter = ClauseSplitter(by_word=True)
    assert [clause.text.strip() for clause in splitter.push(text) + splitter.end()] == pieces
    assert stripped(text, latency_first=False) == [
        clause.text.strip() for clause in _whole(ClauseSplitter(latency_first=False, by_word=True), text)
    ]


def _whole(splitter: ClauseSplitter, text: str) -> list[Clause]:
    return splitter.push(text) + splitter.end()


def test_a_fence_leaves_at_its_first_line_and_its_code_is_not_counted() -> None:
    splitter = ClauseSplitter()
    before = splitter.push("Here is some code:\n```python\n")
    assert [clause.text for clause in before] == ["Here is some code:\n", "```python\n"]
    assert splitter.push("for i in range(3), and so on:\n    print(i)\n```\n") == []
    assert splitter.end() == []


@pytest.mark.parametrize("text", ["", " ", "...", "--", "🙂", "🙂 🙂", "**", "\n\n", "👨‍👩‍👧", "```"])
def test_nothing_to_say_gives_no_clause(text: str) -> None:
    assert split(text) == []


def test_silent_text_belongs_to_the_clause_that_follows() -> None:
    assert split("🙂 … **Hi**") == ["🙂 … **Hi**"]


def test_pieces_keep_their_white_space() -> None:
    splitter = ClauseSplitter()
    pieces = ["Hel", "lo", " ", "wor", "ld", " .", "\n", "Bye"]
    clauses = [clause for piece in pieces for clause in splitter.push(piece)] + splitter.end()
    assert "".join(clause.text for clause in clauses) == "Hello world .\nBye"


@given(written_texts, st.booleans(), st.booleans(), st.data())
def test_deltas_borders_never_matter_and_clauses_tile_the_text(
    text: str, latency_first: bool, by_word: bool, data: st.DataObject
) -> None:
    whole = ClauseSplitter(latency_first, by_word=by_word)
    expected = whole.push(text) + whole.end()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    splitter, clauses = ClauseSplitter(latency_first, by_word=by_word), list[Clause]()
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        clauses += splitter.push(text[start:end])
    assert clauses + splitter.end() == expected
    place = 0
    for clause in expected:
        assert (clause.start_char, clause.text) == (place, text[place : clause.end_char])
        place = clause.end_char
    if place < len(text) and "```" not in text and "~~~" not in text:
        assert not any(char.isalnum() for char in text[place:])


@pytest.mark.parametrize("unit", ["a", "가", "a,", "🙂", "[x", "`a ", "https://a", "1", "e\u0301", "a b "])
def test_endless_text_is_cut_in_bounds_and_in_linear_time(unit: str) -> None:
    def seconds(chars: int) -> float:
        text = unit * (chars // len(unit))
        started = time.perf_counter()
        assert all(len(clause) <= 2100 for clause in split(text))
        return time.perf_counter() - started

    short = min(seconds(4_000) for _ in range(3))
    assert seconds(40_000) < 40 * short + 0.05  # quadratic would be 100 times


def test_a_run_without_spaces_is_not_cut_inside_a_grapheme() -> None:
    for clause in split("e\u0301" * 1000):
        assert clause.startswith("e")
