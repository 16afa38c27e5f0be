"""What a caller's ear makes of received sound: where a voice begins and ends, and where it has holes.

Pure. The sound is a row of windows of at most 20 ms, each with its level and the instant it arrived. *Voiced* is two
windows in a row at or above -45 dBFS, so that a click is none. A *hole* is digital silence between two voiced places:
what a paced sender sends when it has run dry. Behind Opus at 32 kbit/s that is no sample beyond one step for 25 ms or
more: dry spells of 80 ms and more always show (some 45 ms shorter than they were), while the pauses of the packaged
voice's own never got beyond 12 ms of it in 46 sentences. Shorter spells are the server's to count.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from voice_agent.audio import FRAME_MS, OPUS_RATE_HZ, Samples, dbfs, silence
from voice_agent.clock import NS_PER_MS

VOICED_DBFS = -45.0
VOICED_WINDOWS = 2
WINDOW_SAMPLES = FRAME_MS * OPUS_RATE_HZ // 1000
SHORTEST_HOLE_MS = 25.0
SILENT_STEPS = 1  # what the decoder makes of digital silence stays within this
LONGEST_LOSS_S = 60  # a larger step of the RTP clock is a restart, not silence


@dataclass(frozen=True, slots=True)
class Window:
    """A piece of received sound: its level, when it arrived, and where its samples are."""

    arrival_ns: int
    level_dbfs: float
    first_sample: int
    samples: int


@dataclass(frozen=True, slots=True)
class Hole:
    """Digital silence inside speech, in samples of the received sound."""

    first_sample: int
    samples: int

    @property
    def duration_ms(self) -> float:
        """Length in milliseconds."""
        return 1000 * self.samples / OPUS_RATE_HZ


class ReceivedSound:
    """Everything that was received in one call, 48 kHz mono, in the order of its RTP clock.

    A packet that is missing leaves digital silence; one that comes after its successor is dropped and counted.
    """

    def __init__(self) -> None:
        self.windows: list[Window] = []
        self.late_packets = 0
        self._pieces: list[Samples] = []
        self._length = 0  # samples so far, holes included
        self._origin: int | None = None  # RTP time of sample 0, unwrapped

    def add(self, rtp_time: int, samples: Samples, arrival_ns: int) -> None:
        """Take one decoded packet; `rtp_time` is its 32-bit RTP timestamp (48 kHz, RFC 7587)."""
        if self._origin is None:
            self._origin = rtp_time
        ahead = (rtp_time - self._origin - self._length + 2**31) % 2**32 - 2**31
        if ahead < 0:
            self.late_packets += 1
            return
        if 0 < ahead < LONGEST_LOSS_S * OPUS_RATE_HZ:
            self._append(silence(ahead), arrival_ns)
        else:
            self._origin += ahead
        self._append(samples, arrival_ns)

    def samples(self, first: int = 0, end: int | None = None) -> Samples:
        """A stretch of the sound, copied."""
        return np.concatenate([silence(0), *self._pieces])[first:end]

    def position(self, instant_ns: int) -> int:
        """Index of the first window that arrived at `instant_ns` or later."""
        return bisect_left(self.windows, instant_ns, key=lambda window: window.arrival_ns)

    def _append(self, samples: Samples, arrival_ns: int) -> None:
        for first in range(0, len(samples), WINDOW_SAMPLES):
            part = samples[first : first + WINDOW_SAMPLES]
            self.windows.append(Window(arrival_ns, dbfs(part), self._length + first, len(part)))
        self._pieces.append(samples)
        self._length += len(samples)


def levels(samples: Samples, window_samples: int = WINDOW_SAMPLES) -> list[float]:
    """dBFS of each window; the last may be shorter."""
    return [dbfs(samples[at : at + window_samples]) for at in range(0, len(samples), window_samples)]


def first_voiced(row: Sequence[float], start: int = 0) -> int | None:
    """Index of the first window from `start` on with which a voice begins; None if there is none."""
    run = 0
    for index in range(start, len(row)):
        run = run + 1 if row[index] >= VOICED_DBFS else 0
        if run == VOICED_WINDOWS:
            return index - VOICED_WINDOWS + 1
    return None


def last_voiced(row: Sequence[float], end: int | None = None) -> int | None:
    """Index of the last window before `end` with which a voice ends; None if there is none."""
    before = row[:end]
    index = first_voiced(before[::-1])
    return None if index is None else len(before) - 1 - index


def first_voice(windows: Sequence[Window], since_ns: int) -> Window | None:
    """The window with which a voice begins, of those that arrived at `since_ns` or later."""
    start = bisect_left(windows, since_ns, key=lambda window: window.arrival_ns)
    index = first_voiced([window.level_dbfs for window in windows[start:]])
    return None if index is None else windows[start + index]


def last_voice(windows: Sequence[Window], until_ns: int) -> Window | None:
    """The window with which a voice ends, of those that arrived before `until_ns`."""
    end = bisect_left(windows, until_ns, key=lambda window: window.arrival_ns)
    index = last_voiced([window.level_dbfs for window in windows[:end]])
    return None if index is None else windows[index]


def is_quiet(windows: Sequence[Window], after: Window, quiet_ms: float) -> bool:
    """Whether no voice begins within `quiet_ms` after a window."""
    voice = first_voice(windows, after.arrival_ns + 1)
    return voice is None or voice.arrival_ns - after.arrival_ns > quiet_ms * NS_PER_MS


def holes(samples: Samples, shortest_ms: float = SHORTEST_HOLE_MS) -> list[Hole]:
    """Runs of digital silence between the first and the last voiced window of one reply's sound (48 kHz)."""
    row = levels(samples)
    first, last = first_voiced(row), last_voiced(row)
    if first is None or last is None:
        return []
    start, end = first * WINDOW_SAMPLES, min(len(samples), (last + 1) * WINDOW_SAMPLES)
    silent = np.abs(samples[start:end].astype(np.int32)) <= SILENT_STEPS
    edges = np.flatnonzero(np.diff(np.concatenate([[0], silent, [0]]).astype(np.int8)))
    shortest = shortest_ms * OPUS_RATE_HZ / 1000
    runs = [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return [Hole(start + a, b - a) for a, b in runs if b - a >= shortest]
