"""Subtitles: times, cuts at sentence ends, nothing that could be markup."""

import pytest

from voice_agent.api.subtitles import cues, srt, vtt
from voice_agent.requests import Segment, TimedWord


def spoken(text: str, start_s: float = 0.0, word_s: float = 0.5) -> Segment:
    words = tuple(
        TimedWord(word, start_s + n * word_s, start_s + (n + 1) * word_s)
        for n, word in enumerate(text.split())
    )
    return Segment(text, start_s, start_s + len(words) * word_s, "en", words)


def test_both_forms_write_times_their_own_way():
    segment = Segment("Hello\nthere --> <b>&", 3_661.5, 3_662.0406, "en")
    assert srt([segment, segment]) == (
        "1\n01:01:01,500 --> 01:01:02,041\nHello there --> <b>&\n\n"
        "2\n01:01:01,500 --> 01:01:02,041\nHello there --> <b>&\n"
    )
    assert vtt([segment]) == ("WEBVTT\n\n01:01:01.500 --> 01:01:02.041\nHello there --&gt; &lt;b&gt;&amp;\n")
    assert srt([]) == "" and vtt([]) == "WEBVTT\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One two. Three four!", ["One two.", "Three four!"]),
        ("word " * 20, ["word " * 13 + "word", "word " * 5 + "word"]),
        (f"{'a' * 50} {'b' * 50}", ["a" * 50, "b" * 50]),
        ("One", ["One"]),
    ],
)
def test_a_cue_is_a_sentence_and_short_enough_to_read(text: str, found: list[str]):
    cut = cues([spoken(text.strip(), 2.0)])
    assert [cue.text for cue in cut] == found
    assert cut[0].start_s == 2.0 and all(a.end_s <= b.start_s for a, b in zip(cut, cut[1:], strict=False))


def test_without_word_times_a_stretch_stays_whole():
    segment = Segment("One two. Three four!", 0, 9, "en")
    assert cues([segment]) == [segment]
