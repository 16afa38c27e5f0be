"""POST /v1/audio/speech: a text in, its sound out as it is made, as raw bytes or as events.

Any model name is taken: there is one voice model. `instructions` are taken and not followed by voices without them
(/v1/audio/voices says which follow). `seed` makes a reply come out the same again, `temperature` (0: the likeliest
sound) is for voices that sample. `max_new_tokens` cuts a speech after so many frames of 80 ms: only where the voice
is of random weights, which end nothing by themselves, so that a load can be measured; 400 elsewhere. Answers of such a
voice say `x-voice-weights: random`: nobody is to look for words in them.
"""

import base64
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from voice_agent.api.bodies import MB, read_json
from voice_agent.api.chat_schema import SpeechBody, seed_number, voice_name
from voice_agent.api.parse import validated
from voice_agent.api.streaming import EVENT_STREAM, Streamed, sse, sse_error
from voice_agent.audio import AudioFormat
from voice_agent.errors import RemoteProtocolError, VoiceAgentError
from voice_agent.requests import Answerer, Ended, SoundPiece, SpeechRequest, SpeechWish, Usage, VoiceList

MOST_BYTES = MB
FORMATS: dict[str, tuple[AudioFormat, str]] = {  # response_format to format and media type
    "mp3": ("mp3", "audio/mpeg"),
    "opus": ("opus", "audio/ogg"),
    "aac": ("aac", "audio/aac"),
    "flac": ("flac", "audio/flac"),
    "wav": ("wav", "audio/wav"),
    "pcm": ("pcm16", "audio/pcm"),
}


@dataclass(frozen=True)
class SpeechParts:
    """What the route needs."""

    answerer: Answerer
    voices: VoiceList
    forced_lengths: Callable[[], bool] = lambda: False  # whether the voice is of random weights


def create_speech_routes(parts: SpeechParts) -> list[BaseRoute]:
    """The route."""

    async def speak(request: Request) -> Response:
        body = validated(SpeechBody, await read_json(request, MOST_BYTES))
        audio_format, media_type = FORMATS[body.response_format or "mp3"]
        wish = SpeechWish(
            voice=parts.voices.named(voice_name(body.voice), "voice"),
            audio_format=audio_format,
            latency_first=body.latency_first,
            streamed=True,
            speed=1.0 if body.speed is None else body.speed,
            seed=seed_number(body.seed),
            temperature=body.temperature,
            instructions=body.instructions or "",
            most_frames=_frames(body, parts.forced_lengths()),
        )
        sound = parts.answerer.say(SpeechRequest(body.input, wish))
        if body.stream_format == "sse":
            answer = Streamed(_events(sound), EVENT_STREAM)
        else:
            answer = Streamed(_bytes(sound), media_type)
        if parts.forced_lengths():
            answer.headers["x-voice-weights"] = "random"
        return answer

    return [Route("/v1/audio/speech", speak, methods=["POST"])]


def _frames(body: SpeechBody, allowed: bool) -> int:
    if body.max_new_tokens is not None and not allowed:
        message = "'max_new_tokens' is for voices of random weights; this voice ends by itself: leave it out."
        raise RemoteProtocolError("unsupported_value", message, "max_new_tokens")
    return body.max_new_tokens or 0


async def _bytes(sound: AsyncGenerator[SoundPiece | Ended]) -> AsyncGenerator[bytes]:
    async with aclosing(sound) as pieces:
        async for piece in pieces:
            if isinstance(piece, SoundPiece):
                yield piece.data


async def _events(sound: AsyncGenerator[SoundPiece | Ended]) -> AsyncGenerator[bytes]:
    begun = False
    async with aclosing(sound) as pieces:
        try:
            async for piece in pieces:
                begun = True
                match piece:
                    case SoundPiece(data=data):
                        yield sse({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()})
                    case Ended(usage=usage):
                        yield sse({"type": "speech.audio.done", "usage": _usage(usage)})
        except VoiceAgentError as error:
            if not begun:
                raise
            yield sse_error(error)


def _usage(usage: Usage) -> dict[str, int]:
    """The text is not read by a model that counts tokens: only the sound counts."""
    return {"input_tokens": 0, "output_tokens": usage.audio_out, "total_tokens": usage.audio_out}
