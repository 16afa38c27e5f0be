"""The sound of a reply as a file, piece by piece while it is made or whole at its end."""

import numpy as np

from voice_agent.audio import WIRE_RATE_HZ, PcmChunk, Samples, silence
from voice_agent.media.containers import Encoder, encode
from voice_agent.media.resample import Resampler
from voice_agent.requests import SpeechWish


class SoundFile:
    """The reply's sound as a file at 24 kHz, streamed or whole at the end. Called from one thread at a time."""

    def __init__(self, wish: SpeechWish) -> None:
        self._wish = wish
        self._encoder = Encoder(wish.audio_format, WIRE_RATE_HZ) if wish.streamed else None
        self._kept = list[Samples]()
        self._resampler: Resampler | None = None
        self.samples = 0

    def push(self, pcm: PcmChunk) -> bytes:
        """Take sound of one rate throughout; returns the bytes that it completes."""
        self._resampler = self._resampler or Resampler(pcm.rate_hz, WIRE_RATE_HZ)
        return self._add(self._resampler.push(pcm.samples))

    def finish(self) -> bytes:
        """The rest of the file, or all of it."""
        rest = self._add(self._resampler.flush() if self._resampler else silence(0))
        if self._encoder:
            return rest + self._encoder.finish()
        samples = np.concatenate(self._kept) if self._kept else silence(0)
        return encode(samples, self._wish.audio_format, WIRE_RATE_HZ)

    def _add(self, samples: Samples) -> bytes:
        self.samples += len(samples)
        if self._encoder:
            return self._encoder.push(samples)
        self._kept.append(samples)
        return b""
