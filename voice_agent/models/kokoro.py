"""Kokoro-82M in int8: many English voices, a clause at a time, at about the speed of speech on two cores.

The graph takes phonemes of misaki's alphabet and a voice's style for their number, and gives the whole waveform: there
is nothing to cut, so a clause's "latents" are its samples. How long each phoneme is stays inside: word times are
spread over the sound by the number of symbols. The silence before a clause is cut; `options.keep_silence` leaves it, to
measure what that gains. Source: the hexgrad/Kokoro-82M model card and its export to ONNX.
"""

from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from voice_agent.audio import Samples
from voice_agent.engine.leading_silence import trimmed
from voice_agent.engine.messages import SpokenWord
from voice_agent.engine.runtime import FrameWord, Latents, TalkerOptions
from voice_agent.engine.word_times import spread
from voice_agent.errors import EngineError, UnsupportedLanguage, WeightsError
from voice_agent.family_options import KokoroOptions, read_options
from voice_agent.models import phonemes
from voice_agent.models.onnx_session import open_session

RATE_HZ = 24_000
SAMPLES_PER_FRAME = 240  # 10 ms: no frame of the model's, only a grid
MOST_SYMBOLS = 500  # the model's context is 512 with both ends
STYLES = (510, 1, 256)  # a voice: one style for each number of symbols, float32
FIRST_VOICE = "af_heart"
GARBLED_FROM = 0.5  # share of letters the voice cannot read
# The model's symbols: each run begins at its number and counts on.
SYMBOL_RUNS = {
    1: ";:,.!?",
    9: '\u2014\u2026"()\u201c\u201d \u0303\u02a3\u02a5\u02a6\u02a8\u1d5d\uab67AI',
    31: "O",
    33: "Q",
    35: "ST",
    39: "W",
    41: "Yᵊabcdef",
    50: "hijklmnopqrstuvwxyzɑɐɒæ",
    75: "βɔɕç",
    80: "ɖðʤə",
    85: "ɚɛɜ",
    90: "ɟ",
    92: "ɡ",
    99: "ɥ",
    101: "ɨɪʝ",
    110: "ɯɰŋɳɲɴø",
    118: "ɸθœ",
    123: "ɹ",
    125: "ɾɻ",
    128: "ʁɽʂʃʈʧ",
    135: "ʊʋ",
    138: "ʌɣɤ",
    142: "χʎ",
    147: "ʒʔ",
    156: "ˈˌː",
    162: "ʰ",
    164: "ʲ",
    169: "↓",
    171: "→↗↘",
    177: "ᵻ",
}
SYMBOLS = {char: start + n for start, run in SYMBOL_RUNS.items() for n, char in enumerate(run)}


def load(folder: Path, options: TalkerOptions) -> "Kokoro":
    """Load the model and its voices (.bin files beside it); raises WeightsError."""
    return Kokoro(folder, options)


class Kokoro:
    """The model with all voices in its folder; call from one thread."""

    rate_hz = RATE_HZ
    samples_per_frame = SAMPLES_PER_FRAME
    languages = ("en",)

    def __init__(self, folder: Path, options: TalkerOptions) -> None:
        self._styles = read_voices(folder)
        names = sorted(self._styles)
        first = options.voice or FIRST_VOICE
        self.voices = tuple(sorted(names, key=lambda name: (name != first, name)))
        models = sorted(folder.glob("*.onnx"))
        if len(models) != 1:
            raise WeightsError(f"{folder} holds {len(models)} .onnx files, Kokoro is exactly one")
        self._session = open_session(models[0], options.threads)
        self._keep_silence = read_options(KokoroOptions, options.extra).keep_silence
        phonemes.warm_up()

    def encode(self, words: list[SpokenWord], voice: str, speed: float, seed: int) -> Latents:
        """One clause to sound; the model has no chance in it, so a seed changes nothing.

        Words without sound get an empty range. Raises UnsupportedLanguage when most letters are foreign, EngineError
        for a voice that is not here.
        """
        styles = self._styles.get(voice or self.voices[0])
        if styles is None:
            raise EngineError(f"no voice {voice!r} here: {', '.join(self.voices)}", code="unknown_voice")
        texts = [word.text for word in words]
        if phonemes.foreign_share(texts) >= GARBLED_FROM:
            raise UnsupportedLanguage("this voice speaks English only")
        spoken = [
            [SYMBOLS[char] for char in text if char in SYMBOLS][:MOST_SYMBOLS]
            for text in phonemes.phonemize(texts, "misaki")
        ]
        pieces, timed, at = list[Samples](), list[FrameWord](), 0
        for first, end in _groups(spoken):
            group = spoken[first:end]
            sound = self._say(group, styles, speed)
            frames = len(sound) // SAMPLES_PER_FRAME
            timed += spread(words[first:end], frames, at, [len(ids) for ids in group])
            pieces.append(sound)
            at += frames
        sound = np.concatenate(pieces) if pieces else np.zeros(0, np.int16)
        return Latents(at, sound, timed)

    def decode(self, latents: Latents, first_frame: int, frames: int) -> Samples:
        """Sound of a window, int16 [frames * samples_per_frame]."""
        if first_frame < 0 or frames < 0 or first_frame + frames > latents.frames:
            raise ValueError(f"window {first_frame}+{frames} is outside of {latents.frames} frames")
        sound = cast(Samples, latents.data)
        return sound[first_frame * SAMPLES_PER_FRAME : (first_frame + frames) * SAMPLES_PER_FRAME]

    def _say(self, group: list[list[int]], styles: NDArray[np.float32], speed: float) -> Samples:
        """Whole frames of sound for the symbols of some words; nothing for none."""
        ids = list[int]()
        for symbols in group:
            ids += [SYMBOLS[" "], *symbols] if ids and symbols else symbols
        if not ids:
            return np.zeros(0, np.int16)
        outputs: Any = self._session.run(
            None,
            {
                "tokens": np.array([[0, *ids, 0]], np.int64),
                "style": styles[len(ids)],
                "speed": np.array([speed], np.float32),
            },
        )
        wave = cast(NDArray[np.float32], outputs[0]).ravel()
        sound = np.round(np.clip(wave, -1.0, 1.0) * 32767).astype(np.int16)
        if not self._keep_silence:
            sound = trimmed(sound, RATE_HZ)
        return np.concatenate([sound, np.zeros(-len(sound) % SAMPLES_PER_FRAME, np.int16)])


def read_voices(folder: Path) -> dict[str, NDArray[np.float32]]:
    """The styles [510, 1, 256] of each voice; raises WeightsError if there is none, or one is not as it should be."""
    voices = dict[str, NDArray[np.float32]]()
    for path in sorted(folder.glob("*.bin")):
        styles = np.fromfile(path, "<f4")
        if styles.size != np.prod(STYLES):
            raise WeightsError(f"{path.name} is no Kokoro voice: it holds {styles.size:,} numbers")
        voices[path.stem] = styles.reshape(STYLES).astype(np.float32)
    if not voices:
        raise WeightsError(f"{folder} holds no voices (.bin files)")
    return voices


def _groups(spoken: list[list[int]]) -> list[tuple[int, int]]:
    """Runs of words that fit the model at once."""
    groups, first, size = list[tuple[int, int]](), 0, 0
    for n, symbols in enumerate(spoken):
        if size and size + 1 + len(symbols) > MOST_SYMBOLS:
            groups.append((first, n))
            first, size = n, 0
        size += len(symbols) + 1
    return [*groups, (first, len(spoken))] if spoken else []
