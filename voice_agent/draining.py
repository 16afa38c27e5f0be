"""The end of service: what is in hand may go on for a while, nothing new begins.

Calls and requests are drained side by side, within the same time.
"""

import asyncio
from dataclasses import dataclass

from signaling.calls import CallRegistry
from voice_agent.clock import Clock
from voice_agent.places import Places


@dataclass(frozen=True)
class Drain:
    """What there is to drain, and for how long at most."""

    registry: CallRegistry
    places: Places
    clock: Clock
    drain_s: float

    def in_hand(self) -> str:
        """What a stop waits for, in words; empty if nothing."""
        counts = {"call(s)": len(self.registry), "request(s)": self.places.in_hand}
        return " and ".join(f"{count} {what}" for what, count in counts.items() if count)

    async def run(self) -> None:
        """Return when all is over; calls that are not by then are ended, requests are left to the HTTP server."""
        await asyncio.gather(self.registry.drain(self.drain_s), self.places.drain(self.clock, self.drain_s))
