"""The few things we need of aiortc and aioice that they keep private, all in one place.

Each is guarded by a test on real peers, so that an update that moves them is noticed at once. Read against aiortc
1.16 and aioice 0.13.
"""

from collections.abc import Callable
from typing import Any

from aiortc.jitterbuffer import JitterFrame
from aiortc.rtcicetransport import RTCIceTransport
from aiortc.rtcrtpreceiver import RTCRtpReceiver
from aiortc.rtp import RtpPacket

from voice_agent.errors import MediaError

JITTER_BUFFER = "_RTCRtpReceiver__jitter_buffer"


class AtOnce:
    """Stands where aiortc's jitter buffer was, and hands every packet's RTP time and payload to `take` at once.

    That one waits for four packets (80 ms), and for sixteen (320 ms) after a single loss; and behind it each packet
    goes to a thread and back, which costs more than to decode it. Order and gaps are the microphone's business here.
    An empty packet is padding; a decoder would take it for the end of the stream.
    """

    def __init__(self, take: Callable[[int, bytes], None]) -> None:
        self._take = take

    def add(self, packet: RtpPacket) -> tuple[bool, JitterFrame | None]:
        """No picture is lost, and nothing is left for aiortc's own decoder."""
        data: bytes = packet._data  # type: ignore[attr-defined]  # set by the receiver just before
        if data:
            self._take(packet.timestamp, data)
        return False, None


def hand_packets_on_at_once(receiver: RTCRtpReceiver, take: Callable[[int, bytes], None]) -> None:
    """Take jitter buffer and decoder out of an audio receiver's way."""
    if not hasattr(receiver, JITTER_BUFFER):
        raise MediaError("This aiortc keeps its jitter buffer elsewhere.")
    setattr(receiver, JITTER_BUFFER, AtOnce(take))


async def gather(transport: RTCIceTransport) -> None:
    """Gather candidates; on a machine without any network the loopback address, so that a local page can connect."""
    await transport.iceGatherer.gather()
    connection: Any = transport._connection  # pyright: ignore[reportPrivateUsage]
    if not connection.local_candidates:
        found = await connection.get_component_candidates(component=1, addresses=["127.0.0.1"])
        connection._local_candidates += found


def watch(transport: RTCIceTransport, on_datagram: Callable[[], None]) -> None:
    """Call `on_datagram` for whatever comes in, connectivity checks included: a muted browser sends little else.

    It also keeps aioice from starting its consent checks on a connection that was closed while it connected; that
    task would run for ever.
    """
    connection: Any = transport._connection  # pyright: ignore[reportPrivateUsage]
    data_received, request_received = connection.data_received, connection.request_received
    query_consent = connection.query_consent

    def on_data(*args: Any) -> None:
        on_datagram()
        data_received(*args)

    def on_request(*args: Any) -> None:
        on_datagram()
        request_received(*args)

    async def consent() -> None:
        if not connection._closing:
            await query_consent()

    connection.data_received, connection.request_received = on_data, on_request
    connection.query_consent = consent
