import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.realtime_wire import (
    SETTINGS,
    Json,
    answers,
    ask,
    error_of,
    opened,
    protocol,
    told,
    types,
)
from voice_agent.api.parse import dotted_names
from voice_agent.api.realtime import RealtimeProtocol, Transport
from voice_agent.api.schema import EVENTS, SessionPatch
from voice_agent.api.wire_beta import FLAT, Beta
from voice_agent.commands import (
    AddText,
    AddToolResult,
    CancelReply,
    ClearInput,
    ClearOutput,
    CommitInput,
    CreateReply,
)
from voice_agent.events import SessionError, TextAdded
from voice_agent.media.wire_sound import ReplyEncoder
from voice_agent.session_settings import SessionSettings


def test_simple_events_become_commands() -> None:
    wire = protocol()
    assert ask(wire, {"type": "input_audio_buffer.clear"}) == [ClearInput()]
    assert ask(wire, {"type": "input_audio_buffer.commit", "event_id": "e"}) == [CommitInput("e")]
    assert ask(wire, {"type": "output_audio_buffer.clear"}) == [ClearOutput()]
    assert ask(wire, {"type": "response.cancel"}) == [CancelReply()]
    cancel = {"type": "response.cancel", "response_id": "resp_r1", "event_id": "e"}
    assert ask(wire, cancel) == [CancelReply("r1", "e")]


