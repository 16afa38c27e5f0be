"""A loudspeaker's way back into the microphone: what the caller hears comes back softer, later and with a room's tail.

Pure. Received samples go in, the echo comes out at the microphone's own pace; both are 48 kHz mono.
"""

from collections import deque

import numpy as np

from voice_agent.audio import OPUS_RATE_HZ, Samples, ms_to_samples, silence

REFLECTIONS = ((0.0, 1.0), (13.0, 0.35), (29.0, 0.2), (47.0, 0.12))  # (ms, gain) of a small room
MOST_LATE_MS = 120  # a queue that has grown by so much is cut: two clocks never agree for ever


class EchoPath:
    """A delay line. State: the samples on their way (primed with the delay), and the last ones for reflections."""

    def __init__(self, gain_db: float, delay_ms: float) -> None:
        self._gain = 10 ** (gain_db / 20)
        self._delay = ms_to_samples(delay_ms, OPUS_RATE_HZ)
        self._queue: deque[Samples] = deque([silence(self._delay)])
        self._queued = self._delay
        self._past = silence(ms_to_samples(REFLECTIONS[-1][0], OPUS_RATE_HZ))

    def hear(self, samples: Samples) -> None:
        """Take what just came out of the loudspeaker; what is too late for its delay is dropped."""
        most = self._delay + ms_to_samples(MOST_LATE_MS, OPUS_RATE_HZ)
        while self._queued > most:
            self._queued -= len(self._queue.popleft())
        self._queue.append(samples)
        self._queued += len(samples)

    def take(self, samples: int) -> Samples:
        """The next so many samples at the microphone; silence where nothing is on its way."""
        dry = np.concatenate([self._past, self._next(samples)])
        wet = np.zeros(samples)
        for late_ms, gain in REFLECTIONS:
            at = len(self._past) - ms_to_samples(late_ms, OPUS_RATE_HZ)
            wet += gain * dry[at : at + samples]
        self._past = dry[samples:]
        return np.clip(wet * self._gain, -32768, 32767).astype(np.int16)

    def _next(self, samples: int) -> Samples:
        if self._queued < samples:
            return silence(samples)
        pieces: list[Samples] = []
        wanted = samples
        while wanted:
            piece = self._queue.popleft()
            pieces.append(piece[:wanted])
            if len(piece) > wanted:
                self._queue.appendleft(piece[wanted:])
            wanted -= len(pieces[-1])
        self._queued -= samples
        return np.concatenate(pieces)
