"""Text from a client to one typed event, or RemoteProtocolError with OpenAI's code and the parameter's path.

Never lets another exception out, whatever comes: no JSON, deep JSON, lone surrogates, numbers nobody can encode.
A name that is not known gets the nearest one that is. What an event does is not known here.
"""

import typing
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json

from voice_agent.api.decoded import Decoded, decoded
from voice_agent.api.schema import EVENTS, ClientEvent, SessionPatch
from voice_agent.errors import RemoteProtocolError
from voice_agent.near_names import asked, near_name

# whole paths share their beginnings, so that at the likeness of single names each is like another
LIKENESS_OF_PATHS = 0.85
MAX_EVENT_CHARS = 256 * 1024
LONG_CHARS = 64 * 1024  # of a frame that is read on a thread: a millisecond
MAX_LONG_CHARS = {  # by event type: sound and pictures are long
    "conversation.item.create": 8 * 1024 * 1024,
    "input_audio_buffer.append": 21 * 1024 * 1024,  # 15 MiB in base64
}


def read_object(text: str) -> dict[str, Any]:
    """The JSON object of a frame; refuses what Python takes and JSON or our own encoders do not."""
    if len(text) > MAX_EVENT_CHARS:
        _refuse_long(text)
    try:
        value = from_json(text.encode(), allow_inf_nan=False)
    except UnicodeEncodeError as error:  # a lone surrogate: what came was no UTF-8
        message = f"The event is no UTF-8 from character {error.start} on; events are JSON in UTF-8."
        raise RemoteProtocolError("invalid_event", message) from error
    except ValueError as error:
        raise RemoteProtocolError("invalid_event", f"The event is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise RemoteProtocolError("invalid_event", "The event must be a JSON object with a 'type'.")
    refuse_odd_numbers(value)
    return cast(dict[str, Any], value)


@dataclass(frozen=True, slots=True)
class Frame:
    """What a client sent, read without its session, or why it cannot be; `decoded` is its base64."""

    value: dict[str, Any] | RemoteProtocolError
    decoded: Decoded = field(default_factory=dict[str, bytes | ValueError])


def read_frame(text: str) -> Frame:
    """Read a frame, on whatever thread; raises nothing."""
    try:
        value = read_object(text)
    except RemoteProtocolError as error:
        return Frame(error)
    return Frame(value, decoded(value))


def _refuse_long(text: str) -> None:
    """Before anything is read: an event that is too long for all of the types that it names."""
    limits = [limit for kind, limit in MAX_LONG_CHARS.items() if kind in text]
    limit = max(limits, default=MAX_EVENT_CHARS)
    if len(text) > limit:
        message = f"The event has {len(text)} characters; {limit} are the most here."
        raise RemoteProtocolError("event_too_large", message)


def parse_event(value: dict[str, Any]) -> ClientEvent:
    """The typed event; raises RemoteProtocolError that names the parameter."""
    kind = value.get("type")
    if not isinstance(kind, str):
        raise RemoteProtocolError("invalid_event", "The event needs a 'type' (a string).", "type")
    if kind not in EVENTS:
        message = f"Unknown event type {kind[:64]!r}{_nearest(kind, list(EVENTS))}"
        raise RemoteProtocolError("invalid_value", message, "type")
    return validated(EVENTS[kind], value, "")


def parse_session(text: str, kind: str) -> SessionPatch:
    """The session a call was made with, of this type if it names none; raises RemoteProtocolError."""
    try:
        value = read_object(text)
    except RemoteProtocolError as error:
        raise RemoteProtocolError(
            "invalid_json", f"The session cannot be read: {error}", "session"
        ) from error
    return validated(SessionPatch, {"type": kind} | value, "session")


M = typing.TypeVar("M", bound=BaseModel)


def validated(model: type[M], value: dict[str, Any], root: str = "") -> M:
    """The model of a value; raises RemoteProtocolError that names the parameter by its path from `root`."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _blame(error.errors(include_url=False, include_context=False), model, value, root) from None


def _blame(
    errors: list[ErrorDetails], model: type[BaseModel], value: dict[str, Any], root: str
) -> RemoteProtocolError:
    """One error for the client: of a union's many complaints, the one that got furthest into the value."""
    error = max(errors, key=lambda one: len(_path(one["loc"], value)))
    path = _path(error["loc"], value)
    param = root
    for part in path:
        param += f"[{part}]" if isinstance(part, int) else f".{part}" if param else part
    match error["type"]:
        case "missing":
            return RemoteProtocolError(
                "missing_required_parameter", f"Missing required parameter: '{param}'.", param
            )
        case "extra_forbidden":
            known = [f"{root}.{name}" if root else name for name in dotted_names(model)]
            return RemoteProtocolError(
                "unknown_parameter", f"Unknown parameter: '{param}'{_nearest(param, known)}", param
            )
        case kind if kind.endswith("_type") or kind == "string_unicode":
            code = "invalid_type"
        case _:
            code = "invalid_value"
    return RemoteProtocolError(code, f"Invalid value for '{param}': {error['msg']}.", param)


def _path(location: tuple[int | str, ...], value: Any) -> list[int | str]:
    """An error's location without the names of union members that pydantic mixes into it."""
    path: list[int | str] = []
    for n, part in enumerate(location):
        last = n == len(location) - 1
        if isinstance(value, dict):
            fields = cast(dict[Any, Any], value)
            if part in fields or (last and str(part).isidentifier()):
                path.append(part)
                value = fields.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            items = cast(list[Any], value)
            path.append(part)
            value = items[part] if part < len(items) else None
    return path


@cache
def dotted_names(model: type[BaseModel]) -> tuple[str, ...]:
    """Every parameter below a model, as clients write it."""
    names: list[str] = []
    for name, found in model.model_fields.items():
        names.append(name)
        for inner in _models_in(found.annotation):
            names += [f"{name}.{rest}" for rest in dotted_names(inner)]
    return tuple(names)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in typing.get_args(annotation) for model in _models_in(inner)]


def _nearest(name: str, known: list[str]) -> str:
    """A hint: the known name that is nearly the same, else the one with the most similar last word."""
    words: dict[str, str] = {}
    for one in known:
        words.setdefault(one.rpartition(".")[2], one)
    word = near_name(name.rpartition(".")[2], words)
    found = near_name(name, known, LIKENESS_OF_PATHS) or (word and words[word])
    return asked(found) or "."


def refuse_odd_numbers(value: Any) -> None:
    """Integers beyond 64 bits, infinities (and NaN), which no encoder behind us can write."""
    if isinstance(value, dict):
        for inner in cast(dict[str, Any], value).values():
            refuse_odd_numbers(inner)
    elif isinstance(value, list):
        for inner in cast(list[Any], value):
            refuse_odd_numbers(inner)
    elif isinstance(value, int | float) and not -(2**63) <= value < 2**63:
        raise RemoteProtocolError("invalid_event", "The event holds a number out of range.")
