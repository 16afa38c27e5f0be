"""The sound's way between socket and codec: RTP made and read here, past aiortc's own sender and receiver.

Those take a dozen awaits and objects for each packet, as much time as Opus itself. What is theirs stays theirs: ICE,
DTLS, the SRTP sessions, which section may send, RTCP; its counts are kept where aiortc reads them. One for each peer,
in the event loop. It knows no sound, only payloads with their RTP time.

Sources: RFC 3550 5.1 (RTP), RFC 5761 4 (telling RTCP), RFC 8285 4.2 (header extensions). The private names are those of
aiortc 1.16 and aioice 0.13; a test on real peers notices when they move.
"""

import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pylibsrtp
from aiortc.rtcrtpreceiver import StreamStatistics
from aiortc.rtcrtptransceiver import RTCRtpTransceiver
from aiortc.rtp import HeaderExtensions
from aiortc.utils import random16, random32

from voice_agent.audio import OPUS_RATE_HZ
from voice_agent.clock import NS_PER_S
from voice_agent.errors import MediaError

MAX_SOURCES = 8  # SSRCs that are counted; a peer has one, and a new one when it begins anew
NTP_EPOCH_S = 2_208_988_800  # from 1900 to 1970
HEADER = struct.Struct("!BBHII")
PLAIN, WITH_EXTENSION = 0x80, 0x90
SENDER = (
    "rtp_started", "mid", "rtp_header_extensions_map", "ntp_timestamp", "rtp_timestamp", "octet_count", "packet_count",
)  # fmt: skip
_SENDER = "_RTCRtpSender__"
_STREAMS = "_RTCRtpReceiver__remote_streams"


def ntp_time(unix_ns: int) -> int:
    """An instant in seconds since 1900, as 32.32 bits fixed point (RFC 3550 4)."""
    return (NTP_EPOCH_S << 32) + (unix_ns << 32) // NS_PER_S


class _Counted(NamedTuple):
    """What aiortc's statistics want to know of a packet."""

    sequence_number: int
    timestamp: int


class SoundPath:
    """One audio section's packets. `take` gets each one's RTP time and payload, as they come."""

    def __init__(self, transceiver: RTCRtpTransceiver, take: Callable[[int, bytes], None]) -> None:
        self._transceiver: Any = transceiver
        self._sender: Any = transceiver.sender
        self._receiver: Any = transceiver.receiver
        known = all(hasattr(self._sender, _SENDER + name) for name in SENDER)
        if not known or not hasattr(self._receiver, _STREAMS):
            raise MediaError("This aiortc keeps its counts elsewhere.")
        self._take = take
        self._header: bytes | None = None  # the extension's, the same in each packet
        self._payload_type = -1
        self._sequence = random16() % 32768  # of the lower half: no early wrap loses any (RFC 3711 3.3.1)
        self._origin = random32()

    async def opened(self) -> None:
        """Wait until the section's name and numbers are known, and sound may leave."""
        await self._sender._RTCRtpSender__rtp_started.wait()

    def received(self, data: bytes) -> bool:
        """Take a datagram if it is RTP; False for any other, which is aiortc's."""
        srtp = self._sender.transport._rx_srtp
        if srtp is None or not 127 < data[0] < 192 or len(data) < HEADER.size or 191 < data[1] < 224:
            return False
        try:
            packet = srtp.unprotect(data)
        except pylibsrtp.Error:
            return True
        if self._receiver._enabled:
            self._read(packet)
        return True

    def send(self, rtp_time: int, payload: bytes) -> None:
        """Send a packet; `rtp_time` counts from 0. Nothing leaves while there is no path or nobody wants to hear."""
        dtls = self._sender.transport
        pair = dtls.transport._connection._nominated.get(1)
        if pair is None or not self._sender._enabled:
            return
        if self._header is None:
            self._header = self._extension()
        timestamp = (self._origin + rtp_time) & 0xFFFFFFFF
        self._sequence = (self._sequence + 1) & 0xFFFF
        first = WITH_EXTENSION if self._header else PLAIN
        header = HEADER.pack(first, self._opus, self._sequence, timestamp, self._sender._ssrc)
        pair.protocol.transport.sendto(
            dtls._tx_srtp.protect(header + self._header + payload), pair.remote_addr
        )
        self._count(timestamp, len(payload))

    def _read(self, packet: bytes) -> None:
        first, second, sequence, timestamp, ssrc = HEADER.unpack_from(packet)
        begin = HEADER.size + 4 * (first & 15)
        if first & 0x10:
            begin += 4 + 4 * int.from_bytes(packet[begin + 2 : begin + 4], "big")
        end = len(packet) - (packet[-1] if first & 0x20 else 0)
        if second & 127 != self._opus:
            return
        streams: dict[int, StreamStatistics] = getattr(self._receiver, _STREAMS)
        if ssrc not in streams:
            if len(streams) >= MAX_SOURCES:
                streams.clear()
            streams[ssrc] = StreamStatistics(OPUS_RATE_HZ)
        streams[ssrc].add(_Counted(sequence, timestamp))  # type: ignore[arg-type]
        if begin < end:  # else it is padding alone
            self._take(timestamp, packet[begin:end])

    @property
    def _opus(self) -> int:
        """The payload type that was agreed on; it stays for the call."""
        if self._payload_type < 0:
            self._payload_type = int(self._transceiver._codecs[0].payloadType)
        return self._payload_type

    def _extension(self) -> bytes:
        """The section's name in each packet, where the peer wants it."""
        names: Any = getattr(self._sender, _SENDER + "rtp_header_extensions_map")
        profile, value = names.set(HeaderExtensions(mid=getattr(self._sender, _SENDER + "mid")))
        return struct.pack("!HH", profile, len(value) // 4) + value if value else b""

    def _count(self, timestamp: int, octets: int) -> None:
        """For aiortc's sender reports."""
        sender = self._sender
        sender._RTCRtpSender__ntp_timestamp = ntp_time(time.time_ns())
        sender._RTCRtpSender__rtp_timestamp = timestamp
        sender._RTCRtpSender__octet_count += octets
        sender._RTCRtpSender__packet_count += 1