def test_response_create_overrides_settings_for_one_reply_and_leaves_the_session() -> None:
    wire = protocol()
    response = {
        "instructions": "Shout.",
        "output_modalities": ["text"],
        "audio": {"output": {"voice": {"id": "amy"}}},
        "tools": [],
        "tool_choice": "none",
        "max_output_tokens": "inf",
        "metadata": {"client_event_id": "x"},
        "conversation": "auto",
        "latency_first": False,
        "prompt": None,
    }
    (command,) = ask(wire, {"type": "response.create", "event_id": "e", "response": response})
    changes = {
        "instructions": "Shout.",
        "text_only": True,
        "voice": "amy",
        "tools": (),
        "tool_choice": "none",
        "max_output_tokens": 512,
        "latency_first": False,
    }
    shape = {"output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "amy"}}
    note = shape | {"max_output_tokens": "inf"}
    assert command == CreateReply(changes, {"client_event_id": "x"}, "e", note=note)
    assert opened(wire)["session"]["instructions"] == "Be brief."


@pytest.mark.parametrize(
    ("role", "kind", "shown"),
    [
        ("user", "input_text", "input_text"),
        ("user", "text", "input_text"),
        ("system", "input_text", "input_text"),
        ("assistant", "output_text", "output_text"),
    ],
)
def test_a_typed_item_is_added_once_the_session_has_it(role: str, kind: str, shown: str) -> None:
    wire = protocol()
    item = {"id": "mine", "type": "message", "role": role, "content": [{"type": kind, "text": "Hello"}]}
    assert ask(wire, {"type": "conversation.item.create", "item": item}) == [AddText("mine", role, "Hello")]  # type: ignore[arg-type]
    assert wire.events_to_send() == []
    added, done = told(wire, TextAdded("mine", role, "Hello"))
    assert types([added, done]) == ["conversation.item.added", "conversation.item.done"]
    assert added["previous_item_id"] is None and added["item"] == done["item"]
    assert added["item"]["content"] == [{"type": shown, "text": "Hello"}]
    assert None not in added["item"].values()
    assert (
        error_of(wire, {"type": "conversation.item.create", "item": item})["code"]
        == "item_create_duplicate_item_id"
    )


def test_a_function_result_keeps_its_shape() -> None:
    wire = protocol()
    item = {"type": "function_call_output", "call_id": "call_1", "output": "12:00"}
    (command,) = ask(wire, {"type": "conversation.item.create", "item": item})
    assert isinstance(command, AddToolResult) and command.output == "12:00"
    added, _ = told(wire, TextAdded(command.item_id, "tool", "12:00"))
    assert added["item"] == item | {"id": command.item_id, "object": "realtime.item", "status": "completed"}


def test_items_follow_each_other_and_previous_ids_are_checked() -> None:
    wire = protocol()

    def create(item_id: str, previous: str | None) -> Json:
        item = {
            "id": item_id,
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": item_id}],
        }
        return {"type": "conversation.item.create", "item": item, "previous_item_id": previous}

    assert ask(wire, create("a", "root")) and ask(wire, create("b", "a")) and ask(wire, create("c", None))
    events = told(wire, *(TextAdded(one, "user", one) for one in "abc"))
    assert [one["previous_item_id"] for one in events if one["type"].endswith("added")] == [None, "a", "b"]
    error = error_of(wire, create("d", "zzz"))
    assert error["param"] == "previous_item_id" and "no item" in error["message"]
    (front,) = ask(wire, create("d", "root"))
    (middle,) = ask(wire, create("e", "a"))
    assert isinstance(front, AddText) and isinstance(middle, AddText)
    assert (front.after, middle.after) == ("root", "a")
    events = told(wire, TextAdded("d", "user", "d"), TextAdded("e", "user", "e"))
    assert [one["previous_item_id"] for one in events] == [None, None, "a", "a"]
    assert ask(wire, create("f", "c"))
    assert told(wire, TextAdded("f", "user", "f"))[0]["previous_item_id"] == "c"


def test_items_that_wait_are_bounded() -> None:
    wire = protocol()
    item = {"type": "message", "role": "user", "content": []}
    for _ in range(64):
        assert ask(wire, {"type": "conversation.item.create", "item": item})
    assert error_of(wire, {"type": "conversation.item.create", "item": item})["code"] == "rate_limit_exceeded"


REFUSED: list[tuple[Json, str, str | None]] = [
    ({"type": "input_audio_buffer.append", "audio": "AAAA"}, "invalid_event_for_transport", "type"),
    ({"type": "conversation.item.retrieve", "item_id": "x"}, "item_retrieve_invalid_item_id", "item_id"),
    ({"type": "conversation.item.delete", "item_id": "x"}, "item_delete_invalid_item_id", "item_id"),
    (
        {"type": "conversation.item.truncate", "item_id": "x", "content_index": 0, "audio_end_ms": 5},
        "item_truncate_invalid_item_id",
        "item_id",
    ),
    (
        {"type": "conversation.item.truncate", "item_id": "x", "content_index": 0, "audio_end_ms": 5.5},
        "invalid_type",
        "audio_end_ms",
    ),
    ({"type": "conversation.item.delete"}, "missing_required_parameter", "item_id"),
    (
        {"type": "response.create", "response": {"conversation": "mine"}},
        "invalid_value",
        "response.conversation",
    ),
    (
        {"type": "response.create", "response": {"input": [{"type": "item_reference", "id": "x"}]}},
        "invalid_value",
        "response.input[0].id",
    ),
    ({"type": "response.create", "response": {"metadata": {"k": 1}}}, "invalid_type", "response.metadata.k"),
    ({"type": "response.create", "response": {"latency_first": 0}}, "invalid_type", "response.latency_first"),
    (
        {"type": "response.create", "response": {"latency_first": None}},
        "invalid_type",
        "response.latency_first",
    ),
    ({"type": "response.create", "respons": {}}, "unknown_parameter", "respons"),
    (
        {"type": "conversation.item.create", "item": {"type": "message"}},
        "missing_required_parameter",
        "item.role",
    ),
    (
        {"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": "c"}},
        "missing_required_parameter",
        "item.output",
    ),
    (
        {"type": "conversation.item.create", "item": {"type": "function_call"}},
        "missing_required_parameter",
        "item.call_id",
    ),
    (
        {
            "type": "conversation.item.create",
            "item": {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_image", "image_url": "data:,"}],
            },
        },
        "unsupported_value",
        "item.content[0].type",
    ),
    (
        {
            "type": "conversation.item.create",
            "item": {"type": "message", "role": "user", "content": [{"type": "input_text"}]},
        },
        "missing_required_parameter",
        "item.content[0].text",
    ),
    ({"type": "response.creat"}, "invalid_value", "type"),
    ({"type": 3}, "invalid_event", "type"),
    ({}, "invalid_event", "type"),
    ({"type": "response.cancel", "event_id": 5}, "invalid_type", "event_id"),
    ({"type": "response.cancel", "event_id": "x" * 513}, "invalid_value", "event_id"),
]


@pytest.mark.parametrize(("event", "code", "param"), REFUSED)
def test_a_bad_event_is_answered_with_an_error_that_names_the_parameter(
    event: Json, code: str, param: str
) -> None:
    error = error_of(protocol(), event)
    assert (error["code"], error["param"]) == (code, param)
    assert error["message"]


