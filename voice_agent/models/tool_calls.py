"""Finds function calls in what a language model writes, while it writes; pure, no I/O.

Small models write their calls in several ways, whatever their template asks for: in <tool_call> tags, as a bare JSON
object, in a code fence. Whatever may become a call is held back, so that no markup is ever spoken; what turns out
to be text is released. Used only for requests that offer tools.
"""

import json
import re
import secrets
from collections.abc import Iterable
from typing import Any, cast

from voice_agent.engine.messages import Think
from voice_agent.engine.runtime import ToolCallParts

OPEN, CLOSE = "<tool_call>", "</tool_call>"
LONGEST_CALL_CHARS = 8_000
_FENCE = re.compile(r"```[a-z]*\s*")
_KEYS = ('"name"', '"arguments"', '"parameters"', '"function"', '"type"')


class ToolCallReader:
    """Feed it the text piece by piece; `complete` turns true when nothing useful can follow the calls.

    calls: those read so far. Text after a call is dropped.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.calls: list[ToolCallParts] = []
        self.complete = False
        self._names = frozenset(names)
        self._held = ""
        self._spoken = False  # text was released: a bare object is a call only at the very start

    def feed(self, piece: str) -> str:
        """Take the next piece; returns the text that is surely no part of a call."""
        self._held += piece
        released = ""
        while not self.complete:
            before = len(self._held), len(self.calls)
            released += self._step()
            if (len(self._held), len(self.calls)) == before:
                break
        return released

    def finish(self) -> str:
        """The text left over at the end; half a call is dropped, never shown."""
        rest, self._held = self._held, ""
        plain = OPEN not in rest and not self._may_be_bare(rest)
        return rest if plain and not self.calls else ""

    def _step(self) -> str:
        """Move on by one decision; returns released text, changes nothing if more is needed."""
        if self.calls:
            self._drop_what_is_no_call()
        if self._held.startswith(OPEN):
            return self._read_tagged()
        if self.calls:
            return ""
        if not self._spoken and not self._held.strip():
            return ""
        if not self._spoken and self._may_be_bare(self._held):
            return self._read_bare()
        found = self._held.find(OPEN)
        safe = found if found >= 0 else len(self._held) - _overlap(self._held, OPEN)
        text, self._held = self._held[:safe], self._held[safe:]
        self._spoken = self._spoken or bool(text.strip())
        return text

    def _drop_what_is_no_call(self) -> None:
        """After a call only another tagged one counts; anything else ends the answer."""
        rest = self._held.lstrip()
        self.complete = not (rest.startswith(OPEN) or OPEN.startswith(rest))
        self._held = "" if self.complete else rest

    def _read_tagged(self) -> str:
        inner, closed, rest = self._held[len(OPEN) :].partition(CLOSE)
        if closed:
            self._held = rest
            self._keep(_object_at(inner), any_name=True)
        elif len(self._held) > LONGEST_CALL_CHARS:
            self._held, self.complete = "", True
        return ""

    def _read_bare(self) -> str:
        body = _unfenced(self._held)
        found = _object_at(body)
        if found is not None and self._keep(found, any_name=False):
            self._held, self.complete = "", True
        elif found is not None or len(self._held) > LONGEST_CALL_CHARS:
            text, self._held, self._spoken = self._held, "", True
            return text
        return ""

    def _keep(self, found: dict[str, Any] | None, *, any_name: bool) -> bool:
        inner = found.get("function", found) if found else None
        call: dict[str, Any] = cast(dict[str, Any], inner) if isinstance(inner, dict) else {}
        name, arguments = call.get("name"), call.get("arguments", call.get("parameters", {}))
        if not isinstance(name, str) or not (any_name or name in self._names):
            return False
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        self.calls.append(ToolCallParts(f"call_{secrets.token_hex(8)}", name, text))
        return True

    def _may_be_bare(self, text: str) -> bool:
        """Whether text from the answer's start may still become a bare or fenced call."""
        if self._spoken or not text.strip():
            return False
        start = text.lstrip()
        if "```".startswith(start):
            return True
        body = _unfenced(text)
        if not body:
            return True
        if not body.startswith("{"):
            return False
        key = body[1:].lstrip()
        return any(key.startswith(known) or known.startswith(key) for known in _KEYS)


def offered_tools(request: Think) -> list[dict[str, Any]]:
    """The tools a request's model is told of."""
    return [] if request.tool_choice == "none" else request.tools


def reader_for(request: Think) -> ToolCallReader | None:
    """A reader for the calls a request allows; None if it allows none."""
    names = [str(tool.get("function", tool).get("name", "")) for tool in offered_tools(request)]
    return ToolCallReader(names) if names else None


def call_schema(request: Think) -> dict[str, Any] | None:
    """JSON schema of the call that must be made: of any tool for "required", else of the named one; None for "auto"."""
    tools = offered_tools(request)
    if not tools or request.tool_choice == "auto":
        return None
    named = [tool for tool in tools if tool.get("function", tool).get("name") == request.tool_choice]
    return {"anyOf": [_schema_of(tool) for tool in named or tools]}


def _schema_of(tool: dict[str, Any]) -> dict[str, Any]:
    function: dict[str, Any] = tool.get("function", tool)
    arguments = function.get("parameters") or {"type": "object"}
    properties = {"name": {"const": function.get("name")}, "arguments": arguments}
    return {
        "type": "object",
        "properties": properties,
        "required": ["name", "arguments"],
        "additionalProperties": False,  # else a model may go on and on with keys that nobody reads
    }


def _unfenced(text: str) -> str:
    start = text.lstrip()
    fence = _FENCE.match(start)
    return start[fence.end() :] if fence else start


def _object_at(text: str) -> dict[str, Any] | None:
    """The JSON object at the start of a text; None if it is not whole."""
    try:
        found, _ = json.JSONDecoder().raw_decode(text.strip())
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Any], found) if isinstance(found, dict) else None


def _overlap(text: str, mark: str) -> int:
    """Length of the longest end of a text that begins the mark."""
    return next(
        (size for size in range(min(len(text), len(mark) - 1), 0, -1) if mark.startswith(text[-size:])), 0
    )
