"""The user's ear as an `AudioOutput`: one frame each 20 ms for as long as the session lives, silence included.

The pace is a start instant plus the frame's index on the injected clock, so it never drifts, is never overtaken, and
what a flush drops was never sent. It tells whoever waits what became of a reply. Which samples a frame holds is
`PlayoutBuffer`'s business; Opus and RTP are the peer's.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from voice_agent.audio import FRAME_MS, PcmChunk, Samples, dbfs
from voice_agent.clock import NS_PER_MS, Change, Clock
from voice_agent.lateness import Lateness
from voice_agent.media.echo import PlayedSound
from voice_agent.media.playout import REMEMBERED_REPLIES, PlayedFrame, PlayoutBuffer

MAX_QUEUED_MS = 8_000  # beyond it `write` waits: a barge-in should not have to throw much away
AUDIBLE_DBFS = -45.0
STALL_NS = 200 * NS_PER_MS  # a loop that stood longer re-anchors the pace instead of sending a burst


def _ignore(_reply_id: str) -> None:
    """A hook nobody set."""


@dataclass(slots=True)
class PlayoutHooks:
    """Called from the pacer, synchronously; they must not raise or block."""

    on_started: Callable[[str], None] = _ignore  # the first sample of the reply left
    on_underrun: Callable[[str], None] = _ignore  # the reply ran dry before it was finished


class PacedOutput:
    """The session's `AudioOutput` over a paced track: one frame each 20 ms from a start instant, never ahead of it.

    `next_frame` belongs to the peer alone. A frame that is late is given at once, so that the pace is kept; after
    a stall of over 200 ms the pace is anchored anew. Everything else may be called at any time, also after `close`.
    How late each frame was sent goes to `pace`, if one is given: a frame has been sent when the next is asked for.
    """

    def __init__(self, clock: Clock, hooks: PlayoutHooks | None = None, pace: Lateness | None = None) -> None:
        self.hooks = hooks or PlayoutHooks()
        self.sound = PlayedSound()  # what left lately, for whoever listens for its echo
        self._clock = clock
        self._pace = pace
        self._buffer = PlayoutBuffer()
        self._change = Change()
        self._writers = 0  # that wait for room, and so for the next frame
        self._closed = False
        self._start_ns: int | None = None
        self._index = 0
        self._due_ns: int | None = None  # of the frame that was given last
        self._loud: tuple[str, int] | None = None  # reply and instant of a loud frame that wants a second one
        self._audible_ns: OrderedDict[str, int] = OrderedDict()
        self._waited_for: dict[str, int] = {}  # replies somebody waits for, and how many do

    @property
    def underruns(self) -> int:
        """How often a reply ran dry before it was finished."""
        return self._buffer.underruns

    async def write(self, reply_id: str, pcm: PcmChunk) -> None:
        """Queue sound; waits while more than 8 s are queued; returns at once if the reply was flushed or all closed."""
        self._writers += 1
        try:
            while self._buffer.queued_ms > MAX_QUEUED_MS and not self._gone(reply_id):
                await self._change.wait(self._clock)
        finally:
            self._writers -= 1
        if not self._closed:
            self._buffer.write(reply_id, pcm)

    def finish(self, reply_id: str) -> None:
        """Say that no more of this reply comes."""
        self._buffer.finish(reply_id)
        self._change.announce()

    def hold(self) -> None:
        """Send silence from the next frame on and keep what is queued."""
        self._buffer.hold()

    def resume(self) -> None:
        """Go on at the held sample."""
        self._buffer.resume()

    def flush(self) -> int:
        """Drop what was not sent; returns the played samples of the reply at the ear. Whoever waits is let go."""
        played = self._buffer.flush()
        for reply_id in self._waited_for:
            if not self._buffer.is_over(reply_id):
                self._buffer.refuse(reply_id)
        self._change.announce()
        return played

    def refuse(self, reply_id: str) -> int:
        """Drop what was not sent of one reply; returns its played samples."""
        self._buffer.refuse(reply_id)
        self._change.announce()
        return self.played_samples(reply_id)

    def played_samples(self, reply_id: str) -> int:
        """Samples of this reply that left, at its chunks' rate."""
        return self._buffer.played_samples(reply_id)

    async def audible(self, reply_id: str) -> int | None:
        """Wait for two loud frames of the reply (design, section 7); returns when the first left, or None."""
        await self._wait(reply_id, lambda: reply_id in self._audible_ns or self._gone(reply_id))
        return self._audible_ns.get(reply_id)

    async def drained(self, reply_id: str) -> int:
        """Wait until a finished reply was played to its end or flushed, or all closed; returns its played samples."""
        await self._wait(reply_id, lambda: self._gone(reply_id))
        return self.played_samples(reply_id)

    def close(self) -> None:
        """Nothing will be sent any more: whoever waits is let go, and what comes is dropped."""
        self._closed = True
        self._change.announce()

    async def next_frame(self) -> tuple[int, Samples]:
        """Wait for the next frame's instant; returns its index from the start, and [960] samples."""
        now_ns = self._clock.now_ns()
        if self._pace and self._due_ns is not None:
            self._pace.note(self._due_ns, now_ns)
        due_ns = now_ns if self._start_ns is None else self._start_ns + self._index * FRAME_MS * NS_PER_MS
        if self._start_ns is None or now_ns - due_ns > STALL_NS:
            due_ns = now_ns
            self._start_ns = now_ns - self._index * FRAME_MS * NS_PER_MS
        self._due_ns = due_ns
        await self._clock.sleep_until(due_ns)
        frame = self._buffer.next_frame()
        index, self._index = self._index, self._index + 1
        self.sound.add(frame.samples, due_ns)
        self._tell(frame)
        return index, frame.samples

    def _tell(self, frame: PlayedFrame) -> None:
        for reply_id in frame.started:
            self.hooks.on_started(reply_id)
        if frame.underrun is not None:
            self.hooks.on_underrun(frame.underrun)
        audible = frame.reply_id is not None and self._listen(frame.reply_id, frame.samples)
        if audible or frame.ended or self._writers:
            self._change.announce()

    def _listen(self, reply_id: str, samples: Samples) -> bool:
        """Find the reply's first two loud frames; True with the second."""
        if reply_id in self._audible_ns:
            return False
        if dbfs(samples) < AUDIBLE_DBFS:
            self._loud = None
            return False
        if self._loud is not None and self._loud[0] == reply_id:
            self._audible_ns[reply_id] = self._loud[1]
            if len(self._audible_ns) > REMEMBERED_REPLIES:
                self._audible_ns.popitem(last=False)
            return True
        self._loud = (reply_id, self._clock.now_ns())
        return False

    async def _wait(self, reply_id: str, done: Callable[[], bool]) -> None:
        self._waited_for[reply_id] = self._waited_for.get(reply_id, 0) + 1
        try:
            while not done():
                await self._change.wait(self._clock)
        finally:
            self._waited_for[reply_id] -= 1
            if not self._waited_for[reply_id]:
                del self._waited_for[reply_id]

    def _gone(self, reply_id: str) -> bool:
        return self._closed or self._buffer.is_over(reply_id)
