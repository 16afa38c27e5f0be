"""Which part of a conversation fits an LLM's context: pure, no model, no I/O.

Cuts fall on turn borders only, and go down to a part of the limit, so that the next turns extend the same prefix and
the LLM's cache of it stays valid. There is no memory of earlier cuts: the history is replayed request by request, which
finds the same cuts again as long as it only grew at its end.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import pairwise, takewhile
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


def text_chars(messages: list[ChatMessage]) -> int:
    """About how long the text of a conversation is; media and tools do not count."""
    return sum(_content_chars(message.get("content")) for message in messages)


def fit_messages(messages: list[ChatMessage], count: Count, limit_tokens: int) -> list[ChatMessage]:
    """Leading system messages and the newest turns, within `limit_tokens`; raises ContextTooLong if none fits.

    `count` gives the prompt tokens of a conversation; its EngineError for the whole passes through, for a part of it
    means that the part cannot be asked. A tool call is never separated from its result.
    """
    if count(messages) <= limit_tokens:
        return messages
    system = list(takewhile(lambda message: message["role"] in _SYSTEM_ROLES, messages))
    rest = messages[len(system) :]
    borders = _turn_borders(rest)
    for border in borders[_replay(system, rest, borders, count, limit_tokens) :]:
        fitted = system + rest[border:]
        tokens = _taken(count, fitted)
        if tokens is not None and tokens <= limit_tokens:
            return fitted
    raise ContextTooLong("the newest turn alone is longer than the model's context")


def _taken(count: Count, messages: list[ChatMessage]) -> int | None:
    """The tokens of a part of a conversation, None if no template takes a prompt that begins or ends so."""
    try:
        return count(messages)
    except EngineError as error:
        if error.retryable:
            raise
        return None


def _replay(
    system: list[ChatMessage], rest: list[ChatMessage], borders: list[int], count: Count, limit_tokens: int
) -> int:
    """Which turn the newest request starts at, given all the requests before it."""
    before = _tokens_before(system, rest, borders, count)
    start = 0
    for end in _requests(rest):
        newest = bisect_left(borders, end) - 1
        tokens = _taken(count, system + rest[borders[newest] : end])
        if tokens is None or before[newest] - before[start] + tokens <= limit_tokens:
            continue  # nobody can have asked so, or it fitted
        room = KEPT_PART * limit_tokens - tokens
        later = range(start + 1, newest + 1)
        start = next((turn for turn in later if before[newest] - before[turn] <= room), newest)
    return start


def _requests(rest: list[ChatMessage]) -> Iterable[int]:
    """Where the LLM may have been asked: before each assistant message but a greeting, and now."""
    yield from (index for index, message in enumerate(rest) if index and message["role"] == "assistant")
    if rest:
        yield len(rest)


def _tokens_before(
    system: list[ChatMessage], rest: list[ChatMessage], borders: list[int], count: Count
) -> list[int]:
    """The tokens of the turns before each turn, the system's left out."""
    before = [0]
    for start, end in pairwise(borders):
        before.append(before[-1] + _turn_tokens(system, rest[start:end], rest[end], count))
    return before


def _turn_tokens(system: list[ChatMessage], turn: list[ChatMessage], after: ChatMessage, count: Count) -> int:
    """What a turn adds before the message after it; at most that, if it can't be counted.

    Both counted pieces end with a user's message, as a prompt does: a template may refuse to go on after an answer,
    after a call or after two answers.
    """
    both, alone = _taken(count, [*system, *turn, after]), _taken(count, [*system, after])
    return most_tokens(turn) if both is None or alone is None else max(0, both - alone)


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


def _content_chars(content: Any) -> int:
    if isinstance(content, list):
        return sum(len(str(part.get("text", ""))) for part in content if isinstance(part, dict))
    return len(content) if isinstance(content, str) else 0
