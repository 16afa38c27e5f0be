"""Stretches of speech as subtitles: cut into cues that can be read, written as SRT or WebVTT. Pure.

Sources: the SubRip form as players read it; W3C WebVTT. Cues are cut at sentence ends where words have times.
"""

from collections.abc import Iterable
from dataclasses import replace

from voice_agent.requests import Segment, TimedWord

LONGEST_S = 7.0
LONGEST_CHARS = 84  # two lines
ENDINGS = (".", "!", "?", "。", "！", "？")


def cues(segments: Iterable[Segment]) -> list[Segment]:
    """Segments short enough to be read; one without word times stays whole."""
    return [cue for segment in segments for cue in (_cut(segment) if segment.words else [segment])]


def srt(segments: Iterable[Segment]) -> str:
    """SubRip: numbered cues, times with a comma."""
    blocks = [
        f"{number}\n{_time(cue.start_s, ',')} --> {_time(cue.end_s, ',')}\n{_one_line(cue.text)}\n"
        for number, cue in enumerate(cues(segments), start=1)
    ]
    return "\n".join(blocks)


def vtt(segments: Iterable[Segment]) -> str:
    """WebVTT: times with a full stop; no cue text can hold an arrow or markup."""
    blocks = ["WEBVTT\n"]
    for cue in cues(segments):
        text = _one_line(cue.text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        blocks.append(f"{_time(cue.start_s, '.')} --> {_time(cue.end_s, '.')}\n{text}\n")
    return "\n".join(blocks)


def _cut(segment: Segment) -> list[Segment]:
    found, held = list[Segment](), list[TimedWord]()
    for word in segment.words:
        if held and _full(held, word):
            found.append(_cue(segment, held))
            held = []
        held.append(word)
    return [*found, _cue(segment, held)]


def _full(held: list[TimedWord], word: TimedWord) -> bool:
    chars = sum(len(one.text) + 1 for one in held) + len(word.text)
    too_long = word.end_s - held[0].start_s > LONGEST_S or chars > LONGEST_CHARS
    return too_long or held[-1].text.endswith(ENDINGS)


def _cue(segment: Segment, words: list[TimedWord]) -> Segment:
    text = " ".join(word.text for word in words)
    return replace(segment, text=text, start_s=words[0].start_s, end_s=words[-1].end_s, words=tuple(words))


def _time(seconds: float, mark: str) -> str:
    ms = round(1000 * seconds)
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{mark}{ms % 1000:03}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
