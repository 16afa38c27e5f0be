"""Joins a session with the lines to it: one event becomes one frame on each, whoever sends may command it.

A line is a WebSocket or a data channel; a call has its own and may have others beside it (`?call_id=`). Errors that
the protocol answers by itself go to the line that caused them. Knows no transport; the lines bound what they hold.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Protocol

from voice_agent.api.parse import LONG_CHARS, Frame, read_frame
from voice_agent.api.realtime import RealtimeProtocol
from voice_agent.api.wire_beta import Beta
from voice_agent.api.wire_items import Json
from voice_agent.commands import SessionCommand
from voice_agent.events import SessionEvent


class TextChannel(Protocol):
    """A channel of text messages, open or not yet."""

    async def send(self, text: str) -> None:
        """Send in order; may wait while the other side does not take it."""
        ...

    def messages(self) -> AsyncIterator[str]:
        """Messages in order; ends when the channel closes."""
        ...


class SessionPort(Protocol):
    """A session as its transport sees it."""

    async def command(self, command: SessionCommand) -> None:
        """Ask for something; returns once the next may be asked, never raises: answers come as events."""
        ...

    def events(self) -> AsyncIterator[SessionEvent]:
        """Everything the session tells, from its start; ends with the session."""
        ...


class Line:
    """A channel with the spelling its client speaks: GA, or beta; `greeting` is what session.created says besides."""

    def __init__(
        self, channel: TextChannel, dialect: Beta | None = None, greeting: Json | None = None
    ) -> None:
        self._channel = channel
        self._dialect = dialect
        self.greeting = greeting or {}

    async def send(self, frames: list[str]) -> None:
        """Send in order."""
        for frame in frames:
            await self._channel.send(frame)

    def frames(self, events: list[Json]) -> list[str]:
        """Events written down, in ASCII, so that nothing in it can fail to be encoded."""
        spelled = [
            one for event in events for one in (self._dialect.write(event) if self._dialect else [event])
        ]
        return [json.dumps(event) for event in spelled]

    def messages(self) -> AsyncIterator[str]:
        """What the client sends."""
        return self._channel.messages()

    def take(self, frame: Frame, protocol: RealtimeProtocol) -> list[SessionCommand]:
        """Take one client event in its own spelling."""
        return protocol.take(frame, self._dialect.read if self._dialect else None)


class Switchboard:
    """One session's protocol and its lines. `run` is to be alive while lines are joined."""

    def __init__(self, port: SessionPort, protocol: RealtimeProtocol) -> None:
        self._port = port
        self._protocol = protocol
        self._lines: list[Line] = []

    async def run(self) -> None:
        """Tell all lines what the session tells, until it ends."""
        async for event in self._port.events():
            events = self._protocol.translate(event)
            frames = [(line, line.frames(events)) for line in self._lines]
            for line, sending in frames:
                await line.send(sending)

    def opening(self, line: Line) -> list[str]:
        """session.created with the session as it is now, for a line or one that takes its place."""
        return line.frames([self._protocol.opening() | line.greeting])

    async def join(self, line: Line) -> None:
        """Open a line with session.created and carry its client's events until its channel closes."""
        opening = self.opening(line)
        self._lines.append(line)
        try:
            await line.send(opening)
            async for text in line.messages():
                long = len(text) > LONG_CHARS
                frame = await asyncio.to_thread(read_frame, text) if long else read_frame(text)
                commands = line.take(frame, self._protocol)
                await line.send(line.frames(self._protocol.events_to_send()))
                for command in commands:
                    await self._port.command(command)
                await asyncio.sleep(0)  # a flood of messages must not starve the media clock
        finally:
            self._lines.remove(line)
