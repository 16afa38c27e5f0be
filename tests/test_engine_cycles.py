"""The cycle scheduler, event by event: rows, batches, slots, ends. Loads are in the simulation's test."""

import pytest

from voice_agent.bench.speech_device import DeviceCosts
from voice_agent.clock import NS_PER_MS
from voice_agent.engine.costs import Costs
from voice_agent.engine.cycles import CycleScheduler
from voice_agent.engine.launches import Ending, Frames, Prefill, Render, RenderRow
from voice_agent.engine.slot_stream import CyclePolicy, SpeechRequest
from voice_agent.engine.urgency import Key

DEVICE = DeviceCosts(3.4, 0.03, 2.0, 0.04, overlap_slowdown=1.0)
A, B, C = ("a", 1), ("b", 1), ("c", 1)


class Bench:
    """A scheduler turned by hand: every launch is done when `step` says so."""

    def __init__(self, **policy: float) -> None:
        self.policy = CyclePolicy(**policy)  # type: ignore[arg-type]
        self.scheduler = CycleScheduler(self.policy, DEVICE.measured())
        self.now_ms = 0.0
        self.renders: list[Render] = []
        self.endings: list[Ending] = []

    @property
    def now_ns(self) -> int:
        return int(self.now_ms * NS_PER_MS)

    def speak(self, key: Key, rows: int = 100, *, ended: bool = True, **request: object) -> None:
        self.scheduler.admit(SpeechRequest(key, **request), self.now_ns)  # type: ignore[arg-type]
        self.scheduler.append(key, rows, self.now_ns)
        if ended:
            self.scheduler.ended(key, self.now_ns)

    def frames(self, stopped: tuple[Key, ...] = ()) -> Frames | None:
        """Plan and do one cycle, renders included; returns the rows that were in it."""
        cycle = self.scheduler.plan(self.now_ns)
        self.now_ms += 3.5
        for render in cycle.renders:
            self.renders.append(render)
            self.scheduler.render_done(render, self.now_ns, 2.0)
        if cycle.frames:
            self.scheduler.frames_done(
                cycle.frames, self.now_ns, 3.5, [k for k in stopped if k in keys(cycle.frames)]
            )
        self.endings += self.scheduler.endings()
        return cycle.frames

    def rendered(self, key: Key) -> list[int]:
        return [row.frames for render in self.renders for row in render.rows if row.key == key]


def keys(frames: Frames | None) -> list[Key]:
    return [row.key for row in frames.rows] if frames else []


def test_a_reply_is_a_row_from_its_first_cycle_on_and_its_frames_are_counted() -> None:
    bench = Bench()
    bench.speak(A)
    rows = [bench.frames() for _ in range(3)]
    assert [frames.rows[0].frame for frames in rows if frames] == [0, 1, 2]
    assert rows[0] is not None and rows[0].bucket == 1


def test_the_first_sound_leaves_as_soon_as_one_audible_frame_is_made() -> None:
    bench = Bench()
    bench.speak(A)
    bench.frames()
    bench.frames()
    assert [render.first_sound for render in bench.renders] == [True]
    assert bench.renders[0].rows == (RenderRow(A, 0, 0, 1),)


def test_a_frame_that_never_sounds_is_waited_for_and_rendered_with_the_first_audible_one() -> None:
    bench = Bench()
    bench.speak(A, skipped_frames=1)
    for _ in range(3):
        bench.frames()
    assert bench.rendered(A) == [2]


def test_where_cycles_are_long_a_first_sound_takes_one_frame_more() -> None:
    bench = Bench(brisk_cycle_ms=3.0)
    bench.speak(A)
    for _ in range(3):
        bench.frames()
    assert bench.rendered(A) == [2]


def test_later_chunks_are_what_is_buffered_when_it_must_leave_or_is_worth_a_launch() -> None:
    bench = Bench()
    bench.speak(A)
    for _ in range(60):
        bench.frames()
    assert bench.rendered(A)[:3] == [1, 12, 12]
    assert bench.scheduler.underruns(A) == 0


