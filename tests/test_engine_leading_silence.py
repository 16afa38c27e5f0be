"""The silence before the first word: cut whole, and never a sound of the word with it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model_weights import weights, words_of
from voice_agent.audio import Samples, dbfs
from voice_agent.bench.listener import onset_sample
from voice_agent.engine.leading_silence import LeadingSilence
from voice_agent.engine.runtime import TalkerOptions
from voice_agent.models import piper

RATE_HZ = 24_000


def noise(ms: float, level_dbfs: float, seed: int = 1) -> Samples:
    samples = np.random.default_rng(seed).standard_normal(int(RATE_HZ * ms / 1000))
    return np.round(samples * 32768 * 10 ** (level_dbfs / 20)).clip(-32768, 32767).astype(np.int16)


def vowel(ms: float, level_dbfs: float = -20) -> Samples:
    t = np.arange(int(RATE_HZ * ms / 1000)) / RATE_HZ
    wave = sum(np.sin(2 * np.pi * 120 * k * t) / k for k in range(1, 9))
    return np.round(wave / np.std(wave) * 32768 * 10 ** (level_dbfs / 20)).astype(np.int16)


def cut_of(sound: Samples, chunk: int = 1_920, rate_hz: int = RATE_HZ) -> tuple[Samples, int]:
    """What is heard of a sound that comes in chunks, and how much was cut."""
    silence = LeadingSilence(rate_hz)
    pieces = [silence.push(sound[at : at + chunk]) for at in range(0, len(sound), chunk)]
    return np.concatenate([*pieces, silence.finish()]), silence.cut_samples


def ms(samples: int) -> float:
    return 1000 * samples / RATE_HZ


BEFORE = noise(300, -70)
ONSETS: dict[str, tuple[Samples, float]] = {  # sound, and where its word begins in ms
    "vowel": (np.concatenate([BEFORE, vowel(400)]), 300),
    "at once": (vowel(400), 0),
    "burst, closure, vowel (p, t, k)": (
        np.concatenate([BEFORE, noise(6, -28), noise(65, -66), vowel(400)]),
        300,
    ),
    "burst and breath (aspirated)": (
        np.concatenate([BEFORE, noise(8, -30), noise(50, -52), vowel(400)]),
        300,
    ),
    "soft breath (h, f)": (np.concatenate([BEFORE, noise(90, -51), vowel(400)]), 300),
    "voiced closure (b, d, g)": (
        np.concatenate([BEFORE, vowel(60, -50), noise(5, -30), vowel(400)]),
        300,
    ),
    "a click long before": (
        np.concatenate([noise(50, -70), noise(10, -20), noise(240, -70), vowel(400)]),
        300,
    ),
    "a hum of an offset": (np.concatenate([np.full(7_200, 4_000, np.int16), vowel(400) + 4_000]), 300),
}


@pytest.mark.parametrize("name", ONSETS)
def test_the_cut_ends_just_before_the_word(name: str) -> None:
    sound, onset_ms = ONSETS[name]
    _, cut = cut_of(sound)
    assert onset_ms - 12 <= ms(cut) <= onset_ms


@given(st.sampled_from(sorted(ONSETS)), st.integers(37, 5_000))
def test_chunks_of_any_size_give_the_same_sound(name: str, chunk: int) -> None:
    sound, _ = ONSETS[name]
    heard, cut = cut_of(sound)
    other, other_cut = cut_of(sound, chunk)
    assert cut == other_cut and np.array_equal(heard, other)


@given(st.integers(0, 9_000), st.integers(-69, -58), st.integers(0, 5))
def test_what_follows_the_cut_is_the_sound_itself(silence: int, floor_dbfs: int, seed: int) -> None:
    sound = np.concatenate([noise(ms(silence), floor_dbfs, seed), vowel(200)])
    heard, cut = cut_of(sound)
    kept = RATE_HZ * 5 // 1000
    assert cut <= silence and len(heard) == len(sound) - cut
    assert np.array_equal(heard[kept:], sound[cut + kept :])


def test_sound_is_let_through_40_ms_after_its_onset_and_swells_in() -> None:
    silence = LeadingSilence(RATE_HZ)
    assert len(silence.push(noise(80, -70))) == 0
    assert len(silence.push(vowel(35))) == 0 and not silence.open
    heard = silence.push(vowel(10))
    assert silence.open and ms(len(heard)) == pytest.approx(50, abs=6)
    assert abs(int(heard[0])) == 0
    assert len(silence.push(vowel(20))) == len(vowel(20)) and len(silence.finish()) == 0


def test_a_reply_that_never_gets_loud_is_kept_and_a_long_silence_is_cut_only_so_far() -> None:
    whisper = np.concatenate([BEFORE, noise(400, -50)])
    heard, cut = cut_of(whisper)
    assert 290 <= ms(cut) <= 300 and len(heard) == len(whisper) - cut
    nothing = np.zeros(RATE_HZ // 2, np.int16)
    assert len(cut_of(nothing)[0]) == len(nothing)
    late = np.concatenate([np.zeros(2 * RATE_HZ, np.int16), vowel(100)])
    assert cut_of(late)[1] == RATE_HZ


WORDS = (
    "Paper",
    "Two",
    "Keep",
    "Ten",
    "Tomorrow",
    "Perhaps",
    "Can",
    "Please",
    "Both",
    "Dogs",
    "Good",
    "How",
    "Four",
    "She",
)


@pytest.mark.weights
def test_a_real_voices_first_phoneme_is_never_eaten() -> None:
    """The voice's own durations say where its first phoneme begins and ends; nearly all of its energy must stay."""
    folder = weights("piper-joe")
    joe = piper.load(folder, TalkerOptions("piper", str(folder)))
    for seed, word in enumerate(WORDS):
        latents = joe.encode(words_of(f"{word} of them came."), "", 1.0, seed)
        spoken = joe.decode(latents, 0, latents.frames)
        pad = np.round(np.random.default_rng(seed).standard_normal(4_000 + 500 * seed) * 5).astype(np.int16)
        sound = np.concatenate([pad, spoken])
        heard, cut = cut_of(sound, rate_hz=joe.rate_hz)
        assert cut > len(pad) - 0.02 * joe.rate_hz  # the pad goes, or nearly
        first_word = latents.words[0]
        end = len(pad) + first_word.end_frame * joe.samples_per_frame
        energy = np.cumsum(np.square(sound.astype(np.float64)))
        assert energy[max(0, cut - 1)] - energy[len(pad) - 1] < 1e-3 * (
            energy[end - 1] - energy[len(pad) - 1]
        )
        step = joe.rate_hz // 200
        removed = sound[:cut][: cut // step * step].reshape(-1, step)
        assert max(dbfs(window) for window in removed) < -50
        onset = onset_sample(heard, joe.rate_hz)
        assert onset is not None and onset < 0.12 * joe.rate_hz
