"""A lean HTTP/1.1 client for answers that stream: one request at a time per connection, each read told as it comes.

On the standard library alone, so that it runs beside any server, and cheap: some 100 answers at once on one core.
"""

import asyncio
from collections.abc import Callable
from urllib.parse import urlsplit

from voice_agent.bench.http_answer import AnswerReader, BadAnswer
from voice_agent.errors import ConfigError


class Connection(asyncio.Protocol):
    """A TCP connection to a server; `ask` tells pieces of a good answer (status 200) with their instants."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._transport: asyncio.Transport | None = None
        self._answer = AnswerReader()
        self._tell: Callable[[bytes, int], None] | None = None
        self._over: asyncio.Future[None] | None = None
        self.idle_since_ns = now_ns()
        self.sent_ns = 0
        self.usable = False

    async def ask(self, request: bytes, tell: Callable[[bytes, int], None]) -> AnswerReader:
        """Send at `sent_ns`, the instant before its first byte; returns the whole answer's reader. Raises BadAnswer.

        Cancellation closes the connection: the server sees its client hang up.
        """
        if self._transport is None or not self.usable:
            raise BadAnswer("the connection is closed")
        self._answer, self._tell = AnswerReader(), tell
        self._over = asyncio.get_running_loop().create_future()
        self.usable = False
        self.sent_ns = self._now_ns()
        self._transport.write(request)
        try:
            await self._over
        except BaseException:
            self._transport.abort()
            raise
        self.usable = self._answer.keeps_open
        self.idle_since_ns = self._now_ns()
        if not self.usable:
            self.close()
        return self._answer

    def close(self) -> None:
        """Hang up."""
        self.usable = False
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready for a request."""
        if isinstance(transport, asyncio.Transport):
            self._transport, self.usable = transport, True

    def data_received(self, data: bytes) -> None:
        """Stamp it, tell it."""
        at_ns = self._now_ns()
        try:
            pieces = self._answer.feed(data)
        except BadAnswer as error:
            self._fail(error)
            return
        if self._tell is not None and self._answer.status == 200:
            for piece in pieces:
                self._tell(piece, at_ns)
        if self._answer.done and self._over is not None and not self._over.done():
            self._over.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The answer ends here, or broke off."""
        self.usable = False
        if self._over is None or self._over.done():
            return
        try:
            self._answer.end()
            self._over.set_result(None)
        except BadAnswer as error:
            self._fail(error)

    def _fail(self, error: BadAnswer) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)
        self.close()


class ConnectionPool:
    """Connections to one server, opened before they are timed and used again while young."""

    MOST_IDLE_NS = 2_000_000_000  # servers close idle connections after 5 s or so: never race them

    def __init__(self, url: str, now_ns: Callable[[], int]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url} is no http:// or https:// address of a server")
        self.host = parts.netloc
        self.path = parts.path.rstrip("/")
        self._address = (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
        self._tls = True if parts.scheme == "https" else None
        self._now_ns = now_ns
        self._idle: list[Connection] = []

    async def take(self) -> Connection:
        """An open connection; raises OSError if the server cannot be reached."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and self._now_ns() - connection.idle_since_ns < self.MOST_IDLE_NS:
                return connection
            connection.close()
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(
            lambda: Connection(self._now_ns), *self._address, ssl=self._tls
        )
        return made

    def give(self, connection: Connection) -> None:
        """Back after its answer."""
        if connection.usable:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Hang up all that are idle."""
        while self._idle:
            self._idle.pop().close()


def post(pool: ConnectionPool, path: str, body: bytes, api_key: str = "") -> bytes:
    """A JSON POST as it goes over the wire."""
    key = f"authorization: Bearer {api_key}\r\n" if api_key else ""
    head = (
        f"POST {pool.path}{path} HTTP/1.1\r\nhost: {pool.host}\r\ncontent-type: application/json\r\n"
        f"accept: */*\r\n{key}content-length: {len(body)}\r\n\r\n"
    )
    return head.encode("latin-1") + body
