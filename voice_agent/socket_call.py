"""One call over a WebSocket: the client's appended sound and its player joined to a session.

Owns everything of the call but the socket, which is handed in as a line; whichever part ends first ends the rest
(call_life).
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from voice_agent.api.realtime import RealtimeProtocol
from voice_agent.api.switchboard import Line, Switchboard
from voice_agent.audio import MicrophoneFrame, PcmChunk
from voice_agent.call import EventQueue, watch
from voice_agent.call_life import EXPIRED, CallLife
from voice_agent.clock import Clock
from voice_agent.commands import AppendSound, ClearInput, CommitInput, SessionCommand, UpdateSettings
from voice_agent.config import SessionConfig
from voice_agent.errors import OfferRejected
from voice_agent.events import ReplySound, SessionError, SessionEvent, complaint
from voice_agent.media.remote_player import RemotePlayer
from voice_agent.media.wire_sound import MAX_WAITING_BYTES, AppendedSound
from voice_agent.session import VoiceSession

logger = logging.getLogger(__name__)

LAST_WORDS_S = 2.0  # for a client that reads no more


@dataclass(frozen=True)
class SocketMedia:
    """The sound of a call over a socket: what the client sends, its player, and the one for replies aside."""

    sound: AppendedSound
    player: RemotePlayer
    aside: RemotePlayer
    queue: EventQueue

    @classmethod
    def create(cls, clock: Clock) -> "SocketMedia":
        """Joined to a queue of session events, which sound is sent through."""
        queue = EventQueue()

        def send(reply_id: str, pcm: PcmChunk) -> None:
            queue.put(ReplySound(reply_id, pcm))

        players = [RemotePlayer(clock, send, queue.room) for _ in range(2)]
        return cls(AppendedSound(), players[0], players[1], queue)

    def microphone(self) -> AsyncIterator[MicrophoneFrame]:
        """The session's microphone."""
        return self.sound.frames()

    def close(self) -> None:
        """Let whoever waits go."""
        self.sound.close()
        self.player.close()
        self.aside.close()


class SocketCall:
    """A session over a socket; implements signaling.calls.Call, and the session port of its lines."""

    answer_sdp = ""
    connected = True

    def __init__(self, session: VoiceSession, protocol: RealtimeProtocol, media: SocketMedia) -> None:
        self.switchboard = Switchboard(self, protocol)
        self._session = session
        self._media = media
        self._life = CallLife(session.session_id)

    @property
    def end_reason(self) -> str:
        """Why it ended; empty while it runs."""
        return self._life.end_reason

    @property
    def expired(self) -> bool:
        """Whether its time was over."""
        return self._life.expired

    def start(self, line: Line, limits: SessionConfig, clock: Clock) -> None:
        """Set the call going on its own line; it owns itself until closed."""
        self._life.start(partial(self._talk, line, limits, clock), self._free)

    async def add_candidates(self, fragment: str) -> None:
        """There are none here."""
        raise OfferRejected("This call is over a WebSocket and takes no candidates.", "candidate")

    async def close(self, reason: str) -> None:
        """End the call and wait until all of it is freed."""
        await self._life.close(reason)

    async def wait_closed(self) -> None:
        """Return once the call is over."""
        await self._life.wait_closed()

    def timeline(self) -> dict[str, Any]:
        """The inside as JSON."""
        inside = self._session.timeline()
        return inside | {"connected": not self._life.closed, "end_reason": self.end_reason}

    # the session port of its lines

    async def command(self, command: SessionCommand) -> None:
        """Pass a client's wish on; what depends on the sound so far waits until that was heard."""
        if isinstance(command, AppendSound):
            if not self._media.sound.append(command.payload, command.encoding):
                message = f"More than {MAX_WAITING_BYTES} bytes of sound wait to be heard; this was refused."
                self._media.queue.put(complaint("input_audio_buffer_overflow", message, command, "audio"))
            return
        if isinstance(command, CommitInput | ClearInput | UpdateSettings):
            await self._media.sound.settled()
        self._session.command(command)

    async def events(self) -> AsyncIterator[SessionEvent]:
        """What the session tells, without sound that nobody wants any more."""
        async for event in self._media.queue.events():
            if not (isinstance(event, ReplySound) and self._refused(event.reply_id)):
                yield event

    def _refused(self, reply_id: str) -> bool:
        return self._media.player.refused(reply_id) or self._media.aside.refused(reply_id)

    async def _free(self) -> None:
        self._media.close()

    async def _talk(self, line: Line, limits: SessionConfig, clock: Clock) -> None:
        """Run all parts; the first that ends says why the call ends."""
        telling = asyncio.ensure_future(self.switchboard.run())
        parts: dict[asyncio.Future[Any], str] = {
            asyncio.create_task(self.switchboard.join(line)): "client gone",
            telling: "events ended",
            asyncio.create_task(self._session.run()): "sound ended",
            asyncio.create_task(self._media.queue.overflowed.wait()): "events not taken",
            asyncio.create_task(watch(self._session, limits, clock)): EXPIRED,
        }
        async with self._life.until_first(parts):
            if self.expired:
                await self._say_expired(limits, telling)

    async def _say_expired(self, limits: SessionConfig, telling: asyncio.Future[None]) -> None:
        """The last event, and time for it to leave."""
        message = f"Your session hit the maximum duration of {limits.max_session_s / 60:g} minutes."
        self._media.queue.put(SessionError("session_expired", message))
        self._media.queue.end()
        await asyncio.wait({telling}, timeout=LAST_WORDS_S)
