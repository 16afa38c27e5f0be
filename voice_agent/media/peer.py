"""One WebRTC peer: what a session needs of it is a microphone, an output and a text channel.

It owns the connection's life: answer, trickle, connected, closed with a reason, and nothing left behind. aiortc knows
no "disconnected", so silence of the whole network path is watched here. It knows no sessions, no events and no
signalling transport; what we touch of aiortc beyond its public face is in `aiortc_inside`.

Sources: RFC 8829 (JSEP), RFC 8838 (trickle ICE), RFC 7675 (consent).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aiortc import RTCConfiguration, RTCIceServer, RTCPeerConnection, RTCRtpSender, RTCSessionDescription
from aiortc.exceptions import InternalError, InvalidAccessError, InvalidStateError, OperationError
from aiortc.rtcdatachannel import RTCDataChannel
from aiortc.rtcdtlstransport import RTCDtlsTransport
from aiortc.rtcicetransport import RTCIceTransport
from aiortc.sdp import candidate_from_sdp

from voice_agent.audio import MicrophoneFrame
from voice_agent.clock import NS_PER_MS, Clock, MonotonicClock, until_first
from voice_agent.config import IceServer
from voice_agent.errors import MediaError, OfferRejected, UnknownCall
from voice_agent.lateness import Lateness
from voice_agent.media.aiortc_inside import NoSound, forgive, gather, watch
from voice_agent.media.channel import LABEL, Channel
from voice_agent.media.microphone import Microphone
from voice_agent.media.offer import (
    MAX_CANDIDATES,
    Candidate,
    Offer,
    complete_answer,
    read_fragment,
    read_offer,
)
from voice_agent.media.opus import OpusDecoder, OpusEncoder
from voice_agent.media.paced import PacedOutput, PlayoutHooks
from voice_agent.media.playout import FRAME_SAMPLES
from voice_agent.media.sound_path import SoundPath

logger = logging.getLogger(__name__)

CloseReason = Literal[
    "closed", "remote_closed", "connect_timeout", "ice_failed", "dtls_failed", "disconnected"
]
WATCH_MS = 250
# What aiortc's SDP reader and its negotiation raise on input that it cannot follow.
_SDP_ERRORS = (
    ValueError, KeyError, IndexError, TypeError, AttributeError, AssertionError,
    InternalError, InvalidAccessError, InvalidStateError, OperationError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """How long things may take. A path counts as disconnected after `silent_ms` without any datagram, STUN included."""

    connect_ms: int = 15_000
    silent_ms: int = 5_000
    disconnected_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class PeerStats:
    """What the last RTCP reports say: round trip, share of our packets lost, and theirs that did not come."""

    round_trip_ms: float | None
    sent_loss: float | None
    received_lost: int


class Peer:
    """A connection from offer to close. `close` must be called once the peer is no longer wanted, however it went."""

    def __init__(
        self,
        ice_servers: Sequence[IceServer] = (),
        clock: Clock | None = None,
        hooks: PlayoutHooks | None = None,
        limits: PeerLimits | None = None,
        pace: Lateness | None = None,
    ) -> None:
        self._clock: Clock = clock or MonotonicClock()
        self._limits = limits or PeerLimits()
        self.output = PacedOutput(self._clock, hooks, pace)
        self.channel = Channel()
        self._microphone = Microphone(self._clock)
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=_ice_servers(ice_servers)))
        self._audio = self._connection.addTransceiver(NoSound(), direction="sendrecv")
        opus = [c for c in RTCRtpSender.getCapabilities("audio").codecs if c.mimeType.lower() == "audio/opus"]
        self._audio.setCodecPreferences(opus)
        self._decoder = OpusDecoder()
        self._path = SoundPath(self._audio, self._on_packet)
        self._connection.on("datachannel", self._on_channel)
        self._connection.on("connectionstatechange", self._on_state)
        self._offer: Offer | None = None
        self._candidates = 0
        self._heard_ns = 0
        self._forgiving = False
        self._connected = asyncio.Event()
        self._reason: CloseReason | None = None
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None

    async def answer(self, offer_sdp: str) -> str:
        """Answer an offer with all our candidates inside; a later offer renegotiates.

        Raises OfferRejected for what cannot be answered (the peer stays as it was, or has to be closed), UnknownCall
        after close. Waits for STUN servers if any are set (up to 5 s when they are silent).
        """
        self._check_open()
        offer = read_offer(offer_sdp)
        first = self._offer is None
        if first and not offer.listens:
            raise OfferRejected("The offer's audio does not receive: make it sendrecv or recvonly.")
        try:
            await self._connection.setRemoteDescription(RTCSessionDescription(offer.sdp, "offer"))
            await self._prepare_paths()
            await self._connection.setLocalDescription(await self._connection.createAnswer())
        except _SDP_ERRORS as error:
            raise OfferRejected("The offer cannot be answered.") from error
        self._offer = offer
        if first:
            self._start_watching()
        for name in offer.local_names:
            self._resolve_aside(name)
        return complete_answer(self._connection.localDescription.sdp, offer)

    async def add_candidates(self, sdpfrag: str) -> None:
        """Take trickled candidates; more than 64 in all are ignored.

        Raises OfferRejected for garbage or an ICE restart (not supported), UnknownCall after close or before an offer.
        """
        self._check_open()
        if self._offer is None:
            raise UnknownCall("This call has no offer yet.")
        ufrag, candidates = read_fragment(sdpfrag)
        if ufrag and ufrag != self._offer.ice_ufrag:
            raise OfferRejected("ICE restart is not supported: make a new call.", "ice-ufrag")
        for candidate in candidates:
            if candidate.text.split()[4].lower().endswith(".local"):
                self._resolve_aside(candidate)
            else:
                await self._add_candidate(candidate)

    def microphone(self) -> AsyncIterator[MicrophoneFrame]:
        """The user's voice without holes until the peer is closed; for one consumer at a time."""
        return self._microphone.frames()

    @property
    def is_connected(self) -> bool:
        """Whether ICE and DTLS were ever through."""
        return self._connected.is_set()

    async def connected(self) -> None:
        """Wait until sound can flow; raises MediaError if the peer is closed before."""
        await until_first(self._connected.wait(), self.closed())
        if not self._connected.is_set():
            raise MediaError(f"The peer never connected: {self._reason}.")

    async def closed(self) -> CloseReason:
        """Wait until the peer is closed, by whoever, and all it held is freed; any number may wait."""
        await self._over.wait()
        assert self._reason is not None
        return self._reason

    async def close(self, reason: CloseReason = "closed") -> None:
        """End everything and free it; a second call waits for the first. The first reason stands."""
        self._begin_close(reason)
        assert self._closing is not None
        await asyncio.shield(self._closing)

    async def stats(self) -> PeerStats:
        """What the last RTCP reports say; cheap enough for once a second."""
        reports: dict[str, Any] = await self._connection.getStats()
        remote = next((r for r in reports.values() if r.type == "remote-inbound-rtp"), None)
        inbound = next((r for r in reports.values() if r.type == "inbound-rtp"), None)
        round_trip_s = remote.roundTripTime if remote else None
        return PeerStats(
            round_trip_ms=None if round_trip_s is None else 1000 * round_trip_s,
            sent_loss=remote.fractionLost / 256 if remote else None,
            received_lost=inbound.packetsLost if inbound else 0,
        )

    # what the connection tells

    def _on_packet(self, rtp_time: int, payload: bytes) -> None:
        if self._microphone.listened_to:
            self._microphone.put(rtp_time, self._decoder.decode(payload))

    def _on_channel(self, channel: RTCDataChannel) -> None:
        if channel.label == LABEL:
            self.channel.attach(channel)

    def _on_state(self) -> None:
        state = self._connection.connectionState
        if state == "connected":
            self._heard()
            if not self._connected.is_set():
                self._connected.set()
                self._own(self._speak(), "peer-speak")
        elif state == "failed":
            self._begin_close(self._why_failed())
        elif state == "closed":
            self._begin_close("remote_closed")

    def _why_failed(self) -> CloseReason:
        if any(transport.state == "failed" for transport in self._dtls_transports()):
            return "dtls_failed"
        return "disconnected" if self._connected.is_set() else "ice_failed"

    def _heard(self) -> None:
        self._heard_ns = self._clock.now_ns()

    # its own tasks

    async def _prepare_paths(self) -> None:
        for transport in self._ice_transports():
            if transport.state == "new":
                await gather(transport)
                watch(transport, self._heard, self._path.received)
        association = self._connection.sctp
        if association is not None and not self._forgiving:
            self._forgiving = True
            forgive(association)

    async def _speak(self) -> None:
        """Send the output's frames at their pace."""
        encoder = OpusEncoder()
        await self._path.opened()
        while True:
            index, samples = await self.output.next_frame()
            self._path.send(index * FRAME_SAMPLES, encoder.encode(samples))

    def _start_watching(self) -> None:
        self._own(self._watch(), "peer-watch")

    async def _watch(self) -> None:
        """Close a peer that does not connect in time, or whose path has gone silent."""
        begun_ns = self._clock.now_ns()
        while self._closing is None:
            await self._clock.sleep_until(self._clock.now_ns() + WATCH_MS * NS_PER_MS)
            now_ns = self._clock.now_ns()
            reason = overdue(
                self._limits,
                waited_ms=None if self._connected.is_set() else (now_ns - begun_ns) / NS_PER_MS,
                silent_ms=(now_ns - self._heard_ns) / NS_PER_MS,
            )
            if reason:
                self._begin_close(reason)

    def _resolve_aside(self, candidate: Candidate) -> None:
        """Look an mDNS name up without holding anybody: it takes a second when nobody answers."""
        if self._candidates < MAX_CANDIDATES:
            self._own(self._resolve(candidate), "peer-resolve")

    async def _resolve(self, candidate: Candidate) -> None:
        try:
            await self._add_candidate(candidate)
        except (OSError, OfferRejected) as error:
            logger.info("an mDNS candidate was not used: %s", type(error).__name__)

    async def _add_candidate(self, candidate: Candidate) -> None:
        assert self._offer is not None
        self._candidates += 1
        if self._candidates > MAX_CANDIDATES:
            return
        try:
            parsed = candidate_from_sdp(candidate.text)
        except _SDP_ERRORS as error:
            raise OfferRejected("This is no ICE candidate.", "candidate") from error
        if parsed.component != 1:
            return  # RTCP has no path of its own here
        bundle = self._offer.bundle
        parsed.sdpMid = bundle[0] if bundle else candidate.mid or self._offer.audio_mid
        await self._connection.addIceCandidate(parsed)

    def _own(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _begin_close(self, reason: CloseReason) -> None:
        if self._closing is None:
            self._reason = reason
            self._closing = asyncio.create_task(self._shut(), name="peer-close")

    async def _shut(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            self.output.close()
            self.channel.close()
            await self._microphone.close()
            await self._connection.close()
        finally:
            logger.info("peer closed: %s", self._reason)
            self._over.set()

    def _check_open(self) -> None:
        if self._closing is not None:
            raise UnknownCall("This call is over.")

    def _dtls_transports(self) -> list[RTCDtlsTransport]:
        """The transports in use: one, or one for each section of a peer without BUNDLE."""
        receivers = self._connection.getReceivers()
        transports = [receiver.transport for receiver in receivers]
        if self._connection.sctp is not None:
            transports.append(self._connection.sctp.transport)
        return list(dict.fromkeys(transports))

    def _ice_transports(self) -> list[RTCIceTransport]:
        return [transport.transport for transport in self._dtls_transports()]


def overdue(limits: PeerLimits, *, waited_ms: float | None, silent_ms: float) -> CloseReason | None:
    """Why a peer should be closed by now, if it should; `waited_ms` is None once it was connected."""
    if waited_ms is not None:
        return "connect_timeout" if waited_ms >= limits.connect_ms else None
    return "disconnected" if silent_ms >= limits.silent_ms + limits.disconnected_ms else None


def _ice_servers(servers: Sequence[IceServer]) -> list[RTCIceServer]:
    return [
        RTCIceServer(list(server.urls), server.username or None, server.credential or None)
        for server in servers
    ]
