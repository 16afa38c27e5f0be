"""What goes wrong around the page, in Debian's Chromium: no microphone, no server, no way through, no room."""

import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Playwright, Route, sync_playwright

from tests.browser_rig import (
    ANSWERS,
    CALL_MS,
    FAKE_MICROPHONE,
    LONG,
    SHORT,
    Person,
    Speech,
    launch,
    person_at,
    scripted_config,
    scripted_server,
    tab,
)
from tests.live_server import LiveServer, live_server

pytestmark = [pytest.mark.browser, pytest.mark.weights]

BACK_MS = 90_000
FLAGS = [FAKE_MICROPHONE, "--host-resolver-rules=MAP agent.test 127.0.0.1"]
KIND_OF_PATH = """async () => {
  const reports = [...(await window.peers.at(-1).getStats()).values()];
  const pair = reports.find((one) => one.type === 'candidate-pair' && one.nominated && one.state === 'succeeded');
  return reports.find((one) => one.id === pair.localCandidateId).candidateType;
}"""


@pytest.fixture(scope="module")
def speech() -> Speech:
    return Speech.make()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    with scripted_server(tmp_path_factory.mktemp("server"), seats=2) as running:
        yield running


@pytest.fixture(scope="module")
def playwright() -> Generator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Generator[Browser]:
    running = launch(playwright, *FLAGS)
    yield running
    running.close()


@pytest.fixture(scope="module")
def deaf(playwright: Playwright) -> Generator[Browser]:
    """A browser on a machine without sound devices."""
    running = launch(playwright)
    yield running
    running.close()


def ask(person: Person, question: str, answer: str, *, aloud: bool = True) -> None:
    """Say (or type) a question and listen to the answer until it is over."""
    person.listen()
    if aloud:
        person.speak(question)
    else:
        person.type(question)
    person.hear_out(answer)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# the microphone


def test_a_denied_microphone_says_what_to_do(server: LiveServer, browser: Browser) -> None:
    context = browser.new_context()
    try:
        person = person_at(context, server.url, own_microphone=True)
        person.page.click("#toggle")
        assert "blocked" in person.message() and "Allow it" in person.message()
        assert person.page.inner_text("#toggle-word") == "Start"
        assert not person.problems
    finally:
        context.close()


def test_a_machine_without_a_microphone_says_so(server: LiveServer, deaf: Browser) -> None:
    with tab(deaf, server.url, own_microphone=True) as person:
        person.page.click("#toggle")
        assert "No microphone" in person.message()


