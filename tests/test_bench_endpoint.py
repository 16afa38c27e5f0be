"""The sweep over the end of turn's knobs: the real endpointer over windows that are known."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from voice_agent.audio import silence
from voice_agent.bench.curve import Goal, Point, best, picture
from voice_agent.bench.endpoint import GRID, nearest_to_goal, setting, sweep, table
from voice_agent.bench.labelled import Item, ItemSound, Right
from voice_agent.bench.offline import Hearing, Judgement, Latency, default_rules, ending
from voice_agent.turn.endpoint import WINDOW_SAMPLES

RULES = replace(
    default_rules(), sure_ms=320, unsure_ms=960, open_ms=1600, end_probability=0.5, pause_ms=96, start_ms=64
)
SOON = Latency(judge_ms=60, words_ms=120)


def hearing(row: str, *judgements: tuple[float, str]) -> Hearing:
    """One window per letter, v voiced; the judgements belong to its pauses in order."""
    windows = [0.9 if letter == "v" else 0.0 for letter in row + "." * 200]
    ends = [n for n in range(1, len(windows)) if windows[n - 1] > windows[n]]
    samples = [end * WINDOW_SAMPLES for end in ends]
    judged = {at: Judgement(at, *judgement) for at, judgement in zip(samples, judgements, strict=True)}
    return Hearing(windows, judged, samples[-1])


def test_a_finished_turn_ends_after_the_sure_silence():
    found = ending(hearing("vvvvvv", (0.9, "What is it?")), RULES, SOON)
    assert (found.why, found.cut_off) == ("finished", False)
    assert found.delay_ms == pytest.approx(320, abs=32)


def test_an_unfinished_and_an_open_turn_wait_longer():
    unsure = ending(hearing("vvvvvv", (0.1, "We are happy.")), RULES, SOON)
    open_ended = ending(hearing("vvvvvv", (0.9, "my number is four one")), RULES, SOON)
    assert unsure.delay_ms == pytest.approx(960, abs=32)
    assert open_ended.delay_ms == pytest.approx(1600, abs=32)


def test_a_pause_that_is_taken_for_the_end_is_a_cut_off():
    row = "vvvvvv" + "." * 20 + "vvvvvv"
    found = ending(hearing(row, (0.9, "We are happy."), (0.9, "We are happy to be here.")), RULES, SOON)
    assert found.cut_off
    assert ending(
        hearing(row, (0.1, "We are happy."), (0.9, "We are happy to be here.")), RULES, SOON
    ).delay_ms == pytest.approx(320, abs=32)


def test_a_judgement_counts_only_once_it_would_be_there():
    found = ending(hearing("vvvvvv", (0.9, "What is it?")), RULES, Latency(500, 600))
    assert found.delay_ms == pytest.approx(64 + 32 + 600, abs=64)  # words and judgement, whichever is later


def test_a_sweep_tries_every_setting_in_which_patience_grows():
    hearings = [hearing("vvvvvv", (0.9, "What is it?"))]
    found = sweep(hearings, RULES, SOON)
    assert len(found) > 100
    assert all(one.knobs["sure_ms"] <= one.knobs["unsure_ms"] <= one.knobs["open_ms"] for one in found)
    assert {one.knobs["sure_ms"] for one in found} == set(GRID["sure_ms"])


def test_the_setting_to_take_is_quick_within_the_goal():
    row = "vvvvvv" + "." * 12 + "vvvvvv"
    hearings = [hearing(row, (0.9, "We left."), (0.9, "We left here."))] * 3
    found = sweep(hearings, RULES, SOON)
    taken = nearest_to_goal(found, Goal(delay_ms=600, cut_offs=0.1))
    assert taken.cut_offs == 0
    assert taken.delay_ms <= 600
    quick = setting(hearings, RULES, SOON, {**taken.knobs, "sure_ms": 160.0})
    assert quick.cut_offs == 1
    sound = ItemSound(Item("pause-00", "pause", Right.WAIT, "We are [400] here."), silence(960), 0, 1)
    shown = table(found, quick, [sound] * 3)
    assert "pause-00" in shown
    assert "nearest to the goal" in shown


def test_only_points_that_none_beats_are_on_the_line():
    points = [Point(300, 0.5), Point(400, 0.6), Point(500, 0.2), Point(500, 0.1), Point(900, 0.1)]
    assert best(points) == [Point(300, 0.5), Point(500, 0.1)]


def test_the_picture_is_well_formed_and_marks_the_default():
    points = [Point(300, 0.5, "a < b"), Point(700, 0.0, "c")]
    text = picture(points, Point(450, 0.3), Goal(500, 0.1), "Cut & wait")
    root = ET.fromstring(text)  # noqa: S314 - our own text
    assert root.tag.endswith("svg")
    assert sum(child.tag.endswith("circle") for child in root) == len(points) + 1
    assert "30 % cut off, 450 ms" in text
    with pytest.raises(ValueError, match="no points"):
        picture([], Point(0, 0), Goal(500, 0.1), "")
