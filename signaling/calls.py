"""The calls of this server: made from an offer, found by id, ended once, remembered a minute.

Each call has one watcher task, owned by the registry: it gives the seat back when the call ends, and ends a call
that does not connect in time. What a call is inside is not known here.
"""

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from signaling.seats import Lease, Seats
from voice_agent.clock import NS_PER_S, Clock, within
from voice_agent.errors import UnknownCall

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallRequest:
    """What a caller sent: the offer, and the session part of the form if there was one (JSON, unchecked)."""

    call_id: str
    offer_sdp: str
    session: str | None = None
    pinned: str | None = None  # the session that the caller's key was made for


class Call(Protocol):
    """A call as signalling sees it."""

    @property
    def answer_sdp(self) -> str:
        """The whole answer, candidates inside."""
        ...

    @property
    def connected(self) -> bool:
        """Whether media has ever flowed."""
        ...

    async def add_candidates(self, fragment: str) -> None:
        """Take a trickled fragment (checked to be one); raises OfferRejected."""
        ...

    async def close(self, reason: str) -> None:
        """End the call and free all it holds; a second time does nothing."""
        ...

    async def wait_closed(self) -> None:
        """Return once the call is over, however it ended; any number of waiters, each may be cancelled."""
        ...

    def timeline(self) -> dict[str, Any]:
        """The inside as JSON, also after the end."""
        ...


