"""Sound files written down: decoded, cut at pauses into what a recognizer hears at once, recognized piece by piece.

Works ahead of nothing: the detector looks at ten seconds at a time, so that a long file neither holds a thread for
long nor delays its own first words, and a call beside it waits for one stretch at most. Cancelling aborts the
recognizer at once.
"""

import asyncio
import functools
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from secrets import token_hex
from typing import Protocol

import numpy as np

from voice_agent.audio import MODEL_RATE_HZ, Samples, ms_to_samples
from voice_agent.clock import NS_PER_S, Clock, within
from voice_agent.engine.client import EngineClient
from voice_agent.engine.messages import Failed, Transcribe, Transcript
from voice_agent.errors import EngineError, EngineStalled, MediaError, RemoteProtocolError
from voice_agent.media.containers import decode
from voice_agent.places import Places
from voice_agent.requests import Segment, TimedWord, Transcribed, TranscriptionRequest

logger = logging.getLogger(__name__)

MOST_S = 3_600.0  # of sound in one file
SHORT_S = 20.0  # a file up to here is recognized in one piece
PAUSE_MS = 700  # of silence end a stretch
LONGEST_S = 20.0  # of a stretch; below the 30 s that a recognizer hears, so that a call need not wait long
CUT_FROM_S = 8.0  # a stretch that grows too long is cut at its longest pause behind this
VOICED = 0.5
PAD_MS = 200  # of sound kept around a stretch
LOOK_S = 10  # the detector's share at a time
RECOGNIZER_LIMIT_S = 60.0
WINDOW_SAMPLES = 512  # the detector's


