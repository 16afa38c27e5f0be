"""A WebSocket line that outlives its socket, so that a client that lost its connection comes back to the same call.

The client asks for it (`?resumable=true`) and finds a token in session.created. It comes back with that token and the
`event_id` of the last event it got (`?resume=TOKEN&after=EVENT_ID`). `session.resumed` comes first and says how many of
the client's own events were taken, so that it sends the others again; then every later event follows, in order and
once. Whoever hangs up (close code 1000) is gone at once. Knows no session and no HTTP.
"""

import hashlib
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Generic, Protocol, TypeVar

from voice_agent.clock import NS_PER_S, Change, Clock, until_first
from voice_agent.errors import RemoteProtocolError

KEPT_CHARS = 16 * 1024 * 1024  # of frames: four minutes of sound
RESUMED_MARK = "~"  # between the cursor that was given and a number, in the id of session.resumed

Json = dict[str, Any]
C = TypeVar("C")


class Socket(Protocol):
    """A connected socket."""

    async def send(self, text: str) -> None:
        """Send in order; waits while the client does not read."""
        ...

    def messages(self) -> AsyncIterator[str]:
        """Messages in order; ends when the connection does."""
        ...

    @property
    def hung_up(self) -> bool:
        """Whether the client ended the connection on purpose."""
        ...


class KeptChannel:
    """A channel of text over one socket after another; implements switchboard.TextChannel.

    State: `_frames` what was sent, `_first` the number of the oldest that is kept, `_taken` the number of the next one
    for the present socket; `_inbox` at most one message that nobody took yet, `_received` how many there were;
    `_lost_ns` since when there is no socket. When more than KEPT_CHARS wait for a client that is gone, it is over.
    """

    def __init__(self, clock: Clock, window_s: float) -> None:
        self.token = secrets.token_hex(24)
        self.over = False
        self._clock = clock
        self._window_s = window_s
        self._frames: deque[str] = deque()
        self._kept_chars = 0
        self._first = 0
        self._taken = 0
        self._socket: Socket | None = None
        self._inbox: deque[str] = deque()
        self._received = 0
        self._resumed = 0
        self._lost_ns = clock.now_ns()
        self._change = Change()

    @property
    def greeting(self) -> Json:
        """What session.created says besides, to the client that asked for this."""
        return {"resume": {"token": self.token, "window_s": self._window_s}}

    async def send(self, text: str) -> None:
        """Keep a frame, and wait until a socket took it if there is one."""
        self._keep(text)
        end = self._end
        self._change.announce()
        while self._socket is not None and self._taken < end and not self.over:
            await self._change.wait(self._clock)

    async def messages(self) -> AsyncIterator[str]:
        """What the client sends; ends when it hung up, or did not come back in time."""
        try:
            while (text := await self._next()) is not None:
                yield text
        finally:
            self._end_all()

    def check(self, after: str) -> None:
        """Raise RemoteProtocolError if a client cannot go on behind this event."""
        self._place_behind(after)

    async def carry(self, socket: Socket, after: str | None = None) -> None:
        """Carry over this socket until its connection ends or another takes its place; `after` as in `check`."""
        self._socket = socket
        try:
            if after is not None:
                self._taken = self._place_behind(after)
                await socket.send(self._resumed_frame(after))
            self._change.announce()
            await until_first(self._read(socket), self._write(socket), self._replaced(socket))
        finally:
            if self._socket is socket:
                self._socket, self._lost_ns = None, self._clock.now_ns()
                self.over = self.over or socket.hung_up
            self._change.announce()

    # --- inside -------------------------------------------------------------------------------------------------

    @property
    def _end(self) -> int:
        return self._first + len(self._frames)

    def _keep(self, text: str) -> None:
        self._frames.append(text)
        self._kept_chars += len(text)
        while self._kept_chars > KEPT_CHARS and len(self._frames) > 1:
            self.over = self.over or self._first >= self._taken
            self._kept_chars -= len(self._frames.popleft())
            self._first += 1

    def _place_behind(self, event_id: str) -> int:
        """The number of the frame behind an event; the id of session.resumed stands for the event it came behind."""
        start = f'{{"event_id": {json.dumps(event_id.partition(RESUMED_MARK)[0])},'
        for back, frame in enumerate(reversed(self._frames)):
            if frame.startswith(start):
                return self._end - back
        message = "No kept event has this id: give the event_id of the last event you got."
        raise RemoteProtocolError("resume_cursor_unknown", message, "after")

    def _resumed_frame(self, after: str) -> str:
        self._resumed += 1
        event_id = f"{after.partition(RESUMED_MARK)[0]}{RESUMED_MARK}{self._resumed}"
        return json.dumps({"event_id": event_id, "type": "session.resumed", "received": self._received})

    async def _next(self) -> str | None:
        while not self._inbox:
            until_ns = None if self._socket else self._lost_ns + int(self._window_s * NS_PER_S)
            if self.over or (until_ns is not None and until_ns <= self._clock.now_ns()):
                return None
            await self._change.wait(self._clock, until_ns)
        self._change.announce()
        return self._inbox.popleft()

    async def _read(self, socket: Socket) -> None:
        """What comes by a socket that was replaced is not taken: its client is told so and sends it again."""
        async for text in socket.messages():
            while self._inbox and self._socket is socket:
                await self._change.wait(self._clock)
            if self._socket is not socket:
                return
            self._inbox.append(text)
            self._received += 1
            self._change.announce()

    async def _write(self, socket: Socket) -> None:
        while self._socket is socket:
            if self._taken >= self._end:
                await self._change.wait(self._clock)
                continue
            number = max(self._taken, self._first)
            await socket.send(self._frames[number - self._first])
            if self._socket is socket:
                self._taken = number + 1
                self._change.announce()

    async def _replaced(self, socket: Socket) -> None:
        while self._socket is socket:
            await self._change.wait(self._clock)

    def _end_all(self) -> None:
        self.over = True
        self._first = self._end
        self._frames.clear()
        self._change.announce()


class Resumables(Generic[C]):
    """Calls that can be come back to, by the digests of their tokens; those that are over are forgotten."""

    def __init__(self, clock: Clock, window_s: float = 30.0) -> None:
        self._clock = clock
        self._window_s = window_s
        self._known: dict[bytes, tuple[C, KeptChannel]] = {}

    def channel(self) -> KeptChannel:
        """A channel for a call that is about to begin."""
        return KeptChannel(self._clock, self._window_s)

    def add(self, call: C, channel: KeptChannel) -> None:
        """Remember a call by its channel's token."""
        self._known = {digest: entry for digest, entry in self._known.items() if not entry[1].over}
        self._known[_digest(channel.token)] = (call, channel)

    def knows(self, token: str) -> bool:
        """Whether a call can be come back to with this token."""
        found = self._known.get(_digest(token))
        return found is not None and not found[1].over

    def find(self, token: str) -> tuple[C, KeptChannel]:
        """The call of a token; raises RemoteProtocolError if it is over, or none has it."""
        if not self.knows(token):
            message = (
                f"No call waits for this token: it ended, or its client was away for over {self._window_s:g} s. "
                "Open a new one."
            )
            raise RemoteProtocolError("resume_token_unknown", message, "resume")
        return self._known[_digest(token)]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
