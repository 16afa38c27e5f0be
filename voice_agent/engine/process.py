"""One engine process as the operating system sees it: spawned, heard, and ended for certain.

The child leads a process group of its own and gets one end of a socket pair; the end of either side ends the other.
It knows no request and restarts nothing.
"""

import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Self

import msgspec

from voice_agent.engine.connection import Connection, ConnectionEnded, ConnectionFull
from voice_agent.engine.host_memory import how_killed, oom_kills
from voice_agent.engine.messages import Shutdown, encode
from voice_agent.engine.runtime import EngineSpec
from voice_agent.errors import EngineStartFailed

logger = logging.getLogger(__name__)

CHILD_COMMAND = (sys.executable, "-m", "voice_agent.engine.child")
TAIL_LINES = 30
LOG_MARK = (
    "\x1e"  # a child's own log lines: mark, two digits of level, text; all else is some library's noise
)
_OURS = re.compile(
    r"(?:voice_agent[a-z0-9_.]*|__main__): "
)  # a logger of ours; a traceback ends in a class's name
# what faulthandler writes at a crash and when asked by SIGUSR1: where each thread stood, nothing that anybody said
_STACK = re.compile(r'Fatal Python error: |(?:Current thread|Thread) 0x|  File ".*", line \d+ in ')
_READ_BYTES = 16_384
_MAX_LINE_CHARS = 2_000
_LAST_LINE_S = 0.1  # how long the last words of a process that has ended may take through the pipe


class ChildProcess:
    """A running child with its connection; `end` must be awaited once, whatever happened before."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, connection: Connection, printed: "_Printed"
    ) -> None:
        self.name = name  # in the log; a spare that serves takes its engine's
        self._process = process
        self.connection = connection
        self._printed = printed
        self._killed_because = ""
        self._oom_kills = oom_kills()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._complaint = ""  # the last error that the child's own code told of
        self._pump = asyncio.create_task(self._pump_log(), name=f"{name} log")

    @classmethod
    async def spawn(cls, name: str, spec: EngineSpec, command: Sequence[str]) -> "ChildProcess":
        """Start a child and hand it its spec; raises EngineStartFailed if the system cannot."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise EngineStartFailed(f"the {name} engine's process cannot be started: {error}") from error
        with theirs:
            connection = await _taken_over(ours)
            printed = None
            try:
                printed = await _Printed.opened()
                process = await _spawn(theirs, printed, spec, command)
            except BaseException as error:
                if printed:
                    printed.close()
                await connection.close()
                if isinstance(error, OSError):
                    raise EngineStartFailed(
                        f"the {name} engine's process cannot be started: {error}"
                    ) from error
                raise
        with contextlib.suppress(ConnectionEnded):  # a child that is gone already shows at the first receive
            connection.send(msgspec.json.encode(spec))
        return cls(name, process, connection, printed)

    @property
    def pid(self) -> int:
        """The child's process id, which is also its group's."""
        return self._process.pid

    def last_lines(self) -> str:
        """The last of what it printed, for the person who has to find out why."""
        return "\n".join(self._tail)

    async def ended(self) -> None:
        """Wait until the process is gone."""
        await self._process.wait()

    async def ending(self, patience_s: float = 1.0) -> str:
        """How the process ended, in words; waits a moment for it to be known."""
        if self._killed_because:
            return self._killed_because
        if not await self._ended_within(patience_s):
            return "closed its socket"
        code = self._process.returncode or 0
        if code < 0:
            return how_killed(-code, self._oom_kills, oom_kills())
        await asyncio.wait({self._pump}, timeout=_LAST_LINE_S)
        return f"exited with code {code}" + (f": {self._complaint}" if self._complaint else "")

    def kill(self, why: str) -> None:
        """SIGKILL to its whole group, now; `ending` will say why."""
        self._killed_because = self._killed_because or why
        self._signal_group(signal.SIGKILL)

    async def end(self, *, politely_s: float, terminate_s: float) -> None:
        """Shutdown, SIGTERM, SIGKILL, each after its patience (none at 0); then everything of it is freed."""
        try:
            if politely_s > 0 and self._process.returncode is None:
                with contextlib.suppress(ConnectionEnded, ConnectionFull):
                    self.connection.send(encode(Shutdown()))
                await self._ended_within(politely_s)
            if terminate_s > 0 and self._process.returncode is None:
                self._signal_group(signal.SIGTERM)
                await self._ended_within(terminate_s)
        finally:
            self.kill("was ended")
            await self.connection.close()
            await self._process.wait()
            await self._end_pump()

    async def _end_pump(self) -> None:
        """Read what is left of the log; a stranger that keeps the pipe open is not waited for."""
        await asyncio.wait({self._pump}, timeout=0.2)
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        self._printed.close()

    async def _ended_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), seconds)
        return self._process.returncode is not None

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _pump_log(self) -> None:
        """The child's lines into our log; libraries' at DEBUG, for some are noisy, and stacks where they are seen."""
        rest = ""
        while data := await self._printed.stream.read(_READ_BYTES):
            *lines, rest = (rest + data.decode(errors="replace")).split("\n")
            rest = rest[-_MAX_LINE_CHARS:]
            for line in filter(None, lines):
                self._log(line[:_MAX_LINE_CHARS])
        if rest:
            self._log(rest)

    def _log(self, line: str) -> None:
        marked = line.startswith(LOG_MARK) and line[1:3].isdigit()
        text = line[4:] if marked else line
        level = int(line[1:3]) if marked else logging.ERROR if _STACK.match(line) else logging.DEBUG
        self._tail.append(text)
        if level >= logging.ERROR and (
            found := _OURS.match(text)
        ):  # not a traceback's lines, which may quote
            self._complaint = text[found.end() :]
        logger.log(level, "%s engine: %s", self.name, text)


@dataclass(frozen=True)
class _Printed:
    """What a child prints, through a pipe of our own: it ends for us even if a stranger keeps its other end open."""

    stream: asyncio.StreamReader
    transport: asyncio.ReadTransport
    write_end: BinaryIO  # the child's; closed here once it has started

    @classmethod
    async def opened(cls) -> Self:
        """Raises OSError when there are no descriptors left."""
        read_end, write_end = (
            os.fdopen(end, mode, 0) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True)
        )
        stream = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(stream), read_end
            )
        except BaseException:
            read_end.close()
            write_end.close()
            raise
        return cls(stream, transport, write_end)

    def close(self) -> None:
        """Both ends. May be called again."""
        self.write_end.close()
        self.transport.close()


async def _taken_over(ours: socket.socket) -> Connection:
    """Our end as a connection; closed if that is cancelled."""
    try:
        return await Connection.over(ours)
    except BaseException:
        ours.close()
        raise


async def _spawn(
    theirs: socket.socket, printed: _Printed, spec: EngineSpec, command: Sequence[str]
) -> asyncio.subprocess.Process:
    """The process in a session of its own, with its ends of socket pair and pipe, and the spec's environment."""
    process = await asyncio.create_subprocess_exec(
        *command,
        str(theirs.fileno()),
        str(_parent_to_watch()),
        pass_fds=(theirs.fileno(),),
        start_new_session=True,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=printed.write_end,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **spec.env},
    )
    printed.write_end.close()
    return process


def _parent_to_watch() -> int:
    """Our process id for the child's death signal; 0 where that would fire too early.

    Linux sends the signal when the thread that started the child ends, so only the main thread may ask for it.
    """
    return os.getpid() if threading.current_thread() is threading.main_thread() else 0