class Stretches:
    """Voice probabilities to stretches of speech (first and end sample), each told as soon as it is over.

    State: where the stretch in hand began, where its last voice ended, and its longest pause so far.
    """

    def __init__(self, longest_s: float = LONGEST_S, pause_ms: int = PAUSE_MS) -> None:
        self._longest, self._pause = int(longest_s * MODEL_RATE_HZ), ms_to_samples(pause_ms, MODEL_RATE_HZ)
        self._cut_from = min(int(CUT_FROM_S * MODEL_RATE_HZ), self._longest // 2)
        self._start: int | None = None
        self._end = 0
        self._longest_pause = (0, 0)

    def window(self, probability: float, first_sample: int) -> list[tuple[int, int]]:
        """Take the next window; returns the stretches that it ends."""
        end = first_sample + WINDOW_SAMPLES
        if probability < VOICED:
            over = self._start is not None and end - self._end >= self._pause
            return self.finish() if over else []
        if self._start is None:
            self._start, self._longest_pause = first_sample, (0, 0)
        elif (
            first_sample - self._start >= self._cut_from and first_sample - self._end >= self._pause_length()
        ):
            self._longest_pause = (self._end, first_sample)
        self._end = end
        return self._cut() if end - self._start >= self._longest else []

    def finish(self) -> list[tuple[int, int]]:
        """End the stretch in hand, if there is one."""
        if self._start is None:
            return []
        stretch, self._start = (self._start, self._end), None
        return [stretch]

    def _cut(self) -> list[tuple[int, int]]:
        assert self._start is not None
        before, after = self._longest_pause if self._longest_pause[1] else (self._end, self._end)
        stretch, self._start, self._longest_pause = (self._start, before), after, (0, 0)
        return [stretch]

    def _pause_length(self) -> int:
        return max(1, self._longest_pause[1] - self._longest_pause[0])


class FileDetector(Protocol):
    """Voice probability for each 32 ms window of a file (media.vad.Vad)."""

    def push(self, samples: Samples) -> Sequence[tuple[float, int]]:
        """(probability, first sample) of each window these samples complete; blocks."""
        ...


@dataclass(frozen=True)
class TranscriptParts:
    """What transcribing needs: the engine, a detector for each file and its thread, and the shared places.

    `hearing` gives a language that is heard, or raises RemoteProtocolError about the parameter it is told.
    """

    recognizer: EngineClient
    detector: Callable[[], FileDetector]
    file_thread: Executor
    places: Places
    clock: Clock
    language: str | None = None
    hearing: Callable[[str, str], str] = lambda language, param: language


class Transcripts:
    """Implements requests.Transcriber."""

    def __init__(self, parts: TranscriptParts) -> None:
        self._parts = parts

    async def transcribe(self, request: TranscriptionRequest) -> AsyncGenerator[Segment | Transcribed]:
        """Stretches of speech in order, then Transcribed."""
        async with self._parts.places.taken("hear"):
            if request.language:
                self._parts.hearing(request.language, "language")
            samples = await decoded(request.data, request.param, MOST_S)
            async for first, end in self._stretches(samples):
                segment = await self._recognize(samples, (first, end), request)
                if segment.text:
                    yield segment
            yield Transcribed(len(samples) / MODEL_RATE_HZ)

    async def text_of(self, samples: Samples, language: str | None = None) -> str:
        """All words of a sound [T] at 16 kHz; takes no place of its own."""
        request = TranscriptionRequest(b"", language, timed=False)
        texts = [
            (await self._recognize(samples, stretch, request)).text
            async for stretch in self._stretches(samples)
        ]
        return " ".join(text for text in texts if text)

    async def _stretches(self, samples: Samples) -> AsyncGenerator[tuple[int, int]]:
        """What to recognize at once; a short file whole, since the recognizer itself tells noise from words."""
        if len(samples) <= SHORT_S * MODEL_RATE_HZ:
            yield 0, len(samples)
            return
        loop, stretches, detector = asyncio.get_running_loop(), Stretches(), self._parts.detector()
        for first in range(0, len(samples), LOOK_S * MODEL_RATE_HZ):
            look = functools.partial(detector.push, samples[first : first + LOOK_S * MODEL_RATE_HZ])
            for probability, at in await loop.run_in_executor(self._parts.file_thread, look):
                for stretch in stretches.window(probability, at):
                    yield stretch
        for stretch in stretches.finish():
            yield stretch

    async def _recognize(
        self, samples: Samples, stretch: tuple[int, int], request: TranscriptionRequest
    ) -> Segment:
        pad = ms_to_samples(PAD_MS, MODEL_RATE_HZ)
        first, end = max(0, stretch[0] - pad), min(len(samples), stretch[1] + pad)
        clock = self._parts.clock
        limit_ns = clock.now_ns() + int(RECOGNIZER_LIMIT_S * NS_PER_S)
        try:
            heard = await within(clock, limit_ns, self._asked(samples[first:end], request))
        except TimeoutError:
            raise EngineStalled(
                f"the recognizer took over {RECOGNIZER_LIMIT_S:g} s", retryable=True
            ) from None
        start_s = first / MODEL_RATE_HZ
        words = tuple(TimedWord(w.text, start_s + w.start_s, start_s + w.end_s) for w in heard.words)
        begin_s, end_s = stretch[0] / MODEL_RATE_HZ, stretch[1] / MODEL_RATE_HZ
        return Segment(heard.text.strip(), begin_s, end_s, heard.language, words)

    async def _asked(self, samples: Samples, request: TranscriptionRequest) -> Transcript:
        """Once more if the engine died: nothing of this stretch was given out."""
        try:
            return await self._asked_once(samples, request)
        except EngineError as error:
            if not error.retryable:
                raise
            logger.warning("a transcription: trying again after %s", error.code)
            return await self._asked_once(samples, request)

    async def _asked_once(self, samples: Samples, request: TranscriptionRequest) -> Transcript:
        recognizer = self._parts.recognizer
        language = request.language or self._parts.language or None
        pcm = np.ascontiguousarray(samples).astype("<i2", copy=False).tobytes()
        ask = Transcribe(f"file_{token_hex(8)}", recognizer.next_epoch(), pcm, language, request.timed)
        async with recognizer.submit(ask) as results:
            async for result in results:
                match result:
                    case Transcript():
                        return result
                    case Failed(code="invalid_language", message=message):
                        raise RemoteProtocolError("invalid_value", message, "language")
                    case Failed(code=code, message=message, retryable=retryable):
                        raise EngineError(message, code=code, retryable=retryable)
                    case _:
                        continue
        raise EngineError("the recognizer gave no transcript", retryable=True)


async def decoded(data: bytes, param: str, most_s: float) -> Samples:
    """A sound file at 16 kHz, read on a thread; raises RemoteProtocolError that names the parameter."""
    try:
        return await asyncio.to_thread(decode, data, MODEL_RATE_HZ, most_s)
    except MediaError as error:
        raise RemoteProtocolError(
            error.code, f"The sound in '{param}' cannot be used: {error}.", param
        ) from error
