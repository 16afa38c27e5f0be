"""Words as tones: each word sounds as two pairs of sine tones, one after the other, so that a test can hear it again.

The pairs come from a hash of the word's letters, the length from their number: no table has to be shared. Tones lie
in 0.4-3.4 kHz and last, so that they live through Opus and a telephone. Pure numpy; knows no engine, no files.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voice_agent.audio import Samples, silence

RATE_HZ = 24_000
SAMPLES_PER_FRAME = 240  # 10 ms
RAMP_SAMPLES = 240
GAP_FRAMES = 4  # silence after a word: long enough to stay a gap in Opus
AMPLITUDE = 9_000  # of each of the two tones of a pair

_LOW_HZ = [400 + 50 * step for step in range(24)]
_HIGH_HZ = [1_700 + 70 * step for step in range(24)]
_BLOCK_MS = 5
_QUIET_SHARE = 0.12  # of the loudest block: below it a block counts as a gap
_SHORTEST_MS = 20  # a sound below that is a click
_MATCH_JOINED = 0.5  # the same for a word put together from two stretches: the joint costs some
_MATCH = 0.75  # share of a stretch's energy that lies on the word's own tones


@dataclass(frozen=True, slots=True)
class Tone:
    """One word's sound: two pairs of frequencies, and its frames without the gap (0: no letters, no sound)."""

    pairs: tuple[tuple[int, int], tuple[int, int]]
    frames: int


def tone_of(word: str, speed: float = 1.0) -> Tone:
    """The tone of a word; case and punctuation do not matter. 60 ms and 25 ms for each letter, 600 ms at most."""
    letters = plain(word)
    digest = hashlib.sha256(letters.encode()).digest()
    first, second = ((_LOW_HZ[digest[i] % 24], _HIGH_HZ[digest[i + 1] % 24]) for i in (0, 2))
    length_ms = min(600, 60 + 25 * len(letters)) / speed
    return Tone((first, second), max(4, round(length_ms / 10)) if letters else 0)


def plain(word: str) -> str:
    """A word's letters and digits, without case."""
    return "".join(char for char in word.casefold() if char.isalnum())


