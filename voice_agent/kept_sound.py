"""The newest sound of one microphone, and when it arrived: two rings of numbers.

No object for each frame, because thousands of them would be looked at in every garbage collection of a busy server.
Knows no turns.
"""

from array import array

import numpy as np

from voice_agent.audio import FRAME_MS, MODEL_RATE_HZ, MicrophoneFrame, Samples, silence

SLOT_SAMPLES = MODEL_RATE_HZ * FRAME_MS // 1000  # one arrival is kept for so many


class KeptSound:
    """The last `count` samples of a line without holes. One writer.

    `end_sample` lies behind the newest; `_first_sample` is the first that was ever taken.
    """

    def __init__(self, count: int) -> None:
        slots = -(-count // SLOT_SAMPLES) + 1
        self._ring = silence(slots * SLOT_SAMPLES)
        self._arrivals_ns = array("q", bytes(8 * slots))
        self._first_sample: int | None = None
        self.end_sample = 0

    def add(self, frame: MicrophoneFrame, arrival_ns: int) -> None:
        """Take the next frame; of one that is longer than the ring its end stays."""
        if self._first_sample is None:
            self._first_sample = frame.first_sample
        self.end_sample = frame.first_sample + len(frame.samples)
        samples = frame.samples[-len(self._ring) :]
        first = self.end_sample - len(samples)
        place = first % len(self._ring)
        straight = min(len(samples), len(self._ring) - place)
        self._ring[place : place + straight] = samples[:straight]
        self._ring[: len(samples) - straight] = samples[straight:]
        for slot in range(first // SLOT_SAMPLES, -(-self.end_sample // SLOT_SAMPLES)):
            self._arrivals_ns[slot % len(self._arrivals_ns)] = arrival_ns

    def between(self, first_sample: int, end_sample: int) -> Samples:
        """A copy of the samples from one on and before another, as far as they are kept."""
        first = max(first_sample, self._oldest)
        end = max(first, min(end_sample, self.end_sample))
        place, stop = first % len(self._ring), first % len(self._ring) + end - first
        if stop <= len(self._ring):
            return self._ring[place:stop].copy()
        return np.concatenate([self._ring[place:], self._ring[: stop - len(self._ring)]])

    def arrival_ns(self, sample: int) -> int | None:
        """When the frame with this sample arrived, or the nearest that is kept; None before the first."""
        if self._first_sample is None:
            return None
        kept = min(max(sample, self._oldest), self.end_sample - 1)
        return self._arrivals_ns[kept // SLOT_SAMPLES % len(self._arrivals_ns)]

    @property
    def _oldest(self) -> int:
        """The first sample that is kept; a slot less than the ring holds, since a whole one may be half written."""
        return max(self._first_sample or 0, self.end_sample - len(self._ring) + SLOT_SAMPLES)
