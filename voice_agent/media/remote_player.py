"""The user's ear where the player is at the client's: an `AudioOutput` that sends sound as fast as it is made.

What was played is told by nobody, so it is reckoned: a client plays what it has at once and in order, and no more
than was sent. A client that knows better says so by truncating (session). Holding changes nothing here: what was sent
plays on, and stock clients stop their player on speech_started, at the verdict.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from voice_agent.audio import PcmChunk, dbfs
from voice_agent.clock import NS_PER_S, Change, Clock

AUDIBLE_DBFS = -45.0
REMEMBERED_REPLIES = 64


@dataclass
class _Reply:
    """What was sent of a reply; `ends_ns` when it will have been played, `audible_ns` when its first sound left."""

    sent_samples: int = 0
    rate_hz: int = 1
    ends_ns: int = 0
    audible_ns: int | None = None
    finished: bool = False
    refused_at: int | None = None  # samples played by then

    def played_at(self, now_ns: int) -> int:
        if self.refused_at is not None:
            return self.refused_at
        left = max(0, self.ends_ns - now_ns) * self.rate_hz // NS_PER_S
        return max(0, self.sent_samples - left)


class RemotePlayer:
    """Sends through `send`, after `room` says that the transport has some; reckons what was played.

    `_ends_ns` is when all that was sent will have been played; `_current` the reply that was sent last.
    """

    def __init__(
        self, clock: Clock, send: Callable[[str, PcmChunk], None], room: Callable[[], Awaitable[None]]
    ) -> None:
        self.underruns = 0
        self._clock = clock
        self._send = send
        self._room = room
        self._replies: OrderedDict[str, _Reply] = OrderedDict()
        self._ends_ns = 0
        self._current = ""
        self._closed = False
        self._change = Change()

    async def write(self, reply_id: str, pcm: PcmChunk) -> None:
        """Send sound, once the transport has room; drops it if the reply was flushed or all is closed."""
        await self._room()
        reply = self._reply(reply_id)
        if self._closed or reply.refused_at is not None or not len(pcm.samples):
            return
        now_ns = self._clock.now_ns()
        if reply.sent_samples and reply.ends_ns < now_ns:
            self.underruns += 1
        self._current = reply_id
        self._ends_ns = max(self._ends_ns, now_ns) + len(pcm.samples) * NS_PER_S // pcm.rate_hz
        reply.sent_samples += len(pcm.samples)
        reply.rate_hz, reply.ends_ns = pcm.rate_hz, self._ends_ns
        if reply.audible_ns is None and dbfs(pcm.samples) >= AUDIBLE_DBFS:
            reply.audible_ns = now_ns
        self._send(reply_id, pcm)
        self._change.announce()

    def finish(self, reply_id: str) -> None:
        """Say that no more of this reply comes."""
        self._reply(reply_id).finished = True
        self._change.announce()

    def hold(self) -> None:
        """Nothing that was sent can be held."""

    def resume(self) -> None:
        """Nothing was held."""

    def flush(self) -> int:
        """Refuse the rest of all that plays; returns the played samples of the reply that was sent last."""
        now_ns = self._clock.now_ns()
        for reply in self._replies.values():
            if reply.refused_at is None and not (reply.finished and reply.ends_ns <= now_ns):
                reply.refused_at = reply.played_at(now_ns)
        self._ends_ns = now_ns
        self._change.announce()
        return self.played_samples(self._current)

    def refuse(self, reply_id: str) -> int:
        """Refuse the rest of one reply; returns its played samples."""
        reply = self._reply(reply_id)
        reply.refused_at = reply.played_at(self._clock.now_ns())
        self._change.announce()
        return reply.refused_at

    def refused(self, reply_id: str) -> bool:
        """Whether a reply's sound is not wanted any more: what waits in the transport can be dropped."""
        reply = self._replies.get(reply_id)
        return reply is not None and reply.refused_at is not None

    def played_samples(self, reply_id: str) -> int:
        """Samples of this reply that a client has played by now, at the chunks' rate."""
        reply = self._replies.get(reply_id)
        return reply.played_at(self._clock.now_ns()) if reply else 0

    async def audible(self, reply_id: str) -> int | None:
        """Wait until the reply's first audible piece was sent; returns that instant, None if none ever was."""
        reply = self._reply(reply_id)
        while reply.audible_ns is None and not self._over(reply):
            await self._change.wait(self._clock)
        return reply.audible_ns

    async def drained(self, reply_id: str) -> int:
        """Wait until a finished reply will have been played, or was flushed; returns its played samples."""
        reply = self._reply(reply_id)
        while not self._over(reply):
            await self._change.wait(self._clock, reply.ends_ns if reply.finished else None)
        return self.played_samples(reply_id)

    def close(self) -> None:
        """The client is gone: whoever waits is let go."""
        self._closed = True
        self._change.announce()

    def _over(self, reply: _Reply) -> bool:
        played = reply.finished and reply.ends_ns <= self._clock.now_ns()
        return self._closed or played or reply.refused_at is not None

    def _reply(self, reply_id: str) -> _Reply:
        if reply_id not in self._replies:
            self._replies[reply_id] = _Reply()
            if len(self._replies) > REMEMBERED_REPLIES:
                self._replies.popitem(last=False)
        return self._replies[reply_id]
