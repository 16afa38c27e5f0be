"""POST /v1/chat/completions: a conversation in text, sound and images; the answer in text and sound.

It reads the body, hands the request to an Answerer and writes its pieces out; it knows no model and no format.
"""

import asyncio
import functools
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from secrets import token_hex

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from voice_agent.api.bodies import MB, read_json
from voice_agent.api.chat_messages import chat_request, has_media
from voice_agent.api.chat_schema import ChatBody
from voice_agent.api.chat_wire import Chunks, Reply, Whole
from voice_agent.api.http_errors import error_response
from voice_agent.api.parse import validated
from voice_agent.api.spoken_replies import KEPT_S, SpokenReplies
from voice_agent.api.streaming import DONE, EVENT_STREAM, Streamed, answered, sse, sse_error
from voice_agent.errors import VoiceAgentError
from voice_agent.requests import Answerer, ChatRequest, TextPiece, VoiceList

MOST_BYTES = 50 * MB  # several sounds of 25 MB in base64 do not fit, which a clear 413 says


@dataclass(frozen=True)
class ChatParts:
    """What the route needs; `models` are the names that are served, the first being the one shown."""

    answerer: Answerer
    voices: VoiceList
    models: Sequence[str]


def create_chat_routes(parts: ChatParts) -> list[BaseRoute]:
    """The route, with the memory of what was said."""
    spoken = SpokenReplies(time.time)

    async def complete(request: Request) -> Response:
        body = validated(ChatBody, await read_json(request, MOST_BYTES))
        if body.model not in parts.models:
            message = f"The model '{body.model}' does not exist; this server has '{parts.models[0]}'."
            return error_response(404, message, "model_not_found", "model")
        read = functools.partial(chat_request, body, spoken.text, parts.voices.named)
        asked = await asyncio.to_thread(read) if has_media(body) else read()
        reply = _reply(body, asked)
        if body.stream:
            return Streamed(_streamed(parts.answerer, asked, reply, spoken), EVENT_STREAM)
        return await answered(request, _whole(parts.answerer, asked, reply, spoken))

    return [Route("/v1/chat/completions", complete, methods=["POST"])]


def _reply(body: ChatBody, asked: ChatRequest) -> Reply:
    now = int(time.time())
    return Reply(
        completion_id=f"chatcmpl-{token_hex(12)}",
        model=body.model,
        created=now,
        audio_id=f"audio_{token_hex(12)}" if asked.speech else "",
        expires_at=now + KEPT_S,
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
    )


async def _whole(answerer: Answerer, asked: ChatRequest, reply: Reply, spoken: SpokenReplies) -> Response:
    whole = Whole(reply)
    async with aclosing(answerer.answer(asked)) as pieces:
        async for piece in pieces:
            whole.add(piece)
    if reply.audio_id:
        spoken.keep(reply.audio_id, whole.text, reply.expires_at)
    return JSONResponse(whole.completion())


async def _streamed(
    answerer: Answerer, asked: ChatRequest, reply: Reply, spoken: SpokenReplies
) -> AsyncGenerator[bytes]:
    """Events; a failure before the first piece raises, a later one is told as an event."""
    chunks, begun, text = Chunks(reply), False, ""
    async with aclosing(answerer.answer(asked)) as pieces:
        try:
            async for piece in pieces:
                if not begun:
                    begun = True
                    yield sse(chunks.begin())
                if isinstance(piece, TextPiece):
                    text += piece.text
                for chunk in chunks.of(piece):
                    yield sse(chunk)
        except VoiceAgentError as error:
            if not begun:
                raise
            yield sse_error(error)
            return
    if reply.audio_id:
        spoken.keep(reply.audio_id, text, reply.expires_at)
    yield DONE
