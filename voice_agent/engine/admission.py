"""How many replies a VoiceBox renders at once: a semaphore with a queue that has a limit in length and in time.

A VoiceBox job holds memory (a GPU's, where the memory plan sets the limit). One more than fits waits its turn, in
order, and is then either rendered or told "busy": never rendered beyond what fits, never left waiting.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from voice_agent.clock import NS_PER_S, Clock, within
from voice_agent.engine.client import EngineClient, EngineStream
from voice_agent.engine.messages import Request, Speak
from voice_agent.errors import EngineError


class VoiceBoxBusy(EngineError):
    """No seat came free in time, or too many wait already."""

    code = "busy"


@dataclass(frozen=True)
class AdmissionLimits:
    """`jobs` at once; `queued` may wait, each for `wait_s` at most."""

    jobs: int
    queued: int = 64
    wait_s: float = 5.0

    def __post_init__(self) -> None:
        """Refuse limits that let nobody in."""
        if self.jobs < 1 or self.queued < 0 or self.wait_s < 0:
            raise ValueError("admission needs at least one job, and no negative limit")


class Admission:
    """Seats, handed on in the order of asking. Event loop only."""

    def __init__(self, limits: AdmissionLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for a seat."""
        return len(self._waiting)

    @contextlib.asynccontextmanager
    async def seat(self) -> AsyncGenerator[None]:
        """Have a seat for the block's length. Raises VoiceBoxBusy; cancelled while waiting, it gives up its place."""
        if self._taken < self._limits.jobs:
            self._taken += 1
        else:
            await self._wait()
        try:
            yield
        finally:
            self._hand_on()

    async def _wait(self) -> None:
        if len(self._waiting) >= self._limits.queued:
            raise VoiceBoxBusy(f"{self._limits.jobs} replies are being spoken and {len(self._waiting)} wait")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await within(self._clock, self._clock.now_ns() + int(self._limits.wait_s * NS_PER_S), turn)
        except BaseException as error:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif turn.done() and not turn.cancelled():
                self._hand_on()  # the seat came in the same moment
            if isinstance(error, TimeoutError):
                raise VoiceBoxBusy(
                    f"{self._limits.jobs} replies are being spoken, none ended in {self._limits.wait_s:g} s"
                ) from None
            raise

    def _hand_on(self) -> None:
        """The seat to the first who waits; nobody: it is free."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._taken -= 1


class AdmittedEngine:
    """An EngineClient whose Speak requests need a seat; all else passes."""

    def __init__(self, engine: EngineClient, admission: Admission) -> None:
        self._engine = engine
        self._admission = admission

    @contextlib.asynccontextmanager
    async def submit(self, request: Request) -> AsyncGenerator[EngineStream]:
        """As EngineClient; raises VoiceBoxBusy besides. The seat is held to the end of the block."""
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(request, Speak):
                await stack.enter_async_context(self._admission.seat())
            yield await stack.enter_async_context(self._engine.submit(request))

    def abort(self, request_id: str) -> None:
        """As EngineClient."""
        self._engine.abort(request_id)

    def in_flight(self) -> list[str]:
        """As EngineClient."""
        return self._engine.in_flight()

    def next_epoch(self) -> int:
        """As EngineClient."""
        return self._engine.next_epoch()
