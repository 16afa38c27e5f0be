"""How late the event loop is: what one blocking call of anybody costs everybody.

A probe asks to be woken each 10 ms and notes by how much later it was; the last minute is kept. The machine's own
scheduler is in the figure too, so compare it with a bare loop's in the same minute (`voice-agent bench lag`).
"""

import math
from collections import deque

from voice_agent.clock import NS_PER_MS, NS_PER_S, Clock, ms_between

PROBE_NS = 10 * NS_PER_MS
KEPT_S = 60


class LoopLag:
    """The probe and what it found. `run` belongs to the loop that is measured."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: deque[tuple[int, float]] = deque(
            maxlen=KEPT_S * NS_PER_S // PROBE_NS
        )  # instant, ms late

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            due_ns = self._clock.now_ns() + PROBE_NS
            await self._clock.sleep_until(due_ns)
            now_ns = self._clock.now_ns()
            self._found.append((now_ns, ms_between(due_ns, now_ns)))

    def summary(self, seconds: float = KEPT_S) -> dict[str, float]:
        """Lateness in ms of the probes of the last `seconds`: p50, p99, max (by nearest rank) and their number n."""
        since_ns = self._clock.now_ns() - int(seconds * NS_PER_S)
        late = sorted(ms for instant_ns, ms in self._found if instant_ns >= since_ns)
        if not late:
            return {"n": 0}
        ranks = {f"p{p}_ms": late[max(1, math.ceil(p / 100 * len(late))) - 1] for p in (50, 99)}
        return {**{k: round(v, 2) for k, v in ranks.items()}, "max_ms": round(late[-1], 2), "n": len(late)}
