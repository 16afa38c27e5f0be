"""Many callers at once: shares and acts are fixed by their numbers; a real server is talked to over both transports."""

import json
from collections.abc import Generator

import pytest

from tests.live_server import LiveServer, config_file, live_server
from voice_agent.bench.__main__ import main
from voice_agent.bench.turn_load import acts, shares

STORY = (
    "Once upon a time an old sailor lived near the harbour, and every evening he painted wooden boats there. "
    "In the morning he carried them to the market, where children stood in line for them. "
    "Nobody ever learned where he had found so many colours."
)
TOML = """
profile = "scripted"
[session]
max_sessions = 8
[recognizer.options]
text = "Stop, please. What time is it in London?"
[thinker.options]
texts = ["{story}"]
piece_ms = 20
[server]
drain_s = 1
"""


@pytest.mark.parametrize(("callers", "most"), [(1, 4), (4, 4), (5, 4), (32, 4), (32, 5)])
def test_callers_are_shared_out_evenly(callers: int, most: int) -> None:
    parts = shares(callers, most)
    assert sorted(number for part in parts for number in part) == list(range(callers))
    sizes = [len(part) for part in parts]
    assert max(sizes) <= most and max(sizes) - min(sizes) <= 1


def test_each_caller_begins_with_a_question_and_does_all_it_should_in_its_own_order() -> None:
    orders = {tuple(acts(5, 2, number)) for number in range(20)}
    assert len(orders) > 3
    assert all(order[0] == "ask" and order.count("barge") == 2 and len(order) == 7 for order in orders)
    assert acts(5, 2, 3) == acts(5, 2, 3) and acts(0, 1, 0) == ["barge"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    file = config_file(tmp_path_factory.mktemp("load"), TOML.format(story=STORY))
    with live_server("--config", str(file)) as running:
        yield running


@pytest.mark.process
@pytest.mark.weights
@pytest.mark.parametrize("transport", ["websocket", "webrtc"])
def test_callers_talk_at_once_and_nothing_is_left_behind(
    server: LiveServer, transport: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--sessions", "3", "--turns", "1", "--barges", "1", "--transport", transport]
    status = main(["turn", "--url", server.url, "--json", "--no-wer", *asked])
    report = json.loads(capsys.readouterr().out)
    assert report["failures"] == [] and status == 0
    assert report["voice_to_voice_ms"]["n"] == 3 and report["stop_ms"]["n"] + report["void_barges"] == 3
    assert report["left"] == {"thinker": 0, "speech": 0}
    assert (report["sessions"], report["transport"]) == (3, transport)
    assert report["callers_late_ms"] > 0
    parts = report["parts_ms"]
    assert abs(sum(ms for name, ms in parts.items() if name != "total") - parts["total"]) < 1.0
