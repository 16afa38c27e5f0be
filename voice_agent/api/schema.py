"""The client's side of the Realtime wire: the shape of every event, and nothing of what it does.

Unknown keys are refused and nothing is converted silently; `api/parse.py` turns that into errors for the client.
Source: OpenAI Realtime reference, GA shape; `latency_first` and `overlap` (for measuring) are this server's additions.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]
Modalities = Annotated[list[Literal["audio", "text"]], Field(min_length=1, max_length=1)]
OutputTokens = Annotated[int, Field(ge=1, le=4096)] | Literal["inf"]
Speed = Annotated[float, Field(ge=0.25, le=1.5)]
ItemId = Annotated[str, Field(min_length=1, max_length=512)]


def _no_null(value: Any) -> Any:
    if value is None:
        raise PydanticCustomError("bool_type", "Input should be a valid boolean")
    return value


Flag = Annotated[bool | None, BeforeValidator(_no_null)]  # a boolean or left out


class Wire(BaseModel):
    """What all of the wire has in common: no unknown keys, no silent conversion, null for every key of OpenAI's."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TurnDetection(Wire):
    """Both kinds in one, since an update may name a knob without its type."""

    type: Literal["server_vad", "semantic_vad"] | None = None
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    prefix_padding_ms: Annotated[int, Field(ge=0, le=10_000)] | None = None
    silence_duration_ms: Annotated[int, Field(ge=0, le=10_000)] | None = None
    idle_timeout_ms: Annotated[int, Field(ge=5000, le=30_000)] | None = None
    eagerness: Literal["auto", "low", "medium", "high"] | None = None
    create_response: bool | None = None
    interrupt_response: bool | None = None


class AudioFormat(Wire):
    """A sample format; over WebRTC it is only echoed, the track is Opus."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
    rate: Literal[24000] | None = None


class Transcription(Wire):
    """Any model name is taken: there is one recognizer."""

    model: str | None = None
    language: str | None = None
    prompt: str | None = None
    languages: list[str] | None = None
    keywords: list[str] | None = None
    delay: Literal["minimal", "low", "medium", "high", "xhigh"] | None = None


class NoiseReduction(Wire):
    """Echoed."""

    type: Literal["near_field", "far_field"]
    strength: float | None = None


class AudioInput(Wire):
    """session.audio.input."""

    format: AudioFormat | None = None
    transcription: Transcription | None = None
    noise_reduction: NoiseReduction | None = None
    turn_detection: TurnDetection | None = None


class VoiceId(Wire):
    """The other way to name a voice."""

    id: Annotated[str, Field(min_length=1, max_length=128)]


class AudioOutput(Wire):
    """session.audio.output and response.audio.output."""

    format: AudioFormat | None = None
    voice: Annotated[str, Field(min_length=1, max_length=128)] | VoiceId | None = None
    speed: Speed | None = None


class Audio(Wire):
    """session.audio."""

    input: AudioInput | None = None
    output: AudioOutput | None = None


class ResponseAudio(Wire):
    """response.audio."""

    output: AudioOutput | None = None


class FunctionTool(Wire):
    """A function in Realtime's flat form."""

    type: Literal["function"]
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedTool(Wire):
    """Call this one."""

    type: Literal["function"]
    name: str


class RetentionRatio(Wire):
    """Echoed."""

    type: Literal["retention_ratio"]
    retention_ratio: Annotated[float, Field(ge=0, le=1)]
    token_limits: dict[str, int] | None = None


class Tracing(Wire):
    """Echoed."""

    workflow_name: str | None = None
    group_id: str | None = None
    metadata: dict[str, Any] | None = None


class Prompt(Wire):
    """Echoed."""

    id: str
    version: str | None = None
    variables: dict[str, Any] | None = None


class Reasoning(Wire):
    """Echoed."""

    effort: Literal["minimal", "low", "medium", "high", "xhigh"] | None = None


ToolChoice = Literal["auto", "none", "required"] | NamedTool


class SessionPatch(Wire):
    """session.update's partial session: absent keeps, null switches off where that has a meaning.

    Of both types; one for transcription alone has only `include` and `audio.input` (checked where it is merged).
    """

    type: Literal["realtime", "transcription"]
    model: str | None = None
    output_modalities: Modalities | None = None
    instructions: str | None = None
    audio: Audio | None = None
    tools: Annotated[list[FunctionTool], Field(max_length=128)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: OutputTokens | None = None
    reasoning: Reasoning | None = None
    truncation: Literal["auto", "disabled"] | RetentionRatio | None = None
    tracing: Literal["auto"] | Tracing | None = None
    prompt: Prompt | None = None
    include: list[str] | None = None
    latency_first: Flag = None
    overlap: bool | None = None


class Part(Wire):
    """A content part of an item; the beta names text and audio are taken too."""

    type: Literal["input_text", "output_text", "text", "input_audio", "output_audio", "audio", "input_image"]
    text: str | None = None
    audio: str | None = None
    transcript: str | None = None
    image_url: str | None = None
    detail: Literal["auto", "low", "high"] | None = None


class NewItem(Wire):
    """Any item a client may create; which keys go with which type is checked where it is added."""

    type: Literal["message", "function_call", "function_call_output", "item_reference"]
    id: ItemId | None = None
    object: Literal["realtime.item"] | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    role: Literal["system", "user", "assistant"] | None = None
    content: Annotated[list[Part], Field(max_length=64)] | None = None
    call_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | None = None


class ResponseOptions(Wire):
    """response.create's overrides for one reply."""

    instructions: str | None = None
    output_modalities: Modalities | None = None
    audio: ResponseAudio | None = None
    tools: Annotated[list[FunctionTool], Field(max_length=128)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    max_output_tokens: OutputTokens | None = None
    metadata: Metadata | None = None
    prompt: Prompt | None = None
    conversation: Literal["auto", "none"] | None = None
    input: Annotated[list[NewItem], Field(max_length=256)] | None = None
    latency_first: Flag = None


class ClientEvent(Wire):
    """Any client event; its type chose the class."""

    type: str
    event_id: Annotated[str, Field(max_length=512)] | None = None


class SessionUpdate(ClientEvent):
    """session.update."""

    session: SessionPatch


class ItemCreate(ClientEvent):
    """conversation.item.create."""

    item: NewItem
    previous_item_id: str | None = None


class ItemNamed(ClientEvent):
    """conversation.item.retrieve and .delete."""

    item_id: ItemId


class ItemTruncate(ClientEvent):
    """conversation.item.truncate."""

    item_id: ItemId
    content_index: Annotated[int, Field(ge=0)]
    audio_end_ms: Annotated[int, Field(ge=0)]


class ResponseCreate(ClientEvent):
    """response.create."""

    response: ResponseOptions | None = None


class ResponseCancel(ClientEvent):
    """response.cancel."""

    response_id: str | None = None


class BufferAppend(ClientEvent):
    """input_audio_buffer.append."""

    audio: str


EVENTS: dict[str, type[ClientEvent]] = {
    "session.update": SessionUpdate,
    "conversation.item.create": ItemCreate,
    "conversation.item.retrieve": ItemNamed,
    "conversation.item.delete": ItemNamed,
    "conversation.item.truncate": ItemTruncate,
    "response.create": ResponseCreate,
    "response.cancel": ResponseCancel,
    "input_audio_buffer.append": BufferAppend,
    "input_audio_buffer.commit": ClientEvent,
    "input_audio_buffer.clear": ClientEvent,
    "output_audio_buffer.clear": ClientEvent,
}
