"""A call over WebRTC that a server controls beside it: the stock openai client for everything but the media."""

import asyncio
from base64 import b64encode
from collections.abc import Generator
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, AuthenticationError, NotFoundError
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.live_server import LiveServer
from tests.realtime_server import realtime_server
from voice_agent.bench.caller import Caller
from voice_agent.clock import MonotonicClock

pytestmark = [pytest.mark.process, pytest.mark.loopback, pytest.mark.weights]
KEY = "a-real-key"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    extra = f'api_keys = ["{KEY}"]\nallowed_origins = ["https://friend.example"]\n'
    with realtime_server(tmp_path_factory.mktemp("beside"), extra) as running:
        yield running


def client_of(server: LiveServer, key: str = KEY) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key)


async def until(connection: Any, kind: str) -> Any:
    async with asyncio.timeout(20):
        async for event in connection:
            if event.type == kind:
                return event
    raise AssertionError(f"no {kind}")


async def over(connection: Any) -> None:
    """Wait for a regular close."""
    async with asyncio.timeout(20):
        async for _ in connection:
            pass


async def test_a_line_beside_a_call_hears_and_commands_it_and_ends_with_it(server: LiveServer) -> None:
    async with client_of(server) as client, Caller(server.url, MonotonicClock(), KEY) as caller:
        call_id = caller.call_id
        async with client.realtime.connect(call_id=call_id) as beside:
            await until(beside, "session.created")
            await beside.session.update(session={"type": "realtime", "instructions": "say Fine."})
            assert (await until(beside, "session.updated")).session.instructions == "say Fine."
        # it may go and come again: the call lives on
        async with client.realtime.connect(call_id=call_id) as beside:
            assert (await until(beside, "session.created")).session.instructions == "say Fine."
            await beside.response.create()
            assert (await until(beside, "response.done")).response.status == "completed"
            await until(beside, "output_audio_buffer.stopped")
            assert await caller.event(lambda stamped: stamped.kind == "output_audio_buffer.stopped", 20)
            kinds = [stamped.kind for stamped in caller.events]
            assert kinds.count("session.created") == 1 and "response.done" in kinds
            await beside.input_audio_buffer.append(audio=b64encode(bytes(960)).decode())
            assert (await until(beside, "error")).error.code == "invalid_event_for_transport"
            await client.realtime.calls.hangup(call_id)
            await over(beside)
        with pytest.raises(NotFoundError):
            await client.realtime.calls.hangup(call_id)
        with pytest.raises(InvalidStatus) as refused:
            async with client.realtime.connect(call_id=call_id):
                pass
        assert refused.value.response.status_code == 404
        assert b"call_id_not_found" in (refused.value.response.body or b"")


async def test_a_call_made_with_a_client_secret_has_its_session_and_can_be_joined_with_it(
    server: LiveServer,
) -> None:
    async with client_of(server) as client:
        made = await client.realtime.client_secrets.create(
            session={"type": "realtime", "instructions": "say Pinned."}
        )
        async with (
            client_of(server, made.value) as holder,
            Caller(server.url, MonotonicClock(), made.value) as caller,
            holder.realtime.connect(call_id=caller.call_id) as beside,
        ):
            created: Any = await beside.recv()
            assert created.session.instructions == "say Pinned."
        async with client_of(server, "ek_nonsense") as stranger:
            with pytest.raises(AuthenticationError):
                await stranger.realtime.client_secrets.create()


REFUSED: list[tuple[dict[str, str], list[str], str, int]] = [
    ({}, [], "", 401),
    ({"authorization": "Bearer wrong"}, [], "", 401),
    ({}, ["realtime", "openai-insecure-api-key.wrong"], "", 401),
    ({}, ["realtime", "openai-insecure-api-key.ek_wrong"], "", 401),
    ({"authorization": f"Bearer {KEY}", "origin": "https://evil.example"}, [], "", 403),
    ({"authorization": f"Bearer {KEY}"}, [], "?model=nobodys", 404),
    ({"authorization": f"Bearer {KEY}"}, [], "?call_id=rtc_nobodys", 404),
]


@pytest.mark.parametrize(("headers", "protocols", "query", "status"), REFUSED)
async def test_a_socket_that_may_not_be_is_refused_over_http_with_an_error_body(
    server: LiveServer, headers: dict[str, str], protocols: list[str], query: str, status: int
) -> None:
    url = f"{server.url.replace('http', 'ws')}/v1/realtime{query}"
    with pytest.raises(InvalidStatus) as refused:
        async with connect(url, additional_headers=headers, subprotocols=protocols or None):  # pyright: ignore[reportArgumentType]
            pass
    response = refused.value.response
    assert response.status_code == status
    assert b'"message"' in (response.body or b"") and b'"code"' in (response.body or b"")


ADMITTED: list[tuple[dict[str, str], list[str], str | None]] = [
    ({"authorization": f"Bearer {KEY}"}, [], None),
    ({"api-key": KEY}, [], None),
    ({}, ["realtime", f"openai-insecure-api-key.{KEY}", "openai-agents-sdk.0.20.0"], "realtime"),
    ({"authorization": f"Bearer {KEY}", "origin": "https://friend.example"}, ["realtime"], "realtime"),
    ({"authorization": f"Bearer {KEY}"}, [], None),
]


@pytest.mark.parametrize(("headers", "protocols", "chosen"), ADMITTED)
async def test_every_way_to_bring_a_key_is_taken(
    server: LiveServer, headers: dict[str, str], protocols: list[str], chosen: str | None
) -> None:
    url = f"{server.url.replace('http', 'ws')}/v1/realtime?model=gpt-realtime&temperature=0.8"
    async with connect(url, additional_headers=headers, subprotocols=protocols or None) as socket:  # pyright: ignore[reportArgumentType]
        assert socket.subprotocol == chosen
        assert "session.created" in str(await socket.recv())
    assert KEY not in "".join(server.lines)


async def test_no_seat_is_a_503_before_the_upgrade_and_seats_come_back(server: LiveServer) -> None:
    url = f"{server.url.replace('http', 'ws')}/v1/realtime"
    headers = {"authorization": f"Bearer {KEY}"}
    sockets = [await connect(url, additional_headers=headers) for _ in range(16)]
    try:
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, additional_headers=headers)
        assert refused.value.response.status_code == 503 and "retry-after" in refused.value.response.headers
    finally:
        for socket in sockets:
            socket.transport.abort()  # not even a close frame
    async with asyncio.timeout(10):
        while True:
            try:
                async with connect(url, additional_headers=headers) as socket:
                    assert "session.created" in str(await socket.recv())
                    return
            except InvalidStatus:
                await asyncio.sleep(0.1)


async def test_a_timeline_shows_a_call_over_a_socket_too(server: LiveServer) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    async with client_of(server) as client, client.realtime.connect(model="voice-agent") as connection:
        created: Any = await connection.recv()
        call_id = created.session.id
        async with httpx.AsyncClient(base_url=server.url, headers=headers) as http:
            inside = (await http.get(f"/v1/realtime/calls/{call_id}/timeline")).json()
            assert inside["id"] == call_id and inside["state"] == "listening" and inside["connected"]
            candidate = "candidate:1 1 udp 2130706431 192.0.2.1 54321 typ host"
            kind = {"content-type": "application/trickle-ice-sdpfrag"}
            refused = await http.patch(f"/v1/realtime/calls/{call_id}", content=candidate, headers=kind)
            assert refused.status_code == 400
        await client.realtime.calls.hangup(call_id)
        await over(connection)