@pytest.mark.parametrize("speed", [0.25, 1.0, 2.0, 4.0])
def test_a_reply_at_another_speed_starts_with_as_much_sound_and_never_runs_dry(speed: float) -> None:
    bench = Bench()
    bench.speak(A, speed=speed)
    for _ in range(90):
        bench.frames()
    assert bench.rendered(A)[0] == max(1, speed)
    assert bench.scheduler.underruns(A) == 0


def test_a_fast_reply_counts_as_the_listeners_that_it_is_worth() -> None:
    slow, fast = Bench(admit_share=0.1), Bench(admit_share=0.1)
    for n in range(9):
        slow.speak(("slow", n))
        fast.speak(("fast", n), speed=4.0)
    for bench in (slow, fast):
        bench.frames()
    assert slow.scheduler.in_slots == 9 > fast.scheduler.in_slots


def test_without_text_a_row_is_left_out_and_comes_back_with_it() -> None:
    bench = Bench()
    bench.speak(A, rows=2, ended=False)
    assert [keys(bench.frames()) for _ in range(4)] == [[A], [A], [], []]
    bench.scheduler.append(A, 1, bench.now_ns)
    assert keys(bench.frames()) == [A]
    assert keys(bench.frames()) == []
    bench.scheduler.ended(A, bench.now_ns)
    assert keys(bench.frames()) == [A]


def test_a_reply_whose_text_still_comes_starts_once_it_can_bear_a_writer_that_falters() -> None:
    bench = Bench()
    bench.speak(A, rows=1, ended=False)
    for _ in range(3):
        bench.frames()
        assert bench.rendered(A) == []
        bench.scheduler.append(A, 1, bench.now_ns)
    for _ in range(2):
        bench.frames()
    assert bench.rendered(A) and bench.scheduler.underruns(A) == 0
    ended = Bench()
    ended.speak(A, rows=1)
    for _ in range(2):
        ended.frames()
    assert ended.rendered(A) == [1]


def test_text_that_stops_before_a_start_is_spoken_after_a_moment() -> None:
    bench = Bench()
    bench.speak(A, rows=1, ended=False, skipped_frames=1)
    bench.frames()
    bench.frames()
    assert bench.rendered(A) == []
    while not bench.rendered(A):
        wake_ns = bench.scheduler.wake_ns(bench.now_ns)
        assert wake_ns is not None
        bench.now_ms = wake_ns / NS_PER_MS
        bench.frames()
    assert bench.rendered(A) == [1]
    assert 200 <= bench.now_ms <= 220


def test_the_end_of_speech_is_no_frame_and_ends_the_reply_after_its_last_sound() -> None:
    bench = Bench()
    bench.speak(A)
    for _ in range(5):
        bench.frames()
    bench.frames(stopped=(A,))
    for _ in range(3):
        bench.frames()
    assert bench.endings == [Ending(A, "stop", 5)]
    assert sum(bench.rendered(A)) == 5
    assert bench.scheduler.in_slots == 0 and bench.scheduler.plan(bench.now_ns).frames is None


def test_a_spare_frame_launched_before_the_end_was_known_is_no_sound() -> None:
    bench = Bench()
    bench.speak(A)
    first = bench.scheduler.plan(0).frames
    second = bench.scheduler.plan(int(3.0 * NS_PER_MS)).frames  # 0.43 ms before the first ends
    assert first and second and [row.frame for row in second.rows] == [1]
    bench.scheduler.frames_done(first, int(3.43 * NS_PER_MS), 3.43, [A])
    assert bench.scheduler.endings() == []
    bench.scheduler.frames_done(second, int(6.9 * NS_PER_MS), 3.43, [A])
    assert bench.scheduler.endings() == [Ending(A, "stop", 0)]


def test_the_next_cycle_is_queued_shortly_before_the_running_one_ends_and_no_more_than_one() -> None:
    bench = Bench()
    bench.speak(A)
    scheduler = bench.scheduler
    assert scheduler.plan(0).frames
    assert scheduler.plan(int(2.0 * NS_PER_MS)).frames is None
    wake_ns = scheduler.wake_ns(int(2.0 * NS_PER_MS)) or 0
    assert wake_ns == pytest.approx((3.43 - bench.policy.launch_ahead_ms) * NS_PER_MS, abs=2)
    assert scheduler.plan(wake_ns).frames
    assert scheduler.plan(wake_ns).frames is None


