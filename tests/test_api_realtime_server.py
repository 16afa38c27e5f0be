import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.realtime_wire import (
    WANT_TRANSCRIPTS,
    Json,
    ask,
    obey,
    protocol,
    told,
    types,
)
from voice_agent.api.realtime import RealtimeProtocol
from voice_agent.events import (
    InputCleared,
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    ReplyToolCall,
    ReplyTruncated,
    SessionError,
    SessionEvent,
    SpeechStarted,
    SpeechStopped,
    TextAdded,
    TranscriptionFailed,
    TurnCommitted,
    TurnTranscribed,
)


def transcribing() -> RealtimeProtocol:
    wire = protocol()
    obey(wire, WANT_TRANSCRIPTS)
    return wire


USER_TURN: list[SessionEvent] = [
    SpeechStarted("t1", 320),
    SpeechStopped("t1", 2100),
    TurnCommitted("t1"),
    TurnTranscribed("t1", "What time is it?", 1.78),
]


def test_a_spoken_turn_in_order() -> None:
    events = told(
        transcribing(),
        *USER_TURN,
        ReplyStarted("r1", "t1"),
        ReplyText("r1", "It is "),
        PlayoutStarted("r1"),
        ReplyText("r1", "noon."),
        ReplyDone("r1", "completed", "It is noon.", usage={"input_tokens": 20, "output_tokens": 5}),
        PlayoutStopped("r1"),
    )
    assert types(events) == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "output_audio_buffer.started",
        "response.output_audio_transcript.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
        "rate_limits.updated",
        "output_audio_buffer.stopped",
    ]
    assert len({event["event_id"] for event in events}) == len(events)
    started, stopped, committed, user = events[:4]
    assert started["item_id"] == stopped["item_id"] == committed["item_id"] == user["item"]["id"]
    assert (started["audio_start_ms"], stopped["audio_end_ms"]) == (320, 2100)
    assert user["previous_item_id"] is None and user["item"]["content"] == [
        {"type": "input_audio", "transcript": None}
    ]
    assert events[6]["usage"] == {"type": "duration", "seconds": 1.78}
    assert events[9]["previous_item_id"] == user["item"]["id"]
    assert events[8]["item"]["content"] == [] and events[8]["item"]["status"] == "in_progress"
    assert events[10]["part"] == {"type": "audio", "transcript": ""}
    assert events[16]["part"] == {"type": "audio", "transcript": "It is noon."}
    item = events[18]["item"]
    assert (item["status"], item["content"]) == (
        "completed",
        [{"type": "output_audio", "transcript": "It is noon."}],
    )
    response = events[19]["response"]
    assert (response["status"], response["status_details"], response["output"]) == ("completed", None, [item])
    assert response["usage"]["total_tokens"] == 25 and response["id"] == events[7]["response"]["id"]


