"""The user's turns as clients see them: speech, commit, item and transcript.

Pure; events are dicts without event_id.
"""

from voice_agent.api.wire_items import Json, WireItems, spoken_item
from voice_agent.events import (
    IdleTimedOut,
    SpeechStarted,
    SpeechStopped,
    TranscriptionFailed,
    TurnCommitted,
    TurnTranscribed,
)

TRANSCRIPTION = "conversation.item.input_audio_transcription"


class WireTurns:
    """Makes wire events of a session's turns, and their items."""

    def __init__(self, items: WireItems) -> None:
        self._items = items

    def speech_started(self, event: SpeechStarted) -> list[Json]:
        """The user began to speak."""
        kind = "input_audio_buffer.speech_started"
        return [{"type": kind, "audio_start_ms": event.audio_start_ms, "item_id": turn_item(event.turn_id)}]

    def speech_stopped(self, event: SpeechStopped) -> list[Json]:
        """The user's turn ended."""
        kind = "input_audio_buffer.speech_stopped"
        return [{"type": kind, "audio_end_ms": event.audio_end_ms, "item_id": turn_item(event.turn_id)}]

    def idle(self, event: IdleTimedOut) -> list[Json]:
        """Nobody spoke for long."""
        return [
            {
                "type": "input_audio_buffer.timeout_triggered",
                "audio_start_ms": event.audio_start_ms,
                "audio_end_ms": event.audio_end_ms,
                "item_id": turn_item(event.turn_id),
            }
        ]

    def committed(self, event: TurnCommitted) -> list[Json]:
        """The turn became an item."""
        item_id = turn_item(event.turn_id)
        committed = {
            "type": "input_audio_buffer.committed",
            "item_id": item_id,
            "previous_item_id": self._items.last_id,
        }
        return [committed, *self._items.add_whole(spoken_item(item_id), session_id=event.turn_id)]

    def transcribed(self, event: TurnTranscribed, *, wanted: bool) -> list[Json]:
        """The words are known: whole in one delta, as a recognizer of whole turns gives them."""
        item_id = turn_item(event.turn_id)
        if item := self._items.get(item_id):
            item["content"] = [{"type": "input_audio", "transcript": event.text}]
        if not wanted:
            return []
        place = {"item_id": item_id, "content_index": 0}
        delta = {"type": f"{TRANSCRIPTION}.delta", **place, "delta": event.text}
        usage = {"type": "duration", "seconds": round(event.audio_seconds, 3)}
        completed = {
            "type": f"{TRANSCRIPTION}.completed",
            **place,
            "transcript": event.text,
            "usage": usage,
        }
        return [*([delta] if event.text else []), completed]

    def failed(self, event: TranscriptionFailed) -> list[Json]:
        """The words will never be known."""
        error = {"type": "server_error", "code": event.code, "message": event.message}
        kind = f"{TRANSCRIPTION}.failed"
        return [{"type": kind, "item_id": turn_item(event.turn_id), "content_index": 0, "error": error}]


def turn_item(turn_id: str) -> str:
    """A turn's id as an item on the wire."""
    return f"item_{turn_id}"
