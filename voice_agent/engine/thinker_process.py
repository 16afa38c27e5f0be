"""Recognizer and Thinker in one process: lanes of their own, so that a transcription never waits for an answer.

A Thinker that schedules its requests itself has tasks in the place of its lane.
Runs in a child. It knows conversations only as far as they must fit the context.
"""

import asyncio
import functools
import hashlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from voice_agent.audio import MODEL_RATE_HZ, Samples, silence
from voice_agent.clock import Clock, ms_between
from voice_agent.engine import families
from voice_agent.engine.context import ChatMessage, fit_messages, most_tokens, text_chars
from voice_agent.engine.lanes import Job, Lane, Lanes, Send
from voice_agent.engine.messages import (
    Abort,
    Failed,
    Finished,
    Loading,
    RowsRef,
    TextDelta,
    Think,
    ToEngine,
    ToolCall,
    Transcribe,
    Transcript,
)
from voice_agent.engine.runtime import (
    EXIT_BROKEN,
    ConcurrentThinkerModel,
    EngineSpec,
    RecognizerModel,
    ThinkerEnd,
    ThinkerModel,
    ThinkerOptions,
)
from voice_agent.engine.stepping_back import SteppingBack, loaded
from voice_agent.engine.tasks import Request, Tasks
from voice_agent.errors import EngineError

logger = logging.getLogger(__name__)

Model = ThinkerModel | ConcurrentThinkerModel
MAX_SPEECH_SAMPLES = 30 * MODEL_RATE_HZ
TEMPLATE_SLACK_TOKENS = 16  # begin and generation marks that a count may leave out
COUNTED_PROMPTS = 4_096
LONG_CHARS = 20_000  # of a conversation: to count its tokens takes 5 ms if all of it is new
GIVE_WAY_S = (
    0.5  # most that a token waits for what is being heard: somebody speaks, perhaps over this very answer
)


class InvalidRequest(EngineError):
    """The request cannot be done by any engine of this kind."""

    code = "invalid_request"


def load(spec: EngineSpec, send: Send, clock: Clock) -> "ThinkerEngine":
    """Load and warm up what the spec names; blocks for seconds."""
    recognizer = thinker = None
    share = SteppingBack(set(), 0)
    if spec.recognizer:
        send(Loading(f"recognizer ({spec.recognizer.family})"))
        recognizer = families.load_recognizer(spec.recognizer)
        recognizer.transcribe(silence(MODEL_RATE_HZ), spec.recognizer.language)
    if spec.thinker:
        send(Loading(f"language model ({spec.thinker.family})"))
        thinker, share = loaded(spec, functools.partial(_warm, spec.thinker, spec.warm_up_text))
    return ThinkerEngine(spec, recognizer, thinker, share, send, clock)


def _warm(options: ThinkerOptions, text: str) -> Model:
    """A model that has read its instructions; a concurrent one does on its loop (see warm_up)."""
    thinker = families.load_thinker(options)
    if not isinstance(thinker, ConcurrentThinkerModel):
        hello = [{"role": "system", "content": text}, {"role": "user", "content": "Hello."}]
        thinker.stream(Think("warm-up", 0, hello, max_output_tokens=2), lambda _: False)
    return thinker


