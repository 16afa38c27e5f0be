"""One reply as clients see it: the levels it opens (response, item, part) and closes again, each exactly once.

The naming trap of this protocol lives here: parts inside items are output_audio and output_text, the part of a
content_part event is audio or text. Knows no session and no I/O; events are dicts without event_id.
"""

import math
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any, Protocol

from voice_agent.api.wire_items import Json, WireItems, call_item, message_item
from voice_agent.audio import PcmChunk
from voice_agent.events import ReplyDone, ReplyToolCall, ReplyTruncated
from voice_agent.requests import AUDIO_TOKENS_IN_PER_S, AUDIO_TOKENS_OUT_PER_S

CANCEL_REASONS = {"turn_detected", "client_cancelled"}
INCOMPLETE_REASONS = {"max_output_tokens", "content_filter"}
MAX_DELTA_BYTES = (
    48_000  # a second of PCM: some clients take no frame over a megabyte, and a cut should be near
)


class SoundEncoder(Protocol):
    """Makes a reply's sound into bytes of one wire format; one for each reply."""

    def push(self, pcm: PcmChunk) -> bytes:
        """The next bytes, whole samples, possibly none."""
        ...

    def flush(self) -> bytes:
        """What was held back."""
        ...


@dataclass(frozen=True, slots=True)
class ReplyShape:
    """What of the session a response repeats; without a conversation_id it is no part of the conversation."""

    conversation_id: str | None
    text_only: bool
    output: Json  # format and voice
    max_output_tokens: int | str
    metadata: dict[str, str] | None


@dataclass
class WireReply:
    """A reply in flight or lately closed.

    `message` is the spoken or written item once it is open, `items` all of the response's in their order,
    `text` what was sent of the transcript so far, `cut` a truncation that waits for the closing events. `encoder` is
    there where sound goes over this wire.
    """

    reply_id: str
    shape: ReplyShape
    conversation: WireItems
    encoder: SoundEncoder | None = None
    closed: bool = False
    text: str = ""
    message: Json | None = None
    message_index: int = 0
    cut: ReplyTruncated | None = None
    items: list[Json] = field(default_factory=list[Json])

    @property
    def response_id(self) -> str:
        """The response's id on the wire."""
        return response_id(self.reply_id)

    def open(self) -> list[Json]:
        """response.created."""
        return [{"type": "response.created", "response": self._response("in_progress", None, None)}]

    def delta(self, text: str) -> list[Json]:
        """The next piece of the transcript or text; nothing once closed."""
        if self.closed or not text:
            return []
        events = self.open_message()
        self.text += text
        kind = (
            "response.output_text.delta" if self.shape.text_only else "response.output_audio_transcript.delta"
        )
        return [*events, {"type": kind, **self._place(), "delta": text}]

    def sound(self, pcm: PcmChunk) -> list[Json]:
        """The next piece of sound; nothing once closed."""
        if self.closed or self.encoder is None:
            return []
        return [*self.open_message(), *self._sound_deltas(self.encoder.push(pcm))]

    def _sound_deltas(self, payload: bytes) -> list[Json]:
        kind = "response.output_audio.delta"
        pieces = (payload[at : at + MAX_DELTA_BYTES] for at in range(0, len(payload), MAX_DELTA_BYTES))
        return [{"type": kind, **self._place(), "delta": b64encode(piece).decode()} for piece in pieces]

    def open_message(self) -> list[Json]:
        """Item and part, unless they are open; nothing once closed."""
        if self.closed or self.message is not None:
            return []
        self.message = message_item(f"item_{self.reply_id}", "assistant", [], "in_progress")
        self.message_index = len(self.items)
        events = self._add(self.message, self.reply_id)
        part = {"type": "text", "text": ""} if self.shape.text_only else {"type": "audio", "transcript": ""}
        return [*events, {"type": "response.content_part.added", **self._place(), "part": part}]

    def call(self, event: ReplyToolCall) -> list[Json]:
        """A whole function call as its life on the wire."""
        if self.closed:
            return []
        item = call_item(
            f"item_{self.reply_id}_{len(self.items)}", event.call_id, event.name, "", "in_progress"
        )
        index = len(self.items)
        place = {
            "response_id": self.response_id,
            "item_id": item["id"],
            "output_index": index,
            "call_id": event.call_id,
        }
        kind = "response.function_call_arguments"
        events = self._add(item, f"{self.reply_id}.{event.call_id}")
        item |= {"arguments": event.arguments, "status": "completed"}
        return [
            *events,
            {"type": f"{kind}.delta", **place, "delta": event.arguments},
            {"type": f"{kind}.done", **place, "name": event.name, "arguments": event.arguments},
            *self._item_done(item, index),
        ]

    def close(self, event: ReplyDone) -> list[Json]:
        """Close every open level and the response; a truncation that waited comes last."""
        if self.closed:
            return []
        missing = event.text.removeprefix(self.text) if event.text.startswith(self.text) else ""
        events = self.delta(missing)
        if self.message is not None:
            events += self._close_message(self.message, event.status == "completed")
        self.closed = True
        response = self._response(event.status, _details(event), _usage(event))
        events += [
            {"type": "response.done", "response": response},
            {"type": "rate_limits.updated", "rate_limits": []},
        ]
        return events + (self.truncate(self.cut) if self.cut else [])

    def truncate(self, event: ReplyTruncated) -> list[Json]:
        """Keep only what was heard; waits while the reply is open.

        Where the client plays, only the client truncates: what we think it heard changes the item without a word.
        """
        if not self.closed:
            self.cut = event
            return []
        if self.message is None:
            return []
        self.message["content"] = [self._part(event.heard_text)]
        if self.encoder is not None and not event.by_client:
            return []
        return [
            {
                "type": "conversation.item.truncated",
                "item_id": self.message["id"],
                "content_index": 0,
                "audio_end_ms": event.audio_end_ms,
            }
        ]

    def playout(self, word: str) -> list[Json]:
        """output_audio_buffer.started, .stopped or .cleared; sound always has an open part before it."""
        if self.encoder is not None:
            return []
        events = self.open_message() if word == "started" else []
        return [*events, {"type": f"output_audio_buffer.{word}", "response_id": self.response_id}]

    def _close_message(self, item: Json, completed: bool) -> list[Json]:
        place = self._place()
        item |= {"status": "completed" if completed else "incomplete", "content": [self._part(self.text)]}
        if self.shape.text_only:
            part: Json = {"type": "text", "text": self.text}
            ends = [{"type": "response.output_text.done", **place, "text": self.text}]
        else:
            part = {"type": "audio", "transcript": self.text}
            rest = self.encoder.flush() if self.encoder else b""
            ends = [
                *self._sound_deltas(rest),
                {"type": "response.output_audio.done", **place},
                {"type": "response.output_audio_transcript.done", **place, "transcript": self.text},
            ]
        part_done = {"type": "response.content_part.done", **place, "part": part}
        return [*ends, part_done, *self._item_done(item, self.message_index)]

    def _add(self, item: Json, session_id: str) -> list[Json]:
        added = {
            "type": "response.output_item.added",
            "response_id": self.response_id,
            "output_index": len(self.items),
            "item": dict(item),
        }
        self.items.append(item)
        if self.shape.conversation_id is None:
            return [added]
        return [added, self.conversation.add(item, session_id=session_id) | {"item": dict(item)}]

    def _item_done(self, item: Json, output_index: int) -> list[Json]:
        done = {
            "type": "response.output_item.done",
            "response_id": self.response_id,
            "output_index": output_index,
            "item": dict(item),
        }
        if self.shape.conversation_id is None:
            return [done]
        previous_id = self.conversation.previous(item["id"])
        in_conversation = {
            "type": "conversation.item.done",
            "previous_item_id": previous_id,
            "item": dict(item),
        }
        return [in_conversation, done]

    def _part(self, text: str) -> Json:
        if self.shape.text_only:
            return {"type": "output_text", "text": text}
        return {"type": "output_audio", "transcript": text}

    def _place(self) -> Json:
        return {
            "response_id": self.response_id,
            "item_id": f"item_{self.reply_id}",
            "output_index": self.message_index,
            "content_index": 0,
        }

    def _response(self, status: str, details: Json | None, usage: Json | None) -> Json:
        shape = self.shape
        return {
            "id": self.response_id,
            "object": "realtime.response",
            "status": status,
            "status_details": details,
            "output": [dict(item) for item in self.items],
            "conversation_id": shape.conversation_id,
            "output_modalities": ["text"] if shape.text_only else ["audio"],
            "max_output_tokens": shape.max_output_tokens,
            "audio": {"output": shape.output},
            "usage": usage,
            "metadata": shape.metadata,
        }