@pytest.mark.parametrize("why", ["length", "runaway"])
def test_an_end_of_speech_that_never_comes_is_capped_and_reported(why: str) -> None:
    bench = Bench(frames_per_text_row=2, spare_frames=3)
    bench.speak(A, rows=5, most_frames=7 if why == "length" else 100)
    for _ in range(40):
        bench.frames()
    frames = 7 if why == "length" else 13
    assert bench.endings == [Ending(A, why, frames)] and sum(bench.rendered(A)) == frames


def test_text_that_neither_comes_nor_ends_gives_its_slot_back() -> None:
    bench = Bench(text_wait_ms=1_000)
    bench.speak(A, rows=3, ended=False)
    for _ in range(300):
        bench.frames()
        bench.now_ms += 1
    assert bench.endings == [Ending(A, "text_stalled", 3)] and sum(bench.rendered(A)) == 3


def test_no_text_at_all_is_a_reply_of_no_frames() -> None:
    bench = Bench()
    bench.speak(A, rows=0)
    bench.frames()
    assert bench.endings == [Ending(A, "stop", 0)]


def test_a_cancelled_reply_is_in_no_further_launch_and_its_slot_is_free_when_the_running_ones_end() -> None:
    bench = Bench(slots=1)
    bench.speak(A)
    bench.speak(B)
    running = bench.scheduler.plan(0).frames
    assert keys(running) == [A]
    bench.scheduler.cancel(A)
    assert bench.scheduler.endings() == []
    assert bench.scheduler.plan(int(3.0 * NS_PER_MS)).frames is None
    assert running
    bench.scheduler.frames_done(running, int(3.43 * NS_PER_MS), 3.43)
    assert bench.scheduler.endings() == [Ending(A, "aborted", 0)]
    following = bench.scheduler.plan(int(3.43 * NS_PER_MS)).frames
    assert following and following.rows[0].key == B and following.rows[0].slot == 0


def test_a_failed_row_ends_one_reply_with_its_reason_and_no_other() -> None:
    bench = Bench()
    bench.speak(A)
    bench.speak(B)
    bench.frames()
    bench.scheduler.cancel(A, "invalid_code")
    assert keys(bench.frames()) == [B]
    assert bench.endings == [Ending(A, "invalid_code", 1)]


def test_a_waiting_reply_can_be_cancelled() -> None:
    bench = Bench(slots=1)
    bench.speak(A)
    bench.frames()
    bench.speak(B)
    bench.frames()
    bench.scheduler.cancel(B)
    assert bench.scheduler.endings() == [Ending(B, "aborted", 0)] and bench.scheduler.in_line == 0


def test_replies_wait_for_a_slot_in_order_and_are_refused_as_busy_after_a_while() -> None:
    bench = Bench(slots=1, admit_wait_ms=100)
    bench.speak(A)
    bench.frames()
    bench.speak(B)
    while bench.now_ms < 50:
        bench.frames()
    bench.speak(C)
    while bench.now_ms < 120:
        bench.frames()
    assert bench.endings == [Ending(B, "busy", 0)]
    bench.scheduler.cancel(A)
    bench.frames()
    assert keys(bench.frames()) == [C]


def test_a_full_line_refuses_at_once() -> None:
    bench = Bench(slots=1, waiting_replies=1)
    bench.speak(A)
    bench.frames()
    bench.speak(B)
    bench.speak(C)
    assert bench.scheduler.endings() == [Ending(C, "busy", 0)]


def test_a_newcomer_that_would_make_the_cycle_too_long_waits_though_slots_are_free() -> None:
    bench = Bench(admit_cycle_ms=3.45)  # two rows take 3.46
    bench.speak(A)
    bench.frames()
    bench.speak(B)
    assert keys(bench.frames()) == [A]
    assert bench.scheduler.in_line == 1
    bench.scheduler.cancel(A)
    assert keys(bench.frames()) == [B]


