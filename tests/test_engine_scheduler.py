"""The speech scheduler against a fake device whose steps cost what a laptop core was measured to take."""

import heapq
import itertools
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.clock import NS_PER_MS, NS_PER_S
from voice_agent.engine.runtime import EngineLimits
from voice_agent.engine.scheduler import Decode, Encode, Pace, SpeechScheduler
from voice_agent.engine.urgency import Key

LIMITS = EngineLimits()
PACE = Pace.of(LIMITS, samples_per_frame=256, rate_hz=22_050)
ENCODE_MS = 150  # Talker: 80-216 ms a clause
WINDOW_MS, FRAME_MS = 15, 1.6  # VoiceBox: context of a window, and each frame (real time is 11.6 ms a frame)


@dataclass
class Heard:
    """What one listener got: window sizes, when the first came, how often the sound ran out before the next."""

    windows: list[int] = field(default_factory=list[int])
    encodes_ms: list[float] = field(default_factory=list[float])
    first_ms: float | None = None
    ends_ms: float = 0.0
    underruns: int = 0
    most_ahead_ms: float = 0.0


class Simulation:
    """Replies whose clauses (in frames) come at given milliseconds; one step at a time, as the engine does it."""

    def __init__(self) -> None:
        self.scheduler = SpeechScheduler(PACE)
        self.heard: dict[Key, Heard] = defaultdict(Heard)
        self.now_ms = 0.0
        self._events: list[tuple[float, int, str, Key, int | bool]] = []
        self._order = itertools.count()
        self._waiting: dict[Key, list[int]] = defaultdict(list)

    def at(self, ms: float, what: str, key: Key, value: int | bool = 0) -> None:
        heapq.heappush(self._events, (ms, next(self._order), what, key, value))

    def reply(
        self, name: str, at_ms: float, clauses: list[int], gap_ms: float = 0, *, latency_first: bool = True
    ) -> Key:
        key = (name, 1)
        self.at(at_ms, "open", key, latency_first)
        for index, frames in enumerate(clauses):
            self.at(at_ms + index * gap_ms, "clause", key, frames)
        return key

    @property
    def now_ns(self) -> int:
        return int(self.now_ms * NS_PER_MS)

    def run(self, until_ms: float = 1e9) -> None:
        while self.now_ms < until_ms:
            self._take_events()
            step = self.scheduler.next_step(self.now_ns)
            if step is not None:
                self._do(step)
                continue
            wake_ns = self.scheduler.wake_ns()
            nexts = [self._events[0][0]] if self._events else []
            nexts += [] if wake_ns is None else [max(wake_ns / NS_PER_MS, self.now_ms + 1)]
            if not nexts:
                return
            self.now_ms = min(nexts)

    def _take_events(self) -> None:
        while self._events and self._events[0][0] <= self.now_ms:
            _, _, what, key, value = heapq.heappop(self._events)
            if what == "open":
                self.scheduler.open(key, latency_first=bool(value))
            elif what == "clause":
                self._waiting[key].append(value)
                self.scheduler.add_clause(key, self.now_ns)
            else:
                self.scheduler.drop(key)

    def _do(self, step: Encode | Decode) -> None:
        heard = self.heard[step.key]
        if isinstance(step, Encode):
            heard.encodes_ms.append(self.now_ms)
            self.now_ms += ENCODE_MS
            self.scheduler.encoded(step.key, self._waiting[step.key].pop(0))
            return
        self.now_ms += WINDOW_MS + step.frames * FRAME_MS
        if heard.first_ms is None:
            heard.first_ms = heard.ends_ms = self.now_ms
        heard.underruns += self.now_ms > heard.ends_ms
        heard.ends_ms = max(heard.ends_ms, self.now_ms) + step.frames * PACE.frame_ns / NS_PER_MS
        heard.most_ahead_ms = max(heard.most_ahead_ms, heard.ends_ms - self.now_ms)
        heard.windows.append(step.frames)
        self.scheduler.decoded(step, self.now_ns)


def test_a_lone_reply_starts_at_the_smallest_window_grows_and_never_runs_out() -> None:
    simulation = Simulation()
    heard = simulation.heard[simulation.reply("a", 0, [150, 200, 90])]
    simulation.run()
    assert heard.windows[:4] == [16, 32, 64, 38] and sum(heard.windows) == 440
    assert heard.first_ms == pytest.approx(ENCODE_MS + WINDOW_MS + 16 * FRAME_MS)
    assert heard.underruns == 0


def test_the_next_clause_is_encoded_before_the_one_being_spoken_ends() -> None:
    simulation = Simulation()
    heard = simulation.heard[simulation.reply("a", 0, [300, 300])]
    simulation.run()
    assert heard.encodes_ms[1] < heard.first_ms + 300 * PACE.frame_ns / NS_PER_MS - 800  # type: ignore[operator]
    assert heard.underruns == 0


def test_quality_first_takes_each_clause_whole() -> None:
    simulation = Simulation()
    heard = simulation.heard[simulation.reply("a", 0, [150, 200, 500], latency_first=False)]
    simulation.run()
    assert heard.windows == [150, 200, LIMITS.quality_frames, 500 - LIMITS.quality_frames]


