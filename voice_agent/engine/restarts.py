"""How long to wait before each restart of an engine, and when to give up: pure."""

import random
from collections import deque
from collections.abc import Callable

from voice_agent.clock import NS_PER_S

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
RESTARTS = 5
WINDOW_S = 600.0


class RestartBudget:
    """Five restarts in ten minutes, each after a longer wait."""

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

    def forgive(self) -> None:
        """An operator has seen to it: count from nothing."""
        self._deaths_ns.clear()
