"""Clients that need an environment of their own: LiveKit's plugin and pipecat's service, each pinned."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.live_server import LiveServer
from tests.realtime_server import HEARD, question, realtime_server

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.weights]
ROOT = Path(__file__).parent.parent
STORY = "Once upon a time an old sailor lived alone near the harbour and painted little wooden boats every evening."


def environment(name: str, *requirements: str) -> Path:
    """The interpreter of a virtual environment with these packages, made once, and again if that was cut off."""
    folder = ROOT / ".cache" / "clients" / name
    python, whole = folder / "bin" / "python", folder / "whole"
    if not whole.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *requirements], check=True)
        whole.touch()
    return python


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    with realtime_server(tmp_path_factory.mktemp("others")) as running:
        yield running


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("sounds")
    for name, sound in (
        ("question", question()),
        ("stop", question("Stop it, please, I have heard enough.")),
    ):
        (folder / name).write_bytes(sound.astype("<i2").tobytes())
    return [str(folder / "question"), str(folder / "stop")]


def run(python: Path, script: str, *arguments: str) -> dict[str, Any]:
    """What a client saw."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), str(ROOT / "tests" / "clients" / script), *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        env=clean,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_livekits_plugin_calls_a_tool_and_is_interrupted(server: LiveServer, files: list[str]) -> None:
    python = environment("livekit", "livekit-plugins-openai==1.8.9")
    seen = run(python, "livekit_client.py", server.url, *files)
    called, stopped = seen["tool"], seen["interruption"]
    assert called["call"][0] == "clock" and json.loads(called["call"][1]) == {"zone": "KST"}
    assert called["said"] == "It is noon." and called["errors"] == []
    assert called["items"] == ["message", "message", "function_call", "function_call_output", "message"]
    assert stopped["first"] == STORY and min(stopped["bytes"]) > 48_000
    assert stopped["truncated"] == 1 and stopped["transcripts"] == [HEARD, HEARD] and stopped["errors"] == []


def test_pipecats_service_calls_a_tool_and_is_interrupted(server: LiveServer, files: list[str]) -> None:
    python = environment("pipecat", "pipecat-ai[openai,websocket]==1.14.0")
    seen = run(python, "pipecat_client.py", server.url.replace("http", "ws"), *files)
    called, stopped = seen["tool"], seen["interruption"]
    assert called["calls"] == [{"zone": "KST"}] and called["errors"] == []
    assert "noon" in called["said"] and "noon" not in called["said"].replace("noon", "", 1)
    assert stopped["errors"] == [] and stopped["bytes"] > 96_000 and stopped["heard"] == [HEARD, HEARD]
