"""Calls without media for the tests of signalling and its endpoints."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from signaling.calls import CallLimits, CallRegistry, CallRequest
from signaling.seats import Seats
from voice_agent.clock import ManualClock

OFFER = (
    "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"
    "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n"
    "a=fingerprint:sha-256 AA:BB\r\na=rtpmap:111 opus/48000/2\r\n"
)
CANDIDATE = "candidate:1 1 udp 2130706431 192.0.2.1 54321 typ host generation 0"


class ScriptedCall:
    """A call without media: the test says when it connects, ends, or fails to close."""

    answer_sdp = "v=0\r\n"

    def __init__(self, request: CallRequest) -> None:
        self.request = request
        self.connected = False
        self.fragments: list[str] = []
        self.reasons: list[str] = []
        self.close_gate: asyncio.Event | None = None
        self.close_error: OSError | None = None
        self._over = asyncio.Event()

    async def add_candidates(self, fragment: str) -> None:
        self.fragments.append(fragment)

    async def close(self, reason: str) -> None:
        self.reasons.append(reason)
        if self.close_gate:
            await self.close_gate.wait()
        self.vanish()
        if self.close_error:
            raise self.close_error

    def vanish(self) -> None:
        self._over.set()

    async def wait_closed(self) -> None:
        await self._over.wait()

    def timeline(self) -> dict[str, Any]:
        state = "ended" if self._over.is_set() else "live"
        return {"call_id": self.request.call_id, "state": state, "end_reason": (*self.reasons, "")[0]}


class Stage:
    """A registry with its clock, and the calls it made in order."""

    def __init__(self, max_sessions: int = 2, limits: CallLimits | None = None) -> None:
        self.clock = ManualClock()
        self.calls: list[ScriptedCall] = []
        self.create_gate: asyncio.Event | None = None
        self.create_error: Exception | None = None
        self.seats = Seats(max_sessions, self.clock, lambda low, high: high)
        self.registry = CallRegistry(self.create, self.seats, self.clock, limits)

    async def create(self, request: CallRequest) -> ScriptedCall:
        if self.create_gate:
            await self.create_gate.wait()
        if self.create_error:
            raise self.create_error
        self.calls.append(ScriptedCall(request))
        return self.calls[-1]

    async def settle(self) -> None:
        await self.clock.advance_ms(0)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Stage"]:
        before = asyncio.all_tasks()
        async with self.registry:
            yield self
        assert asyncio.all_tasks() == before, "a task was left behind"
        assert self.seats.in_use == 0
