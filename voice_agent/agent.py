"""A session for every call: its settings, its protocol, its media, and the parts that all of them share.

Part of the composition root: it knows engines, ears and media, and both kinds of call. Who may call, and how many at
once, is the registry's business.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from starlette.routing import BaseRoute

from signaling.calls import Call, CallRequest, new_call_id
from voice_agent.api.realtime import RealtimeProtocol, Transport
from voice_agent.api.websocket import SocketRequest
from voice_agent.api.wire_session import Names
from voice_agent.audio import FRAME_MS, AudioOutput
from voice_agent.call import BrowserCall, EventQueue
from voice_agent.clock import Clock
from voice_agent.config import Config
from voice_agent.engines import Engines, cascade_of
from voice_agent.first_requests import rehearse
from voice_agent.http_surface import create_request_routes, voices_of
from voice_agent.lateness import KEPT_S, Lateness
from voice_agent.listening import Ears
from voice_agent.media.peer import Peer, PeerLimits
from voice_agent.media.vad import Vad
from voice_agent.media.wire_sound import ReplyEncoder
from voice_agent.places import Places, all_up
from voice_agent.session import VoiceSession
from voice_agent.session_parts import SessionParts
from voice_agent.session_settings import SessionSettings
from voice_agent.shared_ears import SharedEars
from voice_agent.socket_call import SocketCall, SocketMedia

PACED_CALLS = (
    64  # so many calls' frames of the last minute are kept, 3 MB; of more calls it is less than a minute
)


class Agent:
    """Makes calls out of offers; holds what they share."""

    def __init__(self, config: Config, engines: Engines, ears: SharedEars, clock: Clock) -> None:
        self._config = config
        self._engines = engines
        self._ears = ears
        self._clock = clock
        self.pace = Lateness(clock, PACED_CALLS * KEPT_S * 1000 // FRAME_MS)
        self.places = Places(config.server.max_requests, engines.needed)
        self._cascade = cascade_of(engines, config, clock)
        self._voices = voices_of(config, engines)
        self._rehearsed = False
        # relaying is the client's side only: a server that can be reached needs no TURN for itself
        self._stun = [s for s in config.ice.servers if all(url.startswith("stun:") for url in s.urls)]

    def request_routes(self) -> list[BaseRoute]:
        """The routes of what needs no session."""
        ears = self._ears
        return create_request_routes(
            self._config, self._engines, self.places, lambda: Vad(ears.silero), ears.file_thread, self._clock
        )

    async def rehearse(self) -> None:
        """Do what is done once and for all before the first caller would wait for it."""
        await rehearse(self.request_routes(), forced_lengths=self._engines.forced_lengths)
        self._rehearsed = True

    def readiness(self) -> list[str]:
        """Why it is not ready; empty when it is. Calls are taken as soon as the engines are up."""
        return self.reasons() or ([] if self._rehearsed else ["the server makes its own first requests"])

    def lasting(self) -> str:
        """`stopped` or `failed` if only an operator can make it ready again."""
        return self._engines.lasting

    def reasons(self) -> list[str]:
        """Why no call can be taken; empty when one can."""
        return self._engines.reasons()

    async def create_call(self, request: CallRequest) -> Call:
        """Answer an offer. Raises OfferRejected, RemoteProtocolError, BusyError while not ready."""
        await all_up(self._engines.needed.values())
        transport = self._transport()
        protocol = self._protocol(request.call_id, self._config.server.served_model_name, transport)
        settings = self._settings(protocol, request)
        limits = PeerLimits(connect_ms=round(1000 * self._config.session.connect_timeout_s))
        peer = Peer(self._stun, self._clock, limits=limits, pace=self.pace)
        try:
            answer = await peer.answer(request.offer_sdp)
        except BaseException:
            await peer.close()
            raise
        queue = EventQueue()
        sound = peer.output.sound if self._config.turn.cancel_echo else None
        parts = self._parts(self._ears.ears(sound), peer.output)
        session = VoiceSession(request.call_id, parts, settings, peer.microphone(), queue.put)
        call = BrowserCall(peer, answer, session, protocol, queue)
        call.start(self._config.session, self._clock)
        return call

    async def create_socket_call(self, request: CallRequest, asked: SocketRequest) -> SocketCall:
        """Begin a call over a WebSocket. Raises RemoteProtocolError, BusyError while not ready."""
        await all_up(self._engines.needed.values())
        transport = self._transport(ReplyEncoder)
        protocol = self._protocol(request.call_id, asked.model, transport)
        settings = self._settings(protocol, request)
        media = SocketMedia.create(self._clock)
        parts = replace(self._parts(self._ears.ears(None), media.player), aside_output=media.aside)
        session = VoiceSession(request.call_id, parts, settings, media.microphone(), media.queue.put)
        call = SocketCall(session, protocol, media)
        call.start(asked.line, self._config.session, self._clock)
        return call

    def describe_session(self, session: str) -> dict[str, Any]:
        """The whole session object that a partial one (JSON) would give; raises RemoteProtocolError."""
        transport = replace(self._transport(), expires_at=None)
        protocol = self._protocol(
            "sess_" + new_call_id()[4:], self._config.server.served_model_name, transport
        )
        protocol.configure(session)
        return protocol.session()

    def _transport(self, encoder: Callable[[str], ReplyEncoder] | None = None) -> Transport:
        expires_at = int(time.time() + self._config.session.max_session_s)
        names = Names(self._voice_named, self._engines.hearing)
        return Transport(encoder, self._config.thinker.sees, expires_at, names)

    def _protocol(self, session_id: str, model: str, transport: Transport) -> RealtimeProtocol:
        return RealtimeProtocol(session_id, model, self._default_settings(), transport)

    def _default_settings(self) -> SessionSettings:
        settings = default_settings(self._config)
        return replace(settings, voice=self._voice_named(settings.voice, "talker.voice"))

    def _voice_named(self, name: str, param: str) -> str:
        """Any name will do before the voices are known: a call, which comes later, looks again."""
        return self._voices.named(name, param) if self._voices.all() else name

    def _settings(self, protocol: RealtimeProtocol, request: CallRequest) -> SessionSettings:
        """What the caller's key and the call itself ask for; raises RemoteProtocolError."""
        settings = self._default_settings()
        for session in (request.pinned, request.session):
            if session:
                settings = settings_with(settings, protocol.configure(session))
        protocol.adopt(settings)
        return settings

    def _parts(self, ears: Ears, output: AudioOutput) -> SessionParts:
        return SessionParts(
            recognizer=self._engines.thinker_process,
            cascade=self._cascade,
            ears=ears,
            output=output,
            clock=self._clock,
            turn=self._config.turn,
            conversation=self._config.session,
            language=self._config.recognizer.language,
        )


def default_settings(config: Config) -> SessionSettings:
    """A session's settings as the configuration has them."""
    return SessionSettings(
        instructions=config.session.instructions,
        voice=config.talker.voice,
        latency_first=config.talker.latency_first,
        max_output_tokens=config.thinker.max_output_tokens,
        temperature=config.thinker.temperature,
        turn_detection=config.turn.mode,
        vad_threshold=config.turn.start_threshold,
        silence_ms=config.turn.server_silence_ms,
        prefix_ms=config.turn.prefix_ms,
    )


def settings_with(settings: SessionSettings, changes: dict[str, object]) -> SessionSettings:
    """Settings with a client's changes."""
    return replace(settings, **changes)  # pyright: ignore[reportArgumentType]
