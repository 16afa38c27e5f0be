"""The caller's stopwatch against a server whose delays are known: real peers, real packets."""

import asyncio
import fractions
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import numpy as np
import pytest
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from av import AudioFrame
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.fakes import tone
from tests.scripted_thinker import serving
from voice_agent.audio import OPUS_RATE_HZ, Samples, silence
from voice_agent.bench import turn as bench
from voice_agent.bench.caller import Caller, Ear
from voice_agent.bench.measure import ask, interrupt, settle, time_to_voice
from voice_agent.bench.sound import WINDOW_SAMPLES, ReceivedSound, first_voice, last_voice
from voice_agent.bench.spoken import write_wav
from voice_agent.clock import NS_PER_MS, MonotonicClock, ms_between
from voice_agent.errors import BusyError

pytestmark = pytest.mark.loopback

CLOCK = MonotonicClock()
DELAY_MS = 300  # of quiet, then the reply
HOLD_MS = 120  # of speech over the reply, then it stops
CANCEL_MS = 150  # from then until nothing is in flight


def voiced(ms: float) -> Samples:
    return tone(440, ms, OPUS_RATE_HZ)


class Mouth(MediaStreamTrack):
    """Plays what is queued at 20 ms a packet and stamps the first and the last packet of each reply."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self.queue: deque[Samples] = deque()
        self.sent_ns: list[int] = []
        self._packets = 0
        self._start_ns = CLOCK.now_ns()

    async def recv(self) -> AudioFrame:
        await CLOCK.sleep_until(self._start_ns + self._packets * 20 * NS_PER_MS)
        sound = silence(WINDOW_SAMPLES)
        if self.queue:
            sound = self.queue.popleft()
            self.sent_ns.append(CLOCK.now_ns())
        frame = AudioFrame(format="s16", layout="mono", samples=WINDOW_SAMPLES)
        frame.planes[0].update(sound.tobytes())
        frame.sample_rate, frame.time_base = OPUS_RATE_HZ, fractions.Fraction(1, OPUS_RATE_HZ)
        frame.pts = self._packets * WINDOW_SAMPLES
        self._packets += 1
        return frame


class ToneServer:
    """Answers each spoken turn with a tone after DELAY_MS of quiet; stops HOLD_MS into a barge-in."""

    def __init__(self, reply_ms: float, seats: int = 1) -> None:
        self.reply_ms, self.seats = reply_ms, seats
        self.answer_ms: float | None = None  # the truth: quiet began, to the tone's first packet
        self.stop_ms: float | None = None  # the truth: barge-in heard, to the tone's last packet
        self.cancel_ms: float | None = None  # the truth: barge-in heard, to nothing in flight
        self.flying = False
        self.deleted = 0
        self._barge_ns = 0
        self._mouth, self._sound = Mouth(), ReceivedSound()
        self._work: asyncio.Task[None] | None = None
        self._peer: RTCPeerConnection | None = None

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/realtime/calls", self._call, methods=["POST"]),
                Route("/v1/realtime/calls/rtc_1", self._delete, methods=["DELETE"]),
                Route("/v1/realtime/calls/rtc_1/timeline", self._timeline),
                Route("/v1/models", self._models),
            ]
        )

    async def close(self) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        if self._peer is not None:
            await self._peer.close()

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"data": [{"id": "tone"}]})

    async def _call(self, request: Request) -> Response:
        if self.seats == 0:
            error = {
                "message": "both seats are taken",
                "type": "server_error",
                "param": None,
                "code": "server_busy",
            }
            return JSONResponse({"error": error}, 503, {"retry-after": "7"})
        self._mouth, self._sound = Mouth(), ReceivedSound()
        self._peer = peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        peer.on("datachannel", self._opened)
        await peer.setRemoteDescription(RTCSessionDescription((await request.body()).decode(), "offer"))
        peer.addTrack(self._mouth)
        receiver: Any = peer.getTransceivers()[0].receiver
        receiver._RTCRtpReceiver__jitter_buffer = Ear(CLOCK, self._sound)
        await peer.setLocalDescription(await peer.createAnswer())
        headers = {"location": "/v1/realtime/calls/rtc_1"}
        return Response(peer.localDescription.sdp, 201, headers, "application/sdp")

    async def _delete(self, _: Request) -> Response:
        self.deleted += 1
        await self.close()
        return Response(status_code=200)

    async def _timeline(self, _: Request) -> Response:
        total = self.answer_ms or 0
        parts = {"vad": total - 50, "playout": 50}
        turns = [{"turn_id": "t", "reply_id": "resp_1", "parts_ms": parts, "total_ms": total}]
        return JSONResponse({"in_flight": {"playout": ["resp_1"] if self.flying else []}, "turns": turns})

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        self._tell("session.created", session={})
        self._work = asyncio.create_task(self._converse())

    def _tell(self, kind: str, **fields: Any) -> None:
        self._channel.send(json.dumps({"type": kind, **fields}))

    async def _converse(self) -> None:
        """A turn, its reply, and so on."""
        while True:
            voice_ns = await self._end_of_turn()
            self._mouth.sent_ns.clear()
            self._mouth.queue.extend(np.split(voiced(self.reply_ms), int(self.reply_ms / 20)))
            self.flying = True
            self._tell("response.created", response={"id": "resp_1"})
            self._tell("response.output_audio_transcript.done", response_id="resp_1", transcript="la la")
            if await self._played(voice_ns):
                self.flying = False
                self._tell("output_audio_buffer.stopped", response_id="resp_1")
            else:
                self._tell("output_audio_buffer.cleared", response_id="resp_1")
                await asyncio.sleep(CANCEL_MS / 1000)
                self.flying = False
                self.cancel_ms = ms_between(self._barge_ns, CLOCK.now_ns())

    async def _end_of_turn(self) -> int:
        begun_ns = CLOCK.now_ns()
        while True:
            await asyncio.sleep(0.004)
            last = last_voice(self._sound.windows, CLOCK.now_ns())
            if (
                last is not None
                and last.arrival_ns > begun_ns
                and ms_between(last.arrival_ns, CLOCK.now_ns()) >= DELAY_MS
            ):
                return last.arrival_ns

    async def _played(self, voice_ns: int) -> bool:
        """Wait until the reply is played (true) or spoken over for long enough."""
        since_ns = CLOCK.now_ns()
        while self._mouth.queue:
            await asyncio.sleep(0.004)
            if self._mouth.sent_ns:
                self.answer_ms = ms_between(voice_ns, self._mouth.sent_ns[0])
            barge = first_voice(self._sound.windows, since_ns)
            if barge is not None and ms_between(barge.arrival_ns, CLOCK.now_ns()) >= HOLD_MS:
                self._mouth.queue.clear()
                self._barge_ns = barge.arrival_ns
                self.stop_ms = ms_between(barge.arrival_ns, self._mouth.sent_ns[-1])
                return False
        return True


@asynccontextmanager
async def tone_server(reply_ms: float = 400, seats: int = 1) -> AsyncGenerator[tuple[ToneServer, str]]:
    server = ToneServer(reply_ms, seats)
    async with serving(server.app()) as url:
        try:
            yield server, url
        finally:
            await server.close()


def best_of_three(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], Coroutine[Any, Any, None]]:
    """Milliseconds on a machine that does other things too: one undisturbed try out of three is asked for."""

    @wraps(test)
    async def tried() -> None:
        for _ in range(2):
            try:
                return await test()
            except AssertionError:
                continue
        await test()

    return tried


@best_of_three
async def test_voice_to_voice_is_the_servers_delay() -> None:
    async with tone_server() as (server, url), Caller(url, CLOCK) as caller:
        result = await ask(caller, CLOCK, "la?", np.concatenate([voiced(400), silence(9600)]))
        assert result.failure is None
        assert server.answer_ms is not None
        assert server.answer_ms >= DELAY_MS
        assert result.voice_to_voice_ms == pytest.approx(server.answer_ms, abs=40)
        assert result.network_ms == pytest.approx(0, abs=40)
        assert result.sum_error_ms == pytest.approx(0, abs=0.1)
        assert (result.transcript, result.holes) == ("la la", [])
        assert result.reply is not None
        assert first_voice(caller.sound.windows, 0) is not None
    assert server.deleted == 1


@best_of_three
async def test_stop_and_cancel_are_the_servers_own() -> None:
    async with tone_server(reply_ms=4000) as (server, url), Caller(url, CLOCK) as caller:
        result = await interrupt(caller, CLOCK, voiced(300), voiced(500))
        assert (result.failure, result.void) == (None, None)
        assert server.stop_ms is not None
        assert result.stop_ms is not None
        # the codec's look-ahead carries the tone's end into one packet more, and the path adds up to two
        assert server.stop_ms - 20 <= result.stop_ms <= server.stop_ms + 70
        assert server.cancel_ms is not None
        assert result.cancel_ms is not None
        assert server.cancel_ms - 20 <= result.cancel_ms <= server.cancel_ms + 120  # a poll and its way


async def test_a_reply_that_is_over_measures_no_stop():
    async with tone_server(reply_ms=400) as (_, url), Caller(url, CLOCK) as caller:
        result = await interrupt(caller, CLOCK, voiced(300), voiced(300))
        assert result.stop_ms is None
        assert result.void is not None


@best_of_three
async def test_no_greeting_costs_a_second_and_a_bare_time_can_be_had() -> None:
    async with tone_server() as (server, url), Caller(url, CLOCK) as caller:
        await settle(caller)
        voice_ms = await time_to_voice(caller, voiced(300))
        assert voice_ms == pytest.approx(server.answer_ms, abs=40)


async def test_a_busy_server_is_a_busy_error():
    async with tone_server(seats=0) as (_, url):
        with pytest.raises(BusyError, match="both seats are taken") as caught:
            async with Caller(url, CLOCK):
                pass
        assert caught.value.retry_after_s == 7


async def test_silence_is_nothing_to_say():
    async with tone_server() as (_, url), Caller(url, CLOCK) as caller:
        with pytest.raises(ValueError, match="no voice"):
            await caller.say(silence(4800))


async def test_the_bench_prints_json_alone(capsys: pytest.CaptureFixture[str], tmp_path: Any):
    write_wav(tmp_path / "q.wav", voiced(400), OPUS_RATE_HZ)
    async with tone_server() as (_, url):
        options = [
            "--url",
            url,
            "--wav",
            str(tmp_path),
            "--barges",
            "0",
            "--no-wer",
            "--turns",
            "2",
            "--json",
        ]
        assert await asyncio.to_thread(bench.main, options) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["voice_to_voice_ms"]["n"] == 2
    assert report["voice_to_voice_ms"]["p50"] == pytest.approx(DELAY_MS + 30, abs=60)
    assert report["models"] == ["tone"]
    assert report["failures"] == []
    assert "turn 2 of 2" in captured.err
