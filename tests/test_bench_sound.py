"""Where the bench says that a voice begins, ends, or has a hole."""

from typing import cast

import numpy as np
import pytest
from aiortc.codecs.opus import OpusDecoder
from aiortc.jitterbuffer import JitterFrame
from av import AudioFrame
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import tone
from voice_agent.audio import OPUS_RATE_HZ, Samples, silence
from voice_agent.bench.sound import (
    WINDOW_SAMPLES,
    ReceivedSound,
    Window,
    first_voice,
    first_voiced,
    holes,
    is_quiet,
    last_voice,
    last_voiced,
    levels,
)
from voice_agent.bench.spoken import cut, to_rate
from voice_agent.clock import NS_PER_MS
from voice_agent.media.opus import OpusEncoder

LOUD, SOFT = -20.0, -60.0


def packets(row: str) -> ReceivedSound:
    """One packet per letter, 20 ms apart: v voiced, a dot silent, x lost."""
    sound = ReceivedSound()
    for number, letter in enumerate(row):
        if letter != "x":
            part = tone(500, 20, OPUS_RATE_HZ) if letter == "v" else silence(WINDOW_SAMPLES)
            sound.add(number * WINDOW_SAMPLES, part, number * 20 * NS_PER_MS)
    return sound


@pytest.mark.parametrize(
    ("row", "first", "last"),
    [
        ([SOFT, LOUD, LOUD, LOUD, SOFT], 1, 3),
        ([LOUD, SOFT, LOUD, SOFT], None, None),  # single windows are clicks
        ([LOUD, SOFT, LOUD, LOUD, SOFT, LOUD], 2, 3),
        ([-45.0, -45.0], 0, 1),
        ([-45.1, -45.1], None, None),
        ([], None, None),
        ([LOUD], None, None),
    ],
)
def test_a_voice_is_two_windows_in_a_row(row: list[float], first: int | None, last: int | None):
    assert (first_voiced(row), last_voiced(row)) == (first, last)


@given(st.lists(st.sampled_from([LOUD, SOFT]), max_size=20))
def test_the_last_voice_is_the_first_of_the_reversed_row(row: list[float]):
    first, last = first_voiced(row), last_voiced(row)
    assert (first is None) == (last is None)
    if first is not None and last is not None:
        assert last > first
        assert row[first] == row[first + 1] == row[last] == row[last - 1] == LOUD
        assert first_voiced(row[::-1]) == len(row) - 1 - last


def test_stamps_are_those_of_the_first_and_the_last_voiced_packet():
    windows = packets("..vvvv....vv").windows
    first, last = first_voice(windows, 0), last_voice(windows, 9 * 20 * NS_PER_MS)
    assert first is not None
    assert last is not None
    assert (first.arrival_ns, last.arrival_ns) == (40 * NS_PER_MS, 100 * NS_PER_MS)
    assert first_voice(windows, 41 * NS_PER_MS) == windows[3]
    assert not is_quiet(windows, last, 100)
    assert is_quiet(windows, last, 99)
    assert is_quiet(windows, windows[-1], 300)


def test_a_lost_packet_is_silence_and_a_late_one_is_dropped():
    sound = packets("vvx")
    sound.add(3 * WINDOW_SAMPLES, tone(500, 20, OPUS_RATE_HZ), 1)
    sound.add(2 * WINDOW_SAMPLES, tone(500, 20, OPUS_RATE_HZ), 2)
    assert len(sound.samples()) == 4 * WINDOW_SAMPLES
    assert not sound.samples(2 * WINDOW_SAMPLES, 3 * WINDOW_SAMPLES).any()
    assert sound.late_packets == 1


def test_the_rtp_clock_may_wrap_and_may_start_anew():
    sound = ReceivedSound()
    start = 2**32 - WINDOW_SAMPLES
    for number in range(3):
        sound.add((start + number * WINDOW_SAMPLES) % 2**32, tone(500, 20, OPUS_RATE_HZ), number)
    assert len(sound.samples()) == 3 * WINDOW_SAMPLES
    sound.add((start + 2**31 - 5) % 2**32, tone(500, 20, OPUS_RATE_HZ), 9)
    assert len(sound.samples()) == 4 * WINDOW_SAMPLES


