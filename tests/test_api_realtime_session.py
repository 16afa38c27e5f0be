from dataclasses import replace
from typing import Any

import pytest

from tests.realtime_wire import (
    SETTINGS,
    TOOL,
    Json,
    ask,
    error_of,
    obey,
    opened,
    protocol,
    told,
)
from voice_agent.api.realtime import RealtimeProtocol, Transport
from voice_agent.api.wire_session import Names
from voice_agent.commands import CreateReply, UpdateSettings
from voice_agent.engines import heard_language
from voice_agent.errors import RemoteProtocolError
from voice_agent.events import SettingsChanged
from voice_agent.voices import Voices


def test_session_created_carries_the_whole_effective_object() -> None:
    event = opened(protocol())
    session = event["session"]
    assert event["type"] == "session.created" and event["event_id"]
    assert (session["type"], session["object"], session["id"]) == ("realtime", "realtime.session", "sess_1")
    assert session["instructions"] == "Be brief." and session["output_modalities"] == ["audio"]
    assert session["audio"]["output"] == {
        "format": {"type": "audio/pcm", "rate": 24000},
        "voice": "joe",
        "speed": 1.0,
    }
    detection = session["audio"]["input"]["turn_detection"]
    assert detection == {
        "type": "semantic_vad",
        "eagerness": "auto",
        "create_response": True,
        "interrupt_response": True,
    }


SERVER_VAD = {"type": "server_vad"}
UPDATES: list[tuple[str, Json, Json]] = [
    ("nothing", {}, {}),
    ("instructions", {"instructions": "Rhyme."}, {"instructions": "Rhyme."}),
    ("empty instructions clear", {"instructions": ""}, {"instructions": ""}),
    ("null instructions keep", {"instructions": None}, {}),
    ("text", {"output_modalities": ["text"]}, {"text_only": True}),
    ("voice", {"audio": {"output": {"voice": "amy"}}}, {"voice": "amy"}),
    ("voice by id", {"audio": {"output": {"voice": {"id": "voice_9"}}}}, {"voice": "voice_9"}),
    ("speed", {"audio": {"output": {"speed": 1.25}}}, {"speed": 1.25}),
    (
        "server vad",
        {"audio": {"input": {"turn_detection": SERVER_VAD}}},
        {"turn_detection": "server", "vad_threshold": 0.5, "prefix_ms": 300, "silence_ms": 500},
    ),
    (
        "eager",
        {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "high"}}}},
        {"eagerness": "high"},
    ),
    (
        "no interrupt",
        {"audio": {"input": {"turn_detection": {"interrupt_response": False}}}},
        {"interrupt_response": False},
    ),
    ("push to talk", {"audio": {"input": {"turn_detection": None}}}, {"turn_detection": "none"}),
    ("tokens", {"max_output_tokens": 100}, {"max_output_tokens": 100}),
    ("endless tokens are the server's limit", {"max_output_tokens": "inf"}, {}),
    (
        "tools",
        {"tools": [TOOL]},
        {"tools": ({"type": "function", "function": {key: TOOL[key] for key in TOOL if key != "type"}},)},
    ),
    ("tool choice", {"tool_choice": "required"}, {"tool_choice": "required"}),
    ("named tool", {"tool_choice": {"type": "function", "name": "clock"}}, {"tool_choice": "clock"}),
    ("latency", {"latency_first": False}, {"latency_first": False}),
    ("same model", {"model": "voice-agent"}, {}),
    ("tracing only", {"tracing": "auto"}, {}),
]


@pytest.mark.parametrize(
    ("session", "changes"), [row[1:] for row in UPDATES], ids=[row[0] for row in UPDATES]
)
def test_session_update_changes_only_what_it_names(session: Json, changes: Json) -> None:
    command = ask(protocol(), {"type": "session.update", "session": {"type": "realtime"} | session})
    assert command == [UpdateSettings(changes)]


