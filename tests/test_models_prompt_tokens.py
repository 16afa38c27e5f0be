"""Prompts of a wave become tokens beside the event loop, and those of a request alone at once."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tokenizers import Tokenizer

from voice_agent.bench.thinker_models import prompt, write_tokenizer
from voice_agent.models.prompt_tokens import AT_ONCE, SHORT_CHARS, PromptTokens
from voice_agent.models.text_tokens import TextTokens


class Watched:
    """A real tokenizer, and where it was called; a batch waits until it is let go."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.alone: list[str] = []
        self.batches: list[list[str]] = []
        self.threads: set[int] = set()
        self.go = threading.Event()
        self.go.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def encode(self, text: str, **how: Any) -> Any:
        self.alone.append(text)
        return self.tokenizer.encode(text, **how)

    def encode_batch_fast(self, texts: list[str], **how: Any) -> Any:
        self.go.wait(5)
        self.batches.append(texts)
        self.threads.add(threading.get_ident())
        return self.tokenizer.encode_batch_fast(texts, **how)


class Told:
    """Writes down what is told of a wave; `first` are wanted at once."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.expected: list[list[int]] = []
        self.events: list[object] = []

    def expect(self, lengths: Sequence[int]) -> int:
        self.expected.append(list(lengths))
        self.events.append("expect")
        return self.first

    def given(self, lengths: Sequence[int], left: Sequence[int]) -> None:
        self.events.append((list(lengths), len(left)))

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


def prompts(watched: Watched, told: Told) -> PromptTokens:
    tokens = PromptTokens(TextTokens(watched), told)
    watched.alone.clear()  # of finding out what kind of tokenizer it is
    return tokens


def texts(count: int) -> list[str]:
    return [prompt(20, seed) for seed in range(count)]


def tokens_of(tokens: PromptTokens, text: str) -> Coroutine[Any, Any, list[int]]:
    return tokens.of(len(text), lambda: text)


def all_of(tokens: PromptTokens, asked: list[str]) -> asyncio.Future[list[list[int]]]:
    return asyncio.gather(*(tokens_of(tokens, text) for text in asked))


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_wave_is_encoded_together_beside_the_loop_and_exactly(watched: Watched) -> None:
    asked, tokens = texts(20), prompts(watched, Told())
    found = await all_of(tokens, asked)
    assert found == [watched.tokenizer.encode(text, add_special_tokens=False).ids for text in asked]
    assert watched.alone == []
    assert watched.batches == [asked]
    assert threading.get_ident() not in watched.threads


async def test_those_that_are_wanted_at_once_wait_for_no_thread(watched: Watched) -> None:
    watched.go.clear()
    asked, told = texts(20), Told(first=6)
    tokens = prompts(watched, told)
    tasks = [asyncio.create_task(tokens_of(tokens, text)) for text in asked]
    watched.go.set()  # which the thread waits for, and would the loop
    await turns(3)
    assert [task.done() for task in tasks[:6]] == [True] * 6
    found = await asyncio.gather(*tasks)
    assert found == [watched.tokenizer.encode(text, add_special_tokens=False).ids for text in asked]
    assert watched.batches == [asked[:6], asked[6:]]
    assert told.events[:2] == ["expect", ([len(each) for each in found[:6]], 14)]


async def test_a_long_one_that_is_wanted_at_once_goes_to_the_thread_all_the_same(watched: Watched) -> None:
    asked = ["a " * SHORT_CHARS, *texts(3)]
    tokens = prompts(watched, Told(first=2))
    await all_of(tokens, asked)
    assert watched.alone == [asked[1]]
    assert watched.batches == [[asked[0], *asked[2:]]]
    assert threading.get_ident() not in watched.threads


async def test_a_long_one_of_which_little_is_new_needs_no_thread(watched: Watched) -> None:
    threads = list[int]()
    encode = watched.encode
    watched.encode = lambda text, **how: threads.append(threading.get_ident()) or encode(text, **how)
    tokens, long = prompts(watched, Told()), "a " * SHORT_CHARS
    await tokens_of(tokens, f"{long}<|im_end|>")
    found = await tokens_of(tokens, f"{long}<|im_end|>So?")
    assert found == watched.tokenizer.encode(f"{long}<|im_end|>So?", add_special_tokens=False).ids
    assert (threads[-2] == threading.get_ident(), threads[-1]) == (False, threading.get_ident())


async def test_lengths_are_guessed_from_those_before(watched: Watched) -> None:
    told = Told()
    tokens = prompts(watched, told)
    found = await all_of(tokens, texts(8))
    told.expected.clear()
    await all_of(tokens, texts(8))
    (guessed,) = told.expected
    assert guessed == pytest.approx([len(each) for each in found], abs=2)


async def test_the_others_are_rendered_a_few_in_a_turn(watched: Watched) -> None:
    rendered, seen = list[int](), list[int]()
    tokens = prompts(watched, Told(first=2))

    def ask(number: int) -> Coroutine[Any, Any, list[int]]:
        return tokens.of(6, lambda: rendered.append(number) or f"Hello {number}")

    tasks = [asyncio.create_task(ask(number)) for number in range(2 + 3 * AT_ONCE)]
    while not all(task.done() for task in tasks):
        seen.append(len(rendered))
        await asyncio.sleep(0)
    assert max(after - before for before, after in zip(seen, seen[1:], strict=False)) <= AT_ONCE
    assert rendered == list(range(2 + 3 * AT_ONCE))


async def test_one_after_the_other_needs_no_thread(watched: Watched) -> None:
    tokens = prompts(watched, Told())
    for text in texts(3):
        await tokens_of(tokens, text)
        await asyncio.sleep(0)
    assert len(watched.alone) == 3
    assert watched.batches == []


async def test_a_long_one_does_not_hold_up_the_loop(watched: Watched) -> None:
    threads = list[int]()
    encode = watched.encode
    watched.encode = lambda text, **how: threads.append(threading.get_ident()) or encode(text, **how)
    long = "a " * SHORT_CHARS
    await tokens_of(prompts(watched, Told()), long)
    assert watched.alone == [long]
    assert threads != [threading.get_ident()]


async def test_an_empty_one_has_no_tokens(watched: Watched) -> None:
    assert await tokens_of(prompts(watched, Told()), "") == []


async def test_a_wave_comes_back_a_few_at_a_time(watched: Watched) -> None:
    tokens, done = prompts(watched, Told()), list[int]()

    async def one(number: int, text: str) -> None:
        await tokens_of(tokens, text)
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
    found = await all_of(prompts(watched, told), asked)
    lengths = [len(each) for each in found]
    assert told.events == ["expect", (lengths[:AT_ONCE], 2), (lengths[AT_ONCE:], 0), "begin"]


async def test_one_alone_is_expected_by_nobody(watched: Watched) -> None:
    told = Told()
    found = await tokens_of(prompts(watched, told), "Hello.")
    assert told.events == [([len(found)], 0), "begin"]


async def test_a_wave_that_comes_in_two_turns_ends_with_the_later(watched: Watched) -> None:
    told = Told()
    watched.go.clear()
    tokens = prompts(watched, told)
    earlier = asyncio.ensure_future(all_of(tokens, texts(2)))
    await turns(2)
    later = asyncio.ensure_future(all_of(tokens, texts(3)))
    await turns(2)
    watched.go.set()
    await asyncio.gather(earlier, later)
    assert told.events[:2] == ["expect", "expect"]
    lengths, left = cast(tuple[list[int], int], told.events[2])
    assert len(lengths) + left == 5  # whichever came back first, the others are known of
    assert told.events.count("begin") == 1
    assert told.events[-1] == "begin"


async def test_one_that_was_cancelled_is_passed_over(watched: Watched) -> None:
    watched.go.clear()
    tokens = prompts(watched, Told())
    tasks = [asyncio.create_task(tokens_of(tokens, text)) for text in texts(4)]
    await asyncio.sleep(0.01)
    tasks[2].cancel()
    watched.go.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[2], asyncio.CancelledError)
    assert all(isinstance(found[number], list) for number in (0, 1, 3))


@pytest.mark.parametrize("first", [0, 2, 4])
async def test_a_tokenizers_error_reaches_all_who_wait_and_ends_the_wave(
    watched: Watched, first: int
) -> None:
    told = Told(first)
    tokens = prompts(watched, told)
    watched.tokenizer = cast(Any, object())
    for count in (3, 1):
        failed = await asyncio.gather(
            *(tokens_of(tokens, text) for text in texts(count)), return_exceptions=True
        )
        assert all(isinstance(each, AttributeError) for each in failed)
    assert told.events[-1] == "begin"


@pytest.mark.parametrize("first", [0, 2, 4])
async def test_what_a_template_has_against_one_reaches_no_other(watched: Watched, first: int) -> None:
    tokens = prompts(watched, Told(first))

    def refuse() -> str:
        raise ValueError("no such role")

    asked = [tokens.of(6, refuse) if number == 1 else tokens_of(tokens, "Hello.") for number in range(4)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(each, ValueError) for each in found] == [False, True, False, False]
    with pytest.raises(ValueError, match="no such role"):
        await tokens.of(6, refuse)