def test_a_page_over_plain_http_from_elsewhere_says_why(server: LiveServer, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(server.url.replace("127.0.0.1", "agent.test"))
    page.click("#toggle")
    page.wait_for_selector("#message:not([hidden])")
    assert "https" in page.inner_text("#message")
    page.context.close()


def test_a_microphone_that_is_lost_leaves_the_call_up_for_typing_and_comes_back(
    server: LiveServer, browser: Browser
) -> None:
    """The permission is taken away in the middle of a call: Chromium ends the track, as when a device is unplugged."""
    with tab(browser, server.url, own_microphone=True) as person:
        person.start()
        person.page.context.clear_permissions()
        assert "microphone is gone" in person.message()
        assert person.page.inner_text("#state") == "No microphone"
        ask(person, "Are you still there?", ANSWERS[0], aloud=False)
        person.page.context.grant_permissions(["microphone"])
        person.page.evaluate("navigator.mediaDevices.dispatchEvent(new Event('devicechange'))")
        person.page.wait_for_selector("#message", state="hidden")
        assert person.page.inner_text("#state") == "Listening"


# the server


def without_refused_connections(problems: list[str]) -> list[str]:
    """Chromium prints every request to a dead server in red; no page can keep it from that."""
    return [line for line in problems if "net::ERR_" not in line]


@contextmanager
def server_on(port: int, config: Path) -> Generator[LiveServer]:
    with live_server("--config", str(config), "--port", str(port)) as running:
        yield running


def test_a_server_that_was_killed_and_comes_back_knows_the_conversation(
    browser: Browser, tmp_path: Path, speech: Speech
) -> None:
    port, config = free_port(), scripted_config(tmp_path, greeting="Welcome, stranger.")
    context = browser.new_context(permissions=["microphone"])
    try:
        with server_on(port, config) as first:
            person = person_at(context, first.url)
            person.start()
            person.wait_heard("Welcome, stranger.")
            person.wait("listening")
            ask(person, speech.short, ANSWERS[0])
            before = person.captions()
            first.process.send_signal(signal.SIGKILL)
            person.wait("reconnecting", BACK_MS)
            assert "connection was lost" in person.message() or "not answer" in person.message()
        with server_on(port, config):
            person.wait("listening", BACK_MS)
            assert person.captions() == before
            ask(person, speech.long, ANSWERS[1])  # the second answer: the first question is known
            history = person.timeline()["history"]
            told = [message["content"] for message in history]
            assert told == [text for _, text in person.captions()]  # and so no word of a second greeting
            person.page.click("#toggle")
        assert not without_refused_connections(person.problems)
    finally:
        context.close()


def test_a_reloaded_page_takes_its_call_up_again(
    server: LiveServer, browser: Browser, speech: Speech
) -> None:
    with tab(browser, server.url) as person:
        person.start()
        ask(person, speech.short, ANSWERS[0])
        person.page.reload()
        person.wait("listening", CALL_MS)
        ask(person, speech.long, ANSWERS[1])
        told = [text for _, text in person.captions()]
        assert told == [SHORT, ANSWERS[0], LONG, ANSWERS[1]]
        person.page.wait_for_selector(
            "#latency:not([hidden])"
        )  # nobody has clicked: the server's own figures
        assert [message["content"] for message in person.timeline()["history"]] == told
        person.page.click("#toggle")
        person.wait("idle")
        person.page.reload()
        person.page.wait_for_selector("body[data-server=ready]")
        assert person.page.inner_text("#state") == "Ready"  # who has hung up is not called again


def test_a_call_that_is_hung_up_elsewhere_says_so_and_is_not_made_again(
    server: LiveServer, browser: Browser
) -> None:
    with tab(browser, server.url) as person:
        person.start()
        httpx.delete(server.url + person.locations[-1])
        person.wait("failed")
        assert "hung up" in person.message() and len(person.locations) == 1
        person.page.click("#toggle")
        person.wait("listening", CALL_MS)


def test_hanging_up_prints_nothing_red_though_the_sound_ends_before_the_request_arrives(
    server: LiveServer, browser: Browser
) -> None:
    def arrive_late(route: Route) -> None:
        while not httpx.get(f"{route.request.url}/timeline").json()["end_reason"]:
            time.sleep(0.05)
        route.continue_()

    with tab(browser, server.url) as person:
        person.start()
        person.page.route(f"**{person.locations[-1]}", arrive_late)
        with person.page.expect_response(f"**{person.locations[-1]}") as answer:
            person.page.click("#toggle")
        assert answer.value.status == 204


def test_two_tabs_talk_at_once_and_a_third_is_told_when_to_come_again(
    server: LiveServer, browser: Browser, speech: Speech
) -> None:
    context = browser.new_context(permissions=["microphone"])
    try:
        first, second, third = (person_at(context, server.url) for _ in range(3))
        for person in (first, second):
            person.start()
        for person in (first, second):
            ask(person, speech.short, ANSWERS[0])
        third.page.click("#toggle")
        assert "busy" in third.message() and "seconds" in third.message()
        first.page.click("#toggle")
        first.wait("idle", 5_000)
        assert second.page.inner_text("#state") == "Listening"
        third.page.wait_for_timeout(1_000)  # the browser's own clock: a person trying again
        third.page.click("#toggle")
        third.wait("listening", CALL_MS)
        assert not first.problems and not second.problems
        assert all("503" in line for line in third.problems)
    finally:
        context.close()


def test_a_missing_key_and_a_wrong_one_are_told_apart(browser: Browser, tmp_path: Path) -> None:
    with scripted_server(tmp_path, more='api_keys = ["sesame"]\n') as locked:
        context = browser.new_context(permissions=["microphone"])
        try:
            person = person_at(context, locked.url)
            person.page.click("#toggle")
            assert "wants an API key" in person.message()
            person.page.fill("#key", "simsalabim")
            person.page.click("#key-form button")
            person.page.locator("#message", has_text="not accepted").wait_for()
            person.page.fill("#key", "sesame")
            person.page.click("#key-form button")
            person.wait("listening", CALL_MS)
            assert all("401" in line for line in person.problems)
        finally:
            context.close()


def test_a_page_says_what_the_server_is_before_anybody_calls(browser: Browser, server: LiveServer) -> None:
    answers: list[dict[str, Any]] = [
        {"ready": False, "state": "starting", "reasons": ["loading the voice"]},
        {"ready": False, "state": "stopped", "reasons": ["the speech engine is stopped by an operator"]},
        {"ready": True, "state": "ready", "reasons": []},
    ]
    facts = {"model": "m", "instance": "i", "needs_key": False, "voices_path": None}
    page = browser.new_page()
    page.route("**/page.json", lambda route: route.fulfill(json=facts | (answers.pop(0) if answers else {})))
    page.goto(server.url)
    page.wait_for_selector("body[data-server=starting]")
    assert page.inner_text("#state") == "Starting"
    assert "loading the voice" in page.inner_text("#message")
    page.wait_for_selector("body[data-server=stopped]", timeout=10_000)
    assert page.inner_text("#state") == "Stopped"
    told = page.inner_text("#message")
    assert "takes no calls now: the speech engine is stopped" in told and "Start" not in told
    page.wait_for_selector("body[data-server=ready]", timeout=10_000)
    page.route("**/page.json", lambda route: route.abort())
    page.reload()
    page.wait_for_selector("body[data-server=gone]")
    assert "does not answer" in page.inner_text("#message")
    page.context.close()


# the way there


@contextmanager
def relay(folder: Path, port: int, user: str, password: str) -> Generator[None]:
    """coturn on loopback, ready once it answers."""
    if not shutil.which("turnserver"):
        pytest.fail("coturn is needed: make debian")
    command = ["turnserver", "-n", "--no-cli", "--no-tls", "--no-dtls", "--lt-cred-mech", "--fingerprint"]
    command += ["--allow-loopback-peers", "--listening-ip=127.0.0.1", "--relay-ip=127.0.0.1", "--realm=test"]
    command += [f"--listening-port={port}", f"--user={user}:{password}", f"--pidfile={folder}/pid"]
    command += ["--log-file=stdout", f"--db={folder}/users"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.settimeout(0.2)
            assert any(answers_stun(probe, port) for _ in range(100)), "coturn did not start"
        yield
    finally:
        process.terminate()
        process.wait(10)


def answers_stun(probe: socket.socket, port: int) -> bool:
    """Whether a binding request is answered within a moment (RFC 8489)."""
    probe.sendto(struct.pack("!HHI12s", 0x0001, 0, 0x2112A442, b"are you up ?"), ("127.0.0.1", port))
    try:
        return probe.recv(2048)[:2] == b"\x01\x01"
    except (TimeoutError, ConnectionError):
        time.sleep(0.05)
        return False


def test_a_call_gets_through_by_a_relay_alone(browser: Browser, tmp_path: Path, speech: Speech) -> None:
    port = free_port()
    ice = f'[[ice.servers]]\nurls = ["turn:127.0.0.1:{port}"]\nusername = "page"\ncredential = "secret"\n'

    def only_relay(route: Route) -> None:
        route.fulfill(json=route.fetch().json() | {"iceTransportPolicy": "relay"})

    with (
        relay(tmp_path, port, "page", "secret"),
        scripted_server(tmp_path, more=ice) as behind,
        tab(browser, behind.url) as person,
    ):
        person.page.route("**/v1/realtime/ice_servers", only_relay)
        person.start()
        assert person.page.evaluate(KIND_OF_PATH) == "relay"
        ask(person, speech.short, ANSWERS[0])
        person.page.locator("#line", has_text="relayed").wait_for(state="attached")


def test_a_call_gets_through_with_candidates_that_are_only_mdns_names(
    server: LiveServer, deaf: Browser, speech: Speech
) -> None:
    """What a page has that was never allowed the microphone: Chromium hides the addresses."""
    context = deaf.new_context()
    try:
        person = person_at(context, server.url)
        person.start()
        offer = person.page.evaluate("window.peers.at(-1).localDescription.sdp")
        candidates = [
            line for line in offer.splitlines() if line.startswith("a=candidate:") and " host " in line
        ]
        assert candidates and all(".local " in line for line in candidates)
        ask(person, speech.short, ANSWERS[0])
        assert not person.problems
    finally:
        context.close()
