"""The replies that a speech engine speaks to nobody before it says it is ready.

They go the way of every reply, messages in and sound out, so what is done once and for all (memory that a copy to the
device starts from, a kernel that is loaded when it is first wanted) is not done in a caller's first reply. It knows no
device: an engine hands it its own ears and ends.
"""

import logging
import queue
import re
from collections.abc import Callable, Iterable, Iterator

from voice_agent.engine.messages import (
    Failed,
    Finished,
    FromEngine,
    Speak,
    SpeakEnd,
    SpeakText,
    SpokenWord,
    ToEngine,
)

logger = logging.getLogger(__name__)

ALL_SIZES_FRAMES = 40  # a latency-first reply has then rendered launches of every length that it grows to
OPENING_FRAMES = 2
INSTRUCTION = "Speak calmly."
_WORD = re.compile(r"\S+")


def replies(voices: Iterable[str], instructed: Iterable[str], voice: str) -> Iterator[Speak]:
    """The usual voice in both modes, every other that begins in a way of its own, and one that is told how."""
    yield Speak("rehearsal latency", 0, voice, latency_first=True, most_frames=ALL_SIZES_FRAMES)
    yield Speak("rehearsal quality", 0, voice, latency_first=False, most_frames=ALL_SIZES_FRAMES)
    for other in voices:
        if other != voice:
            yield Speak(f"rehearsal {other}", 0, other, most_frames=OPENING_FRAMES)
    for told in list(instructed)[:1]:
        name = "rehearsal instructed"
        yield Speak(name, 0, told, most_frames=OPENING_FRAMES, instructions=INSTRUCTION)


def rehearse(
    handle: Callable[[ToEngine], None],
    heard: "queue.SimpleQueue[FromEngine]",
    wanted: Iterable[Speak],
    text: str,
    language: str,
) -> None:
    """Speak the text in each of these replies, one after the other; blocks. One that fails is told in the log."""
    words = [SpokenWord(found.group(), found.start(), found.end()) for found in _WORD.finditer(text)]
    for speak in wanted:
        handle(speak)
        handle(SpeakText(speak.request_id, speak.epoch, words, language))
        handle(SpeakEnd(speak.request_id, speak.epoch))
        match _ending(heard):
            case Failed(code=code, message=message):
                logger.warning("the %s failed: %s: %s", speak.request_id, code, message)
            case _:
                pass


def _ending(heard: "queue.SimpleQueue[FromEngine]") -> Finished | Failed:
    while True:
        match heard.get():
            case Finished() | Failed(final=True) as ending:
                return ending
            case _:
                pass
