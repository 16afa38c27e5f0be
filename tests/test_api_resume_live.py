"""A client that loses its WebSocket in the middle of a reply and comes back, against the running server."""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Generator
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.live_server import LiveServer
from tests.realtime_server import question, realtime_server
from voice_agent.models.tones import words_heard

pytestmark = [pytest.mark.process, pytest.mark.weights]
STORY = "Once upon a time an old sailor lived alone near the harbour and painted little wooden boats every evening."
KEY = "a-real-key"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    extra = f'api_keys = ["{KEY}"]\n'
    with realtime_server(
        tmp_path_factory.mktemp("resume"), extra, environment={"VOICE_AGENT_SESSION_RESUME_S": "6"}
    ) as running:
        yield running


class Line:
    """One connection; `events` all that came over it."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.events: list[dict[str, Any]] = []

    async def until(self, kind: str) -> dict[str, Any]:
        async with asyncio.timeout(20):
            while True:
                event = json.loads(await self.connection.recv())
                self.events.append(event)
                assert event["type"] != "error", event
                if event["type"] == kind:
                    return event

    async def send(self, event: dict[str, Any]) -> None:
        await self.connection.send(json.dumps(event))

    def lose(self) -> None:
        """As a network does: no close frame."""
        self.connection.transport.abort()


def to(server: LiveServer, query: str, key: str = KEY) -> Any:
    url = f"{server.url.replace('http', 'ws')}/v1/realtime?{query}"
    return connect(url, additional_headers={"authorization": f"Bearer {key}"} if key else {}, max_size=None)


def sound_of(events: list[dict[str, Any]]) -> bytes:
    deltas = (event["delta"] for event in events if event["type"] == "response.output_audio.delta")
    return b"".join(b64decode(delta) for delta in deltas)


def session(instructions: str, **more: Any) -> dict[str, Any]:
    whole = {"type": "realtime", "instructions": instructions} | more
    return {"type": "session.update", "session": whole}


async def test_a_reply_goes_on_over_three_connections_and_nothing_is_missed_or_repeated(
    server: LiveServer,
) -> None:
    got: list[dict[str, Any]] = []
    async with to(server, "resumable=true") as first:
        line = Line(first)
        created = await line.until("session.created")
        token = created["resume"]["token"]
        assert created["resume"]["window_s"] == 6
        async with to(server, f"call_id={created['session']['id']}") as beside:
            witness = Line(beside)
            assert "resume" not in await witness.until("session.created")
            await line.send(session(f"slowly {STORY}"))
            await line.send({"type": "response.create"})
            await line.until("response.output_audio.delta")
            line.lose()
            got += line.events
            for wanted in ("response.output_audio.delta", "response.done"):
                await asyncio.sleep(0.5)  # the reply goes on meanwhile
                query = f"resume={token}&after={got[-1]['event_id']}"
                async with to(server, query, key="") as again:  # the token is all that it needs
                    line = Line(again)
                    resumed = await line.until("session.resumed")
                    assert resumed["received"] == 2
                    await line.until(wanted)
                    line.lose()
                    got += line.events[1:]
            await witness.until("response.done")
    seen = [event["event_id"] for event in witness.events[1:]]
    ids = [event["event_id"] for event in got]
    assert len(set(ids)) == len(ids) and ids[ids.index(seen[0]) :] == seen
    words = [word.strip(".") for word in STORY.split()]
    heard = words_heard(np.frombuffer(sound_of(got), "<i2").astype(np.int16), 24_000, words)
    assert [word for word, _ in heard] == words


async def test_a_question_that_was_cut_by_the_loss_is_heard_whole(server: LiveServer) -> None:
    pcm = question().astype("<i2").tobytes()
    appends = [
        {"type": "input_audio_buffer.append", "audio": b64encode(pcm[at : at + 4800]).decode()}
        for at in range(0, len(pcm), 4800)
    ]
    detection: dict[str, Any] = {"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}}
    events = [session("say Yes.", audio=detection), *appends, {"type": "input_audio_buffer.commit"}]
    async with to(server, "resumable=true") as first:
        line = Line(first)
        token = (await line.until("session.created"))["resume"]["token"]
        for event in events[: len(events) // 2]:
            await line.send(event)
        await line.until("session.updated")
        line.lose()
    async with to(server, f"resume={token}&after={line.events[-1]['event_id']}") as second:
        line = Line(second)
        taken = (await line.until("session.resumed"))["received"]
        assert 1 <= taken <= len(events) // 2
        for event in events[taken:]:
            await line.send(event)
        done = await line.until("conversation.item.input_audio_transcription.completed")
        assert done["usage"]["seconds"] == pytest.approx(len(pcm) / 48_000, abs=0.1)


async def refusal(server: LiveServer, query: str, key: str = KEY) -> tuple[int, dict[str, Any]]:
    with pytest.raises(InvalidStatus) as refused:
        async with to(server, query, key):
            pass
    response = refused.value.response
    return response.status_code, json.loads(response.body or b"")["error"]


async def test_who_is_too_late_or_wrong_is_told_so(server: LiveServer) -> None:
    async with to(server, "resumable=true") as first:
        line = Line(first)
        created = await line.until("session.created")
        token = created["resume"]["token"]
        status, error = await refusal(server, f"resume={token}&after=nothing")
        assert (status, error["code"], error["param"]) == (404, "resume_cursor_unknown", "after")
        status, error = await refusal(server, "resume=nobody&after=x")
        assert (status, error["code"], error["param"]) == (404, "resume_token_unknown", "resume")
        assert (await refusal(server, "resume=nobody&after=x", key=""))[0] == 401
        line.lose()
    call = f"{server.url}/v1/realtime/calls/{created['session']['id']}/timeline"
    headers = {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(headers=headers) as http:
        for _ in range(150):
            await asyncio.sleep(0.1)
            if (await http.get(call)).json()["end_reason"] == "client gone":
                break
    status, error = await refusal(server, f"resume={token}&after={created['event_id']}")
    assert (status, error["code"]) == (404, "resume_token_unknown")


async def test_a_second_connection_takes_the_place_of_a_first_that_hangs(server: LiveServer) -> None:
    async with to(server, "resumable=true") as first:
        created = await Line(first).until("session.created")
        query = f"resume={created['resume']['token']}&after={created['event_id']}"
        async with to(server, query) as second:
            line = Line(second)
            await line.until("session.resumed")
            with pytest.raises(ConnectionClosed) as closed:
                await first.recv()
            assert closed.value.rcvd and closed.value.rcvd.code == 4001
            await line.send(session("say Yes."))
            await line.until("session.updated")


async def test_who_hangs_up_has_ended_the_call(server: LiveServer) -> None:
    async with to(server, "resumable=true") as first:
        created = await Line(first).until("session.created")
    await asyncio.sleep(0.2)
    query = f"resume={created['resume']['token']}&after={created['event_id']}"
    assert (await refusal(server, query))[1]["code"] == "resume_token_unknown"


async def test_who_did_not_ask_for_it_gets_no_token_and_ends_with_its_socket(server: LiveServer) -> None:
    async with to(server, "") as first:
        line = Line(first)
        created = await line.until("session.created")
        assert "resume" not in created
        line.lose()
    await asyncio.sleep(0.3)
    assert (await refusal(server, f"call_id={created['session']['id']}"))[0] == 404
