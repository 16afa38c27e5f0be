"""How a request ends that the server's stop cuts off: in words where there is room for them, and without a trace.

The HTTP server cancels what outlasts the stop's patience, and would log each as a failure of the program. Knows no
route.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voice_agent.api.http_errors import error_answer
from voice_agent.api.streaming import EVENT_STREAM, sse_error
from voice_agent.errors import BusyError


class EndsWithServer:
    """ASGI middleware, the outermost: takes a cancellation for the request's end while `stopping`, and only then."""

    def __init__(self, app: ASGIApp, stopping: Callable[[], bool]) -> None:
        self._app = app
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on; see the class."""
        sent: Message | None = None  # the answer's head

        async def noted(message: Message) -> None:
            nonlocal sent
            if message["type"] == "http.response.start":
                sent = message
            if message["type"] != "lifespan.shutdown.failed" or not self._cut_off():
                await send(message)

        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:
            if not self._stopping():
                raise
            if scope["type"] == "http":
                # a client that reads no more is not waited for
                with contextlib.suppress(asyncio.CancelledError):
                    await _say_so(scope, receive, send, sent)

    def _cut_off(self) -> bool:
        """Whether what is told is the stop's own cancellation."""
        return self._stopping() and isinstance(sys.exception(), asyncio.CancelledError)


async def _say_so(scope: Scope, receive: Receive, send: Send, sent: Message | None) -> None:
    """An error answer, or an error event; other bodies just break off, which their clients see."""
    error = BusyError("The server is stopping; please try again.", retry_after_s=2)
    if sent is None:
        await error_answer(error)(scope, receive, send)
    elif (b"content-type", EVENT_STREAM.encode()) in sent["headers"]:
        await send({"type": "http.response.body", "body": sse_error(error), "more_body": False})
