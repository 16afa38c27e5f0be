"""Texts to tokens for many requests at once, without holding up the event loop that the answers come through.

The first text of a turn of the loop is encoded there and then, unless it is long: a request alone pays for no thread.
All others of that turn go to a thread together, where the tokenizer takes every core it finds and lets go of the
interpreter, and come back a few at a time, so that a wave of starts leaves the loop room for the first answers. Event
loop only.
"""

import asyncio
from collections import deque
from typing import Any

SHORT_CHARS = 4_000  # a millisecond
AT_ONCE = 8  # requests that go on in one turn of the loop: a millisecond or two of vLLM's own work


class PromptTokens:
    """One model's tokenizer (tokenizers.Tokenizer); `of` for each text."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._turn_is_on = False
        self._waiting: list[tuple[str, asyncio.Future[list[int]]]] = []
        self._ready: deque[tuple[asyncio.Future[list[int]], list[int]]] = deque()
        self._batches: set[asyncio.Task[None]] = set()

    async def of(self, text: str) -> list[int]:
        """The text's tokens, nothing added. Raises what the tokenizer raises."""
        loop = asyncio.get_running_loop()
        first, self._turn_is_on = not self._turn_is_on, True
        if first:
            loop.call_soon(self._end_turn)
        if first and len(text) <= SHORT_CHARS:
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        future: asyncio.Future[list[int]] = loop.create_future()
        self._waiting.append((text, future))
        return await future

    async def warm_up(self) -> None:
        """Start the threads that a first wave would wait for."""
        await asyncio.gather(*(self.of(f"Hello {number}.") for number in range(2 * AT_ONCE)))

    def _end_turn(self) -> None:
        self._turn_is_on = False
        waiting, self._waiting = self._waiting, []
        if waiting:
            task = asyncio.get_running_loop().create_task(self._encode(waiting))
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)

    async def _encode(self, waiting: list[tuple[str, asyncio.Future[list[int]]]]) -> None:
        try:
            found = await asyncio.to_thread(self._encoded, [text for text, _ in waiting])
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait raise it
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
            return
        begun = bool(self._ready)
        self._ready += zip((future for _, future in waiting), found, strict=True)
        if not begun:
            self._give_out()

    def _encoded(self, texts: list[str]) -> list[list[int]]:
        return [found.ids for found in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def _give_out(self) -> None:
        """The next few, then again in the loop's next turn; whoever was cancelled meanwhile is passed over."""
        for _ in range(min(AT_ONCE, len(self._ready))):
            future, tokens = self._ready.popleft()
            if not future.done():
                future.set_result(tokens)
        if self._ready:
            asyncio.get_running_loop().call_soon(self._give_out)
