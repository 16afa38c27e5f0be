"""The protocol core, row by row: every parameter of every event gone wrong, values at their limits, whole exchanges."""

from typing import Any, get_args

import numpy as np
import pytest
from pydantic import BaseModel

from tests.realtime_wire import SETTINGS, TOOL, Json, answers, ask, error_of, obey, opened, told, types
from voice_agent.api.realtime import RealtimeProtocol, Transport
from voice_agent.api.schema import EVENTS, SessionPatch
from voice_agent.audio import PcmChunk
from voice_agent.commands import (
    AddText,
    AddToolCall,
    AppendSound,
    CreateReply,
    DeleteItem,
    ItemReference,
    TruncateReply,
)
from voice_agent.events import (
    IdleTimedOut,
    ItemDeleted,
    ReplyDone,
    ReplySound,
    ReplyStarted,
    ReplyText,
    ReplyToolCall,
    ReplyTruncated,
    SessionEvent,
    TextAdded,
    TurnCommitted,
)
from voice_agent.media.wire_sound import ReplyEncoder

WRONG = 17.5  # a value that no parameter but a float takes
NEEDED: dict[str, Json] = {  # what an object cannot be without
    "format": {"type": "audio/pcm"},
    "noise_reduction": {"type": "near_field"},
    "voice": {"id": "v"},
    "tool_choice": {"type": "function", "name": "clock"},
    "truncation": {"type": "retention_ratio", "retention_ratio": 0.5},
    "prompt": {"id": "p"},
}
MESSAGE: Json = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
WHOLE: dict[str, Json] = {
    "session.update": {"session": {"type": "realtime"}},
    "conversation.item.create": {"item": MESSAGE},
    "conversation.item.retrieve": {"item_id": "x"},
    "conversation.item.delete": {"item_id": "x"},
    "conversation.item.truncate": {"item_id": "x", "content_index": 0, "audio_end_ms": 1},
    "response.create": {"response": {}},
    "response.cancel": {},
    "input_audio_buffer.append": {"audio": ""},
    "input_audio_buffer.commit": {},
    "input_audio_buffer.clear": {},
    "output_audio_buffer.clear": {},
}


def over_socket() -> RealtimeProtocol:
    return RealtimeProtocol("sess_1", "voice-agent", SETTINGS, Transport(ReplyEncoder, sees=True))


def paths(model: type[BaseModel], at: str = "") -> list[tuple[str, Any]]:
    """Every parameter below a model that is not inside of a list, with its annotation."""
    found: list[tuple[str, Any]] = []
    for name, field in model.model_fields.items():
        path = f"{at}{name}"
        found.append((path, field.annotation))
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                found += paths(inner, f"{path}.")
    return found


def put(event: Json, path: str, value: Any) -> Json:
    """A copy with one parameter set, its parents made as needed."""
    first, _, rest = path.partition(".")
    if not rest:
        return event | {first: value}
    inner = event.get(first)
    return event | {first: put(inner if isinstance(inner, dict) else NEEDED.get(first, {}), rest, value)}


def events_with(value: Any, *, objects: bool) -> list[tuple[Json, str]]:
    """Each event with each of its parameters (or each of its objects' unknown ones) set."""
    rows: list[tuple[Json, str]] = []
    for kind, model in EVENTS.items():
        whole = {"type": kind} | WHOLE[kind]
        if objects:
            rows.append((whole | {"zzz": value}, "zzz"))
        for path, annotation in paths(model):
            kinds = [one for one in (annotation, *get_args(annotation)) if isinstance(one, type)]
            is_object = any(issubclass(one, BaseModel) for one in kinds)
            if objects and is_object:
                rows.append((put(whole, f"{path}.zzz", value), f"{path}.zzz"))
            elif not objects and path != "type" and float not in kinds:
                rows.append((put(whole, path, value), path))
    return rows


def named(rows: list[tuple[Json, str]]) -> list[Any]:
    return [pytest.param(event, param, id=f"{event['type']} {param}") for event, param in rows]


@pytest.mark.parametrize(("event", "param"), named(events_with(WRONG, objects=False)))
def test_a_wrong_value_is_refused_by_the_name_of_its_parameter(event: Json, param: str) -> None:
    wire = over_socket()
    error = error_of(wire, event | ({} if param == "event_id" else {"event_id": "mine"}))
    assert error["code"] in {"invalid_type", "invalid_value"} and error["param"].startswith(param)
    assert param in error["message"]
    assert error["event_id"] == (None if param == "event_id" else "mine")


