"""Requests that the server's stop cuts off, at the edge: what their clients get, and when a cancellation passes on."""

import asyncio
import json
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voice_agent.api.stopping import EndsWithServer
from voice_agent.api.streaming import EVENT_STREAM

HEAD = "http.response.start"


def app(content_type: str) -> ASGIApp:
    """Begins an answer of a type, if one is given, and never ends it."""

    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        if content_type:
            await send({"type": HEAD, "status": 200, "headers": [(b"content-type", content_type.encode())]})
            await send({"type": "http.response.body", "body": b"some", "more_body": True})
        await asyncio.Event().wait()

    return never


async def cut_off(inner: ASGIApp, kind: str = "http", *, stopping: bool = True) -> list[Message]:
    sent = list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {}

    scope: dict[str, Any] = {"type": kind}
    running = asyncio.ensure_future(EndsWithServer(inner, lambda: stopping)(scope, receive, send))
    await asyncio.sleep(0.01)
    running.cancel()
    await running
    return sent


async def test_an_answer_that_had_not_begun_is_an_error_answer() -> None:
    head, body = await cut_off(app(""))
    assert head["status"] == 503 and (b"retry-after", b"2") in head["headers"]
    assert json.loads(body["body"])["error"]["code"] == "server_busy"


async def test_a_stream_of_events_ends_with_an_error_and_another_breaks_off() -> None:
    last = (await cut_off(app(EVENT_STREAM)))[-1]
    assert not last["more_body"] and b'"code":"server_busy"' in last["body"]
    assert (await cut_off(app("audio/mpeg")))[-1] == {
        "type": "http.response.body",
        "body": b"some",
        "more_body": True,
    }
    assert await cut_off(app(""), "websocket") == []


async def test_a_cancellation_that_is_no_stop_passes_on() -> None:
    with pytest.raises(asyncio.CancelledError):
        await cut_off(app(EVENT_STREAM), stopping=False)
