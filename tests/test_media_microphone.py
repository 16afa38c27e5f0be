"""The media clock: loss, reordering, DTX, stalls, restarts and drift, all against one unbroken line."""

import asyncio
import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.audio import MicrophoneFrame, Samples, dbfs
from voice_agent.clock import ManualClock
from voice_agent.media.microphone import INBOX_FRAMES, PIECE, MediaClock, Microphone

MS = 1_000_000


def tone(start: int, length: int = PIECE) -> Samples:
    """440 Hz at 16 kHz as seen from RTP time 0, so that pieces fit together; `start` and `length` in RTP time."""
    return (8_000 * np.sin(2 * np.pi * 440 * np.arange(start, start + length, 3) / 48_000)).astype(np.int16)


class Line:
    """Feeds a media clock with packets and ticks in the order of time, and keeps what comes out."""

    def __init__(self) -> None:
        self.clock = MediaClock(0)
        self.frames: list[MicrophoneFrame] = []
        self.now_ms = 0.0

    def until(self, ms: float) -> None:
        while self.now_ms + 20 <= ms:
            self.now_ms += 20
            self.frames += self.clock.tick(int(self.now_ms * MS))
        self.now_ms = ms

    def packet(self, at_ms: float, number: int, samples: Samples | None = None, base: int = 0) -> None:
        """Packet `number` (RTP time 960 * number + base) arrives at `at_ms`."""
        self.until(at_ms)
        pcm = tone(number * PIECE) if samples is None else samples
        self.frames += self.clock.push(number * PIECE + base, pcm, int(at_ms * MS))

    @property
    def sound(self) -> Samples:
        return np.concatenate([frame.samples for frame in self.frames])

    @property
    def ms(self) -> float:
        return 20.0 * len(self.frames)

    def assert_unbroken(self) -> None:
        assert [frame.first_sample for frame in self.frames] == [320 * n for n in range(len(self.frames))]
        assert all(len(frame.samples) == 320 and frame.samples.dtype == np.int16 for frame in self.frames)

    def loud_ms(self) -> float:
        return 20.0 * sum(dbfs(frame.samples) > -30 for frame in self.frames)


def steps(samples: Samples) -> int:
    return int(np.abs(np.diff(samples.astype(int))).max())


def assert_is_the_tone(sound: Samples) -> None:
    """Apart from the first and last moments."""
    right = tone(0, 48_000).astype(int)[: len(sound)]
    assert np.abs(sound.astype(int) - right)[400:-400].max() < 40


TONE_STEP = steps(tone(0, 48_000))


def test_a_clean_stream_goes_through_whole_and_at_once() -> None:
    line = Line()
    for n in range(50):
        line.packet(20 * n, n)
        assert len(line.frames) == n + 1
    line.assert_unbroken()
    assert_is_the_tone(line.sound)
    assert not any(frame.concealed for frame in line.frames)


