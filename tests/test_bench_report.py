"""The report: percentiles, sums, and what makes a run a failure."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import tone
from voice_agent.bench.__main__ import main
from voice_agent.bench.measure import Barge, Turn, in_flight
from voice_agent.bench.questions import BARGES, LONG_QUESTIONS, QUESTIONS
from voice_agent.bench.report import Run, problems, summed_up, table
from voice_agent.bench.sound import Hole
from voice_agent.bench.spoken import write_wav
from voice_agent.bench.statistics import nearest_rank, summary

PARTS = {"vad": 200.0, "endpoint": 50.0, "thinker": 350.0, "playout": 20.0}


def turn(voice_ms: float, **more: Any) -> Turn:
    return Turn("Q?", voice_ms, parts_ms=PARTS, server_total_ms=620.0, **more)


@pytest.mark.parametrize(
    ("percent", "value"), [(50, 5), (95, 10), (99, 10), (10, 1), (11, 2), (100, 10), (0, 1)]
)
def test_percentiles_are_measured_values(percent: float, value: float):
    assert nearest_rank(list(range(10, 0, -1)), percent) == value


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40), st.integers(1, 100))
def test_at_least_the_share_lies_at_or_below_a_percentile(values: list[float], percent: int):
    rank = nearest_rank(values, percent)
    assert rank in values
    assert sum(value <= rank for value in values) >= percent / 100 * len(values)
    assert sum(value < rank for value in values) < max(1, percent / 100 * len(values))


def test_no_values_have_no_percentile():
    assert summary([]) == {"p50": None, "p95": None, "p99": None, "n": 0}
    with pytest.raises(ValueError, match="no values"):
        nearest_rank([], 50)


def test_the_report_has_what_the_tracker_reads():
    run = Run(
        turns=[
            turn(700.0, holes=[Hole(10, 480)]),
            turn(680.0, server_underruns=2),
            Turn("Lost?", failure="no reply"),
        ],
        barges=[Barge(240.0, 310.0), Barge(void="in a pause"), Barge(stop_ms=300.0)],
        heard=[("a b", "a b")],
        word_error_rate=0.0,
        models=["m"],
    )
    report = json.loads(json.dumps(summed_up(run, ["--turns", "3", "--url", "http://a b"])))
    assert report["voice_to_voice_ms"] == {"p50": 680.0, "p95": 700.0, "p99": 700.0, "n": 2}
    assert report["stop_ms"] == {"p50": 240.0, "p95": 300.0, "p99": 300.0, "n": 2}
    assert report["cancel_ms"]["n"] == 1
    assert (report["underruns"], report["underrun_ms"], report["server_underruns"]) == (1, 10.0, 2)
    assert (report["word_error_rate"], report["replies_recognized"], report["void_barges"]) == (0.0, 1, 1)
    assert report["command"] == "voice-agent bench turn --turns 3 --url 'http://a b'"
    assert report["machine"]["cores"] >= 1
    assert set(report) >= {"machine", "commit", "models", "failures", "parts_sum_error_ms"}
    assert problems(report) == ["Lost?: no reply"]


def test_the_parts_with_the_network_sum_to_the_total():
    parts = summed_up(Run(turns=[turn(700.0), turn(680.0)]), [])["parts_ms"]
    assert parts["network"] == 70.0
    assert sum(ms for name, ms in parts.items() if name != "total") == pytest.approx(parts["total"])
    assert parts["total"] == 690.0


def test_parts_that_do_not_make_up_the_total_fail_the_run():
    wrong = Turn("Q?", 700.0, parts_ms={"vad": 100.0}, server_total_ms=620.0)
    report = summed_up(Run(turns=[wrong]), [])
    assert report["parts_sum_error_ms"] == 520.0
    assert "miss its own total" in problems(report)[0]


def test_a_server_without_a_timeline_still_gives_numbers():
    report = summed_up(Run(turns=[Turn("Q?", 700.0)]), [])
    assert (report["parts_ms"], report["parts_sum_error_ms"], problems(report)) == ({}, None, [])


def test_a_run_without_answers_is_a_failure():
    assert problems(summed_up(Run(), [])) == ["no turn was answered"]


def test_the_gain_of_overlap_is_told_for_each_length():
    sequential = {"long": {"overlapped": [700.0, 720.0], "sequential": [4000.0, 4100.0]}}
    report = summed_up(Run(turns=[turn(700.0)], sequential=sequential), [])
    assert report["sequential"]["long"]["gain_ms"] == 3300.0
    assert "long gain at p50" in table(report)


def test_the_table_shows_every_number():
    text = table(summed_up(Run(turns=[turn(700.0)], barges=[Barge(240.0, 310.0)]), []))
    for piece in ("700.0", "240.0", "310.0", "part thinker", "network", "not measured"):
        assert piece in text


def test_in_flight_knows_every_stage_by_id():
    timeline = {"in_flight": {"recognizer": ["t"], "thinker": [], "talker": ["r"], "playout": ["r"]}}
    assert in_flight(timeline) == {("recognizer", "t"), ("talker", "r"), ("playout", "r")}
    assert in_flight({}) == set()


def test_there_are_thirty_questions_and_no_two_alike():
    assert len(set(QUESTIONS)) == len(QUESTIONS) >= 30
    assert all(3 <= len(question.split()) <= 13 for question in QUESTIONS)
    assert len(set(LONG_QUESTIONS)) == len(set(BARGES)) == 6


def test_an_unknown_bench_is_a_usage_error(capsys: pytest.CaptureFixture[str]):
    assert main(["speed"]) == 2
    assert "'speed' is none of turn" in capsys.readouterr().err
    assert main(["--help"]) == 0


def test_a_server_that_is_down_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Any):

    write_wav(tmp_path / "q.wav", tone(500, 500, 48_000), 48_000)
    url = "http://127.0.0.1:9"
    options = ["--url", url, "--wav", str(tmp_path), "--barges", "0", "--no-wer", "--turns", "1"]
    assert main(["turn", *options]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert url in captured.err
    assert "voice-agent serve" in captured.err


def test_missing_weights_are_a_set_up_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("VOICE_AGENT_CACHE", str(tmp_path))
    assert main(["turn", "--turns", "1"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "models pull" in captured.err
