"""A chat completion's body to the request that is answered: roles, parts, tools and options checked against each other.

Pure: base64 is read, nothing else is done with sound. Every refusal names the parameter by its path.
"""

from collections.abc import Callable
from typing import Any

from voice_agent.api import chat_schema as wire
from voice_agent.api.chat_schema import ChatBody, ChatMessage, seed_number, voice_name
from voice_agent.audio import AudioFormat
from voice_agent.base64_bytes import from_base64
from voice_agent.errors import RemoteProtocolError
from voice_agent.requests import ChatRequest, ImagePart, Message, Part, SoundPart, SpeechWish, TextPart

MOST_SOUND_BYTES = 25_000_000
SpokenText = Callable[[str], str | None]  # transcript of an earlier reply by its audio id
VoiceNamed = Callable[[str, str], str]  # name and param to the voice, or RemoteProtocolError

refused = RemoteProtocolError


def has_media(body: ChatBody) -> bool:
    """Whether a message holds sound or a picture, whose base64 takes longer than an event loop has."""
    media = wire.AudioPart | wire.ImagePart
    lists = (message.content for message in body.messages if isinstance(message.content, list))
    return any(isinstance(part, media) for parts in lists for part in parts)


def chat_request(body: ChatBody, spoken_text: SpokenText, voice_named: VoiceNamed) -> ChatRequest:
    """The request of a body; raises RemoteProtocolError."""
    _check_options(body)
    messages = tuple(
        _message(message, f"messages[{n}]", spoken_text) for n, message in enumerate(body.messages)
    )
    _check_calls(messages)
    return ChatRequest(
        messages=messages,
        speech=_speech(body, voice_named),
        tools=tuple(tool.model_dump(exclude_none=True) for tool in body.tools or ()),
        tool_choice=_tool_choice(body),
        max_output_tokens=body.max_completion_tokens or body.max_tokens,
        temperature=body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        seed=body.seed,
        stop=tuple(body.stop or ()),
        streamed=bool(body.stream),
    )


def _check_options(body: ChatBody) -> None:
    if body.n not in {None, 1}:
        raise refused("unsupported_value", "One choice is given: 'n' must be 1.", "n")
    if body.logprobs:
        raise refused(
            "unsupported_value", "There are no log probabilities here: leave 'logprobs' out.", "logprobs"
        )
    if body.response_format and body.response_format.type != "text":
        message = "Only plain text can be asked for: 'response_format' must have the type 'text'."
        raise refused("unsupported_value", message, "response_format")
    if body.stream_options and not body.stream:
        raise refused("invalid_value", "'stream_options' needs 'stream': true.", "stream_options")


def _speech(body: ChatBody, voice_named: VoiceNamed) -> SpeechWish | None:
    """How the reply is to be said; None for a written one."""
    if "audio" not in (body.modalities or ()):
        return None
    audio = body.audio or wire.AudioOut()
    streamed = bool(body.stream)
    chosen: AudioFormat = (
        "pcm16" if audio.format == "pcm" else audio.format or ("pcm16" if streamed else "wav")
    )
    if streamed and chosen != "pcm16":
        message = (
            f"Unsupported value: 'audio.format' does not support '{chosen}' when stream=true. "
            "Supported values are: 'pcm16'."
        )
        raise refused("unsupported_value", message, "audio.format")
    soon = body.latency_first if "latency_first" in body.model_fields_set else streamed
    voice = voice_named(voice_name(audio.voice), "audio.voice")
    return SpeechWish(voice, chosen, latency_first=soon, streamed=streamed, seed=seed_number(body.seed))


def _tool_choice(body: ChatBody) -> str:
    choice, names = body.tool_choice or "auto", [tool.function.name for tool in body.tools or ()]
    if choice == "required" and not names:
        raise refused(
            "invalid_value", "'tool_choice' is 'required', but there are no 'tools'.", "tool_choice"
        )
    if isinstance(choice, str):
        return choice
    if choice.function.name not in names:
        message = f"'tool_choice' names '{choice.function.name}', which is none of 'tools'."
        raise refused("invalid_value", message, "tool_choice")
    return choice.function.name


