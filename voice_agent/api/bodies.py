"""Request bodies with limits: read as they come, refused as soon as they are too large.

JSON and forms only; what is in them is told by models elsewhere. Raises what `http_errors` turns into answers.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from pydantic_core import from_json
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from voice_agent.api.parse import refuse_odd_numbers
from voice_agent.errors import RemoteProtocolError

MB = 1_000_000
MOST_DISCARDED = 100 * MB  # of a body that is refused for its length; who sends more is cut off
MOST_FIELDS = 100
MOST_FIELD_BYTES = 256 * 1024


async def read_body(request: Request, most_bytes: int) -> bytes:
    """All bytes of a body."""
    return await _limited(request, most_bytes).body()


async def read_json(request: Request, most_bytes: int) -> dict[str, Any]:
    """The JSON object of a body; refuses what Python's reader takes and JSON does not (NaN, lone surrogates)."""
    body = await read_body(request, most_bytes)
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise RemoteProtocolError("invalid_json", f"The body is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise RemoteProtocolError("invalid_json", "The body must be a JSON object.")
    try:
        refuse_odd_numbers(value)
    except RemoteProtocolError as error:
        raise RemoteProtocolError("invalid_json", "The body holds a number out of range.") from error
    return cast(dict[str, Any], value)


@asynccontextmanager
async def read_form(request: Request, most_bytes: int) -> AsyncGenerator[FormData]:
    """The fields of a multipart body; its files are gone after the block."""
    kind = request.headers.get("content-type", "")
    if not kind.startswith("multipart/form-data"):
        raise HTTPException(415, "This takes a form: send Content-Type: multipart/form-data.")
    request = _limited(request, most_bytes)
    try:
        form = await request.form(max_files=2, max_fields=MOST_FIELDS, max_part_size=MOST_FIELD_BYTES)
    except (ValueError, LookupError) as error:  # a boundary or a charset that cannot be
        raise RemoteProtocolError("invalid_form", f"The form cannot be read: {error}.") from error
    try:
        yield form
    finally:
        await form.close()


def _limited(request: Request, most_bytes: int) -> Request:
    """The request with a body that ends in 413 past its limit."""
    too_large = HTTPException(
        413, f"The body is larger than {most_bytes / MB:g} MB.", {"connection": "close"}
    )
    announced = request.headers.get("content-length", "")
    left, receive = most_bytes, request.receive
    if announced.isdecimal() and int(announced[:18]) > most_bytes:
        if request.headers.get("expect"):  # it asks before it sends
            raise too_large
        left = -1

    async def counted() -> Message:
        nonlocal left
        message = await _received(receive)
        left -= len(message.get("body", b""))
        if left < 0:
            await _discard(message, receive)
            raise too_large
        return message

    return Request(request.scope, counted, request._send)  # pyright: ignore[reportPrivateUsage]


async def _received(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message


async def _discard(message: Message, receive: Receive) -> None:
    """Take what still comes: a connection closed over unread bytes is reset, and our answer lost (RFC 9112, 9.6)."""
    left = MOST_DISCARDED
    while left > 0 and message.get("more_body"):
        message = await _received(receive)
        left -= len(message.get("body", b""))