CreateCall = Callable[[CallRequest], Awaitable[Call]]


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How long things may take, and how much is remembered."""

    create_timeout_s: float = 20.0
    connect_timeout_s: float = 15.0
    close_timeout_s: float = 5.0
    timeline_kept_s: float = 60.0
    timelines_kept: int = 32


class CallRegistry:
    """All running calls. `async with registry:` owns their watchers; leaving it ends every call.

    `_calls` holds what is running, `_ended` where the last timelines are read, with the instant they are forgotten.
    """

    def __init__(
        self, create_call: CreateCall, seats: Seats, clock: Clock, limits: CallLimits | None = None
    ) -> None:
        self.draining = False
        self._create_call = create_call
        self._seats = seats
        self._clock = clock
        self._limits = limits or CallLimits()
        self._calls: dict[str, Call] = {}
        self._ended: OrderedDict[str, tuple[int, Callable[[], dict[str, Any]]]] = OrderedDict()
        self._watchers: set[asyncio.Task[None]] = set()
        self._open = False

    async def __aenter__(self) -> "CallRegistry":
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.draining = True
        self._open = False
        await self._close_all("server_shutdown")
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)

    def __len__(self) -> int:
        return len(self._calls)

    async def open(
        self, offer_sdp: str, session: str | None = None, pinned: str | None = None
    ) -> tuple[str, Call]:
        """Make a call: its id and itself. Raises BusyError when full or draining, and what `create_call` raises."""
        return await self.admit(CallRequest(new_call_id(), offer_sdp, session, pinned), self._create_call)

    async def admit(self, request: CallRequest, create: CreateCall) -> tuple[str, Call]:
        """Give a call of any making a seat and a place here; raises as `open`, and what `create` raises."""
        if self.draining or not self._open:
            raise self._seats.busy("The server is about to stop and takes no new calls.")
        limits = self._limits
        lease = self._seats.acquire(
            limits.create_timeout_s + limits.connect_timeout_s + limits.close_timeout_s
        )
        try:
            call = await within(
                self._clock, self._after(limits.create_timeout_s), self._create(request, lease, create)
            )
        except TimeoutError:
            raise self._seats.busy("The call could not be set up in time.") from None
        if self.draining:  # it began while the call was being made
            await self.end(request.call_id, "server_shutdown")
            raise self._seats.busy("The server is about to stop and takes no new calls.")
        return request.call_id, call

    def get(self, call_id: str) -> Call:
        """A running call; raises UnknownCall."""
        try:
            return self._calls[call_id]
        except KeyError:
            raise UnknownCall(
                f"No call found for the id {call_id[:64]!r}: it has ended, or never was."
            ) from None

    async def end(self, call_id: str, reason: str) -> None:
        """End a call; it is unknown from now on. Raises UnknownCall."""
        call = self.get(call_id)
        self._forget(call_id, call.timeline)  # as it is being closed: only then it knows why
        await call.close(reason)

    def has_ended(self, call_id: str) -> bool:
        """Whether a call ended, or began to, within the last minute."""
        self._forget_old()
        return call_id in self._ended

    def timeline(self, call_id: str) -> dict[str, Any]:
        """The timeline of a running call, or of one that ended within the last minute. Raises UnknownCall."""
        self._forget_old()
        if call_id in self._ended:
            return self._ended[call_id][1]()
        return self.get(call_id).timeline()

    async def drain(self, timeout_s: float) -> None:
        """Refuse new calls, wait until the running ones are over or the time is, then end the rest."""
        self.draining = True
        try:
            calls = [call.wait_closed() for call in self._calls.values()]
            await within(self._clock, self._after(timeout_s), _gather(calls))
        except TimeoutError:
            log.info("drain time is over", extra={"calls": len(self._calls)})
        finally:
            await self._close_all("server_shutdown")

    def _after(self, seconds: float) -> int:
        return self._clock.now_ns() + int(seconds * NS_PER_S)

    async def _create(self, request: CallRequest, lease: Lease, create: CreateCall) -> Call:
        """Make the call and register it in one step: whoever is cancelled after that leaves it to its watcher."""
        try:
            call = await create(request)
        except BaseException:
            lease.release()
            raise
        self._calls[request.call_id] = call
        watcher = asyncio.create_task(
            self._watch(request.call_id, call, lease), name=f"watch {request.call_id}"
        )
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watched)
        return call

    def _watched(self, watcher: asyncio.Task[None]) -> None:
        self._watchers.discard(watcher)
        if not watcher.cancelled() and (error := watcher.exception()):
            log.error("a call ended badly", exc_info=error)

    async def _watch(self, call_id: str, call: Call, lease: Lease) -> None:
        """Live as long as the call; its seat goes back with it."""
        try:
            try:
                await within(self._clock, self._after(self._limits.connect_timeout_s), call.wait_closed())
            except TimeoutError:
                if call.connected:
                    lease.keep()
                else:
                    log.info("call never connected", extra={"call": call_id})
                    await call.close("connect_timeout")
                await call.wait_closed()
        finally:
            lease.release()
            last = call.timeline()
            self._forget(call_id, lambda: last)  # and the call itself is let go

    def _forget(self, call_id: str, timeline: Callable[[], dict[str, Any]]) -> None:
        """Move a call from the running ones to the remembered ones, and renew what is remembered of it."""
        self._calls.pop(call_id, None)
        until_ns = self._clock.now_ns() + int(self._limits.timeline_kept_s * NS_PER_S)
        self._ended[call_id] = (until_ns, timeline)
        self._ended.move_to_end(call_id)
        self._forget_old()

    def _forget_old(self) -> None:
        now_ns = self._clock.now_ns()
        while self._ended and (
            len(self._ended) > self._limits.timelines_kept or next(iter(self._ended.values()))[0] <= now_ns
        ):
            self._ended.popitem(last=False)

    async def _close_all(self, reason: str) -> None:
        calls = list(self._calls.values())
        try:
            closing = _gather([call.close(reason) for call in calls])
            await within(self._clock, self._after(self._limits.close_timeout_s), closing)
        except TimeoutError:
            log.warning("calls did not close in time", extra={"calls": len(self._calls)})


def new_call_id() -> str:
    """An id that nobody can guess: who knows it may join the call."""
    return f"rtc_{secrets.token_hex(16)}"


async def _gather(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do all at once; one that fails is logged and does not keep the others from it."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            log.warning("a call did not end cleanly", exc_info=result)