# --- messages -----------------------------------------------------------------------------------------------------


def _message(message: ChatMessage, param: str, spoken_text: SpokenText) -> Message:
    role = "system" if message.role == "developer" else message.role
    parts = _parts(message, param)
    if message.role != "user" and any(not isinstance(part, TextPart) for part in parts):
        raise refused(
            "invalid_value", f"Only a user message holds sound or images, not '{param}'.", f"{param}.content"
        )
    calls = tuple(call.model_dump() for call in message.tool_calls or ()) if role == "assistant" else ()
    if role == "assistant" and message.audio and not parts:
        parts = (TextPart(_earlier(message.audio.id, param, spoken_text)),)
    if role == "tool" and not message.tool_call_id:
        raise refused(
            "missing_required_parameter", f"'{param}' needs a 'tool_call_id'.", f"{param}.tool_call_id"
        )
    if not parts and not calls and role != "tool":
        raise refused("missing_required_parameter", f"'{param}' has no content.", f"{param}.content")
    return Message(role, parts, calls, message.tool_call_id or "" if role == "tool" else "")


def _earlier(audio_id: str, param: str, spoken_text: SpokenText) -> str:
    text = spoken_text(audio_id)
    if text is None:
        message = f"'{param}.audio.id' names no reply that this server still has: send its text as 'content'."
        raise refused("invalid_value", message, f"{param}.audio.id")
    return text


def _parts(message: ChatMessage, param: str) -> tuple[Part, ...]:
    if message.content is None:
        return ()
    if isinstance(message.content, str):
        return (TextPart(message.content),)
    return tuple(_part(part, f"{param}.content[{n}]") for n, part in enumerate(message.content))


def _part(part: Any, param: str) -> Part:
    match part:
        case wire.AudioPart():
            name = f"{param}.input_audio.data"
            return SoundPart(sound_bytes(part.input_audio.data, name), name)
        case wire.ImagePart():
            return ImagePart(part.image_url.url, part.image_url.detail or "auto", param)
        case _:
            text = part.refusal if part.type == "refusal" else part.text
            if text is None:
                raise refused("missing_required_parameter", f"'{param}' has no text.", f"{param}.text")
            return TextPart(text)


def sound_bytes(data: str, param: str) -> bytes:
    """The file in base64, with or without a data: URI around it; raises RemoteProtocolError."""
    if data.startswith("data:"):
        data = data.partition(",")[2]
    try:
        sound = from_base64(data.strip())
    except ValueError as error:
        raise refused("invalid_value", f"'{param}' is not base64: {error}.", param) from error
    if not sound:
        raise refused("invalid_value", f"The sound in '{param}' is empty.", param)
    if len(sound) > MOST_SOUND_BYTES:
        raise refused("invalid_value", f"The sound in '{param}' is larger than 25 MB.", param)
    return sound


def _check_calls(messages: tuple[Message, ...]) -> None:
    """Each call is followed by its result, each result belongs to a call: what Thinkers insist on."""
    waiting: set[str] = set()
    for n, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                text = f"'messages[{n}]' is the result of no call right before it."
                raise refused("invalid_value", text, f"messages[{n}].tool_call_id")
            waiting.discard(message.tool_call_id)
            continue
        _check_none_waits(waiting, n)
        waiting = {str(call["id"]) for call in message.tool_calls}
    _check_none_waits(waiting, len(messages))


def _check_none_waits(waiting: set[str], before: int) -> None:
    if waiting:
        text = f"A call has no result in a message with role 'tool': {', '.join(sorted(waiting))}."
        raise refused("invalid_value", text, f"messages[{before - 1}]")
