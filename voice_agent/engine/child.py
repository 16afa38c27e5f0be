"""The entry of an engine process: reads its spec, loads its models, answers until its server is gone.

Started as `python -m voice_agent.engine.child FD PARENT_PID` with the environment already set, so that it holds before
any library is imported. The event loop only carries messages and heartbeats; models run on threads of the room that
`load` gave. Whatever a library prints goes to standard error, which the server logs.
"""

import asyncio
import ctypes
import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, Protocol

import msgspec

from voice_agent import precedence
from voice_agent.clock import Clock, MonotonicClock
from voice_agent.engine import guard
from voice_agent.engine.connection import Connection, ConnectionEnded, ConnectionFull
from voice_agent.engine.failures import code_and_text
from voice_agent.engine.host_memory import be_killed_first
from voice_agent.engine.messages import (
    FromEngine,
    Ping,
    Pong,
    Ready,
    Shutdown,
    StartFailed,
    ToEngine,
    decode_to_engine,
    encode,
)
from voice_agent.engine.process import LOG_MARK
from voice_agent.engine.runtime import EXIT_BROKEN, EngineSpec
from voice_agent.errors import VoiceAgentError

logger = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1  # prctl(2)
EXIT_CANNOT_START = 3


class Engine(Protocol):
    """What a process does, behind the messages that every engine answers alike."""

    @property
    def describe(self) -> dict[str, Any]:
        """For operators."""
        ...

    async def warm_up(self) -> None:
        """What must run on the event loop before the engine counts as ready."""
        ...

    def handle(self, message: ToEngine) -> None:
        """Take a request's message without blocking."""
        ...

    def in_flight(self) -> list[str]:
        """Ids of requests that have not ended."""
        ...

    def busy_ms(self) -> float:
        """How long the current step has not moved."""
        ...

    def work(self) -> dict[str, float]:
        """Running totals of what it did, for operators and benches; empty where nothing is counted."""
        ...


def load(spec: EngineSpec, send: Callable[[FromEngine], None], clock: Clock) -> Engine:
    """Import and load what the spec names; blocks for seconds."""
    if spec.kind == "speech":
        from voice_agent.engine import speech_process

        return speech_process.load(spec, send, clock)
    from voice_agent.engine import thinker_process

    return thinker_process.load(spec, send, clock)


def main(arguments: list[str]) -> NoReturn:
    """Run until the server is gone or says Shutdown."""
    precedence.step_back()  # the server's loop goes first, and this was started by it
    file_descriptor, parent_pid = int(arguments[0]), int(arguments[1])
    server_pid = os.getppid()
    os.dup2(2, 1)
    os.set_inheritable(file_descriptor, False)
    _watch(parent_pid)
    _log_to_stderr()
    code = EXIT_BROKEN
    try:
        code = asyncio.run(_serve(socket.socket(fileno=file_descriptor), server_pid))
    except Exception:  # noqa: BLE001 - the process's supervisor: said once, then the server starts another
        logger.critical("the engine is broken", exc_info=True)
    _exit(code)


async def _serve(sock: socket.socket, server_pid: int) -> int:
    """One connection's life; gives the exit code."""
    connection = await Connection.over(sock)
    try:
        spec = msgspec.json.decode(await connection.receive(), type=EngineSpec)
        if spec.has_children:
            guard.start(server_pid)
        post = _Post(connection)
        loading = asyncio.create_task(_load(spec, post))
        try:
            return await _answer(connection, post, loading)
        finally:
            loading.cancel()
    except ConnectionEnded:
        _exit(0)  # nobody is left to work for, and a thread inside a model cannot be joined


async def _load(spec: EngineSpec, post: "_Post") -> Engine | None:
    """Load on a thread, so that the loop lives; None after StartFailed."""
    try:
        engine = await asyncio.to_thread(load, spec, post, MonotonicClock())
        await engine.warm_up()
        gc.collect()
        gc.freeze()  # a library's million objects live for ever: no collection in mid-answer looks at them again
    except Exception as error:  # noqa: BLE001 - the start's supervisor: a person is told whatever went wrong
        named = isinstance(error, VoiceAgentError | ModuleNotFoundError)  # needs no stack to be understood
        logger.error("cannot start", exc_info=not named)
        post(_start_failure(error))
        return None
    post(Ready(engine.describe))
    return engine


def _start_failure(error: Exception) -> StartFailed:
    code, text = code_and_text(error)
    if code == "model_error":  # before the first request there is nothing of a user's in a text
        return StartFailed("engine_start_failed", f"{type(error).__name__}: {error}")
    return StartFailed(code, text)


async def _answer(connection: Connection, post: "_Post", loading: asyncio.Task[Engine | None]) -> int:
    """Messages one by one; requests before Ready are the server's mistake and dropped."""
    waiting = asyncio.ensure_future(connection.receive())
    engine: Engine | None = None
    while engine is None:
        await asyncio.wait({waiting, loading}, return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            engine = loading.result()
            if engine is None:
                return EXIT_CANNOT_START
        elif waiting.done():
            _take(decode_to_engine(waiting.result()), post, None)
            waiting = asyncio.ensure_future(connection.receive())
    received: Awaitable[bytes] = waiting
    while True:
        _take(decode_to_engine(await received), post, engine)
        received = connection.receive()  # no task for each: many requests may come at one moment


def _take(message: ToEngine, post: "_Post", engine: Engine | None) -> None:
    match message:
        case Ping(number=number) if engine is not None:
            post(Pong(number, engine.in_flight(), engine.busy_ms(), engine.work()))
        case Ping(number=number):
            post(Pong(number, [], 0.0))
        case Shutdown():
            _exit(0)
        case _ if engine is not None:
            engine.handle(message)
        case _:
            logger.warning("a request came before the engine was ready")


class _Post:
    """Sends from any thread, in order of the calls; what comes in one turn of the loop goes out in one write.

    A step of an LLM gives a piece to each of its requests at the same moment.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._frames: list[bytes] = []
        self._lock = threading.Lock()

    def __call__(self, message: FromEngine) -> None:
        frame = encode(message)
        with self._lock:
            self._frames.append(frame)
            first = len(self._frames) == 1
        if first:
            self._loop.call_soon_threadsafe(self._flush)

    def _flush(self) -> None:
        with self._lock:
            frames, self._frames = self._frames, []
        try:
            self._connection.send(*frames)
        except (ConnectionEnded, ConnectionFull):
            _exit(0)


def _watch(parent_pid: int) -> None:
    """Die with the server even if the loop hangs, tell where a crash was, and let no dead thread go unnoticed."""
    if parent_pid and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:  # it ended before we asked
            _exit(0)
    be_killed_first()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    threading.excepthook = _thread_died


def _thread_died(arguments: threading.ExceptHookArgs) -> None:
    """An engine whose worker is gone answers heartbeats and nothing else: better dead and restarted."""
    logger.critical("a worker thread died", exc_info=arguments.exc_value)
    _exit(EXIT_BROKEN)


class _Marked(logging.Formatter):
    """Every line of a record with its level, so that the server can log it as what it is."""

    def format(self, record: logging.LogRecord) -> str:
        level = f"{LOG_MARK}{record.levelno:02d} "
        return "\n".join(level + line for line in super().format(record).splitlines())


def _log_to_stderr() -> None:
    target = logging.StreamHandler(sys.stderr)
    target.setFormatter(_Marked("%(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[target])
    logging.getLogger("voice_agent").setLevel(logging.INFO)


def _exit(code: int) -> NoReturn:
    """Leave without joining threads: one may be inside a model for seconds."""
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
