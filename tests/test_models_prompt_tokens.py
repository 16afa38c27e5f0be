"""Prompts of a wave become tokens beside the event loop, and those of a request alone at once."""

import asyncio
import functools
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from tokenizers import Tokenizer

from voice_agent.bench.thinker_models import prompt, write_tokenizer
from voice_agent.errors import EngineError
from voice_agent.models.prompt_tokens import AHEAD, AT_ONCE, SHORT_CHARS, PromptTokens


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
        self.events: list[str] = []

    def expect(self) -> None:
        self.events.append("expect")

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


def of(tokens: PromptTokens, text: str) -> Coroutine[None, None, list[int]]:
    return tokens.of(lambda: text)


async def test_a_wave_is_encoded_a_few_at_a_time_beside_the_loop_and_exactly(watched: Watched) -> None:
    asked, tokens = texts(AT_ONCE + 2), PromptTokens(watched, Told())
    found = await asyncio.gather(*(of(tokens, text) for text in asked))
    assert found == [watched.tokenizer.encode(text, add_special_tokens=False).ids for text in asked]
    assert watched.alone == []
    assert sorted(watched.batches) == sorted([asked[:AT_ONCE], asked[AT_ONCE:]])
    assert threading.get_ident() not in watched.threads


async def test_one_after_the_other_needs_no_thread(watched: Watched) -> None:
    tokens = PromptTokens(watched, Told())
    for text in texts(3):
        await of(tokens, text)
    assert len(watched.alone) == 3
    assert watched.batches == []


async def test_a_long_one_does_not_hold_up_the_loop(watched: Watched) -> None:
    long = "a " * SHORT_CHARS
    await of(PromptTokens(watched, Told()), long)
    assert watched.batches == [[long]]


async def test_no_more_are_rendered_until_the_first_few_are_back(watched: Watched) -> None:
    watched.go.clear()
    tokens, rendered = PromptTokens(watched, Told()), list[str]()

    def render(text: str) -> str:
        rendered.append(text)
        return text

    asked = texts(4 * AT_ONCE)
    tasks = [asyncio.create_task(tokens.of(functools.partial(render, text))) for text in asked]
    await asyncio.sleep(0.02)
    assert rendered == asked[: AHEAD * AT_ONCE]
    watched.go.set()
    await asyncio.gather(*tasks)
    assert rendered == asked


async def test_long_ones_hold_up_nobody(watched: Watched) -> None:
    watched.go.clear()
    tokens = PromptTokens(watched, Told())
    long = [asyncio.create_task(of(tokens, "a " * SHORT_CHARS)) for _ in range(2 * AHEAD)]
    await asyncio.sleep(0.01)
    assert await of(tokens, "Hello.")
    watched.go.set()
    assert all(await asyncio.gather(*long))


async def test_a_wave_is_told_of_before_it_is_encoded_and_once_some_have_gone_on(watched: Watched) -> None:
    told = Told()
    tokens = PromptTokens(watched, told)

    async def one(text: str) -> None:
        await of(tokens, text)
        told.events.append("goes on")

    await asyncio.gather(*(one(text) for text in texts(AT_ONCE)))
    await asyncio.sleep(0)
    assert told.events == ["expect", *["goes on"] * AT_ONCE, "begin"]


async def test_nobody_is_waited_for_by_one_alone(watched: Watched) -> None:
    told = Told()
    await of(PromptTokens(watched, told), "Hello.")
    assert "expect" not in told.events


async def test_one_that_was_cancelled_is_passed_over(watched: Watched) -> None:
    watched.go.clear()
    tokens, rendered = PromptTokens(watched, Told()), list[int]()

    def render(number: int) -> str:
        rendered.append(number)
        return f"Hello {number}."

    tasks = [
        asyncio.create_task(tokens.of(functools.partial(render, number))) for number in range(AT_ONCE + 4)
    ]
    await asyncio.sleep(0)
    tasks[-1].cancel()
    await asyncio.sleep(0.01)
    tasks[2].cancel()
    watched.go.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [number for number, each in enumerate(found) if not isinstance(each, list)] == [2, AT_ONCE + 3]
    assert AT_ONCE + 3 not in rendered


async def test_what_cannot_be_rendered_fails_alone_and_ends_its_wave(watched: Watched) -> None:
    told = Told()
    tokens = PromptTokens(watched, told)

    def refuse() -> str:
        raise EngineError("no template")

    found = await asyncio.gather(tokens.of(refuse), of(tokens, "Hello."), return_exceptions=True)
    assert isinstance(found[0], EngineError) and isinstance(found[1], list)
    found = await asyncio.gather(tokens.of(refuse), tokens.of(refuse), return_exceptions=True)
    assert all(isinstance(each, EngineError) for each in found)
    await asyncio.sleep(0)
    assert told.events == ["expect", "begin"] * 2


async def test_a_tokenizers_error_reaches_all_who_wait_and_ends_the_wave(watched: Watched) -> None:
    told, tokens_of_nothing = Told(), object()
    tokens = PromptTokens(watched, told)
    tokens_broken = PromptTokens(cast(Any, tokens_of_nothing), told)
    for count in (3, 1):
        failed = await asyncio.gather(
            *(of(tokens_broken, text) for text in texts(count)), return_exceptions=True
        )
        assert all(isinstance(each, AttributeError) for each in failed)
    assert await of(tokens, "Hello.")
    assert told.events[0] == "expect" and told.events[-1] == "begin"
