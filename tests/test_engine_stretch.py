"""Speech at another speed: as long as asked, at its own pitch, and still understood."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model_weights import weights, words_of
from voice_agent.audio import OPUS_RATE_HZ, Samples
from voice_agent.bench.spoken import Hearing, cache_folder, to_rate
from voice_agent.bench.wer import word_errors
from voice_agent.engine.runtime import TalkerOptions
from voice_agent.engine.stretch import HOP_MS, Stretch
from voice_agent.models import piper
from voice_agent.models.store import Store

RATE_HZ = 24_000
HOP = RATE_HZ * HOP_MS // 1000


def voiced(seconds: float, pitch_hz: float = 130.0) -> Samples:
    t = np.arange(int(RATE_HZ * seconds)) / RATE_HZ
    wave = sum(np.sin(2 * np.pi * pitch_hz * k * t + k) / k for k in range(1, 12))
    fade = np.minimum(1, (seconds - t) / 0.05)
    return np.round(4_000 * wave * fade).astype(np.int16)


def stretched(sound: Samples, speed: float, chunk: int = 1_920, rate_hz: int = RATE_HZ) -> Samples:
    stretch = Stretch(rate_hz, speed)
    pieces = [stretch.push(sound[at : at + chunk]) for at in range(0, len(sound), chunk)]
    return np.concatenate([*pieces, stretch.finish()])


def pitch_of(sound: Samples) -> float:
    spectrum = np.abs(np.fft.rfft(sound * np.hanning(len(sound)), 1 << 18))
    hz = np.fft.rfftfreq(1 << 18, 1 / RATE_HZ)
    low = (hz > 60) & (hz < 200)
    return float(hz[low][np.argmax(spectrum[low])])


@pytest.mark.parametrize("speed", [0.25, 0.7, 1.3, 2.0, 4.0])
def test_the_length_changes_by_the_speed_and_the_pitch_does_not(speed: float) -> None:
    sound = voiced(1.5)
    heard = stretched(sound, speed)
    assert abs(len(heard) - len(sound) / speed) <= HOP
    assert pitch_of(heard) == pytest.approx(130, abs=1.5)
    steps = np.abs(np.diff(sound.astype(int))).max()
    assert np.abs(np.diff(heard.astype(int))).max() < 1.3 * steps  # no edges
    assert np.std(heard[: len(heard) - HOP]) == pytest.approx(np.std(sound), rel=0.05)


@given(st.lists(st.integers(1, 6_000), min_size=1, max_size=6), st.floats(0.25, 4), st.integers(0, 3))
def test_chunks_of_any_size_give_the_same_sound(cuts: list[int], speed: float, seed: int) -> None:
    sound = np.random.default_rng(seed).integers(-9_000, 9_000, sum(cuts)).astype(np.int16)
    stretch, pieces, at = Stretch(RATE_HZ, speed), list[Samples](), 0
    for cut in cuts:
        pieces.append(stretch.push(sound[at : at + cut]))
        at += cut
    heard = np.concatenate([*pieces, stretch.finish()])
    assert np.array_equal(heard, stretched(sound, speed))
    assert 0 <= len(heard) - round(len(sound) / speed) <= HOP


def test_silence_stays_silence_and_nothing_is_nothing() -> None:
    assert not stretched(np.zeros(9_600, np.int16), 1.5).any()
    assert len(stretched(np.zeros(0, np.int16), 1.5)) == 0


def test_what_is_held_back_and_what_is_kept_stay_small() -> None:
    stretch, out = Stretch(RATE_HZ, 1.5), 0
    for _ in range(100):
        out += len(stretch.push(voiced(0.08)))
        assert len(stretch._held) < 0.25 * RATE_HZ  # pyright: ignore[reportPrivateUsage]
    assert 100 * 0.08 * RATE_HZ / 1.5 - out < 0.06 * RATE_HZ


@pytest.mark.weights
@pytest.mark.parametrize("speed", [0.75, 1.4])
def test_a_real_voice_is_still_understood(speed: float) -> None:
    folder = weights("piper-joe")
    weights("whisper-tiny.en")
    joe = piper.load(folder, TalkerOptions("piper", str(folder)))
    text = "The museum keeps a small collection of clocks that all show different times."
    latents = joe.encode(words_of(text), "", 1.0, 0)
    sound = joe.decode(latents, 0, latents.frames)
    heard = stretched(sound, speed, 2_048, joe.rate_hz)
    said = Hearing(Store(cache_folder()), "whisper-tiny.en").text(to_rate(heard, joe.rate_hz, OPUS_RATE_HZ))
    assert word_errors(text, said)[0] <= 1
