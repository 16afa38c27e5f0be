"""`bench speech --transcribe` with a real voice and a real recognizer: what is heard decides if a point passes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_server import LiveServer, config_file, live_server
from tests.model_weights import weights
from voice_agent.bench.speech import main

pytestmark = [pytest.mark.weights, pytest.mark.process]
REAL = 'profile = "scripted"\n[talker]\nfamily = "piper"\nmodel = "piper-joe"\n'  # the voice of profile cpu
HEARD_BY = ["--recognizer", "whisper-tiny.en", "--most-word-errors", "0.12"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    weights("piper-joe")
    weights("whisper-tiny.en")
    with live_server("--config", str(config_file(tmp_path_factory.mktemp("words"), REAL))) as running:
        yield running


def point(server: LiveServer, folder: Path, *more: str) -> dict[str, Any]:
    """One short load; what its report says."""
    file = folder / "report.json"
    short = ["--seconds", "4", "--warm-up", "0", "--seeds", "0", "--pause", "0", "--limit-ms", "9999"]
    assert main(["--url", server.url, "--json", str(file), *short, *more]) == 0
    [found] = json.loads(file.read_text())["points"]
    return found


def test_every_other_reply_of_a_real_voice_is_understood(
    server: LiveServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = point(server, tmp_path, "--rps", "2", "--transcribe", "2", *HEARD_BY)
    assert found["replies_recognized"] == (found["due"] + 1) // 2 > 2
    assert found["word_error_rate"] < 0.12
    assert found["verdict"]["intelligible"] is True
    assert f"({found['replies_recognized']} replies, by whisper-tiny.en)" in capsys.readouterr().out


@pytest.mark.slow
def test_replies_of_a_closed_loop_are_heard_too(server: LiveServer, tmp_path: Path) -> None:
    found = point(server, tmp_path, "--streams", "1", "--transcribe", "1", *HEARD_BY)
    assert found["replies_recognized"] == found["due"] > 2
    assert found["verdict"]["intelligible"] is True


@pytest.mark.slow
def test_a_voice_too_fast_to_be_understood_fails_whatever_else_it_keeps(
    server: LiveServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = point(server, tmp_path, "--rps", "2", "--transcribe", "2", "--extra", "speed=4", *HEARD_BY)
    assert found["word_error_rate"] > 0.3
    assert found["verdict"]["intelligible"] is False and not found["verdict"]["passes"]
    assert "intelligible" in capsys.readouterr().out


def test_without_a_recognized_reply_a_point_stays_open(server: LiveServer, tmp_path: Path) -> None:
    found = point(server, tmp_path, "--streams", "1")
    assert found["verdict"]["intelligible"] is None and not found["verdict"]["passes"]
    assert "--transcribe" in found["verdict"]["intelligible_note"]
