"""Golden tables of what is said for what is written; the same however the text was cut into deltas."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.engine.messages import SpokenWord
from voice_agent.speech.clauses import Clause, ClauseSplitter
from voice_agent.speech.languages import language_of
from voice_agent.speech.speakable import Speakable, speakable


def spoken(
    deltas: list[str], hint: str, *, latency_first: bool = True, by_word: bool = False
) -> list[SpokenWord]:
    splitter, speech = ClauseSplitter(latency_first, by_word=by_word), Speakable(hint)
    clauses = [clause for delta in deltas for clause in splitter.push(delta)] + splitter.end()
    return [word for clause in clauses for word in speech.words(clause)]


def say(text: str, hint: str = "en") -> str:
    """Say a text given whole, after checking that given by single characters, or said word by word, it is the same."""
    words = spoken([text], hint)
    assert spoken(list(text), hint) == words
    assert spoken([text], hint, by_word=True) == words
    return " ".join(word.text for word in words)


ENGLISH = {
    # markup (C54, C56)
    "## Plan\n**Hi** :) 😀 see [docs](https://ex.am/p?q=1)\n* one\n2*3=6": (
        "Plan. Hi see docs. one. two times three equals six"
    ),
    "5 < 10, I <3 you, a<b>c": "five less than ten, I love you, a less than b greater than c",
    "if x <3 then": "if x less than three then",
    "# Title #tag": "Title tag",
    "*one* _two_ ***three*** ~~four~~ un*believ*able snake_case __init__": (
        "one two three four unbelievable snake case init"
    ),
    "**all, of this** is bold": "all, of this is bold",
    "1. First\n2. Second": "one, First. two, Second",
    "- milk\n- [x] eggs\n> said\n\n---\nend": "milk. eggs. said. end",
    "| a | b |\n|---|---|\n| c | d |": "a, b, c, d,",
    "Run this:\n```python\nx = 1\n```\nThen `foo(1)` is done.": "Run this, code example. Then foo one is done.",
    "![A cat](cat.png) and <https://a.example.com>, <jo@ex.am>": "A cat and a dot example dot com, jo at ex dot am",
    "<b>bold</b> one<br>two &amp; three": "bold one, two and three",
    "wrapped\nline": "wrapped line",
    # numbers (C57)
    "$5.500, $3.567, 1.0, 3.10": (
        "five point five zero zero dollars, three point five six seven dollars, one point zero, three point one zero"
    ),
    "2026-11-29 at 10:05": "November twenty-ninth, twenty twenty-six at ten oh five",
    "Call 555-0100 for v2.0": "Call five five five, zero one zero zero for version two point zero",
    "1,000,000": "one million",
    "2026-13-29": "two zero two six, one three, two nine",
    "11/29, 11/29/2026, 29/11/2026": (
        "November twenty-ninth, November twenty-ninth, twenty twenty-six, November twenty-ninth, twenty twenty-six"
    ),
    "1/2, 3/4, 2/3, 24/7": "one half, three quarters, two thirds, twenty-four seven",
    "7pm, 7:30 p.m. or 12:00": "seven PM, seven thirty PM or twelve o'clock",
    "It is 5 p.m.": "It is five PM.",
    "$5.50 $1 $0.99 $1.00 €3 ₩1000 £0.01 -$20": (
        "five dollars and fifty cents one dollar ninety-nine cents one dollar three euros one thousand won one penny "
        "minus twenty dollars"
    ),
    "$1.5 million, $10k": "one point five million dollars, ten thousand dollars",
    "50%, 3-5%, 10–15 km": "fifty percent, three to five percent, ten to fifteen kilometers",
    "1990-1995, the 1990s, '90s, in 1815": (
        "nineteen ninety to nineteen ninety-five, the nineteen nineties, nineties, in eighteen fifteen"
    ),
    "1815 people in 2026": "one thousand eight hundred fifteen people in twenty twenty-six",
    "the 21st, 2nd and 103rd": "the twenty-first, second and one hundred third",
    "20°C, -5°C, 5 km, 1 kg, 3.5 GB, 60 mph": (
        "twenty degrees Celsius, minus five degrees Celsius, five kilometers, one kilogram, "
        "three point five gigabytes, sixty miles per hour"
    ),
    "10-3=7, 10 - 3 = 7, 6 / 2 = 3, 2+2=4": (
        "ten minus three equals seven, ten minus three equals seven, six divided by two equals three, "
        "two plus two equals four"
    ),
    "a == b, a != b, 5 <= 6": "a equals b, a is not equal to b, five is at most six",
    "+1 (555) 123-4567": "one, five five five, one two three, four five six seven",
    "192.168.0.1, 3.11.4, 007": (
        "one hundred ninety-two dot one hundred sixty-eight dot zero dot one, three point eleven point four, "
        "zero zero seven"
    ),
    "mp3, B2B, COVID-19, 16:9, No. 5, .5": (
        "mp three, B two B, COVID nineteen, sixteen to nine, number five, point five"
    ),
    "99999999999999999999": " ".join(["nine"] * 20),
    # addresses, names, symbols
    "See https://www.example.com/path?q=1. Then example.org/x, too.": (
        "See example dot com. Then example dot org, too."
    ),
    "Mail john.doe@example.com.": "Mail john dot doe at example dot com.",
    "Dr. Smith, e.g. Mr Bean vs. J. R. Ewing, etc.": (
        "Doctor Smith, for example Mister Bean versus J R Ewing, et cetera."
    ),
    "The U.S. and C# and C++ & AT&T": "The U S and C sharp and C plus plus and AT and T",
    "@john #1 and/or main.py end.Next": "at john number one and or main dot py end. Next",
    "naïve e\u0301te\u0301 don't it’s well-known": "naïve été don't it’s well-known",
    # pauses
    "Wait... what?! Really!!! (Yes) “so” — it is; now: go": "Wait, what? Really! Yes so, it is, now, go",
    "Hello\u0007 wor\u200bld\u0000!": "Hello world!",
}  # fmt: skip

KOREAN = {
    "2026년 11월 29일": "이천이십육년 십일월 이십구일",
    "2026-11-29": "이천이십육년 십일월 이십구일",
    "3시 5분에 만나요.": "세 시 오 분에 만나요.",
    "10:05, 15:30": "열 시 오 분, 십오 시 삼십 분",
    "5천원, 12,000원, ₩1000, $5": "오천원, 만 이천원, 천원, 오 달러",
    "50%를 할인": "오십 퍼센트를 할인",
    "3개를, 20명, 20살, 2번, 1번째": "세 개를, 스무 명, 스무 살, 두 번, 첫 번째",
    "3개월, 3시간, 10층, 5달러, 제3장": "삼개월, 세 시간, 십층, 오달러, 제 삼장",
    "3~5개, 3-5일": "세 개에서 다섯 개, 삼에서 오일",
    "6월 10월": "유월 시월",
    "20°C, -5°C, 5km를": "섭씨 이십 도, 영하 오 도, 오 킬로미터를",
    "2*3=6": "이 곱하기 삼 은 육",
    "1/2, 3.14": "이분의 일, 삼 점 일사",
    "010-1234-5678": "공일공, 일이삼사, 오육칠팔",
    "**굵게** 😀 https://naver.com 보세요": "굵게 naver 닷 com 보세요",
    "john@example.com 으로": "john 골뱅이 example 닷 com 으로",
    "예시:\n```\nx\n```\n끝났어요.": "예시, 코드 예시. 끝났어요.",
}


@pytest.mark.parametrize(("written", "said"), ENGLISH.items())
def test_english_text_is_said_as_in_the_golden_table(written: str, said: str) -> None:
    assert say(written) == said


@pytest.mark.parametrize(("written", "said"), KOREAN.items())
def test_korean_text_is_said_as_in_the_golden_table(written: str, said: str) -> None:
    assert say(written, "ko") == said


@pytest.mark.parametrize("written", ["", " ", "...", "🙂", "--", "**", "\x00\x01", "]("])
def test_nothing_to_say_gives_no_words(written: str) -> None:
    assert spoken([written], "en") == []
    assert speakable(Clause(written, 0, len(written)), "en") == []


def test_code_marks_in_the_text_itself_are_not_taken_for_code() -> None:
    assert say("a\x01b\x00c") == "a b c"


def test_words_know_their_place_in_the_reply() -> None:
    text = "I paid **$5.50**, at 10:05."
    places = [(word.text, text[word.start_char : word.end_char]) for word in spoken([text], "en")]
    assert places == [
        ("I", "I"),
        ("paid", "paid"),
        ("five dollars and fifty cents,", "$5.50"),
        ("at", "at"),
        ("ten oh five.", "10:05"),
    ]


def test_a_single_text_keeps_its_offset() -> None:
    assert speakable(Clause("Hi 2", 10, 14), "ko") == [SpokenWord("Hi", 10, 12), SpokenWord("이", 13, 14)]


def test_other_languages_lose_only_the_markup() -> None:
    assert [word.text for word in speakable(Clause("**今日**は3時です。", 0, 13), "ja")] == [
        "今日は",
        "3",
        "時です.",
    ]


def test_the_language_follows_the_text_clause_by_clause() -> None:
    speech = Speakable("en")
    for text, language in [("12 - 3", "en"), ("안녕하세요 3", "ko"), ("123!", "ko"), ("It is fine.", "en")]:
        speech.words(Clause(text, 0, len(text)))
        assert speech.language == language


@pytest.mark.parametrize(
    ("text", "hint", "language"),
    [
        ("Hello", "en", "en"),
        ("Bonjour", "fr", "fr"),
        ("Hello", "ko", "en"),
        ("안녕", "en", "ko"),
        ("iPhone 15가 좋아요", "en", "ko"),
        ("john@example.com 으로", "ko", "ko"),
        ("The word 사랑 means love", "en", "en"),
        ("今日は晴れ", "en", "ja"),
        ("今天天气", "en", "zh"),
        ("大韓民國은", "en", "ko"),
        ("Привет", "en", "ru"),
        ("مرحبا", "en", "ar"),
        ("γεια", "en", "el"),
        ("สวัสดี", "en", "th"),
        ("123 !? 🙂", "ko", "ko"),
        ("", "de", "de"),
    ],
)
def test_language_is_told_by_script(text: str, hint: str, language: str) -> None:
    assert language_of(text, hint) == language


_written = st.lists(
    st.sampled_from([*ENGLISH, *KOREAN, " ", "\n", "**", "`", "```\n", "[", "](", "<", "$", "-", "1"]),
    max_size=6,
)


@given(
    _written.map("".join) | st.text(max_size=60),
    st.sampled_from(["en", "ko", "ja"]),
    st.booleans(),
    st.data(),
)
def test_ranges_ascend_inside_the_text_and_deltas_never_matter(
    text: str, hint: str, latency_first: bool, data: st.DataObject
) -> None:
    words = spoken([text], hint, latency_first=latency_first)
    end = 0
    for word in words:
        assert end <= word.start_char < word.end_char <= len(text)
        assert word.text.strip(" ,.!?")
        end = word.end_char
    cut = data.draw(st.integers(0, len(text)))
    assert spoken([text[:cut], text[cut:]], hint, latency_first=latency_first) == words


@pytest.mark.parametrize(
    "unit",
    [
        "1",
        "a.",
        "1,000",
        "[a](",
        "<b ",
        "1-",
        "*a",
        "_a",
        "a@",
        "http://",
        "1:",
        "$",
        "'s",
        "&lt;",
        "-",
        "\n>",
        " ",
        "<!--",
    ],
)
def test_texts_made_to_be_slow_are_not(unit: str) -> None:
    text = unit * (3000 // len(unit))
    started = time.perf_counter()
    speakable(Clause(text, 0, len(text)), "en")
    speakable(Clause(text, 0, len(text)), "ko")
    assert time.perf_counter() - started < 1.0
