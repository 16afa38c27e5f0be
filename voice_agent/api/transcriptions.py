"""POST /v1/audio/transcriptions: a sound file in, its words out, whole in five forms or as events.

Any model name is taken: there is one recognizer. Parameters that it has no use for (prompt, temperature) are taken
and not used.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from voice_agent.api.bodies import MB, read_form
from voice_agent.api.streaming import EVENT_STREAM, Streamed, answered, sse, sse_error
from voice_agent.api.subtitles import srt, vtt
from voice_agent.errors import RemoteProtocolError, VoiceAgentError
from voice_agent.requests import Segment, Transcribed, Transcriber, TranscriptionRequest

MOST_FILE_BYTES = 25 * MB
MOST_BYTES = MOST_FILE_BYTES + MB
FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
GRANULARITIES = ("word", "segment")
VTT = "text/vtt; charset=utf-8"


@dataclass(frozen=True)
class _Form:
    """The fields that matter."""

    data: bytes
    language: str | None
    response_format: str
    granularities: frozenset[str]
    stream: bool

    @property
    def timed(self) -> bool:
        """Whether word times are needed: asked for, or to cut subtitles with."""
        return "word" in self.granularities or self.response_format in {"srt", "vtt"}


def create_transcription_routes(transcriber: Transcriber) -> list[BaseRoute]:
    """The route."""

    async def transcribe(request: Request) -> Response:
        async with read_form(request, MOST_BYTES) as fields:
            form = await _read(fields)
        asked = TranscriptionRequest(form.data, form.language, form.timed)
        if form.stream:
            return Streamed(_events(transcriber, asked), EVENT_STREAM)
        return await answered(request, _whole(transcriber, asked, form))

    return [Route("/v1/audio/transcriptions", transcribe, methods=["POST"])]


async def _read(fields: FormData) -> _Form:
    """The form, checked; raises RemoteProtocolError that names the field."""
    file = fields.get("file")
    if not isinstance(file, UploadFile):
        raise RemoteProtocolError("missing_required_parameter", "'file' must be a file of the form.", "file")
    if not _text(fields, "model"):
        raise RemoteProtocolError(
            "missing_required_parameter", "Missing required parameter: 'model'.", "model"
        )
    response_format = _text(fields, "response_format") or "json"
    if response_format not in FORMATS:
        raise _invalid("response_format", response_format, FORMATS)
    granularities = _granularities(fields, response_format)
    stream = _boolean(fields, "stream")
    if stream and response_format not in {"json", "text"}:
        message = f"'response_format' '{response_format}' cannot be streamed; 'json' can."
        raise RemoteProtocolError("unsupported_value", message, "response_format")
    data = await file.read(MOST_FILE_BYTES + 1)
    if len(data) > MOST_FILE_BYTES:
        raise RemoteProtocolError("invalid_value", "'file' is larger than 25 MB.", "file")
    return _Form(data, _text(fields, "language") or None, response_format, granularities, stream)


def _granularities(fields: FormData, response_format: str) -> frozenset[str]:
    name = "timestamp_granularities"
    values = [value for key in (name, f"{name}[]") for value in fields.getlist(key)]
    for value in values:
        if value not in GRANULARITIES:
            raise _invalid(name, str(value), GRANULARITIES)
    if values and response_format != "verbose_json":
        message = f"'{name}' needs 'response_format' 'verbose_json'."
        raise RemoteProtocolError("invalid_value", message, name)
    return frozenset(str(value) for value in values)


def _text(fields: FormData, name: str) -> str:
    value = fields.get(name)
    if isinstance(value, UploadFile):
        raise RemoteProtocolError("invalid_type", f"'{name}' must be text, not a file.", name)
    return value or ""


def _boolean(fields: FormData, name: str) -> bool:
    value = _text(fields, name).lower()
    if value not in {"", "true", "false"}:
        raise _invalid(name, value, ("true", "false"))
    return value == "true"


def _invalid(name: str, value: str, options: tuple[str, ...]) -> RemoteProtocolError:
    message = f"'{name}' is '{value[:64]}', but must be one of {', '.join(options)}."
    return RemoteProtocolError("invalid_value", message, name)


# --- the answer ---------------------------------------------------------------------------------------------------


async def _whole(transcriber: Transcriber, asked: TranscriptionRequest, form: _Form) -> Response:
    segments, duration_s = list[Segment](), 0.0
    async with aclosing(transcriber.transcribe(asked)) as pieces:
        async for piece in pieces:
            match piece:
                case Segment():
                    segments.append(piece)
                case Transcribed(duration_s=duration_s):
                    pass
    return _response(segments, duration_s, form)


def _response(segments: list[Segment], duration_s: float, form: _Form) -> Response:
    text = " ".join(segment.text for segment in segments)
    match form.response_format:
        case "text":
            return PlainTextResponse(text + "\n")
        case "srt":
            return PlainTextResponse(srt(segments))
        case "vtt":
            return PlainTextResponse(vtt(segments), media_type=VTT)
        case "verbose_json":
            return JSONResponse(_verbose(text, segments, duration_s, form.granularities))
        case _:
            return JSONResponse({"text": text, "usage": _usage(duration_s)})


def _verbose(
    text: str, segments: list[Segment], duration_s: float, granularities: frozenset[str]
) -> dict[str, Any]:
    language = segments[0].language if segments else ""
    body: dict[str, Any] = {
        "task": "transcribe",
        "language": language,
        "duration": round(duration_s, 3),
        "text": text,
        "usage": _usage(duration_s),
    }
    if "word" in granularities:
        words = [word for segment in segments for word in segment.words]
        body["words"] = [
            {"word": word.text, "start": round(word.start_s, 3), "end": round(word.end_s, 3)}
            for word in words
        ]
    if not granularities or "segment" in granularities:
        body["segments"] = [_segment(number, segment) for number, segment in enumerate(segments)]
    return body


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    """Greedy decoding has temperature 0; what this recognizer does not tell is null."""
    return {
        "id": number,
        "seek": 0,
        "start": round(segment.start_s, 3),
        "end": round(segment.end_s, 3),
        "text": segment.text,
        "tokens": [],
        "temperature": 0.0,
        "avg_logprob": None,
        "compression_ratio": None,
        "no_speech_prob": None,
    }


async def _events(transcriber: Transcriber, asked: TranscriptionRequest) -> AsyncGenerator[bytes]:
    """A delta for each stretch of speech, then the whole."""
    text, begun = "", False
    async with aclosing(transcriber.transcribe(asked)) as pieces:
        try:
            async for piece in pieces:
                match piece:
                    case Segment():
                        delta = f" {piece.text}" if text else piece.text
                        text, begun = text + delta, True
                        yield sse({"type": "transcript.text.delta", "delta": delta})
                    case Transcribed():
                        yield sse({"type": "transcript.text.done", "text": text})
        except VoiceAgentError as error:
            if not begun:
                raise
            yield sse_error(error)


def _usage(duration_s: float) -> dict[str, Any]:
    return {"type": "duration", "seconds": round(duration_s, 3)}