@pytest.mark.parametrize(("event", "param"), named(events_with(1, objects=True)))
def test_an_unknown_parameter_is_refused_by_its_name(event: Json, param: str) -> None:
    error = error_of(over_socket(), event)
    assert (error["code"], error["param"]) == ("unknown_parameter", param)


# of those that are ours and not OpenAI's, one says that it takes booleans alone
NULLABLE = [
    path
    for path, annotation in paths(SessionPatch)
    if type(None) in get_args(annotation) and path != "latency_first"
]


@pytest.mark.parametrize("path", NULLABLE)
def test_null_is_taken_for_every_parameter_of_a_session(path: str) -> None:
    wire = over_socket()
    before = opened(wire)["session"]
    session = put({"type": "realtime"}, path, None)
    if path.startswith("audio.input.turn_detection."):
        session = put(session, "audio.input.turn_detection.type", "server_vad")
    ask(wire, {"type": "session.update", "session": session})
    assert answers(wire) == []
    after = opened(wire)["session"]
    assert set(after) >= set(before) and after["audio"]["output"] == before["audio"]["output"]


AT_LIMITS: list[tuple[str, Any, bool]] = [
    ("audio.input.turn_detection.threshold", 0, True),
    ("audio.input.turn_detection.threshold", 1.0, True),
    ("audio.input.turn_detection.threshold", 1.01, False),
    ("audio.input.turn_detection.threshold", -0.1, False),
    ("audio.input.turn_detection.silence_duration_ms", 0, True),
    ("audio.input.turn_detection.silence_duration_ms", -1, False),
    ("audio.input.turn_detection.prefix_padding_ms", 10_000, True),
    ("audio.input.turn_detection.prefix_padding_ms", 10_001, False),
    ("audio.input.turn_detection.idle_timeout_ms", 5000, True),
    ("audio.input.turn_detection.idle_timeout_ms", 30_000, True),
    ("audio.input.turn_detection.idle_timeout_ms", 4999, False),
    ("audio.input.turn_detection.idle_timeout_ms", 30_001, False),
    ("audio.input.turn_detection.create_response", False, True),
    ("audio.input.turn_detection.create_response", "no", False),
    ("audio.output.speed", 0.25, True),
    ("audio.output.speed", 1.5, True),
    ("audio.output.speed", 1, True),
    ("audio.output.speed", 0.24, False),
    ("audio.output.speed", 1.51, False),
    ("audio.output.voice", "x" * 128, True),
    ("audio.output.voice", "x" * 129, False),
    ("audio.output.voice", "", False),
    ("audio.output.format", {"type": "audio/pcmu"}, True),
    ("audio.output.format", {"type": "audio/pcma"}, True),
    ("audio.output.format", {"type": "audio/pcm"}, True),
    ("audio.output.format", {"type": "audio/pcm", "rate": 16_000}, False),
    ("audio.output.format", {"type": "audio/opus"}, False),
    ("audio.output.format", {}, False),
    ("max_output_tokens", 1, True),
    ("max_output_tokens", 4096, True),
    ("max_output_tokens", "inf", True),
    ("max_output_tokens", 0, False),
    ("max_output_tokens", 4097, False),
    ("max_output_tokens", "many", False),
    ("output_modalities", ["audio"], True),
    ("output_modalities", ["text"], True),
    ("output_modalities", [], False),
    ("output_modalities", ["text", "audio"], False),
    ("tool_choice", "required", True),
    ("tool_choice", {"type": "function", "name": "clock"}, True),
    ("tool_choice", "clock", False),
    ("tools", [], True),
    ("tools", [TOOL] * 128, True),
    ("tools", [TOOL] * 129, False),
    ("tools", [TOOL | {"name": "with space"}], False),
    ("tools", [TOOL | {"name": "x" * 65}], False),
    ("truncation", "auto", True),
    ("truncation", "sometimes", False),
    ("truncation", {"type": "retention_ratio", "retention_ratio": 1.1}, False),
    ("tracing", "auto", True),
    ("tracing", "always", False),
    ("reasoning", {"effort": "low"}, True),
    ("reasoning", {"effort": "huge"}, False),
    ("include", ["item.input_audio_transcription.logprobs"], True),
    ("model", "voice-agent", True),
    ("model", "gpt-realtime", True),
    ("model", "another", False),
]


