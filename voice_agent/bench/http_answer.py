"""An HTTP/1.1 answer read as its bytes come (RFC 9112: chunked, by length, or until the connection ends). Pure."""

MOST_HEAD_BYTES = 64 * 1024


class BadAnswer(Exception):
    """What came is not HTTP, or broke off."""


class AnswerReader:
    """Bytes of one answer in, pieces of its body out."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.done = False
        self._buffer = bytearray()
        self._left: int | None = None  # bytes of the body or of its chunk; None: until the end
        self._chunked = False
        self._step = self._head

    @property
    def keeps_open(self) -> bool:
        """Whether the connection may carry another request."""
        closes = self.headers.get("connection", "").lower() == "close"
        return self.done and not closes and (self._chunked or "content-length" in self.headers)

    def feed(self, data: bytes) -> list[bytes]:
        """More came; returns the body's bytes in it. Raises BadAnswer."""
        self._buffer += data
        pieces: list[bytes] = []
        while not self.done and self._step(pieces):
            pass
        return pieces

    def end(self) -> None:
        """The connection ended. Raises BadAnswer unless the answer was whole."""
        if not self.done and self.status and self._left is None and not self._chunked:
            self.done = True
        if not self.done:
            raise BadAnswer("the connection ended before the answer did")

    def _head(self, pieces: list[bytes]) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MOST_HEAD_BYTES:
                raise BadAnswer("the answer's head has no end")
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise BadAnswer("this is not HTTP/1.1")
        status = int(rest[:3])
        if 100 <= status < 200:
            return True  # an interim answer: the real one follows
        self.status = status
        self.headers = {
            name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
        }
        self._begin_body()
        return True

    def _begin_body(self) -> None:
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length")
        if self._chunked:
            self._step = self._chunk_size
            return
        self._left = None if length is None else _number(length, 10)
        self._step = self._body
        self.done = self._left == 0 or self.status in (204, 304)

    def _chunk_size(self, pieces: list[bytes]) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        self._left = _number(self._buffer[:end].split(b";")[0].decode("latin-1"), 16)
        del self._buffer[: end + 2]
        self._step = self._body if self._left else self._trailers
        return True

    def _body(self, pieces: list[bytes]) -> bool:
        if not self._buffer:
            return False
        taken = len(self._buffer) if self._left is None else min(self._left, len(self._buffer))
        pieces.append(bytes(self._buffer[:taken]))
        del self._buffer[:taken]
        if self._left is not None:
            self._left -= taken
            if self._left == 0:
                self.done = not self._chunked
                self._step = self._chunk_end
        return bool(self._buffer)

    def _chunk_end(self, pieces: list[bytes]) -> bool:
        if len(self._buffer) < 2:
            return False
        if not self._buffer.startswith(b"\r\n"):
            raise BadAnswer("a chunk does not end where it said")
        del self._buffer[:2]
        self._step = self._chunk_size
        return True

    def _trailers(self, pieces: list[bytes]) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        self.done = end == 0
        del self._buffer[: end + 2]
        return True


def _number(text: str, base: int) -> int:
    try:
        value = int(text.strip(), base)
    except ValueError:
        value = -1
    if value < 0:
        raise BadAnswer(f"{text[:20]!r} is no length")
    return value
