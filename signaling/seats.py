"""Seats: how many sessions run at once, whatever their transport.

A seat is a lease. It ends by `release`, or by itself unless `keep` was called in time: a caller that never
connects, or whose owner was lost, cannot hold one for good.
"""

import random
from collections.abc import Callable

from voice_agent.clock import NS_PER_S, Clock
from voice_agent.errors import BusyError

RETRY_AFTER_S = (2, 6)  # spread, so that those who were turned away do not come back together


class Lease:
    """One seat taken; `release` may be called any number of times."""

    def __init__(self, expires_ns: int, let_go: Callable[["Lease"], None]) -> None:
        self.expires_ns: int | None = expires_ns
        self._let_go = let_go

    def expired(self, now_ns: int) -> bool:
        """Whether the seat went back by itself."""
        return self.expires_ns is not None and self.expires_ns <= now_ns

    def keep(self) -> None:
        """Hold the seat until it is released; too late, and the seat stays lost."""
        self.expires_ns = None

    def release(self) -> None:
        """Give the seat back."""
        self._let_go(self)


class Seats:
    """A fixed number of seats, handed out as leases."""

    def __init__(
        self, max_sessions: int, clock: Clock, pick: Callable[[int, int], int] = random.randint
    ) -> None:
        self.max_sessions = max_sessions
        self._clock = clock
        self._pick = pick
        self._leases: set[Lease] = set()

    @property
    def in_use(self) -> int:
        """Seats taken now."""
        now_ns = self._clock.now_ns()
        self._leases -= {lease for lease in self._leases if lease.expired(now_ns)}
        return len(self._leases)

    def acquire(self, lease_s: float) -> Lease:
        """Take a seat that ends by itself after `lease_s`; raises BusyError when all are taken."""
        if self.in_use >= self.max_sessions:
            raise self.busy("The agent is busy with other calls.")
        lease = Lease(self._clock.now_ns() + int(lease_s * NS_PER_S), self._leases.discard)
        self._leases.add(lease)
        return lease

    def busy(self, message: str) -> BusyError:
        """A refusal that says when to come again, a little different for each caller."""
        return BusyError(message, self._pick(*RETRY_AFTER_S))
