"""Speech at another speed and the same pitch, while it is being made: for voices that have no speed of their own.

Pieces of 30 ms are laid down with half an overlap; each is taken within 12 ms of where the speed puts it, at the place
that continues the piece before it best (WSOLA, Verhelst and Roelands 1993). Pure numpy, some milliseconds of work for a
second of sound. How the sound was cut into chunks changes nothing.
"""

import numpy as np
from numpy.typing import NDArray

from voice_agent.audio import Samples

HOP_MS, SEARCH_MS = 15, 12
COARSE = 4  # samples, of a first search
MEAN, SILENT = np.full(COARSE, 1 / COARSE), np.zeros(1)


class Stretch:
    """One reply's sound, int16 mono: `push` what was made, get what may be heard; `finish` gives the rest."""

    def __init__(self, rate_hz: int, speed: float) -> None:
        self.speed = speed
        self._hop = rate_hz * HOP_MS // 1000
        self._search = rate_hz * SEARCH_MS // 1000
        self._held = np.zeros(0)  # input from sample `_first` on
        self._first = 0
        self._came = 0  # samples of input
        self._made = 0  # hops of output
        self._last = 0  # where in the input the newest piece begins
        self._fade = 0.5 - 0.5 * np.cos(np.pi * (np.arange(self._hop) + 0.5) / self._hop)

    def push(self, samples: Samples) -> Samples:
        """More sound; returns what is ready at the new speed, which is some 40 ms of input behind."""
        self._came += len(samples)
        self._held = np.concatenate([self._held, samples.astype(np.float64)])
        return self._all_ready()

    def finish(self) -> Samples:
        """The sound ended: the rest of it. (At high speeds up to a hop too much was given already.)"""
        due = round(self._came / self.speed) - self._made * self._hop
        if due <= 0:
            return np.zeros(0, np.int16)
        behind = round((due + 2 * self._hop) * self.speed) + self._search + COARSE + 2 * self._hop
        self._held = np.concatenate([self._held, np.zeros(behind)])
        return self._all_ready()[:due]

    def _all_ready(self) -> Samples:
        pieces: list[NDArray[np.float64]] = []
        while self._needed() <= self._first + len(self._held):
            pieces.append(self._next())
            self._forget()
        if not pieces:
            return np.zeros(0, np.int16)
        return np.clip(np.round(np.concatenate(pieces)), -32768, 32767).astype(np.int16)

    def _needed(self) -> int:
        """Samples of input that the next hop is made of, at most."""
        if not self._made:
            return self._hop
        return max(self._wanted() + self._search + COARSE, self._last + self._hop) + self._hop

    def _wanted(self) -> int:
        return round(self._made * self._hop * self.speed)

    def _next(self) -> NDArray[np.float64]:
        """One more hop: the end of the last piece fades into the begin of the next."""
        if not self._made:
            self._made = 1
            return self._at(0, self._hop)
        ending = self._at(self._last + self._hop, self._hop)
        self._last = self._best(ending)
        self._made += 1
        return ending + self._fade * (self._at(self._last, self._hop) - ending)

    def _best(self, ending: NDArray[np.float64]) -> int:
        """Where near the wanted place the sound is most like the end of the last piece: roughly first, then exactly."""
        low = max(self._first, self._wanted() - self._search)
        count = self._wanted() + self._search - low + 1
        rough = COARSE * _likest(_coarse(self._at(low, count + self._hop)), _coarse(ending))
        near = low + max(0, rough - COARSE)
        return near + _likest(self._at(near, 2 * COARSE + self._hop), ending)

    def _at(self, first: int, count: int) -> NDArray[np.float64]:
        begin = first - self._first
        return self._held[begin : begin + count]

    def _forget(self) -> None:
        """Drop input that no later piece can touch."""
        keep = min(self._last + self._hop, max(0, self._wanted() - self._search))
        drop = min(keep - self._first, len(self._held))
        if drop > 0:
            self._held, self._first = self._held[drop:], self._first + drop


def _likest(region: NDArray[np.float64], ending: NDArray[np.float64]) -> int:
    """The place in a region that an ending is most like, its loudness left out."""
    likeness = np.correlate(region, ending, "valid")
    sums = np.concatenate([SILENT, np.cumsum(region * region)])
    return int(np.argmax(likeness / np.sqrt(sums[len(ending) :] - sums[: len(likeness)] + 1.0)))


def _coarse(sound: NDArray[np.float64]) -> NDArray[np.float64]:
    """At a fraction of the rate."""
    return sound[: len(sound) // COARSE * COARSE].reshape(-1, COARSE) @ MEAN
