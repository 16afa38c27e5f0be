"""Which part of a conversation fits an LLM's context: pure, no model, no I/O.

Cuts fall on turn borders only, and go down to a part of the limit, so that the next turns extend the same prefix and
the LLM's cache of it stays valid. There is no memory of earlier cuts: the history is replayed request by request, which
finds the same cuts again as long as it only grew at its end.
"""

import json
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any

from voice_agent.errors import EngineError

ChatMessage = dict[str, Any]
Count = Callable[[list[ChatMessage]], int]

KEPT_PART = 0.6  # of the limit, after a cut: room for several turns before the next one
_SYSTEM_ROLES = ("system", "developer")


class ContextTooLong(EngineError):
    """System message and newest turn alone are over the limit."""

    code = "context_too_long"


def most_tokens(messages: list[ChatMessage]) -> int:
    """More tokens than the conversation can have: no tokenizer makes more than one of a byte, nor a frame of 64."""
    return sum(64 + len(json.dumps(message, ensure_ascii=False).encode()) for message in messages)


def fit_messages(messages: list[ChatMessage], count: Count, limit_tokens: int) -> list[ChatMessage]:
    """Leading system messages and the newest turns, within `limit_tokens`; raises ContextTooLong if none fits.

    `count` gives the prompt tokens of a conversation. A tool call is never separated from its result.
    """
    if count(messages) <= limit_tokens:
        return messages
    system = list(takewhile(lambda message: message["role"] in _SYSTEM_ROLES, messages))
    rest = messages[len(system) :]
    borders = _turn_borders(rest)
    sums = _prompt_sums(system, rest, borders, count)
    start = _replay(rest, borders, sums, limit_tokens)
    for border in [start, *(later for later in borders if later > start)]:
        fitted = system + rest[border:]
        if count(fitted) <= limit_tokens:
            return fitted
    raise ContextTooLong("the newest turn alone is longer than the model's context")


def _replay(rest: list[ChatMessage], borders: list[int], sums: list[int], limit_tokens: int) -> int:
    """The border that the newest request starts at, given all the requests before it."""
    start = 0
    for end in _requests(rest):
        if sums[0] + sums[end + 1] - sums[start + 1] <= limit_tokens:
            continue
        later = [border for border in borders if start < border < end]
        room = KEPT_PART * limit_tokens - sums[0]
        kept = (border for border in later if sums[end + 1] - sums[border + 1] <= room)
        start = next(kept, later[-1] if later else start)
    return start


def _requests(rest: list[ChatMessage]) -> Iterable[int]:
    """Where the LLM was asked: before each assistant message, and now."""
    yield from (index for index, message in enumerate(rest) if message["role"] == "assistant")
    yield len(rest)


def _prompt_sums(
    system: list[ChatMessage], rest: list[ChatMessage], borders: list[int], count: Count
) -> list[int]:
    """[0] the system's tokens; [i + 1] - [1] those of the first i messages, each counted behind its turn's start.

    Counting within a turn keeps every counted piece a conversation that a chat template accepts.
    """
    base = count(system) if system else 0
    sums = [base, 0]
    for start, end in zip(borders, [*borders[1:], len(rest)], strict=True):
        before = base
        for index in range(start, end):
            upto = max(before, count(system + rest[start : index + 1]))
            sums.append(sums[-1] + upto - before)
            before = upto
    return sums


def _turn_borders(rest: list[ChatMessage]) -> list[int]:
    """Where a turn begins: at user messages that no tool call reaches across; 0 always."""
    called_at = {call_id: index for index, message in enumerate(rest) for call_id in _call_ids(message)}
    crossed: set[int] = set()
    for index, message in enumerate(rest):
        if message["role"] == "tool":
            called = called_at.get(message.get("tool_call_id", ""), 0)
            crossed.update(range(called + 1, index + 1))
    starts = (index for index, message in enumerate(rest) if message["role"] == "user")
    return [0, *(index for index in starts if index > 0 and index not in crossed)]


def _call_ids(message: ChatMessage) -> Iterable[str]:
    return (call["id"] for call in message.get("tool_calls") or [])
