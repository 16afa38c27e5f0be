"""The cycle scheduler under loads and arrival patterns that break simpler policies, on recorded costs."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voice_agent.bench.speech_device import DeviceCosts, SimulatedDevice
from voice_agent.bench.speech_simulation import MODELS, Outcome, Plan, Simulation, main, poisson
from voice_agent.bench.statistics import nearest_rank
from voice_agent.engine import render_choice
from voice_agent.engine.launches import Cycle, FrameRow, Frames, Render, RenderRow
from voice_agent.engine.render_choice import Chosen, Moment
from voice_agent.engine.slot_stream import CyclePolicy

SERIAL, OVERLAPPED, GLOOMY = (MODELS[name] for name in ("ours, serial", "ours, overlapped", "pessimistic"))


def simulate(
    plans: Sequence[Plan], costs: DeviceCosts, standing: Sequence[Plan] = (), **policy: float
) -> list[Outcome]:
    simulation = Simulation(plans, costs, CyclePolicy(overlap=costs.overlap, **policy))  # type: ignore[arg-type]
    for plan in standing:
        simulation.keep_running(plan)
    until_ms = max(plan.at_ms for plan in plans) + 1_000 if standing else math.inf
    return simulation.run(until_ms)


def first_p95(outcomes: Sequence[Outcome]) -> float:
    return nearest_rank([math.inf if o.first_ms is None else o.first_ms for o in outcomes], 95)


def dry(outcomes: Sequence[Outcome]) -> int:
    return sum(o.underruns > 0 for o in outcomes)


def at_once(replies: int, at_ms: float = 0.0, frames: int = 52) -> list[Plan]:
    return [Plan(at_ms, frames, ((0.0, frames // 4),), skipped_frames=1) for _ in range(replies)]


BURSTS = [plan for wave in range(3) for plan in at_once(20, wave * 300.0)]
MIXED = sorted(
    at_once(12, 0.0, 140) + poisson(20, 1.5, 3) + at_once(12, 700.0, 16), key=lambda plan: plan.at_ms
)
PATTERNS = {"bursts": BURSTS, "long and short": MIXED, "poisson": poisson(40, 2, 5)}


@pytest.mark.parametrize("costs", [SERIAL, OVERLAPPED, GLOOMY], ids=["serial", "overlapped", "gloomy"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_reply_sounds_soon_whole_and_without_a_gap(pattern: str, costs: DeviceCosts) -> None:
    outcomes = simulate(PATTERNS[pattern], costs)
    assert [o.why for o in outcomes] == ["stop"] * len(outcomes)
    assert [o.heard_ms for o in outcomes] == [80 * (o.plan.frames - 1) for o in outcomes]
    assert dry(outcomes) == 0
    assert max(o.first_ms or math.inf for o in outcomes) < (80 if costs is GLOOMY else 50)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_same_patterns_break_fixed_chunks_in_order_of_arrival(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def naive(moment: Moment) -> Chosen:
        whole = [s for s in moment.ready if not s.wants_first_sound and (s.ready >= 16 or s.all_made)]
        return [(s, min(16, s.ready)) for s in sorted(whole, key=lambda s: s.came_ns)[:1]]

    monkeypatch.setattr(render_choice, "follow_ups", naive)
    assert dry(simulate(PATTERNS[pattern], GLOOMY)) > 0


def test_eight_quality_first_jobs_cost_latency_first_replies_little_and_starve_themselves_no_more() -> None:
    plans = poisson(10, 2, 2)
    alone = simulate(plans, OVERLAPPED)
    jobs = [Plan(0.0, 140, ((0.0, 40),), latency_first=False) for _ in range(8)]
    beside = simulate(plans, OVERLAPPED, jobs)
    fast = [o for o in beside if o.plan.latency_first]
    slow = [o for o in beside if not o.plan.latency_first]
    assert dry(beside) == 0
    assert first_p95(fast) <= 1.2 * first_p95(alone)
    assert len(slow) > 20 and {chunk for o in slow for chunk in o.chunks[:-1]} == {16}


def test_stalled_text_costs_nobody_else_anything_and_is_spoken_when_it_comes() -> None:
    def words(count: int) -> tuple[tuple[float, int], ...]:
        return tuple((20.0 * word + (900.0 if word >= count // 2 else 0.0), 1) for word in range(count))

    stalled = [Plan(50.0 * n, 36, words(40), 2_000.0) for n in range(24)]
    others = poisson(20, 2, 7)
    outcomes = simulate([*stalled, *others], OVERLAPPED)
    waiting, free = outcomes[: len(stalled)], outcomes[len(stalled) :]
    assert dry(free) == 0 and first_p95(free) < 30
    assert all(o.why == "stop" and o.heard_ms == 36 * 80 for o in waiting)
    assert dry(waiting) == 0  # 20 words in 0.4 s are 1.6 s of sound: they carry it over the stall


def test_text_that_comes_word_by_word_never_runs_dry_while_it_comes_faster_than_speech() -> None:
    plans = [Plan(30.0 * n, 30, tuple((40.0 * word, 1) for word in range(30)), 1_200.0) for n in range(40)]
    outcomes = simulate(plans, OVERLAPPED)
    assert dry(outcomes) == 0 and {o.why for o in outcomes} == {"stop"}


@pytest.mark.parametrize(("rows", "some_run_dry"), [(1, True), (4, False)])
def test_a_writer_that_falters_after_its_first_words_is_not_heard_to(rows: int, some_run_dry: bool) -> None:
    def text(first: int) -> tuple[tuple[float, int], ...]:
        return tuple((20.0 * word + (230.0 if word >= first else 0.0), 1) for word in range(30))

    plans = [Plan(30.0 * n, 30, text(1 + n % 6), 900.0) for n in range(40)]
    outcomes = simulate(plans, OVERLAPPED, start_text_rows=rows)
    assert (dry(outcomes) > 0) == some_run_dry and {o.why for o in outcomes} == {"stop"}


def test_replies_with_prefixes_of_their_own_start_a_little_later_and_make_nobody_run_dry() -> None:
    plans = [replace(plan, prefill_rows=60 if n % 2 else 0) for n, plan in enumerate(poisson(30, 2, 9))]
    outcomes = simulate(plans, OVERLAPPED)
    assert dry(outcomes) == 0 and first_p95(outcomes) < 45
    assert {o.why for o in outcomes} == {"stop"}


PLANS = st.builds(
    Plan,
    at_ms=st.integers(0, 300).map(float),
    frames=st.integers(0, 60),
    text=st.lists(st.tuples(st.integers(0, 900).map(float), st.integers(1, 9)), max_size=5).map(tuple),
    text_ends_ms=st.none() | st.integers(0, 1_200).map(float),
    latency_first=st.booleans(),
    skipped_frames=st.integers(0, 1),
    never_stops=st.booleans(),
    cancel_ms=st.none() | st.integers(0, 500).map(float),
    prefill_rows=st.sampled_from([0, 0, 50]),
)


@settings(max_examples=12, deadline=None)
@given(st.lists(PLANS, max_size=8), st.booleans(), st.sampled_from([2, 4, 128]))
def test_whatever_comes_every_reply_ends_once_and_all_that_was_made_is_heard(
    plans: list[Plan], overlap: bool, slots: int
) -> None:
    costs = OVERLAPPED if overlap else SERIAL
    policy = CyclePolicy(overlap=overlap, slots=slots, knee_rows=3, text_wait_ms=500, spare_frames=20)
    simulation = Simulation(plans, costs, policy)
    for outcome in simulation.run():
        plan = outcome.plan
        assert outcome.why
        if outcome.why == "stop" and plan.frames and outcome.chunks:
            assert sum(outcome.chunks) == plan.frames - plan.skipped_frames
        if outcome.why == "busy":
            assert not outcome.chunks
    assert simulation.scheduler.in_slots == simulation.scheduler.in_line == 0
    assert simulation.scheduler.plan(10**15) == Cycle()


def test_an_end_of_speech_that_never_comes_is_cut_by_the_texts_length_among_healthy_replies() -> None:
    plans = [*poisson(10, 1, 1), Plan(10.0, 0, ((0.0, 20),), never_stops=True)]
    runaway = simulate(plans, OVERLAPPED)[-1]
    policy = CyclePolicy()
    assert runaway.why == "runaway"
    assert sum(runaway.chunks) == policy.spare_frames + 20 * policy.frames_per_text_row


def test_cancelled_replies_leave_within_a_cycle_and_the_rest_goes_on() -> None:
    plans = [Plan(20.0 * n, 140, cancel_ms=100.0 if n % 2 else None) for n in range(30)]
    outcomes = simulate(plans, OVERLAPPED)
    assert [o.why for o in outcomes] == ["aborted" if n % 2 else "stop" for n in range(30)]
    assert max(o.over_ms for o in outcomes[1::2]) < 100 + 1.5 + 15
    assert dry(outcomes) == 0


def test_more_than_the_device_can_do_is_refused_in_time_and_what_is_spoken_does_not_stutter() -> None:
    outcomes = simulate(poisson(200, 0.7, 4), OVERLAPPED, slots=48, admit_wait_ms=200)
    spoken = [o for o in outcomes if o.why == "stop"]
    refused = [o for o in outcomes if o.why == "busy"]
    assert len(spoken) + len(refused) == len(outcomes) and len(spoken) > 40 and refused
    assert max(o.over_ms for o in refused) < 220 and all(o.first_ms is None for o in refused)
    assert max(o.first_ms or 0 for o in spoken) < 280
    assert dry(spoken) == 0


def test_the_device_takes_turns_on_one_stream_and_slows_both_kinds_down_side_by_side() -> None:
    frames = Frames((FrameRow(("a", 1), 0, 0),), 1)
    render = Render((RenderRow(("a", 1), 0, 0, 1),), (1, 1), first_sound=True)
    for overlap, end_ms in ((True, 1.25 * 2.0), (False, 3.0 + 2.0)):
        device = SimulatedDevice(DeviceCosts(3.0, 0.0, 2.0, 0.0, 1.25, overlap=overlap, jitter=0, host_ms=0))
        device.launch(frames)
        device.launch(render)
        ends: dict[str, float] = {}
        while (next_ms := device.next_end_ms()) is not None:
            ends |= {type(what).__name__: device.now_ms for what, _ in device.advance(next_ms)}
        assert ends["Render"] == pytest.approx(end_ms)
        assert ends["Frames"] == pytest.approx(2.5 + 1.0 if overlap else 3.0)


def test_the_table_has_a_row_per_cost_model_and_load(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rps", "4", "8", "--seconds", "0.5"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["costs", "RPS", "n"] and len(rows) == 2 * len(MODELS)
