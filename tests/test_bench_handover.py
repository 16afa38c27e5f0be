"""The hand-over bench on host arrays: every way runs, checks its values, and writes what it found."""

import json
from pathlib import Path

import pytest

from voice_agent.bench.handover import main

pytestmark = pytest.mark.process


def test_each_host_way_is_measured_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "handover.json"
    few = ["--steps", "20", "--warm-steps", "2", "--rows", "1", "64"]
    assert main([*few, "--devices", "none", "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert [(row["way"], row["rows"]) for row in report["results"]] == [
        (way, rows) for way in ("queue", "memory", "memory-spin") for rows in (1, 64)
    ]
    for row in report["results"]:
        assert 0 < row["ready_to_done_us"]["p50"] <= row["ready_to_done_us"]["p99"]
        assert row["event_to_done_us"]["p50"] <= row["ready_to_done_us"]["p50"]
    assert "memory-spin" in capsys.readouterr().out
