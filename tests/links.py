"""A caller made of real aiortc parts, over a link that a test can make lossy, slow, or dead.

The link sits under ICE, at the datagram sockets of the caller: what it drops or delays is SRTP, DTLS and STUN alike,
both ways if wanted. Sound to send is made of tones or given samples; packets can also be sent by hand.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from aiortc.rtcicetransport import RTCIceTransport
from aiortc.rtp import RtpPacket, is_rtcp
from av.audio.frame import AudioFrame
from av.packet import Packet
from numpy.typing import NDArray

from voice_agent.audio import Samples
from voice_agent.media.aiortc_inside import gather, watch
from voice_agent.media.peer import Peer

PIECE = 960  # 20 ms at 48 kHz


def tone_48k(hz: float, seconds: float, level: int = 10_000) -> Samples:
    samples = level * np.sin(2 * np.pi * hz * np.arange(int(48_000 * seconds)) / 48_000)
    return samples.astype(np.int16)


@dataclass
class Link:
    """What happens to datagrams the caller sends (`up`) and gets (`down`). Only RTP is lost or delayed by chance."""

    loss: float = 0.0
    jitter_ms: float = 0.0
    dead: bool = False
    seed: int = 1
    lose: Callable[[int], bool] | None = None  # by count of RTP packets sent
    sent: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def up(self, data: bytes, deliver: Callable[[], None]) -> None:
        """Send, drop or delay one datagram."""
        if self.dead:
            return
        if not is_rtp(data):
            deliver()
            return
        number, self.sent = self.sent, self.sent + 1
        if self._random.random() < self.loss or (self.lose is not None and self.lose(number)):
            return
        if self.jitter_ms:
            delay_s = self._random.random() * self.jitter_ms / 1000
            asyncio.get_running_loop().call_later(delay_s, deliver)
        else:
            deliver()


def is_rtp(data: bytes) -> bool:
    """RFC 7983: 128-191 is RTP or RTCP."""
    return len(data) > 12 and 127 < data[0] < 192 and not is_rtcp(data)


class _LinkedSocket:
    """A datagram transport that asks the link first."""

    def __init__(self, transport: asyncio.DatagramTransport, link: Link) -> None:
        self._transport = transport
        self._link = link

    def sendto(self, data: bytes, addr: Any = None) -> None:
        self._link.up(data, lambda: self._transport.sendto(data, addr))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Voice(MediaStreamTrack):
    """The caller's microphone: plays `samples` [T] or [T, 2] at 48 kHz in real time, then silence; may be silent."""

    kind = "audio"

    def __init__(self, samples: Samples | None = None) -> None:
        super().__init__()
        self.samples: NDArray[np.int16] = np.zeros(0, np.int16) if samples is None else samples
        self.played = 0
        self._index = 0
        self._start = 0.0

    async def recv(self) -> AudioFrame:
        if self.readyState != "live":
            raise MediaStreamError
        loop = asyncio.get_running_loop()
        if not self._index:
            self._start = loop.time()
        await asyncio.sleep(max(0.0, self._start + 0.02 * self._index - loop.time()))
        piece = self.samples[self.played : self.played + PIECE]
        self.played += len(piece)
        channels = 1 if self.samples.ndim == 1 else self.samples.size // len(self.samples)
        whole = np.zeros((PIECE, channels), np.int16)
        whole[: len(piece)] = piece.reshape(-1, channels)
        frame = AudioFrame.from_ndarray(
            np.ascontiguousarray(whole).reshape(1, -1),
            format="s16",
            layout="mono" if channels == 1 else "stereo",
        )
        frame.sample_rate = 48_000
        frame.time_base = Fraction(1, 48_000)
        frame.pts = self._index * PIECE
        self._index += 1
        return frame


class Packets(Voice):
    """Sends ready Opus packets: (RTP time in pieces of 20 ms, payload), each at its time; then nothing more."""

    def __init__(self, schedule: list[tuple[int, bytes]]) -> None:
        super().__init__()
        self._schedule = list(schedule)
        self._began = 0.0

    async def recv(self) -> Any:
        loop = asyncio.get_running_loop()
        self._began = self._began or loop.time()
        if not self._schedule:
            await asyncio.Event().wait()
        piece, payload = self._schedule.pop(0)
        await asyncio.sleep(max(0.0, self._began + 0.02 * piece - loop.time()))
        packet = Packet(payload)
        packet.pts = piece * PIECE
        packet.time_base = Fraction(1, 48_000)
        return packet


