"""Answers that come in pieces, and work that ends when nobody waits for it any more.

The status goes out with the first piece: what fails before it is a proper error. When the client hangs up the source
is closed at once, which cancels all that stands behind it. Server-sent events: WHATWG HTML, "Server-sent events".
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from voice_agent.api.http_errors import HUNG_UP
from voice_agent.errors import EngineError, VoiceAgentError

logger = logging.getLogger(__name__)

T = TypeVar("T")

EVENT_STREAM = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


class HungUp(Exception):
    """The client is gone; there is nobody to answer."""


class Streamed(Response):
    """Sends what a generator yields, as it comes; the connection breaks off if the generator fails half-way."""

    def __init__(self, pieces: AsyncGenerator[bytes], media_type: str) -> None:
        self._pieces = pieces
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all pieces, or end the source when the client hangs up."""
        try:
            await until_hung_up(receive, self._send_all(send))
        except HungUp:
            logger.info("a client hung up before its answer was whole")

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._pieces) as pieces:
            first = await anext(pieces, b"")
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": first, "more_body": True})
            try:
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    # sending waits for nothing once the client is gone: let that be noticed
                    await asyncio.sleep(0)
            except VoiceAgentError as error:
                kept_back = error.kept_back() if isinstance(error, EngineError) else ""
                logger.warning("a streamed answer broke off: %s%s", error.code, kept_back)
                return  # without an end: the client sees that the body is not whole
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def until_hung_up(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do the work; cancel it and raise HungUp when the client goes first. The body must have been read."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_hang_up(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HungUp
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def answered(request: Request, work: Coroutine[Any, Any, Response]) -> Response:
    """The response that the work makes; an empty one if the client hung up meanwhile."""
    try:
        return await until_hung_up(request.receive, work)
    except HungUp:
        return Response(status_code=HUNG_UP)


def sse(data: dict[str, Any]) -> bytes:
    """One event."""
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def sse_error(error: VoiceAgentError) -> bytes:
    """A failure in the middle of a stream: stock clients raise on a top-level `error`."""
    message = str(error)
    if isinstance(error, EngineError):
        logger.warning("a stream of events ended in an error: %s%s", error.code, error.kept_back())
        message = error.notice()
    body = {"message": message, "type": "server_error", "param": None, "code": error.code}
    return sse({"error": body})


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