class ThinkerEngine:
    """Requests in, results out through `send`; `handle` never blocks."""

    def __init__(
        self,
        spec: EngineSpec,
        recognizer: RecognizerModel | None,
        thinker: ThinkerModel | ConcurrentThinkerModel | None,
        share: SteppingBack,
        send: Send,
        clock: Clock,
    ) -> None:
        self._spec = spec
        self._recognizer = recognizer
        self.thinker = thinker
        self._share = share
        self._send = send
        self._clock = clock
        self._count = _counted_once(thinker.count_tokens) if thinker else None
        lane = functools.partial(Lane, send=send, clock=clock, capacity=spec.limits.queued_requests)
        self._watch: asyncio.Task[None] | None = None
        lanes = spec.recognizer.lanes if spec.recognizer else 1
        self._hearing = Lanes([lane(f"recognizer {number}") for number in range(lanes)])
        self._thinking = (
            Tasks(send, clock) if isinstance(thinker, ConcurrentThinkerModel) else lane("thinker")
        )

    @property
    def describe(self) -> dict[str, Any]:
        """What is loaded."""
        recognizer, thinker = self._spec.recognizer, self._spec.thinker
        return {
            "recognizer": recognizer and recognizer.family,
            "hears": self._recognizer.languages if self._recognizer else (),
            "thinker": thinker and thinker.family,
            "context_tokens": self.thinker.context_tokens if self.thinker else None,
        }

    async def warm_up(self) -> None:
        """A concurrent Thinker's first answer; `load` has warmed up all others."""
        if isinstance(self.thinker, ConcurrentThinkerModel):
            await self.thinker.warm_up(self._spec.warm_up_text)
            self._watch = asyncio.create_task(_end_with(self.thinker))

    def handle(self, message: ToEngine) -> None:
        """Queue a request or abort one; what belongs to another engine is ignored with a warning."""
        match message:
            case Transcribe(request_id=request_id, epoch=epoch):
                self._hearing.put(request_id, epoch, lambda job: self._transcribe(job, message))
            case Think():
                self._put(message)
            case Abort(request_id=request_id, epoch=epoch):
                self._hearing.abort(request_id, epoch)
                self._thinking.abort(request_id, epoch)
            case _:
                logger.warning("a thinker engine cannot do %s", type(message).__name__)

    def _put(self, request: Think) -> None:
        thinking = self._thinking
        if isinstance(thinking, Tasks):
            thinking.put(request.request_id, request.epoch, lambda task: self._think_beside(task, request))
        else:
            thinking.put(request.request_id, request.epoch, lambda job: self._think(job, request))

    def in_flight(self) -> list[str]:
        """Ids held by both lanes."""
        return self._hearing.in_flight() + self._thinking.in_flight()

    def busy_ms(self) -> float:
        """How long the slower lane's step has not moved."""
        return max(self._hearing.busy_ms(), self._thinking.busy_ms())

    def work(self) -> dict[str, float]:
        """Nothing is counted."""
        return {}

    def _transcribe(self, job: Job, request: Transcribe) -> Transcript | Failed:
        if self._recognizer is None or self._spec.recognizer is None:
            raise InvalidRequest("this engine has no recognizer")
        language = request.language or self._spec.recognizer.language
        speech = _speech(request.pcm)
        text, spoken = self._recognizer.transcribe(speech, language)
        words = self._recognizer.align(speech, text, spoken) if request.timed and text else []
        tokens = self._recognizer.count_tokens(text)
        return Transcript(job.request_id, job.epoch, text, spoken, words, tokens)

    def _think(self, job: Job, request: Think) -> Finished:
        if self.thinker is None or isinstance(self.thinker, ConcurrentThinkerModel):
            raise InvalidRequest("this engine has no language model")
        answer = self._answer(job, request, self.thinker)

        def emit(text: str) -> bool:
            over = answer.emit(text)
            self._share.first_piece()
            if not over:
                self._hearing.wait_idle(GIVE_WAY_S)
            return over

        return answer.end(self.thinker.stream(answer.request, emit))

    async def _think_beside(self, task: Request, request: Think) -> Finished:
        assert isinstance(self.thinker, ConcurrentThinkerModel), "only such a Thinker has tasks"
        if text_chars(request.messages) > LONG_CHARS:
            answer = await asyncio.to_thread(self._answer, task, request, self.thinker)
        else:
            answer = self._answer(task, request, self.thinker)
        return answer.end(await self.thinker.answer(answer.request, answer.emit))

    def _answer(
        self, job: Job | Request, request: Think, model: ThinkerModel | ConcurrentThinkerModel
    ) -> "_Answer":
        assert self._count is not None, "there is a model, so there is its count"
        started_ns = self._clock.now_ns()
        return _Answer(job, self._fitted(request, model, self._count), self._send, self._clock, started_ns)

    def _fitted(
        self,
        request: Think,
        model: ThinkerModel | ConcurrentThinkerModel,
        count: Callable[[list[ChatMessage]], int],
    ) -> Think:
        """The request with its history cut so that prompt, tools and answer fit the context."""
        if not request.messages or request.max_output_tokens < 1:
            raise InvalidRequest("a conversation needs a message, and an answer a token")
        output_tokens = min(request.max_output_tokens, model.context_tokens // 2)
        tools_text = msgspec.json.encode(request.tools).decode()
        tools_tokens = count([{"role": "system", "content": tools_text}]) if request.tools else 0
        room = model.context_tokens - output_tokens - tools_tokens - TEMPLATE_SLACK_TOKENS
        if most_tokens(request.messages) <= room:
            return msgspec.structs.replace(request, max_output_tokens=output_tokens)
        messages = fit_messages(request.messages, count, room)
        return msgspec.structs.replace(request, messages=messages, max_output_tokens=output_tokens)


class _Answer:
    """Sends an answer's pieces and stops the model when it was aborted or never stops by itself."""

    def __init__(self, job: Job | Request, request: Think, send: Send, clock: Clock, started_ns: int) -> None:
        self.request = request  # as the model gets it
        self._job = job
        self._left = request.max_output_tokens
        self._send = send
        self._clock = clock
        self._started_ns = started_ns
        self._first_ns: int | None = None

    def emit(self, text: str, rows: RowsRef | None = None) -> bool:
        """Send a piece, which is at least one token; True stops the model."""
        if self._job.stopped() or self._left <= 0:
            return True
        if self._first_ns is None:
            self._first_ns = self._clock.now_ns()
        if text or rows:
            self._send(TextDelta(self._job.request_id, self._job.epoch, text, rows))
        if text:
            self._left -= 1
        return self._left <= 0

    def end(self, end: ThinkerEnd) -> Finished:
        """Send the calls; returns the message that ends the request."""
        for call in end.tool_calls if not self._job.stopped() else ():
            self._send(
                ToolCall(self._job.request_id, self._job.epoch, call.call_id, call.name, call.arguments)
            )
        ended_ns = self._clock.now_ns()
        timings_ms = {
            "queued": ms_between(self._job.queued_ns, self._started_ns),
            "first_token": ms_between(self._started_ns, self._first_ns or ended_ns),
            "total": ms_between(self._started_ns, ended_ns),
        }
        reason = "length" if self._left <= 0 else "tool_calls" if end.tool_calls else end.reason
        return Finished(self._job.request_id, self._job.epoch, reason, end.usage, timings_ms)


async def _end_with(model: ConcurrentThinkerModel) -> None:
    """An engine whose model is gone answers heartbeats and nothing else: better dead and restarted."""
    logger.critical("the language model is gone: %s", await model.died())
    sys.stderr.flush()
    os._exit(EXIT_BROKEN)


def _speech(pcm: bytes) -> Samples:
    if len(pcm) % 2 or not 0 < len(pcm) // 2 <= MAX_SPEECH_SAMPLES:
        raise InvalidRequest("speech must be whole int16 samples, 30 s at most")
    return np.frombuffer(pcm, dtype="<i2")


def _counted_once(count: Callable[[list[ChatMessage]], int]) -> Callable[[list[ChatMessage]], int]:
    """Remember counts: a long history is the same one request after the other, but for its end."""
    known: dict[bytes, int] = {}

    def counted(messages: list[ChatMessage]) -> int:
        key = hashlib.blake2b(msgspec.json.encode(messages), digest_size=16).digest()
        if key not in known:
            if len(known) >= COUNTED_PROMPTS:
                known.clear()
            known[key] = count(messages)
        return known[key]

    return counted
