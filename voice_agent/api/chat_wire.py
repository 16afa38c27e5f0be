"""A reply's pieces to OpenAI's completion, whole or in chunks. Pure: no I/O, and the instants are handed in.

Every chunk of sound decodes alone and joins with the others as base64 text (its bytes are a multiple of six).
Source: OpenAI's chat completion reference and what its own clients read.
"""

import base64
from dataclasses import dataclass, field
from typing import Any

from voice_agent.requests import CallPiece, Ended, ReplyPiece, SoundPiece, TextPiece, Usage

Json = dict[str, Any]
ALONE_BYTES = 6  # whole samples (2) and whole base64 groups (3)


@dataclass(frozen=True)
class Reply:
    """What all chunks of one completion share; `audio_id` is empty for a written one."""

    completion_id: str
    model: str
    created: int
    audio_id: str = ""
    expires_at: int = 0
    include_usage: bool = False


def usage_of(usage: Usage) -> Json:
    """OpenAI's counts; sound counts by its length."""
    prompt, completion = usage.text_in + usage.audio_in, usage.text_out + usage.audio_out
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "audio_tokens": usage.audio_in,
            "text_tokens": usage.text_in,
            "image_tokens": 0,
            "cached_tokens": 0,
        },
        "completion_tokens_details": {
            "audio_tokens": usage.audio_out,
            "text_tokens": usage.text_out,
            "reasoning_tokens": 0,
        },
    }


def call_of(call: CallPiece) -> Json:
    """One call."""
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


# --- whole --------------------------------------------------------------------------------------------------------


@dataclass
class Whole:
    """Collects a reply for one answer."""

    reply: Reply
    text: str = ""
    sound: bytearray = field(default_factory=bytearray)
    calls: list[Json] = field(default_factory=list[Json])
    ended: Ended = field(default_factory=lambda: Ended("stop"))

    def add(self, piece: ReplyPiece) -> None:
        """Take the next piece."""
        match piece:
            case TextPiece(text=text):
                self.text += text
            case SoundPiece(data=data):
                self.sound += data
            case CallPiece():
                self.calls.append(call_of(piece))
            case Ended():
                self.ended = piece

    def completion(self) -> Json:
        """The body."""
        reply, spoken = self.reply, bool(self.reply.audio_id) and bool(self.text or not self.calls)
        message: Json = {
            "role": "assistant",
            "content": None if spoken or (self.calls and not self.text) else self.text,
            "refusal": None,
            "annotations": [],
        }
        if spoken:
            message["audio"] = {
                "id": reply.audio_id,
                "data": base64.b64encode(self.sound).decode(),
                "expires_at": reply.expires_at,
                "transcript": self.text,
            }
        if self.calls:
            message["tool_calls"] = self.calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.ended.reason}
        return {
            "id": reply.completion_id,
            "object": "chat.completion",
            "created": reply.created,
            "model": reply.model,
            "choices": [choice],
            "usage": usage_of(self.ended.usage),
        }


# --- in chunks ----------------------------------------------------------------------------------------------------


class Chunks:
    """A reply's chunks. State: how many calls were told, and the bytes that do not make a whole group yet."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._spoken = bool(reply.audio_id)
        self._calls = 0
        self._waiting = b""

    def begin(self) -> Json:
        """The first chunk: who speaks, and the sound's id."""
        delta: Json = {"role": "assistant", "content": None if self._spoken else "", "refusal": None}
        return self._chunk(delta | ({"audio": {"id": self._reply.audio_id}} if self._spoken else {}))

    def of(self, piece: ReplyPiece) -> list[Json]:
        """The chunks of the next piece; those of Ended are the last."""
        match piece:
            case TextPiece(text=text):
                return [self._chunk({"audio": {"transcript": text}} if self._spoken else {"content": text})]
            case SoundPiece(data=data):
                return self._sound(data)
            case CallPiece():
                call = {"index": self._calls} | call_of(piece)
                self._calls += 1
                return [self._chunk({"tool_calls": [call]})]
            case Ended():
                return self._end(piece)

    def _sound(self, data: bytes) -> list[Json]:
        data = self._waiting + data
        whole = len(data) // ALONE_BYTES * ALONE_BYTES
        data, self._waiting = data[:whole], data[whole:]
        return [self._data(data)] if data else []

    def _data(self, data: bytes) -> Json:
        return self._chunk({"audio": {"data": base64.b64encode(data).decode()}})

    def _end(self, ended: Ended) -> list[Json]:
        chunks = [self._data(self._waiting)] if self._waiting else []
        if self._spoken:
            chunks.append(self._chunk({"audio": {"expires_at": self._reply.expires_at}}))
        chunks.append(self._chunk({}, ended.reason))
        if self._reply.include_usage:
            chunks.append(self._body([]) | {"usage": usage_of(ended.usage)})
        return chunks

    def _chunk(self, delta: Json, finish: str | None = None) -> Json:
        chunk = self._body([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])
        return chunk | {"usage": None} if self._reply.include_usage else chunk

    def _body(self, choices: list[Json]) -> Json:
        return {
            "id": self._reply.completion_id,
            "object": "chat.completion.chunk",
            "created": self._reply.created,
            "model": self._reply.model,
            "choices": choices,
        }