def test_an_unknown_event_type_gets_the_nearest_one() -> None:
    assert "'response.create'" in error_of(protocol(), {"type": "response.creat"})["message"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "null",
        '"text"',
        "[" * 100_000,
        '{"type":' * 5000,
        '{"type":"response.create","x":NaN}',
        '{"type":"session.update","session":{"type":"realtime","tracing":{"metadata":{"n":1e999}}}}',
        '{"type":"session.update","session":{"type":"realtime","tracing":{"metadata":{"n":%s}}}}'
        % ("9" * 400),
        '{"type":"\\ud800"}',
        '{"type":"\ud800"}',
        '{"type":"response.create","%s":1}' % ("k" * 100_000),
        "x" * (256 * 1024 + 1),
    ],
)
def test_garbage_is_one_small_error_and_the_session_goes_on(text: str) -> None:
    wire = protocol()
    assert wire.receive(text) == []
    (answer,) = wire.events_to_send()
    assert answer["type"] == "error" and len(json.dumps(answer)) < 4096
    assert ask(wire, {"type": "response.create"}) == [CreateReply()]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=6,
)
KNOWN_NAMES = sorted({name for path in dotted_names(SessionPatch) for name in path.split(".")})


@given(st.text(max_size=300))
def test_receive_never_raises_for_any_text(text: str) -> None:
    wire = protocol()
    commands = wire.receive(text)
    assert bool(commands) != bool(wire.events_to_send()) or "retrieve" in text


@given(
    st.sampled_from(sorted(EVENTS)),
    st.dictionaries(
        st.sampled_from(["session", "item", "response", "item_id", "audio", "event_id", "x"]), JSON_VALUES
    ),
    st.dictionaries(
        st.sampled_from([*KNOWN_NAMES, "id", "role", "content", "input", "metadata"]), JSON_VALUES
    ),
    st.sampled_from(["realtime", "message", "function_call_output", "server_vad", None]),
)
def test_receive_never_raises_for_any_event(
    kind: str, rest: Json, inner: Json, inner_type: str | None
) -> None:
    wire = protocol()
    nested = inner | ({"type": inner_type} if inner_type else {})
    event = {"type": kind} | rest | {key: nested for key in ("session", "item", "response") if key in rest}
    wire.receive(json.dumps(event))
    for answer in [*answers(wire), opened(wire)]:
        assert answer["event_id"]


@given(
    st.sampled_from(sorted(EVENTS)),
    st.dictionaries(st.sampled_from(["session", "item", "response", "item_id", "audio", "x"]), JSON_VALUES),
    st.dictionaries(st.sampled_from([*KNOWN_NAMES, *FLAT, "temperature", "id", "content"]), JSON_VALUES),
)
def test_receive_never_raises_over_a_socket_in_the_beta_spelling(kind: str, rest: Json, inner: Json) -> None:
    wire = RealtimeProtocol("s", "m", SETTINGS, Transport(ReplyEncoder, sees=True))
    dialect = Beta()
    event = {"type": kind} | rest | {key: inner for key in ("session", "item", "response") if key in rest}
    commands = wire.receive(json.dumps(event), dialect.read)
    answers = [one for event in wire.events_to_send() for one in dialect.write(event)]
    assert all(answer["type"] in {"error", "conversation.item.retrieved"} for answer in answers)
    assert not (commands and answers)
    assert dialect.write(wire.opening())[0]["session"]["modalities"] in (["text", "audio"], ["text"])


@pytest.mark.parametrize("audio", [None, 3, "x", {"output": None}, {"output": []}])
def test_beta_and_ga_spelling_mixed_in_one_session_is_no_crash(audio: Any) -> None:
    wire = RealtimeProtocol("s", "m", SETTINGS, Transport(ReplyEncoder, sees=True))
    event = {"type": "session.update", "session": {"audio": audio, "output_audio_format": "pcm16"}}
    commands = wire.receive(json.dumps(event), Beta().read)
    assert bool(commands) != bool(wire.events_to_send())


def test_a_refused_item_is_forgotten_and_its_error_names_the_clients_event() -> None:
    protocol = RealtimeProtocol("s", "m", SessionSettings("", "v"))
    for number in range(200):
        item = {"type": "function_call_output", "call_id": "unknown", "output": "1"}
        text = json.dumps({"type": "conversation.item.create", "event_id": f"e{number}", "item": item})
        (command,) = protocol.receive(text)
        assert isinstance(command, AddToolResult) and command.client_event_id == f"e{number}"
        refusal = SessionError(
            "invalid_value", "no", "item.call_id", command.client_event_id, command.item_id
        )
        (frame,) = protocol.translate(refusal)
        assert frame["error"]["event_id"] == f"e{number}"
        assert protocol.events_to_send() == []
