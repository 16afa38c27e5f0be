"""Change of sample rate, one stateful object for each stream: any chunking gives the same samples.

A windowed-sinc filter, evaluated only at the wanted instants (polyphase). It is linear-phase and centred, so output
sample n lies exactly at input time n * from_hz / to_hz: positions map through it without a delay to remember. It
holds back half a filter of input (under 2 ms) until more comes or the stream is flushed. It knows mono int16 only.

Source of the design formulas: J. O. Smith, "Digital Audio Resampling"; Kaiser window after Oppenheim and Schafer.
"""

from functools import lru_cache
from math import ceil, gcd

import numpy as np
from numpy.typing import NDArray

from voice_agent.audio import Samples

ZERO_CROSSINGS = 24  # on each side; with the window below 80 dB down from 1.02 of the lower Nyquist rate
ROLLOFF = 0.92  # where the passband ends, of the lower Nyquist rate
KAISER_BETA = 8.0
FEW_PHASES = 4  # up to here one product for each phase is faster than gathering windows
MIN_RATE_HZ, MAX_RATE_HZ = 8_000, 96_000


class Resampler:
    """Converts one stream. State: the input still under the filter, and how much has gone in and out.

    Raises ValueError for rates outside 8-96 kHz.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        for rate_hz in (from_hz, to_hz):
            if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
                raise ValueError(f"{rate_hz} Hz is outside {MIN_RATE_HZ}-{MAX_RATE_HZ} Hz")
        common = gcd(from_hz, to_hz)
        self._up, self._down = to_hz // common, from_hz // common
        self._half = _half_width(self._up, self._down)
        self._filters = _filters(self._up, self._down) if from_hz != to_hz else None
        self._reset()

    def push(self, samples: Samples) -> Samples:
        """Take input [T]; returns the output that is certain by now (possibly none)."""
        if self._filters is None:
            return samples
        self._input = np.concatenate([self._input, samples.astype(np.float32)])
        self._taken += len(samples)
        return self._until(self._outputs_certain())

    def flush(self) -> Samples:
        """End the stream: returns what was held back, ceil(input * to / from) samples in all, and starts anew."""
        if self._filters is None:
            return np.zeros(0, dtype=np.int16)
        self._input = np.concatenate([self._input, np.zeros(self._half, np.float32)])
        rest = self._until(ceil(self._taken * self._up / self._down))
        self._reset()
        return rest

    @property
    def lookahead(self) -> int:
        """Input samples that an output waits for behind its own instant."""
        return self._half if self._filters is not None else 0

    def input_for(self, outputs: int) -> int:
        """Input samples that must still be pushed before `outputs` more samples come out."""
        if self._filters is None:
            return outputs
        last = (self._given + outputs - 1) * self._down // self._up
        return max(0, last + self._half + 1 - self._taken)

    def _reset(self) -> None:
        self._input = np.zeros(self._half - 1, dtype=np.float32)  # history before the first sample is silence
        self._input_first = 1 - self._half  # input index of self._input[0]
        self._taken = 0
        self._given = 0

    def _outputs_certain(self) -> int:
        """Outputs whose whole filter lies within the input."""
        last_centre = self._taken - 1 - self._half
        return 0 if last_centre < 0 else ((last_centre + 1) * self._up - 1) // self._down + 1

    def _until(self, end: int) -> Samples:
        """Compute the outputs up to `end` and forget input that no later one needs."""
        assert self._filters is not None
        if end <= self._given:
            return np.zeros(0, dtype=np.int16)
        values = self._filtered(end - self._given)
        self._given = end
        self._forget()
        np.rint(values, out=values)
        np.minimum(values, 32767, out=values)
        np.maximum(values, -32768, out=values)
        return values.astype(np.int16)

    def _filtered(self, count: int) -> NDArray[np.float32]:
        """The next `count` outputs as floats."""
        assert self._filters is not None
        behind = (
            self._half - 1 + self._input_first
        )  # from an instant's input to its filter's first, in `_input`
        if self._up > FEW_PHASES:
            instants = np.arange(self._given, self._given + count, dtype=np.int64) * self._down
            windows = _windows(self._input, 0, 1, 2 * self._half)
            return np.einsum(
                "nt,nt->n", windows[instants // self._up - behind], self._filters[instants % self._up]
            )
        values = np.empty(count, dtype=np.float32)
        for first in range(min(self._up, count)):  # outputs of one phase lie `down` inputs apart
            start, phase = divmod((self._given + first) * self._down, self._up)
            rows = _windows(self._input, start - behind, self._down, 2 * self._half)
            rows = rows[: (count - first - 1) // self._up + 1]
            np.einsum("nt,t->n", rows, self._filters[phase], out=values[first :: self._up])
        return values

    def _forget(self) -> None:
        keep_from = self._given * self._down // self._up - (self._half - 1) - self._input_first
        self._input = self._input[keep_from:]
        self._input_first += keep_from


def _windows(signal: NDArray[np.float32], first: int, step: int, width: int) -> NDArray[np.float32]:
    """The runs of `width` samples that begin at `first` and each `step` behind it, as a view [n, width].

    Made by hand, since numpy's own view maker takes longer than the filtering.
    """
    size = signal.itemsize
    count = (len(signal) - width - first) // step + 1
    return np.ndarray((count, width), np.float32, signal, first * size, (step * size, size))


def _half_width(up: int, down: int) -> int:
    """Half the filter's length in input samples."""
    return ceil(ZERO_CROSSINGS * max(1.0, down / up))


@lru_cache(maxsize=16)
def _filters(up: int, down: int) -> NDArray[np.float32]:
    """One filter for each fraction of an input sample: [up, taps], each with a gain of one for a constant."""
    half = _half_width(up, down)
    cutoff = min(1.0, up / down) * ROLLOFF  # of the input's Nyquist rate
    offsets = np.arange(2 * half) - (half - 1)  # input samples relative to the one at or before the instant
    distance = np.arange(up)[:, None] / up - offsets[None, :]
    window = np.i0(KAISER_BETA * np.sqrt(np.maximum(0.0, 1 - (distance / half) ** 2)))
    taps = np.sinc(cutoff * distance) * window
    return (taps / taps.sum(axis=1, keepdims=True)).astype(np.float32)
