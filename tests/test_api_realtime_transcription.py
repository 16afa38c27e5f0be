"""Sessions for transcription alone, sound in items, and how sound is counted: at the level of the protocol."""

import json
from base64 import b64encode
from typing import Any

import numpy as np
import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from tests.realtime_wire import SETTINGS, Json, answers, ask, error_of, obey, opened, protocol, told, types
from voice_agent.api.realtime import RealtimeProtocol, Transport
from voice_agent.api.wire_beta import Beta
from voice_agent.commands import AddSpoken, AddText, CreateReply, Sound
from voice_agent.events import (
    ReplyDone,
    ReplyStarted,
    SettingsChanged,
    SoundFailed,
    SoundTranscribed,
    TextAdded,
    TurnCommitted,
    TurnTranscribed,
)
from voice_agent.media.wire_sound import ReplyEncoder

SERVER_EVENT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
PCM = np.full(2400, 900, dtype="<i2").tobytes()
B64 = b64encode(PCM).decode()


def transcription(**session: Any) -> tuple[RealtimeProtocol, dict[str, Any]]:
    """A session that begins as one for transcription; the protocol and the settings it changes."""
    wire = RealtimeProtocol(
        "sess_1", "voice-agent", SETTINGS, Transport(ReplyEncoder, expires_at=2_000_000_000)
    )
    return wire, wire.configure(json.dumps({"type": "transcription"} | session))


def message(*content: Json, **item: Any) -> Json:
    whole = {"type": "message", "role": "user", "content": list(content)} | item
    return {"type": "conversation.item.create", "event_id": "e", "item": whole}


def test_it_shows_what_such_a_session_has_and_no_more() -> None:
    wire, changes = transcription()
    assert changes["create_response"] is False and changes["answers"] is False
    created = opened(wire)
    SERVER_EVENT.validate_json(json.dumps(created), strict=True)
    session = created["session"]
    assert set(session) == {"id", "object", "type", "expires_at", "include", "audio"}
    assert (session["type"], session["object"]) == ("transcription", "realtime.transcription_session")
    assert set(session["audio"]) == {"input"} and session["audio"]["input"]["transcription"] == {
        "model": "voice-agent"
    }


def test_its_input_can_be_changed_and_create_response_never_holds() -> None:
    wire, changes = transcription()
    settings = SETTINGS.__class__(**{**_fields(SETTINGS), **changes})
    detection = {"type": "server_vad", "silence_duration_ms": 300, "create_response": True}
    wishes = {
        "format": {"type": "audio/pcmu"},
        "transcription": {"model": "gpt-4o-transcribe", "language": "ko", "prompt": "names"},
        "noise_reduction": {"type": "near_field"},
        "turn_detection": detection,
    }
    update = {"type": "session.update", "session": {"type": "transcription", "audio": {"input": wishes}}}
    (command,) = ask(wire, update)
    changes = command.changes  # pyright: ignore[reportAttributeAccessIssue]
    assert changes["silence_ms"] == 300 and changes["language"] == "ko" and "create_response" not in changes
    settings = SETTINGS.__class__(**{**_fields(settings), **changes})
    (updated,) = told(wire, SettingsChanged(settings))
    SERVER_EVENT.validate_json(json.dumps(updated), strict=True)
    shown = updated["session"]["audio"]["input"]
    assert shown["turn_detection"]["create_response"] is False and shown["format"] == {"type": "audio/pcmu"}


def _fields(settings: Any) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({"instructions": "Hi"}, "unknown_parameter", "session.instructions"),
        ({"tools": []}, "unknown_parameter", "session.tools"),
        ({"audio": {"output": {"voice": "v"}}}, "unknown_parameter", "session.audio.output"),
        ({"type": "realtime"}, "invalid_value", "session.type"),
        ({"type": "other"}, "invalid_value", "session.type"),
        ({"zzz": 1}, "unknown_parameter", "session.zzz"),
    ],
)
def test_what_it_does_not_have_is_refused_by_name(session: Json, code: str, param: str) -> None:
    wire, _ = transcription()
    update = {"type": "session.update", "session": {"type": "transcription"} | session}
    error = error_of(wire, update)
    assert (error["code"], error["param"]) == (code, param)