ECHOED: list[tuple[Json, list[str], Any]] = [
    ({"tracing": "auto"}, ["tracing"], "auto"),
    ({"tracing": {"workflow_name": "w"}}, ["tracing"], {"workflow_name": "w"}),
    ({"prompt": {"id": "p", "version": "2"}}, ["prompt"], {"id": "p", "version": "2"}),
    ({"truncation": "disabled"}, ["truncation"], "disabled"),
    (
        {"truncation": {"type": "retention_ratio", "retention_ratio": 0.5}},
        ["truncation"],
        {"type": "retention_ratio", "retention_ratio": 0.5},
    ),
    ({"include": ["x"]}, ["include"], ["x"]),
    ({"max_output_tokens": "inf"}, ["max_output_tokens"], "inf"),
    ({"tools": [TOOL]}, ["tools"], [TOOL]),
    ({"latency_first": False}, ["latency_first"], False),
    ({"audio": {"output": {"voice": {"id": "v"}}}}, ["audio", "output", "voice"], "v"),
    (
        {"audio": {"input": {"transcription": {"model": "whisper-1", "language": "en"}}}},
        ["audio", "input", "transcription"],
        {"model": "whisper-1", "language": "en"},
    ),
    (
        {"audio": {"input": {"noise_reduction": {"type": "near_field"}}}},
        ["audio", "input", "noise_reduction"],
        {"type": "near_field"},
    ),
    (
        {"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 0.8}}}},
        ["audio", "input", "turn_detection"],
        {
            "type": "server_vad",
            "threshold": 0.8,
            "prefix_padding_ms": 300,
            "silence_duration_ms": 500,
            "idle_timeout_ms": None,
            "create_response": True,
            "interrupt_response": True,
        },
    ),
    ({"audio": {"input": {"turn_detection": None}}}, ["audio", "input", "turn_detection"], None),
    (
        {"audio": {"output": {"format": {"type": "audio/pcmu"}}}},
        ["audio", "output", "format"],
        {"type": "audio/pcmu"},
    ),
    (
        {"audio": {"input": {"format": {"type": "audio/pcm"}}}},
        ["audio", "input", "format"],
        {"type": "audio/pcm", "rate": 24000},
    ),
]


@pytest.mark.parametrize(("session", "path", "value"), ECHOED)
def test_session_updated_echoes_what_was_set(session: Json, path: list[str], value: Any) -> None:
    _, shown = obey(protocol(), session)
    for key in path:
        shown = shown[key]
    assert shown == value


def test_a_partial_turn_detection_keeps_its_type_and_null_switches_off_and_type_brings_it_back() -> None:
    wire = protocol()
    now, _ = obey(wire, {"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 0.9}}}})
    now, shown = obey(wire, {"audio": {"input": {"turn_detection": {"silence_duration_ms": 300}}}}, now)
    detection = shown["audio"]["input"]["turn_detection"]
    assert (detection["type"], detection["threshold"], detection["silence_duration_ms"]) == (
        "server_vad",
        0.9,
        300,
    )
    now, _ = obey(wire, {"audio": {"input": {"turn_detection": None}}}, now)
    assert now.turn_detection == "none"
    now, shown = obey(wire, {"audio": {"input": {"turn_detection": {"type": "semantic_vad"}}}}, now)
    assert now.turn_detection == "semantic"
    assert shown["audio"]["input"]["turn_detection"]["interrupt_response"] is True


def test_session_updated_shows_what_the_session_really_does() -> None:
    wire = protocol()
    ask(
        wire,
        {"type": "session.update", "session": {"type": "realtime", "audio": {"output": {"voice": "nobody"}}}},
    )
    (updated,) = told(
        wire, SettingsChanged(replace(SETTINGS, voice="joe", turn_detection="none", text_only=True))
    )
    session = updated["session"]
    assert session["audio"]["output"]["voice"] == "joe"
    assert session["audio"]["input"]["turn_detection"] is None
    assert session["output_modalities"] == ["text"]


def speaking(name: str) -> Json:
    return {"audio": {"output": {"voice": name}}}


def with_voices() -> RealtimeProtocol:
    voices = Voices(lambda: ("joe", "amy"), lambda: ("en",), "MIT", {"boss": "amy"})
    return protocol(Transport(names=Names(voices.named)))


@pytest.mark.parametrize(
    ("name", "meant"), [("amy", "amy"), ("boss", "amy"), ("alloy", "joe"), ("preset_spk_1", "joe")]
)
def test_a_voice_may_be_called_by_an_alias_which_is_shown_as_it_was_said(name: str, meant: str) -> None:
    wire = with_voices()
    now, shown = obey(wire, speaking(name))
    assert now.voice == meant and shown["audio"]["output"]["voice"] == name
    (command,) = ask(wire, {"type": "response.create", "response": speaking(name)})
    assert isinstance(command, CreateReply) and command.changes == {"voice": meant}


def test_an_unknown_voice_changes_nothing_and_names_its_field() -> None:
    wire = with_voices()
    session = {"type": "realtime", "instructions": "Sing.", **speaking("amyy")}
    error = error_of(wire, {"type": "session.update", "session": session})
    assert (error["code"], error["param"]) == ("invalid_value", "session.audio.output.voice")
    assert "joe, amy; did you mean 'amy'?" in error["message"]
    assert wire.session()["instructions"] == "Be brief."
    error = error_of(wire, {"type": "response.create", "response": speaking("nobody")})
    assert (error["code"], error["param"]) == ("invalid_value", "response.audio.output.voice")


def test_a_language_that_is_not_heard_changes_nothing_and_names_its_field() -> None:
    wire = protocol(
        Transport(names=Names(language=lambda name, param: heard_language(name, ("en", "ko"), param)))
    )
    heard: Json = {"audio": {"input": {"transcription": {"model": "whisper-1", "language": "ko"}}}}
    assert obey(wire, heard)[0].language == "ko"
    heard["audio"]["input"]["transcription"]["language"] = "xx"
    error = error_of(wire, {"type": "session.update", "session": {"type": "realtime", **heard}})
    assert error["param"] == "session.audio.input.transcription.language"
    assert "this server hears en, ko" in error["message"]
    assert wire.session()["audio"]["input"]["transcription"]["language"] == "ko"


def test_a_call_is_configured_by_its_session_before_it_starts() -> None:
    wire = protocol()
    changes = wire.configure('{"instructions": "Sing.", "audio": {"output": {"voice": "amy"}}}')
    assert changes == {"instructions": "Sing.", "voice": "amy"}
    assert opened(wire)["session"]["instructions"] == "Sing."
    with pytest.raises(RemoteProtocolError) as refused:
        wire.configure('{"audio": {"output": {"speed": 9}}}')
    assert refused.value.param == "session.audio.output.speed"
    with pytest.raises(RemoteProtocolError) as refused:
        wire.configure("[" * 3000)
    assert refused.value.param == "session"


BAD_UPDATES: list[tuple[Json, str, str, str]] = [
    ({}, "missing_required_parameter", "session.type", ""),
    ({"type": "transcription"}, "invalid_value", "session.type", ""),
    ({"type": "realtime", "voice": "x"}, "unknown_parameter", "session.voice", "session.audio.output.voice"),
    (
        {"type": "realtime", "modalities": ["audio"]},
        "unknown_parameter",
        "session.modalities",
        "session.output_modalities",
    ),
    (
        {"type": "realtime", "turn_detection": None},
        "unknown_parameter",
        "session.turn_detection",
        "session.audio.input.turn_detection",
    ),
    (
        {"type": "realtime", "audio": {"output": {"voise": "x"}}},
        "unknown_parameter",
        "session.audio.output.voise",
        "session.audio.output.voice",
    ),
    ({"type": "realtime", "temperature": 1}, "unknown_parameter", "session.temperature", ""),
    ({"type": "realtime", "model": "other"}, "invalid_value", "session.model", "voice-agent"),
    ({"type": "realtime", "instructions": 7}, "invalid_type", "session.instructions", ""),
    ({"type": "realtime", "latency_first": "yes"}, "invalid_type", "session.latency_first", ""),
    ({"type": "realtime", "latency_first": 1}, "invalid_type", "session.latency_first", ""),
    ({"type": "realtime", "latency_first": None}, "invalid_type", "session.latency_first", ""),
    (
        {"type": "realtime", "output_modalities": ["text", "audio"]},
        "invalid_value",
        "session.output_modalities",
        "",
    ),
    (
        {"type": "realtime", "output_modalities": ["smell"]},
        "invalid_value",
        "session.output_modalities[0]",
        "",
    ),
    (
        {"type": "realtime", "audio": {"output": {"speed": 3}}},
        "invalid_value",
        "session.audio.output.speed",
        "",
    ),
    ({"type": "realtime", "max_output_tokens": 0}, "invalid_value", "session.max_output_tokens", ""),
    (
        {"type": "realtime", "tool_choice": {"type": "function"}},
        "missing_required_parameter",
        "session.tool_choice.name",
        "",
    ),
    ({"type": "realtime", "tools": [TOOL, {"type": "mcp"}]}, "invalid_value", "session.tools[1].type", ""),
    (
        {"type": "realtime", "tools": [{"type": "function"}]},
        "missing_required_parameter",
        "session.tools[0].name",
        "",
    ),
    (
        {"type": "realtime", "tools": [{"type": "function", "function": {"name": "x"}}]},
        "",
        "session.tools[0]",
        "",
    ),
    (
        {
            "type": "realtime",
            "audio": {"input": {"turn_detection": {"type": "semantic_vad", "threshold": 0.5}}},
        },
        "unknown_parameter",
        "session.audio.input.turn_detection.threshold",
        "",
    ),
    (
        {"type": "realtime", "audio": {"input": {"turn_detection": {"type": "psychic"}}}},
        "invalid_value",
        "session.audio.input.turn_detection.type",
        "",
    ),
    (
        {"type": "realtime", "audio": {"input": {"format": {"type": "audio/pcm", "rate": 16000}}}},
        "invalid_value",
        "session.audio.input.format.rate",
        "",
    ),
]


@pytest.mark.parametrize(("session", "code", "param", "hint"), BAD_UPDATES)
def test_a_bad_update_is_refused_whole_and_names_the_parameter(
    session: Json, code: str, param: str, hint: str
) -> None:
    wire = protocol()
    before = opened(wire)
    error = error_of(
        wire, {"type": "session.update", "event_id": "mine", "session": session | {"tracing": "auto"}}
    )
    assert error["code"] == code or not code
    assert error["param"].startswith(param) if not code else error["param"] == param
    assert hint in error["message"]
    assert error["event_id"] == "mine" and error["type"] == "invalid_request_error"
    assert opened(wire)["session"] == before["session"]
    assert ask(wire, {"type": "response.create"}) == [CreateReply()]


def test_a_partial_turn_detection_needs_a_type_when_it_is_off() -> None:
    wire = protocol()
    obey(wire, {"audio": {"input": {"turn_detection": None}}})
    update = {
        "type": "session.update",
        "session": {"type": "realtime", "audio": {"input": {"turn_detection": {}}}},
    }
    assert error_of(wire, update)["param"] == "session.audio.input.turn_detection.type"
