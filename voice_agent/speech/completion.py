"""An OpenAI-style streamed chat completion, read without I/O.

Bytes go into `EventStream`, its events into `Completion`, and out come the messages that the cascade knows:
text, whole tool calls, one end. What a model meant as a tool call is never text: neither the deltas of the API
nor the <tool_call> markup that a server failed to take out.

Sources: WHATWG HTML "Interpreting an event stream"; OpenAI's chat completion chunks. It knows no HTTP and no time.
"""

import codecs
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import uuid4

from voice_agent.engine.messages import Failed, Finished, TextDelta, Think, ToolCall
from voice_agent.errors import RemoteProtocolError

ThinkResult = TextDelta | ToolCall | Finished | Failed

CHARS_PER_TOKEN = 8  # more than any tokenizer's mean: a Thinker that passes it ignores max_output_tokens
MAX_EVENT_CHARS = 1_000_000  # a line or event beyond this is no completion chunk
OPEN_MARK, CLOSE_MARK = "<tool_call>", "</tool_call>"


class EventStream:
    """Server-sent events from bytes that may be cut anywhere, inside a character or a line end too."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._line = ""  # what came after the last line end
        self._after_cr = False  # a line end was CR: an LF right behind it belongs to it
        self._data: list[str] = []
        self._chars = 0

    def feed(self, data: bytes) -> list[str]:
        """Return the data of each event that is now whole; raises RemoteProtocolError if one grows endless."""
        events: list[str] = []
        text = self._decoder.decode(data)
        if self._after_cr and text:
            text = text.removeprefix("\n")
            self._after_cr = False
        if text.endswith("\r"):
            self._after_cr = True
        lines = (self._line + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._line = lines.pop()
        for line in lines:
            self._take_line(line, events)
        if self._chars + len(self._line) > MAX_EVENT_CHARS:
            raise RemoteProtocolError("thinker_malformed", "the Thinker sent an endless event")
        return events

    def end(self) -> list[str]:
        """Return an event that lacked only its blank line when the stream ended (some servers omit it)."""
        events: list[str] = []
        self._take_line(self._line, events)
        self._take_line("", events)
        self._line = ""
        return events

    def _take_line(self, line: str, events: list[str]) -> None:
        if not line:
            if self._data:
                events.append("\n".join(self._data))
            self._data, self._chars = [], 0
            return
        name, _, value = line.partition(":")  # a comment has no name
        if name == "data":
            self._data.append(value.removeprefix(" "))
            self._chars += len(value)


class Surrogates:
    """Joins halves of a character that a server cut over two JSON strings; a lone half becomes U+FFFD."""

    def __init__(self) -> None:
        self._high = ""

    def feed(self, piece: str) -> str:
        """Return the piece in whole characters; a first half at its end waits for the next one."""
        text, self._high = self._high + piece, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        return whole(text)

    def end(self) -> str:
        """Return what is left for a half that never got its other one."""
        rest, self._high = whole(self._high), ""
        return rest


def whole(text: str) -> str:
    """Text that can be encoded: pairs of halves joined, lone ones replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class ToolMarkup:
    """Takes <tool_call>...</tool_call> out of text that comes in pieces."""

    def __init__(self) -> None:
        self._held = ""  # the beginning of a mark, or the inside of a call so far
        self._inside = False
        self.calls: list[str] = []

    @property
    def unclosed(self) -> bool:
        """A call was begun and not ended."""
        return self._inside

    def feed(self, piece: str) -> str:
        """Return what may be spoken of the text so far; whole calls are put to `calls`."""
        text, self._held = self._held + piece, ""
        speakable: list[str] = []
        while True:
            mark = CLOSE_MARK if self._inside else OPEN_MARK
            before, found, text = text.partition(mark)
            if not found:
                break
            (self.calls if self._inside else speakable).append(before)
            self._inside = not self._inside
        kept = len(before) if self._inside else _overlap(before, OPEN_MARK)
        self._held = before[len(before) - kept :]
        speakable.append(before[: len(before) - kept])
        return "".join(speakable)

    def end(self) -> str:
        """Return the held beginning of a mark that never became one."""
        rest, self._held = ("" if self._inside else self._held), ""
        return rest


def _overlap(text: str, mark: str) -> int:
    """Length of the longest end of `text` that a mark begins with."""
    return next((n for n in range(min(len(text), len(mark) - 1), 0, -1) if text.endswith(mark[:n])), 0)


@dataclass(slots=True)
class _PartialCall:
    """A tool call whose pieces are still coming."""

    call_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])


