"""Where hidden rows go: the worker's side and the frontend's must count alike."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.engine.messages import RowsRef
from voice_agent.errors import ConfigError
from voice_agent.models.vllm_rows import (
    EXTRA_ARG,
    HiddenRows,
    RowLease,
    RowSlots,
    destinations,
    wanted_rows,
)

PLAN = HiddenRows("last", 0, slots=3, rows_per_slot=100)


@pytest.mark.parametrize(
    ("word", "content", "layer", "parts"),
    [("last", "last", 0, 1), ("last+embedding", "last+embedding", 0, 2), ("layer:24", "layer", 24, 1)],
)
def test_the_configured_word(word: str, content: str, layer: int, parts: int) -> None:
    plan = HiddenRows.planned(word, slots=2, rows_per_slot=8)
    assert (plan.content, plan.layer, plan.parts) == (content, layer, parts)


@pytest.mark.parametrize("word", ["first", "layer", "layer:", "layer:x", "last:3", "layer:-1"])
def test_another_word_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="none of last, last\\+embedding, layer:K"):
        HiddenRows.planned(word, slots=2, rows_per_slot=8)


def test_the_plan_reaches_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VOICE_AGENT_HIDDEN_ROWS", raising=False)
    assert HiddenRows.from_environment() is None
    monkeypatch.setenv("VOICE_AGENT_HIDDEN_ROWS", "")
    PLAN.to_environment()
    assert HiddenRows.from_environment() == PLAN


def test_a_step_of_mixed_requests() -> None:
    """A prompt's second half, a decode step, one that wants nothing, and one whose wanted rows lie ahead."""
    scheduled = {"a": (10, 3), "b": (40, 1), "c": (0, 2), "d": (0, 4)}
    wanted = {"a": (0, 0), "b": (100, 30), "d": (200, 3)}
    found = destinations(["c", "a", "d", "b"], scheduled, wanted, spill=300)
    assert found.tolist() == [300, 300, 10, 11, 12, 300, 300, 300, 200, 110]


@given(
    prompt_tokens=st.integers(1, 40),
    answer_tokens=st.integers(1, 40),
    whole=st.booleans(),
    chances=st.randoms(use_true_random=False),
)
def test_every_row_that_is_told_was_written_and_none_twice(
    prompt_tokens: int, answer_tokens: int, whole: bool, chances: random.Random
) -> None:
    """A prompt in parts of any size, then tokens that reach the frontend singly or several at once."""
    lease = RowLease(1, 7, prompt_tokens=prompt_tokens, whole=whole)
    found = wanted_rows(PLAN, {EXTRA_ARG: lease.extra_arg})
    assert found is not None
    written: list[int] = []
    position, told, unread = 0, list[int](), 0
    for token in range(answer_tokens):
        while position < prompt_tokens + token:
            count = chances.randint(1, prompt_tokens + token - position)
            written += destinations(["a"], {"a": (position, count)}, {"a": found}, spill=300).tolist()
            position += count
        unread += 1
        if chances.randint(0, 1) or token == answer_tokens - 1:
            rows = lease.grown(unread)
            assert rows is not None
            assert (rows.slot, rows.generation) == (1, 7)
            told += [100 + row for row in range(rows.first_row, rows.end_row)]
            unread = 0
    kept = [row for row in written if row != 300]
    assert kept == told == list(range(100, 100 + len(kept)))
    assert len(kept) == answer_tokens + (prompt_tokens - 1 if whole else 0)


def test_an_output_without_a_token_tells_of_no_row() -> None:
    assert RowLease(0, 1, prompt_tokens=5, whole=False).grown(0) is None


def test_requests_without_the_argument_want_nothing() -> None:
    assert wanted_rows(PLAN, None) is None
    assert wanted_rows(PLAN, {"other": 1}) is None


async def test_a_slot_is_one_replys_and_comes_back_under_a_new_generation() -> None:
    slots = RowSlots(HiddenRows("last", 0, slots=1, rows_per_slot=100))
    order: list[str] = []

    async def reply(name: str) -> RowsRef | None:
        async with slots.lease(10, whole=False) as rows:
            order.append(f"{name} in")
            await asyncio.sleep(0)
            order.append(f"{name} out")
            return rows.grown(1)

    first, second = await asyncio.gather(reply("a"), reply("b"))
    assert order == ["a in", "a out", "b in", "b out"]
    assert (first, second) == (RowsRef(0, 1, 0, 1), RowsRef(0, 2, 0, 1))
