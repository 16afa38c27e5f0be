"""Every event we send, in both spellings, through the pydantic types of OpenAI's own SDK: strict, as clients parse."""

import json
from typing import Any, get_args

import numpy as np
import pytest
from openai.types.beta.realtime import RealtimeServerEvent as BetaServerEvent
from openai.types.realtime import RealtimeClientEvent, RealtimeServerEvent
from pydantic import TypeAdapter

from tests.realtime_wire import SETTINGS, TOOL, Json, ask, through_json, types
from voice_agent.api.realtime import RealtimeProtocol, Transport
from voice_agent.api.schema import EVENTS
from voice_agent.api.wire_beta import Beta
from voice_agent.audio import PcmChunk
from voice_agent.commands import CreateReply
from voice_agent.events import (
    IdleTimedOut,
    InputCleared,
    ItemDeleted,
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    ReplyDone,
    ReplySound,
    ReplyStarted,
    ReplyText,
    ReplyToolCall,
    ReplyTruncated,
    SessionError,
    SessionEvent,
    SettingsChanged,
    SpeechStarted,
    SpeechStopped,
    TextAdded,
    TranscriptionFailed,
    TurnCommitted,
    TurnTranscribed,
)
from voice_agent.media.wire_sound import ReplyEncoder


def by_type(union: Any) -> dict[str, TypeAdapter[Any]]:
    """A union's members by their type's name."""
    members = get_args(get_args(union)[0])
    return {get_args(model.model_fields["type"].annotation)[0]: TypeAdapter(model) for model in members}


GA = by_type(RealtimeServerEvent)
BETA = by_type(BetaServerEvent)
SOUND = PcmChunk(np.full(22_050, 900, dtype=np.int16), 22_050)

# what we never send: tools run by the server, telephones, speakers told apart, and the beta's own names
NOT_OURS = {
    "conversation.created",
    "conversation.item.created",
    "conversation.item.input_audio_transcription.segment",
    "input_audio_buffer.dtmf_event_received",
}
ASKED = CreateReply(metadata={"topic": "x"}, aside=True)
WALK: list[SessionEvent] = [
    SettingsChanged(SETTINGS),
    SpeechStarted("t1", 320),
    SpeechStopped("t1", 2100),
    TurnCommitted("t1"),
    TurnTranscribed("t1", "What time is it?", 1.78),
    ReplyStarted("r1", "t1"),
    ReplyText("r1", "It is "),
    ReplySound("r1", SOUND),
    PlayoutStarted("r1"),
    ReplyText("r1", "noon."),
    ReplyToolCall("r1", "call_1", "clock", '{"zone":"KST"}'),
    ReplyDone("r1", "completed", "It is noon.", usage={"input_tokens": 20, "output_tokens": 5}),
    PlayoutStopped("r1"),
    TextAdded("i1", "user", "Hi"),
    TextAdded("i2", "assistant", "Hi"),
    TextAdded("i3", "system", "Be kind."),
    ReplyStarted("r2", None, ASKED.metadata, text_only=True, request=ASKED),
    ReplyText("r2", "Hello"),
    ReplyDone("r2", "incomplete", "Hello", reason="max_output_tokens"),
    ReplyStarted("r3", None),
    ReplyText("r3", "One two"),
    ReplySound("r3", SOUND),
    PlayoutStarted("r3"),
    PlayoutCleared("r3"),
    ReplyDone("r3", "cancelled", "One two", reason="turn_detected"),
    ReplyTruncated("r3", "One", 640, by_client=True),
    ReplyStarted("r4", None),
    ReplyDone("r4", "failed", "", reason="engine_died", error="gone"),
    IdleTimedOut("t2", 4000, 9000),
    TurnCommitted("t2"),
    TranscriptionFailed("t2", "engine_died", "gone"),
    ItemDeleted("i1"),
    InputCleared(),
    SessionError("response_cancel_not_active", "Cancellation failed: nothing", None, "e"),
]


def walk(transport: Transport, model: str = "voice-agent") -> list[Json]:
    """Everything that a session of this transport can make us send."""
    wire = RealtimeProtocol("sess_1", model, SETTINGS, transport)
    events = through_json([wire.opening()])
    tracing = {"workflow_name": "w", "group_id": "g", "metadata": {"a": "b"}}
    wishes: Json = {
        "tools": [TOOL],
        "tracing": tracing,
        "prompt": {"id": "p", "variables": {"a": "b"}},
        "truncation": {"type": "retention_ratio", "retention_ratio": 0.5},
        "audio": {
            "input": {
                "transcription": {"model": "whisper-1"},
                "turn_detection": {"type": "server_vad"},
                "noise_reduction": {"type": "near_field"},
                "format": {"type": "audio/pcma"},
            },
            "output": {"format": {"type": "audio/pcmu"}, "voice": {"id": "v"}},
        },
    }
    ask(wire, {"type": "session.update", "session": {"type": "realtime"} | wishes})
    for event in WALK:
        events += through_json(wire.translate(event))
    for item in ("item_t1", "item_r1", "item_r1_1", "item_r3", "i2"):
        ask(wire, {"type": "conversation.item.retrieve", "item_id": item})
    ask(wire, {"type": "response.cancel", "event_id": 7})
    return events + through_json(wire.events_to_send())


TRANSPORTS = {"webrtc": Transport(), "websocket": Transport(ReplyEncoder, expires_at=1_800_000_000)}


@pytest.mark.parametrize("name", TRANSPORTS)
def test_every_event_validates_against_the_sdks_own_types(name: str) -> None:
    for event in walk(TRANSPORTS[name]):
        GA[event["type"]].validate_json(json.dumps(event), strict=True)
        assert event["event_id"]
        assert None not in event.get("item", {}).values()


def test_together_the_transports_send_every_event_there_is() -> None:
    sent = {kind for transport in TRANSPORTS.values() for kind in types(walk(transport))}
    assert {name for name in GA if "mcp" not in name} - NOT_OURS == sent


@pytest.mark.parametrize("name", TRANSPORTS)
def test_the_beta_spelling_validates_against_the_betas_types_and_holds_no_other_name(name: str) -> None:
    dialect = Beta()
    events = walk(TRANSPORTS[name], "gpt-realtime")  # the beta's types know only OpenAI's own models
    for event in (spelled for one in events for spelled in dialect.write(one)):
        if event["type"] != "input_audio_buffer.timeout_triggered":  # younger than the beta
            BETA[event["type"]].validate_json(json.dumps(event))


def test_we_take_every_event_that_the_sdk_can_send() -> None:
    assert set(by_type(RealtimeClientEvent)) == set(EVENTS)
