"""The server makes the first requests itself: a caller's finds everything imported, and what fails is told."""

import asyncio
import json
import logging
import subprocess
import sys

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.live_server import live_server
from voice_agent.errors import BusyError
from voice_agent.first_requests import FRAMES, posted, rehearse

CHILD = (sys.executable, "-m", "tests.first_requests_child")
OK = {"call": 201, "socket call": 101}


@pytest.mark.loopback
def test_no_first_request_of_any_kind_imports_anything() -> None:
    told = subprocess.run(CHILD, check=True, stdout=-1, text=True, timeout=120).stdout
    found = json.loads(told.splitlines()[-1])
    assert {name: status for name, (status, _) in found.items()} == {
        name: OK.get(name, 200) for name in found
    }
    assert {name: modules for name, (_, modules) in found.items() if modules} == {}


class Spoken:
    """A speech route that remembers what it was asked, and answers as it is told to."""

    def __init__(self, answer: Exception | int = 200) -> None:
        self.asked = list[dict[str, object]]()
        self._answer = answer

    async def __call__(self, request: Request) -> Response:
        self.asked.append(json.loads(await request.body()))
        if isinstance(self._answer, Exception):
            raise self._answer
        return StreamingResponse(self._pieces(), self._answer)

    async def _pieces(self):  # noqa: ANN202 - an async generator of bytes
        for _ in range(3):
            yield b"sound"

    @property
    def route(self) -> Route:
        return Route("/v1/audio/speech", self.__call__, methods=["POST"])


@pytest.mark.parametrize("forced", [False, True])
async def test_both_chunking_modes_are_asked_for_and_voices_without_an_end_are_cut(forced: bool) -> None:
    spoken = Spoken()
    await rehearse([spoken.route], forced_lengths=forced)
    assert [asked["latency_first"] for asked in spoken.asked] == [True, False]
    assert [asked.get("max_new_tokens") for asked in spoken.asked] == [FRAMES if forced else None] * 2


@pytest.mark.parametrize("answer", [BusyError("not now"), 400])
async def test_a_refusal_is_told_and_the_server_starts(
    answer: Exception | int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await rehearse([Spoken(answer).route], forced_lengths=False)
    assert "was answered with" in caplog.text


async def test_an_answer_that_never_comes_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def never(request: Request) -> Response:
        await asyncio.Event().wait()
        return Response()

    monkeypatch.setattr("voice_agent.first_requests.PATIENCE_S", 0.5)
    await rehearse([Route("/v1/audio/speech", never, methods=["POST"])], forced_lengths=False)
    assert "took more than 0.5 s" in caplog.text


async def test_the_status_of_an_answer_is_told() -> None:
    assert await posted(Spoken(201).route, "/v1/audio/speech", b"{}") == 201


@pytest.mark.loopback
def test_a_server_is_ready_when_it_says_so() -> None:
    with live_server("--profile", "scripted") as server:
        assert httpx.get(f"{server.url}/readyz").status_code == 200
