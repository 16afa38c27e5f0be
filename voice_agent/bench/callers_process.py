"""Many cheap callers in a process of their own, so that their CPU time is nobody else's; told what to do over a pipe.

Orders: `Calls` opens that many (0 hangs all up), `Count` gives what came since the last one. Each is answered once it
is done, by Counts or by the text of what went wrong.
"""

import asyncio
import multiprocessing
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, Literal

import httpx

from voice_agent.audio import Samples
from voice_agent.bench.plain_caller import Pacer, PlainCaller, PlainSocket
from voice_agent.bench.prepared import Counts, Spoken, Talk, appends, packets
from voice_agent.clock import NS_PER_S, MonotonicClock
from voice_agent.errors import VoiceAgentError

Transport = Literal["webrtc", "websocket"]
ROUND_S = 7.0  # a question with its answer takes about so long; callers begin spread over it


@dataclass(frozen=True, slots=True)
class Calls:
    """So many calls of one kind from now on: more are dialled, or all are hung up (0)."""

    count: int
    transport: Transport = "webrtc"
    talks: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """What came since the last one?"""


Order = Calls | Count


class CallersProcess:
    """The other end of the pipe."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe

    def tell(self, order: Order) -> Counts:
        """Give an order and wait until it is done; raises VoiceAgentError with what went wrong."""
        self._pipe.send(order)
        answer: Counts | str = self._pipe.recv()
        if isinstance(answer, str):
            raise VoiceAgentError(answer)
        return answer


@contextmanager
def callers_process(url: str, questions: Sequence[Samples]) -> Generator[CallersProcess]:
    """A process for callers of this server; it ends with the context."""
    ours, theirs = multiprocessing.Pipe()
    target, spawn = _run, multiprocessing.get_context("spawn")
    child = spawn.Process(target=target, args=(theirs, url, list(questions)), daemon=True)
    child.start()
    theirs.close()
    try:
        yield CallersProcess(ours)
    finally:
        ours.close()
        child.join(10)
        child.kill()
        child.join()


def _run(pipe: Connection, url: str, questions: Sequence[Samples]) -> None:
    asyncio.run(_obey(pipe, url, questions))


async def _obey(pipe: Connection, url: str, questions: Sequence[Samples]) -> None:
    """Do as told until the pipe is closed."""
    callers = _Callers(url, {"webrtc": packets(questions), "websocket": appends(questions)})
    async with callers.pacing():
        while True:
            try:
                order: Order = await asyncio.to_thread(pipe.recv)
            except EOFError:
                return
            try:
                pipe.send(await callers.obey(order))
            except (VoiceAgentError, httpx.HTTPError, OSError) as error:
                pipe.send(f"{type(error).__name__}: {error}")


class _Callers:
    """All callers of this process."""

    def __init__(self, url: str, spoken: dict[Transport, Spoken]) -> None:
        self._url = url
        self._spoken = spoken
        self._clock = MonotonicClock()
        self._counts = Counts()
        self._pacer = Pacer(self._clock)

    @asynccontextmanager
    async def pacing(self) -> AsyncGenerator[None]:
        """Send for whoever has called; all are hung up in the end."""
        self._pacing = asyncio.create_task(self._pacer.run())
        try:
            yield
        finally:
            self._pacing.cancel()
            await asyncio.gather(self._pacing, return_exceptions=True)
            await self._hang_up()

    async def obey(self, order: Order) -> Counts:
        """Do it; the counts begin anew. Raises VoiceAgentError if nobody sends any more."""
        if isinstance(order, Calls):
            await self._call(order)
        if self._pacing.done():
            raise VoiceAgentError(f"the callers stopped sending: {self._pacing.exception()!r}")
        found = replace(self._counts)
        self._counts.clear()
        return found

    async def _call(self, order: Calls) -> None:
        if not order.count:
            await self._hang_up()
        first_ns = self._clock.now_ns()
        async with httpx.AsyncClient(base_url=self._url, trust_env=False, timeout=30) as http:
            while len(self._pacer.callers) < order.count:
                number = len(self._pacer.callers)
                asks_ns = first_ns + int(ROUND_S * NS_PER_S * number / order.count)
                talk = Talk(
                    self._spoken[order.transport], number, self._counts, asks_ns if order.talks else None
                )
                caller = self._caller(order.transport, talk)
                await caller.connect(http)
                self._pacer.callers.append(caller)

    def _caller(self, transport: Transport, talk: Talk) -> PlainCaller | PlainSocket:
        if transport == "webrtc":
            return PlainCaller(self._url, talk, self._counts)
        return PlainSocket(self._url, talk, self._counts, self._clock)

    async def _hang_up(self) -> None:
        callers, self._pacer.callers = self._pacer.callers, []
        for caller in callers:
            await caller.close()