def test_estimates_that_grow_close_admission() -> None:
    bench = Bench(admit_cycle_ms=5.0)
    bench.speak(A)
    bench.frames()
    for _ in range(60):
        bench.scheduler.costs.learn_frames(2, 6.0)
    bench.speak(B)
    bench.scheduler.plan(bench.now_ns)
    assert bench.scheduler.in_line == 1


def test_past_the_knee_rows_far_ahead_stay_out_while_somebody_waits_for_a_first_sound() -> None:
    bench = Bench(knee_rows=2, rest_ms=500)
    for name in "abc":
        bench.speak((name, 1))
    while bench.now_ms < 300:
        bench.frames()
    bench.speak(("new", 1))
    frames = bench.frames()
    assert len(keys(frames)) == 2 and ("new", 1) in keys(frames)
    while bench.now_ms < 350:
        bench.frames()
    assert len(keys(bench.frames())) == 4


def test_latency_first_rests_at_its_lead_cap_and_quality_first_does_not() -> None:
    bench = Bench(lead_cap_ms=800)
    bench.speak(A)
    bench.speak(B, latency_first=False)
    while bench.now_ms < 100:
        bench.frames()
    for _ in range(10):
        assert B in keys(bench.frames())
    assert sum(bench.rendered(A)) <= 10 + bench.now_ms / 80 + 2 < sum(bench.rendered(B))


def test_quality_first_takes_its_chunks_whole_and_lets_a_first_sound_pass() -> None:
    bench = Bench()
    bench.speak(A, latency_first=False)
    for _ in range(10):
        bench.frames()
    bench.speak(B)
    for _ in range(60):
        bench.frames()
    assert bench.rendered(B)[0] == 1
    assert set(bench.rendered(A)[:3]) == {16}


@pytest.mark.parametrize(("rest_ms", "makes_way"), [(500.0, True), (60_000.0, False)])
def test_quality_first_that_is_well_ahead_makes_way_until_a_first_sound_is_out(
    rest_ms: float, makes_way: bool
) -> None:
    bench = Bench(quality_rest_ms=rest_ms)
    for key in (A, C):
        bench.speak(key, latency_first=False)
    while sum(bench.rendered(A)) < 32:
        bench.frames()
    chunks = bench.rendered(A)
    bench.speak(B)
    rows: list[list[Key]] = []
    while not bench.rendered(B):
        rows.append(keys(bench.frames()))
    assert rows[0] == ([B] if makes_way else [A, C, B])
    assert bench.rendered(A) == chunks
    assert set(keys(bench.frames())) == {A, B, C}


def test_a_ring_that_is_full_holds_the_row_back() -> None:
    bench = Bench(ring_frames=4)
    bench.speak(A)
    scheduler = bench.scheduler
    for _ in range(8):
        frames = scheduler.plan(bench.now_ns).frames  # renders are launched but never done
        if frames:
            bench.now_ms += 3.5
            scheduler.frames_done(frames, bench.now_ns, 3.5)
    assert scheduler.plan(bench.now_ns).frames is None


def test_nothing_overlaps_on_one_stream() -> None:
    bench = Bench(overlap=False)
    bench.speak(A)
    bench.speak(B)
    seen: list[str] = []
    for _ in range(12):
        cycle = bench.scheduler.plan(bench.now_ns)
        assert len(cycle.renders) + (cycle.frames is not None) <= 1
        bench.now_ms += 3.5
        for render in cycle.renders:
            bench.scheduler.render_done(render, bench.now_ns, 2.0)
            seen.append("render")
        if cycle.frames:
            bench.scheduler.frames_done(cycle.frames, bench.now_ns, 3.5)
            seen.append("frames")
    assert seen[:3] == ["frames", "render", "frames"]