def test_an_interruption_over_webrtc_in_order() -> None:
    wire = protocol()
    told(wire, ReplyStarted("r1", None), ReplyText("r1", "One two three"), PlayoutStarted("r1"))
    events = told(
        wire,
        SpeechStarted("t2", 5000),
        PlayoutCleared("r1"),
        ReplyTruncated("r1", "One two", 640),
        ReplyDone("r1", "cancelled", "One two three four", reason="turn_detected"),
        ReplyText("r1", "late"),
        ReplyDone("r1", "completed", "twice"),
    )
    assert types(events) == [
        "input_audio_buffer.speech_started",
        "output_audio_buffer.cleared",
        "response.output_audio_transcript.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
        "rate_limits.updated",
        "conversation.item.truncated",
    ]
    assert events[7]["item"]["status"] == "incomplete"
    assert events[8]["response"]["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    assert events[10]["audio_end_ms"] == 640 and isinstance(events[10]["audio_end_ms"], int)
    ask(wire, {"type": "conversation.item.retrieve", "item_id": events[10]["item_id"]})
    (retrieved,) = wire.events_to_send()
    assert retrieved["item"]["content"] == [{"type": "output_audio", "transcript": "One two"}]


def test_a_truncation_after_the_reply_is_done_is_told_at_once() -> None:
    wire = protocol()
    told(wire, ReplyStarted("r1", None), ReplyText("r1", "One two"), ReplyDone("r1", "completed", "One two"))
    assert types(told(wire, PlayoutCleared("r1"), ReplyTruncated("r1", "One", 300))) == [
        "output_audio_buffer.cleared",
        "conversation.item.truncated",
    ]


def test_a_text_turn_in_order() -> None:
    events = told(
        protocol(),
        TextAdded("i1", "user", "Hi"),
        ReplyStarted("r1", None, {"client_event_id": "x"}, text_only=True),
        ReplyText("r1", "Hello"),
        ReplyDone("r1", "completed", "Hello"),
    )
    assert types(events) == [
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
        "rate_limits.updated",
    ]
    assert events[5]["part"] == {"type": "text", "text": ""}
    assert events[10]["item"]["content"] == [{"type": "output_text", "text": "Hello"}]
    for event in (events[2], events[11]):
        assert event["response"]["metadata"] == {"client_event_id": "x"}
        assert event["response"]["output_modalities"] == ["text"]


def test_a_function_call_in_order() -> None:
    events = told(
        protocol(),
        ReplyStarted("r1", "t1"),
        ReplyText("r1", "Let me look."),
        ReplyToolCall("r1", "call_1", "clock", '{"zone":"KST"}'),
        ReplyDone("r1", "completed", "Let me look."),
    )
    call = [
        event for event in events if event.get("output_index") == 1 or event.get("item", {}).get("call_id")
    ]
    assert types(call) == [
        "response.output_item.added",
        "conversation.item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "conversation.item.done",
        "response.output_item.done",
    ]
    added = call[1]["item"]
    assert (added["name"], added["call_id"], added["arguments"]) == ("clock", "call_1", "")
    assert call[3]["name"] == "clock" and call[3]["arguments"] == '{"zone":"KST"}'
    assert call[5]["item"]["status"] == "completed" and call[5]["item"]["arguments"] == '{"zone":"KST"}'
    response = events[-2]["response"]
    assert [item["type"] for item in response["output"]] == ["message", "function_call"]


@pytest.mark.parametrize(
    ("done", "details"),
    [
        (ReplyDone("r1", "cancelled", ""), {"type": "cancelled", "reason": "client_cancelled"}),
        (ReplyDone("r1", "cancelled", "", reason="odd"), {"type": "cancelled", "reason": "client_cancelled"}),
        (ReplyDone("r1", "incomplete", ""), {"type": "incomplete", "reason": "max_output_tokens"}),
        (
            ReplyDone("r1", "failed", "", reason="engine_died", error="gone"),
            {"type": "failed", "error": {"type": "server_error", "code": "engine_died", "message": "gone"}},
        ),
    ],
)
def test_an_empty_reply_ends_with_the_schemas_own_words(done: ReplyDone, details: Json) -> None:
    events = told(protocol(), ReplyStarted("r1", None), done)
    assert types(events) == ["response.created", "response.done", "rate_limits.updated"]
    assert events[1]["response"]["status_details"] == details and events[1]["response"]["output"] == []


def test_text_that_came_only_with_the_end_is_still_told() -> None:
    events = told(protocol(), ReplyStarted("r1", None), ReplyDone("r1", "completed", "Welcome."))
    assert [event["delta"] for event in events if event["type"].endswith(".delta")] == ["Welcome."]


def test_transcripts_are_told_only_to_those_who_want_them() -> None:
    assert "input_audio_transcription" not in "".join(types(told(protocol(), *USER_TURN)))
    (failed,) = told(transcribing(), TranscriptionFailed("t1", "engine_died", "gone"))
    assert failed["error"] == {"type": "server_error", "code": "engine_died", "message": "gone"}
    assert told(protocol(), TranscriptionFailed("t1", "engine_died", "gone")) == []


def test_events_of_unknown_replies_say_nothing() -> None:
    strangers: list[SessionEvent] = [
        ReplyText("x", "a"),
        PlayoutStarted("x"),
        ReplyDone("x", "completed", ""),
    ]
    assert told(protocol(), *strangers, ReplyTruncated("x", "", 0), ReplyToolCall("x", "c", "n", "{}")) == []


def test_session_errors_and_cleared_input() -> None:
    cleared, ours, theirs = told(
        protocol(),
        InputCleared(),
        SessionError("engine_died", "gone"),
        SessionError("response_cancel_not_active", "Cancellation failed: nothing to cancel", None, "e"),
    )
    assert cleared["type"] == "input_audio_buffer.cleared"
    assert ours["error"]["type"] == "server_error" and ours["error"]["event_id"] is None
    assert theirs["error"]["type"] == "invalid_request_error" and theirs["error"]["event_id"] == "e"


EVENT_STEPS = st.sampled_from(
    [
        ReplyStarted("r1", None),
        ReplyStarted("r2", "t1"),
        ReplyText("r1", "a"),
        ReplyText("r2", "b"),
        ReplyToolCall("r1", "c", "n", "{}"),
        PlayoutStarted("r1"),
        PlayoutStopped("r1"),
        PlayoutCleared("r2"),
        ReplyTruncated("r1", "a", 10),
        ReplyTruncated("r2", "", 0),
        ReplyDone("r1", "completed", "a"),
        ReplyDone("r2", "cancelled", "b"),
        TurnCommitted("t1"),
        TextAdded("i", "user", "x"),
    ]
)


@given(st.lists(EVENT_STEPS, unique=True, max_size=14))
def test_whatever_the_order_every_level_that_opens_closes_once(steps: list[SessionEvent]) -> None:
    wire = protocol()
    ends: list[SessionEvent] = [ReplyDone("r1", "completed", ""), ReplyDone("r2", "completed", "")]
    events = told(wire, *steps, *ends)
    counts: dict[str, int] = {}
    for event in events:
        counts[event["type"]] = counts.get(event["type"], 0) + 1
    for level in ("response.output_item", "response.content_part", "conversation.item"):
        assert counts.get(f"{level}.added", 0) == counts.get(f"{level}.done", 0)
    assert counts.get("response.created", 0) == counts.get("response.done", 0)
    previous = [event["previous_item_id"] for event in events if event["type"] == "conversation.item.added"]
    assert len(set(previous)) == len(previous)


def test_no_item_key_is_null_and_no_integer_is_fractional() -> None:
    wire = transcribing()
    steps: list[SessionEvent] = [*USER_TURN, ReplyStarted("r1", "t1"), ReplyToolCall("r1", "c", "n", "{}")]
    for event in told(wire, *steps, ReplyDone("r1", "completed", "Hi")):
        assert None not in event.get("item", {}).values()
        assert not re.search(r'_ms": \d+\.', json.dumps(event))