@pytest.mark.parametrize("name", ["instructions", "tools", "output_modalities", "include"])
def test_null_is_taken_where_nothing_can_be(name: str) -> None:
    wire, _ = transcription()
    ask(wire, {"type": "session.update", "session": {"type": "transcription", name: None}})
    assert answers(wire) == []


def test_a_session_that_talks_cannot_become_one_and_says_how_to_get_one() -> None:
    error = error_of(protocol(), {"type": "session.update", "session": {"type": "transcription"}})
    assert error["param"] == "session.type" and "intent=transcription" in error["message"]


def test_it_makes_no_responses() -> None:
    wire, _ = transcription()
    error = error_of(wire, {"type": "response.create", "event_id": "e"})
    assert error["event_id"] == "e" and error["param"] == "type" and "transcription" in error["message"]


def test_the_session_of_a_call_goes_on_as_its_key_has_it() -> None:
    wire, _ = transcription()
    wire.configure('{"audio": {"input": {"turn_detection": null}}}')
    session = wire.session()
    assert session["type"] == "transcription" and session["audio"]["input"]["turn_detection"] is None


def test_its_words_are_told() -> None:
    wire, _ = transcription()
    events = told(wire, TurnCommitted("t"), TurnTranscribed("t", "Hi there.", 1.52, 3))
    assert types(events)[-2:] == [
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
    ]
    assert events[-1]["usage"] == {
        "type": "tokens",
        "input_tokens": 16,
        "output_tokens": 3,
        "total_tokens": 19,
        "input_token_details": {"text_tokens": 0, "audio_tokens": 16},
    }


def test_the_betas_spelling_of_it() -> None:
    wire, _ = transcription()
    beta = Beta()
    (created,) = beta.write(opened(wire))
    assert created["type"] == "transcription_session.created"
    assert created["session"]["input_audio_format"] == "pcm16" and "audio" not in created["session"]
    update = {
        "type": "transcription_session.update",
        "session": {"input_audio_format": "g711_ulaw", "input_audio_transcription": {"model": "whisper-1"}},
    }
    commands = wire.receive(json.dumps(update), beta.read)
    assert answers(wire) == [] and len(commands) == 1
    (updated,) = told(wire, SettingsChanged(SETTINGS))
    (spelled,) = beta.write(updated)
    assert spelled["type"] == "transcription_session.updated"
    assert spelled["session"]["input_audio_transcription"] == {"model": "whisper-1"}


# --- sound in items


def test_sound_in_an_item_is_taken_in_the_sessions_format_and_its_words_come_later() -> None:
    wire = protocol()
    obey(
        wire,
        {"audio": {"input": {"format": {"type": "audio/pcma"}, "transcription": {"model": "whisper-1"}}}},
    )
    content = ({"type": "input_text", "text": "Hear:"}, {"type": "input_audio", "audio": B64})
    (command,) = ask(wire, message(*content, id="mine"))
    assert command == AddSpoken("mine", ("Hear:", Sound(PCM, "audio/pcma", 1)), "e")
    added, done = told(wire, TextAdded("mine", "user", "Hear:"))
    assert types([added, done]) == ["conversation.item.added", "conversation.item.done"]
    assert added["item"]["content"][1] == {"type": "input_audio", "transcript": None}
    events = told(wire, SoundTranscribed("mine", 1, "a frog", 0.3, 2))
    assert [event["content_index"] for event in events] == [1, 1]
    assert events[1]["usage"] == {"type": "duration", "seconds": 0.3}
    for event in [added, done, *events]:
        SERVER_EVENT.validate_json(json.dumps(event), strict=True)
    ask(wire, {"type": "conversation.item.retrieve", "item_id": "mine"})
    (retrieved,) = answers(wire)
    assert retrieved["item"]["content"][1]["transcript"] == "a frog"


