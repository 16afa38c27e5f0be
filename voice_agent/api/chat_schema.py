"""The body of POST /v1/chat/completions: shapes and limits only.

Unknown keys are ignored (clients send many that are not about the answer), known ones are never converted silently.
Source: OpenAI's chat completion reference; `latency_first`, `max_new_tokens` of a speech, and `audio.format` with a
default, are this server's.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from voice_agent.audio import AudioFormat

MOST_TEXT = 1_000_000  # characters of one text
Text = Annotated[str, Field(max_length=MOST_TEXT)]
Name = Annotated[str, Field(min_length=1, max_length=128)]


class Body(BaseModel):
    """What all bodies have in common."""

    model_config = ConfigDict(extra="ignore", strict=True)


class TextPart(Body):
    """Text; a refusal counts as text."""

    type: Literal["text", "input_text", "refusal"]
    text: Text | None = None
    refusal: Text | None = None


class InputAudio(Body):
    """A sound file in base64; its own bytes tell the format, `format` is only checked to be one of the names."""

    data: Annotated[str, Field(min_length=1)]
    format: Literal["wav", "mp3", "flac", "ogg", "opus", "m4a", "mp4", "aac", "webm"] | None = None


class AudioPart(Body):
    """A sound."""

    type: Literal["input_audio"]
    input_audio: InputAudio


class ImageUrl(Body):
    """Where an image is: https, or a data: URI."""

    url: Annotated[str, Field(min_length=1)]
    detail: Literal["auto", "low", "high", "original"] | None = None


class ImagePart(Body):
    """An image."""

    type: Literal["image_url"]
    image_url: ImageUrl


def _part_type(part: Any) -> str | None:
    kind = part.get("type") if isinstance(part, dict) else getattr(part, "type", None)
    return {"input_text": "text", "refusal": "text"}.get(kind, kind) if isinstance(kind, str) else None


Part = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[AudioPart, Tag("input_audio")]
    | Annotated[ImagePart, Tag("image_url")],
    Discriminator(
        _part_type,
        custom_error_type="invalid_part",
        custom_error_message="a part has the type text, input_audio or image_url",
    ),
]


class Function(Body):
    """A function that may be called."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: Text | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    """A tool; there are only functions."""

    type: Literal["function"]
    function: Function


class NamedFunction(Body):
    """The function that must be called."""

    name: Name


class NamedTool(Body):
    """tool_choice as an object."""

    type: Literal["function"]
    function: NamedFunction


class CalledFunction(Body):
    """A call as the model wrote it."""

    name: Name
    arguments: Text


class CalledTool(Body):
    """One call of an earlier reply."""

    id: Name
    type: Literal["function"] = "function"
    function: CalledFunction


class AudioId(Body):
    """An earlier spoken reply of this server's."""

    id: Name


class ChatMessage(Body):
    """One message; which keys a role has is checked in chat_messages."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[Part], Field(max_length=200)] | None = None
    tool_calls: Annotated[list[CalledTool], Field(max_length=128)] | None = None
    tool_call_id: Name | None = None
    audio: AudioId | None = None


class VoiceId(Body):
    """The other way to name a voice."""

    id: Name


class AudioOut(Body):
    """How a spoken reply comes; without a format it is wav, streamed pcm16."""

    voice: Name | VoiceId = ""
    format: AudioFormat | Literal["pcm"] | None = None


class ResponseFormat(Body):
    """Only plain text can be asked for."""

    type: str


class StreamOptions(Body):
    """What else a stream tells."""

    include_usage: bool | None = None


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Stops = Annotated[list[Name], Field(max_length=4), BeforeValidator(_listed)]  # one may stand alone


class ChatBody(Body):
    """POST /v1/chat/completions."""

    model: Name
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=2_000)]
    modalities: Annotated[list[Literal["text", "audio"]], Field(min_length=1, max_length=2)] | None = None
    audio: AudioOut | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    tools: Annotated[list[Tool], Field(max_length=128)] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    stop: Stops | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: int | None = None
    logprobs: bool | None = None
    response_format: ResponseFormat | None = None
    latency_first: bool = False  # null is no boolean; whether it was given tells model_fields_set


class SpeechBody(Body):
    """POST /v1/audio/speech."""

    model: Name
    input: Annotated[str, Field(min_length=1, max_length=4_096)]
    voice: Name | VoiceId = ""
    instructions: Text | None = None
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] | None = None
    speed: Annotated[float, Field(ge=0.25, le=4)] | None = None
    stream_format: Literal["audio", "sse"] | None = None
    latency_first: bool = False
    max_new_tokens: Annotated[int, Field(ge=1, le=8_192)] | None = (
        None  # frames of 80 ms, random weights only
    )
    seed: int | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None  # of voices that sample


def seed_number(seed: int | None) -> int:
    """A seed as voices take it: 31 bits, 0 where none was given."""
    return (seed or 0) & 0x7FFF_FFFF


def voice_name(voice: str | VoiceId) -> str:
    """A voice however it was named."""
    return voice if isinstance(voice, str) else voice.id
