"""Length-prefixed frames over a connected Unix stream socket, the same on both sides.

A frame is a little-endian uint32 length and so many bytes. The end of the stream, wherever it comes, means that the
other side is gone. It knows no message.
"""

import asyncio
import contextlib
import socket
import struct

MAX_FRAME_BYTES = 8 << 20  # 30 s of speech is under 1 MB; a long chat with tools well under 1 MB
MAX_UNSENT_BYTES = 32 << 20  # minutes of sound: a reader that far behind hangs
_LENGTH = struct.Struct("<I")


class ConnectionEnded(ConnectionError):
    """The other side is gone or sent a frame over the limit; nothing more can be exchanged."""


class ConnectionFull(ConnectionError):
    """The other side lives but does not read; the frame was not queued."""


class FrameTooLarge(ValueError):
    """A frame of ours over MAX_FRAME_BYTES; it was not sent and the connection lives on."""


def fits(frame: bytes) -> bytes:
    """The frame itself; raises FrameTooLarge."""
    if len(frame) > MAX_FRAME_BYTES:
        raise FrameTooLarge(
            f"{len(frame) / 1e6:.1f} MB, of which {MAX_FRAME_BYTES / 1e6:.1f} MB can be handed on"
        )
    return frame


class Connection:
    """Frames both ways. `receive` belongs to one task; `send` to the event loop's thread."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, sock: socket.socket) -> "Connection":
        """Take over a connected stream socket."""
        sock.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=sock))

    async def receive(self) -> bytes:
        """The next frame; raises ConnectionEnded at the end of the stream, also in mid-frame."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > MAX_FRAME_BYTES:
                raise ConnectionEnded(f"a frame of {length} bytes is over the limit")
            return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ConnectionEnded("the other side is gone") from error

    def send(self, *frames: bytes) -> None:
        """Queue frames without waiting, in one write.

        Raises FrameTooLarge, ConnectionEnded when the other side is gone, ConnectionFull when it left 32 MB unread.
        """
        for frame in frames:
            fits(frame)
        if self._writer.is_closing():
            raise ConnectionEnded("the other side is gone")
        if self._writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            raise ConnectionFull("the other side does not read")
        self._writer.write(b"".join(part for frame in frames for part in (_LENGTH.pack(len(frame)), frame)))

    async def close(self) -> None:
        """Close at once; what was not sent is lost. May be called again."""
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
