"""What labelled items come to: shares without the void, and words that are missing or too many."""

import json

import pytest

from voice_agent.audio import OPUS_RATE_HZ, silence
from voice_agent.bench.exactness import RecognizingEars, ToneEars, exactness
from voice_agent.bench.overlap import Heard, Outcome
from voice_agent.bench.report import Run, problems, summed_up, table
from voice_agent.bench.scores import score_rows, scores
from voice_agent.bench.spoken import to_rate
from voice_agent.models.tones import RATE_HZ, sequence

OUTCOMES = [
    Outcome("barge-00", "barge", correct=True, did="obeyed", stop_ms=210.0),
    Outcome("barge-01", "barge", correct=False, did="went on"),
    Outcome("barge-02", "barge", void="in a pause"),
    Outcome("backchannel-00", "backchannel", correct=True, did="ignored", added_ms=400.0),
    Outcome("cough-00", "cough", correct=False, did="stopped for good"),
    Outcome("pause-00", "pause", correct=True, did="waited", delay_ms=450.0),
    Outcome("pause-01", "pause", correct=False, did="cut off", delay_ms=-900.0),
    Outcome("pause-02", "pause", correct=False, did="never committed"),
]


def heard(stored: str, written: str, sounded: str) -> Heard:
    return Heard(stored, written, to_rate(sequence(sounded.split()), RATE_HZ, OPUS_RATE_HZ))


def test_shares_leave_the_void_out_and_delays_leave_cut_offs_out():
    found = scores(OUTCOMES, None)
    assert found["barge_ins_obeyed"] == 0.5
    assert found["false_stops"] == {"backchannel": 0.0, "cough": 1.0}
    assert found["false_cut_offs"] == 0.5
    assert (found["end_of_turn_delay_ms"]["n"], found["end_of_turn_delay_ms"]["p50"]) == (1, 450.0)
    assert found["added_ms"]["p50"] == 400.0
    assert found["labelled"]["barge"] == {
        "n": 2,
        "right": 0.5,
        "void": 1,
        "wrong": {"barge-01": "went on"},
    }
    assert found["heard_error_words"] is None


def test_a_run_of_items_alone_is_no_failure_and_its_stops_count():
    run = Run(outcomes=list(OUTCOMES))
    report = json.loads(json.dumps(summed_up(run, ["--set", "all"])))
    assert problems(report) == []
    assert report["stop_ms"]["n"] == 1
    text = table(report)
    for piece in ("barge-01: went on", "false cut-offs", "50.0 %", "end_of_turn_delay_ms"):
        assert piece in text


def test_a_run_without_items_has_no_rows():
    assert score_rows(summed_up(Run(), [])) == []


def test_words_of_tones_are_heard_exactly():
    outcomes = [
        Outcome("a", "barge", correct=True, did="obeyed", heard=heard("one two", "one two three", "one two")),
        Outcome("b", "barge", correct=True, did="obeyed", heard=heard("one two", "one two three", "one")),
        Outcome("c", "cough", correct=True, did="ignored", heard=heard("one two", "one two", "one two two")),
        Outcome("d", "cough", void="nothing"),
    ]
    found = exactness(outcomes, ToneEars())
    assert found.stored_errors == [0, 1, 1]
    assert found.whole_errors == [(1, 2)]
    report = scores(outcomes, found)
    assert report["heard_error_words"]["max"] == 1
    assert report["ignored_word_error_rate"] == 0.5


def test_a_recognizer_hears_where_there_are_no_tones():
    class Deaf:
        def text(self, samples: object) -> str:
            return "one"

    outcome = Outcome("a", "barge", correct=True, heard=Heard("one two", "one two", silence(480)))
    assert exactness([outcome], RecognizingEars(Deaf())).stored_errors == [1]


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (OUTCOMES[0], "right: obeyed, stop 210 ms"),
        (OUTCOMES[2], "void: in a pause"),
        (OUTCOMES[6], "WRONG: cut off, delay -900 ms"),
    ],
)
def test_outcomes_are_told_in_a_line(outcome: Outcome, told: str):
    assert outcome.said == told
