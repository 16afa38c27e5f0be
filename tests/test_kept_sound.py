"""The newest sound: the rings against a plain list of samples."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.audio import MicrophoneFrame, Samples
from voice_agent.kept_sound import SLOT_SAMPLES, KeptSound


def line(first: int, length: int) -> Samples:
    return (np.arange(first, first + length) % 30_011).astype(np.int16)


@given(
    count=st.integers(1, 5_000),
    start=st.integers(0, 2_000),
    lengths=st.lists(st.integers(1, 700), min_size=1, max_size=40),
    asked=st.lists(st.tuples(st.integers(-500, 16_000), st.integers(-500, 16_000)), max_size=8),
)
def test_what_is_asked_for_is_what_was_taken_as_far_back_as_promised(
    count: int, start: int, lengths: list[int], asked: list[tuple[int, int]]
) -> None:
    kept, end = KeptSound(count), start
    for length in lengths:
        kept.add(MicrophoneFrame(line(end, length), end), arrival_ns=end)
        end += length
    assert kept.end_sample == end
    promised = max(start, end - count)
    assert np.array_equal(kept.between(promised, end), line(promised, end - promised))
    for first, stop in asked:
        found = kept.between(first, stop)
        high = max(first, min(stop, end))
        assert np.array_equal(found, line(high - len(found), len(found))) or len(found) == 0
        assert len(found) >= max(0, min(stop, end) - max(first, promised))


def test_arrivals_are_those_of_the_frames_and_the_oldest_kept_for_older_samples() -> None:
    kept = KeptSound(10 * SLOT_SAMPLES)
    assert kept.arrival_ns(0) is None
    for n in range(50):
        kept.add(MicrophoneFrame(line(n * SLOT_SAMPLES, SLOT_SAMPLES), n * SLOT_SAMPLES), arrival_ns=n)
    assert [kept.arrival_ns(n * SLOT_SAMPLES + 7) for n in range(41, 50)] == list(range(41, 50))
    assert kept.arrival_ns(10**9) == 49
    assert kept.arrival_ns(0) == 40


def test_a_frame_longer_than_all_that_is_kept_leaves_its_end() -> None:
    kept = KeptSound(100)
    kept.add(MicrophoneFrame(line(0, 5_000), 0), arrival_ns=5)
    assert np.array_equal(kept.between(4_900, 5_000), line(4_900, 100))
    assert kept.arrival_ns(4_999) == 5


def test_it_can_be_kept_without_an_object_for_each_frame() -> None:
    import gc

    kept = KeptSound(28 * 16_000)
    frames = [MicrophoneFrame(line(n * 320, 320), n * 320) for n in range(1_000)]
    gc.collect()
    before = len(gc.get_objects())
    for frame in frames:
        kept.add(frame, 1)
    assert len(gc.get_objects()) - before < 20
