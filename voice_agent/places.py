"""Requests without a session: how many are in hand at once, and whether the engines that one needs serve.

A request is refused for the engines it needs itself, never for another that is down; one on its way up is waited for
a moment. It knows an engine only as something that serves or does not.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Literal, Protocol

from voice_agent.clock import NS_PER_S, Change, Clock
from voice_agent.errors import BusyError

Ability = Literal["hear", "think", "speak"]


class Needed(Protocol):
    """An engine, as far as a request must know (engine.supervisor.EngineProcess)."""

    async def comes_up(self) -> bool:
        """Whether it serves; waits a moment for one that is on its way up."""
        ...

    def notice(self) -> str:
        """Why it does not serve, in callers' words."""
        ...


async def all_up(engines: Iterable[Needed]) -> None:
    """Return once all serve; raises BusyError for the first that does not after a moment."""
    for engine in engines:
        if not await engine.comes_up():
            raise BusyError(f"The server is not ready: {engine.notice()}.", retry_after_s=2)


class Places:
    """Places for requests; more are refused, not queued. `engines` is what does each ability here, if one must be up.

    State: how many are taken, and whether the server stops, so that nobody gets one any more.
    """

    def __init__(self, most: int, engines: Mapping[Ability, Needed] | None = None) -> None:
        self._most = most
        self._engines = engines or {}
        self._given_back = Change()
        self._draining = False
        self.in_hand = 0

    @asynccontextmanager
    async def taken(self, *abilities: Ability) -> AsyncGenerator[None]:
        """Have a place for the block's length; raises BusyError if none is free, an engine it needs
        is down, or the server stops."""
        if self._draining:
            raise BusyError("The server is about to stop and takes no new requests.", retry_after_s=2)
        if self.in_hand >= self._most:
            raise BusyError("Too many requests are in hand; please try again.", retry_after_s=2)
        self.in_hand += 1
        try:
            await all_up(self._engines[ability] for ability in abilities if ability in self._engines)
            yield
        finally:
            self.in_hand -= 1
            self._given_back.announce()

    async def drain(self, clock: Clock, timeout_s: float) -> None:
        """Refuse new requests; return when those in hand are over, or the time is."""
        self._draining = True
        until_ns = clock.now_ns() + int(timeout_s * NS_PER_S)
        while self.in_hand and clock.now_ns() < until_ns:
            await self._given_back.wait(clock, until_ns)
