"""Signalling over HTTP, through the real application."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from signaling import IceServer, IceServers, create_signaling_routes
from signaling.calls import CallRequest
from tests.scripted_calls import CANDIDATE, OFFER, ScriptedCall, Stage
from voice_agent.api.app import AppParts, create_app
from voice_agent.errors import EngineDied, OfferRejected, RemoteProtocolError

CALLS = "/v1/realtime/calls"
SDP = {"content-type": "application/sdp"}
FRAGMENT = {"content-type": "application/trickle-ice-sdpfrag"}
ICE = IceServers([IceServer(("stun:stun.example.org",)), IceServer(("turn:turn.example.org",))], "secret")


@asynccontextmanager
async def client_of(stage: Stage, address: str = "127.0.0.1") -> AsyncGenerator[httpx.AsyncClient]:
    app = create_app(AppParts(create_signaling_routes(stage.registry, ICE), lambda: [], "voice-agent"))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(address, 5000))
    async with (
        stage.running(),
        httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as client,
    ):
        yield client


def error_of(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"] and response.headers["x-request-id"].startswith("req_")
    return body["error"]


async def test_an_offer_is_answered_as_openai_and_whip_do() -> None:
    stage = Stage()
    async with client_of(stage) as client:
        response = await client.post(
            CALLS, content=OFFER, headers={"content-type": "application/sdp; charset=utf-8"}
        )
        assert response.status_code == 201
        assert response.headers["content-type"] == "application/sdp"
        assert response.text == ScriptedCall.answer_sdp
        location = response.headers["location"]
        assert location == f"{CALLS}/{stage.calls[0].request.call_id}"
        assert "Location" in response.headers["access-control-expose-headers"]
        links = response.headers.get_list("link")
        assert links[0] == '<stun:stun.example.org>; rel="ice-server"'
        assert 'credential-type="password"' in links[1]
        assert stage.calls[0].request.offer_sdp == OFFER and stage.calls[0].request.session is None


@pytest.mark.parametrize("as_file", [False, True])
async def test_a_form_brings_offer_and_session(as_file: bool) -> None:
    stage = Stage()
    session = json.dumps({"type": "realtime"})
    name = "part" if as_file else None
    parts = {"sdp": (name, OFFER, "application/sdp"), "session": (name, session, "application/json")}
    async with client_of(stage) as client:
        response = await client.post(CALLS, files=parts)
        assert response.status_code == 201, response.text
        assert stage.calls[0].request == CallRequest(stage.calls[0].request.call_id, OFFER, session)


async def test_a_form_without_offer_or_boundary_is_refused() -> None:
    stage = Stage()
    async with client_of(stage) as client:
        response = await client.post(CALLS, files={"session": (None, "{}")})
        assert response.status_code == 400 and error_of(response)["param"] == "sdp"
        for content_type in ("multipart/form-data", "multipart/form-data; boundary=x"):
            response = await client.post(CALLS, content=b"--y\r\nzz", headers={"content-type": content_type})
            assert response.status_code == 400, response.text
            error_of(response)
        big = await client.post(CALLS, files={"sdp": (None, "x" * 100_000)})
        assert big.status_code == 413
        assert stage.calls == []


async def test_trickle_takes_end_marks_and_refuses_garbage_and_the_dead() -> None:
    stage = Stage()
    async with client_of(stage) as client:
        location = (await client.post(CALLS, content=OFFER, headers=SDP)).headers["location"]
        for text in ("a=candidate:", "a=candidate:null", f"a=mid:0\r\na={CANDIDATE}\r\n", ""):
            assert (await client.patch(location, content=text, headers=FRAGMENT)).status_code == 204
        assert f"a={CANDIDATE}" in stage.calls[0].fragments[2]
        garbage = await client.patch(location, content="garbage", headers=FRAGMENT)
        assert garbage.status_code == 400 and error_of(garbage)["param"] == "candidate"
        binary = await client.patch(location, content=b"\xff\xfe", headers=FRAGMENT)
        assert binary.status_code == 400
        wrong = await client.patch(location, content="{}", headers={"content-type": "application/json"})
        assert wrong.status_code == 415 and wrong.headers["accept-patch"] == FRAGMENT["content-type"]
        huge = await client.patch(location, content="a" * 20_000, headers=FRAGMENT)
        assert huge.status_code == 413
        await client.delete(location)
        late = await client.patch(location, content="", headers=FRAGMENT)
        assert late.status_code == 404 and error_of(late)["code"] == "call_id_not_found"


@pytest.mark.parametrize(
    ("method", "suffix", "status", "again"), [("DELETE", "", 204, 204), ("POST", "/hangup", 200, 404)]
)
async def test_a_call_is_hung_up_once(method: str, suffix: str, status: int, again: int) -> None:
    stage = Stage()
    async with client_of(stage) as client:
        location = (await client.post(CALLS, content=OFFER, headers=SDP)).headers["location"]
        assert (await client.request(method, location + suffix)).status_code == status
        assert (await client.request(method, location + suffix)).status_code == again
        assert stage.calls[0].reasons == ["client_hangup"]


async def test_deleting_a_call_that_just_ended_by_itself_is_no_error() -> None:
    """Its sound may end before the request arrives: a browser would print the refusal in red."""
    stage = Stage()
    async with client_of(stage) as client:
        location = (await client.post(CALLS, content=OFFER, headers=SDP)).headers["location"]
        stage.calls[0].vanish()
        await stage.settle()
        assert (await client.delete(location)).status_code == 204
        await stage.clock.advance_ms(61_000)
        forgotten = await client.delete(location)
        assert forgotten.status_code == 404 and error_of(forgotten)["code"] == "call_id_not_found"


async def test_the_timeline_of_a_call_can_be_read_also_just_after_its_end() -> None:
    stage = Stage()
    async with client_of(stage) as client:
        location = (await client.post(CALLS, content=OFFER, headers=SDP)).headers["location"]
        assert (await client.get(f"{location}/timeline")).json()["state"] == "live"
        await client.delete(location)
        await stage.settle()
        assert (await client.get(f"{location}/timeline")).json()["state"] == "ended"
        unknown = await client.get(f"{CALLS}/rtc_unknown/timeline")
        assert unknown.status_code == 404 and error_of(unknown)["code"] == "call_id_not_found"


async def test_a_full_server_says_when_to_come_again() -> None:
    stage = Stage(max_sessions=1)
    async with client_of(stage) as client:
        await client.post(CALLS, content=OFFER, headers=SDP)
        response = await client.post(CALLS, content=OFFER, headers=SDP)
        assert response.status_code == 503 and response.headers["retry-after"] == "6"
        assert error_of(response)["code"] == "server_busy"


async def test_bad_offers_take_no_seat() -> None:
    stage = Stage(max_sessions=1)
    async with client_of(stage) as client:
        for content, headers, status in [
            (b"garbage", SDP, 400),
            (b"\xff\xff", SDP, 400),
            (b"", SDP, 400),
            (OFFER.replace("m=audio", "m=video").encode(), SDP, 400),
            (b"v=0\r\n" + b"x" * 1_000_000, SDP, 413),
            (OFFER.encode(), {"content-type": "text/plain"}, 415),
            (OFFER.encode(), {}, 415),
        ]:
            response = await client.post(CALLS, content=content, headers=headers)
            assert response.status_code == status, response.text
            error_of(response)
        assert stage.calls == [] and stage.seats.in_use == 0


async def test_a_body_that_hides_its_length_is_cut_off() -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 1024

    stage = Stage()
    async with client_of(stage) as client:
        response = await client.post(CALLS, content=endless(), headers=SDP)
        assert response.status_code == 413


@pytest.mark.parametrize(
    ("error", "status", "code", "param"),
    [
        (OfferRejected("no common codec", "sdp"), 400, "invalid_offer", "sdp"),
        (
            RemoteProtocolError("unknown_parameter", "what", "session.x"),
            400,
            "unknown_parameter",
            "session.x",
        ),
        (EngineDied("gone"), 503, "engine_died", None),
        (ZeroDivisionError("secret detail"), 500, "internal_error", None),
    ],
)
async def test_what_fails_inside_becomes_an_openai_error_and_frees_the_seat(
    error: Exception, status: int, code: str, param: str | None
) -> None:
    stage = Stage(max_sessions=1)
    async with client_of(stage) as client:
        stage.create_error = error
        response = await client.post(CALLS, content=OFFER, headers=SDP)
        assert response.status_code == status
        body = error_of(response)
        assert (body["code"], body["param"]) == (code, param)
        assert "secret detail" not in response.text
        stage.create_error = None
        assert (await client.post(CALLS, content=OFFER, headers=SDP)).status_code == 201


async def test_ice_servers_are_what_a_browser_takes() -> None:
    async with client_of(Stage()) as client:
        response = await client.get("/v1/realtime/ice_servers")
        assert response.headers["cache-control"] == "no-store"
        stun, turn = response.json()["iceServers"]
        assert stun == {"urls": ["stun:stun.example.org"]}
        assert turn["username"] and turn["credential"]
