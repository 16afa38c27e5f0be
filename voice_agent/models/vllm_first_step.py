"""Lets an idle vLLM begin with the first few of a wave of prompts, not with the very first.

Whoever asks an idle vLLM first gets a step of his own, which takes the time of its launch however little is in it, and
longer while vLLM's process is busy with taking in the others; they all wait for it. So where several prompts come
together its scheduler is held until the first few of them are there, 20 ms at most. Once it runs nothing is held: what
comes meanwhile goes into its next step anyway. Event loop only.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)

HOLD_S = 0.02  # most that a prompt waits for those beside it


@dataclass(frozen=True)
class Scheduling:
    """vLLM's scheduler, from outside: what holds it and lets it go.

    Both are sent at once, in order with the requests; they raise `dead` once vLLM is gone, whose requests tell of it.
    """

    hold: Callable[[], Awaitable[None]]
    release: Callable[[], Awaitable[None]]
    dead: type[Exception]


class FirstStep:
    """One vLLM's; `busy` says whether it has requests already."""

    def __init__(self, scheduling: Scheduling, busy: Callable[[], bool]) -> None:
        self._scheduling = scheduling
        self._busy = busy
        self._latest: asyncio.TimerHandle | None = None  # while it is held
        self._sending: set[asyncio.Task[None]] = set()

    def expect(self) -> None:
        """Several prompts are on their way."""
        if self._latest or self._busy():
            return
        self._latest = asyncio.get_running_loop().call_later(HOLD_S, self.begin)
        self._send(self._scheduling.hold)

    def begin(self) -> None:
        """Some of them have gone on, or none will, or it took too long; may be called at any time."""
        if not self._latest:
            return
        self._latest.cancel()
        self._latest = None
        self._send(self._scheduling.release)

    def _send(self, order: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(self._sent(order))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _sent(self, order: Callable[[], Awaitable[None]]) -> None:
        try:
            await order()
        except self._scheduling.dead:
            logger.debug("vLLM was gone before it was held or let go")
