"""Resampling: chunking changes nothing, length and pitch are right, nothing folds back."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.audio import Samples, dbfs
from voice_agent.media.resample import Resampler

RATES = [8_000, 16_000, 22_050, 24_000, 44_100, 48_000]


def tone(hz: float, rate_hz: int, seconds: float = 1.0, level: int = 12_000) -> Samples:
    return (level * np.sin(2 * np.pi * hz * np.arange(int(seconds * rate_hz)) / rate_hz)).astype(np.int16)


def whole(samples: Samples, from_hz: int, to_hz: int) -> Samples:
    resampler = Resampler(from_hz, to_hz)
    return np.concatenate([resampler.push(samples), resampler.flush()])


def pitch_hz(samples: Samples, rate_hz: int) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), 1 << 19))
    return float(np.argmax(spectrum)) * rate_hz / (1 << 19)


@given(
    rates=st.sampled_from([(22_050, 48_000), (24_000, 48_000), (48_000, 16_000), (44_100, 48_000)]),
    cuts=st.lists(st.integers(0, 4000), max_size=12),
    seed=st.integers(0, 99),
)
def test_any_chunking_gives_the_same_samples(rates: tuple[int, int], cuts: list[int], seed: int) -> None:
    noise = np.random.default_rng(seed).integers(-20_000, 20_000, 4000).astype(np.int16)
    resampler = Resampler(*rates)
    edges = [0, *sorted(cuts), len(noise)]
    pieces = [resampler.push(noise[a:b]) for a, b in itertools.pairwise(edges)]
    pieces.append(resampler.flush())
    difference = np.concatenate(pieces).astype(int) - whole(noise, *rates)
    assert np.abs(difference).max() <= 1  # the last bit may be rounded otherwise


@pytest.mark.parametrize("to_hz", RATES)
@pytest.mark.parametrize("from_hz", RATES)
def test_440_hz_stays_440_hz_and_length_is_exact(from_hz: int, to_hz: int) -> None:
    out = whole(tone(440, from_hz), from_hz, to_hz)
    assert len(out) == to_hz
    assert pitch_hz(out, to_hz) == pytest.approx(440, abs=0.2)
    assert dbfs(out) == pytest.approx(dbfs(tone(440, from_hz)), abs=0.1)


@pytest.mark.parametrize("from_hz", [22_050, 24_000, 44_100])
def test_output_is_aligned_with_its_input(from_hz: int) -> None:
    out = whole(tone(440, from_hz), from_hz, 48_000).astype(float)
    right = tone(440, 48_000).astype(float)
    assert np.abs(out - right)[1000:-1000].max() < 20


def test_what_the_lower_rate_cannot_carry_is_gone() -> None:
    assert dbfs(whole(tone(9_000, 48_000), 48_000, 16_000)[500:-500]) < -70


def test_images_above_the_source_are_gone() -> None:
    out = whole(tone(10_000, 22_050), 22_050, 48_000).astype(float)
    spectrum = np.abs(np.fft.rfft(out * np.hanning(len(out))))
    image = spectrum[int(11_500 * len(out) / 48_000) :].max()
    assert 20 * np.log10(image / spectrum.max()) < -60


def test_input_for_is_enough_and_not_a_sample_more() -> None:
    resampler = Resampler(22_050, 48_000)
    for _ in range(5):
        need = resampler.input_for(960)
        assert len(resampler.push(np.ones(need - 1, np.int16))) < 960
        resampler.push(np.ones(1, np.int16))
    resampler = Resampler(22_050, 48_000)
    assert len(resampler.push(np.ones(resampler.input_for(960), np.int16))) >= 960


def test_loud_edges_are_clipped_not_wrapped() -> None:
    square = np.repeat(np.array([32767, -32768] * 20, np.int16), 40)
    out = whole(square, 24_000, 48_000)
    assert np.abs(np.diff(out.astype(int))).max() < 45_000


def test_equal_rates_pass_through_untouched() -> None:
    samples = tone(440, 48_000)
    assert np.array_equal(whole(samples, 48_000, 48_000), samples)


def test_flush_starts_anew() -> None:
    resampler = Resampler(24_000, 48_000)
    first = np.concatenate([resampler.push(tone(440, 24_000)), resampler.flush()])
    second = np.concatenate([resampler.push(tone(440, 24_000)), resampler.flush()])
    assert np.array_equal(first, second)


@pytest.mark.parametrize("rate_hz", [0, -1, 7_999, 200_000])
def test_absurd_rates_are_refused(rate_hz: int) -> None:
    with pytest.raises(ValueError, match="Hz"):
        Resampler(rate_hz, 48_000)
