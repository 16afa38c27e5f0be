"""A scripted WebRTC caller: speaks prepared sound at 20 ms a packet, and stamps what it sends and what it receives.

It speaks OpenAI's `POST /v1/realtime/calls` with the data channel `oai-events` and reads the server's timeline.
Received packets are stamped and decoded where aiortc's jitter buffer would hold them back by 80 ms, so a stamp is the
arrival at this machine. What a stamp means for a measurement is not known here.
"""

import asyncio
import fractions
import json
import logging
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import urljoin

import httpx
import numpy as np
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCPeerConnection,
    RTCRtpReceiver,
    RTCRtpSender,
    RTCSessionDescription,
)
from aiortc.codecs.opus import OpusDecoder
from aiortc.jitterbuffer import JitterFrame
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame

from voice_agent.audio import FRAME_MS, OPUS_RATE_HZ, Samples, silence
from voice_agent.bench.echo import EchoPath
from voice_agent.bench.line import Event, EventLog, Sent, Stamped, Utterance, holds
from voice_agent.bench.sound import WINDOW_SAMPLES, ReceivedSound, first_voiced, last_voiced, levels
from voice_agent.clock import NS_PER_MS, Change, Clock
from voice_agent.errors import BusyError, MediaError, RemoteProtocolError

logger = logging.getLogger(__name__)

CONNECT_S = 15.0
KEEP_ALIVE_S = 1.0  # shorter than any server's: one that closes an idle connection as we ask is no failure
CALLS_PATH = "/v1/realtime/calls"


