"""What the page asks the server besides a call: /page.json, and the last turns of a timeline."""

from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from signaling.calls import CallRegistry
from signaling.ice import IceServers
from signaling.routes import create_signaling_routes
from tests.scripted_calls import OFFER, ScriptedCall, Stage
from voice_agent.api.app import AppParts, create_app
from voice_agent.api.auth import Access

CALLS = "/v1/realtime/calls"


def client_of(parts: AppParts) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(parts), client=("127.0.0.1", 5000))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8000")


async def list_voices(request: Request) -> Response:
    return JSONResponse({})


async def test_the_page_is_told_what_the_server_is_with_200_also_while_it_is_not_ready() -> None:
    reasons, lasting = ["loading the voice"], [""]
    parts = AppParts([], lambda: reasons, "voice-agent", lasting=lambda: lasting[0])
    async with client_of(parts) as client:
        response = await client.get("/page.json")
        assert response.status_code == 200 and response.headers["cache-control"] == "no-store"
        facts = response.json()
        instance = facts.pop("instance")
        assert facts == {
            "model": "voice-agent",
            "needs_key": False,
            "voices_path": None,
            "ready": False,
            "state": "starting",
            "reasons": ["loading the voice"],
        }
        lasting[0] = "stopped"
        assert (await client.get("/page.json")).json()["state"] == "stopped"
        reasons.clear()
        later = (await client.get("/page.json")).json()
        assert later["ready"] and later["state"] == "ready" and later["instance"] == instance
    async with client_of(AppParts([], lambda: [], "voice-agent")) as restarted:
        assert (await restarted.get("/page.json")).json()["instance"] != instance


async def test_the_page_is_told_of_keys_and_of_the_list_of_voices() -> None:
    voices = Route("/v1/audio/voices", list_voices)
    async with client_of(AppParts([voices], lambda: [], "m", Access(keys=("sesame",)))) as client:
        facts = (await client.get("/page.json")).json()
        assert facts["needs_key"] is True and facts["voices_path"] == "/v1/audio/voices"


class TalkedCall(ScriptedCall):
    """A call in which three turns were had."""

    def timeline(self) -> dict[str, Any]:
        return {"state": "speaking", "turns": [{"turn_id": n} for n in (1, 2, 3)], "history": ["a"]}


@pytest.mark.parametrize(
    ("query", "turns", "history"),
    [("", [1, 2, 3], True), ("?turns=2", [2, 3], False), ("?turns=9", [1, 2, 3], False)],
)
async def test_a_timeline_can_be_asked_for_its_last_turns_alone(
    query: str, turns: list[int], history: bool
) -> None:
    stage = Stage()

    async def create(request: Any) -> ScriptedCall:
        return TalkedCall(request)

    registry = CallRegistry(create, stage.seats, stage.clock)
    routes = create_signaling_routes(registry, IceServers())
    async with registry, client_of(AppParts(routes, lambda: [], "m")) as client:
        made = await client.post(CALLS, content=OFFER, headers={"content-type": "application/sdp"})
        inside = (await client.get(f"{made.headers['location']}/timeline{query}")).json()
        assert [turn["turn_id"] for turn in inside["turns"]] == turns
        assert ("history" in inside) is history and inside["state"] == "speaking"
        for wrong in ("0", "-1", "x", "101", ""):
            refused = await client.get(f"{made.headers['location']}/timeline?turns={wrong}")
            assert refused.status_code == 400 and refused.json()["error"]["param"] == "turns"