def render(tone: Tone, first_sample: int, samples: int, rate_hz: int = RATE_HZ) -> NDArray[np.float64]:
    """A stretch of a word's sound, gap included; stretches join without a step since each is a function of time."""
    at = np.arange(first_sample, first_sample + samples)
    length = tone.frames * SAMPLES_PER_FRAME * rate_hz // RATE_HZ
    ramp = RAMP_SAMPLES * rate_hz // RATE_HZ
    halves = [_pair(pair, at, rate_hz) for pair in tone.pairs]
    edges = ((0, length // 2), (length // 2, length))
    return sum(
        (half * _envelope(at, begin, end, ramp) for half, (begin, end) in zip(halves, edges, strict=True)),
        np.zeros(samples),
    )


def words_heard(samples: Samples, rate_hz: int, vocabulary: list[str]) -> list[tuple[str, int]]:
    """Which words of a vocabulary sound in a recording, in order, and the sample at which each begins (to 10 ms).

    A word cut off before its second half is nearly over is not heard; one that was held and resumed is. Sounds outside
    of the vocabulary are skipped. Raises ValueError if two words of the vocabulary sound alike.
    """
    words = {plain(word): word for word in vocabulary if plain(word)}
    tones = {letters: tone_of(letters) for letters in words}
    if len(set(tones.values())) < len(tones):
        raise ValueError("two words of the vocabulary have the same tones: choose another word")
    heard, skip = list[tuple[str, int]](), False
    stretches = _stretches(samples, rate_hz)
    for index, (begin, end) in enumerate(stretches):
        if skip:
            skip = False
            continue
        found = _best(samples[begin:end], rate_hz, tones)
        if found is None and index + 1 < len(stretches):
            later = slice(*stretches[index + 1])
            if _best(samples[later], rate_hz, tones) is None:
                joined = np.concatenate([_trimmed(samples[begin:end]), _trimmed(samples[later])])
                found = _best(joined, rate_hz, tones, _MATCH_JOINED)
                skip = found is not None
        if found is not None:
            heard.append((words[found], begin))
    return heard


def _pair(pair: tuple[int, int], at: NDArray[np.int64], rate_hz: int) -> NDArray[np.float64]:
    return AMPLITUDE * sum((np.sin(2 * np.pi * hz * at / rate_hz) for hz in pair), np.zeros(len(at)))


def _envelope(at: NDArray[np.int64], begin: int, end: int, ramp: int) -> NDArray[np.float64]:
    """1 inside, straight ramps at both ends, 0 outside."""
    return np.clip(np.minimum(at - begin, end - at) / ramp, 0.0, 1.0)


def _stretches(samples: Samples, rate_hz: int) -> list[tuple[int, int]]:
    """Where it sounds: (first, end) of each run of loud blocks."""
    block = _BLOCK_MS * rate_hz // 1000
    blocks = samples[: len(samples) // block * block].astype(np.float64).reshape(-1, block)
    level = np.sqrt(np.mean(np.square(blocks), axis=1)) if len(blocks) else np.zeros(0)
    if not len(level) or level.max() < 50:
        return []
    loud = np.concatenate([[False], level > _QUIET_SHARE * level.max(), [False]]).astype(np.int8)
    begins, ends = np.flatnonzero(np.diff(loud) == 1), np.flatnonzero(np.diff(loud) == -1)
    found = [(int(begin) * block, int(end) * block) for begin, end in zip(begins, ends, strict=True)]
    return [(begin, end) for begin, end in found if end - begin >= _SHORTEST_MS * rate_hz // 1000]


def _best(stretch: Samples, rate_hz: int, tones: dict[str, Tone], match: float = _MATCH) -> str | None:
    """The word whose two pairs fill the stretch best; None if none does."""
    scores = ((_score(stretch, rate_hz, tone), letters) for letters, tone in tones.items())
    score, letters = max(scores, default=(0.0, ""))
    return letters if score >= match else None


def _trimmed(stretch: Samples) -> Samples:
    """Without the near silence at its ends that comes from whole blocks."""
    loud = np.flatnonzero(np.abs(stretch.astype(np.int32)) > AMPLITUDE // 50)
    return stretch[loud[0] : loud[-1] + 1] if len(loud) else stretch


def _score(stretch: Samples, rate_hz: int, tone: Tone) -> float:
    """The smaller share of energy on the word's tones in its two halves; 0 if the length does not fit."""
    length = tone.frames * SAMPLES_PER_FRAME * rate_hz // RATE_HZ
    if not 0.8 * length <= len(stretch) <= length + 30 * rate_hz // 1000:
        return 0.0
    begin = max(0, (len(stretch) - length) // 2)  # Opus smears both edges a little
    half = length // 2
    parts = (stretch[begin : begin + half], stretch[begin + half : begin + length])
    return min(_share(part, pair, rate_hz) for part, pair in zip(parts, tone.pairs, strict=True))


def _share(part: Samples, pair: tuple[int, int], rate_hz: int) -> float:
    """How much of a part's energy a least-squares fit of the two tones explains, 0 to 1."""
    sound = part.astype(np.float64) * np.hanning(len(part))
    energy = float(sound @ sound)
    if energy <= 0 or len(part) < 16:
        return 0.0
    time = np.arange(len(part)) / rate_hz
    waves = [wave(2 * np.pi * hz * time) * np.hanning(len(part)) for hz in pair for wave in (np.sin, np.cos)]
    basis = np.stack(waves, axis=1)
    fitted, *_ = np.linalg.lstsq(basis, sound, rcond=None)
    rest = sound - basis @ fitted
    return 1.0 - float(rest @ rest) / energy


def sequence(words: list[str], speed: float = 1.0) -> Samples:
    """The sound of words one after the other at 24 kHz, each followed by its gap."""
    tones = [tone_of(word, speed) for word in words]
    sounds = [
        render(tone, 0, (tone.frames + GAP_FRAMES) * SAMPLES_PER_FRAME) for tone in tones if tone.frames
    ]
    return np.concatenate(sounds).astype(np.int16) if sounds else silence(0)
