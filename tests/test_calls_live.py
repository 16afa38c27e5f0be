"""Calls to a real server over real WebRTC: a scripted Thinker at a URL, the tone Talker, callers that misbehave.

The user's voice is Piper's, because a voice detector does not take a tone for speech. What was heard is told by tones.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
from aiortc import RTCPeerConnection
from aiortc.mediastreams import VideoStreamTrack

from tests.browser_rig import spoken
from tests.live_server import LiveServer, config_file, live_server
from tests.model_weights import weights
from tests.scripted_thinker import Answer, Forever, ScriptedThinker, Stall, Text, answer
from voice_agent.audio import OPUS_RATE_HZ, Samples
from voice_agent.bench.caller import Caller
from voice_agent.bench.line import Stamped
from voice_agent.clock import MonotonicClock
from voice_agent.models.tones import words_heard

pytestmark = [pytest.mark.loopback, pytest.mark.weights]

SDP = {"content-type": "application/sdp"}
CALLS = "/v1/realtime/calls"
STORY = (
    "Once upon a time an old sailor lived alone near the harbour, and every evening he painted little wooden boats, "
    "because the children of the village loved their bright colours, while nobody ever asked where he came from."
)
TOML = """
profile = "scripted"
[session]
connect_timeout_s = 3
[thinker]
url = "{url}"
model = "scripted"
stall_s = 4
[recognizer.options]
text = "Tell me something."
[server]
drain_s = 1
"""


def question(text: str = "Tell me something.") -> Samples:
    return spoken(text)


@pytest.fixture(scope="module")
def asking() -> Samples:
    weights("piper-joe")
    return question()


@asynccontextmanager
async def serving(script: Any, tmp_path: Path) -> AsyncGenerator[tuple[LiveServer, ScriptedThinker]]:
    """A server in front of a scripted Thinker."""
    async with ScriptedThinker(script) as thinker:
        config = config_file(tmp_path, TOML.format(url=thinker.url))
        context = live_server("--config", str(config))
        server = await asyncio.to_thread(context.__enter__)
        try:
            yield server, thinker
        finally:
            await asyncio.to_thread(context.__exit__, None, None, None)


def caller_of(server: LiveServer) -> Caller:
    return Caller(server.url, MonotonicClock())


async def ended(caller: Caller, number: int = 1, timeout_s: float = 30) -> dict[str, Any]:
    """The n-th response.done of a call."""

    def nth(_: Stamped) -> bool:
        return sum(stamped.kind == "response.done" for stamped in caller.events) >= number

    assert await caller.event(nth, timeout_s), [stamped.kind for stamped in caller.events]
    done = [stamped.event for stamped in caller.events if stamped.kind == "response.done"]
    return done[number - 1]["response"]


async def played(caller: Caller, kind: str = "output_audio_buffer.stopped", timeout_s: float = 40) -> None:
    assert await caller.event(lambda stamped: stamped.kind == kind, timeout_s)


def tones_in(caller: Caller, text: str) -> list[str]:
    vocabulary = list(dict.fromkeys(word.strip(".,") for word in text.split()))
    return [word for word, _ in words_heard(caller.sound.samples(), OPUS_RATE_HZ, vocabulary)]


async def test_a_thinker_behind_a_url_is_heard_word_for_word_and_keeps_its_history(
    tmp_path: Path, asking: Samples
) -> None:
    text = "The harbour opens early and closes late."
    async with serving([answer(text), answer("Good night.")], tmp_path) as (server, thinker):
        async with caller_of(server) as caller:
            await caller.say(asking)
            assert (await ended(caller))["status"] == "completed"
            await played(caller)
            assert tones_in(caller, text) == [word.strip(".") for word in text.split()]
            await caller.say(asking)
            await ended(caller, 2)
        second = thinker.requests[-1]["messages"]
        assert [m["role"] for m in second] == ["system", "user", "assistant", "user"]
        assert second[2]["content"] == text
        assert not thinker.problems


async def test_after_a_barge_in_history_is_what_reached_the_callers_ear(
    tmp_path: Path, asking: Samples
) -> None:
    async with serving([answer(STORY), answer("Fine.")], tmp_path) as (server, thinker):
        async with caller_of(server) as caller:
            await caller.say(asking)
            await played(caller, "output_audio_buffer.started")
            await asyncio.sleep(2)
            await caller.say(spoken("Stop it, please, I have heard enough of this."))
            await played(caller, "output_audio_buffer.cleared")
            cut = await caller.event(lambda s: s.kind == "conversation.item.truncated", 5)
            assert cut
            inside = await caller.timeline()
            await asyncio.sleep(0.3)
            heard = tones_in(caller, STORY)
            stored = next(m["content"] for m in inside["history"] if m["role"] == "assistant").split()
            assert abs(len(heard) - len(stored)) <= 1 and 3 < len(stored) < len(STORY.split())
            inside = await caller.timeline()
            assert inside["in_flight"]["thinker"] == [] or inside["turns"][-1]["reply_id"]
        await thinker.idle()


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (Answer([]), "thinker_empty"),
        (Answer([Text("Well, "), Stall()]), "thinker_stalled"),
        (Answer([], status=400), "thinker_rejected"),
    ],
)
async def test_a_thinker_that_answers_nothing_or_stalls_ends_the_reply_and_the_next_one_works(
    tmp_path: Path, asking: Samples, first: Answer, code: str
) -> None:
    # what may go better the second time is tried again as long as nothing of it was played
    tries = 1 if code == "thinker_rejected" else 2
    script = [*[first] * tries, answer("Here again.")]
    async with serving(script, tmp_path) as (server, _), caller_of(server) as caller:
        await caller.say(asking)
        failed = await ended(caller)
        assert failed["status"] == "failed"
        assert failed["status_details"]["error"]["code"] == code
        await asyncio.sleep(1)
        await caller.say(asking)
        assert (await ended(caller, 2))["status"] == "completed"


async def test_a_thinker_that_never_stops_is_cut_at_its_limit(tmp_path: Path, asking: Samples) -> None:
    async with serving([Answer([Forever("and so on, ")])], tmp_path) as (server, thinker):
        async with caller_of(server) as caller:
            caller.send({"type": "session.update", "session": {"type": "realtime", "max_output_tokens": 40}})
            await caller.event(lambda s: s.kind == "session.updated", 5)
            await caller.say(asking)
            done = await ended(caller)
            assert (done["status"], done["status_details"]["reason"]) == ("incomplete", "max_output_tokens")
        await thinker.idle(5)


async def test_a_thinker_that_is_not_there_is_named(tmp_path: Path, asking: Samples) -> None:
    config = config_file(tmp_path, TOML.format(url="http://127.0.0.1:9/v1"))
    with live_server("--config", str(config)) as server:
        async with caller_of(server) as caller:
            await caller.say(asking)
            failed = await ended(caller)
            assert failed["status_details"]["error"]["code"] == "thinker_unreachable"


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One server for all that only misbehaves: the Thinker is scripted inside."""
    toml = TOML.replace('url = "{url}"\n', "").replace(
        'model = "scripted"', f"options = {{texts = ['{STORY}']}}"
    )
    config = config_file(tmp_path_factory.mktemp("scripted"), toml)
    with live_server("--config", str(config)) as server:
        yield server


