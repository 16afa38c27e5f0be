"""`voice-agent engine` as an operator types it, against a running server with engines of its own."""

import os
import subprocess
import sys
from collections.abc import Generator, Sequence

import httpx
import psutil
import pytest

from tests.live_server import LiveServer, live_server
from voice_agent.config import DIGEST

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
        (("stop", "speech"), "talker", "key"),
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
