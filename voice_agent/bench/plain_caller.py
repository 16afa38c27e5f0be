"""Callers that cost little: sound that was encoded before, sent at its pace, and what comes back only counted.

To the server a `PlainCaller` is any WebRTC peer: ICE, DTLS, SRTP and the data channel are aiortc's, with sound each
20 ms. But nothing is decoded, and only one received packet in fifty is decrypted, to see that it is sound of ours. A
`PlainSocket` is a Realtime client that appends PCM. A `Pacer` sends for all callers of a process, evenly spread.
"""

import asyncio
import base64
import json
import re
import struct
from typing import Any, cast

import httpx
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from aiortc.rtp import is_rtcp, pack_header_extensions
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from voice_agent.audio import FRAME_MS, WIRE_RATE_HZ
from voice_agent.bench.prepared import APPEND_MS, Counts, Talk
from voice_agent.bench.sound import WINDOW_SAMPLES
from voice_agent.clock import NS_PER_MS, NS_PER_S, Clock
from voice_agent.errors import MediaError, RemoteProtocolError

CALLS_PATH = "/v1/realtime/calls"
CONNECT_S = 15.0
CHECKED = 50  # one packet of so many is decrypted
BEHIND_MS = 200  # a sender that stood for longer leaves that time out
_EXTENSION = re.compile(r"a=extmap:(\d+) urn:ietf:params:rtp-hdrext:sdes:mid")
_OPUS = re.compile(r"a=rtpmap:(\d+) opus/48000")


class _NoTrack(MediaStreamTrack):
    """Keeps aiortc's own sender waiting; it still sends its RTCP reports."""

    kind = "audio"

    async def recv(self) -> Any:
        """Never returns while live."""
        if self.readyState != "live":
            raise MediaStreamError
        await asyncio.Event().wait()