def test_its_failure_is_told_with_its_part() -> None:
    wire = protocol()
    obey(wire, {"audio": {"input": {"transcription": {}}}})
    ask(wire, message({"type": "input_text", "text": "Hear:"}, {"type": "input_audio", "audio": B64}, id="m"))
    told(wire, TextAdded("m", "user", "Hear:"))
    (failed,) = told(wire, SoundFailed("m", 1, "engine_died", "gone"))
    SERVER_EVENT.validate_json(json.dumps(failed), strict=True)
    assert failed["content_index"] == 1 and failed["error"]["code"] == "engine_died"


def test_who_wants_no_transcripts_is_told_none_and_can_still_retrieve_the_words() -> None:
    wire = protocol()
    ask(wire, message({"type": "input_audio", "audio": B64}, id="m"))
    told(wire, TextAdded("m", "user", ""))
    assert told(wire, SoundTranscribed("m", 0, "a frog", 0.3), SoundFailed("m", 0, "x", "y")) == []
    ask(wire, {"type": "conversation.item.retrieve", "item_id": "m"})
    assert answers(wire)[0]["item"]["content"] == [{"type": "input_audio", "transcript": "a frog"}]


def test_a_transcript_that_is_given_is_believed() -> None:
    part = {"type": "input_audio", "audio": B64, "transcript": "a frog"}
    (command,) = ask(protocol(), message(part, id="m"))
    assert command == AddText("m", "user", "a frog", "e")


def test_sound_in_the_input_of_a_response_is_taken_too() -> None:
    wire = protocol()
    item = {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": B64}]}
    (command,) = ask(wire, {"type": "response.create", "response": {"input": [item]}})
    assert isinstance(command, CreateReply) and command.context
    (spoken,) = command.context
    assert isinstance(spoken, AddSpoken) and spoken.parts == (Sound(PCM, "audio/pcm", 0),)


@pytest.mark.parametrize(
    ("part", "code", "path"),
    [
        ({}, "missing_required_parameter", "audio"),
        ({"audio": ""}, "missing_required_parameter", "audio"),
        ({"audio": "?"}, "invalid_value", "audio"),
        ({"audio": "QUJD"}, "invalid_value", "audio"),
        ({"audio": B64[:-1]}, "invalid_value", "audio"),
        ({"audio": 7}, "invalid_type", "audio"),
    ],
)
def test_sound_that_cannot_be_is_refused_by_its_part(part: Json, code: str, path: str) -> None:
    error = error_of(protocol(), message({"type": "input_audio"} | part))
    assert (error["code"], error["param"]) == (code, f"item.content[0].{path}")


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_only_users_speak(role: str) -> None:
    error = error_of(protocol(), message({"type": "input_audio", "audio": B64}, role=role))
    assert error["param"] == "item.content[0].type"


# --- what it costs


def test_a_responses_usage_counts_sound_by_its_length_beside_the_thinkers_text() -> None:
    wire = protocol()
    told(wire, ReplyStarted("r", None))
    usage = {"input_tokens": 20, "output_tokens": 5, "cached_tokens": 8}
    done = ReplyDone("r", "completed", "It is noon.", usage=usage, heard_s=1.78, said_s=2.01)
    counted = [event for event in told(wire, done) if event["type"] == "response.done"][0]["response"][
        "usage"
    ]
    assert counted == {
        "total_tokens": 20 + 18 + 5 + 41,
        "input_tokens": 38,
        "output_tokens": 46,
        "input_token_details": {"text_tokens": 20, "audio_tokens": 18, "image_tokens": 0, "cached_tokens": 8},
        "output_token_details": {"text_tokens": 5, "audio_tokens": 41},
    }
