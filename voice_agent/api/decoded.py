"""The base64 of a client's event, by parameter: read with its frame, where a long one is beside the event loop.

Knows the two events that may carry more than a quarter of a megabyte, and no session: whether sound or pictures are
welcome is asked later. What is short may as well be read where it is needed.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from voice_agent.base64_bytes import from_base64
from voice_agent.pictures import REALTIME, data_uri_fault

Decoded = Mapping[str, bytes | ValueError]  # what a parameter says, or why it says nothing


def decoded(value: dict[str, Any]) -> Decoded:
    """What is in an event of whatever shape; raises nothing."""
    match value:
        case {"type": "input_audio_buffer.append", "audio": str(audio)}:
            return {"audio": decoded_sound(audio)}
        case {"type": "conversation.item.create", "item": {"content": list(parts)}}:
            return dict(_parts("item.content", cast(list[Any], parts)))
        case _:
            return {}


def decoded_sound(audio: str) -> bytes | ValueError:
    """Its samples."""
    try:
        return from_base64(audio)
    except ValueError as error:
        return error


def decoded_picture(url: str) -> bytes | ValueError:
    """Nothing but whether it is one: pictures travel on as they are."""
    fault = data_uri_fault(url, REALTIME)
    return ValueError(fault) if fault else b""


def _parts(root: str, parts: list[Any]) -> Iterator[tuple[str, bytes | ValueError]]:
    for n, part in enumerate(parts):
        match part:
            case {"type": "input_audio", "audio": str(audio)}:
                yield f"{root}[{n}].audio", decoded_sound(audio)
            case {"type": "input_image", "image_url": str(url)}:
                yield f"{root}[{n}].image_url", decoded_picture(url)
            case _:
                pass