class PlainCaller:
    """A WebRTC call. `connect` first; then `send_next` each 20 ms."""

    interval_ms = FRAME_MS

    def __init__(self, url: str, talk: Talk, counts: Counts) -> None:
        self._url = url
        self._talk = talk
        self._counts = counts
        self._peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._opened = asyncio.Event()
        self._sequence = self._packets = 0

    async def connect(self, http: httpx.AsyncClient) -> None:
        """Dial; raises RemoteProtocolError if the call is refused, MediaError if it does not connect."""
        self._peer.addTrack(_NoTrack())
        channel = self._peer.createDataChannel("oai-events")
        channel.on("message", self._event)
        await self._peer.setLocalDescription(await self._peer.createOffer())
        answer = await self._dial(http, self._peer.localDescription.sdp)
        await self._peer.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        try:
            await asyncio.wait_for(self._opened.wait(), CONNECT_S)
        except TimeoutError as error:
            raise MediaError(f"no media connection to {self._url} within {CONNECT_S:g} s") from error
        self._take_over(answer)

    def send_next(self, now_ns: int) -> None:
        """Send the packet that is due."""
        payload = self._talk.next(now_ns)
        self._sequence = (self._sequence + 1) % 65_536
        header = struct.pack(
            "!BBHII",
            0x90,
            self._payload_type,
            self._sequence,
            self._packets * WINDOW_SAMPLES % (1 << 32),
            self._ssrc,
        )
        self._packets += 1
        self._send(self._protect(header + self._extension + payload))

    async def close(self) -> None:
        """Close the connection, which hangs up."""
        await self._peer.close()

    async def _dial(self, http: httpx.AsyncClient, sdp: str) -> str:
        response = await http.post(CALLS_PATH, content=sdp, headers={"content-type": "application/sdp"})
        if response.status_code != 201:
            raise RemoteProtocolError("call_refused", f"{response.status_code}: {response.text[:300]}")
        return response.text

    def _take_over(self, answer: str) -> None:
        """Send past aiortc's sender and count before its receiver (private parts of 1.16 and aioice 0.13)."""
        sender: Any = self._peer.getSenders()[0]
        dtls: Any = sender.transport
        connection: Any = dtls.transport._connection
        pair: Any = connection._nominated[1]
        mid, opus = _EXTENSION.search(answer), _OPUS.search(answer)
        if mid is None or opus is None:
            raise MediaError("the answer has no Opus or no name of its section")
        profile, value = pack_header_extensions([(int(mid[1]), b"0")])
        self._extension = struct.pack("!HH", profile, len(value) // 4) + value
        self._payload_type, self._ssrc = int(opus[1]), sender._ssrc
        self._protect, self._unprotect = dtls._tx_srtp.protect, dtls._rx_srtp.unprotect
        socket, address = pair.protocol.transport, pair.remote_addr

        def send(data: bytes) -> None:
            socket.sendto(data, address)

        self._send = send
        pass_on = connection.data_received

        def received(data: bytes, component: int) -> None:
            if 127 < data[0] < 192:
                self._received(data)
            else:
                pass_on(data, component)

        connection.data_received = received

    def _received(self, data: bytes) -> None:
        if is_rtcp(data):
            return
        self._counts.packets += 1
        self._counts.received_ms += FRAME_MS
        if self._counts.packets % CHECKED == 0 and len(self._unprotect(data)) > 12:
            self._counts.checked += 1

    def _event(self, message: str | bytes) -> None:
        if not self._opened.is_set():
            self._opened.set()
        elif '"output_audio_buffer.stopped"' in cast(str, message):
            self._talk.answered()


class PlainSocket:
    """A call over a WebSocket, with a player that plays what comes: the answer has ended when it was played."""

    interval_ms = APPEND_MS

    def __init__(self, url: str, talk: Talk, counts: Counts, clock: Clock) -> None:
        self._url = url.replace("http", "ws", 1) + "/v1/realtime"
        self._talk = talk
        self._counts = counts
        self._clock = clock
        self._plays_until_ns = 0
        self._done = False
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(100)

    async def connect(self, _http: httpx.AsyncClient) -> None:
        """Open it."""
        self._socket = await connect(self._url, max_size=None, compression=None, proxy=None)
        await self._socket.recv()
        self._tasks = [
            asyncio.create_task(self._read(self._socket)),
            asyncio.create_task(self._write(self._socket)),
        ]

    def send_next(self, now_ns: int) -> None:
        """Send the piece that is due."""
        if self._done and now_ns >= self._plays_until_ns:
            self._done = False
            self._talk.answered()
        self._waiting.put_nowait(self._talk.next(now_ns))

    async def close(self) -> None:
        """Close it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._socket.close()

    async def _write(self, socket: ClientConnection) -> None:
        while True:
            await socket.send(await self._waiting.get(), text=True)

    async def _read(self, socket: ClientConnection) -> None:
        try:
            async for message in socket:
                self._event(cast(str, message))
        except ConnectionClosed:
            return

    def _event(self, message: str) -> None:
        if '"response.output_audio.delta"' in message:
            sound = base64.b64decode(json.loads(message)["delta"])
            begins_ns = max(self._plays_until_ns, self._clock.now_ns())
            self._plays_until_ns = begins_ns + len(sound) // 2 * NS_PER_S // WIRE_RATE_HZ
            self._counts.received_ms += len(sound) / 2 * 1000 / WIRE_RATE_HZ
        elif '"response.done"' in message:
            self._done = True


class Pacer:
    """Sends for callers of one kind, each at its own place within the interval, so that they come evenly."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.callers: list[PlainCaller | PlainSocket] = []

    async def run(self) -> None:
        """Send until cancelled; callers may come and go."""
        due_ns, turn = float(self._clock.now_ns()), 0
        while True:
            if not self.callers:
                await asyncio.sleep(0.01)
                due_ns = float(self._clock.now_ns())
                continue
            turn = (turn + 1) % len(self.callers)
            due_ns += self.callers[turn].interval_ms * NS_PER_MS / len(self.callers)
            now_ns = self._clock.now_ns()
            if due_ns < now_ns - BEHIND_MS * NS_PER_MS:
                due_ns = float(now_ns)
            caller = self.callers[turn]
            if due_ns > now_ns:
                await self._clock.sleep_until(int(due_ns))
            if caller in self.callers:  # all may have been hung up meanwhile
                caller.send_next(int(due_ns))
