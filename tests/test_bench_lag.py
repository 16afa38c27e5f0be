"""The benches that bring their own processes, once each and short: they run, and say what they should."""

import json
from pathlib import Path

import pytest

from tests.model_weights import weights
from voice_agent.bench.lag import main as lag
from voice_agent.bench.pcm import main as pcm


@pytest.mark.process
def test_sound_is_measured_both_ways(tmp_path: Path) -> None:
    file = tmp_path / "pcm.json"
    assert pcm(["--seconds", "0.3", "--rounds", "1", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["results"]
    assert [(row["chunk_ms"], row["way"]) for row in rows] == [
        (chunk_ms, way) for chunk_ms in (20, 100, 200) for way in ("inline", "pool")
    ]
    assert all(0 < row["p50_us"] <= row["p99_us"] for row in rows)


@pytest.mark.slow
@pytest.mark.loopback
@pytest.mark.weights
def test_the_loops_lag_is_measured_while_callers_talk(tmp_path: Path) -> None:
    weights("piper-joe")
    file = tmp_path / "lag.json"
    assert lag(["--sessions", "2", "--seconds", "15", "--json", str(file)]) in {0, 1}
    found = json.loads(file.read_text())
    assert found["replies"] > 0 and found["given_up"] == 0
    assert found["server"]["n"] > 100 and found["bare"]["n"] > 100
