"""The application around the endpoints: health, access, CORS, error bodies, the page."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from voice_agent import __version__
from voice_agent.api.app import AppParts, create_app
from voice_agent.api.auth import Access
from voice_agent.api.page import find_page
from voice_agent.api.resume import Resumables
from voice_agent.api.websocket import LiveCall, SocketRequest, create_websocket_routes
from voice_agent.clock import ManualClock
from voice_agent.errors import ConfigError

CALLS = "/v1/realtime/calls"
OURS = "http://localhost:8000"
THEIRS = "https://app.example.org"


async def accept(request: Request) -> Response:
    return JSONResponse({}, 201, {"location": f"{CALLS}/rtc_1"})


async def crash(request: Request) -> Response:
    raise ZeroDivisionError("a secret")


@asynccontextmanager
async def client_of(
    access: Access | None = None,
    reasons: list[str] | None = None,
    address: str = "127.0.0.1",
    base_url: str = OURS,
) -> AsyncGenerator[httpx.AsyncClient]:
    routes = [Route(CALLS, accept, methods=["POST"]), Route("/v1/crash", crash)]
    why = reasons if reasons is not None else []
    app = create_app(AppParts(routes, lambda: why, "org/voice-agent", access or Access()))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(address, 5000))
    async with httpx.AsyncClient(transport=transport, base_url=base_url) as client:
        yield client


async def test_alive_from_the_start_ready_once_warm() -> None:
    reasons = ["speech engine: warming up"]
    async with client_of(reasons=reasons) as client:
        assert (await client.get("/livez")).status_code == 200
        response = await client.get("/readyz")
        assert response.status_code == 503 and response.json()["reasons"] == ["speech engine: warming up"]
        assert response.headers["retry-after"]
        reasons.clear()
        assert (await client.get("/readyz")).json() == {"status": "ready"}


class NoCalls:
    async def open(self, request: SocketRequest) -> LiveCall:
        raise AssertionError(request)

    def find(self, call_id: str) -> LiveCall:
        raise AssertionError(call_id)


async def test_the_socket_asked_for_without_an_upgrade_says_what_is_missing() -> None:
    routes = create_websocket_routes(NoCalls(), "voice-agent", Resumables[LiveCall](ManualClock()))
    transport = httpx.ASGITransport(create_app(AppParts(routes, lambda: [], "voice-agent")))
    async with httpx.AsyncClient(transport=transport, base_url=OURS) as client:
        response = await client.get("/v1/realtime?model=voice-agent")
    assert response.status_code == 426 and response.headers["upgrade"] == "websocket"
    error = response.json()["error"]
    assert error["code"] == "upgrade_required" and "Upgrade: websocket" in error["message"]


async def test_version_and_models() -> None:
    async with client_of() as client:
        assert (await client.get("/version")).json()["version"] == __version__
        models = (await client.get("/v1/models")).json()
        assert models["object"] == "list" and models["data"][0]["id"] == "org/voice-agent"
        for path in ("org/voice-agent", "org%2Fvoice-agent"):
            assert (await client.get(f"/v1/models/{path}")).json() == models["data"][0]
        missing = await client.get("/v1/models/gpt-9")
        assert missing.status_code == 404 and "gpt-9" in missing.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1/nowhere", 404, "not_found"),
        ("GET", CALLS, 405, "method_not_allowed"),
        ("GET", "/v1/crash", 500, "internal_error"),
        ("GET", "/../pyproject.toml", 404, "not_found"),
        ("GET", "/%2e%2e/pyproject.toml", 404, "not_found"),
    ],
)
async def test_every_failure_has_openais_body_and_a_request_id(
    method: str, path: str, status: int, code: str
) -> None:
    async with client_of() as client:
        response = await client.request(method, path)
        assert response.status_code == status
        assert response.headers["x-request-id"].startswith("req_")
        error = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["code"] == code
        assert "secret" not in response.text


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (None, 401),
        ("", 401),
        ("Bearer", 401),
        ("Bearer wrong", 401),
        ("Basic key-one", 401),
        ("Bearer key-on", 401),
        ("Bearer key-one", 201),
        ("bearer key-two", 201),
    ],
)
async def test_with_keys_a_right_bearer_is_needed_from_anywhere(
    authorization: str | None, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"authorization": authorization} if authorization is not None else {}
    access = Access(keys=("key-one", "key-two"))
    async with client_of(access, address="203.0.113.9", base_url="https://voice.example.org") as client:
        response = await client.post(CALLS, headers=headers)
        assert response.status_code == status
        if status == 401:
            assert response.json()["error"]["code"] == "invalid_api_key"
            assert response.headers["www-authenticate"] == "Bearer"
        assert (await client.get("/")).status_code == 200
        assert "key-" not in caplog.text and "key-" not in response.text


@pytest.mark.parametrize(("key", "status"), [("key-one", 201), ("key-two", 401), ("", 401)])
async def test_a_key_may_be_configured_by_its_digest_alone(key: str, status: int) -> None:
    digest = f"sha256:{sha256(b'key-one').hexdigest()}"
    async with client_of(Access(keys=(digest,))) as client:
        for given in (key, digest if key != "key-one" else key):
            response = await client.post(CALLS, headers={"authorization": f"Bearer {given}"})
            assert response.status_code == status


@pytest.mark.parametrize(
    ("address", "base_url", "origin", "status"),
    [
        ("127.0.0.1", OURS, None, 201),
        ("127.0.0.1", OURS, OURS, 201),
        ("::1", "http://[::1]:8000", "http://[::1]:8000", 201),
        ("::ffff:127.0.0.1", "http://127.0.0.1:8000", None, 201),
        ("127.0.0.1", "http://voice.localhost", "http://voice.localhost:80", 201),
        ("192.0.2.7", OURS, None, 403),
        ("127.0.0.1", "http://evil.example.org:8000", None, 403),
        ("127.0.0.1", "http://127.0.0.1.example.org", None, 403),
        ("127.0.0.1", OURS, "https://evil.example.org", 403),
        ("127.0.0.1", OURS, "http://localhost:9000", 403),
        ("127.0.0.1", OURS, "https://localhost:8000", 403),
        ("127.0.0.1", OURS, "null", 403),
        ("127.0.0.1", OURS, "http://[", 403),
    ],
)
async def test_without_keys_only_this_machines_own_programs_and_pages_come_in(
    address: str, base_url: str, origin: str | None, status: int
) -> None:
    headers = {"origin": origin} if origin else {}
    async with client_of(address=address, base_url=base_url) as client:
        response = await client.post(CALLS, headers=headers | {"authorization": "Bearer anything"})
        assert response.status_code == status, response.text
        if status == 403:
            assert response.json()["error"]["code"] == "forbidden"


async def test_a_foreign_page_is_not_let_in_by_default_and_is_when_listed() -> None:
    ask = {
        "origin": THEIRS,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-openai-agents-sdk",
    }
    async with client_of() as client:
        assert "access-control-allow-origin" not in (await client.options(CALLS, headers=ask)).headers
    async with client_of(Access(origins=(THEIRS,))) as client:
        preflight = await client.options(CALLS, headers=ask)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == THEIRS
        allowed = preflight.headers["access-control-allow-headers"].lower()
        assert all(name in allowed for name in ("authorization", "content-type", "x-openai-agents-sdk"))
        answer = await client.post(CALLS, headers={"origin": THEIRS})
        assert answer.status_code == 201 and "Location" in answer.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in answer.headers
        assert (await client.post(CALLS, headers={"origin": "https://other.example.org"})).status_code == 403


async def test_a_refusal_reaches_a_listed_page_too() -> None:
    async with client_of(Access(keys=("k",), origins=(THEIRS,))) as client:
        refused = await client.post(CALLS, headers={"origin": THEIRS})
        assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] == THEIRS


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/main.js", "text/javascript; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/favicon.svg", "image/svg+xml"),
    ],
)
async def test_the_page_comes_with_its_types_and_strict_headers(path: str, media_type: str) -> None:
    async with client_of() as client:
        response = await client.get(path)
        assert response.status_code == 200 and response.headers["content-type"] == media_type
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert response.headers["permissions-policy"].startswith("microphone=(self)")
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-cache"
        again = await client.get(path, headers={"if-none-match": response.headers["etag"]})
        assert again.status_code == 304 and again.content == b""


def test_the_page_asks_for_nothing_from_elsewhere_and_is_small() -> None:
    folder = find_page()
    total = 0
    for file in folder.iterdir():
        text = file.read_text(encoding="utf-8")
        total += len(text)
        assert "https://" not in text and "<script>" not in text and " style=" not in text, file.name
    assert total < 200_000


def test_a_missing_page_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voice_agent.__file__", str(tmp_path / "voice_agent" / "__init__.py"))
    with pytest.raises(ConfigError, match="index.html"):
        find_page()
