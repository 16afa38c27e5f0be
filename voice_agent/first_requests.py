"""The server's own first requests, made before it says that it is ready, so that no caller's is the first.

What is imported, started or filled once and for all (threads, coders, the streams to an engine, a connection's
certificate) is there then. Speech is asked for through its route, in both chunking modes. Text is not asked for: the
engine has read its instructions, which a strange conversation would push out, and a Thinker behind a URL may cost its
owner money. ASGI 3.0, "HTTP Connection Scope".
"""

import asyncio
import importlib
import json
import logging
from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from voice_agent.api.http_errors import exception_handlers
from voice_agent.api.speech import FORMATS
from voice_agent.audio import WIRE_RATE_HZ, silence
from voice_agent.media.containers import Encoder
from voice_agent.media.peer import Peer

logger = logging.getLogger(__name__)

TEXT = "Hello."
PATIENCE_S = 20.0
FRAMES = 40  # for voices that end nothing by themselves
HANDSHAKE = "cryptography.hazmat.primitives.serialization"  # pyOpenSSL imports it in the first one


async def rehearse(routes: Sequence[BaseRoute], *, forced_lengths: bool) -> None:
    """Make them one after the other; one that is refused is told in the log.

    What fails here fails for callers too, and says so there: the server starts all the same.
    """
    app = Starlette(routes=routes, exception_handlers=exception_handlers())
    more = {"max_new_tokens": FRAMES} if forced_lengths else {}
    try:
        async with asyncio.timeout(PATIENCE_S):
            importlib.import_module(HANDSHAKE)
            await Peer().close()
            await asyncio.to_thread(_every_file)
            for latency_first in (True, False):
                await _speak(app, latency_first=latency_first, **more)
    except TimeoutError:
        logger.warning("the server's own first requests took more than %g s", PATIENCE_S)


async def _speak(app: ASGIApp, **more: Any) -> None:
    body = {"model": "tts-1", "input": TEXT, "response_format": "pcm", **more}
    status = await posted(app, "/v1/audio/speech", json.dumps(body).encode())
    if status != 200:
        logger.warning("the server's own first request was answered with %d", status)


def _every_file() -> None:
    for audio_format, _ in FORMATS.values():
        encoder = Encoder(audio_format, WIRE_RATE_HZ)
        encoder.push(silence(WIRE_RATE_HZ // 10))
        encoder.finish()


async def posted(app: ASGIApp, path: str, body: bytes) -> int:
    """The status of one POST; the answer is taken to its end and thrown away."""
    asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()  # nobody hangs up: after the body nothing comes
    asked.put_nowait({"type": "http.request", "body": body, "more_body": False})
    status = 0

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    headers = {
        b"host": b"localhost",
        b"content-type": b"application/json",
        b"content-length": b"%d" % len(body),
    }
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": list(headers.items()),
        "client": ("127.0.0.1", 0),
        "server": ("localhost", None),
    }
    await app(scope, asked.get, send)
    return status
