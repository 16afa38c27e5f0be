"""An engine as the server has it: started, watched, restarted alone, and an EngineClient all the while.

States: stopped -> starting -> ready -> backoff -> starting ... , crash_loop when the restart budget is spent (readiness
fails until an operator acts, instead of flapping), closed. Ready means warmed up. A death fails the requests in flight
at once and nothing else. It knows no model.
"""

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, Literal

import msgspec

from voice_agent.clock import NS_PER_S, Clock
from voice_agent.engine.client import EngineStream
from voice_agent.engine.connection import ConnectionEnded, ConnectionFull, FrameTooLarge
from voice_agent.engine.messages import (
    Loading,
    Ping,
    Pong,
    Ready,
    Request,
    StartFailed,
    ToEngine,
    decode_from_engine,
    encode,
)
from voice_agent.engine.process import CHILD_COMMAND, ChildProcess
from voice_agent.engine.runtime import EngineSpec
from voice_agent.engine.streams import StreamTable
from voice_agent.errors import EngineDied, EngineError, EngineStartFailed

logger = logging.getLogger(__name__)

EngineState = Literal["stopped", "starting", "ready", "backoff", "crash_loop", "closed"]

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
RESTARTS = 5
WINDOW_S = 600.0


class RestartBudget:
    """How long to wait before each restart, and when to give up: pure."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter  # 0..1
        self._deaths_ns: deque[int] = deque()

    @property
    def spent(self) -> int:
        """Restarts used within the window, as of the last death."""
        return len(self._deaths_ns)

    def after_death(self, now_ns: int) -> float | None:
        """Seconds to wait: doubling, a quarter of jitter either way; None when the budget is spent."""
        while self._deaths_ns and now_ns - self._deaths_ns[0] > WINDOW_S * NS_PER_S:
            self._deaths_ns.popleft()
        if len(self._deaths_ns) >= RESTARTS:
            return None
        delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** len(self._deaths_ns))
        self._deaths_ns.append(now_ns)
        return delay_s * (0.75 + 0.5 * self._jitter())


class EngineProcess:
    """One engine, whichever process it is at the moment. Belongs to the event loop that started it."""

    def __init__(
        self,
        name: str,
        spec: EngineSpec,
        clock: Clock,
        *,
        on_loading: Callable[[str], None] = lambda stage: None,
        command: Sequence[str] = CHILD_COMMAND,
    ) -> None:
        self._name = name
        self._spec = spec
        self._clock = clock
        self._on_loading = on_loading
        self._command = command
        self._budget = RestartBudget()
        self._streams = StreamTable(self._send, spec.limits.queued_results)
        self._child: ChildProcess | None = None  # set while it may be sent requests
        self._pongs_missing = 0
        self._owner: asyncio.Task[None] | None = None
        self._why = ""  # what is going on, for the person who waits
        self.state: EngineState = "stopped"
        self.describe: dict[str, Any] = {}  # of the engine that was last ready

    # --- its life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start and wait for Ready; raises EngineStartFailed with its text if the first attempt fails."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._supervise(started), name=f"{self._name} engine")
        try:
            await started
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the process for certain; requests in flight raise EngineDied. May be called again."""
        owner, self._owner = self._owner, None
        if owner is None:
            return
        owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)
        self.state, self._why = "closed", ""

    def reasons(self) -> list[str]:
        """Why it is not ready, one sentence each; empty when it is."""
        return (
            []
            if self.state == "ready"
            else [f"the {self._name} engine: {self.state}{self._why and ', '}{self._why}"]
        )

    @property
    def pid(self) -> int | None:
        """The process that is up, None if none is."""
        return self._child.pid if self._child else None

    # --- EngineClient -------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def submit(self, request: Request) -> AsyncGenerator[EngineStream]:
        """Send a request; leaving the block aborts it. Raises EngineDied (retryable) when no engine is up."""
        if self._child is None:
            raise EngineDied(f"the {self._name} engine is not up ({self.state})", retryable=True)
        async with self._streams.submit(request) as stream:
            yield stream

    def abort(self, request_id: str) -> None:
        """End a request's stream as aborted and stop it in the engine."""
        self._streams.abort(request_id)

    def in_flight(self) -> list[str]:
        """Ids the engine may still be working on; an aborted one until the engine has let go of it."""
        return self._streams.in_flight()

    def next_epoch(self) -> int:
        """A number no earlier request of this engine carried, over all restarts."""
        return self._streams.next_epoch()

    def _send(self, message: ToEngine) -> None:
        """To the process that is up; one that does not read is killed, which its reader then notices."""
        if self._child is None:
            return
        try:
            self._child.connection.send(encode(message))
        except FrameTooLarge as error:
            raise EngineError(str(error), code="request_too_large") from error
        except ConnectionFull:
            self._child.kill("did not read what it was sent")
        except ConnectionEnded:
            pass  # its reader notices at once

    # --- the owner's side ---------------------------------------------------------------------------------------

    async def _supervise(self, started: asyncio.Future[None]) -> None:
        """Own the processes to the end; whatever goes wrong here shows in `reasons`."""
        try:
            await self._keep_up(started)
        except EngineStartFailed as error:
            started.set_exception(error)
        except Exception:
            logger.exception("the supervisor of the %s engine failed", self._name)
            self.state, self._why = "crash_loop", "its supervisor failed"
        finally:
            if not started.done():
                started.set_exception(
                    EngineStartFailed(f"the {self._name} engine was given up while it started")
                )

    async def _keep_up(self, started: asyncio.Future[None]) -> None:
        """One process after the other, until the budget is spent; raises if the first never gets ready."""
        while True:
            try:
                await self._live(started)
            except EngineStartFailed as error:
                if not started.done():
                    raise
                self._why = str(error)
            logger.error("the %s engine is down: %s", self._name, self._why)
            delay_s = self._budget.after_death(self._clock.now_ns())
            if delay_s is None:
                self.state = "crash_loop"
                return
            await self._clock.sleep_until(self._clock.now_ns() + int(delay_s * NS_PER_S))

    async def _live(self, started: asyncio.Future[None]) -> None:
        """One process from spawn to death; raises EngineStartFailed if it never got ready."""
        limits = self._spec.limits
        self.state = "starting"
        child = await ChildProcess.spawn(self._name, self._spec, self._command)
        polite_s = limits.shutdown_s  # stays so only if we are cancelled
        try:
            self.describe = await self._until_ready(child)
            self._child, self._pongs_missing = child, 0
            self.state, self._why = "ready", ""
            if not started.done():
                started.set_result(None)
            self._why = await _first_of(self._read(child), self._beat(child))
            polite_s = 0
        except EngineStartFailed:
            polite_s = 0
            raise
        finally:
            self._go_down()
            await child.end(politely_s=polite_s, terminate_s=limits.terminate_s)

    def _go_down(self) -> None:
        """From here on it is not up, whatever is still to be cleared away."""
        self._child, self.state = None, "backoff"
        self._streams.fail_all(f"the {self._name} engine's process ended")

    async def _until_ready(self, child: ChildProcess) -> dict[str, Any]:
        """Wait for Ready, passing on what it loads."""
        try:
            async with asyncio.timeout(self._spec.limits.start_s):
                while True:
                    match decode_from_engine(await child.connection.receive()):
                        case Ready(describe=describe):
                            return describe
                        case Loading(stage=stage):
                            self._why = f"loading the {stage}"
                            self._on_loading(stage)
                        case StartFailed(code=code, text=text):
                            raise EngineStartFailed(f"the {self._name} engine: {text}", code=code)
                        case _:
                            pass
        except TimeoutError as error:
            what = f"was not ready within {self._spec.limits.start_s:g} s"
            raise self._start_failure(child, what) from error
        except ConnectionEnded as error:
            raise self._start_failure(child, f"{await child.ending()} while it started") from error
        except msgspec.DecodeError as error:
            raise self._start_failure(child, "sent something that is no message") from error

    def _start_failure(self, child: ChildProcess, what: str) -> EngineStartFailed:
        lines = child.last_lines()
        return EngineStartFailed(
            f"the {self._name} engine {what}" + (f"; its last lines:\n{lines}" if lines else "")
        )

    async def _read(self, child: ChildProcess) -> str:
        """Route what comes; ends with why nothing more will."""
        try:
            while True:
                match decode_from_engine(await child.connection.receive()):
                    case Pong(busy_ms=busy_ms):
                        self._pongs_missing = 0
                        if busy_ms > 1000 * self._spec.limits.stuck_step_s:
                            return f"a step has not moved for {busy_ms / 1000:.0f} s"
                    case Ready() | Loading() | StartFailed():
                        pass
                    case result:
                        self._streams.route(result)
        except ConnectionEnded:
            self._go_down()
            return await child.ending()
        except msgspec.DecodeError:
            return "sent something that is no message"

    async def _beat(self, child: ChildProcess) -> str:
        """Ping; ends when too many in a row went unanswered.

        Pings are counted, not seconds, so that a pause of our own loop is never taken for one of the engine's.
        """
        limits = self._spec.limits
        number = 0
        while self._pongs_missing * limits.ping_s < limits.silent_s:
            number += 1
            self._pongs_missing += 1
            self._send(Ping(number))
            await self._clock.sleep_until(self._clock.now_ns() + int(limits.ping_s * NS_PER_S))
        return f"gave no sign of life for {limits.silent_s:g} s"


async def _first_of(*coroutines: Coroutine[Any, Any, str]) -> str:
    """The first one's result; the others are cancelled and awaited."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(iter(done)).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
