"""An engine as the server has it: started, watched, restarted alone, and an EngineClient all the while.

States: stopped -> starting -> ready -> backoff -> starting ... , crash_loop when the restart budget is spent (readiness
fails until an operator acts, instead of flapping), closed. Ready means warmed up. A death fails the requests in flight
at once and nothing else; a warm spare, if one is kept, serves at once in its place. An operator may stop it and restart
it, which also leads out of a crash loop. It knows no model.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, Literal, NoReturn

from voice_agent.clock import NS_PER_S, Clock, first_result, within
from voice_agent.engine.client import EngineStream
from voice_agent.engine.connection import ConnectionEnded
from voice_agent.engine.messages import Request, ToEngine
from voice_agent.engine.process import CHILD_COMMAND
from voice_agent.engine.restarts import RestartBudget
from voice_agent.engine.runtime import EngineSpec
from voice_agent.engine.serving import Serving
from voice_agent.engine.starting import Recipe, Spare, Started
from voice_agent.engine.streams import StreamTable
from voice_agent.errors import EngineDied, EngineStartFailed

logger = logging.getLogger(__name__)

# a reply on an engine that died has ended within 1 s, its second attempt included: it waits for both of these
ENDING_S = 0.3  # how long requests in flight wait to be told why their process ended
RECOVER_S = 0.6  # how long a request waits for an engine that is on its way up

EngineState = Literal["stopped", "starting", "ready", "backoff", "crash_loop", "closed"]
Lasting = Literal["", "stopped", "failed"]
NOTICES = {  # for callers, who can only wait or go
    "stopped": "is stopped by an operator",
    "starting": "is starting",
    "backoff": "is being started again",
    "crash_loop": "has failed",
    "closed": "is stopped",
}


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
        warm_spare: bool = False,
    ) -> None:
        self._name = name
        self._spec = spec
        self._clock = clock
        self._on_loading = on_loading
        self._recipe = Recipe(name, spec, self._loading, command)
        self._spare = Spare(Recipe(f"{name} (spare)", spec, command=command), clock) if warm_spare else None
        self._budget = RestartBudget()
        self._streams = StreamTable(self._send, spec.limits.queued_results)
        self._serving: Serving | None = None  # set while it may be sent requests
        self._up = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[Started] | None = None
        self._leaving = set[asyncio.Task[None]]()  # processes that are being ended while another one serves
        self._ordered = asyncio.Event()  # an operator's word waits to be followed
        self._stay_down = False
        self._why = ""  # what is going on, for the person who waits
        self._stage = ""  # what a process on its way up told last that it loads
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

    def restart(self) -> None:
        """An operator's word: end the process that is up or starting, forgive its deaths, start another."""
        self._follow(stay_down=False)

    def stop(self) -> None:
        """An operator's word: end the process, spare included, and stay down until `restart`."""
        self._follow(stay_down=True)

    def _follow(self, *, stay_down: bool) -> None:
        logger.info("the %s engine: an operator's word: %s", self._name, "stop" if stay_down else "restart")
        self._stay_down = stay_down
        self._budget.forgive()
        self._ordered.set()
        if self._starting is not None:
            self._starting.cancel()

    def reasons(self) -> list[str]:
        """Why it is not ready, one sentence each; empty when it is."""
        if self.state == "ready":
            return []
        way_out = {"crash_loop", "stopped"} & {self.state} and self._owner is not None
        hint = f"; `voice-agent engine restart {self._name}` starts it again" if way_out else ""
        return [f"the {self._name} engine: {self.state}{self._why and ', '}{self._why}{hint}"]

    def notice(self) -> str:
        """Why it is not ready, for callers: no path, no command and no cause of the server's own; empty when it is."""
        if self.state == "ready":
            return ""
        state = "starting" if self._owner is None and self.state == "stopped" else self.state
        loads = f"is loading the {self._stage}" if self._stage and state == "starting" else ""
        return f"the {self._name} engine {loads or NOTICES[state]}"

    @property
    def lasting(self) -> Lasting:
        """Whether only an operator's word brings it back; empty if not."""
        if self._owner is None:
            return ""
        lasting: dict[EngineState, Lasting] = {"crash_loop": "failed", "stopped": "stopped"}
        return lasting.get(self.state, "")

    @property
    def spare_ready(self) -> bool:
        """Whether a warm spare stands by."""
        return self._spare is not None and self._spare.ready

    @property
    def pid(self) -> int | None:
        """The process that is up, None if none is."""
        return self._serving.child.pid if self._serving else None

    @property
    def held(self) -> list[str]:
        """Request ids that the process's own last sign of life named; none while none is up."""
        return self._serving.held if self._serving else []

    @property
    def work(self) -> dict[str, float]:
        """Running totals that the process told; none while none is up."""
        return self._serving.work if self._serving else {}

    # --- EngineClient -------------------------------------------------------------------------------------------

    async def comes_up(self) -> bool:
        """Whether it serves; waits a moment for a process that is on its way up."""
        if self._serving is None and self.state in {"starting", "backoff"}:
            with contextlib.suppress(TimeoutError):
                until_ns = self._clock.now_ns() + int(RECOVER_S * NS_PER_S)
                await within(self._clock, until_ns, self._up.wait())
        return self._serving is not None

    @contextlib.asynccontextmanager
    async def submit(self, request: Request) -> AsyncGenerator[EngineStream]:
        """Send a request; leaving the block aborts it.

        Waits a moment for an engine that is on its way up. Raises EngineDied when none is up by then.
        """
        if not await self.comes_up():
            raise EngineDied(f"the {self._name} engine is not up ({self.state})")
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
        """To the process that is up, if one is."""
        if self._serving:
            self._serving.send(message)

    # --- the owner's side ---------------------------------------------------------------------------------------

    async def _supervise(self, started: asyncio.Future[None]) -> None:
        """Own the processes to the end; whatever goes wrong here shows in `reasons`, and `restart` leads out of it."""
        try:
            while await self._failed_after_start(started):
                await self._ordered.wait()
                await self._obey()
        finally:
            if not started.done():
                started.set_exception(
                    EngineStartFailed(f"the {self._name} engine was given up while it started")
                )
            await self._end_spare()
            await asyncio.gather(*self._leaving, return_exceptions=True)

    async def _failed_after_start(self, started: asyncio.Future[None]) -> bool:
        """Keep it up until that itself fails; gives whether it had been ready before, so that an operator can help."""
        try:
            await self._keep_up(started)
        except EngineStartFailed as error:
            started.set_exception(error)
            return False
        except Exception:
            logger.exception("the supervisor of the %s engine failed", self._name)
            self.state, self._why = "crash_loop", "its supervisor failed"
        return started.done()

    async def _keep_up(self, started: asyncio.Future[None]) -> NoReturn:
        """One process after the other; raises if the first never gets ready."""
        while True:
            try:
                await self._live(started)
            except EngineStartFailed as error:
                if not started.done():
                    raise
                self._why = str(error)
            if not self._ordered.is_set():
                logger.error("the %s engine is down: %s", self._name, self._why)
                await self._back_off()
            await self._obey()

    async def _back_off(self) -> None:
        """Wait as long as the budget says; an operator's word and a spare that is ready end it."""
        delay_s = self._budget.after_death(self._clock.now_ns())
        self.state = "backoff" if delay_s is not None else "crash_loop"
        if delay_s is None:
            logger.error(
                "the %s engine stays down; `voice-agent engine restart %s` starts it again", *2 * [self._name]
            )
            await self._ordered.wait()
        elif not self.spare_ready:
            with contextlib.suppress(TimeoutError):
                until_ns = self._clock.now_ns() + int(delay_s * NS_PER_S)
                await within(self._clock, until_ns, self._ordered.wait())

    async def _obey(self) -> None:
        """Do what an operator said, if one did; comes back when a process is to be started."""
        while self._ordered.is_set():
            self._ordered.clear()
            self._why = "by an operator"
            if self._stay_down:
                self.state = "stopped"
                await self._end_spare()
                await self._ordered.wait()

    async def _end_spare(self) -> None:
        if self._spare:
            await self._spare.end(politely_s=self._spec.limits.shutdown_s)

    async def _live(self, started: asyncio.Future[None]) -> None:
        """One process from spawn to death; raises EngineStartFailed if it never got ready."""
        limits = self._spec.limits
        self.state, self._stage = "starting", ""
        process = await self._next_process()
        if process is None:
            return  # an operator wants it otherwise
        polite_s = limits.shutdown_s  # stays so only if we are cancelled, or an operator ends it
        why, beside = "it is being closed", False
        try:
            serving = self._serving = Serving(process.child, limits, self._clock)
            self.describe = process.describe
            process.child.name = self._name
            self.state, self._why = "ready", ""
            self._up.set()
            if not started.done():
                started.set_result(None)
            work = [self._read(serving), serving.beat(), self._order()]
            why = self._why = await first_result(*work, *([self._spare.keep()] if self._spare else []))
            polite_s = limits.shutdown_s if self._ordered.is_set() else 0
            beside = self.spare_ready and not self._ordered.is_set()
        finally:
            self._unplug()
            self._fail_all(why)
            end = process.end(politely_s=polite_s, terminate_s=limits.terminate_s)
            await (self._end_beside(end) if beside else end)

    async def _end_beside(self, end: Coroutine[Any, Any, None]) -> None:
        """Let one end that may hang, while the spare, which has all that it needs, serves already."""
        task = asyncio.create_task(end, name=f"{self._name} end")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _next_process(self) -> Started | None:
        """The spare if there is one, else a new one; None when an operator's word came between."""
        starting = self._starting = asyncio.create_task(self._spare_or_new(), name=f"{self._name} start")
        try:
            await asyncio.wait({starting})
        except asyncio.CancelledError:
            starting.cancel()
            (outcome,) = await asyncio.gather(starting, return_exceptions=True)
            if isinstance(outcome, Started):  # it was ready in the same moment
                await outcome.end(politely_s=self._spec.limits.shutdown_s, terminate_s=0)
            raise
        finally:
            self._starting = None
        return None if starting.cancelled() else starting.result()

    async def _spare_or_new(self) -> Started:
        spare = await self._spare.take() if self._spare else None
        return spare or await self._recipe.start()

    def _loading(self, stage: str) -> None:
        self._why, self._stage = f"loading the {stage}", stage
        self._on_loading(stage)

    async def _order(self) -> str:
        await self._ordered.wait()
        return "an operator ended it"

    def _unplug(self) -> None:
        """From here on it is not up, whatever is still to be cleared away."""
        self._serving, self.state = None, "backoff"
        self._up.clear()

    def _fail_all(self, why: str) -> None:
        self._streams.fail_all(f"the {self._name} engine is down: {why}")

    async def _read(self, serving: Serving) -> str:
        """Route what comes; ends with why nothing more will."""
        try:
            return await serving.read(self._streams.route)
        except ConnectionEnded:
            self._unplug()
            why = await serving.child.ending(ENDING_S)
            self._fail_all(why)
            return why
