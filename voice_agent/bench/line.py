"""What both scripted callers share: events stamped as they come, waiting for one, and an utterance on its way out.

Knows no transport and no measurement.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from voice_agent.clock import Change, Clock

Event = dict[str, Any]
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Sent:
    """When the first and the last voiced packet of an utterance left."""

    first_voiced_ns: int
    last_voiced_ns: int


@dataclass(frozen=True, slots=True)
class Stamped:
    """A server event and when it arrived."""

    arrival_ns: int
    event: Event

    @property
    def kind(self) -> str:
        """Its `type`."""
        return str(self.event.get("type"))


@dataclass(slots=True)
class Utterance(Generic[P]):
    """Packets that are still to be sent, and the stamps of those that were."""

    packets: deque[P]
    sent_ns: list[int] = field(default_factory=list[int])
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, now_ns: int) -> P:
        """The next packet, which leaves now; `done` is set with the last."""
        packet = self.packets.popleft()
        self.sent_ns.append(now_ns)
        self.begun.set()
        if not self.packets:
            self.done.set()
        return packet


class EventLog:
    """All events of a call, `events`, in the order they came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._change = Change()
        self.events: list[Stamped] = []

    def note(self, event: Event, now_ns: int) -> None:
        """Another one came."""
        self.events.append(Stamped(now_ns, event))
        self._change.announce()

    async def first(self, wanted: Callable[[Stamped], bool], timeout_s: float) -> Stamped | None:
        """The first event, past or to come, that is wanted; None after the time-out."""
        seen = 0
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    found = next(filter(wanted, self.events[seen:]), None)
                    if found is not None:
                        return found
                    seen = len(self.events)
                    await self._change.wait(self._clock)
        except TimeoutError:
            return None


async def holds(condition: Callable[[], Any], change: Change, clock: Clock, timeout_s: float) -> bool:
    """Wait until a condition holds, looked at whenever something changed; False after the time-out."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await change.wait(clock)
    except TimeoutError:
        return False
    return True
