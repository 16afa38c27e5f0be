"""How late the event loop is: what one blocking call of anybody costs everybody.

A probe asks to be woken each 10 ms and notes by how much later it was; the last minute is kept. The machine's own
scheduler is in the figure too, so compare it with a bare loop's in the same minute (`voice-agent bench lag`).
"""

from voice_agent.clock import NS_PER_MS, NS_PER_S, Clock
from voice_agent.lateness import KEPT_S, Lateness

PROBE_NS = 10 * NS_PER_MS


class LoopLag:
    """The probe and what it found. `run` belongs to the loop that is measured."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found = Lateness(clock, KEPT_S * NS_PER_S // PROBE_NS)

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            due_ns = self._clock.now_ns() + PROBE_NS
            await self._clock.sleep_until(due_ns)
            self._found.note(due_ns, self._clock.now_ns())

    def summary(self, seconds: float = KEPT_S) -> dict[str, float]:
        """Lateness in ms of the probes of the last `seconds` (Lateness.summary)."""
        return self._found.summary(seconds)