def test_a_lost_packet_is_20_ms_of_marked_soft_silence() -> None:
    line = Line()
    for n in range(50):
        if n != 25:
            line.packet(20 * n, n)
    line.assert_unbroken()
    assert [frame.first_sample // 320 for frame in line.frames if frame.concealed] == [25]
    assert line.ms == pytest.approx(1000, abs=20)
    assert steps(line.sound) < TONE_STEP * 2


@pytest.mark.parametrize("order", [(1, 0), (2, 0, 1), (1, 2, 0)])
def test_reordering_within_40_ms_is_put_right(order: tuple[int, ...]) -> None:
    line = Line()
    for n in range(20):
        line.packet(20 * n, n)
    for place, offset in enumerate(order):
        line.packet(400 + 15 * place, 20 + offset)
    for n in range(20 + len(order), 50):
        line.packet(20 * n, n)
    assert_is_the_tone(line.sound)


def test_a_lost_packet_holds_the_next_ones_back_for_40_ms_at_most() -> None:
    line = Line()
    for n in range(10):
        line.packet(20 * n, n)
    line.packet(220, 11)
    line.until(261)
    line.frames += line.clock.tick(261 * MS)
    assert line.ms >= 220


def test_loss_and_jitter_cost_what_was_lost_and_hardly_more() -> None:
    concealed = lost = late = frames = 0
    for seed in range(50):
        chance, line = random.Random(seed), Line()
        arrivals = [(20 * n + 30 * chance.random(), n) for n in range(100) if chance.random() >= 0.1]
        for at_ms, n in sorted(arrivals):
            line.packet(at_ms, n)
        line.until(2060)
        line.assert_unbroken()
        here = sum(frame.concealed for frame in line.frames)
        assert here <= 0.3 * len(line.frames)
        concealed, frames = concealed + here, frames + len(line.frames)
        lost, late = lost + 100 - len(arrivals), late + line.clock.dropped_late
    assert late < 0.005 * frames
    assert concealed == pytest.approx(lost + late, rel=0.1)


def test_duplicates_and_late_packets_are_dropped() -> None:
    line = Line()
    for n in range(50):
        line.packet(20 * n, n)
        line.packet(20 * n + 1, n)
        if n > 10:
            line.packet(20 * n + 2, n - 5)
    line.assert_unbroken()
    assert line.ms == pytest.approx(1000, abs=20)
    assert line.clock.dropped_late == 50 + 39


def test_a_dtx_gap_has_its_true_length() -> None:
    """C03: one packet each 400 ms for 2 s between two stretches of sound."""
    line = Line()
    for n in range(50):
        line.packet(20 * n, n)
    for n in range(70, 150, 20):
        line.packet(20 * n, n, np.zeros(PIECE // 3, np.int16))
    for n in range(150, 200):
        line.packet(20 * n, n)
    line.assert_unbroken()
    loud = [n for n, frame in enumerate(line.frames) if dbfs(frame.samples) > -30]
    gaps = [b - a for a, b in itertools.pairwise(loud) if b - a > 1]
    assert len(gaps) == 1
    assert 20 * (gaps[0] - 1) == pytest.approx(2000, abs=60)
    assert line.ms == pytest.approx(4000, abs=40)


def test_silence_goes_on_by_the_wall_clock_when_packets_stop() -> None:
    """C04: the line stays at most 120 ms behind."""
    line = Line()
    for n in range(100):
        line.packet(20 * n, n)
    line.until(7000)
    line.assert_unbroken()
    assert line.ms == pytest.approx(7000, abs=130)
    assert not line.sound[-16_000:].any()
    assert steps(line.sound) < TONE_STEP * 2


def test_silence_comes_before_the_first_packet_too() -> None:
    """C15: a microphone that is off at the start."""
    line = Line()
    line.until(20_000)
    assert line.ms == pytest.approx(20_000, abs=130)
    line.packet(20_000, 7)
    for n in range(1, 50):
        line.packet(20_000 + 20 * n, 7 + n)
    assert line.loud_ms() == pytest.approx(1000, abs=40)
    assert line.ms == pytest.approx(21_000, abs=130)


def test_a_sender_that_paused_its_count_goes_on_without_loss() -> None:
    line = Line()
    for n in range(50):
        line.packet(20 * n, n)
    for n in range(50, 100):
        line.packet(9_000 + 20 * n, n)
    line.assert_unbroken()
    assert line.loud_ms() == pytest.approx(2000, abs=60)
    assert line.ms == pytest.approx(11_000, abs=130)


@pytest.mark.parametrize("base", [PIECE * 5000, -PIECE * 5000, -PIECE * 30, 1 << 31])
def test_a_sender_that_jumps_makes_no_extra_time(base: int) -> None:
    line = Line()
    for n in range(50):
        line.packet(20 * n, n)
    for n in range(50, 150):
        line.packet(20 * n, n, base=base)
    line.assert_unbroken()
    assert line.ms == pytest.approx(3000, abs=240)
    assert line.loud_ms() >= 2700


def test_a_short_jam_loses_nothing_and_adds_nothing() -> None:
    line = Line()
    for n in range(50):
        line.packet(20 * n, n)
    for n in range(50, 54):
        line.packet(1079, n)
    for n in range(54, 100):
        line.packet(20 * n, n)
    assert line.loud_ms() == pytest.approx(2000, abs=40)
    assert line.ms == pytest.approx(2000, abs=20)


def test_a_jam_is_played_late_but_the_lead_it_leaves_is_bounded() -> None:
    line = Line()
    for n in range(50):
        line.packet(20 * n, n)
    for n in range(50, 350):
        line.packet(7_000, n)  # six seconds at once
    for n in range(350, 450):
        line.packet(20 * n, n)
    line.assert_unbroken()
    assert line.ms <= 9000 + 1040
    assert line.clock.dropped_late > 200


@pytest.mark.parametrize("ppm", [1000, -1000])
def test_drift_does_not_add_up(ppm: int) -> None:
    """A thousand ppm, ten times a bad crystal, for five minutes: 300 ms if it did."""
    line = Line()
    piece = np.zeros(PIECE, np.int16)  # 60 ms
    for n in range(5 * 1000):
        line.now_ms = 60 * n * (1 - ppm * 1e-6)
        now_ns = int(line.now_ms * MS)
        line.frames = [
            *line.frames[-1:],
            *line.clock.push(n * 3 * PIECE, piece, now_ns),
            *line.clock.tick(now_ns),
        ]
    stopped_ms = line.now_ms
    before = line.frames[-1].first_sample
    line.until(stopped_ms + 5000)
    after = line.frames[-1].first_sample
    assert (after - before) / 16 == pytest.approx(5000, abs=190)


def test_rtp_time_may_wrap() -> None:
    line = Line()
    base = (1 << 32) - 25 * PIECE
    for n in range(50):
        line.until(20 * n)
        line.frames += line.clock.push((base + n * PIECE) % (1 << 32), tone(n * PIECE), 20 * n * MS)
    assert line.ms == pytest.approx(1000, abs=20)
    assert line.loud_ms() == pytest.approx(1000, abs=20)


def test_a_consumer_that_slept_gets_a_bounded_catch_up() -> None:
    clock = MediaClock(0)
    frames = clock.tick(600_000 * MS)
    assert len(frames) * 20 <= 5_000


@given(
    arrivals=st.lists(st.tuples(st.integers(0, 120), st.booleans()), min_size=5, max_size=60),
    jumps=st.lists(st.integers(-(1 << 33), 1 << 33), max_size=3),
    length=st.sampled_from([120, 480, 960, 1920, 5760]),
)
def test_whatever_comes_the_line_is_unbroken_and_near_the_wall_clock(
    arrivals: list[tuple[int, bool]], jumps: list[int], length: int
) -> None:
    line = Line()
    events = sorted((20 * n + delay, n) for n, (delay, lost) in enumerate(arrivals) if not lost)
    for place, (at_ms, n) in enumerate(events):
        base = jumps[place % len(jumps)] if jumps and place > 10 else 0
        line.packet(at_ms, n, np.ones(length // 3, np.int16), base=base)
    line.until(line.now_ms + 2000)
    line.assert_unbroken()
    assert line.ms >= line.now_ms - 160
    assert line.ms <= line.now_ms + 1300


# --- the shell ----------------------------------------------------------------------------------------------------


class Listening:
    """A microphone whose frames are collected while the manual clock is turned."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.microphone = Microphone(self.clock)
        self.frames: list[MicrophoneFrame] = []

    async def collect(self) -> None:
        async for frame in self.microphone.frames():
            self.frames.append(frame)

    def put(self, number: int) -> None:
        self.microphone.put(number * PIECE, tone(number * PIECE))

    async def __aenter__(self) -> "Listening":
        self.task = asyncio.create_task(self.collect())
        await self.clock.advance_ms(1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.microphone.close()
        await asyncio.wait_for(self.task, 1)


async def test_frames_come_as_packets_do_and_close_ends_the_iteration() -> None:
    async with Listening() as ears:
        for n in range(10):
            ears.put(n)
            await ears.clock.advance_ms(0)
            assert len(ears.frames) == n + 1
            await ears.clock.advance_ms(20)
    assert dbfs(ears.frames[5].samples) > -20


async def test_silence_goes_on_when_packets_stop_and_sound_when_they_come_again() -> None:
    """C12."""
    async with Listening() as ears:
        ears.put(0)
        await ears.clock.advance_ms(3000)
        assert len(ears.frames) * 20 >= 2880
        for n in range(10):
            ears.put(n + 77)
            await ears.clock.advance_ms(20)
        assert sum(dbfs(frame.samples) > -30 for frame in ears.frames[-10:]) >= 5


async def test_a_packet_that_waits_for_a_lost_one_is_heard_though_no_other_comes() -> None:
    async with Listening() as ears:
        ears.put(0)
        await ears.clock.advance_ms(20)
        ears.put(2)
        await ears.clock.advance_ms(61)
        assert sum(dbfs(frame.samples) > -30 for frame in ears.frames) >= 2


async def test_while_packets_come_nothing_else_wakes_the_consumer() -> None:
    async with Listening() as ears:
        woken = 0
        wake = ears.microphone._wake.set  # pyright: ignore[reportPrivateUsage]

        def counted() -> None:
            nonlocal woken
            woken += 1
            wake()

        ears.microphone._wake.set = counted  # type: ignore[method-assign]  # pyright: ignore[reportPrivateUsage]
        for n in range(50):
            ears.put(n)
            await ears.clock.advance_ms(20)
        assert woken == 50


async def test_what_came_before_anybody_listened_is_gone() -> None:
    """C01."""
    clock = ManualClock()
    microphone = Microphone(clock)
    assert not microphone.listened_to
    for n in range(INBOX_FRAMES * 3):
        microphone.put(n * PIECE, tone(n * PIECE))
    frames: list[MicrophoneFrame] = []

    async def collect() -> None:
        async for frame in microphone.frames():
            frames.append(frame)

    task = asyncio.create_task(collect())
    await clock.advance_ms(10)
    assert frames == [] and microphone.listened_to
    await microphone.close()
    await task
    assert not microphone.listened_to


async def test_cancelling_the_consumer_passes_through_and_listening_can_go_on() -> None:
    async with Listening() as ears:
        await ears.clock.advance_ms(500)
        ears.task.cancel()
        await asyncio.gather(ears.task, return_exceptions=True)
        count = len(ears.frames)
        ears.task = asyncio.create_task(ears.collect())
        await ears.clock.advance_ms(500)
        assert len(ears.frames) >= count + 20
        firsts = [frame.first_sample for frame in ears.frames]
        assert firsts == [320 * n for n in range(len(firsts))]