def test_no_window_is_a_crumb() -> None:
    simulation = Simulation()
    heard = simulation.heard[simulation.reply("a", 0, [17, 31, 1, 70, 97, 111])]
    simulation.run()
    assert heard.windows[:3] == [17, 31, 1] and min(heard.windows[3:]) >= LIMITS.ramp_frames[0]


def test_a_newcomers_first_sound_goes_before_a_reply_that_is_ahead_of_its_listener() -> None:
    simulation = Simulation()
    ahead = simulation.heard[simulation.reply("ahead", 0, [900] * 3)]
    new = simulation.heard[simulation.reply("new", 1_000, [100])]
    simulation.run()
    longest_step_ms = WINDOW_MS + 96 * FRAME_MS
    assert new.first_ms is not None
    assert new.first_ms - 1_000 <= longest_step_ms + ENCODE_MS + WINDOW_MS + 16 * FRAME_MS
    assert ahead.underruns == 0 and new.underruns == 0


def test_a_reply_far_ahead_rests_while_another_is_open_so_that_it_never_waits_for_a_step() -> None:
    simulation = Simulation()
    ahead = simulation.heard[simulation.reply("ahead", 0, [3_000])]
    simulation.at(100, "open", ("silent", 1), True)
    simulation.run(until_ms=5_000)
    assert (
        LIMITS.lead_s * 1_000 <= ahead.most_ahead_ms <= LIMITS.lead_s * 1_000 + 96 * PACE.frame_ns / NS_PER_MS
    )


def test_a_lone_reply_is_rendered_up_to_the_cap_and_then_in_step_with_its_listener() -> None:
    simulation = Simulation()
    heard = simulation.heard[simulation.reply("a", 0, [6_000])]
    simulation.run()
    assert heard.most_ahead_ms <= LIMITS.lead_cap_s * 1_000 + 96 * PACE.frame_ns / NS_PER_MS
    assert heard.underruns == 0 and sum(heard.windows) == 6_000


def test_between_two_sounding_replies_the_one_that_runs_out_first_is_served() -> None:
    scheduler = SpeechScheduler(PACE)
    for name, frames in (("long", 400), ("short", 20)):
        key = (name, 1)
        scheduler.open(key, latency_first=False)
        scheduler.add_clause(key, 0)
        scheduler.encoded(key, frames)
        scheduler.decoded(Decode(key, 0, frames, last=True), 0)
        scheduler.add_clause(key, 0)
    assert scheduler.next_step(NS_PER_MS) == Encode(("short", 1))


def test_replies_without_sound_are_served_in_the_order_in_which_they_had_text() -> None:
    scheduler = SpeechScheduler(PACE)
    for name in ("first opened", "first to speak"):
        scheduler.open((name, 1), latency_first=True)
    scheduler.add_clause(("first to speak", 1), 10)
    scheduler.add_clause(("first opened", 1), 20)
    assert scheduler.next_step(30) == Encode(("first to speak", 1))


def test_after_the_sound_ran_out_windows_start_small_again() -> None:
    simulation = Simulation()
    heard = simulation.heard[simulation.reply("a", 0, [300, 300], gap_ms=20_000)]
    simulation.run()
    again = heard.windows.index(16, 1)
    assert sum(heard.windows[:again]) == 300 and heard.windows[again : again + 2] == [16, 32]


def test_a_dropped_reply_takes_no_more_steps() -> None:
    simulation = Simulation()
    dropped = simulation.reply("dropped", 0, [2_000])
    simulation.at(400, "drop", dropped)
    other = simulation.reply("other", 500, [50])
    simulation.run()
    assert sum(simulation.heard[dropped].windows) < 2_000 and sum(simulation.heard[other].windows) == 50


def test_clauses_without_sound_leave_no_work() -> None:
    scheduler = SpeechScheduler(PACE)
    key = ("a", 1)
    scheduler.open(key, latency_first=True)
    scheduler.add_clause(key, 0)
    scheduler.encoded(key, 0)
    assert not scheduler.has_work(key) and scheduler.next_step(0) is None and scheduler.wake_ns() is None


@given(
    replies=st.lists(
        st.tuples(
            st.integers(0, 8_000),
            st.lists(st.integers(0, 700), max_size=6),
            st.integers(0, 1_500),
            st.booleans(),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_every_frame_of_every_reply_is_decoded_once_and_in_order(
    replies: list[tuple[int, list[int], int, bool]],
) -> None:
    simulation = Simulation()
    keys = [
        simulation.reply(str(n), at_ms, clauses, gap_ms, latency_first=mode)
        for n, (at_ms, clauses, gap_ms, mode) in enumerate(replies)
    ]
    simulation.run()
    for key, (_, clauses, _, _) in zip(keys, replies, strict=True):
        assert sum(simulation.heard[key].windows) == sum(clauses)
        assert len(simulation.heard[key].encodes_ms) == len(clauses)
        assert not simulation.scheduler.has_work(key)


def test_the_pace_of_a_model_counts_in_its_own_frames() -> None:
    assert pytest.approx(256 / 22_050 * NS_PER_S) == PACE.frame_ns
