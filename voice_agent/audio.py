"""Sound as the rooms hand it on: mono int16 with a rate, times counted in samples.

`AudioOutput` is what a session speaks into, whatever the transport (design, "Output and hearing").
"""

import math
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]  # [T] mono

MODEL_RATE_HZ = 16_000  # what VAD, end of turn and recognizers hear
OPUS_RATE_HZ = 48_000  # RFC 7587: Opus over RTP counts in 48 kHz
FRAME_MS = 20  # one Opus packet
WIRE_RATE_HZ = 24_000  # OpenAI's pcm16, and what sound files are written at

AudioFormat = Literal["wav", "mp3", "flac", "opus", "aac", "pcm16"]  # of sound files that are given out


@dataclass(frozen=True, slots=True)
class WordTime:
    """Where a written word begins in a reply's sound.

    `start_char`/`end_char` index the reply's written text; `first_sample`..`end_sample` count from the reply's
    first sample at the rate of the chunk that carries it. `exact` is false where times are spread in proportion.
    """

    start_char: int
    end_char: int
    first_sample: int
    end_sample: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class PcmChunk:
    """A piece of sound: `samples` [T] int16 mono at `rate_hz`, with the words that begin in it."""

    samples: Samples
    rate_hz: int
    words: tuple[WordTime, ...] = field(default=())

    @property
    def duration_ms(self) -> float:
        """Length in milliseconds."""
        return 1000 * len(self.samples) / self.rate_hz


@dataclass(frozen=True, slots=True)
class MicrophoneFrame:
    """What the user said: `samples` [T] int16 mono at 16 kHz; `first_sample` counts from the session's start.

    Frames follow each other without a hole: gaps of the network are already silence, marked by `concealed`.
    """

    samples: Samples
    first_sample: int
    concealed: bool = False


class AudioOutput(Protocol):
    """The way to the user's ear: paced, holdable, and honest about what was played.

    A reply's samples are counted at the chunks' own rate from its first chunk; `played_samples` is 0 until the
    first is out. Chunks of a reply that was flushed are dropped at the door.
    """

    async def write(self, reply_id: str, pcm: PcmChunk) -> None:
        """Queue sound; waits while more than a few seconds are queued; returns at once if the reply was flushed."""
        ...

    @property
    def underruns(self) -> int:
        """How often a reply ran dry before it was finished."""
        ...

    def finish(self, reply_id: str) -> None:
        """Say that no more of this reply comes, so that its end can be told from an underrun."""
        ...

    def hold(self) -> None:
        """Stop sending at the next frame and keep what is queued; sends silence meanwhile."""
        ...

    def resume(self) -> None:
        """Go on at the held sample."""
        ...

    def flush(self) -> int:
        """Drop what was not sent and refuse the rest of this reply; returns its played samples. Ends a hold."""
        ...

    def refuse(self, reply_id: str) -> int:
        """Drop what was not sent of this reply alone, and the rest of it; returns its played samples."""
        ...

    def played_samples(self, reply_id: str) -> int:
        """Samples of this reply that left for the user, at the chunks' rate."""
        ...

    async def audible(self, reply_id: str) -> int | None:
        """Wait until the reply's first audible sample left; returns that instant in ns, None if none ever did."""
        ...

    async def drained(self, reply_id: str) -> int:
        """Wait until a finished reply was played to its end (or was flushed); returns its played samples."""
        ...


def silence(samples: int) -> Samples:
    """Digital zero of a given length."""
    return np.zeros(samples, dtype=np.int16)


def dbfs(samples: Samples) -> float:
    """Root mean square level against full scale; -120 for silence or nothing."""
    if len(samples) == 0:
        return -120.0
    floats = samples.astype(np.float32)
    mean_square = float(floats.dot(floats)) / len(floats)
    return max(-120.0, 10 * math.log10(mean_square / 32768.0**2 + 1e-12))


def ms_to_samples(ms: float, rate_hz: int) -> int:
    """Whole samples in so many milliseconds."""
    return round(ms * rate_hz / 1000)


def samples_to_ms(samples: int, rate_hz: int) -> float:
    """Milliseconds of so many samples."""
    return 1000 * samples / rate_hz
