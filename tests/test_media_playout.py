"""Playout: what leaves, when, and what counts as played."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.audio import AudioOutput, PcmChunk, Samples, dbfs
from voice_agent.clock import ManualClock
from voice_agent.media.paced import MAX_QUEUED_MS, PacedOutput, PlayoutHooks
from voice_agent.media.playout import FRAME_SAMPLES, REMEMBERED_REPLIES, PlayoutBuffer


def tone(seconds: float, rate_hz: int = 24_000, hz: float = 440.0, level: int = 10_000) -> PcmChunk:
    samples = level * np.sin(2 * np.pi * hz * np.arange(int(seconds * rate_hz)) / rate_hz)
    return PcmChunk(samples.astype(np.int16), rate_hz)


def play(buffer: PlayoutBuffer, frames: int) -> Samples:
    return np.concatenate([buffer.next_frame().samples for _ in range(frames)])


def largest_step(samples: Samples) -> int:
    return int(np.abs(np.diff(samples.astype(int))).max())


TONE_STEP = largest_step(tone(1, 48_000).samples)


def finished(seconds: float, rate_hz: int = 24_000) -> PlayoutBuffer:
    buffer = PlayoutBuffer()
    buffer.write("a", tone(seconds, rate_hz))
    buffer.finish("a")
    return buffer


def test_nothing_queued_is_silence() -> None:
    assert not play(PlayoutBuffer(), 3).any()


@pytest.mark.parametrize("rate_hz", [16_000, 22_050, 24_000, 44_100, 48_000])
def test_a_finished_reply_is_played_to_its_last_sample(rate_hz: int) -> None:
    buffer = finished(1.0, rate_hz)
    sound = play(buffer, 52)
    assert buffer.is_over("a")
    assert buffer.played_samples("a") == rate_hz
    assert buffer.underruns == 0
    right = tone(1.0, 48_000).samples.astype(float)
    assert np.abs(sound[: len(right)] - right)[500:-500].max() < 20
    assert not sound[len(right) :].any()


def test_played_samples_follow_each_frame_at_the_chunks_rate() -> None:
    buffer = finished(1.0, 22_050)
    for frame in range(1, 51):
        buffer.next_frame()
        assert buffer.played_samples("a") == 441 * frame


def test_a_change_of_rate_inside_a_reply_keeps_count_and_makes_no_hole() -> None:
    buffer = PlayoutBuffer()
    buffer.write("a", tone(0.5, 24_000))
    buffer.write("a", tone(0.5, 16_000))
    buffer.finish("a")
    sound = play(buffer, 50)
    assert buffer.played_samples("a") == 12_000 + 8_000
    assert all(dbfs(sound[at : at + 480]) > -20 for at in range(0, 47_500, 480))


def test_hold_gives_silence_and_resume_goes_on_at_the_held_sample() -> None:
    buffer = finished(1.0)
    before = play(buffer, 10)
    buffer.hold()
    held_at = buffer.played_samples("a")
    pause = play(buffer, 20)
    assert buffer.played_samples("a") == held_at
    assert not pause[240:].any()
    buffer.resume()
    after = play(buffer, 40)
    right = tone(1.0, 48_000).samples.astype(float)
    assert np.abs(after[240:38_000] - right[9600 + 240 : 9600 + 38_000]).max() < 20
    assert largest_step(np.concatenate([before, pause, after])) <= TONE_STEP + 100
    assert buffer.played_samples("a") == 24_000


def test_flush_counts_only_what_left_and_does_not_click() -> None:
    buffer = finished(2.0)
    before = play(buffer, 25)
    assert buffer.flush() == 12_000
    after = play(buffer, 5)
    assert buffer.played_samples("a") == 12_000
    assert largest_step(np.concatenate([before, after])) <= TONE_STEP + 100
    assert not after[240:].any()
    assert buffer.is_over("a")
    assert buffer.queued_ms == 0


def test_late_chunks_of_a_flushed_reply_are_dropped() -> None:
    buffer = finished(1.0)
    play(buffer, 5)
    buffer.flush()
    play(buffer, 1)
    assert not buffer.write("a", tone(1.0))
    assert not play(buffer, 5).any()
    assert buffer.played_samples("a") == 2_400


def test_flush_while_held_ends_the_hold_for_the_next_reply() -> None:
    buffer = finished(1.0)
    play(buffer, 5)
    buffer.hold()
    play(buffer, 2)
    assert buffer.flush() == 2_400
    buffer.write("b", tone(1.0))
    assert dbfs(play(buffer, 2)) > -20


def test_flush_drops_the_replies_that_wait_behind_and_refuses_them() -> None:
    buffer = finished(1.0)
    buffer.write("b", tone(1.0))
    play(buffer, 5)
    buffer.flush()
    play(buffer, 1)
    assert not buffer.write("b", tone(1.0))
    assert not play(buffer, 5).any()


def test_flush_with_nothing_there_is_zero() -> None:
    assert PlayoutBuffer().flush() == 0


def test_flush_after_the_end_tells_the_whole_reply() -> None:
    buffer = finished(0.1)
    play(buffer, 10)
    assert buffer.flush() == 2_400


def test_the_next_reply_begins_in_the_very_frame_where_the_last_one_ends() -> None:
    buffer = finished(0.03)
    buffer.write("b", tone(0.1))
    first, second = buffer.next_frame(), buffer.next_frame()
    assert first.started == ("a",)
    assert (second.started, second.ended) == (("b",), ("a",))
    assert dbfs(second.samples[500:]) > -20


def test_running_dry_counts_once_decays_softly_and_comes_back_softly() -> None:
    buffer = PlayoutBuffer()
    buffer.write("a", tone(0.05))
    sound = [play(buffer, 5)]
    assert buffer.underruns == 1
    buffer.write("a", tone(0.1))
    sound.append(play(buffer, 3))
    buffer.finish("a")
    sound.append(play(buffer, 5))
    assert buffer.underruns == 1
    assert largest_step(np.concatenate(sound)) <= TONE_STEP + 100
    assert buffer.played_samples("a") == 1_200 + 2_400


def test_waiting_for_the_first_chunk_is_no_underrun() -> None:
    buffer = PlayoutBuffer()
    buffer.write("a", PcmChunk(np.zeros(0, np.int16), 24_000))
    play(buffer, 10)
    assert buffer.underruns == 0


def test_a_reply_without_sound_is_over_when_it_is_finished() -> None:
    buffer = PlayoutBuffer()
    buffer.finish("a")
    assert buffer.is_over("a")
    assert buffer.played_samples("a") == 0


def test_memory_of_old_replies_is_bounded() -> None:
    buffer = PlayoutBuffer()
    for number in range(500):
        buffer.write(str(number), tone(0.02))
        buffer.finish(str(number))
        play(buffer, 2)
    assert buffer.played_samples("499") == 480
    assert buffer.played_samples(str(499 - REMEMBERED_REPLIES + 2)) == 480
    assert buffer.played_samples("3") == 0


def test_an_absurd_rate_is_refused_and_breaks_nothing() -> None:
    buffer = PlayoutBuffer()
    with pytest.raises(ValueError, match="Hz"):
        buffer.write("a", PcmChunk(np.zeros(10, np.int16), 1))
    assert buffer.write("a", tone(0.1))


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3000)),
        st.tuples(st.just("play"), st.integers(1, 5)),
        st.sampled_from([("hold", 0), ("resume", 0)]),
    ),
    max_size=30,
)


@given(actions=ACTIONS, rate_hz=st.sampled_from([16_000, 22_050, 24_000, 48_000]))
def test_played_never_passes_written_and_never_goes_back(
    actions: list[tuple[str, int]], rate_hz: int
) -> None:
    buffer = PlayoutBuffer()
    written = played = 0
    for action, value in actions:
        if action == "write":
            buffer.write("a", PcmChunk(np.full(value, 1000, np.int16), rate_hz))
            written += value
        elif action == "play":
            frames = [buffer.next_frame().samples for _ in range(value)]
            assert all(len(frame) == FRAME_SAMPLES for frame in frames)
        elif action == "hold":
            buffer.hold()
        else:
            buffer.resume()
        assert played <= buffer.played_samples("a") <= written
        played = buffer.played_samples("a")
    buffer.resume()
    buffer.finish("a")
    play(buffer, 1 + written * 50 // rate_hz + 1)
    assert buffer.played_samples("a") == written


# --- the paced output ---------------------------------------------------------------------------------------------


class Ear:
    """Pulls frames from an output as the track does, and notes when."""

    def __init__(self, hooks: PlayoutHooks | None = None) -> None:
        self.clock = ManualClock()
        self.output = PacedOutput(self.clock, hooks)
        self.at_ms: list[int] = []
        self.indexes: list[int] = []
        self.heard: list[Samples] = []

    async def listen(self) -> None:
        while True:
            index, samples = await self.output.next_frame()
            self.at_ms.append(self.clock.now_ns() // 1_000_000)
            self.indexes.append(index)
            self.heard.append(samples)

    async def __aenter__(self) -> "Ear":
        self._task = asyncio.create_task(self.listen())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_one_frame_leaves_each_20_ms_through_holds_and_flushes() -> None:
    async with Ear() as ear:
        await ear.clock.advance_ms(50)
        await ear.output.write("a", tone(1.0))
        await ear.clock.advance_ms(100)
        ear.output.hold()
        await ear.clock.advance_ms(100)
        ear.output.flush()
        await ear.clock.advance_ms(100)
    assert ear.at_ms == [20 * index for index in range(len(ear.at_ms))]
    assert ear.indexes == list(range(18))


async def test_a_short_stall_is_caught_up_at_once_and_never_overtaken() -> None:
    ear = Ear()
    for _ in range(5):
        pull = asyncio.create_task(ear.output.next_frame())
        await ear.clock.advance_ms(20)
        await pull
    await ear.clock.advance_ms(100)  # nobody pulled: 5 frames are late
    for _ in range(6):
        await asyncio.wait_for(ear.output.next_frame(), 1)
    pull = asyncio.create_task(ear.output.next_frame())
    await ear.clock.advance_ms(1)
    assert not pull.done()  # the pace is never overtaken
    await ear.clock.advance_ms(20)
    assert (await pull)[0] == 11


async def test_a_long_stall_does_not_burst_and_indexes_stay_continuous() -> None:
    ear = Ear()
    await ear.output.next_frame()
    await ear.clock.advance_ms(1000)
    assert (await ear.output.next_frame())[0] == 1
    pull = asyncio.create_task(ear.output.next_frame())
    await ear.clock.advance_ms(19)
    assert not pull.done()
    await ear.clock.advance_ms(1)
    assert (await pull)[0] == 2


async def test_write_waits_when_seconds_are_queued_and_flush_lets_go() -> None:
    async with Ear() as ear:
        await ear.output.write("a", tone(MAX_QUEUED_MS / 1000 + 1))
        blocked = asyncio.create_task(ear.output.write("a", tone(1.0)))
        await ear.clock.advance_ms(500)
        assert not blocked.done()
        await ear.clock.advance_ms(600)
        assert blocked.done()
        again = asyncio.create_task(ear.output.write("a", tone(1.0)))
        await ear.clock.advance_ms(20)
        assert not again.done()
        ear.output.flush()
        await ear.clock.advance_ms(1)
        assert again.done()


async def test_a_cancelled_write_leaves_the_output_usable() -> None:
    async with Ear() as ear:
        await ear.output.write("a", tone(9.0))
        blocked = asyncio.create_task(ear.output.write("a", tone(1.0)))
        await ear.clock.advance_ms(20)
        blocked.cancel()
        ear.output.finish("a")
        drained = asyncio.create_task(ear.output.drained("a"))
        await ear.clock.advance_ms(9_100)
        assert await drained == 9 * 24_000


async def test_drained_returns_at_the_end_of_a_finished_reply() -> None:
    async with Ear() as ear:
        await ear.output.write("a", tone(0.5))
        drained = asyncio.create_task(ear.output.drained("a"))
        await ear.clock.advance_ms(600)
        assert not drained.done()  # it is not known to be finished
        ear.output.finish("a")
        await ear.clock.advance_ms(40)
        assert await drained == 12_000


@pytest.mark.parametrize("end", ["flush", "close"])
async def test_flush_and_close_let_go_whoever_waits_for_a_reply_that_never_came(end: str) -> None:
    output: AudioOutput = PacedOutput(ManualClock())
    drained = asyncio.create_task(output.drained("never"))
    audible = asyncio.create_task(output.audible("never"))
    await asyncio.sleep(0)
    getattr(output, end)()
    assert await asyncio.wait_for(drained, 1) == 0
    assert await asyncio.wait_for(audible, 1) is None
    await output.write("never", tone(1.0))
    assert output.played_samples("never") == 0


async def test_audible_is_when_the_first_of_two_loud_frames_left() -> None:
    started: list[str] = []
    async with Ear(PlayoutHooks(on_started=started.append)) as ear:
        quiet = PcmChunk(np.full(4_800, 20, np.int16), 24_000)  # 200 ms below the threshold
        await ear.output.write("a", quiet)
        await ear.output.write("a", tone(0.5))
        audible = asyncio.create_task(ear.output.audible("a"))
        await ear.clock.advance_ms(190)
        assert started == ["a"]
        await ear.clock.advance_ms(200)
        instant_ns = await audible
    assert instant_ns is not None
    assert instant_ns // 1_000_000 in (200, 220)


async def test_a_reply_below_the_threshold_is_never_audible() -> None:
    async with Ear() as ear:
        await ear.output.write("a", PcmChunk(np.full(4_800, 20, np.int16), 24_000))
        ear.output.finish("a")
        audible = asyncio.create_task(ear.output.audible("a"))
        await ear.clock.advance_ms(300)
        assert await audible is None


async def test_underruns_are_told() -> None:
    dry: list[str] = []
    async with Ear(PlayoutHooks(on_underrun=dry.append)) as ear:
        await ear.output.write("a", tone(0.05))
        await ear.clock.advance_ms(200)
        assert (dry, ear.output.underruns) == (["a"], 1)
