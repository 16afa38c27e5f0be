"""Connections as uvicorn speaks them, where it answers by itself: refusals in OpenAI's words, and no lost session.

A request that is none, and a handshake that is none, get the error body that routes give. Text of a WebSocket is
handed on as bytes: what is no UTF-8 then costs its client an error event. RFC 6455 8.1 would have the connection
fail (1007), and with it a conversation over one bad character. Knows no routes.
"""

import asyncio
import sys
from http import HTTPStatus
from typing import Any

from starlette.responses import Response
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame
from websockets.http11 import Response as HandshakeAnswer

from voice_agent.api.http_errors import CODES, error_response, new_request_id

LINGER_S = 1.0  # for a refused client to see its answer


def _answer(status: int, message: str) -> Response:
    headers = {"connection": "close", "x-request-id": new_request_id()}
    return error_response(status, message, CODES.get(status, "invalid_request"), headers=headers)


def _refusal(status: int, message: str) -> bytes:
    """A whole answer with an error body, after which the connection is over."""
    answer = _answer(status, message)
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
    lines += [name + b": " + value for name, value in answer.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(answer.body)])


class _Leaving(asyncio.Protocol):
    """A refused connection from its answer to its end: what its client still sends is read and dropped.

    A socket that is closed over unread bytes is reset, and the client loses the answer (RFC 9112 9.6).
    """

    def __init__(self, refused: asyncio.Protocol, transport: asyncio.Transport) -> None:
        self._refused = refused
        self._latest: asyncio.TimerHandle | None = None
        if not transport.can_write_eof():  # TLS ends both ways at once
            transport.close()
            return
        transport.set_protocol(self)
        transport.write_eof()
        self._latest = asyncio.get_running_loop().call_later(LINGER_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Its first owner has it in its books."""
        if self._latest:
            self._latest.cancel()
        self._refused.connection_lost(exc)


def _refuse_request(connection: Any, message: str) -> None:
    """Take the place of uvicorn's own, which calls it with the parser's error in hand."""
    error = sys.exception()
    status = getattr(error, "error_status_hint", 400)  # h11 tells headers that are too long apart
    answering = connection.cycle and connection.cycle.response_started
    if not answering or connection.cycle.response_complete:
        connection.transport.write(_refusal(status, f"{message.rstrip('.')}: {error}."))
    _Leaving(connection, connection.transport)


# the parser is httptools where that is installed, else h11; both refuse by this name
HttpConnection: Any = type("HttpConnection", (AutoHTTPProtocol,), {"send_400_response": _refuse_request})


class SocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket from its handshake on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._leaving: _Leaving | None = None
        plain = self.conn.reject

        def reject(status: int, text: str) -> HandshakeAnswer:
            """In place of the library's own, whose answer is plain text."""
            if status == HTTPStatus.FORBIDDEN and not text:  # what the router says where it has no route
                status, text = HTTPStatus.NOT_FOUND, "There is no WebSocket at this path."
            message = text.partition("\n")[0]
            answer = plain(status, bytes(_answer(status, message).body).decode())
            del answer.headers["Content-Type"]
            answer.headers["Content-Type"] = "application/json"
            return answer

        self.conn.reject = reject

    def data_received(self, data: bytes) -> None:
        """Also end a connection whose handshake cannot be read, which the library would leave open for good."""
        if self._leaving:  # uvicorn hands the transport to us only after the first bytes
            return
        super().data_received(data)
        unread = self.conn.handshake_exc
        if isinstance(unread, InvalidHandshake) and not self.handshake_initiated:
            self.close_sent = self.handshake_complete = True
            reason = unread.__cause__ or unread
            self.transport.write(_refusal(400, f"The WebSocket's handshake cannot be read: {reason}."))
            self._leaving = _Leaving(self, self.transport)

    def handle_text(self, event: Frame) -> None:
        """Text, too, is decoded where the events are read."""
        self.handle_bytes(event)

    async def send(self, message: Any) -> None:
        """Count a handshake that was refused as over, so that uvicorn logs no error for it."""
        await super().send(message)
        if self.initial_response and self.close_sent:
            self.handshake_complete = True
