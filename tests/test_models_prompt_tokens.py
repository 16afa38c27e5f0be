"""Prompts of a wave become tokens beside the event loop, and those of a request alone at once."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tokenizers import Tokenizer

from voice_agent.bench.thinker_models import prompt, write_tokenizer
from voice_agent.models.prompt_tokens import AT_ONCE, SHORT_CHARS, PromptTokens


class Watched:
    """A real tokenizer, and where it was called; a batch waits until it is let go."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.alone: list[str] = []
        self.batches: list[list[str]] = []
        self.threads: set[int] = set()
        self.go = threading.Event()
        self.go.set()

    def encode(self, text: str, **how: Any) -> Any:
        self.alone.append(text)
        return self.tokenizer.encode(text, **how)

    def encode_batch_fast(self, texts: list[str], **how: Any) -> Any:
        self.go.wait(5)
        self.batches.append(texts)
        self.threads.add(threading.get_ident())
        return self.tokenizer.encode_batch_fast(texts, **how)


class Told:
    """Writes down what is told of a wave."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def expect(self) -> None:
        self.events.append("expect")

    def given(self, lengths: Sequence[int], left: Sequence[int] | None) -> None:
        self.events.append((list(lengths), left))

    def begin(self) -> None:
        self.events.append("begin")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder, 2_000)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture
def watched(tokenizer: Tokenizer) -> Watched:
    return Watched(tokenizer)


def texts(count: int) -> list[str]:
    return [prompt(20, seed) for seed in range(count)]


async def test_a_wave_is_encoded_together_beside_the_loop_and_exactly(watched: Watched) -> None:
    asked, tokens = texts(20), PromptTokens(watched, Told())
    found = await asyncio.gather(*(tokens.of(text) for text in asked))
    assert found == [watched.tokenizer.encode(text, add_special_tokens=False).ids for text in asked]
    assert watched.alone == []
    assert watched.batches == [asked]
    assert threading.get_ident() not in watched.threads


async def test_one_after_the_other_needs_no_thread(watched: Watched) -> None:
    tokens = PromptTokens(watched, Told())
    for text in texts(3):
        await tokens.of(text)
        await asyncio.sleep(0)
    assert len(watched.alone) == 3
    assert watched.batches == []


async def test_a_long_one_does_not_hold_up_the_loop(watched: Watched) -> None:
    long = "a " * SHORT_CHARS
    await PromptTokens(watched, Told()).of(long)
    assert watched.batches == [[long]]


async def test_a_wave_comes_back_a_few_at_a_time(watched: Watched) -> None:
    tokens, done = PromptTokens(watched, Told()), list[int]()

    async def one(number: int, text: str) -> None:
        await tokens.of(text)
        done.append(number)

    tasks = [asyncio.create_task(one(number, text)) for number, text in enumerate(texts(3 * AT_ONCE))]
    seen = [0]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        seen.append(len(done))
    assert max(after - before for before, after in zip(seen, seen[1:], strict=False)) <= AT_ONCE
    assert done == sorted(done)


async def test_a_wave_is_told_of_from_its_begin_to_its_last_tokens(watched: Watched) -> None:
    told, asked = Told(), texts(AT_ONCE + 2)
    tokens = PromptTokens(watched, told)
    found = await asyncio.gather(*(tokens.of(text) for text in asked))
    lengths = [len(each) for each in found]
    first, last = lengths[:AT_ONCE], lengths[AT_ONCE:]
    assert told.events == ["expect", (first, last), (last, []), "begin"]


async def test_nothing_is_told_of_one_alone(watched: Watched) -> None:
    told = Told()
    await PromptTokens(watched, told).of("Hello.")
    assert told.events == []


async def test_a_wave_that_comes_in_two_turns_ends_with_the_later(watched: Watched) -> None:
    told = Told()
    watched.go.clear()
    tokens = PromptTokens(watched, told)
    earlier = [asyncio.create_task(tokens.of(text)) for text in texts(2)]
    await asyncio.sleep(0.01)
    later = [asyncio.create_task(tokens.of(text)) for text in texts(3)]
    await asyncio.sleep(0.01)
    watched.go.set()
    await asyncio.gather(*earlier, *later)
    assert told.events[:2] == ["expect", "expect"]
    first_given = cast(tuple[list[int], list[int] | None], told.events[2])
    assert first_given[1] is None  # whichever came back first, who comes behind is not known yet
    assert told.events.count("begin") == 1
    assert told.events[-1] == "begin"


async def test_one_that_was_cancelled_is_passed_over(watched: Watched) -> None:
    watched.go.clear()
    tokens = PromptTokens(watched, Told())
    tasks = [asyncio.create_task(tokens.of(text)) for text in texts(4)]
    await asyncio.sleep(0.01)
    tasks[2].cancel()
    watched.go.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[2], asyncio.CancelledError)
    assert all(isinstance(found[number], list) for number in (0, 1, 3))


async def test_a_tokenizers_error_reaches_all_who_wait_and_ends_the_wave(watched: Watched) -> None:
    told, tokens_of_nothing = Told(), object()
    tokens = PromptTokens(watched, told)
    watched.tokenizer = cast(Any, tokens_of_nothing)
    for count in (3, 1):
        failed = await asyncio.gather(*(tokens.of(text) for text in texts(count)), return_exceptions=True)
        assert all(isinstance(each, AttributeError) for each in failed)
    assert told.events == ["expect", ([], []), "begin"]
