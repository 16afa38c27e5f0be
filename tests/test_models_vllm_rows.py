"""Whose hidden rows are which: the worker's side and the frontend's must count alike."""

import random
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.engine.messages import RowsRef
from voice_agent.engine.row_pile import names_in
from voice_agent.engine.shared_memory import SharedMemoryPool
from voice_agent.engine.slots import Shape
from voice_agent.errors import ConfigError
from voice_agent.models.vllm_rows import (
    EXTRA_ARG,
    HiddenRows,
    Picked,
    ReplyRows,
    StepPicker,
    pool_shape,
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


def picker(wanted: Mapping[str, tuple[int, bool]], prompt_tokens: int = 1) -> StepPicker:
    """Knows requests by their key, and whether they want their prompt's rows too."""
    made = StepPicker()
    for name, (key, whole) in wanted.items():
        made.want(name, {EXTRA_ARG: [key, int(whole)]}, prompt_tokens)
    return made


def picked(made: StepPicker, order: list[str], scheduled: dict[str, tuple[int, int]]) -> Picked:
    """As vLLM's worker asks."""
    decoding = all(count == 1 for _, count in scheduled.values())
    positions = sum(first for first, _ in scheduled.values()) if decoding else None
    return made.pick(order, positions, lambda: scheduled)


def test_a_step_of_mixed_requests() -> None:
    """One that wants nothing, a prompt's second half, one whose wanted rows lie partly ahead, a decode step."""
    made = picker({"a": (7, True)})
    made.want("b", {EXTRA_ARG: [8, 0]}, 31)
    made.want("d", {EXTRA_ARG: [9, 0]}, 4)
    made.want("gone", {EXTRA_ARG: [10, 1]}, 1)
    found = picked(made, ["c", "a", "d", "b"], {"a": (10, 3), "b": (40, 1), "c": (0, 2), "d": (0, 4)})
    assert found.indices == [2, 3, 4, 8, 9]
    assert found.names.tolist() == [[7, 10], [7, 11], [7, 12], [9, 0], [8, 10]]


def test_a_step_that_nobody_wants() -> None:
    nobody, later = StepPicker(), picker({"a": (1, False)}, prompt_tokens=10)
    nobody.want("a", None, 5)
    nobody.want("b", {"other": 1}, 5)
    assert picked(nobody, ["a", "b"], {"a": (0, 9), "b": (0, 9)}).indices == []
    assert picked(later, ["a"], {"a": (0, 9)}).indices == []
    assert picked(later, [], {}).indices == []


def test_a_step_goes_to_the_pool_in_blocks() -> None:
    """The blocks together are the step, and each has the notes of its own rows."""
    whole = picked(picker({"a": (5, True)}), ["a"], {"a": (0, 7)})
    parts = [whole.part(first, 3) for first in range(0, 7, 3)]
    assert [part.indices for part in parts] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [names_in(memoryview(part.notes())).tolist() for part in parts] == [
        [[5, 0], [5, 1], [5, 2]],
        [[5, 3], [5, 4], [5, 5]],
        [[5, 6]],
    ]


def test_a_step_of_decoding_after_another_is_not_looked_through() -> None:
    made = picker({"a": (5, True), "b": (6, True)})
    picked(made, ["a", "b"], {"a": (4, 1), "b": (9, 1)})
    found = made.pick(["a", "b"], 15, lambda: pytest.fail("looked through"))
    assert (found.indices, found.names.tolist()) == ([0, 1], [[5, 5], [6, 10]])


@given(chances=st.randoms(use_true_random=False), wanted=st.lists(st.booleans(), min_size=1, max_size=5))
def test_whatever_steps_came_before_the_names_are_those_of_the_step(
    chances: random.Random, wanted: list[bool]
) -> None:
    """Requests come, decode, read a prompt in parts, rest for a step, start anew, end; all of it in any order."""
    made, positions = StepPicker(), dict[str, int]()
    for _ in range(30):
        for number, wants in enumerate(wanted):
            if f"{number}" not in positions and chances.random() < 0.3:
                positions[f"{number}"] = 0
                made.want(f"{number}", {EXTRA_ARG: [number, 1]} if wants else None, 5)
        for name in [name for name in positions if chances.random() < 0.05]:
            del positions[name]
            made.forget([name])
        for name in positions:
            positions[name] = (
                0 if chances.random() < 0.05 else positions[name]
            )  # its memory was taken from it
        order = [name for name in positions if chances.random() < 0.9]
        if chances.random() < 0.1:
            chances.shuffle(order)
        step = {name: (positions[name], 1 if chances.random() < 0.9 else 3) for name in order}
        found, expected, at = picked(made, order, step), list[tuple[int, list[int]]](), 0
        for name, (first, count) in step.items():
            for token in range(count if wanted[int(name)] else 0):
                expected.append((at + token, [int(name), first + token]))
            at += count
            positions[name] += count
        assert list(zip(found.indices, found.names.tolist(), strict=True)) == expected


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
    made = StepPicker()
    made.want("a", {EXTRA_ARG: rows.extra_arg}, prompt_tokens)
    written, told, position, unread = list[int](), list[int](), 0, 0
    for token in range(answer_tokens):
        while position < prompt_tokens + token:
            count = chances.randint(1, prompt_tokens + token - position)
            step = picked(made, ["x", "a"], {"x": (3, 2), "a": (position, count)})
            assert all(2 <= index < 2 + count for index in step.indices)
            assert set(step.names[:, 0].tolist()) <= {5}
            written += step.names[:, 1].tolist()
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


def test_the_reader_finds_the_names_beside_the_values() -> None:
    pool = SharedMemoryPool.create(pool_shape("last", 4, 2, slots=2, rows=3))
    try:
        lease, reader = pool.writer().lease(), pool.reader()
        assert lease is not None
        notes = Picked([0, 1], np.array([[7, 1], [9, 400]])).notes()
        lease.notes[: len(notes)] = notes
        lease.buffer[:] = bytes([255]) * 24  # rows in full do not reach the notes
        lease.publish(2)
        taken = reader.take()
        assert taken is not None
        assert names_in(taken.notes).tolist() == [[7, 1], [9, 400]]
    finally:
        pool.close()