@pytest.mark.parametrize(("path", "value", "taken"), AT_LIMITS)
def test_values_at_their_limits(path: str, value: Any, taken: bool) -> None:
    wire = over_socket()
    session = put({"type": "realtime"}, path, value)
    if "turn_detection" in path:
        session = put(session, "audio.input.turn_detection.type", "server_vad")
    commands = ask(wire, {"type": "session.update", "session": session})
    refused = answers(wire)
    assert bool(commands) == taken and bool(refused) == (not taken)
    assert taken or refused[0]["error"]["param"].startswith(f"session.{path}")


def message(role: str, *parts: Json) -> Json:
    return {"type": "message", "role": role, "content": list(parts)}


PNG = "data:image/png;base64,iVBORw0KGgo="
JPEG = "data:image/jpeg;base64,/9j/4AAQSkZJRg=="
ITEMS: list[
    tuple[Json, str | None, str | None]
] = [  # an item, what becomes of it: words, or the parameter refused
    (message("user", {"type": "input_text", "text": "a"}), "a", None),
    (message("user", {"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}), "a\nb", None),
    (message("user"), "", None),
    (message("user", {"type": "input_audio", "transcript": "said"}), "said", None),
    (message("user", {"type": "input_audio", "audio": "AAAA"}), None, "item.content[0].audio"),
    (message("user", {"type": "input_audio", "audio": None}), None, "item.content[0].audio"),
    (message("user", {"type": "input_image", "image_url": PNG}), "", None),
    (message("user", {"type": "input_image", "image_url": JPEG, "detail": "low"}), "", None),
    (
        message("user", {"type": "input_image", "image_url": "https://x/y.png"}),
        None,
        "item.content[0].image_url",
    ),
    (message("user", {"type": "input_image", "image_url": PNG + "*"}), None, "item.content[0].image_url"),
    (
        message("user", {"type": "input_image", "image_url": JPEG.replace("jpeg", "png")}),
        None,
        "item.content[0].image_url",
    ),
    (message("user", {"type": "input_image"}), None, "item.content[0].image_url"),
    (message("user", {"type": "output_text", "text": "a"}), None, "item.content[0].type"),
    (message("user", {"type": "input_text"}), None, "item.content[0].text"),
    (message("user", {"type": "input_text", "text": "a"}, {"type": "smell"}), None, "item.content[1].type"),
    (message("system", {"type": "input_text", "text": "a"}), "a", None),
    (message("system", {"type": "input_audio", "transcript": "a"}), None, "item.content[0].type"),
    (message("assistant", {"type": "output_text", "text": "a"}), "a", None),
    (message("assistant", {"type": "text", "text": "a"}), "a", None),
    (message("assistant", {"type": "output_audio", "transcript": "a"}), "a", None),
    (message("assistant", {"type": "output_audio", "audio": "AAAA"}), None, "item.content[0].transcript"),
    (message("assistant", {"type": "input_text", "text": "a"}), None, "item.content[0].type"),
    ({"type": "message", "role": "user"}, None, "item.content"),
    ({"type": "message", "content": []}, None, "item.role"),
    ({"type": "message", "role": "robot", "content": []}, None, "item.role"),
    ({"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}, "{}", None),
    ({"type": "function_call", "call_id": "c", "name": "n"}, None, "item.arguments"),
    ({"type": "function_call", "call_id": "c", "arguments": "{}"}, None, "item.name"),
    ({"type": "function_call", "name": "n", "arguments": "{}"}, None, "item.call_id"),
    ({"type": "function_call_output", "call_id": "c", "output": "x"}, "x", None),
    ({"type": "function_call_output", "output": "x"}, None, "item.call_id"),
    ({"type": "function_call_output", "call_id": "c"}, None, "item.output"),
    ({"type": "item_reference", "id": "x"}, None, "item.type"),
    ({"type": "mcp_call"}, None, "item.type"),
    ({"id": "", "type": "message", "role": "user", "content": []}, None, "item.id"),
    ({"role": "user", "content": []}, None, "item.type"),
]


@pytest.mark.parametrize(("item", "words", "param"), ITEMS)
def test_items_become_commands_or_name_what_is_wrong(
    item: Json, words: str | None, param: str | None
) -> None:
    wire = over_socket()
    commands = ask(wire, {"type": "conversation.item.create", "item": item, "event_id": "e"})
    refused = answers(wire)
    if param is not None:
        assert (
            commands == []
            and refused[0]["error"]["param"] == param
            and refused[0]["error"]["event_id"] == "e"
        )
        return
    (command,) = commands
    assert (
        words in {getattr(command, name, None) for name in ("text", "output", "arguments")} and refused == []
    )
    added, done = told(wire, TextAdded(command.item_id, "user", words or ""))  # type: ignore[union-attr]
    assert added["item"] == done["item"] and added["item"]["type"] == item["type"]
    assert None not in added["item"].values()


@pytest.mark.parametrize(
    ("item", "words", "param"), [row for row in ITEMS if row[0].get("type") != "item_reference"]
)
def test_the_same_items_in_a_replys_own_context(item: Json, words: str | None, param: str | None) -> None:
    wire = over_socket()
    commands = ask(wire, {"type": "response.create", "response": {"input": [MESSAGE, item]}})
    refused = answers(wire)
    if param is not None:
        assert refused[0]["error"]["param"] == param.replace("item", "response.input[1]", 1)
        return
    (command,) = commands
    assert isinstance(command, CreateReply) and command.context and len(command.context) == 2


def test_images_are_for_those_who_see() -> None:
    blind = RealtimeProtocol("s", "m", SETTINGS, Transport(ReplyEncoder))
    item = message("user", {"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": PNG})
    error = error_of(blind, {"type": "conversation.item.create", "item": item})
    assert (error["code"], error["param"]) == ("unsupported_value", "item.content[1].type")
    (command,) = ask(over_socket(), {"type": "conversation.item.create", "item": item})
    assert isinstance(command, AddText) and command.images == (PNG,) and command.text == "a"


SOUNDS: list[tuple[str, str | None, bytes]] = [
    ("", None, b""),
    ("AAAA", None, bytes(3)),
    ("AAA=", None, bytes(2)),
    ("AAA", "audio", b""),
    ("AA\nAA", "audio", b""),
    ("data:audio/wav;base64,AAAA", "audio", b""),
    ("ÄÄÄÄ", "audio", b""),
]


@pytest.mark.parametrize(("audio", "param", "payload"), SOUNDS)
@pytest.mark.parametrize("encoding", ["audio/pcm", "audio/pcmu", "audio/pcma"])
def test_appended_sound_is_base64_of_the_sessions_format(
    audio: str, param: str | None, payload: bytes, encoding: str
) -> None:
    wire = over_socket()
    obey(wire, {"audio": {"input": {"format": {"type": encoding}}}})
    event = {"type": "input_audio_buffer.append", "audio": audio}
    if param:
        assert error_of(wire, event)["param"] == param
    else:
        assert ask(wire, event) == [AppendSound(payload, encoding)]  # type: ignore[arg-type]


CHUNK = PcmChunk(np.full(2400, 500, dtype=np.int16), 24_000)
CLOSING = [
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
    "rate_limits.updated",
]
OPENING = [
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
]
ASIDE = CreateReply(aside=True)
EXCHANGES: list[tuple[str, list[SessionEvent], list[str]]] = [
    (
        "sound before words",
        [
            ReplyStarted("r", None),
            ReplySound("r", CHUNK),
            ReplyText("r", "a"),
            ReplyDone("r", "completed", "a"),
        ],
        [*OPENING, "response.output_audio.delta", "response.output_audio_transcript.delta", *CLOSING],
    ),
    (
        "sound of a reply that is over",
        [
            ReplyStarted("r", None),
            ReplyDone("r", "cancelled", "a"),
            ReplySound("r", CHUNK),
            ReplyText("r", "b"),
        ],
        [*OPENING, "response.output_audio_transcript.delta", *CLOSING],
    ),
    ("sound of a reply nobody knows", [ReplySound("x", CHUNK)], []),
    (
        "what we think was heard is not told where the client plays",
        [
            ReplyStarted("r", None),
            ReplyText("r", "a b"),
            ReplyDone("r", "completed", "a b"),
            ReplyTruncated("r", "a", 9),
        ],
        [*OPENING, "response.output_audio_transcript.delta", *CLOSING],
    ),
    (
        "what the client says was heard is",
        [
            ReplyStarted("r", None),
            ReplyText("r", "a b"),
            ReplyDone("r", "completed", "a b"),
            ReplyTruncated("r", "a", 9, by_client=True),
        ],
        [*OPENING, "response.output_audio_transcript.delta", *CLOSING, "conversation.item.truncated"],
    ),
    (
        "an aside touches no conversation",
        [
            ReplyStarted("r", None, text_only=True, request=ASIDE),
            ReplyText("r", "a"),
            ReplyToolCall("r", "c", "n", "{}"),
            ReplyDone("r", "completed", "a"),
        ],
        [
            "response.created",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.done",
            "rate_limits.updated",
        ],
    ),
    (
        "a long silence",
        [IdleTimedOut("t", 1000, 6000), TurnCommitted("t")],
        [
            "input_audio_buffer.timeout_triggered",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
        ],
    ),
    (
        "an item deleted",
        [TextAdded("i", "user", "a"), ItemDeleted("i")],
        ["conversation.item.added", "conversation.item.done", "conversation.item.deleted"],
    ),
]


@pytest.mark.parametrize(
    ("events", "wanted"), [row[1:] for row in EXCHANGES], ids=[row[0] for row in EXCHANGES]
)
def test_exchanges_over_a_socket(events: list[SessionEvent], wanted: list[str]) -> None:
    assert types(told(over_socket(), *events)) == wanted


def test_a_second_of_sound_is_cut_so_that_frames_stay_small() -> None:
    wire = over_socket()
    long = PcmChunk(np.zeros(24_000 * 30, dtype=np.int16), 24_000)
    sent = told(wire, ReplyStarted("r", None), ReplySound("r", long))
    deltas = [e for e in sent if e["type"] == "response.output_audio.delta"]
    assert len(deltas) == 30 and all(len(e["delta"]) <= 64_000 for e in deltas)


def test_items_are_known_to_the_session_by_its_own_ids() -> None:
    wire = over_socket()
    told(
        wire,
        TurnCommitted("t1"),
        ReplyStarted("r1", "t1"),
        ReplyText("r1", "Hi"),
        ReplyToolCall("r1", "call_1", "n", "{}"),
        ReplyDone("r1", "completed", "Hi"),
    )
    rows: list[tuple[str, str]] = [("item_t1", "t1"), ("item_r1", "r1"), ("item_r1_1", "r1.call_1")]
    for wire_id, session_id in rows:
        assert ask(wire, {"type": "conversation.item.delete", "item_id": wire_id}) == [DeleteItem(session_id)]
        item = message("user", {"type": "input_text", "text": "a"})
        event = {"type": "conversation.item.create", "item": item, "previous_item_id": wire_id}
        (command,) = ask(wire, event)
        assert isinstance(command, AddText) and command.after == session_id
        asked = {
            "type": "response.create",
            "response": {"input": [{"type": "item_reference", "id": wire_id}]},
        }
        (reply,) = ask(wire, asked)
        assert isinstance(reply, CreateReply) and reply.context == (ItemReference(session_id),)
        (deleted,) = told(wire, ItemDeleted(session_id))
        assert deleted["item_id"] == wire_id
        assert (
            error_of(wire, {"type": "conversation.item.retrieve", "item_id": wire_id})["param"] == "item_id"
        )


TRUNCATIONS: list[tuple[Json, str | None]] = [
    ({"item_id": "item_r1"}, None),
    ({"item_id": "item_r1", "audio_end_ms": 0}, None),
    ({"item_id": "item_r1", "content_index": 1}, "content_index"),
    ({"item_id": "item_t1"}, "item_id"),
    ({"item_id": "item_r1_1"}, "item_id"),
    ({"item_id": "item_text"}, "item_id"),
    ({"item_id": "nobody"}, "item_id"),
    ({"item_id": "item_r1", "audio_end_ms": -1}, "audio_end_ms"),
    ({"item_id": "item_r1", "audio_end_ms": "5"}, "audio_end_ms"),
]


@pytest.mark.parametrize(("event", "param"), TRUNCATIONS)
def test_only_the_agents_sound_can_be_truncated(event: Json, param: str | None) -> None:
    wire = over_socket()
    told(
        wire,
        TurnCommitted("t1"),
        ReplyStarted("r1", "t1"),
        ReplySound("r1", CHUNK),
        ReplyToolCall("r1", "call_1", "n", "{}"),
        ReplyDone("r1", "completed", "Hi"),
        ReplyStarted("text", None, text_only=True),
        ReplyText("text", "Hi"),
        ReplyDone("text", "completed", "Hi"),
    )
    whole: Json = {"type": "conversation.item.truncate", "content_index": 0, "audio_end_ms": 640} | event
    if param:
        assert error_of(wire, whole)["param"] == param
    else:
        assert ask(wire, whole) == [TruncateReply("r1", whole["audio_end_ms"])]


def test_a_client_brings_its_history_along_after_a_reconnect() -> None:
    wire = over_socket()
    call = {"id": "f", "type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}
    (command,) = ask(wire, {"type": "conversation.item.create", "item": call, "previous_item_id": "root"})
    assert command == AddToolCall("f", "c", "n", "{}", None, "root")
    added, _ = told(wire, TextAdded("f", "tool", "{}"))
    assert added["item"] == call | {"object": "realtime.item", "status": "completed"}
