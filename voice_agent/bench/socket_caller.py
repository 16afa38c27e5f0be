"""A scripted caller over the Realtime WebSocket: appends its microphone at 20 ms a piece, plays what comes at once.

The same face as `caller.Caller`, so that the same measurements read both. Its player has no buffer (`player`), stops at
`input_audio_buffer.speech_started` and tells the server how much was heard, as stock clients do. What a server says
about playout on a track (`output_audio_buffer.started`, `.stopped`, `.cleared`) is said here by the player itself.
"""

import asyncio
import base64
import contextlib
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

import httpx
import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from voice_agent.audio import FRAME_MS, OPUS_RATE_HZ, WIRE_RATE_HZ, Samples, silence
from voice_agent.bench.caller import voiced_packets
from voice_agent.bench.line import Event, EventLog, Sent, Stamped, Utterance, holds
from voice_agent.bench.player import Player
from voice_agent.bench.sound import WINDOW_SAMPLES, ReceivedSound
from voice_agent.bench.spoken import to_rate
from voice_agent.clock import NS_PER_MS, Change, Clock
from voice_agent.errors import BusyError, MediaError, RemoteProtocolError

CONNECT_S = 15.0
APPEND_SAMPLES = FRAME_MS * WIRE_RATE_HZ // 1000
MAX_MESSAGE_BYTES = 32 << 20
SILENT = base64.b64encode(bytes(2 * APPEND_SAMPLES)).decode()


@dataclass(slots=True)
class _Reply:
    """The reply that plays: what of it came, in samples at 24 kHz, and whether more will."""

    response_id: str
    item_id: str
    samples: int = 0
    done: bool = False


