"""`voice-agent engine` as an operator types it, against a running server with engines of its own."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import psutil
import pytest

from tests.live_server import LiveServer, live_server
from voice_agent import operate as operating
from voice_agent.config import DIGEST
from voice_agent.config_sources import load_config
from voice_agent.operate import operate

pytestmark = pytest.mark.process

KEY = "boss"


def ordered(*arguments: str, key: str = KEY) -> tuple[int, str]:
    """The command's exit status and all that it said."""
    done = subprocess.run(
        [sys.executable, "-m", "voice_agent", "engine", *arguments],
        env=os.environ | ({"VOICE_AGENT_SERVER_OPERATOR_KEYS": key} if key else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stdout
    return done.returncode, done.stdout


def engines_of(server: LiveServer) -> dict[str, dict[str, object]]:
    answer = httpx.get(f"{server.url}/operator/engines", headers={"authorization": f"Bearer {KEY}"})
    return {engine["name"]: engine for engine in answer.json()["engines"]}


@pytest.fixture(scope="module")
def server() -> Generator[LiveServer]:
    environment = {"VOICE_AGENT_SERVER_OPERATOR_KEYS": KEY}
    with live_server("--profile", "scripted", environment=environment) as running:
        yield running


def test_an_engine_is_stopped_and_started_again_alone(server: LiveServer) -> None:
    before = engines_of(server)
    status, said = ordered("list", "--url", server.url)
    assert status == 0 and said.splitlines() == [
        f"{name}: ready, process {before[name]['pid']}" for name in ("thinker", "speech")
    ]
    assert ordered("list", "speech", "--url", server.url) == (
        0,
        f"speech: ready, process {before['speech']['pid']}\n",
    )
    status, said = ordered("stop", "speech", "--url", server.url)
    assert status == 0 and "speech: stopped" in said and "`voice-agent engine restart speech`" in said
    unready = httpx.get(f"{server.url}/readyz")
    assert unready.status_code == 503 and "by an operator" in unready.text
    assert not psutil.pid_exists(int(str(before["speech"]["pid"])))
    status, said = ordered("restart", "speech", "--url", server.url)
    after = engines_of(server)
    assert status == 0 and said.splitlines()[-1] == f"speech: ready, process {after['speech']['pid']}"
    assert after["speech"]["pid"] != before["speech"]["pid"] and after["thinker"] == before["thinker"]
    assert httpx.get(f"{server.url}/readyz").status_code == 200


@pytest.mark.parametrize(
    ("arguments", "key", "says"),
    [
        (("stop", "sing"), KEY, "there are thinker, speech"),
        (("stop", "speech"), "talker", "server.operator_keys (VOICE_AGENT_SERVER_OPERATOR_KEYS=KEY)"),
        (("list",), "", "server.operator_keys (VOICE_AGENT_SERVER_OPERATOR_KEYS=KEY)"),
        (("list",), "schlüssel", "server.operator_keys"),
        (("list", "sing"), KEY, "NAME: 'sing' is no engine of this server; there are thinker, speech"),
        (("restart", "../../v1/models"), KEY, "NAME: '../../v1/models' is no engine"),
        (("restart", "speech?x"), KEY, "NAME: 'speech?x' is no engine"),
        (
            ("stop", "speech"),
            f"{DIGEST}{'0' * 64}",
            "give the key itself as VOICE_AGENT_SERVER_OPERATOR_KEYS",
        ),
        (("stop",), KEY, "which engine?"),
    ],
)
def test_what_is_refused_changes_nothing(
    server: LiveServer, arguments: Sequence[str], key: str, says: str
) -> None:
    before = engines_of(server)
    status, said = ordered(*arguments, "--url", server.url, key=key)
    assert status == 1 and says in said, said
    assert engines_of(server) == before


def test_a_server_that_is_not_there_is_named() -> None:
    status, said = ordered("list", "--url", "http://127.0.0.1:9")
    assert status == 1 and "no server answers at http://127.0.0.1:9" in said


@pytest.mark.parametrize("url", ["nonsense", "http://", "http://[::1", "http://x:y", "ftp://x"])
def test_a_wrong_address_is_told_as_the_option_it_is(url: str) -> None:
    status, said = ordered("list", "--url", url)
    assert status == 2 and "argument --url: " in said and repr(url) in said


@contextmanager
def telling(*states: str) -> Generator[str]:
    """The URL of a server whose speech engine is in these states, one a question, the last for good."""
    left = list(states)

    class Told(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state = left.pop(0) if len(left) > 1 else left[0]
            engine = {"name": "speech", "state": state, "pid": None, "spare_ready": False, "reasons": []}
            body = json.dumps(engine if self.command == "POST" else {"engines": [engine]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Told) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}"
        finally:
            serving.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("order", "states", "told"),
    [
        # the first is of the list before the order, the second of the order's own answer
        (
            "restart",
            ["crash_loop", "crash_loop", "crash_loop", "starting", "crash_loop"],
            ["starting", "crash_loop"],
        ),
        ("restart", ["crash_loop", "crash_loop", "crash_loop"], ["crash_loop"]),  # nobody follows
        ("restart", ["stopped", "stopped", "starting", "stopped"], ["starting", "stopped"]),  # another's word
    ],
)
def test_a_restart_that_comes_to_nothing_ends_the_command(
    order: str, states: list[str], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operating, "POLL_S", 0.01)
    monkeypatch.setattr(operating, "OBEYED_S", 0.2)
    lines: list[str] = []
    with telling(*states) as url:
        assert operate(load_config(None, {}), url, order, "speech", lines.append) == 1
    assert [line.removeprefix("speech: ") for line in lines][-len(told) :] == told
