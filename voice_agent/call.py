"""One call from a browser: the peer's media and data channel joined to a session, as signalling sees it.

Owns everything of the call; whichever part ends first ends the rest (call_life).
"""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from voice_agent.api.realtime import RealtimeProtocol
from voice_agent.api.switchboard import Line, Switchboard
from voice_agent.call_life import EXPIRED, CallLife
from voice_agent.clock import NS_PER_S, Clock
from voice_agent.commands import SessionCommand
from voice_agent.config import SessionConfig
from voice_agent.errors import MediaError
from voice_agent.events import SessionError, SessionEvent
from voice_agent.media.channel import Channel
from voice_agent.media.peer import Peer
from voice_agent.session import VoiceSession

logger = logging.getLogger(__name__)

MAX_WAITING_EVENTS = 4096  # an hour of talk; a transport that takes none for so long has lost the call
ROOM_EVENTS = (
    32  # from which on sound has to wait; a slow client should not get seconds of it after a barge-in
)
WATCH_S = 1.0


class EventQueue:
    """A session's events for its one transport. When full the session is ended rather than told half."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[SessionEvent | None] = asyncio.Queue(MAX_WAITING_EVENTS)
        self._taken = asyncio.Event()
        self.overflowed = asyncio.Event()

    def put(self, event: SessionEvent) -> None:
        """Queue an event."""
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self.overflowed.set()

    def end(self) -> None:
        """No more events come."""
        if not self._queue.full():
            self._queue.put_nowait(None)

    async def room(self) -> None:
        """Wait while the transport is slow to take what there is."""
        while self._queue.qsize() >= ROOM_EVENTS and not self.overflowed.is_set():
            self._taken.clear()
            await self._taken.wait()

    async def events(self) -> AsyncIterator[SessionEvent]:
        """Events in order until `end`."""
        while (event := await self._queue.get()) is not None:
            self._taken.set()
            yield event


class ChannelLine:
    """A data channel as a line's channel: it keeps and bounds what it cannot send yet."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def send(self, text: str) -> None:
        """Send, or keep until it opens."""
        self._channel.send(text)

    def messages(self) -> AsyncIterator[str]:
        """What the client sends."""
        return self._channel.messages()


class BrowserCall:
    """Peer, protocol and session of one call; implements signaling.calls.Call."""

    def __init__(
        self,
        peer: Peer,
        answer_sdp: str,
        session: VoiceSession,
        protocol: RealtimeProtocol,
        queue: EventQueue,
    ) -> None:
        self.answer_sdp = answer_sdp
        self._peer = peer
        self._session = session
        self._queue = queue
        self._line = Line(ChannelLine(peer.channel))
        self.switchboard = Switchboard(self, protocol)
        self._life = CallLife(session.session_id)
        peer.channel.on_replaced = lambda: self.switchboard.opening(self._line)
        peer.channel.on_refused = lambda error: queue.put(SessionError(error.code, str(error), error.param))

    def start(self, limits: SessionConfig, clock: Clock) -> None:
        """Set the call going; it owns itself until closed."""
        task = self._life.start(partial(self._talk, limits, clock), self._peer.close)
        # a peer connection is full of cycles; left alone they pile up over many calls
        task.add_done_callback(lambda _: gc.collect())

    @property
    def end_reason(self) -> str:
        """Why it ended; empty while it runs."""
        return self._life.end_reason

    @property
    def expired(self) -> bool:
        """Whether its time was over."""
        return self._life.expired

    @property
    def connected(self) -> bool:
        """Whether media has ever flowed."""
        return self._peer.is_connected

    async def add_candidates(self, fragment: str) -> None:
        """Hand trickled candidates to the peer."""
        await self._peer.add_candidates(fragment)

    async def close(self, reason: str) -> None:
        """End the call and wait until all of it is freed."""
        await self._life.close(reason)

    async def wait_closed(self) -> None:
        """Return once the call is over."""
        await self._life.wait_closed()

    def timeline(self) -> dict[str, Any]:
        """The inside as JSON."""
        inside = self._session.timeline()
        return inside | {"connected": self.connected, "end_reason": self.end_reason}

    # the session port of its lines

    async def command(self, command: SessionCommand) -> None:
        """Pass a client's wish on."""
        self._session.command(command)

    def events(self) -> AsyncIterator[SessionEvent]:
        """What the session tells."""
        return self._queue.events()

    async def _talk(self, limits: SessionConfig, clock: Clock) -> None:
        try:
            await self._talk_until_one_part_ends(limits, clock)
        except MediaError:
            await self._until_gone()

    async def _talk_until_one_part_ends(self, limits: SessionConfig, clock: Clock) -> None:
        """Run all parts; the first that ends says why the call ends."""
        await self._peer.connected()
        logger.info("call %s connected", self._session.session_id)
        parts: dict[asyncio.Future[Any], str] = {
            asyncio.create_task(self._until_gone()): "peer gone",
            asyncio.create_task(self._session.run()): "microphone ended",
            asyncio.create_task(self._join()): "peer gone",
            asyncio.create_task(self.switchboard.run()): "events ended",
            asyncio.create_task(self._queue.overflowed.wait()): "events not taken",
            asyncio.create_task(watch(self._session, limits, clock)): EXPIRED,
        }
        async with self._life.until_first(parts):
            pass

    async def _until_gone(self) -> None:
        """Return when the peer is closed, with its reason noted, or at once when one is known."""
        if not self.end_reason:
            self._life.ends(await self._peer.closed())

    async def _join(self) -> None:
        """Serve the data channel; one that closes early ends nothing."""
        await self.switchboard.join(self._line)
        await self._peer.closed()


async def watch(session: VoiceSession, limits: SessionConfig, clock: Clock) -> None:
    """Return when a session has been silent or has lasted for too long."""
    started_ns = clock.now_ns()
    while True:
        now_ns = clock.now_ns()
        if now_ns - started_ns > limits.max_session_s * NS_PER_S:
            return
        if session.idle_ms > 1000 * limits.silent_timeout_s:
            return
        await clock.sleep_until(now_ns + int(WATCH_S * NS_PER_S))
