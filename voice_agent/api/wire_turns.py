"""The user's turns as clients see them: speech, commit, item and transcript.

Pure; events are dicts without event_id.
"""

import math

from voice_agent.api.wire_items import Json, WireItems, spoken_item
from voice_agent.events import (
    IdleTimedOut,
    SoundFailed,
    SoundTranscribed,
    SpeechStarted,
    SpeechStopped,
    TranscriptionFailed,
    TurnCommitted,
    TurnTranscribed,
)
from voice_agent.requests import AUDIO_TOKENS_IN_PER_S

BY_DURATION = "whisper"  # models of this name are charged by the second at OpenAI, all others by the token
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

    def transcribed(self, event: TurnTranscribed, wanted: Json | None) -> list[Json]:
        """The words of a turn are known; told only as `wanted`."""
        return self._words(
            SoundTranscribed(turn_item(event.turn_id), 0, event.text, event.audio_seconds, event.tokens),
            wanted,
        )

    def sound_transcribed(self, event: SoundTranscribed, wanted: Json | None) -> list[Json]:
        """The same of a sound in an item."""
        return self._words(event, wanted)

    def failed(self, event: TranscriptionFailed, wanted: Json | None) -> list[Json]:
        """The words of a turn will never be known."""
        failed = SoundFailed(turn_item(event.turn_id), 0, event.code, event.message)
        return self.sound_failed(failed, wanted)

    def sound_failed(self, event: SoundFailed, wanted: Json | None) -> list[Json]:
        """The same of a sound in an item."""
        if wanted is None:
            return []
        error = {"type": "server_error", "code": event.code, "message": event.message}
        place = {"item_id": event.item_id, "content_index": event.part}
        return [{"type": f"{TRANSCRIPTION}.failed", **place, "error": error}]

    def _words(self, event: SoundTranscribed, wanted: Json | None) -> list[Json]:
        """Whole in one delta, as a recognizer of whole turns gives them."""
        if item := self._items.get(event.item_id):
            item["content"][event.part] = {"type": "input_audio", "transcript": event.text}
        if wanted is None:
            return []
        place = {"item_id": event.item_id, "content_index": event.part}
        delta = {"type": f"{TRANSCRIPTION}.delta", **place, "delta": event.text}
        completed = {
            "type": f"{TRANSCRIPTION}.completed",
            **place,
            "transcript": event.text,
            "usage": _usage(event, str(wanted.get("model") or "")),
        }
        return [*([delta] if event.text else []), completed]


def _usage(event: SoundTranscribed, model: str) -> Json:
    """As the client's own name for the recognizer is counted at OpenAI."""
    if model.startswith(BY_DURATION):
        return {"type": "duration", "seconds": round(event.audio_seconds, 3)}
    heard = math.ceil(event.audio_seconds * AUDIO_TOKENS_IN_PER_S)
    return {
        "type": "tokens",
        "input_tokens": heard,
        "output_tokens": event.tokens,
        "total_tokens": heard + event.tokens,
        "input_token_details": {"text_tokens": 0, "audio_tokens": heard},
    }


def turn_item(turn_id: str) -> str:
    """A turn's id as an item on the wire."""
    return f"item_{turn_id}"
