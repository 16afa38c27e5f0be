"""Talking to a RealtimeProtocol in JSON, for its tests."""

import json
from dataclasses import replace
from typing import Any

from voice_agent.api.realtime import RealtimeProtocol, Transport
from voice_agent.commands import SessionCommand, UpdateSettings
from voice_agent.events import SessionEvent, SettingsChanged
from voice_agent.session_settings import SessionSettings

Json = dict[str, Any]
SETTINGS = SessionSettings(instructions="Be brief.", voice="joe")
TOOL = {"type": "function", "name": "clock", "description": "The time.", "parameters": {"type": "object"}}
WANT_TRANSCRIPTS = {"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}


def protocol(transport: Transport | None = None) -> RealtimeProtocol:
    return RealtimeProtocol("sess_1", "voice-agent", SETTINGS, transport)


def ask(wire: RealtimeProtocol, event: Json) -> list[SessionCommand]:
    return wire.receive(json.dumps(event))


def told(wire: RealtimeProtocol, *events: SessionEvent) -> list[Json]:
    return [frame for event in events for frame in through_json(wire.translate(event))]


def through_json(events: list[Json]) -> list[Json]:
    """As a client gets them: written down at once."""
    return json.loads(json.dumps(events))


def opened(wire: RealtimeProtocol) -> Json:
    return through_json([wire.opening()])[0]


def answers(wire: RealtimeProtocol) -> list[Json]:
    return through_json(wire.events_to_send())


def types(events: list[Json]) -> list[str]:
    return [event["type"] for event in events]


def error_of(wire: RealtimeProtocol, event: Json) -> Json:
    assert ask(wire, event) == []
    (answer,) = answers(wire)
    assert answer["type"] == "error"
    return answer["error"]


def obey(
    wire: RealtimeProtocol, session: Json, now: SessionSettings = SETTINGS
) -> tuple[SessionSettings, Json]:
    """Send session.update and answer it as a session does."""
    (command,) = ask(wire, {"type": "session.update", "session": {"type": "realtime"} | session})
    assert isinstance(command, UpdateSettings), wire.events_to_send()
    changed = replace(now, **command.changes)
    (updated,) = told(wire, SettingsChanged(changed))
    return changed, updated["session"]
