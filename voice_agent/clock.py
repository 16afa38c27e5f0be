"""Monotonic time, injected, so that tests turn the clock by hand.

Nothing in this package asks the operating system for the time except through a Clock.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


class Clock(Protocol):
    """Monotonic nanoseconds and a sleep that ends at an instant."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary instant; never goes back."""
        ...

    async def sleep_until(self, instant_ns: int) -> None:
        """Return at `instant_ns`, at once if it has passed. Cancellation passes through."""
        ...


class MonotonicClock:
    """The machine's own monotonic clock."""

    def now_ns(self) -> int:
        """Nanoseconds of `time.monotonic`."""
        return time.monotonic_ns()

    async def sleep_until(self, instant_ns: int) -> None:
        """Sleep on the event loop until the instant."""
        delay_ns = instant_ns - time.monotonic_ns()
        await asyncio.sleep(max(0, delay_ns) / NS_PER_S)


class ManualClock:
    """A clock that stands until `advance_ms` moves it: sleepers wake in order, without waiting."""

    def __init__(self) -> None:
        self._now_ns = 0
        self._order = itertools.count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def now_ns(self) -> int:
        """The instant that was set."""
        return self._now_ns

    async def sleep_until(self, instant_ns: int) -> None:
        """Wait until `advance_ms` has moved the clock past the instant."""
        if instant_ns <= self._now_ns:
            await asyncio.sleep(0)
            return
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (instant_ns, next(self._order), wake))
        await wake

    async def advance_ms(self, ms: float) -> None:
        """Move time on, waking each sleeper at its own instant and letting it run."""
        end_ns = self._now_ns + int(ms * NS_PER_MS)
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= end_ns:
            self._now_ns, _, wake = heapq.heappop(self._sleepers)
            if not wake.done():
                wake.set_result(None)
            await _settle()
        self._now_ns = end_ns
        await _settle()


async def _settle() -> None:
    """Let everything that is ready run; a chain of a few awaits needs a few passes."""
    for _ in range(10):
        await asyncio.sleep(0)


def ms_between(start_ns: int, end_ns: int) -> float:
    """Milliseconds from one instant to another."""
    return (end_ns - start_ns) / NS_PER_MS


async def within(clock: Clock, instant_ns: int, work: Awaitable[T]) -> T:
    """Await work until an instant of the clock; then it is cancelled, awaited, and TimeoutError raised."""
    task, limit = asyncio.ensure_future(work), asyncio.ensure_future(clock.sleep_until(instant_ns))
    try:
        await asyncio.wait({task, limit}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        for future in (task, limit):
            future.cancel()
        await asyncio.gather(task, limit, return_exceptions=True)


async def until_first(*work: Awaitable[Any]) -> None:
    """Return when the first of these has ended, however it did; the others are cancelled and waited for."""
    parts = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)


async def first_result(*work: Awaitable[T]) -> T:
    """Give what the first of these to end gave, or raise what it raised; the others are cancelled and waited for."""
    parts = [asyncio.ensure_future(one) for one in work]
    try:
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        return next(iter(done)).result()
    finally:
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)


class Change:
    """Wakes all that wait for the next change of something."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def announce(self) -> None:
        """Something changed: whoever waits looks again."""
        woken, self._next = self._next, asyncio.Event()
        woken.set()

    async def wait(self, clock: Clock, instant_ns: int | None = None) -> None:
        """Return at the next change, or at an instant of the clock if that is sooner."""
        if instant_ns is None:
            await self._next.wait()
            return
        with suppress(TimeoutError):
            await within(clock, instant_ns, self._next.wait())