def response_id(reply_id: str) -> str:
    """A reply's id as the wire spells it."""
    return f"resp_{reply_id}"


def reply_id(response_id: str) -> str:
    """The other way round."""
    return response_id.removeprefix("resp_")


def _details(event: ReplyDone) -> Json | None:
    """status_details; only the schema's own words, clients refuse any other reason."""
    if event.status == "completed":
        return None
    if event.status == "failed":
        code = event.reason or "server_error"
        message = event.error or "The reply failed."
        return {"type": "failed", "error": {"type": "server_error", "code": code, "message": message}}
    if event.status == "cancelled":
        reason = event.reason if event.reason in CANCEL_REASONS else "client_cancelled"
    else:
        reason = event.reason if event.reason in INCOMPLETE_REASONS else "max_output_tokens"
    return {"type": event.status, "reason": reason}


def _usage(event: ReplyDone) -> dict[str, Any]:
    """Counts under OpenAI's names: text as the Thinker counted it (zero where it told nothing), sound by its length."""
    counts = event.usage or {}
    text_in = counts.get("input_tokens", counts.get("prompt_tokens", 0))
    text_out = counts.get("output_tokens", counts.get("completion_tokens", 0))
    audio_in = math.ceil(event.heard_s * AUDIO_TOKENS_IN_PER_S)
    audio_out = math.ceil(event.said_s * AUDIO_TOKENS_OUT_PER_S)
    return {
        "total_tokens": text_in + audio_in + text_out + audio_out,
        "input_tokens": text_in + audio_in,
        "output_tokens": text_out + audio_out,
        "input_token_details": {
            "text_tokens": text_in,
            "audio_tokens": audio_in,
            "image_tokens": 0,
            "cached_tokens": counts.get("cached_tokens", 0),
        },
        "output_token_details": {"text_tokens": text_out, "audio_tokens": audio_out},
    }
