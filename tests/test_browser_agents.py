"""The stock @openai/agents-realtime over WebRTC in headless Chromium, against the running server.

Its page is put beside the server's own by the browser; the client comes as its package ships it, behind an import map.
"""

import base64
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from tests.browser_rig import LISTEN, PERSON, TAKE, launch, spoken, words_of
from tests.live_server import LiveServer
from tests.realtime_server import HEARD, realtime_server
from voice_agent.models.tones import words_heard

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.weights]
CLIENTS = Path(__file__).parent / "clients"
STORY = (
    "Once upon a time an old sailor lived alone near the harbour and painted little wooden boats every evening, "
    "because children loved their bright colours, while nobody ever asked him where he really came from, "
    "until one winter morning brought three strange ships with black sails into this quiet bay."
)
KEY = "a-real-key"
PACKAGE = "./node_modules/@openai/agents-realtime/dist/bundle/openai-realtime-agents.mjs"
HTML = f"""<!doctype html>
<meta charset="utf-8">
<title>A stock client</title>
<script type="importmap">{{"imports": {{"@openai/agents-realtime": "{PACKAGE}"}}}}</script>
<audio id="speaker" autoplay></audio>
<script type="module" src="./agents_browser.mjs"></script>
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    with realtime_server(tmp_path_factory.mktemp("browser"), f'api_keys = ["{KEY}"]\n') as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    if not (CLIENTS / "node_modules").is_dir():
        pytest.fail("the clients are not installed: run `make clients`")
    with sync_playwright() as playwright:
        running = launch(playwright)
        yield running
        running.close()


@contextmanager
def client_page(browser: Browser, server: LiveServer) -> Generator[Page]:
    """A page with the client loaded; nothing red may have been printed."""
    context = browser.new_context(permissions=["microphone"])
    page, problems = context.new_page(), list[str]()
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.add_init_script(f"({PERSON})(); window.listen = {LISTEN};")
    page.route(f"{server.url}/clients/**", from_disk)
    page.goto(f"{server.url}/clients/page.html")
    page.wait_for_function("() => Boolean(window.isInterrupted)")
    yield page
    assert problems == []
    context.close()


@pytest.fixture
def page(browser: Browser, server: LiveServer) -> Generator[Page]:
    with client_page(browser, server) as page:
        yield page


def from_disk(route: Route) -> None:
    path = urlsplit(route.request.url).path.removeprefix("/clients/")
    if path == "page.html":
        route.fulfill(body=HTML, content_type="text/html")
    else:
        route.fulfill(path=CLIENTS / path, content_type="text/javascript")


def secret(server: LiveServer) -> str:
    """What an application's own server hands to its page."""
    asked = {"session": {"type": "realtime", "model": "voice-agent"}}
    headers = {"authorization": f"Bearer {KEY}"}
    minted = httpx.post(f"{server.url}/v1/realtime/client_secrets", json=asked, headers=headers).json()
    assert minted["value"].startswith("ek_")
    return minted["value"]


def coded(text: str) -> str:
    return base64.b64encode(spoken(200, text, 1500).astype("<i2").tobytes()).decode()


def test_a_tool_is_called_once_and_its_result_is_spoken(server: LiveServer, page: Page) -> None:
    url = f"{server.url}/v1/realtime/calls"
    seen: dict[str, Any] = page.evaluate("([url, key]) => window.callsATool(url, key)", [url, secret(server)])
    assert seen["calls"] == ["KST"] and seen["errors"] == [] and seen["demoted"] == []
    assert "error" not in seen["types"] and seen["callId"].startswith("rtc_")
    assert seen["history"] == ["user", "assistant", "function_call", "assistant"]


@pytest.mark.slow  # half a minute of talk
def test_an_interruption_leaves_what_was_heard(server: LiveServer, page: Page) -> None:
    url = f"{server.url}/v1/realtime/calls"
    question, interruption = coded(HEARD), coded("Stop it, please, I have heard enough of this.")
    seen: dict[str, Any] = page.evaluate(
        "([...all]) => window.isInterrupted(...all)", [url, secret(server), STORY, question, interruption]
    )
    assert seen["errors"] == [] and seen["demoted"] == [] and "error" not in seen["types"]
    assert {"output_audio_buffer.cleared", "conversation.item.truncated"} <= set(seen["types"])
    assert "response.output_audio.delta" not in seen["types"]
    assert HEARD in str(seen["history"][0])
    assert [item["role"] for item in seen["history"]] == ["user", "assistant", "user", "assistant"]
    cut: str = seen["recited"][1]["content"]
    assert seen["recited"][1]["role"] == "assistant" and cut != STORY and STORY.startswith(cut)
    shown = seen["history"][1]["content"][0]
    assert shown["type"] == "output_audio" and shown["transcript"].strip() == cut
    assert len(cut.split()) == pytest.approx(words_played(page), abs=2)


def words_played(page: Page) -> int:
    """Up to which word of the story it sounded; a browser on a busy machine conceals some on the way."""
    rate_hz, coded = page.evaluate(TAKE, "heardSound")
    samples = np.frombuffer(base64.b64decode(coded), "<i2").astype(np.int16)
    words = words_of(STORY)
    return words.index(words_heard(samples, rate_hz, words)[-1][0]) + 1