def test_sound_cut_as_silence_leaves_the_reply_without_a_first_sound() -> None:
    bench = Bench()
    bench.speak(A)
    bench.frames()
    cycle = bench.scheduler.plan(bench.now_ns)
    assert cycle.renders[0].first_sound
    bench.scheduler.render_done(cycle.renders[0], bench.now_ns, 2.0, {A: 0.0})
    assert cycle.frames
    bench.scheduler.frames_done(cycle.frames, bench.now_ns + 1, 3.5)
    assert bench.scheduler.plan(bench.now_ns + 1).renders[0].first_sound


def test_a_reply_with_a_prefix_of_its_own_is_prefilled_whole_before_its_first_frame() -> None:
    bench = Bench()
    bench.speak(A, prefill_rows=40)
    bench.speak(B)
    cycle = bench.scheduler.plan(0)
    assert cycle.prefill == Prefill(A, 0, 40, 64) and cycle.frames is None
    assert keys(bench.scheduler.plan(int(2.5 * NS_PER_MS)).frames) == [B]
    assert cycle.prefill
    bench.scheduler.prefill_done(cycle.prefill, int(3.0 * NS_PER_MS), 3.0)
    following = bench.scheduler.plan(int(6.0 * NS_PER_MS)).frames
    assert following and [(row.key, row.frame) for row in following.rows] == [(A, 0), (B, 1)]


def test_prefills_and_frames_take_turns_and_a_prefill_waits_for_text_and_can_be_cancelled() -> None:
    bench = Bench()
    bench.speak(A)
    for key in (B, C):
        bench.speak(key, rows=0, ended=False, prefill_rows=100)
    assert keys(bench.frames()) == [A]
    for key in (B, C):
        bench.scheduler.append(key, 5, bench.now_ns)
    prefill = bench.scheduler.plan(bench.now_ns).prefill
    assert prefill and prefill.key == B
    bench.scheduler.cancel(B)
    assert bench.scheduler.endings() == []
    bench.scheduler.prefill_done(prefill, bench.now_ns, 3.0)
    assert bench.scheduler.endings() == [Ending(B, "aborted", 0)]
    assert keys(bench.frames()) == [A]
    following = bench.scheduler.plan(bench.now_ns).prefill
    assert following and following.key == C
    with pytest.raises(ValueError, match="prefill graph"):
        bench.speak(("too long", 1), prefill_rows=10_000)


def test_a_key_in_use_is_a_bug_and_late_news_of_a_reply_that_is_over_is_not() -> None:
    bench = Bench()
    bench.speak(A)
    with pytest.raises(ValueError, match="spoken already"):
        bench.speak(A)
    for late in (B, C):
        bench.scheduler.append(late, 3, 0)
        bench.scheduler.ended(late, 0)
        bench.scheduler.cancel(late)


def test_costs_name_the_smallest_graph_that_holds_it_and_refuse_what_none_holds() -> None:
    costs = Costs({1: 3.0, 4: 3.2}, {(2, 1): 2.0, (2, 4): 2.3, (8, 1): 2.5, (8, 2): 3.0})
    assert [costs.frame_bucket(rows) for rows in (1, 2, 4)] == [1, 4, 4]
    assert costs.render_bucket(1, 1) == (2, 1) and costs.render_bucket(3, 2) == (8, 2)
    assert costs.most_render_rows(3) == 2 and costs.most_render_rows(9) == 0
    assert costs.frame_ms(9) == pytest.approx(3.2 + 3.2 + 3.0)
    with pytest.raises(ValueError, match="frame graph"):
        costs.frame_bucket(5)
    with pytest.raises(ValueError, match="VoiceBox graph"):
        costs.render_bucket(8, 4)
    with pytest.raises(ValueError, match="bucket"):
        Costs({}, {(1, 1): 1.0})


def test_a_hiccup_moves_an_estimate_by_little_and_a_trend_moves_it_all_the_way() -> None:
    costs = Costs({1: 3.0}, {(1, 1): 2.0})
    costs.learn_frames(1, 5_000.0)
    assert costs.frame_ms(1) == pytest.approx(3.9)
    for _ in range(100):
        costs.learn_render((1, 1), 3.0)
    assert costs.render_ms(1, 1) == pytest.approx(3.0, abs=0.01)
