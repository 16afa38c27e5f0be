"""A listener without any buffer, and what was heard: first sound, first audible sound, gaps. Pure.

Playback begins with the first chunk; a chunk that comes before the sound so far has ended plays after it, a later one
makes an underrun of that length, however short. Audible is the start of the first two windows in a row of 20 ms, 10 ms
apart, whose level without its mean is at least -45 dBFS; its instant is when it plays, gaps before it included.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from voice_agent.clock import NS_PER_MS, NS_PER_S

WINDOW_MS, HOP_MS, AUDIBLE_DBFS = 20, 10, -45.0
FIRST_LOOK_S = 1.0  # nearly every reply is audible within its first second


@dataclass(slots=True)
class Listener:
    """Chunks of int16 mono in, in order; instants in ns. Odd bytes wait for their other half."""

    rate_hz: int
    chunks: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])  # arrival, samples
    sound: bytearray = field(default_factory=bytearray)
    _told: int = 0

    def arrives(self, pcm: bytes, at_ns: int) -> None:
        """So much sound came at an instant."""
        self.sound += pcm
        samples = len(self.sound) // 2 - self._told
        if samples > 0:
            self._told += samples
            self.chunks.append((at_ns, samples))

    def heard(self, sent_ns: int) -> "Heard":
        """Everything about it, in ms from the request."""
        starts_ns, ends_ns, stalls_ns = list[int](), 0, list[int]()
        for at_ns, samples in self.chunks:
            if starts_ns and at_ns > ends_ns:
                stalls_ns.append(at_ns - ends_ns)
            starts_ns.append(max(at_ns, ends_ns))
            ends_ns = starts_ns[-1] + samples * NS_PER_S // self.rate_hz
        onset = onset_sample(np.frombuffer(self.sound, "<i2", self._told), self.rate_hz)
        return Heard(
            first_ms=_ms(self.chunks[0][0] - sent_ns) if self.chunks else None,
            audible_ms=None if onset is None else _ms(self._plays_ns(onset, starts_ns) - sent_ns),
            last_ms=_ms(self.chunks[-1][0] - sent_ns) if self.chunks else None,
            quiet_ms=None if onset is None else 1000 * onset / self.rate_hz,
            stalls_ms=[_ms(stall) for stall in stalls_ns],
            sound_ms=1000 * self._told / self.rate_hz,
        )

    def _plays_ns(self, sample: int, starts_ns: list[int]) -> int:
        for (_, samples), start_ns in zip(self.chunks, starts_ns, strict=True):
            if sample < samples:
                return start_ns + sample * NS_PER_S // self.rate_hz
            sample -= samples
        raise ValueError("the sample lies behind the sound's end")


@dataclass(frozen=True, slots=True)
class Heard:
    """One reply at its listener; None where nothing (audible) came. `quiet_ms` is the sound before the audible."""

    first_ms: float | None = None
    audible_ms: float | None = None
    last_ms: float | None = None
    quiet_ms: float | None = None
    stalls_ms: list[float] = field(default_factory=list[float])
    sound_ms: float = 0.0


def onset_sample(samples: NDArray[np.int16], rate_hz: int) -> int | None:
    """Where sound becomes audible; None if it never does."""
    look = int(FIRST_LOOK_S * rate_hz)
    found = _onset(samples[:look], rate_hz)
    return found if found is not None or len(samples) <= look else _onset(samples, rate_hz)


def _onset(samples: NDArray[np.int16], rate_hz: int) -> int | None:
    window, hop = rate_hz * WINDOW_MS // 1000, rate_hz * HOP_MS // 1000
    if len(samples) < window + hop:
        return None
    sums = np.concatenate([[0.0], np.cumsum(samples, dtype=np.float64)])
    squares = np.concatenate([[0.0], np.cumsum(np.square(samples, dtype=np.float64))])
    first = np.arange(0, len(samples) - window + 1, hop)
    means = (sums[first + window] - sums[first]) / window
    powers = (squares[first + window] - squares[first]) / window - np.square(means)
    loud = powers >= (32768.0 * 10 ** (AUDIBLE_DBFS / 20)) ** 2
    both = np.flatnonzero(loud[:-1] & loud[1:])
    return int(both[0]) * hop if len(both) else None


def _ms(ns: int) -> float:
    return ns / NS_PER_MS
