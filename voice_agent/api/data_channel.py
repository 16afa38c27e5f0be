"""Joins a text channel (a WebRTC data channel) with a session through the Realtime protocol.

The channel keeps what is sent before it opens, in order and bounded, so that session.created comes first whenever
that is. The session ends when its events end; a channel that closes earlier ends nothing.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from voice_agent.api.realtime import RealtimeProtocol
from voice_agent.events import SessionCommand, SessionEvent


class TextChannel(Protocol):
    """A channel of text messages, open or not yet (media.channel.Channel)."""

    def send(self, text: str) -> bool:
        """Send in order, or keep until it opens; False if the message had to be dropped."""
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


async def join_channel(channel: TextChannel, port: SessionPort, protocol: RealtimeProtocol) -> None:
    """Carry events both ways until the session ends.

    Cancelling it stops both directions and leaves session and channel to their owners.
    """
    _send(channel, protocol.opening())
    async with asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(_listen(channel, port, protocol), name="data channel")
        async for event in port.events():
            _send(channel, protocol.translate(event))
        listening.cancel()


async def _listen(channel: TextChannel, port: SessionPort, protocol: RealtimeProtocol) -> None:
    async for text in channel.messages():
        for command in protocol.receive(text):
            port.command(command)
        _send(channel, protocol.events_to_send())
        await asyncio.sleep(0)  # a flood of messages must not starve the media clock


def _send(channel: TextChannel, frames: list[str]) -> None:
    for frame in frames:
        channel.send(frame)
