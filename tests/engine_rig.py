"""Engines for tests: the real child process with scripted models, and the same engine room in this process."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests import engine_models
from voice_agent.clock import MonotonicClock
from voice_agent.engine import child
from voice_agent.engine.client import EngineClient, EngineStream
from voice_agent.engine.messages import (
    FromEngine,
    Loading,
    Pong,
    Ready,
    Request,
    Result,
    SpeakText,
    SpeechChunk,
    SpokenWord,
    StartFailed,
    TextDelta,
    Think,
    ToEngine,
)
from voice_agent.engine.runtime import (
    EngineLimits,
    EngineSpec,
    RecognizerOptions,
    TalkerOptions,
    ThinkerOptions,
)
from voice_agent.engine.streams import StreamTable
from voice_agent.engine.supervisor import EngineProcess
from voice_agent.errors import EngineDied

CHILD = (sys.executable, str(Path(__file__).with_name("engine_child.py")))


def thinker_spec(folder: str = "models", context_tokens: int = 400, **limits: Any) -> EngineSpec:
    """Recognizer and Thinker."""
    return EngineSpec(
        kind="thinker",
        recognizer=RecognizerOptions("scripted", folder),
        thinker=ThinkerOptions("scripted", folder, context_tokens=context_tokens),
        warm_up_text="say hello",
        limits=EngineLimits(**limits),
    )


def speech_spec(folder: str = "models", **limits: Any) -> EngineSpec:
    """Tones."""
    return EngineSpec(
        kind="speech", talker=TalkerOptions("scripted", folder, "low"), limits=EngineLimits(**limits)
    )


def process_engine(spec: EngineSpec, name: str = "test", *, warm_spare: bool = False) -> EngineProcess:
    """The real thing, not yet started."""
    return EngineProcess(name, spec, MonotonicClock(), command=CHILD, warm_spare=warm_spare)


@contextlib.asynccontextmanager
async def running(spec: EngineSpec, *, warm_spare: bool = False) -> AsyncGenerator[EngineProcess]:
    """The real thing, started, and closed at the end."""
    engine = process_engine(spec, warm_spare=warm_spare)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


class LocalEngine:
    """An EngineClient whose engine room lives in this process: the same code without a socket between."""

    def __init__(self, spec: EngineSpec) -> None:
        loop = asyncio.get_running_loop()
        self._streams = StreamTable(self._send, spec.limits.queued_results)

        def post(message: FromEngine) -> None:
            if not isinstance(message, Loading | Ready | StartFailed | Pong):
                loop.call_soon_threadsafe(self._streams.route, message)

        with mock.patch.dict(sys.modules, {"voice_agent.models.scripted": engine_models}):
            self._engine = child.load(spec, post, MonotonicClock())

    @contextlib.asynccontextmanager
    async def submit(self, request: Request) -> AsyncGenerator[EngineStream]:
        async with self._streams.submit(request) as stream:
            yield stream

    def abort(self, request_id: str) -> None:
        self._streams.abort(request_id)

    def in_flight(self) -> list[str]:
        return self._streams.in_flight()

    def next_epoch(self) -> int:
        return self._streams.next_epoch()

    def _send(self, message: ToEngine) -> None:
        self._engine.handle(message)


# --- short ways to say things -----------------------------------------------------------------------------------


def think(engine: EngineClient, request_id: str, command: str, **more: Any) -> Think:
    """A request whose only message is a command for engine_models.Script."""
    return Think(request_id, engine.next_epoch(), [{"role": "user", "content": command}], **more)


def clause(request_id: str, epoch: int, text: str, at: int = 0, language: str = "en") -> SpeakText:
    """A clause whose words stand at `at` and on in the reply's text."""
    words: list[SpokenWord] = []
    for word in text.split():
        words.append(SpokenWord(word, at, at + len(word)))
        at += len(word) + 1
    return SpeakText(request_id, epoch, words, language)


async def results(stream: EngineStream) -> list[Result]:
    """Everything to the end."""
    return [result async for result in stream]


async def hang(engine: EngineProcess) -> int:
    """Stop its process in the middle of an answer, which fails; the process's id."""
    pid = engine.pid
    assert pid is not None
    async with engine.submit(think(engine, "r", "forever")) as stream:
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EngineDied):
            await results(stream)
    return pid


async def answer(engine: EngineClient, request: Request) -> list[Result]:
    """Submit and take everything."""
    async with engine.submit(request) as stream:
        return await results(stream)


def text_of(given: list[Result]) -> str:
    """The answer's text."""
    return "".join(result.text for result in given if isinstance(result, TextDelta))


def chunks_of(given: list[Result]) -> list[SpeechChunk]:
    """The reply's sound."""
    return [result for result in given if isinstance(result, SpeechChunk)]


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something that another process or thread brings about; how soon it must come is the test's to say."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.01)
