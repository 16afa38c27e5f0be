"""One engine process from spawn to ready, and a second one kept ready beside it: the warm spare.

It knows no request; the supervisor decides which process serves.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from voice_agent.clock import NS_PER_S, Clock
from voice_agent.engine.connection import ConnectionEnded, ConnectionFull
from voice_agent.engine.messages import Loading, Ping, Pong, Ready, StartFailed, decode_from_engine, encode
from voice_agent.engine.process import CHILD_COMMAND, ChildProcess
from voice_agent.engine.runtime import EngineSpec
from voice_agent.errors import EngineStartFailed

logger = logging.getLogger(__name__)

SPARE_RETRY_S = (
    30.0  # a spare that cannot start is tried again, seldom: the one that serves needs the machine
)
AFTER_TAKE_S = 5.0
ANSWER_S = 1.0  # a spare proves that its loop lives before it serves


def _no_progress(stage: str) -> None:
    """For whoever does not want to be told."""


@dataclass(frozen=True)
class Recipe:
    """How a process of this engine is started; `tell` hears what it loads."""

    name: str
    spec: EngineSpec
    tell: Callable[[str], None] = _no_progress
    command: Sequence[str] = CHILD_COMMAND

    async def start(self) -> "Started":
        """Spawn and wait for Ready. Raises EngineStartFailed with its text; leaves nothing behind then."""
        child = await ChildProcess.spawn(self.name, self.spec, self.command)
        limits = self.spec.limits
        try:
            return Started(child, await self._until_ready(child))
        except EngineStartFailed:
            await child.end(politely_s=0, terminate_s=limits.terminate_s)
            raise
        except BaseException:
            await child.end(politely_s=limits.shutdown_s, terminate_s=limits.terminate_s)
            raise

    async def _until_ready(self, child: ChildProcess) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self.spec.limits.start_s):
                while True:
                    match decode_from_engine(await child.connection.receive()):
                        case Ready(describe=describe):
                            return describe
                        case Loading(stage=stage):
                            self.tell(stage)
                        case StartFailed(code=code, text=text):
                            raise EngineStartFailed(f"the {self.name} engine: {text}", code=code)
                        case _:
                            pass
        except TimeoutError as error:
            raise self._failure(child, f"was not ready within {self.spec.limits.start_s:g} s") from error
        except ConnectionEnded as error:
            raise self._failure(child, f"{await child.ending()} while it started") from error
        except msgspec.DecodeError as error:
            raise self._failure(child, "sent something that is no message") from error

    def _failure(self, child: ChildProcess, what: str) -> EngineStartFailed:
        lines = child.last_lines()
        return EngineStartFailed(
            f"the {self.name} engine {what}" + (f"; its last lines:\n{lines}" if lines else "")
        )


@dataclass(frozen=True)
class Started:
    """A process that said Ready, and what it said of itself."""

    child: ChildProcess
    describe: dict[str, Any]

    async def answers(self) -> bool:
        """Whether its loop lives. Reads its connection: for a process that serves nobody yet."""
        try:
            self.child.connection.send(encode(Ping(0)))
            async with asyncio.timeout(ANSWER_S):
                return isinstance(decode_from_engine(await self.child.connection.receive()), Pong)
        except (TimeoutError, ConnectionEnded, ConnectionFull, msgspec.DecodeError):
            return False

    async def end(self, *, politely_s: float, terminate_s: float) -> None:
        """See ChildProcess.end."""
        await self.child.end(politely_s=politely_s, terminate_s=terminate_s)


class Spare:
    """A process that is ready and serves nobody. `keep` runs beside the one that serves; `take` hands it over."""

    def __init__(self, recipe: Recipe, clock: Clock) -> None:
        self._recipe = dataclasses.replace(recipe, spec=dataclasses.replace(recipe.spec, patient=True))
        self._clock = clock
        self._starting: asyncio.Task[Started] | None = None
        self._taken_ns: int | None = None  # when one was taken last

    @property
    def ready(self) -> bool:
        """Whether `take` will give a process at once, as far as is known."""
        task = self._starting
        return task is not None and task.done() and not task.cancelled() and task.exception() is None

    async def keep(self) -> str:
        """Start one, again when it dies, until cancelled; what it has by then stays.

        After a take it waits for a while: whoever asks the taken one now needs the cores.
        """
        if self._taken_ns is not None and self._starting is None:
            await self._clock.sleep_until(self._taken_ns + int(AFTER_TAKE_S * NS_PER_S))
        while True:
            if self._starting is None:
                self._starting = asyncio.create_task(self._recipe.start(), name=f"{self._recipe.name} spare")
            try:
                started = await asyncio.shield(self._starting)
                await started.child.ended()
            except EngineStartFailed as error:
                logger.error("no spare for the %s engine: %s", self._recipe.name, error)
            else:
                logger.error("the spare of the %s engine %s", self._recipe.name, await started.child.ending())
            await self.end(politely_s=0)
            await self._clock.sleep_until(self._clock.now_ns() + int(SPARE_RETRY_S * NS_PER_S))

    async def take(self) -> Started | None:
        """The spare, once it is ready and answers; None if there is none or it does not."""
        task = self._starting
        if task is None:
            return None
        try:
            started = await asyncio.shield(task)
        except EngineStartFailed:
            self._starting = None
            return None
        if await started.answers():
            self._starting, self._taken_ns = None, self._clock.now_ns()
            return started
        await self.end(politely_s=0)
        return None

    async def end(self, *, politely_s: float) -> None:
        """End what there is. May be called again."""
        task, self._starting = self._starting, None
        if task is None:
            return
        if not task.done():
            task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(outcome, Started):
            await outcome.end(politely_s=politely_s, terminate_s=self._recipe.spec.limits.terminate_s)
