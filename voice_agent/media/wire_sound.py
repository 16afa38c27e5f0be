"""Sound in messages, both ways: audio/pcm (24 kHz, int16 little-endian), audio/pcmu and audio/pcma (8 kHz).

`AppendedSound` is a microphone whose sound a client sends in pieces; `ReplyEncoder` makes one reply's chunks into
bytes. Time is what was received: nothing is added where a client sends nothing.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import numpy as np

from voice_agent.audio import FRAME_MS, MODEL_RATE_HZ, MicrophoneFrame, PcmChunk, Samples, silence
from voice_agent.media import g711
from voice_agent.media.resample import Resampler

PCM, PCM_RATE_HZ = "audio/pcm", 24_000
FRAME_SAMPLES = MODEL_RATE_HZ * FRAME_MS // 1000
PIECE_BYTES = 12_000  # converted at once: 0.25 s of PCM
MAX_WAITING_BYTES = 16 * 1024 * 1024  # one whole event of the largest size, and some
FRAMES_IN_A_ROW = 50  # before others get their turn


def rate_of(encoding: str) -> int:
    """Samples a second of a wire format."""
    return PCM_RATE_HZ if encoding == PCM else g711.RATE_HZ


async def sound_at_model_rate(payload: bytes, encoding: str) -> Samples:
    """A whole sound at 16 kHz [T]; half a sample at its end is left out. Others get their turn between its pieces."""
    resampler, ready = Resampler(rate_of(encoding), MODEL_RATE_HZ), list[Samples]()
    for at in range(0, len(payload), PIECE_BYTES):
        ready.append(resampler.push(_samples(payload[at : at + PIECE_BYTES], encoding)))
        await asyncio.sleep(0)
    return np.concatenate([*ready, resampler.flush()])


def _samples(payload: bytes, encoding: str) -> Samples:
    if encoding != PCM:
        return g711.decode(payload, encoding)
    return np.frombuffer(payload[: len(payload) // 2 * 2], dtype="<i2").astype(np.int16)


class ReplyEncoder:
    """One reply's sound to one wire format, whatever the Talker's rate."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._rate_hz = 0
        self._resampler: Resampler | None = None

    def push(self, pcm: PcmChunk) -> bytes:
        """The next bytes, whole samples; a change of rate ends the stretch before."""
        rest = b""
        if self._resampler is None or pcm.rate_hz != self._rate_hz:
            rest = self.flush()
            self._rate_hz = pcm.rate_hz
            self._resampler = Resampler(pcm.rate_hz, rate_of(self._encoding))
        return rest + self._encoded(self._resampler.push(pcm.samples))

    def flush(self) -> bytes:
        """What the filter held back."""
        return self._encoded(self._resampler.flush()) if self._resampler else b""

    def _encoded(self, samples: Samples) -> bytes:
        if self._encoding == PCM:
            return samples.astype("<i2").tobytes()
        return g711.encode(samples, self._encoding)


class AppendedSound:
    """The microphone of a session whose client appends its sound.

    State: `_waiting` pieces as they came; `_odd` half a sample; `_ready` samples at 16 kHz short of a frame; `_given`
    samples so far; `_settling` how many wait until all was heard.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[bytes, str]] = deque()
        self._waiting_bytes = 0
        self._odd = b""
        self._encoding = ""
        self._resampler: Resampler | None = None
        self._ready = silence(0)
        self._given = 0
        self._settling = 0
        self._came = asyncio.Event()
        self._all_heard = asyncio.Event()
        self._closed = False

    def append(self, payload: bytes, encoding: str) -> bool:
        """Take a piece; False, and it is refused whole, while more waits than may."""
        if self._waiting_bytes + len(payload) > MAX_WAITING_BYTES:
            return False
        for at in range(0, len(payload), PIECE_BYTES):
            self._waiting.append((payload[at : at + PIECE_BYTES], encoding))
        self._waiting_bytes += len(payload)
        self._came.set()
        return True

    async def frames(self) -> AsyncIterator[MicrophoneFrame]:
        """Frames of 20 ms as soon as they are there, until closed; before a `settled` returns also a shorter one."""
        try:
            while not self._closed:
                for n, samples in enumerate(self._take_frames()):
                    yield MicrophoneFrame(samples, self._given)
                    self._given += len(samples)
                    if n % FRAMES_IN_A_ROW == 0:
                        await asyncio.sleep(0)
                if self._waiting:
                    continue
                if self._settling and not len(self._ready):
                    self._all_heard.set()
                self._came.clear()
                await (asyncio.sleep(0) if self._settling else self._came.wait())
        finally:
            self.close()

    async def settled(self) -> None:
        """Return once everything that was appended was heard."""
        if self._closed:
            return
        self._settling += 1
        self._all_heard.clear()
        self._came.set()
        try:
            await self._all_heard.wait()
        finally:
            self._settling -= 1

    def close(self) -> None:
        """No more sound: the frames end."""
        self._closed = True
        self._came.set()
        self._all_heard.set()

    def _take_frames(self) -> list[Samples]:
        if self._waiting:
            payload, encoding = self._waiting.popleft()
            self._waiting_bytes -= len(payload)
            self._ready = np.concatenate([self._ready, self._converted(payload, encoding)])
        end_now = bool(self._settling) and not self._waiting
        if end_now and self._resampler:
            self._ready = np.concatenate([self._ready, self._resampler.flush()])
        whole = len(self._ready) // FRAME_SAMPLES * FRAME_SAMPLES
        frames = [self._ready[at : at + FRAME_SAMPLES] for at in range(0, whole, FRAME_SAMPLES)]
        self._ready = self._ready[whole:]
        if end_now and len(self._ready):
            frames.append(self._ready)
            self._ready = silence(0)
        return frames

    def _converted(self, payload: bytes, encoding: str) -> Samples:
        if self._resampler is None or encoding != self._encoding:
            before = self._resampler.flush() if self._resampler else silence(0)
            self._encoding, self._odd = encoding, b""
            self._resampler = Resampler(rate_of(encoding), MODEL_RATE_HZ)
        else:
            before = silence(0)
        return np.concatenate([before, self._resampler.push(self._decoded(payload))])

    def _decoded(self, payload: bytes) -> Samples:
        if self._encoding != PCM:
            return _samples(payload, self._encoding)
        whole = self._odd + payload
        self._odd = whole[len(whole) // 2 * 2 :]
        return _samples(whole, PCM)
