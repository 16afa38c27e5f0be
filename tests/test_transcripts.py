"""Files written down: cut at pauses, in order, with times; every failure names what is to blame."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine_rig import until
from tests.fakes import Die, Fail, FakeEngine, Stall, Step, tone
from voice_agent.audio import MODEL_RATE_HZ, Samples, silence
from voice_agent.clock import ManualClock, MonotonicClock
from voice_agent.engine.messages import Transcribe
from voice_agent.errors import BusyError, EngineError, EngineStalled, RemoteProtocolError
from voice_agent.media.containers import encode
from voice_agent.places import Places
from voice_agent.requests import Segment, Transcribed, TranscriptionRequest
from voice_agent.transcripts import Stretches, TranscriptParts, Transcripts

WINDOW = 512
S = MODEL_RATE_HZ


class Window(NamedTuple):
    probability: float
    first_sample: int


class Loud:
    """A voice detector for tones: loud is voice."""

    def __init__(self) -> None:
        self._first = 0
        self._rest = silence(0)

    def push(self, samples: Samples) -> Sequence[tuple[float, int]]:
        self._rest = np.concatenate([self._rest, samples])
        windows = list[Window]()
        while len(self._rest) >= WINDOW:
            windows.append(Window(float(np.abs(self._rest[:WINDOW]).max() > 500), self._first))
            self._rest, self._first = self._rest[WINDOW:], self._first + WINDOW
        return windows


def stretches(pattern: Sequence[tuple[bool, float]], longest_s: float = 20.0) -> list[tuple[float, float]]:
    """(voiced?, seconds) to stretches in seconds."""
    found, cutter, at = list[tuple[int, int]](), Stretches(longest_s), 0
    for voiced, seconds in pattern:
        for _ in range(round(seconds * S / WINDOW)):
            found += cutter.window(float(voiced), at)
            at += WINDOW
    return [(round(a / S, 1), round(b / S, 1)) for a, b in [*found, *cutter.finish()]]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ([], []),
        ([(False, 30)], []),
        ([(True, 3)], [(0.0, 3.0)]),
        ([(False, 2), (True, 3), (False, 2)], [(2.0, 5.0)]),
        ([(True, 1), (False, 0.5), (True, 1)], [(0.0, 2.5)]),
        ([(True, 1), (False, 1), (True, 1)], [(0.0, 1.0), (2.0, 3.0)]),
        ([(True, 10), (False, 0.4), (True, 4), (False, 0.2), (True, 10)], [(0.0, 10.0), (10.4, 24.5)]),
        ([(True, 45)], [(0.0, 20.0), (20.0, 40.0), (40.0, 45.0)]),
    ],
)
def test_speech_is_cut_at_its_pauses(pattern: list[tuple[bool, float]], found: list[tuple[float, float]]):
    assert stretches(pattern) == found


@given(st.lists(st.tuples(st.booleans(), st.floats(0.04, 12)), max_size=12))
def test_stretches_are_in_order_short_enough_and_hold_all_voice(pattern: list[tuple[bool, float]]):
    found, cutter, at, voiced_windows = list[tuple[int, int]](), Stretches(), 0, list[int]()
    for voiced, seconds in pattern:
        for _ in range(round(seconds * S / WINDOW)):
            found += cutter.window(float(voiced), at)
            voiced_windows += [at] if voiced else []
            at += WINDOW
    found += cutter.finish()
    assert all(end - first <= 20 * S + WINDOW for first, end in found)
    assert all(a[1] <= b[0] for a, b in zip(found, found[1:], strict=False))
    assert all(any(first <= at < end for first, end in found) for at in voiced_windows)


def transcripts(
    engine: FakeEngine, places: Places | None = None, clock: ManualClock | None = None
) -> Transcripts:
    thread = ThreadPoolExecutor(1)
    return Transcripts(
        TranscriptParts(engine, Loud, thread, places or Places(4), clock or MonotonicClock(), "en")
    )


def wav(*seconds_loud: tuple[float, bool]) -> bytes:
    pieces = [
        tone(300, 1000 * seconds) if loud else silence(round(seconds * S)) for seconds, loud in seconds_loud
    ]
    return encode(np.concatenate(pieces), "wav", S)


async def written(
    engine: FakeEngine, data: bytes, language: str | None = None
) -> tuple[list[Segment], list[Transcribed]]:
    request = TranscriptionRequest(data, language, timed=False)
    got = [piece async for piece in transcripts(engine).transcribe(request)]
    return (
        [piece for piece in got if isinstance(piece, Segment)],
        [piece for piece in got if isinstance(piece, Transcribed)],
    )


async def test_a_short_file_is_recognized_in_one_piece_and_a_long_one_stretch_by_stretch():
    engine = FakeEngine(MonotonicClock(), hears=["hello"])
    segments, ends = await written(engine, wav((1, True), (2, False), (1, True)))
    assert [segment.text for segment in segments] == ["hello"] and ends == [Transcribed(4.0)]

    engine = FakeEngine(MonotonicClock(), hears=["one", "two", "", "four"])
    data = wav((2, False), (3, True), (2, False), (4, True), (9, False), (1, True), (2, False), (2, True))
    segments, ends = await written(engine, data, "ko")
    assert [(s.text, round(s.start_s), round(s.end_s)) for s in segments] == [
        ("one", 2, 5),
        ("two", 7, 11),
        ("four", 23, 25),
    ]
    assert ends == [Transcribed(25.0)]
    asked: list[Transcribe] = engine.of_kind(Transcribe)
    assert {ask.language for ask in asked} == {"ko"}
    assert all(len(ask.pcm) < 2 * S * 6 for ask in asked)


async def test_the_first_stretch_is_told_before_the_rest_was_looked_at():
    engine = FakeEngine(MonotonicClock(), hears=["one", [Stall()]])
    request = TranscriptionRequest(wav((1, True), (30, False), (2, True)), None, timed=False)
    pieces = transcripts(engine).transcribe(request)
    first = await anext(pieces)
    assert isinstance(first, Segment) and first.text == "one"
    await pieces.aclose()
    assert engine.in_flight() == []


async def test_hanging_up_aborts_the_recognizer_and_gives_the_place_back():
    engine, places = FakeEngine(MonotonicClock(), hears=[[Stall()]]), Places(1)
    pieces = transcripts(engine, places).transcribe(TranscriptionRequest(wav((1, True)), None, timed=False))
    waiting = asyncio.ensure_future(anext(pieces))
    await until(lambda: bool(engine.in_flight()))
    with pytest.raises(BusyError):
        await anext(transcripts(engine, places).transcribe(TranscriptionRequest(b"", None, timed=False)))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await pieces.aclose()
    assert engine.aborted and engine.in_flight() == []
    async with places.taken():
        pass


@pytest.mark.parametrize(
    ("data", "hears", "raised", "param"),
    [
        (b"", "x", "invalid_audio", "file"),
        (b"no sound", "x", "invalid_audio", "file"),
        (wav((1, True)), [Fail("invalid_language")], "invalid_value", "language"),
    ],
)
async def test_what_is_to_blame_is_named(data: bytes, hears: Sequence[Step], raised: str, param: str):
    with pytest.raises(RemoteProtocolError) as caught:
        await written(FakeEngine(MonotonicClock(), hears=[hears]), data)
    assert (caught.value.code, caught.value.param) == (raised, param)


async def test_a_language_that_is_not_heard_is_refused_before_the_file_is_read():
    def hearing(language: str, param: str) -> str:
        raise RemoteProtocolError("invalid_value", f"No {language}.", param)

    parts = TranscriptParts(
        FakeEngine(MonotonicClock()), Loud, ThreadPoolExecutor(1), Places(1), MonotonicClock(), "en", hearing
    )
    with pytest.raises(RemoteProtocolError, match="No xx") as caught:
        await anext(Transcripts(parts).transcribe(TranscriptionRequest(b"no sound", "xx", timed=False)))
    assert caught.value.param == "language"


async def test_an_engine_that_fails_dies_or_stalls_is_an_engine_error():
    for steps in ([Fail("model_error")], [Die()]):
        with pytest.raises(EngineError):
            await written(FakeEngine(MonotonicClock(), hears=[steps]), wav((1, True)))
    clock = ManualClock()
    engine = FakeEngine(clock, hears=[[Stall()]])
    pieces = transcripts(engine, clock=clock).transcribe(
        TranscriptionRequest(wav((1, True)), None, timed=False)
    )
    waiting = asyncio.ensure_future(anext(pieces))
    await until(lambda: bool(engine.in_flight()))
    await clock.advance_ms(61_000)
    with pytest.raises(EngineStalled):
        await waiting


async def test_a_stretch_whose_engine_died_is_asked_for_once_more():
    request = TranscriptionRequest(wav((1, True)), None, timed=False)
    dying = Fail("engine_died", retryable=True)
    engine = FakeEngine(MonotonicClock(), hears=[[dying], "here it is"])
    segments = [piece async for piece in transcripts(engine).transcribe(request)]
    assert isinstance(segments[0], Segment) and segments[0].text == "here it is" and len(engine.requests) == 2
    engine = FakeEngine(MonotonicClock(), hears=[[dying]])
    with pytest.raises(EngineError):
        _ = [piece async for piece in transcripts(engine).transcribe(request)]
    assert len(engine.requests) == 2
