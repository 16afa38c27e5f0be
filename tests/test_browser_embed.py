"""Other pages and programs that talk: the embed snippet as its document has it, and the two short clients."""

import base64
import functools
import http.server
import re
import subprocess
import sys
import threading
import wave
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser_rig import (
    BROWSER_RATE_HZ,
    CALL_MS,
    FAKE_MICROPHONE,
    PERSON,
    SHORT,
    STORY,
    TURN_MS,
    launch,
    scripted_server,
    spoken,
    write_wav,
)
from tests.live_server import LiveServer

pytestmark = [pytest.mark.browser, pytest.mark.weights]

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    origins = 'allowed_origins = ["http://localhost:18573"]\n'
    with scripted_server(tmp_path_factory.mktemp("server"), [STORY], more=origins) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with sync_playwright() as playwright:
        running = launch(playwright, FAKE_MICROPHONE)
        yield running
        running.close()


@contextmanager
def other_site(folder: Path) -> Generator[str]:
    """A site of another origin: the one that the server allows."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    site = http.server.ThreadingHTTPServer(
        ("localhost", 18573), functools.partial(Quiet, directory=str(folder))
    )
    thread = threading.Thread(target=site.serve_forever)
    thread.start()
    try:
        yield "http://localhost:18573"
    finally:
        site.shutdown()
        thread.join()
        site.server_close()


@contextmanager
def page_of(browser: Browser, url: str) -> Generator[tuple[Page, list[str]]]:
    context = browser.new_context(permissions=["microphone"])
    page = context.new_page()
    problems: list[str] = []
    page.add_init_script(f"({PERSON})()")
    page.on("console", lambda one: problems.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    try:
        page.goto(url)
        yield page, problems
    finally:
        context.close()


def speak(page: Page, text: str) -> None:
    page.evaluate("(sound) => window.speak(sound)", base64.b64encode(spoken(text).tobytes()).decode())


def test_the_element_talks_on_a_page_of_another_origin(
    server: LiveServer, browser: Browser, tmp_path: Path
) -> None:
    """With the snippet, and under the policy, that docs/embed.md has."""
    snippet = re.search(
        r"```html\n(.*?)```", (ROOT / "docs" / "embed.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert snippet
    html = snippet[1].replace("https://agent.example", server.url)
    rules = f"default-src 'none'; img-src data:; script-src {server.url}; connect-src {server.url}"
    policy = f'<meta http-equiv="content-security-policy" content="{rules}">'
    (tmp_path / "index.html").write_text(
        f"<!doctype html>{policy}<link rel=icon href=data:,><title>Shop</title>{html}", encoding="utf-8"
    )
    with other_site(tmp_path) as site, page_of(browser, site) as (page, problems):
        page.click("voice-agent button")
        page.wait_for_selector("voice-agent[data-state=listening]", timeout=CALL_MS)
        speak(page, SHORT)
        page.wait_for_selector("voice-agent[data-state=speaking]", timeout=TURN_MS)
        assert STORY[:9] in page.inner_text("voice-agent [role=log]")
        page.click("voice-agent button")
        page.wait_for_selector("voice-agent[data-state=idle]")
        assert not problems


def test_the_javascript_example_talks(server: LiveServer, browser: Browser, tmp_path: Path) -> None:
    script = (EXAMPLES / "talk.js").read_text(encoding="utf-8")
    assert len([line for line in script.splitlines() if line.strip()]) <= 22
    (tmp_path / "talk.js").write_text(script, encoding="utf-8")
    (tmp_path / "index.html").write_text(
        '<!doctype html><link rel=icon href=data:,><button>Talk</button><script type="module" src="talk.js"></script>',
        encoding="utf-8",
    )
    with other_site(tmp_path) as site, page_of(browser, f"{site}?server={server.url}") as (page, problems):
        page.click("button")
        page.wait_for_function("() => window.peers[0]?.connectionState === 'connected'", timeout=CALL_MS)
        speak(page, SHORT)
        page.locator("body", has_text=STORY).wait_for(timeout=TURN_MS)
        assert not problems


def test_the_python_example_talks(server: LiveServer, tmp_path: Path) -> None:
    question = write_wav(tmp_path / "question.wav", spoken(1500, SHORT, 8000))
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "talk.py"), server.url, str(question), str(tmp_path / "answer.wav")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert STORY in done.stdout
    with wave.open(str(tmp_path / "answer.wav")) as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        assert file.getframerate() == BROWSER_RATE_HZ and np.abs(sound).max() > 1000