class Completion:
    """One answer, chunk by chunk; gives at most one Finished or Failed, and nothing after it."""

    def __init__(self, request: Think) -> None:
        self._id, self._epoch = request.request_id, request.epoch
        self._budget_chars = request.max_output_tokens * CHARS_PER_TOKEN
        self._calls: dict[int, _PartialCall] = {}
        self._markup = ToolMarkup()
        self._surrogates = Surrogates()
        self._usage: dict[str, int] = {}
        self.finish_reason: str | None = None
        self.visible = False  # something was said or called
        self.progress = 0  # deltas seen, reasoning included: what a stall is measured by
        self.ended = False

    def receive(self, data: str) -> list[ThinkResult]:
        """Take one event's data (a chunk, a whole completion, an error object or [DONE])."""
        if self.ended:
            return []
        if data.strip() == "[DONE]":
            return self.finish()
        try:
            chunk: Any = json.loads(data)
        except ValueError:
            return self.fail("thinker_malformed", "the Thinker sent a chunk that is not JSON")
        if not isinstance(chunk, dict):
            return self.fail("thinker_malformed", "the Thinker sent a chunk that is not an object")
        return self._chunk(cast(dict[str, Any], chunk))

    def finish(self) -> list[ThinkResult]:
        """End regularly: hand out the tool calls, then Finished (or Failed if a call cannot be read)."""
        if self.ended:
            return []
        rest = self._said(self._markup.feed(self._surrogates.end()) + self._markup.end())
        try:
            calls = [self._whole(call) for call in [*self._calls.values(), *self._marked_calls()]]
        except ValueError as error:
            return rest + self.fail("tool_call_malformed", f"the Thinker's tool call cannot be read: {error}")
        self.visible = self.visible or bool(calls)
        if self.finish_reason == "content_filter":
            return rest + self.fail("content_filter", "the Thinker withheld its answer (content filter)")
        reason = "tool_calls" if calls else "length" if self.finish_reason == "length" else "stop"
        return rest + calls + [self._end(Finished(self._id, self._epoch, reason, self._usage))]

    def fail(self, code: str, message: str, *, retryable: bool = False) -> list[ThinkResult]:
        """End irregularly; partial tool calls are dropped."""
        return [self._end(Failed(self._id, self._epoch, code, message, retryable))]

    def _end(self, end: Finished | Failed) -> ThinkResult:
        self.ended = True
        return end

    def _chunk(self, chunk: dict[str, Any]) -> list[ThinkResult]:
        if chunk.get("error"):
            return self.fail("thinker_error", f"the Thinker reported: {error_text(chunk)}", retryable=True)
        self._usage = _usage(chunk.get("usage")) or self._usage
        choices = [choice for choice in _dicts(chunk.get("choices")) if choice.get("index", 0) == 0]
        if not choices:
            return []
        choice = choices[0]
        delta = next(iter(_dicts([choice.get("delta"), choice.get("message")])), {})
        results = self._delta(delta)
        self.finish_reason = _string(choice.get("finish_reason")) or self.finish_reason
        return results

    def _delta(self, delta: dict[str, Any]) -> list[ThinkResult]:
        content = _string(delta.get("content"))
        reasoning = _string(delta.get("reasoning_content")) or _string(delta.get("reasoning"))
        calls = _dicts(delta.get("tool_calls"))
        self.progress += bool(content or reasoning or calls)
        arguments = sum(self._take_call(call) for call in calls)
        self._budget_chars -= len(content) + len(reasoning) + arguments
        text = self._markup.feed(self._surrogates.feed(content))
        if self._budget_chars >= 0:
            return self._said(text)
        length = Finished(self._id, self._epoch, "length", self._usage)
        return [
            *self._said(text[: self._budget_chars]),
            self._end(length),
        ]  # a negative index cuts the excess

    def _said(self, text: str) -> list[ThinkResult]:
        self.visible = self.visible or bool(text.strip())
        return [TextDelta(self._id, self._epoch, text)] if text else []

    def _take_call(self, piece: dict[str, Any]) -> int:
        """Add a piece to the call it belongs to; returns its characters of arguments."""
        function = next(iter(_dicts([piece.get("function")])), {})
        index = piece.get("index")
        if not isinstance(index, int):  # some servers send whole calls without one
            index = len(self._calls) if piece.get("id") or not self._calls else max(self._calls)
        call = self._calls.setdefault(index, _PartialCall())
        call.call_id = call.call_id or _string(piece.get("id"))
        call.name = call.name or _string(function.get("name"))
        arguments = function.get("arguments")
        text = json.dumps(arguments) if isinstance(arguments, dict) else _string(arguments)
        call.arguments.append(text)
        return len(text)

    def _whole(self, call: _PartialCall) -> ToolCall:
        if not call.name:
            raise ValueError("it has no name")
        arguments = whole("".join(call.arguments)).strip() or "{}"
        if not isinstance(json.loads(arguments), dict):
            raise ValueError("its arguments are not an object")
        return ToolCall(
            self._id,
            self._epoch,
            whole(call.call_id) or f"call_{uuid4().hex[:24]}",
            whole(call.name),
            arguments,
        )

    def _marked_calls(self) -> list[_PartialCall]:
        if self._markup.unclosed:
            raise ValueError("its markup is cut off")
        return [_from_markup(text) for text in self._markup.calls]


def _from_markup(text: str) -> _PartialCall:
    call: Any = json.loads(text)
    if not isinstance(call, dict):
        raise ValueError("its markup is not an object")
    fields = cast(dict[str, Any], call)
    return _PartialCall(
        name=_string(fields.get("name")), arguments=[json.dumps(fields.get("arguments") or {})]
    )


def error_text(body: dict[str, Any]) -> str:
    """What an error body says, in whichever of the usual shapes (error.message, error, message, detail)."""
    error: Any = body.get("error")
    if isinstance(error, dict):
        error = cast(dict[str, Any], error).get("message") or cast(dict[str, Any], error).get("code")
    return str(error or body.get("message") or body.get("detail") or "no reason given")[:500]


def _usage(usage: Any) -> dict[str, int]:
    """The Realtime wire's names for a completion's token counts."""
    counts = next(iter(_dicts([usage])), {})
    named = {"input_tokens": counts.get("prompt_tokens"), "output_tokens": counts.get("completion_tokens")}
    return {name: count for name, count in named.items() if isinstance(count, int)}


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _dicts(values: Any) -> list[dict[str, Any]]:
    found: Iterable[Any] = cast(list[Any], values) if isinstance(values, list) else []
    return [cast(dict[str, Any], value) for value in found if isinstance(value, dict)]
