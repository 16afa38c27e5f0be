"""Joins a text channel (a WebRTC data channel) with a session through the Realtime protocol.

The channel may open long after the session began, or never: what the session says meanwhile waits in order, behind
session.created. The session ends when its events end; a channel that closes earlier ends nothing.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from typing import Protocol

from voice_agent.api.realtime import RealtimeProtocol
from voice_agent.events import SessionCommand, SessionEvent

FLUSH_S = 0.5  # for the last words of a session that ends
MAX_WAITING = 1024  # events; about ten minutes of talk


class TextChannel(Protocol):
    """An open channel of text messages."""

    async def send(self, text: str) -> None:
        """Send one message; waits while too much is unsent; raises ConnectionError once closed."""
        ...

    def messages(self) -> AsyncIterator[str]:
        """Messages in order; ends when the channel closes."""
        ...


class SessionPort(Protocol):
    """A session as its transport sees it."""

    def command(self, command: SessionCommand) -> None:
        """Ask for something; never blocks and never raises, answers come as events."""
        ...

    def events(self) -> AsyncIterator[SessionEvent]:
        """Everything the session tells, from its start; ends with the session."""
        ...


class Outbox:
    """Frames for a channel that may not be open yet. When full, the oldest is dropped."""

    def __init__(self, limit: int = MAX_WAITING) -> None:
        self.dropped = 0
        self._frames: deque[str] = deque()
        self._limit = limit
        self._filled = asyncio.Event()
        self._sent_all = asyncio.Event()
        self._sent_all.set()

    def put(self, frames: list[str]) -> None:
        """Queue frames behind those that wait."""
        for frame in frames:
            if len(self._frames) >= self._limit:
                self._frames.popleft()
                self.dropped += 1
            self._frames.append(frame)
        if self._frames:
            self._filled.set()
            self._sent_all.clear()

    async def take(self) -> str:
        """The oldest frame, once there is one; asking says that the one before was sent."""
        if not self._frames:
            self._sent_all.set()
        await self._filled.wait()
        frame = self._frames.popleft()
        if not self._frames:
            self._filled.clear()
        return frame

    async def flushed(self, limit_s: float) -> None:
        """Wait until all was sent, not longer than `limit_s`: a channel that never opened takes nothing."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._sent_all.wait()


async def join_channel(opened: Awaitable[TextChannel], port: SessionPort, protocol: RealtimeProtocol) -> None:
    """Carry events both ways until the session ends; `opened` gives the channel once it is open.

    Cancelling it stops both directions and leaves session and channel to their owners.
    """
    outbox = Outbox()
    async with asyncio.TaskGroup() as tasks:
        talking = tasks.create_task(_talk(opened, port, protocol, outbox), name="data channel")
        async for event in port.events():
            outbox.put(protocol.translate(event))
        await outbox.flushed(FLUSH_S)
        talking.cancel()


async def _talk(
    opened: Awaitable[TextChannel], port: SessionPort, protocol: RealtimeProtocol, outbox: Outbox
) -> None:
    channel = await opened
    sending = asyncio.create_task(_send(channel, protocol.opening(), outbox), name="data channel sender")
    try:
        async for text in channel.messages():
            for command in protocol.receive(text):
                port.command(command)
            outbox.put(protocol.events_to_send())
            await asyncio.sleep(0)  # a flood of messages must not starve the media clock
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _send(channel: TextChannel, opening: list[str], outbox: Outbox) -> None:
    try:
        for frame in opening:
            await channel.send(frame)
        while True:
            await channel.send(await outbox.take())
    except ConnectionError:
        return  # messages() ends too; the peer's own state tells the rest
