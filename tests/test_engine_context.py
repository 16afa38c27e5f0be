"""Which part of a conversation reaches the LLM."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.engine.context import KEPT_PART, ContextTooLong, Count, fit_messages
from voice_agent.errors import EngineError

Message = dict[str, Any]
OVERHEAD = 5  # of a template, once


def count(messages: list[Message]) -> int:
    return OVERHEAD + sum(3 + len(str(message.get("content") or "").split()) for message in messages)


def strict_count(messages: list[Message]) -> int:
    """As a template that goes on after no call, and after one answer at most; llama.cpp's refuses so."""
    two = [m["role"] for m in messages[-2:]] == ["assistant", "assistant"]
    if two or (messages[-1]["role"] == "assistant" and messages[-1].get("tool_calls")):
        raise EngineError("cannot continue this", code="invalid_request")
    return count(messages)


def message(role: str, words: int, **more: Any) -> Message:
    return {"role": role, "content": " ".join("w" * words), **more}


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """A system message or none, a greeting or none, turns with tool calls whose results may come late."""
    rest: list[Message] = [message("assistant", 4)] if draw(st.booleans()) else []
    late: list[str] = []
    for turn in range(draw(st.integers(1, 14))):
        rest.append(message("user", draw(st.integers(0, 25)), name=f"turn {turn}"))
        rest += [message("tool", 3, tool_call_id=call_id) for call_id in late]
        late = []
        if draw(st.booleans()):
            call_id = f"call {turn}"
            rest.append(
                {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": {}}]}
            )
            if draw(st.booleans()):
                rest.append(message("tool", 3, tool_call_id=call_id))
            else:
                late = [call_id]
        rest += [message("assistant", draw(st.integers(0, 40))) for _ in range(draw(st.integers(0, 2)))]
    rest.append(message("user", draw(st.integers(0, 25)), name="newest"))
    rest += [message("tool", 3, tool_call_id=call_id) for call_id in late]
    return ([message("system", draw(st.integers(0, 10)))] if draw(st.booleans()) else []) + rest


@given(messages=conversations(), limit=st.integers(20, 400), count=st.sampled_from([count, strict_count]))
def test_what_is_kept_fits_is_the_end_begins_at_a_turn_and_holds_every_tool_pair(
    messages: list[Message], limit: int, count: Count
) -> None:
    system = [m for m in messages if m["role"] == "system"]
    rest = messages[len(system) :]
    try:
        fitted = fit_messages(messages, count, limit)
    except ContextTooLong:
        newest = next(i for i, m in enumerate(messages) if m.get("name") == "newest")
        assert count(system + messages[newest:]) > limit or messages[newest + 1 :]
        return
    kept = fitted[len(system) :]
    assert count(fitted) <= limit
    assert fitted[: len(system)] == system and kept == rest[len(rest) - len(kept) :]
    assert any(m.get("name") == "newest" for m in kept)
    assert len(kept) == len(rest) or kept[0]["role"] == "user"
    calls = {call["id"] for m in kept for call in m.get("tool_calls") or []}
    assert calls >= {m["tool_call_id"] for m in kept if m["role"] == "tool"}


@given(words=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 20)), min_size=30, max_size=60))
def test_a_cut_makes_room_so_that_the_next_turns_extend_the_same_prefix(words: list[tuple[int, int]]) -> None:
    limit = 400
    messages, before, cuts = [message("system", 5)], list[Message](), 0
    for question, reply in words:
        messages.append(message("user", question, name=f"turn {len(messages)}"))
        fitted = fit_messages(messages, count, limit)
        if fitted[: len(before)] != before:
            cuts += 1
            assert count(fitted) <= KEPT_PART * limit
        messages.append(message("assistant", reply))
        before = fitted
    spoken = count(messages)
    assert cuts <= spoken / ((1 - KEPT_PART) * limit)


def test_what_fits_is_handed_on_untouched() -> None:
    messages = [message("system", 5), message("user", 5)]
    assert fit_messages(messages, count, count(messages)) is messages


def test_a_cut_made_between_a_tool_call_and_its_answer_is_found_again() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {}}]}
    history = [message("user", 50), message("assistant", 50), message("user", 10), call]
    history.append(message("tool", 60, tool_call_id="c"))
    cut = fit_messages(history, count, 150)
    assert cut == history[2:]
    grown = [*history, message("assistant", 1), message("user", 1)]
    assert fit_messages(grown, count, 150) == grown[2:]


@pytest.mark.parametrize("messages", [[message("user", 100)], [message("system", 100), message("user", 1)]])
def test_a_turn_that_cannot_fit_is_an_error_with_a_code(messages: list[Message]) -> None:
    with pytest.raises(ContextTooLong) as error:
        fit_messages(messages, count, 50)
    assert error.value.code == "context_too_long" and not error.value.retryable


CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {}}]}
USED = [message("user", 5), CALL, message("tool", 3, tool_call_id="c"), message("assistant", 5)]
UNANSWERED = [message("user", 5), CALL, message("tool", 3, tool_call_id="c")]
TWICE = [message("user", 5), message("assistant", 5), message("assistant", 5)]
PAIRS = [message("user", 10), message("assistant", 10)] * 30


@pytest.mark.parametrize("piece", [USED, UNANSWERED, TWICE, [message("user", 5), CALL]])
@pytest.mark.parametrize("at", [0, 20, 60])
def test_a_long_history_is_cut_where_the_template_takes_it(piece: list[Message], at: int) -> None:
    history = [message("system", 5), *PAIRS[:at], *piece, *PAIRS[at:], message("user", 5)]
    fitted = fit_messages(history, strict_count, 200)
    assert 0.3 * 200 < count(fitted) <= 200
    assert (
        fitted[0] == history[0] and fitted[1:] == history[1 - len(fitted) :] and fitted[1]["role"] == "user"
    )
    assert fitted == fit_messages(history, count, 200)


def test_turns_that_no_template_takes_by_themselves_are_passed_over() -> None:
    def count_whole_or_short(messages: list[Message]) -> int:
        if 4 < len(messages) < len(history):
            raise EngineError("refused", code="invalid_request")
        return count(messages)

    history = [*PAIRS, message("user", 5)]
    assert len(fit_messages(history, count_whole_or_short, 200)) <= 4


def test_a_history_of_which_no_part_is_taken_is_too_long() -> None:
    def count_whole(messages: list[Message]) -> int:
        if messages is not history:
            raise EngineError("refused", code="invalid_request")
        return count(messages)

    history = [*PAIRS, message("user", 5)]
    with pytest.raises(ContextTooLong):
        fit_messages(history, count_whole, 200)


@pytest.mark.parametrize(("whole", "retryable"), [(True, False), (False, True)])
def test_a_refused_whole_and_a_counter_that_fails_are_told(whole: bool, retryable: bool) -> None:
    def failing_count(messages: list[Message]) -> int:
        if whole or messages is not history:
            raise EngineError("no", retryable=retryable)
        return count(messages)

    history = [*PAIRS, message("user", 5)]
    with pytest.raises(EngineError, match="^no$"):
        fit_messages(history, failing_count, 200)
