"""The data channel `oai-events`: text both ways, in order, bounded both ways.

The client makes the channel, possibly long after its sound arrived: what is sent before is kept and goes out first.
It knows no events; a message is text. Bytes, and messages over the size limit, are refused and told to `on_refused`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable

from aiortc import RTCDataChannel

from voice_agent.errors import RemoteProtocolError

logger = logging.getLogger(__name__)

LABEL = "oai-events"
MAX_MESSAGE_BYTES = 64 * 1024  # aiortc announces this to the peer
MAX_WAITING_MESSAGES = 512
MAX_WAITING_BYTES = 1024 * 1024
MAX_IN_FLIGHT_BYTES = 256 * 1024  # handed to SCTP and not yet acknowledged
MAX_UNREAD_MESSAGES = 256


def _ignore(_error: RemoteProtocolError) -> None:
    """Nobody asked."""


def _nothing() -> list[str]:
    """Nobody has anything to say to a new channel."""
    return []


class Channel:
    """One call's channel. `_waiting` is what could not be sent yet, `_unread` what nobody has taken yet.

    When `_waiting` is full (the peer does not read) or a message is larger than the peer takes, `send` drops the new
    message and says so; what waits already keeps its order. When `_unread` is full, the new message is refused.
    A client may make the channel anew: the later one takes over, and first hears what `on_replaced` gives.
    """

    def __init__(self) -> None:
        self.on_refused: Callable[[RemoteProtocolError], None] = _ignore
        self.on_replaced: Callable[[], list[str]] = _nothing
        self.dropped = 0
        self._channel: RTCDataChannel | None = None
        self._waiting: deque[str] = deque()
        self._waiting_bytes = 0
        self._unread: deque[str] = deque()
        self._arrived = asyncio.Event()
        self._closed = False

    @property
    def open(self) -> bool:
        """Whether a message would leave at once."""
        return self._channel is not None and self._channel.readyState == "open"

    def attach(self, channel: RTCDataChannel) -> None:
        """Use this channel from now on; one that was there before is closed."""
        if self._closed:
            return
        if self._channel is not None:
            self._channel.remove_all_listeners()
            self._channel.close()
            for text in reversed(self.on_replaced()):
                self._waiting.appendleft(text)
                self._waiting_bytes += len(text.encode())
        self._channel = channel
        channel.bufferedAmountLowThreshold = MAX_IN_FLIGHT_BYTES // 2
        channel.on("message", self._receive)
        channel.on("open", self._send_waiting)
        channel.on("bufferedamountlow", self._send_waiting)
        self._send_waiting()

    def send(self, text: str) -> bool:
        """Send in order, or keep until the channel is open; False if the message had to be dropped."""
        size = len(text.encode())
        full = len(self._waiting) >= MAX_WAITING_MESSAGES or self._waiting_bytes + size > MAX_WAITING_BYTES
        if self._closed or full:
            self._drop("the peer does not read" if full else "the call is over")
            return False
        self._waiting.append(text)
        self._waiting_bytes += size
        dropped = self.dropped
        self._send_waiting()
        return self.dropped == dropped

    async def messages(self) -> AsyncIterator[str]:
        """What the client sends, in order, until the call is over; for one consumer."""
        while True:
            while self._unread:
                yield self._unread.popleft()
            if self._closed:
                return
            self._arrived.clear()
            await self._arrived.wait()

    def close(self) -> None:
        """End `messages` after what arrived already."""
        self._closed = True
        self._waiting.clear()
        self._arrived.set()

    def _send_waiting(self) -> None:
        while self._waiting and self.open:
            assert self._channel is not None
            if self._channel.bufferedAmount > MAX_IN_FLIGHT_BYTES:
                return
            text = self._waiting.popleft()
            self._waiting_bytes -= len(text.encode())
            try:
                self._channel.send(text)
            except ValueError:  # larger than the peer said it takes (RFC 8841, max-message-size)
                self._drop("the peer takes no message of this size")

    def _receive(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            self._refuse("invalid_message", "Messages are text (JSON), not bytes.")
        elif len(message.encode(errors="surrogateescape")) > MAX_MESSAGE_BYTES:
            self._refuse("message_too_large", f"A message may have {MAX_MESSAGE_BYTES} bytes at most.")
        elif len(self._unread) >= MAX_UNREAD_MESSAGES:
            self._refuse("too_many_messages", "Messages come faster than they can be handled.")
        else:
            self._unread.append(message)
            self._arrived.set()

    def _refuse(self, code: str, text: str) -> None:
        self.on_refused(RemoteProtocolError(code, text))

    def _drop(self, why: str) -> None:
        if not self.dropped:
            logger.warning("data channel: dropping messages, %s", why)
        self.dropped += 1
