"""The caller's sentences as sound, and the replies as words again: both by the packaged models, or from a folder.

Sentences made by the voice are kept in the cache, keyed by voice file and text, so that two runs say the same.
"""

import hashlib
import os
import re
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from av import AudioFrame, AudioResampler

from voice_agent.audio import MODEL_RATE_HZ, OPUS_RATE_HZ, Samples, ms_to_samples, silence
from voice_agent.bench.sound import VOICED_DBFS, WINDOW_SAMPLES, levels
from voice_agent.bench.synthesis import drawn_out
from voice_agent.engine.families import load_recognizer, load_talker
from voice_agent.engine.messages import SpokenWord
from voice_agent.engine.runtime import RecognizerModel, RecognizerOptions, TalkerModel, TalkerOptions
from voice_agent.errors import WeightsError
from voice_agent.models.store import Store

VOICE = "piper-joe"
LEAD_MS = 100  # of silence before a sentence
DRAWN_OUT = 1.6  # how much longer a word gets before a pause that no comma announces
FADE_MS = 8  # at both sides of a pause that is cut into a sentence
_PAUSE = re.compile(r"\s*\[(\d+)\]\s*")
LONGEST_PIECE_S = 25  # a recognizer takes 30 s; the cut is made at the quietest place before this


@dataclass(frozen=True, slots=True)
class Sentence:
    """Something to say: 48 kHz mono."""

    text: str
    samples: Samples


@dataclass(frozen=True, slots=True)
class Shape:
    """How somebody sounds: how fast, and how much higher pitch and formants are than the packaged voice's."""

    speed: float = 1.0
    pitch: float = 1.0


PLAIN = Shape()


class Voice:
    """Speaks sentences with the packaged voice; loads it only for what the cache lacks."""

    def __init__(self, store: Store) -> None:
        self._folder = store.folder_of(VOICE)
        self._cache = store.folder / "bench"
        self._model: TalkerModel | None = None

    def sentences(self, texts: Sequence[str]) -> list[Sentence]:
        """The texts as sound; a few hundred ms each where the cache has none."""
        return [Sentence(text, self.sound(text)) for text in texts]

    def sound(self, text: str, shape: Shape = PLAIN) -> Samples:
        """48 kHz; "[700]" in the text is a pause of 700 ms, cut into the sentence as it would be said without."""
        path = self._cache / f"{self._key(text, shape)}.wav"
        if not path.exists():
            samples = self._speak(text, shape)
            self._cache.mkdir(parents=True, exist_ok=True)
            write_wav(path, samples, OPUS_RATE_HZ)
        return read_wav(path)

    def _key(self, text: str, shape: Shape) -> str:
        voice = max(self._folder.glob("*.onnx"), key=lambda file: file.stat().st_size)
        identity = f"{voice.name}:{voice.stat().st_size}:{text}"
        if "[" in text:
            identity += f":drawn out by {DRAWN_OUT}"
        if shape != PLAIN:
            identity += f":{shape.speed}:{shape.pitch}"
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def _speak(self, text: str, shape: Shape) -> Samples:
        """A higher voice is a slower one played faster, so that formants rise with the pitch."""
        if self._model is None:
            self._model = load_talker(TalkerOptions("piper", str(self._folder)))
        plain, pauses = without_pauses(text)
        latents = self._model.encode(_words(plain), "", shape.speed / shape.pitch, 0)
        sound = self._model.decode(latents, 0, latents.frames)
        played_hz = round(self._model.rate_hz * shape.pitch)
        cuts: list[Cut] = []
        frame = self._model.samples_per_frame
        for char, pause_ms in pauses:
            before = [word for word in latents.words if word.start_char < char][-1]
            behind = next(word for word in latents.words if word.start_char >= char)
            planned = not plain[char - 2].isalnum()
            begin, end = before.first_frame * frame, before.end_frame * frame
            cuts.append(Cut(begin, end, behind.first_frame * frame, pause_ms, planned=planned))
        paused = with_pauses(sound, cuts, played_hz)
        lead = silence(ms_to_samples(LEAD_MS, OPUS_RATE_HZ))
        return np.concatenate([lead, to_rate(paused, played_hz, OPUS_RATE_HZ)])


def without_pauses(text: str) -> tuple[str, list[tuple[int, float]]]:
    """The text as it is spoken, and (place in it of the word behind, length in ms) of each pause."""
    plain, pauses = "", list[tuple[int, float]]()
    pieces = _PAUSE.split(text)
    for piece, pause_ms in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
        plain += piece
        if pause_ms:
            plain += " "
            pauses.append((len(plain), float(pause_ms)))
    return plain, pauses


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a pause goes, in samples: the word before it, the begin of the one behind; `planned` where a comma is."""

    word_first: int
    word_end: int
    next_first: int
    pause_ms: float
    planned: bool = True


def with_pauses(sound: Samples, cuts: Sequence[Cut], rate_hz: int) -> Samples:
    """Silence of the wanted length between words, in place of the quiet that is there; unplanned ones are drawn to."""
    pieces: list[Samples] = []
    rest, done = sound, 0  # `rest` begins at sample `done`
    for cut_ in cuts:
        low, high = _quiet_between(rest, cut_.word_end - done, cut_.next_first - done, rate_hz)
        middle = (low + high) // 2
        before = _faded(rest[:middle], rate_hz, out=True)
        if not cut_.planned:
            word = max(0, cut_.word_first - done)
            before = np.concatenate([before[:word], drawn_out(before[word:], DRAWN_OUT, rate_hz)])
        inserted = ms_to_samples(cut_.pause_ms, rate_hz) - (high - low)
        pieces += [before, silence(max(0, inserted))]
        rest, done = _faded(rest[middle:], rate_hz, out=False), done + middle
    return np.concatenate([*pieces, rest])


def _quiet_between(sound: Samples, end: int, begin: int, rate_hz: int) -> tuple[int, int]:
    """The quiet around the softest 10 ms between two words: (first, end) sample."""
    step = rate_hz // 100
    first = max(0, min(end, begin) - 4 * step)
    row = levels(sound[first : max(end, begin) + 4 * step], step)
    softest = low = high = row.index(min(row))
    while low > 0 and row[low - 1] < VOICED_DBFS:
        low -= 1
    while high + 1 < len(row) and row[high + 1] < VOICED_DBFS:
        high += 1
    if row[softest] >= VOICED_DBFS:  # the words run into each other
        return first + softest * step, first + softest * step
    return first + low * step, min(len(sound), first + (high + 1) * step)


def _faded(sound: Samples, rate_hz: int, *, out: bool) -> Samples:
    samples = min(len(sound), ms_to_samples(FADE_MS, rate_hz))
    gains = np.ones(len(sound))
    ramp = np.arange(samples) / max(1, samples)
    if out:
        gains[len(sound) - samples :] = ramp[::-1]
    else:
        gains[:samples] = ramp
    return (sound * gains).astype(np.int16)


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


def cache_folder() -> Path:
    """Where weights and made sound are kept."""
    folder = os.environ.get("VOICE_AGENT_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "voice-agent"


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