class SocketCaller:
    """One call: `async with SocketCaller(url, clock) as caller`, and it is connected.

    Raises BusyError when no seat is free, RemoteProtocolError for any other refusal, OSError when nobody is there.
    """

    def __init__(self, url: str, clock: Clock, api_key: str | None = None) -> None:
        self._base, self._clock = url.rstrip("/"), clock
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._log, self._tick = EventLog(clock), Change()
        self.events = self._log.events
        self._saying: Utterance[str] | None = None
        self._reply: _Reply | None = None
        self._dropped: set[str] = set()  # response ids whose sound is not wanted any more
        self.sound = ReceivedSound()
        self.call_id = ""

    async def __aenter__(self) -> Self:
        """Connect, and wait for the session."""
        self._http = httpx.AsyncClient(
            base_url=self._base, headers=self._headers, trust_env=False, timeout=30
        )
        self._player = Player(self.sound, self._clock.now_ns())
        try:
            self._line = await self._connected()
        except BaseException:
            await self._http.aclose()
            raise
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._talk())]
        created = await self.event(lambda stamped: stamped.kind == "session.created", CONNECT_S)
        if created is None:
            await self._close()
            raise MediaError(f"no session from {self._base} within {CONNECT_S:g} s")
        self.call_id = str(cast(Event, created.event["session"])["id"])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""
        await self._close()

    async def say(self, samples: Samples, begun: asyncio.Event | None = None) -> Sent:
        """Send 48 kHz sound to its end; sets `begun` with its first piece. Raises ValueError if nothing is voiced."""
        padded = np.concatenate([samples, silence(-len(samples) % WINDOW_SAMPLES)])
        first, last = voiced_packets(padded)
        wire = to_rate(padded, OPUS_RATE_HZ, WIRE_RATE_HZ)[: len(padded) // 2].astype("<i2")
        pieces = [wire[at : at + APPEND_SAMPLES] for at in range(0, len(wire), APPEND_SAMPLES)]
        saying = Utterance(deque(base64.b64encode(piece.tobytes()).decode() for piece in pieces))
        saying.begun = begun or saying.begun
        self._saying = saying
        await saying.done.wait()
        return Sent(saying.sent_ns[first], saying.sent_ns[min(last, len(saying.sent_ns) - 1)])

    def send(self, event: Event) -> None:
        """Send a client event with the next piece of the microphone."""
        self._outbox.append(json.dumps(event))

    async def event(self, wanted: Callable[[Stamped], bool], timeout_s: float) -> Stamped | None:
        """The first event, past or to come, that is wanted; None after the time-out."""
        return await self._log.first(wanted, timeout_s)

    async def heard(self, condition: Callable[[], Any], timeout_s: float) -> bool:
        """Wait until a condition on the played sound holds, looked at whenever some was played."""
        return await holds(condition, self._tick, self._clock, timeout_s)

    async def timeline(self) -> dict[str, Any]:
        """The server's own view of this call; empty if it offers none."""
        response = await self._http.get(f"/v1/realtime/calls/{self.call_id}/timeline")
        return cast(dict[str, Any], response.json()) if response.status_code == 200 else {}

    # --- the line -----------------------------------------------------------------------------------------------

    async def _connected(self) -> ClientConnection:
        self._outbox: deque[str] = deque()
        address = self._base.replace("http", "ws", 1) + "/v1/realtime?model=voice-agent"
        try:
            return await connect(
                address,
                additional_headers=self._headers,
                compression=None,
                max_size=MAX_MESSAGE_BYTES,
                proxy=None,
                open_timeout=CONNECT_S,
            )
        except InvalidStatus as error:
            if error.response.status_code == 503:
                raise BusyError("no seat is free", 1) from error
            raise RemoteProtocolError("call_refused", str(error)) from error

    async def _talk(self) -> None:
        """The microphone, and the player's clock: paced from its start, so lateness does not add up."""
        start_ns, number = self._clock.now_ns(), 0
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self._clock.sleep_until(start_ns + number * FRAME_MS * NS_PER_MS)
                number += 1
                while self._outbox:
                    await self._line.send(self._outbox.popleft())
                append = '{"type":"input_audio_buffer.append","audio":"' + self._next() + '"}'
                await self._line.send(append)
                self._moved()

    def _next(self) -> str:
        saying = self._saying
        if saying is None:
            return SILENT
        payload = saying.take(self._clock.now_ns())
        if not saying.packets:
            self._saying = None
        return payload

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for text in self._line:
                self._take(cast(Event, json.loads(text)), self._clock.now_ns())

    def _take(self, event: Event, now_ns: int) -> None:
        match event["type"]:
            case "response.output_audio.delta":
                self._hear(event, now_ns)
                return
            case "response.done" if self._reply and self._reply.response_id == event["response"]["id"]:
                self._reply.done = True
            case "input_audio_buffer.speech_started":
                self._stop(now_ns)
            case _:
                pass
        self._log.note(event, now_ns)
        self._moved()

    def _hear(self, event: Event, now_ns: int) -> None:
        response_id = str(event["response_id"])
        if response_id in self._dropped:
            return
        if self._reply is None or self._reply.response_id != response_id:
            self._reply = _Reply(response_id, str(event["item_id"]))
            self._log.note({"type": "output_audio_buffer.started", "response_id": response_id}, now_ns)
        pcm = np.frombuffer(base64.b64decode(event["delta"]), "<i2")
        self._reply.samples += len(pcm)
        self._player.push(np.repeat(pcm, OPUS_RATE_HZ // WIRE_RATE_HZ), now_ns)
        self._tick.announce()

    def _stop(self, now_ns: int) -> None:
        """The user speaks over the reply: drop what was not played, and say how much was."""
        reply = self._reply
        if reply is None:
            return
        self._reply = None
        self._dropped.add(reply.response_id)
        heard = reply.samples - self._player.clear(now_ns) * WIRE_RATE_HZ // OPUS_RATE_HZ
        place = {"item_id": reply.item_id, "content_index": 0, "audio_end_ms": 1000 * heard // WIRE_RATE_HZ}
        self.send({"type": "conversation.item.truncate", **place})
        self._log.note({"type": "output_audio_buffer.cleared", "response_id": reply.response_id}, now_ns)

    def _moved(self) -> None:
        """Time went on: play, and say when a reply was played to its end."""
        now_ns = self._clock.now_ns()
        self._player.advance(now_ns)
        reply = self._reply
        if reply is not None and reply.done and not self._player.playing:
            self._reply = None
            self._log.note({"type": "output_audio_buffer.stopped", "response_id": reply.response_id}, now_ns)
        self._tick.announce()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._line.close()
        await self._http.aclose()
