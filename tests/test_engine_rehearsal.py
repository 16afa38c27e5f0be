"""What a speech engine speaks to nobody before it is ready."""

import logging
import queue

import pytest

from voice_agent.engine import rehearsal
from voice_agent.engine.messages import (
    Failed,
    Finished,
    FromEngine,
    Speak,
    SpeakEnd,
    SpeakText,
    SpeechChunk,
    ToEngine,
)


class Engine:
    """Ends every reply when its text has ended; those in `failing` badly."""

    def __init__(self, failing: str = "") -> None:
        self.heard = queue.SimpleQueue[FromEngine]()
        self.told: list[ToEngine] = []
        self._failing = failing

    def handle(self, message: ToEngine) -> None:
        self.told.append(message)
        if not isinstance(message, SpeakEnd):
            return
        key = message.request_id, message.epoch
        if message.request_id == self._failing:
            self.heard.put(Failed(*key, "unsupported_language", "not this clause", final=False))
            self.heard.put(Failed(*key, "model_error", "broken row"))
        else:
            self.heard.put(SpeechChunk(*key, b"\0\0", 24_000, 0, []))
            self.heard.put(Finished(*key, "stop"))


def test_the_usual_voice_speaks_in_both_modes_and_every_other_once() -> None:
    wanted = list(rehearsal.replies(("ann", "ben", "cat"), ("ben", "cat"), "ben"))
    assert [(speak.voice, speak.latency_first, bool(speak.instructions)) for speak in wanted] == [
        ("ben", True, False),
        ("ben", False, False),
        ("ann", True, False),
        ("cat", True, False),
        ("ben", True, True),
    ]
    assert len({speak.request_id for speak in wanted}) == len(wanted)


def test_each_reply_has_all_its_words_and_ends_before_the_next_begins() -> None:
    engine, wanted = Engine(), list(rehearsal.replies(("ann",), (), "ann"))
    rehearsal.rehearse(engine.handle, engine.heard, wanted, "Hello, you.", "en")
    assert [type(message) for message in engine.told] == [Speak, SpeakText, SpeakEnd] * 2
    clause = engine.told[1]
    assert isinstance(clause, SpeakText)
    assert [(word.text, word.start_char, word.end_char) for word in clause.words] == [
        ("Hello,", 0, 6),
        ("you.", 7, 11),
    ]
    assert engine.heard.empty()


def test_one_that_fails_is_told_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    engine, wanted = Engine("rehearsal quality"), list(rehearsal.replies(("ann", "ben"), (), "ann"))
    with caplog.at_level(logging.WARNING):
        rehearsal.rehearse(engine.handle, engine.heard, wanted, "Hello.", "en")
    assert [record.getMessage() for record in caplog.records] == [
        "the rehearsal quality failed: model_error: broken row"
    ]
    assert len(engine.told) == 9
