"""Whose hidden rows are which: the worker's side and the frontend's must count alike."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.engine.messages import RowsRef
from voice_agent.engine.shared_memory import SharedMemoryPool
from voice_agent.engine.slots import Shape
from voice_agent.errors import ConfigError
from voice_agent.models.vllm_rows import (
    EXTRA_ARG,
    HiddenRows,
    Picked,
    ReplyRows,
    names_in,
    picked_rows,
    pool_shape,
    wanted_rows,
)

POOL = "/proc/1/fd/3"


@pytest.mark.parametrize(
    ("word", "content", "layer", "parts"),
    [("last", "last", 0, 1), ("last+embedding", "last+embedding", 0, 2), ("layer:24", "layer", 24, 1)],
)
def test_the_configured_word(word: str, content: str, layer: int, parts: int) -> None:
    plan = HiddenRows.planned(word, POOL, "host")
    assert (plan.content, plan.layer, plan.parts) == (content, layer, parts)
    assert pool_shape(word, 100, 2, slots=3, rows=4) == Shape(3, 4, 200 * parts, 16)


@pytest.mark.parametrize("word", ["first", "layer", "layer:", "layer:x", "last:3", "layer:-1"])
def test_another_word_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="none of last, last\\+embedding, layer:K"):
        HiddenRows.planned(word, POOL, "host")


@pytest.mark.parametrize(
    ("pool", "via", "says"), [("", "host", "options.hidden_pool"), (POOL, "network", "none of device, host")]
)
def test_rows_need_a_place_to_go_to(pool: str, via: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        HiddenRows.planned("last", pool, via)


def test_the_plan_reaches_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICE_AGENT_HIDDEN_ROWS", "")
    assert HiddenRows.from_environment() is None
    plan = HiddenRows.planned("layer:3", POOL, "device")
    plan.to_environment()
    assert HiddenRows.from_environment() == plan


def test_a_step_of_mixed_requests() -> None:
    """One that wants nothing, a prompt's second half, one whose wanted rows lie partly ahead, a decode step."""
    scheduled = {"a": (10, 3), "b": (40, 1), "c": (0, 2), "d": (0, 4)}
    wanted = {"a": (7, 0), "b": (8, 30), "d": (9, 3), "gone": (10, 0)}
    found = picked_rows(["c", "a", "d", "b"], scheduled, wanted)
    assert found.indices == [2, 3, 4, 8, 9]
    assert found.names == [7, 10, 7, 11, 7, 12, 9, 0, 8, 10]


def test_a_step_that_nobody_wants() -> None:
    assert picked_rows(["a"], {"a": (0, 9)}, {}) == ([], [])
    assert picked_rows(["a"], {"a": (0, 9)}, {"a": (1, 9)}) == ([], [])


def test_a_step_goes_to_the_pool_in_blocks() -> None:
    """The blocks together are the step, and each has the notes of its own rows."""
    whole = picked_rows(["a"], {"a": (0, 7)}, {"a": (5, 0)})
    parts = [whole.part(first, 3) for first in range(0, 7, 3)]
    assert [part.indices for part in parts] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [names_in(memoryview(part.notes())).tolist() for part in parts] == [
        [[5, 0], [5, 1], [5, 2]],
        [[5, 3], [5, 4], [5, 5]],
        [[5, 6]],
    ]


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
    rows = ReplyRows(5, whole=whole)
    wanted = wanted_rows({EXTRA_ARG: rows.extra_arg}, prompt_tokens)
    assert wanted is not None
    written, told, position, unread = list[int](), list[int](), 0, 0
    for token in range(answer_tokens):
        while position < prompt_tokens + token:
            count = chances.randint(1, prompt_tokens + token - position)
            step = picked_rows(["x", "a"], {"x": (3, 2), "a": (position, count)}, {"a": wanted})
            assert all(2 <= index < 2 + count for index in step.indices)
            assert set(step.names[::2]) <= {5}
            written += step.names[1::2]
            position += count
        unread += 1
        if chances.randint(0, 1) or token == answer_tokens - 1:
            found = rows.grown(unread, prompt_tokens)
            assert found is not None
            assert found.key == 5
            told += range(found.first_row, found.end_row)
            assert told == written[: len(told)]  # a token comes after its row
            unread = 0
    assert written == told == list(range(answer_tokens + (prompt_tokens - 1 if whole else 0)))


def test_an_output_without_a_token_tells_of_no_row() -> None:
    assert ReplyRows(1, whole=False).grown(0, 5) is None
    assert ReplyRows(1, whole=False).grown(2, 5) == RowsRef(1, 0, 2)
    assert ReplyRows(1, whole=True).grown(2, 5) == RowsRef(1, 0, 6)


def test_requests_without_the_argument_want_nothing() -> None:
    assert wanted_rows(None, 5) is None
    assert wanted_rows({"other": 1}, 5) is None


def test_the_reader_finds_the_names_beside_the_values() -> None:
    pool = SharedMemoryPool.create(pool_shape("last", 4, 2, slots=2, rows=3))
    try:
        lease, reader = pool.writer().lease(), pool.reader()
        assert lease is not None
        notes = Picked([0, 1], [7, 1, 9, 400]).notes()
        lease.notes[: len(notes)] = notes
        lease.buffer[:] = bytes([255]) * 24  # rows in full do not reach the notes
        lease.publish(2)
        taken = reader.take()
        assert taken is not None
        assert names_in(taken.notes).tolist() == [[7, 1], [9, 400]]
    finally:
        pool.close()
