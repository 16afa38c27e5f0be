"""A loudspeaker without any buffer for sound that comes in pieces, faster than it plays: what is heard, and when.

Pure. The first piece plays as it comes, a later one behind it; what comes after all was played leaves a gap, which is
heard as silence. What was heard is a ReceivedSound whose windows are stamped with the instants they began to play, so
that everything that reads a paced sender's packets reads this as well.
"""

from collections import deque

import numpy as np

from voice_agent.audio import OPUS_RATE_HZ, Samples, silence
from voice_agent.bench.sound import WINDOW_SAMPLES, ReceivedSound
from voice_agent.clock import NS_PER_S


class Player:
    """48 kHz mono pieces in; `advance` says how late it is. Unbounded: a reply is as long as it is."""

    def __init__(self, sound: ReceivedSound, now_ns: int) -> None:
        self._sound = sound
        self._start_ns = now_ns
        self._told = 0  # samples played, silence included
        self._queue: deque[Samples] = deque()

    @property
    def playing(self) -> bool:
        """Whether anything is left to be played."""
        return bool(self._queue)

    def push(self, samples: Samples, now_ns: int) -> None:
        """A piece that came at an instant."""
        self.advance(now_ns)
        if not self._queue:
            self._pause_until(now_ns)
        if len(samples):
            self._queue.append(samples)
        self.advance(now_ns)

    def advance(self, now_ns: int) -> None:
        """Play everything that begins up to an instant; silence, where there is nothing, once it is over."""
        while self._queue and self._played_ns <= now_ns:
            self._play(self._next_window())
        while not self._queue and self._played_ns + _ns(WINDOW_SAMPLES) <= now_ns:
            self._play(silence(WINDOW_SAMPLES))

    def clear(self, now_ns: int) -> int:
        """Drop what was not played; returns how many samples that were."""
        self.advance(now_ns)
        dropped = sum(len(piece) for piece in self._queue)
        self._queue.clear()
        return dropped

    @property
    def _played_ns(self) -> int:
        return self._start_ns + _ns(self._told)

    def _pause_until(self, now_ns: int) -> None:
        missing = (now_ns - self._played_ns) * OPUS_RATE_HZ // NS_PER_S
        if missing > 0:
            self._play(silence(missing))

    def _next_window(self) -> Samples:
        parts, wanted = list[Samples](), WINDOW_SAMPLES
        while self._queue and wanted:
            piece = self._queue.popleft()
            parts.append(piece[:wanted])
            if len(piece) > wanted:
                self._queue.appendleft(piece[wanted:])
            wanted -= len(parts[-1])
        return np.concatenate(parts)

    def _play(self, samples: Samples) -> None:
        self._sound.add(self._told % 2**32, samples, self._played_ns)
        self._told += len(samples)


def _ns(samples: int) -> int:
    return samples * NS_PER_S // OPUS_RATE_HZ
