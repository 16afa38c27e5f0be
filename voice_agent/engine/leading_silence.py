"""Cut the silence before a reply's first word, found by its level while the sound is being made. Pure numpy.

Speech is sustained: 40 ms of 60 at or above -45 dBFS, in steps of 5 ms. A click does not last and is cut with the
silence behind it. From there the cut goes back over whatever is softly audible (-55 dBFS), across a closure of up to
80 ms: a plosive's burst lies before its vowel by that much, and the air of an "h" or "f" is soft. Deciding takes 40 ms
of sound beyond the onset, which a model makes in a few; the listener waits for none of it.
"""

import numpy as np
from numpy.typing import NDArray

from voice_agent.audio import Samples

STEP_MS = 5
LOUD_DBFS, SOFT_DBFS = -45.0, -55.0
SPAN_STEPS, LOUD_STEPS = 12, 8  # so many of so many steps are loud: sustained
CLOSURE_STEPS = 16  # the longest silence between a burst and its vowel (voice onset time)
BACK_STEPS = 32  # how far before the sustained part a word may begin
KEPT_MS = 5  # of what lies before the first soft step
MOST_CUT_MS = 1_000  # silence longer than that is meant: it is kept from there on


class LeadingSilence:
    """For one reply: `push` what was made, get what is to be heard. `cut_samples` shifts word times, once `open`."""

    def __init__(self, rate_hz: int) -> None:
        self.cut_samples = 0
        self.open = False
        self._step = rate_hz * STEP_MS // 1000
        self._kept = rate_hz * KEPT_MS // 1000
        self._most_cut = rate_hz * MOST_CUT_MS // 1000
        self._held: Samples = np.zeros(0, np.int16)

    def push(self, samples: Samples) -> Samples:
        """More sound, int16 [T]; returns what may be heard now, empty while nothing does."""
        if self.open:
            return samples
        self._held = np.concatenate([self._held, samples])
        begin = self._begin()
        if begin is None:
            return np.zeros(0, np.int16)
        return self._open_at(begin)

    def finish(self) -> Samples:
        """The reply ended: what was held back, from its first soft step on; all of it if there is none."""
        if self.open:
            return np.zeros(0, np.int16)
        soft = np.flatnonzero(self._levels() >= SOFT_DBFS)
        return self._open_at(self._sample(int(soft[0])) if len(soft) else 0)

    def _begin(self) -> int | None:
        levels = self._levels()
        first = _sustained(levels >= LOUD_DBFS)
        if first is not None:
            return min(self._sample(_word_begin(levels >= SOFT_DBFS, first)), self._most_cut)
        held_too_long = len(self._held) > self._most_cut + SPAN_STEPS * self._step
        return self._most_cut if held_too_long else None

    def _sample(self, step: int) -> int:
        return max(0, step * self._step - self._kept)

    def _levels(self) -> NDArray[np.float64]:
        """dBFS of each whole step, without its mean: an offset is no sound."""
        steps = len(self._held) // self._step
        windows = self._held[: steps * self._step].reshape(steps, self._step).astype(np.float64)
        powers = np.var(windows, axis=1) / 32768.0**2
        return 10 * np.log10(powers + 1e-12)

    def _open_at(self, begin: int) -> Samples:
        """Let through from there, swelling over a step so that no edge clicks."""
        self.open, self.cut_samples = True, begin
        heard = self._held[begin:].copy()
        self._held = np.zeros(0, np.int16)
        swell = min(self._kept, len(heard)) if begin else 0
        heard[:swell] = np.round(heard[:swell] * np.linspace(0, 1, swell, endpoint=False)).astype(np.int16)
        return heard


def trimmed(samples: Samples, rate_hz: int) -> Samples:
    """A whole sound int16 [T] without its leading silence, by the same rule."""
    silence = LeadingSilence(rate_hz)
    return np.concatenate([silence.push(samples), silence.finish()])


def _sustained(loud: NDArray[np.bool_]) -> int | None:
    """The first loud step with so many loud ones in the span that it begins."""
    counts = np.concatenate([[0], np.cumsum(loud)])
    ends = np.minimum(np.arange(len(loud)) + SPAN_STEPS, len(loud))
    found = np.flatnonzero(loud & (counts[ends] - counts[:-1] >= LOUD_STEPS))
    return int(found[0]) if len(found) else None


def _word_begin(soft: NDArray[np.bool_], first: int) -> int:
    """Back from the sustained part over soft steps and closures."""
    begin = first
    for step in range(first - 1, max(-1, first - BACK_STEPS - 1), -1):
        if soft[step]:
            begin = step
        elif begin - step > CLOSURE_STEPS:
            break
    return begin