def test_long_packets_are_several_windows_of_one_arrival():
    sound = ReceivedSound()
    sound.add(7, tone(500, 60, OPUS_RATE_HZ), 5)
    assert [(w.arrival_ns, w.first_sample, w.samples) for w in sound.windows] == [
        (5, 0, 960),
        (5, 960, 960),
        (5, 1920, 960),
    ]
    assert all(isinstance(window, Window) for window in sound.windows)


def voice(ms: float) -> Samples:
    return tone(437, ms, OPUS_RATE_HZ)


def pause(ms: float) -> Samples:
    """A pause of the voice's own: the last bits flicker."""
    return np.random.default_rng(1).choice([-2, 2], round(ms * 48)).astype(np.int16)


def test_digital_silence_inside_speech_is_a_hole_and_outside_it_is_not():
    sound = np.concatenate([silence(9600), voice(200), silence(1920), voice(200), silence(9600)])
    assert [hole.first_sample for hole in holes(sound)] == [pytest.approx(19_200, abs=2)]
    assert holes(sound)[0].duration_ms == pytest.approx(40, abs=0.1)


def test_a_voices_own_pause_is_no_hole():
    assert holes(np.concatenate([voice(200), pause(600), voice(200)])) == []


@pytest.mark.parametrize(("ms", "found"), [(24, 0), (25, 1), (80, 1), (2000, 1)])
def test_holes_from_25_ms_on_count_once_each(ms: int, found: int):
    assert len(holes(np.concatenate([voice(200), silence(ms * 48), voice(200)]))) == found


def test_silence_has_no_holes():
    assert holes(silence(48_000)) == []
    assert holes(silence(0)) == []


def test_levels_keep_a_short_last_window():
    assert len(levels(silence(WINDOW_SAMPLES + 1))) == 2


@pytest.mark.parametrize(("rate_hz", "target_hz"), [(22_050, 48_000), (48_000, 16_000), (16_000, 48_000)])
def test_resampling_keeps_length_and_pitch(rate_hz: int, target_hz: int):
    sound = to_rate(tone(1000, 500, rate_hz), rate_hz, target_hz)
    assert abs(len(sound) - target_hz // 2) < target_hz // 100
    spectrum = np.abs(np.fft.rfft(sound.astype(np.float64), target_hz))
    assert abs(int(np.argmax(spectrum)) - 1000) <= 2


def test_long_sound_is_cut_in_its_pauses_and_nothing_is_lost():
    sound = np.concatenate([voice(700), pause(200), voice(700), pause(300), voice(500)])
    pieces = cut(sound, longest_s=1.0)
    assert np.array_equal(np.concatenate(pieces), sound)
    assert [len(piece) / 48 for piece in pieces] == [800, 900, 700]


def test_sound_without_a_pause_is_cut_all_the_same():
    assert [len(piece) for piece in cut(voice(2500), longest_s=1.0)] == [48_000, 48_000, 24_000]


def through_opus(sound: Samples) -> Samples:
    encoder, decoder = OpusEncoder(), OpusDecoder()
    packets = [encoder.encode(sound[at : at + WINDOW_SAMPLES]) for at in range(0, len(sound), WINDOW_SAMPLES)]
    frames = [frame for packet in packets for frame in decoder.decode(JitterFrame(packet, 0))]
    left = [cast(AudioFrame, frame).to_ndarray().reshape(-1, 2)[:, 0] for frame in frames]
    return np.concatenate(left).astype(np.int16)


@pytest.mark.parametrize("at_ms", [200, 340, 500])
def test_a_dry_spell_shows_through_the_codec(at_ms: int):
    chirp = np.concatenate([tone(200 + 10 * step, 20, OPUS_RATE_HZ) for step in range(40)])
    dry = np.concatenate([chirp[: at_ms * 48], silence(80 * 48), chirp[at_ms * 48 :]])
    assert holes(through_opus(chirp)) == []
    found = holes(through_opus(dry))
    assert len(found) == 1
    assert found[0].first_sample / 48 == pytest.approx(at_ms + 40, abs=30)
