"""Texts to tokens for many requests at once, without holding up the event loop that the answers come through.

A text that is alone in its turn of the loop is encoded there and then, unless it is long: a request alone pays for no
thread. All of a turn with several go to a thread together, where the tokenizer takes every core it finds and lets go of
the interpreter, and come back a few at a time, so that a wave of starts leaves the loop room for the first answers.
Event loop only.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

SHORT_CHARS = 4_000  # a millisecond
AT_ONCE = 4  # requests that go on in one turn of the loop: a millisecond of vLLM's own work
WARM_UP_TEXTS = 16


class Watch(Protocol):
    """Is told of a wave of prompts."""

    def expect(self) -> None:
        """Several are on their way."""
        ...

    def given(self, lengths: Sequence[int], left: Sequence[int] | None) -> None:
        """Prompts of so many tokens were handed on in this turn; `left` come next, None while that is not known."""
        ...

    def begin(self) -> None:
        """Nothing more is on its way."""
        ...


class PromptTokens:
    """One model's tokenizer (tokenizers.Tokenizer); `of` for each text. `watch` is told of those that come together."""

    def __init__(self, tokenizer: Any, watch: Watch) -> None:
        self._tokenizer = tokenizer
        self._watch = watch
        self._waiting: list[tuple[str, asyncio.Future[list[int]]]] = []  # of this turn
        self._ready: deque[tuple[asyncio.Future[list[int]], list[int]]] = deque()
        self._batches: set[asyncio.Task[None]] = set()
        self._encoding = 0  # batches of which there are no tokens yet

    async def of(self, text: str) -> list[int]:
        """The text's tokens, nothing added. Raises what the tokenizer raises."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._end_turn)
        future: asyncio.Future[list[int]] = loop.create_future()
        self._waiting.append((text, future))
        return await future

    async def warm_up(self) -> None:
        """Start the threads that a first wave would wait for."""
        await asyncio.gather(*(self.of(f"Hello {number}.") for number in range(WARM_UP_TEXTS)))

    def _end_turn(self) -> None:
        waiting, self._waiting = self._waiting, []
        if len(waiting) == 1 and len(waiting[0][0]) <= SHORT_CHARS:
            self._encode_here(*waiting[0])
            return
        if len(waiting) > 1:
            self._watch.expect()
        task = asyncio.get_running_loop().create_task(self._encode(waiting))
        self._batches.add(task)
        task.add_done_callback(self._batches.discard)

    def _encode_here(self, text: str, future: asyncio.Future[list[int]]) -> None:
        if future.done():
            return
        try:
            future.set_result(self._tokenizer.encode(text, add_special_tokens=False).ids)
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits raises it
            future.set_exception(error)

    async def _encode(self, waiting: list[tuple[str, asyncio.Future[list[int]]]]) -> None:
        self._encoding += 1
        try:
            found = await asyncio.to_thread(self._encoded, [text for text, _ in waiting])
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait raise it
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
            found = list[list[int]]()
        finally:
            self._encoding -= 1
        begun = bool(self._ready)
        futures = [future for _, future in waiting]
        self._ready += zip(futures, found, strict=False)  # after an error nothing was found
        if not begun:
            self._give_out()

    def _encoded(self, texts: list[str]) -> list[list[int]]:
        return [found.ids for found in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def _give_out(self) -> None:
        """The next few, then again in the loop's next turn; whoever was cancelled meanwhile is passed over."""
        lengths: list[int] = []
        for _ in range(min(AT_ONCE, len(self._ready))):
            future, tokens = self._ready.popleft()
            if not future.done():
                future.set_result(tokens)
                lengths.append(len(tokens))
        more_to_come = self._encoding or self._waiting
        self._watch.given(lengths, None if more_to_come else [len(tokens) for _, tokens in self._ready])
        if self._ready:
            asyncio.get_running_loop().call_soon(self._give_out)
        elif not more_to_come:
            self._watch.begin()
