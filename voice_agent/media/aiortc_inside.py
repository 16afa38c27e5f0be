"""What we need of aiortc and aioice that they keep private, all in one place but for RTP itself (sound_path).

Each is guarded by a test on real peers, so that an update that moves them is noticed at once. Read against aiortc
1.16 and aioice 0.13.
"""

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Any

from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from aiortc.rtcicetransport import RTCIceTransport
from aiortc.rtcsctptransport import WEBRTC_STRING, RTCSctpTransport

logger = logging.getLogger(__name__)


class NoSound(MediaStreamTrack):
    """Keeps a sender waiting that is to send its reports alone: the sound goes past it (sound_path)."""

    kind = "audio"

    async def recv(self) -> Any:
        """Wait until the sender is stopped."""
        if self.readyState != "live":
            raise MediaStreamError
        await asyncio.Event().wait()


async def gather(transport: RTCIceTransport) -> None:
    """Gather candidates; on a machine without any network the loopback address, so that a local page can connect."""
    await transport.iceGatherer.gather()
    connection: Any = transport._connection  # pyright: ignore[reportPrivateUsage]
    if not connection.local_candidates:
        found = await connection.get_component_candidates(component=1, addresses=["127.0.0.1"])
        connection._local_candidates += found


def _nobodys(_data: bytes) -> bool:
    """Every datagram is aiortc's."""
    return False


def watch(
    transport: RTCIceTransport, on_datagram: Callable[[], None], take: Callable[[bytes], bool] = _nobodys
) -> None:
    """Call `on_datagram` for whatever comes in, connectivity checks included: a muted browser sends little else.

    What `take` says to have taken goes no further.
    It also keeps aioice from starting its consent checks on a connection that was closed while it connected; that
    task would run for ever.
    """
    connection: Any = transport._connection  # pyright: ignore[reportPrivateUsage]
    data_received, request_received = connection.data_received, connection.request_received
    query_consent = connection.query_consent

    def on_data(data: bytes, component: int) -> None:
        on_datagram()
        if not take(data):
            data_received(data, component)

    def on_request(*args: Any) -> None:
        on_datagram()
        request_received(*args)

    async def consent() -> None:
        if not connection._closing:
            await query_consent()

    connection.data_received, connection.request_received = on_data, on_request
    connection.query_consent = consent


def forgive(association: RTCSctpTransport) -> None:
    """Let no message of the client's end the connection, as one does that is marked as text and is no UTF-8.

    Such text comes with lone surrogates for its odd bytes; what opens a channel wrongly is passed over.
    """
    inside: Any = association
    receive = inside._data_channel_receive

    async def received(stream_id: int, kind: int, data: bytes) -> None:
        channel = inside._data_channels.get(stream_id)
        if kind == WEBRTC_STRING and channel is not None:
            channel.emit("message", data.decode(errors="surrogateescape"))
            return
        try:
            await receive(stream_id, kind, data)
        except (AssertionError, UnicodeDecodeError, struct.error) as error:
            logger.warning("data channel: passing over a message that opens none (%s)", type(error).__name__)

    inside._data_channel_receive = received
