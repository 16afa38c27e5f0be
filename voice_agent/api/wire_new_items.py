"""Items that a client brings along: each becomes a session command and the shape it will have on the wire.

Used for conversation.item.create and for the `input` of response.create. Every refusal names the part it is about.
"""

from dataclasses import dataclass, field
from typing import NoReturn, cast

from voice_agent.api.decoded import Decoded, decoded_picture, decoded_sound
from voice_agent.api.schema import NewItem, Part
from voice_agent.api.wire_items import Json, call_item, message_item, result_item
from voice_agent.commands import AddSpoken, AddText, AddToolCall, AddToolResult, Encoding, Sound
from voice_agent.commands import NewItem as NewItemCommand
from voice_agent.errors import RemoteProtocolError

PARTS = {
    "user": {"input_text": "text", "text": "text", "input_audio": "transcript", "input_image": "image_url"},
    "system": {"input_text": "text", "text": "text"},
    "assistant": {"output_text": "text", "text": "text", "output_audio": "transcript", "audio": "transcript"},
}
SHORTEST_BYTES = {"audio/pcm": 480, "audio/pcmu": 80, "audio/pcma": 80}  # 10 ms
MAX_ECHOED_CHARS = 64 * 1024  # of an image: a frame may not be larger than clients take


@dataclass(frozen=True, slots=True)
class Taken:
    """What a session takes in items: images or none, sound in its input's format; what was decoded before."""

    sees: bool = False
    encoding: Encoding = "audio/pcm"
    decoded: Decoded = field(default_factory=dict[str, bytes | ValueError])


def command_for(
    item_id: str, item: NewItem, event_id: str | None, taken: Taken, root: str = "item"
) -> tuple[NewItemCommand, Json]:
    """A new item's command and its shape on the wire. Raises RemoteProtocolError that names the part."""
    match item.type:
        case "function_call_output":
            call_id, output = _needed(item, root, "call_id"), _needed(item, root, "output")
            return AddToolResult(item_id, call_id, output, event_id), result_item(item_id, call_id, output)
        case "function_call":
            call_id, name = _needed(item, root, "call_id"), _needed(item, root, "name")
            arguments = _needed(item, root, "arguments")
            shape = call_item(item_id, call_id, name, arguments, "completed")
            return AddToolCall(item_id, call_id, name, arguments, event_id), shape
        case _:
            return _message(item_id, item, event_id, taken, root)


def _message(
    item_id: str, item: NewItem, event_id: str | None, taken: Taken, root: str
) -> tuple[NewItemCommand, Json]:
    if item.role is None:
        _missing(f"{root}.role")
    if item.content is None:
        _missing(f"{root}.content")
    parts: list[str | Sound] = []
    images: list[str] = []
    shown: list[Json] = []
    for n, part in enumerate(item.content):
        param = f"{root}.content[{n}]"
        if part.type == "input_audio" and item.role == "user" and part.transcript is None:
            parts.append(Sound(_sound(part, taken, param), taken.encoding, n))
            shown.append({"type": "input_audio", "transcript": None})
            continue
        value = _value(part, item.role, param)
        if part.type == "input_image":
            images.append(_image(value, param, taken))
            shown.append(_shown_image(part, value))
        else:
            parts.append(value)
            shown.append(_shown_text(item.role, part, value))
    return _command(item_id, item, event_id, parts, tuple(images)), message_item(item_id, item.role, shown)


def _command(
    item_id: str, item: NewItem, event_id: str | None, parts: list[str | Sound], images: tuple[str, ...]
) -> AddText | AddSpoken:
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) < len(parts):
        return AddSpoken(item_id, tuple(parts), event_id, images=images)
    assert item.role is not None, "it was looked at before"
    return AddText(item_id, item.role, "\n".join(texts), event_id, images=images)


def _sound(part: Part, taken: Taken, param: str) -> bytes:
    """A part's sound; raises RemoteProtocolError."""
    if not part.audio:
        message = (
            f"A sound needs '{param}.audio' (base64, in the session's input format) or its 'transcript'."
        )
        raise RemoteProtocolError("missing_required_parameter", message, f"{param}.audio")
    read = taken.decoded.get(f"{param}.audio")
    payload = decoded_sound(part.audio) if read is None else read
    if isinstance(payload, ValueError):
        message = f"Invalid value for '{param}.audio': it should be base64 ({payload})."
        raise RemoteProtocolError("invalid_value", message, f"{param}.audio")
    if len(payload) < SHORTEST_BYTES[taken.encoding]:
        message = f"The sound in '{param}.audio' is shorter than 10 ms."
        raise RemoteProtocolError("invalid_value", message, f"{param}.audio")
    return payload


def _value(part: Part, role: str, param: str) -> str:
    """What a part says; raises RemoteProtocolError for a kind that its role does not have, or without content."""
    kinds = PARTS[role]
    if part.type not in kinds:
        allowed = ", ".join(sorted(kinds))
        message = f"A message of the {role} has no parts of type '{part.type}'; it has {allowed}."
        raise RemoteProtocolError("invalid_value", message, f"{param}.type")
    value = cast(str | None, getattr(part, kinds[part.type]))
    if value is not None:
        return value
    _missing(f"{param}.{kinds[part.type]}")


def _image(url: str, param: str, taken: Taken) -> str:
    """A data URI that holds what it says; raises RemoteProtocolError."""
    if not taken.sees:
        message = "The model of this server cannot see: leave out parts of type 'input_image'."
        raise RemoteProtocolError("unsupported_value", message, f"{param}.type")
    read = taken.decoded.get(f"{param}.image_url")
    fault = decoded_picture(url) if read is None else read
    if isinstance(fault, ValueError):
        message = f"Invalid value for '{param}.image_url': {fault}."
        raise RemoteProtocolError("invalid_value", message, f"{param}.image_url")
    return url


def _shown_image(part: Part, url: str) -> Json:
    shown: Json = {"type": "input_image", "detail": part.detail or "auto"}
    return shown | ({"image_url": url} if len(url) <= MAX_ECHOED_CHARS else {})


def _shown_text(role: str, part: Part, value: str) -> Json:
    if part.type == "input_audio":
        return {"type": "input_audio", "transcript": value}
    return {"type": "output_text" if role == "assistant" else "input_text", "text": value}


def _needed(item: NewItem, root: str, name: str) -> str:
    value = cast(str | None, getattr(item, name))
    return _missing(f"{root}.{name}") if value is None else value


def _missing(param: str) -> NoReturn:
    raise RemoteProtocolError("missing_required_parameter", f"Missing required parameter: '{param}'.", param)
