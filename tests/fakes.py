"""Real implementations of the contracts between rooms, driven by a script and a clock instead of models and wires.

`FakeOutput` is an ear, `FakeEngine` an engine, `microphone` a mouth. All of them take their time from the Clock
they are given: with a ManualClock a whole conversation runs without waiting, always in the same order.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from voice_agent.audio import (
    FRAME_MS,
    MODEL_RATE_HZ,
    MicrophoneFrame,
    PcmChunk,
    Samples,
    ms_to_samples,
    silence,
)
from voice_agent.clock import NS_PER_MS, NS_PER_S, Change, Clock
from voice_agent.engine.messages import (
    Failed,
    Finished,
    Request,
    Result,
    Speak,
    SpeakEnd,
    SpeakText,
    SpeechChunk,
    SpokenWord,
    TextDelta,
    Think,
    ToolCall,
    Transcribe,
    Transcript,
    Word,
)
from voice_agent.errors import EngineDied

# --- sound ------------------------------------------------------------------------------------------------------


def tone(hz: float, ms: float, rate_hz: int = MODEL_RATE_HZ, peak: float = 0.3) -> Samples:
    """A sine of a length; -13.5 dBFS by default."""
    instants = np.arange(ms_to_samples(ms, rate_hz)) / rate_hz
    return (np.sin(2 * np.pi * hz * instants) * peak * 32767).astype(np.int16)


def word_tone_hz(word: str) -> int:
    """The pitch a word is spoken at: 300 to 2,250 Hz, so that what was heard can be told from the sound."""
    return 300 + 50 * (sum(word.encode()) % 40)


async def microphone(
    clock: Clock, *pieces: Samples, frame_ms: int = FRAME_MS
) -> AsyncIterator[MicrophoneFrame]:
    """The pieces (16 kHz) as one sound, each frame given out when its last sample was spoken; pads the last one."""
    frame_samples = ms_to_samples(frame_ms, MODEL_RATE_HZ)
    sound = np.concatenate([silence(0), *pieces])
    sound = np.concatenate([sound, silence(-len(sound) % frame_samples)])
    start_ns = clock.now_ns()
    for first in range(0, len(sound), frame_samples):
        end = first + frame_samples
        await clock.sleep_until(start_ns + end * NS_PER_S // MODEL_RATE_HZ)
        yield MicrophoneFrame(sound[first:end], first)


# --- the way to the ear -----------------------------------------------------------------------------------------


@dataclass
class _Reply:
    """What is known of one reply's sound."""

    written: list[PcmChunk] = field(default_factory=list[PcmChunk])
    heard: list[Samples] = field(default_factory=list[Samples])
    written_samples: int = 0
    played_samples: int = 0
    finished: bool = False
    flushed: bool = False
    first_sound_ns: int | None = None