async def offer(
    *, audio: bool = True, video: bool = False, channel: bool = False
) -> tuple[RTCPeerConnection, str]:
    peer = RTCPeerConnection()
    if audio:
        peer.addTransceiver("audio")
    if video:
        peer.addTrack(VideoStreamTrack())
    if channel:
        peer.createDataChannel("oai-events")
    await peer.setLocalDescription(await peer.createOffer())
    return peer, peer.localDescription.sdp


async def post_offer(server: LiveServer, body: bytes) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.url, timeout=10) as http:
        return await http.post(CALLS, content=body, headers=SDP)


@pytest.mark.parametrize(
    ("body", "statuses"),
    [
        (b"", {400}),
        (b"garbage", {400}),
        (b"v=0\r\n" * 200_000, {400, 413}),
        (os.urandom(4000), {400}),
        (b"v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n", {400}),
    ],
)
async def test_bad_offers_get_a_400_that_says_why_and_take_no_seat(
    scripted: LiveServer, body: bytes, statuses: set[int]
) -> None:
    for _ in range(3):
        response = await post_offer(scripted, body)
        assert response.status_code in statuses, response.text
        error = response.json()["error"]
        assert error["message"] and set(error) == {"message", "type", "param", "code"}
    async with caller_of(scripted):
        pass


async def test_offers_without_audio_are_refused(scripted: LiveServer) -> None:
    for options in ({"audio": False, "video": True}, {"audio": False, "channel": True}):
        peer, sdp = await offer(**options)
        response = await post_offer(scripted, sdp.encode())
        await peer.close()
        assert response.status_code == 400
        assert "audio" in response.json()["error"]["message"].lower()


