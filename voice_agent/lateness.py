"""By how much later than due something happens, again and again: the newest times, and their percentiles.

Two rings of numbers without objects, so that a server may note each frame of each call. Knows not what is late.
"""

import math
from array import array
from itertools import compress

from voice_agent.clock import NS_PER_S, Clock, ms_between

KEPT_S = 60


class Lateness:
    """The newest `kept` times of one kind of event; one writer."""

    def __init__(self, clock: Clock, kept: int) -> None:
        self._clock = clock
        self._kept = kept
        self._instants_ns = array("q")
        self._late_ms = array("d")
        self._next = 0  # which of the full rings is overwritten next

    def note(self, due_ns: int, now_ns: int) -> None:
        """It was due then and happened now."""
        if len(self._late_ms) < self._kept:
            self._instants_ns.append(now_ns)
            self._late_ms.append(ms_between(due_ns, now_ns))
            return
        self._instants_ns[self._next] = now_ns
        self._late_ms[self._next] = ms_between(due_ns, now_ns)
        self._next = (self._next + 1) % self._kept

    def summary(self, seconds: float = KEPT_S) -> dict[str, float]:
        """ms late in the last `seconds`: p50, p99, max (by nearest rank) and the number n."""
        since_ns = self._clock.now_ns() - int(seconds * NS_PER_S)
        late = sorted(compress(self._late_ms, (instant >= since_ns for instant in self._instants_ns)))
        if not late:
            return {"n": 0}
        ranks = {f"p{p}_ms": late[max(1, math.ceil(p / 100 * len(late))) - 1] for p in (50, 99)}
        return {**{k: round(v, 2) for k, v in ranks.items()}, "max_ms": round(late[-1], 2), "n": len(late)}