class Caller:
    """A WebRTC client: `async with Caller() as caller: await caller.call(peer)`."""

    def __init__(self, voice: Voice | None = None, link: Link | None = None, *, channel: bool = True) -> None:
        self.voice = voice or Voice()
        self.link = link or Link()
        self.connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.sender = self.connection.addTrack(self.voice)
        self.heard: list[tuple[float, int, Samples]] = []  # loop time, pts, mono samples
        self.rtp_arrivals: list[tuple[float, int, int]] = []  # loop time, sequence number, timestamp
        self.messages: list[str] = []
        self.channel = self.connection.createDataChannel("oai-events") if channel else None
        self._channel_open = asyncio.Event()
        self._reading: list[asyncio.Task[None]] = []
        if self.channel is not None:
            self.channel.on("message", self.messages.append)
            self.channel.on("open", self._channel_open.set)
        self.connection.on("track", self._on_track)

    async def __aenter__(self) -> "Caller":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hang_up()

    async def offer(self) -> str:
        """An offer with all candidates, behind the link."""
        await self.connection.setLocalDescription(await self.connection.createOffer())
        for ice in self.ice_transports():
            await gather(ice)
            watch(ice, lambda: None)
            protocols: list[Any] = list(ice._connection._protocols)  # pyright: ignore[reportPrivateUsage]
            for protocol in protocols:
                protocol.transport = _LinkedSocket(protocol.transport, self.link)
                self._cut_when_dead(protocol)
        return self.connection.localDescription.sdp

    async def accept(self, answer: str) -> None:
        await self.connection.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        self._tap_rtp()

    async def call(self, peer: Peer) -> None:
        """Offer, answer, and wait until both are connected and the channel is open."""
        await self.accept(await peer.answer(await self.offer()))
        await asyncio.wait_for(peer.connected(), 10)
        if self.channel is not None:
            await asyncio.wait_for(self._channel_open.wait(), 10)

    async def hang_up(self) -> None:
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        await self.connection.close()

    def say(self, samples: Samples) -> None:
        """Speak from now on."""
        self.voice.samples, self.voice.played = samples, 0

    def ice_transports(self) -> list[RTCIceTransport]:
        transports = [self.sender.transport.transport]
        if self.connection.sctp is not None:
            transports.append(self.connection.sctp.transport.transport)
        return list(dict.fromkeys(transports))

    async def send_rtp(self, packet: RtpPacket) -> None:
        """Send a packet made by hand."""
        await self.sender.transport._send_rtp(packet.serialize())  # pyright: ignore[reportPrivateUsage]

    def _cut_when_dead(self, protocol: Any) -> None:
        received = protocol.datagram_received

        def datagram_received(data: bytes, addr: Any) -> None:
            if not self.link.dead:
                received(data, addr)

        protocol.datagram_received = datagram_received

    def _tap_rtp(self) -> None:
        receiver: Any = self.connection.getReceivers()[0]
        handle = receiver._handle_rtp_packet

        async def tapped(packet: RtpPacket, arrival_time_ms: int) -> None:
            now = asyncio.get_running_loop().time()
            self.rtp_arrivals.append((now, packet.sequence_number, packet.timestamp))
            await handle(packet, arrival_time_ms=arrival_time_ms)

        receiver._handle_rtp_packet = tapped

    def _on_track(self, track: MediaStreamTrack) -> None:
        self._reading.append(asyncio.create_task(self._read(track)))

    async def _read(self, track: MediaStreamTrack) -> None:
        while True:
            try:
                frame = await track.recv()
            except MediaStreamError:
                return
            assert isinstance(frame, AudioFrame)
            now = asyncio.get_running_loop().time()
            samples = np.asarray(frame.to_ndarray(), np.int16).reshape(-1, 2)[:, 0]
            self.heard.append((now, frame.pts or 0, samples.copy()))