class FakeOutput:
    """An AudioOutput that plays exactly as fast as its clock runs, sample by sample, one reply after the other.

    `write` waits while more than `queue_ms` are queued. `underruns` counts chunks that came after a reply's sound
    so far had ended. `calls` names hold, resume, flush and finish in order, with the millisecond.
    """

    def __init__(self, clock: Clock, queue_ms: float = 3000) -> None:
        self._clock = clock
        self._queue_ns = round(queue_ms * NS_PER_MS)
        self._queue: deque[tuple[str, PcmChunk]] = deque()
        self._offset = 0  # samples of the first queued chunk that were played
        self._at_ns = clock.now_ns()  # up to here everything was played
        self._replies: dict[str, _Reply] = {}
        self._current = ""  # the reply that plays, or played last
        self._change = Change()
        self.held = False
        self.underruns = 0
        self.calls: list[tuple[str, int]] = []

    async def write(self, reply_id: str, pcm: PcmChunk) -> None:
        """Queue sound, once there is room; drops it if the reply was flushed."""
        reply = self._advanced(reply_id)
        while self._queued_ns() > self._queue_ns and not reply.flushed:
            await self._until(self._clock.now_ns() + self._queued_ns() - self._queue_ns + 1)
            self._advance()
        if reply.flushed or len(pcm.samples) == 0:
            return
        self.underruns += bool(reply.written) and reply.played_samples == reply.written_samples
        reply.written.append(pcm)
        reply.written_samples += len(pcm.samples)
        self._queue.append((reply_id, pcm))
        self._change.announce()

    def finish(self, reply_id: str) -> None:
        """No more of this reply comes."""
        self._advanced(reply_id).finished = True
        self._note("finish")

    def hold(self) -> None:
        """Stop at this very sample."""
        self._advance()
        self.held = True
        self._note("hold")

    def resume(self) -> None:
        """Go on at that sample."""
        self._advance()
        self.held = False
        self._note("resume")

    def flush(self) -> int:
        """Drop everything queued and refuse the rest of it; returns the current reply's played samples."""
        self._advance()
        self.held = False
        for reply_id in {self._current, *(reply_id for reply_id, _ in self._queue)} - {""}:
            self._replies[reply_id].flushed = True
        self._queue.clear()
        self._offset = 0
        self._note("flush")
        return self._replies[self._current].played_samples if self._current else 0

    def refuse(self, reply_id: str) -> int:
        """Drop one reply's queued sound."""
        reply = self._advanced(reply_id)
        reply.flushed = True
        if self._queue and self._queue[0][0] == reply_id:
            self._offset = 0
        self._queue = deque(entry for entry in self._queue if entry[0] != reply_id)
        self._note("refuse")
        return reply.played_samples

    def played_samples(self, reply_id: str) -> int:
        """Samples of this reply played by now; 0 for one never heard of."""
        self._advance()
        reply = self._replies.get(reply_id)
        return reply.played_samples if reply else 0

    async def audible(self, reply_id: str) -> int | None:
        """Wait until the reply was first heard; None if it ended without a sound."""
        reply = self._advanced(reply_id)
        while reply.first_sound_ns is None and not reply.flushed and not (reply.finished and not self._queue):
            await self._until(self._clock.now_ns() + NS_PER_MS if self._queue else None)
            self._advance()
        return reply.first_sound_ns

    async def drained(self, reply_id: str) -> int:
        """Wait until the reply is finished and played, or flushed."""
        reply = self._advanced(reply_id)
        while not reply.flushed and not (reply.finished and reply.played_samples == reply.written_samples):
            await self._until(self._clock.now_ns() + max(1, self._queued_ns()) if self._queue else None)
            self._advance()
        return reply.played_samples

    def heard(self, reply_id: str) -> Samples:
        """The samples of this reply that reached the ear."""
        self._advance()
        return np.concatenate([silence(0), *self._advanced(reply_id).heard])

    def written(self, reply_id: str) -> list[PcmChunk]:
        """The chunks that were taken in for this reply."""
        return self._advanced(reply_id).written

    def first_sound_ns(self, reply_id: str) -> int | None:
        """When this reply was first heard."""
        return self._advanced(reply_id).first_sound_ns

    def _advanced(self, reply_id: str) -> _Reply:
        self._advance()
        return self._replies.setdefault(reply_id, _Reply())

    def _advance(self) -> None:
        now_ns = self._clock.now_ns()
        while self._queue and not self.held:
            reply_id, chunk = self._queue[0]
            due = (now_ns - self._at_ns) * chunk.rate_hz // NS_PER_S
            left = len(chunk.samples) - self._offset
            if due <= 0:
                return
            self._play(self._replies[reply_id], reply_id, chunk.samples[self._offset :][:due])
            self._at_ns += min(due, left) * NS_PER_S // chunk.rate_hz
            if due < left:
                self._offset += due
                return
            self._queue.popleft()
            self._offset = 0
        self._at_ns = now_ns

    def _play(self, reply: _Reply, reply_id: str, samples: Samples) -> None:
        self._current = reply_id
        if reply.first_sound_ns is None:
            reply.first_sound_ns = self._at_ns
        reply.heard.append(samples)
        reply.played_samples += len(samples)

    def _queued_ns(self) -> int:
        whole = sum(len(chunk.samples) * NS_PER_S // chunk.rate_hz for _, chunk in self._queue)
        first_played = self._offset * NS_PER_S // self._queue[0][1].rate_hz if self._queue else 0
        return whole - first_played

    def _note(self, call: str) -> None:
        self.calls.append((call, self._clock.now_ns() // NS_PER_MS))
        self._change.announce()

    async def _until(self, instant_ns: int | None) -> None:
        """Wait for the next call, or an instant unless it is held."""
        await self._change.wait(self._clock, None if self.held else instant_ns)


# --- the engine -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wait:
    """A step: nothing for so long."""

    ms: float


@dataclass(frozen=True)
class Stall:
    """A step: nothing more, until the request is aborted."""


@dataclass(frozen=True)
class Die:
    """A step: the engine's process ends, and with it every request it holds."""


@dataclass(frozen=True)
class Fail:
    """A step: the request fails; with `final` false it goes on."""

    code: str = "engine_error"
    retryable: bool = False
    final: bool = True


@dataclass(frozen=True)
class Use:
    """A step: the Thinker wants a tool called."""

    name: str
    arguments: str = "{}"
    call_id: str = "call_1"


Step = str | Wait | Stall | Die | Fail | Use


@dataclass(frozen=True)
class Voice:
    """How a FakeEngine speaks: a tone per word after a wait per clause; exact word times."""

    word_ms: float = 200
    clause_wait_ms: float = 0
    rate_hz: int = 22_050
    silent: bool = False
    steps: Sequence[Step] = ()  # carried out before the first clause


class FakeEngine:
    """An EngineClient with a script: what it `hears`, `says` (steps of each answer) and speaks with.

    Each Transcribe and each Think takes the next script; the last one repeats. `requests`, `pushed` and `aborted`
    record what was asked. Aborted requests end with Finished("aborted") if somebody still reads.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        hears: Sequence[Sequence[Step] | str] = ("hello",),
        says: Sequence[Sequence[Step] | str] = ("Hello there.",),
        voice: Voice | None = None,
    ) -> None:
        self._clock = clock
        self._hears, self._says, self._voice = hears, says, voice or Voice()
        self._streams: dict[str, _Stream] = {}
        self._epoch = 0
        self.dead = False
        self.requests: list[Request] = []
        self.pushed: list[SpeakText | SpeakEnd] = []
        self.aborted: list[str] = []

    @asynccontextmanager
    async def submit(self, request: Request) -> AsyncGenerator["_Stream"]:
        """Work on the request as a task until its end or the end of the block."""
        if self.dead:
            raise EngineDied("no engine is up")
        self.requests.append(request)
        stream = self._streams[request.request_id] = _Stream(self, request.request_id)
        work = asyncio.create_task(self._work(request, stream))
        try:
            yield stream
        finally:
            if not stream.ended:
                self.aborted.append(request.request_id)
            stream.ended = True
            self._forget(stream)
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work

    def abort(self, request_id: str) -> None:
        """End a request from outside; unknown ids are ignored."""
        stream = self._streams.get(request_id)
        if stream is not None and not stream.ended:
            self.aborted.append(request_id)
            stream.give(Finished(request_id, self._request(request_id).epoch, "aborted"))

    def in_flight(self) -> list[str]:
        """Ids that have not ended."""
        return [request_id for request_id, stream in self._streams.items() if not stream.ended]

    def next_epoch(self) -> int:
        """Counts up from 1."""
        self._epoch += 1
        return self._epoch

    def die(self) -> None:
        """End the engine: every stream raises EngineDied, and so does every new request."""
        self.dead = True
        for stream in list(self._streams.values()):
            stream.give(None)

    def of_kind(self, kind: type[Any]) -> list[Any]:
        """The requests of one sort, in order."""
        return [request for request in self.requests if isinstance(request, kind)]

    def _request(self, request_id: str) -> Request:
        return next(request for request in reversed(self.requests) if request.request_id == request_id)

    def _forget(self, stream: "_Stream") -> None:
        if self._streams.get(stream.request_id) is stream:
            del self._streams[stream.request_id]

    async def _work(self, request: Request, stream: "_Stream") -> None:
        match request:
            case Transcribe():
                await self._transcribe(request, stream)
            case Think():
                await self._think(request, stream)
            case Speak():
                await self._speak(request, stream)

    async def _transcribe(self, request: Transcribe, stream: "_Stream") -> None:
        steps = self._script(self._hears, Transcribe)
        text = "".join(step for step in steps if isinstance(step, str))
        if await self._follow([step for step in steps if not isinstance(step, str)], request, stream):
            stream.give(Transcript(request.request_id, request.epoch, text, request.language or "en"))

    async def _think(self, request: Think, stream: "_Stream") -> None:
        steps = self._script(self._says, Think)
        if await self._follow(steps, request, stream):
            reason = "tool_calls" if any(isinstance(step, Use) for step in steps) else "stop"
            stream.give(Finished(request.request_id, request.epoch, reason))

    async def _speak(self, request: Speak, stream: "_Stream") -> None:
        if not await self._follow(self._voice.steps, request, stream):
            return
        first_sample = 0
        while isinstance(clause := await stream.pushes.get(), SpeakText):
            await self._pause(self._voice.clause_wait_ms)
            for word in clause.words:
                chunk = self._word(request, word, first_sample)
                first_sample += len(chunk.pcm) // 2
                stream.give(chunk)
        stream.give(Finished(request.request_id, request.epoch))

    def _word(self, request: Speak, word: SpokenWord, first_sample: int) -> SpeechChunk:
        sound = tone(word_tone_hz(word.text), self._voice.word_ms / request.speed, self._voice.rate_hz)
        if self._voice.silent:
            sound = silence(len(sound))
        times = Word(word.start_char, word.end_char, first_sample, first_sample + len(sound), True)
        pcm = sound.astype("<i2").tobytes()
        return SpeechChunk(request.request_id, request.epoch, pcm, self._voice.rate_hz, first_sample, [times])

    async def _follow(self, steps: Sequence[Step], request: Request, stream: "_Stream") -> bool:
        """Carry out the steps; False if one of them ended the request."""
        request_id, epoch = request.request_id, request.epoch
        for step in steps:
            match step:
                case Wait(ms):
                    await self._pause(ms)
                case Stall():
                    await asyncio.Event().wait()
                case Die():
                    self.die()
                    return False
                case Fail():
                    stream.give(Failed(request_id, epoch, step.code, "scripted", step.retryable, step.final))
                    if step.final:
                        return False
                case Use():
                    stream.give(ToolCall(request_id, epoch, step.call_id, step.name, step.arguments))
                case str(text):
                    stream.give(TextDelta(request_id, epoch, text))
        return True

    async def _pause(self, ms: float) -> None:
        await self._clock.sleep_until(self._clock.now_ns() + round(ms * NS_PER_MS))

    def _script(self, scripts: Sequence[Sequence[Step] | str], kind: type[Any]) -> Sequence[Step]:
        script = scripts[min(len(self.of_kind(kind)), len(scripts)) - 1]
        return [script] if isinstance(script, str) else script


class _Stream:
    """An EngineStream whose results are put in by the FakeEngine; None stands for the engine's death."""

    def __init__(self, engine: FakeEngine, request_id: str) -> None:
        self._engine = engine
        self._results: asyncio.Queue[Result | None] = asyncio.Queue()
        self.request_id = request_id
        self.pushes: asyncio.Queue[SpeakText | SpeakEnd] = asyncio.Queue()
        self.ended = False

    def push(self, message: SpeakText | SpeakEnd) -> None:
        """Send the next clause; ignored after the end."""
        if not self.ended:
            self._engine.pushed.append(message)
            self.pushes.put_nowait(message)

    def give(self, result: Result | None) -> None:
        """Put in a result; nothing after the last one."""
        if self.ended:
            return
        self.ended = result is None or _is_last(result)
        self._results.put_nowait(result)

    async def __aiter__(self) -> AsyncIterator[Result]:
        """Results up to the last; raises EngineDied."""
        while True:
            result = await self._results.get()
            if result is None:
                raise EngineDied("the engine's process ended", retryable=True)
            yield result
            if _is_last(result):
                return


def _is_last(result: Result) -> bool:
    return isinstance(result, Transcript | Finished) or (isinstance(result, Failed) and result.final)
