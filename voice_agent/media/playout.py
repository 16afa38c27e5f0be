"""What the user is to hear, and what left for the user already.

`PlayoutBuffer` is bookkeeping without clock or I/O: replies in order, resampled to 48 kHz as they are needed, cut into
20 ms frames, held, flushed, counted. It knows no pace, no Opus, and not what a reply says. Samples of a reply are
counted at the rate of its own chunks; a sample counts as played once it is in a frame that was given out.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass

import numpy as np

from voice_agent.audio import FRAME_MS, OPUS_RATE_HZ, PcmChunk, Samples, silence
from voice_agent.media.resample import Resampler

FRAME_SAMPLES = OPUS_RATE_HZ * FRAME_MS // 1000
FADE_SAMPLES = OPUS_RATE_HZ * 5 // 1000  # short enough to feel instant, long enough not to click
PIECE_MS = 60  # resampled at once: half the time for each frame that single frames take
REMEMBERED_REPLIES = 64  # old replies whose played samples can still be asked for
_FADE_OUT = np.linspace(1.0, 0.0, FADE_SAMPLES, dtype=np.float32)
_FADE_IN = _FADE_OUT[::-1]


@dataclass(frozen=True, slots=True)
class PlayedFrame:
    """One frame [960] and what it meant: whose sound is in it, which replies began and ended with it."""

    samples: Samples
    reply_id: str | None = None
    started: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    underrun: str | None = None


class _Stretch:
    """A run of one reply's chunks at one rate.

    `_waiting` is what is not yet resampled, `_ready` what is; `_written` counts input, `_emitted` output samples.
    """

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self.closed = False
        self._resampler = Resampler(rate_hz, OPUS_RATE_HZ)
        self._waiting: deque[Samples] = deque()
        self._ready = silence(0)
        self._written = 0
        self._emitted = 0
        self._flushed = False

    def add(self, samples: Samples) -> None:
        self._waiting.append(samples)
        self._written += len(samples)

    def peek(self, count: int) -> Samples:
        """Up to `count` samples at 48 kHz without consuming them."""
        while len(self._ready) < count and self._waiting:
            self._resample(count - len(self._ready))
        if not self._waiting and self.closed and not self._flushed:
            self._flushed = True
            self._ready = np.concatenate([self._ready, self._resampler.flush()])
        return self._ready[:count]

    def take(self, count: int) -> Samples:
        taken = self.peek(count)
        self._ready = self._ready[len(taken) :]
        self._emitted += len(taken)
        return taken

    @property
    def over(self) -> bool:
        return self._flushed and len(self._ready) == 0

    @property
    def played(self) -> int:
        """Input samples that went out; resampled ones lie exactly at their input's time."""
        return (
            self._written if self.over else min(self._written, self._emitted * self.rate_hz // OPUS_RATE_HZ)
        )

    @property
    def queued_ms(self) -> float:
        return 1000 * (self._written - self.played) / self.rate_hz

    def _resample(self, outputs: int) -> None:
        """Push a little more of the first chunk than `outputs` need, so that no frame pays for a whole chunk."""
        chunk = self._waiting.popleft()
        need = max(self._resampler.input_for(outputs), PIECE_MS * self.rate_hz // 1000)
        if need < len(chunk):
            self._waiting.appendleft(chunk[need:])
        self._ready = np.concatenate([self._ready, self._resampler.push(chunk[:need])])


class _Reply:
    """A reply's stretches in order; `_done` are samples of stretches that are over."""

    def __init__(self) -> None:
        self.finished = False
        self.refused = False
        self.started = False
        self.dry = False
        self._stretches: deque[_Stretch] = deque()
        self._done = 0

    def add(self, chunk: PcmChunk) -> None:
        last = self._stretches[-1] if self._stretches else None
        if last is None or last.rate_hz != chunk.rate_hz:
            new = _Stretch(chunk.rate_hz)  # raises for an absurd rate, before anything is changed
            if last is not None:
                last.closed = True
            self._stretches.append(new)
            last = new
        last.add(chunk.samples)

    def finish(self) -> None:
        self.finished = True
        if self._stretches:
            self._stretches[-1].closed = True

    def refuse(self) -> None:
        self._done = self.played
        self._stretches.clear()
        self.refused = True

    def peek(self, count: int) -> Samples:
        return self._stretches[0].peek(count) if self._stretches else silence(0)

    def take(self, count: int) -> Samples:
        """Up to `count` samples, across stretches; fewer mean that no more are there now."""
        taken = [silence(0)]
        while self._stretches and count > 0:
            part = self._stretches[0].take(count)
            taken.append(part)
            count -= len(part)
            if not self._stretches[0].over:
                break
            self._done += self._stretches.popleft().played
        return np.concatenate(taken)

    @property
    def over(self) -> bool:
        return self.refused or (self.finished and not self._stretches)

    @property
    def played(self) -> int:
        return self._done + sum(stretch.played for stretch in self._stretches)

    @property
    def queued_ms(self) -> float:
        return sum(stretch.queued_ms for stretch in self._stretches)


class PlayoutBuffer:
    """The queue of replies and how far each was played; pure.

    `_queue` holds the replies not yet over, in the order of their first chunk; a reply in front that is not finished
    keeps later ones waiting. `_tail` is a fade that is owed to the ear after a cut; `_fade_in` that sound resumes
    after one; `_last` the last sample that left.
    """

    def __init__(self) -> None:
        self.underruns = 0
        self._replies: OrderedDict[str, _Reply] = OrderedDict()
        self._queue: deque[str] = deque()
        self._current: str | None = None  # the reply whose sound left last
        self._held = False
        self._tail: Samples | None = None
        self._fade_in = False
        self._last = 0

    def write(self, reply_id: str, chunk: PcmChunk) -> bool:
        """Queue sound; False if the reply was flushed or is finished. Raises ValueError for an absurd rate."""
        reply = self._reply(reply_id)
        if reply.over or reply.finished:
            return False
        if len(chunk.samples):
            reply.add(chunk)
        return True

    def finish(self, reply_id: str) -> None:
        """No more of this reply comes; one that never had sound is over at once."""
        reply = self._reply(reply_id)
        reply.finish()
        if reply.over and reply_id in self._queue:
            self._queue.remove(reply_id)

    def hold(self) -> None:
        """Give silence from the next frame on, after a short fade that does not count as played."""
        if not self._held:
            self._held = True
            self._owe_tail()

    def resume(self) -> None:
        """Go on at the held sample."""
        self._fade_in = self._fade_in or self._held
        self._held = False

    def flush(self) -> int:
        """Drop and refuse every reply that is queued; returns the played samples of the one at the ear."""
        current = self._queue[0] if self._queue else self._current
        played = self.played_samples(current) if current is not None else 0
        if not self._held:
            self._owe_tail()
        self._held = self._fade_in = False
        for reply_id in self._queue:
            self._replies[reply_id].refuse()
        self._queue.clear()
        return played

    def refuse(self, reply_id: str) -> None:
        """Refuse a reply by name, before its first chunk too."""
        self._reply(reply_id).refuse()
        if reply_id in self._queue:
            self._queue.remove(reply_id)

    def played_samples(self, reply_id: str) -> int:
        """Samples of the reply that went out, at its chunks' rate; 0 for one that is not known."""
        reply = self._replies.get(reply_id)
        return reply.played if reply else 0

    def is_over(self, reply_id: str) -> bool:
        """Whether nothing of the reply can be played any more: played to its end, or flushed."""
        reply = self._replies.get(reply_id)
        return reply is not None and reply.over

    @property
    def queued_ms(self) -> float:
        """Sound that waits, of all replies."""
        return sum(self._replies[reply_id].queued_ms for reply_id in self._queue)

    def next_frame(self) -> PlayedFrame:
        """The next 20 ms for the wire; silence when there is nothing or the playout is held."""
        out = silence(FRAME_SAMPLES)
        started: list[str] = []
        ended: list[str] = []
        underrun = None if self._held else self._fill(out, started, ended)
        if self._tail is not None:
            mixed = out[:FADE_SAMPLES].astype(np.int32) + self._tail
            out[:FADE_SAMPLES] = np.clip(mixed, -32768, 32767)
            self._tail = None
        self._last = int(out[-1])
        reply_id = self._current if self._queue or ended else None
        return PlayedFrame(out, reply_id, tuple(started), tuple(ended), underrun)

    def _fill(self, out: Samples, started: list[str], ended: list[str]) -> str | None:
        """Put sound into `out`; returns the reply that ran dry just now, if one did."""
        at = 0
        while self._queue and at < len(out):
            reply_id = self._queue[0]
            reply = self._replies[reply_id]
            part = reply.take(len(out) - at)
            if len(part):
                self._begin(reply_id, reply, started)
                out[at : at + len(part)] = self._faded_in(part)
                at += len(part)
            if not reply.over:
                return self._ran_dry(reply_id, reply, out, at) if at < len(out) else None
            self._queue.popleft()
            ended.append(reply_id)
        return None

    def _begin(self, reply_id: str, reply: _Reply, started: list[str]) -> None:
        self._current = reply_id
        reply.dry = False
        if not reply.started:
            reply.started = True
            started.append(reply_id)

    def _ran_dry(self, reply_id: str, reply: _Reply, out: Samples, at: int) -> str | None:
        """Let the last sample decay where sound is missing; counts once for each time a begun reply runs dry."""
        if not reply.started or reply.dry:
            return None
        reply.dry = True
        self._fade_in = True
        self.underruns += 1
        last = int(out[at - 1]) if at else self._last
        decay = (last * _FADE_OUT[: len(out) - at]).astype(np.int16)
        out[at : at + len(decay)] = decay
        return reply_id

    def _faded_in(self, part: Samples) -> Samples:
        if not self._fade_in:
            return part
        self._fade_in = False
        part = part.copy()
        count = min(FADE_SAMPLES, len(part))
        part[:count] = part[:count] * _FADE_IN[:count]
        return part

    def _owe_tail(self) -> None:
        """Keep a fade of what would have come next, so that the cut does not click."""
        coming = self._replies[self._queue[0]].peek(FADE_SAMPLES) if self._queue else silence(0)
        if self._last == 0 and self._current not in self._queue:
            return
        last = int(coming[-1]) if len(coming) else self._last
        padded = np.full(FADE_SAMPLES, last, dtype=np.int16)
        padded[: len(coming)] = coming
        self._tail = (padded * _FADE_OUT).astype(np.int16)

    def _reply(self, reply_id: str) -> _Reply:
        reply = self._replies.get(reply_id)
        if reply is None:
            reply = self._replies[reply_id] = _Reply()
            self._queue.append(reply_id)
            self._forget_old()
        return reply

    def _forget_old(self) -> None:
        over = [reply_id for reply_id, reply in self._replies.items() if reply.over]
        for reply_id in over[: max(0, len(self._replies) - REMEMBERED_REPLIES)]:
            del self._replies[reply_id]