async def test_unknown_ended_and_hung_up_calls_are_404(scripted: LiveServer) -> None:
    async with httpx.AsyncClient(base_url=scripted.url) as http:
        peer, sdp = await offer(channel=True)
        location = (await http.post(CALLS, content=sdp, headers=SDP)).headers["location"]
        fragment = {"content-type": "application/trickle-ice-sdpfrag"}
        assert (
            await http.patch(location, content="a=end-of-candidates\r\n", headers=fragment)
        ).status_code == 204
        assert (await http.patch(location, content="\x00garbage", headers=fragment)).status_code == 400
        assert (await http.delete(location)).status_code in {200, 204}
        assert (await http.delete(location)).status_code == 204
        assert (await http.patch(location, content="a=mid:0\r\n", headers=fragment)).status_code == 404
        assert (await http.get(f"{CALLS}/rtc_never/timeline")).status_code == 404
        await peer.close()


async def test_a_peer_that_never_connects_gives_its_seat_back(scripted: LiveServer) -> None:
    async with httpx.AsyncClient(base_url=scripted.url, timeout=30) as http:
        offers = [await offer(channel=True) for _ in range(2)]
        for _, sdp in offers:
            assert (await http.post(CALLS, content=sdp, headers=SDP)).status_code == 201
        third, sdp = await offer(channel=True)
        full = await http.post(CALLS, content=sdp, headers=SDP)
        assert full.status_code == 503 and int(full.headers["retry-after"]) >= 1
        await asyncio.sleep(4)
        again = await http.post(CALLS, content=sdp, headers=SDP)
        assert again.status_code == 201
        await http.delete(again.headers["location"])
        for peer in (third, *(peer for peer, _ in offers)):
            await peer.close()


async def test_a_peer_that_connects_and_never_sends_hears_no_error_and_can_speak_later(
    scripted: LiveServer, asking: Samples
) -> None:
    async with caller_of(scripted) as caller:
        await asyncio.sleep(2)
        assert {stamped.kind for stamped in caller.events} == {"session.created"}
        await caller.say(asking)
        await played(caller, "output_audio_buffer.started")


async def test_one_that_vanishes_in_mid_reply_leaves_the_other_alone(
    scripted: LiveServer, asking: Samples
) -> None:
    async with caller_of(scripted) as steady:
        gone = caller_of(scripted)
        await gone.__aenter__()
        await gone.say(asking)
        await played(gone, "output_audio_buffer.started")
        gone._location = None  # pyright: ignore[reportPrivateUsage]  # no hang-up: as if the cable was cut
        await gone.__aexit__(None, None, None)
        await steady.say(asking)
        assert (await ended(steady))["status"] == "completed"


async def test_an_engine_that_is_killed_ends_its_reply_and_the_call_goes_on(
    scripted: LiveServer, asking: Samples
) -> None:
    async with caller_of(scripted) as caller:
        await caller.say(asking)
        await played(caller, "output_audio_buffer.started")
        children = psutil.Process(scripted.process.pid).children(recursive=True)
        assert len(children) >= 2
        for child in children:
            os.kill(child.pid, signal.SIGKILL)
        done = await ended(caller, timeout_s=10)
        assert done["status"] in {"failed", "completed"}
        async with httpx.AsyncClient(base_url=scripted.url) as http:
            for _ in range(200):
                if (await http.get("/readyz")).status_code == 200:
                    break
                await asyncio.sleep(0.1)
        before = sum(stamped.kind == "response.done" for stamped in caller.events)
        await caller.event(
            lambda s: s.kind.startswith("output_audio_buffer.s") and s.kind.endswith("stopped"), 15
        )
        await caller.say(asking)
        assert (await ended(caller, before + 1))["status"] == "completed"


@pytest.mark.slow
async def test_fifty_calls_leave_nothing_behind(tmp_path: Path, asking: Samples) -> None:
    """Process-tree memory within 10 MB of what it was after 5 calls; no thread, task or descriptor left."""
    with live_server("--profile", "cpu-small") as server:
        after: dict[int, dict[str, float]] = {}
        for number in range(1, 51):
            async with caller_of(server) as caller:
                await caller.say(asking)
                assert await caller.event(lambda s: s.kind == "output_audio_buffer.started", 40)
                await asyncio.sleep(0.5)
            if number in {5, 50}:
                await asyncio.sleep(3)
                after[number] = footprint(server.process.pid)
        assert after[50]["memory_mb"] - after[5]["memory_mb"] <= 10, after
        assert after[50]["threads"] <= after[5]["threads"], after
        assert after[50]["descriptors"] <= after[5]["descriptors"], after


def footprint(pid: int) -> dict[str, float]:
    """What a process and its children hold."""
    parent = psutil.Process(pid)
    tree = [parent, *parent.children(recursive=True)]
    return {
        "memory_mb": float(np.sum([process.memory_info().rss for process in tree])) / 1e6,
        "threads": sum(process.num_threads() for process in tree),
        "descriptors": sum(process.num_fds() for process in tree),
    }
