"""The caller's sentences as sound, and the replies as words again: both by the packaged models, or from a folder.

Sentences made by the voice are kept in the cache, keyed by voice file and text, so that two runs say the same.
"""

import hashlib
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from av import AudioFrame, AudioResampler

from voice_agent.audio import MODEL_RATE_HZ, OPUS_RATE_HZ, Samples, ms_to_samples, silence
from voice_agent.bench.sound import VOICED_DBFS, WINDOW_SAMPLES, levels
from voice_agent.engine.families import load_recognizer, load_talker
from voice_agent.engine.messages import SpokenWord
from voice_agent.engine.runtime import RecognizerModel, RecognizerOptions, TalkerModel, TalkerOptions
from voice_agent.errors import WeightsError
from voice_agent.models.store import Store

VOICE = "piper-joe"
LEAD_MS = 100  # of silence before a sentence
LONGEST_PIECE_S = 25  # a recognizer takes 30 s; the cut is made at the quietest place before this


@dataclass(frozen=True, slots=True)
class Sentence:
    """Something to say: 48 kHz mono."""

    text: str
    samples: Samples


class Voice:
    """Speaks sentences with the packaged voice; loads it only for what the cache lacks."""

    def __init__(self, store: Store) -> None:
        self._folder = store.folder_of(VOICE)
        self._cache = store.folder / "bench"
        self._model: TalkerModel | None = None

    def sentences(self, texts: Sequence[str]) -> list[Sentence]:
        """The texts as sound; a few hundred ms each where the cache has none."""
        return [Sentence(text, self._sound(text)) for text in texts]

    def _sound(self, text: str) -> Samples:
        path = self._cache / f"{self._key(text)}.wav"
        if not path.exists():
            samples = self._speak(text)
            self._cache.mkdir(parents=True, exist_ok=True)
            write_wav(path, samples, OPUS_RATE_HZ)
        return read_wav(path)

    def _key(self, text: str) -> str:
        voice = max(self._folder.glob("*.onnx"), key=lambda file: file.stat().st_size)
        identity = f"{voice.name}:{voice.stat().st_size}:{text}"
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def _speak(self, text: str) -> Samples:
        if self._model is None:
            self._model = load_talker(TalkerOptions("piper", str(self._folder)))
        latents = self._model.encode(_words(text), "", 1.0, 0)
        sound = self._model.decode(latents, 0, latents.frames)
        lead = silence(ms_to_samples(LEAD_MS, OPUS_RATE_HZ))
        return np.concatenate([lead, to_rate(sound, self._model.rate_hz, OPUS_RATE_HZ)])


class Hearing:
    """Recognizes replies again with a packaged recognizer, on one thread."""

    def __init__(self, store: Store, name: str) -> None:
        options = RecognizerOptions("whisper", str(store.folder_of(name)), threads=2, language="en")
        self._model: RecognizerModel = load_recognizer(options)

    def text(self, samples: Samples) -> str:
        """What is said in 48 kHz sound of any length."""
        pieces = [
            self._model.transcribe(to_rate(piece, OPUS_RATE_HZ, MODEL_RATE_HZ), "en")
            for piece in cut(samples)
        ]
        return " ".join(text.strip() for text, _ in pieces)


def cut(samples: Samples, longest_s: float = LONGEST_PIECE_S) -> list[Samples]:
    """Pieces of at most `longest_s`, cut in the middle of the longest quiet of each piece's last half."""
    longest = round(longest_s * OPUS_RATE_HZ)
    pieces: list[Samples] = []
    while len(samples) > longest:
        at = longest // 2 + _quiet_place(samples[longest // 2 : longest])
        pieces.append(samples[:at])
        samples = samples[at:]
    return [*pieces, samples]


def _quiet_place(samples: Samples) -> int:
    """The middle of the longest run of windows below the voice's level; the end if there is none."""
    quiet = np.array([level < VOICED_DBFS for level in levels(samples)])
    edges = np.flatnonzero(np.diff(np.concatenate([[0], quiet, [0]]).astype(np.int8)))
    runs = list(zip(edges[::2], edges[1::2], strict=True))
    if not runs:
        return len(samples)
    first, end = max(runs, key=lambda run: run[1] - run[0])
    return min(len(samples), int(first + end) * WINDOW_SAMPLES // 2)


def read_wav(path: Path) -> Samples:
    """A 16-bit WAV of any rate as 48 kHz mono; raises WeightsError for anything else."""
    try:
        with wave.open(str(path), "rb") as file:
            if file.getsampwidth() != 2:
                raise WeightsError(f"{path} is not a 16-bit WAV")
            data = np.frombuffer(file.readframes(file.getnframes()), "<i2")
            channels, rate_hz = file.getnchannels(), file.getframerate()
    except (OSError, EOFError, wave.Error) as error:
        raise WeightsError(f"{path} cannot be read as a WAV: {error}") from error
    mono = data.reshape(-1, channels).mean(axis=1).astype(np.int16)
    return to_rate(mono, rate_hz, OPUS_RATE_HZ)


def read_folder(folder: Path) -> list[Sentence]:
    """Every .wav of a folder in the order of names; a .txt beside one is its text. Raises WeightsError if none."""
    paths = sorted(folder.glob("*.wav"))
    if not paths:
        raise WeightsError(f"{folder} holds no .wav file")
    texts = [path.with_suffix(".txt") for path in paths]
    return [
        Sentence(text.read_text().strip() if text.exists() else path.stem, read_wav(path))
        for path, text in zip(paths, texts, strict=True)
    ]


def write_wav(path: Path, samples: Samples, rate_hz: int) -> None:
    """Write 16-bit mono, whole or not at all."""
    part = path.with_suffix(".part")
    with wave.open(str(part), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(samples.astype("<i2").tobytes())
    part.replace(path)


def to_rate(samples: Samples, rate_hz: int, target_hz: int) -> Samples:
    """A whole sound at another rate."""
    if rate_hz == target_hz or len(samples) == 0:
        return samples
    resampler = AudioResampler(format="s16", layout="mono", rate=target_hz)
    frame = AudioFrame.from_ndarray(np.ascontiguousarray(samples).reshape(1, -1), format="s16", layout="mono")
    frame.sample_rate = rate_hz
    frames = [*resampler.resample(frame), *resampler.resample(None)]
    return np.concatenate([part.to_ndarray().ravel() for part in frames]).astype(np.int16)


def _words(text: str) -> list[SpokenWord]:
    words: list[SpokenWord] = []
    at = 0
    for word in text.split():
        at = text.index(word, at)
        words.append(SpokenWord(word, at, at + len(word)))
        at += len(word)
    return words