class Microphone(MediaStreamTrack):
    """A track that is silent until something is to be said; paced from its start, so lateness does not add up."""

    kind = "audio"

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._start_ns: int | None = None
        self._packets = 0
        self._utterance: Utterance[Samples] | None = None
        self.echo: EchoPath | None = None  # mixed into all that is sent

    async def say(
        self, samples: Samples, begun: asyncio.Event | None = None, span: tuple[int, int] | None = None
    ) -> Sent:
        """Send 48 kHz sound to its end; sets `begun` with its first packet.

        `span` says which samples are voiced, where levels do not (noise). Raises ValueError if nothing is voiced.
        """
        padded = np.concatenate([samples, silence(-len(samples) % WINDOW_SAMPLES)])
        first, last = voiced_packets(padded) if span is None else _packets_of(span, len(padded))
        utterance = Utterance(deque(np.split(padded, len(padded) // WINDOW_SAMPLES)))
        utterance.begun = begun or utterance.begun
        self._utterance = utterance
        await utterance.done.wait()
        return Sent(utterance.sent_ns[first], utterance.sent_ns[last])

    async def recv(self) -> AudioFrame:
        """The next packet, at its instant."""
        if self.readyState != "live":
            raise MediaStreamError
        if self._start_ns is None:
            self._start_ns = self._clock.now_ns()
        await self._clock.sleep_until(self._start_ns + self._packets * FRAME_MS * NS_PER_MS)
        frame = AudioFrame(format="s16", layout="mono", samples=WINDOW_SAMPLES)
        frame.planes[0].update(self._next().tobytes())
        frame.sample_rate, frame.time_base = OPUS_RATE_HZ, fractions.Fraction(1, OPUS_RATE_HZ)
        frame.pts = self._packets * WINDOW_SAMPLES
        self._packets += 1
        return frame

    def _next(self) -> Samples:
        said = self._said()
        if self.echo is None:
            return said
        echo = self.echo.take(WINDOW_SAMPLES).astype(np.int32)
        return np.clip(said + echo, -32768, 32767).astype(np.int16)

    def _said(self) -> Samples:
        utterance = self._utterance
        if utterance is None:
            return silence(WINDOW_SAMPLES)
        packet = utterance.take(self._clock.now_ns())
        if not utterance.packets:
            self._utterance = None
        return packet


class Ear:
    """Stands where aiortc's jitter buffer would: stamps and decodes each Opus packet as it arrives."""

    def __init__(self, clock: Clock, sound: ReceivedSound) -> None:
        self._clock, self._sound = clock, sound
        self._decoder = OpusDecoder()
        self.echo: EchoPath | None = None  # hears all that is received
        self.heard = Change()  # announced with each packet

    def add(self, packet: Any) -> tuple[bool, None]:
        """The jitter buffer's contract: no picture to ask for, nothing for the track's own decoder."""
        arrival_ns = self._clock.now_ns()
        for frame in self._decoder.decode(JitterFrame(packet._data, packet.timestamp)):
            left = cast(AudioFrame, frame).to_ndarray().reshape(-1, 2)[:, 0].astype(np.int16)
            self._sound.add(packet.timestamp, left, arrival_ns)
            if self.echo is not None:
                self.echo.hear(left)
        self.heard.announce()
        return False, None


class Caller:
    """One call: `async with Caller(url, clock) as caller`, and it is connected.

    Raises BusyError when no seat is free, RemoteProtocolError for any other refusal, MediaError when no media flows,
    httpx.ConnectError when nobody is there.
    """

    def __init__(self, url: str, clock: Clock, api_key: str | None = None) -> None:
        self._base, self._clock = url.rstrip("/"), clock
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._location: str | None = None
        self._log = EventLog(clock)
        self.events = self._log.events
        self.sound = ReceivedSound()

    async def __aenter__(self) -> Self:
        """Dial, and wait until the data channel is open."""
        self._http = httpx.AsyncClient(
            base_url=self._base,
            headers=self._headers,
            trust_env=False,
            timeout=30,
            limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_S),
        )
        self._peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        try:
            await self._dial()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""
        await self._close()

    async def say(
        self, samples: Samples, begun: asyncio.Event | None = None, span: tuple[int, int] | None = None
    ) -> Sent:
        """Speak; see Microphone.say."""
        return await self._microphone.say(samples, begun, span)

    def echoing(self, path: EchoPath) -> None:
        """From now on let what is received come back into the microphone."""
        self._microphone.echo = self._ear.echo = path

    def send(self, event: Event) -> None:
        """Send a client event over the data channel."""
        self._channel.send(json.dumps(event))

    async def event(self, wanted: Callable[[Stamped], bool], timeout_s: float) -> Stamped | None:
        """The first event, past or to come, that is wanted; None after the time-out."""
        return await self._log.first(wanted, timeout_s)

    async def heard(self, condition: Callable[[], Any], timeout_s: float) -> bool:
        """Wait until a condition on the received sound holds, looked at with each packet."""
        return await holds(condition, self._ear.heard, self._clock, timeout_s)

    @property
    def call_id(self) -> str:
        """The call's id on the server, once connected."""
        return (self._location or "").rpartition("/")[2]

    async def timeline(self) -> dict[str, Any]:
        """The server's own view of this call; empty if it offers none."""
        response = await self._http.get(f"{self._location}/timeline")
        return cast(dict[str, Any], response.json()) if response.status_code == 200 else {}

    async def _dial(self) -> None:
        self._microphone = Microphone(self._clock)
        self._peer.addTrack(self._microphone)
        transceiver = self._peer.getTransceivers()[0]
        opus = [c for c in RTCRtpSender.getCapabilities("audio").codecs if c.mimeType == "audio/opus"]
        transceiver.setCodecPreferences(opus)
        self._ear = _listen(transceiver.receiver, self._clock, self.sound)
        self._channel = self._peer.createDataChannel("oai-events")
        self._channel.on("message", self._receive)
        await self._peer.setLocalDescription(await self._peer.createOffer())
        answer = await self._offer(self._peer.localDescription.sdp)
        await self._peer.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        if await self.event(lambda stamped: stamped.kind == "session.created", CONNECT_S) is None:
            raise MediaError(f"no media connection to {self._base} within {CONNECT_S:g} s (is UDP open?)")

    async def _offer(self, sdp: str) -> str:
        response = await self._http.post(CALLS_PATH, content=sdp, headers={"content-type": "application/sdp"})
        if response.status_code == 503:
            wait_s = response.headers.get("retry-after", "")
            raise BusyError(_message(response), int(wait_s) if wait_s.isdigit() else 5)
        if response.status_code != 201:
            raise RemoteProtocolError("call_refused", f"{response.status_code}: {_message(response)}")
        self._location = urljoin(self._base + CALLS_PATH, response.headers["location"])
        return response.text

    def _receive(self, message: str | bytes) -> None:
        self._log.note(cast(Event, json.loads(message)), self._clock.now_ns())

    async def _close(self) -> None:
        try:
            if self._location is not None:
                await self._http.delete(self._location)
        except httpx.HTTPError as error:
            logger.warning("hanging up failed: %s", error)
        finally:
            await self._peer.close()
            await self._http.aclose()


def voiced_packets(padded: Samples) -> tuple[int, int]:
    """The first and the last packet with a voice, by their levels."""
    row = levels(padded)
    first, last = first_voiced(row), last_voiced(row)
    if first is None or last is None:
        raise ValueError("there is no voice in this sound")
    return first, last


def _packets_of(span: tuple[int, int], samples: int) -> tuple[int, int]:
    """The packets that hold the first and the last of the samples [first, end)."""
    first, end = span
    if not 0 <= first < end <= samples:
        raise ValueError(f"{span} is no stretch of {samples} samples")
    return first // WINDOW_SAMPLES, (end - 1) // WINDOW_SAMPLES


def _listen(receiver: RTCRtpReceiver, clock: Clock, sound: ReceivedSound) -> Ear:
    """Put an Ear in the place of the receiver's jitter buffer (aiortc 1.16 has no public way to see packets)."""
    ear = Ear(clock, sound)
    name = "_RTCRtpReceiver__jitter_buffer"
    if not hasattr(receiver, name):
        raise MediaError("this aiortc has no jitter buffer where 1.16 has it")
    setattr(receiver, name, ear)
    return ear


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:300]
