"""Prompts to tokens for many requests at once, without holding up the event loop that the answers come through.

A prompt that comes alone is rendered and encoded there and then, unless it is long: it pays for no thread. Of a wave a
few at a time are rendered and go to a thread, where the tokenizer takes every core it finds and lets go of the
interpreter; the next few are rendered meanwhile, and no more until the first are back. So these are on their way before
the last are looked at, and the loop has room for the first answers. Event loop only.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

SHORT_CHARS = 4_000  # a millisecond
AT_ONCE = 8  # requests that go on in one turn of the loop: a millisecond or two of vLLM's own work
AHEAD = 2  # times so many are on threads


class Watch(Protocol):
    """Is told of a wave of prompts."""

    def expect(self) -> None:
        """Several are on their way."""
        ...

    def begin(self) -> None:
        """Some were handed their tokens and have gone on, or none will be."""
        ...


@dataclass(eq=False, slots=True)
class _Prompt:
    """One that waits: how to render it, and its tokens."""

    render: Callable[[], str]
    tokens: asyncio.Future[list[int]]


class PromptTokens:
    """One model's tokenizer (tokenizers.Tokenizer); `watch` is told of prompts that come together."""

    def __init__(self, tokenizer: Any, watch: Watch) -> None:
        self._tokenizer = tokenizer
        self._watch = watch
        self._waiting = deque[_Prompt]()
        self._encoding = set[asyncio.Task[None]]()
        self._encoding_long = set[asyncio.Task[None]]()

    async def of(self, render: Callable[[], str]) -> list[int]:
        """The tokens of what `render` gives, nothing added. Raises what it raises, or the tokenizer."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._go_on)
        prompt = _Prompt(render, loop.create_future())
        self._waiting.append(prompt)
        return await prompt.tokens

    async def warm_up(self) -> None:
        """Start the threads that a first wave would wait for."""
        await asyncio.gather(*(self.of(lambda: "Hello.") for _ in range(2 * AT_ONCE)))

    def _go_on(self) -> None:
        """The next few: rendered, and off to a thread; long ones each to one of its own, where they hold up nobody."""
        if not self._waiting or len(self._encoding) >= AHEAD:
            return
        if len(self._waiting) > 1:
            self._watch.expect()
        few = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
        rendered = [(prompt, text) for prompt in few if (text := _rendered(prompt)) is not None]
        short = [each for each in rendered if len(each[1]) <= SHORT_CHARS]
        if len(few) == len(short) == 1:
            self._encode_here(*short.pop())
        for each in rendered:
            if len(each[1]) > SHORT_CHARS:
                self._send_off([each], self._encoding_long)
        if short:
            self._send_off(short, self._encoding)
        if not rendered:
            self._watch.begin()
        asyncio.get_running_loop().call_soon(self._go_on)

    def _send_off(self, rendered: list[tuple[_Prompt, str]], those: set[asyncio.Task[None]]) -> None:
        task = asyncio.get_running_loop().create_task(self._encode(rendered))
        those.add(task)
        task.add_done_callback(self._encoded)

    def _encode_here(self, prompt: _Prompt, text: str) -> None:
        try:
            prompt.tokens.set_result(self._tokenizer.encode(text, add_special_tokens=False).ids)
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits raises it
            prompt.tokens.set_exception(error)

    async def _encode(self, rendered: list[tuple[_Prompt, str]]) -> None:
        """A few on a thread; whoever was cancelled meanwhile is passed over."""
        texts = [text for _, text in rendered]
        try:
            found = await asyncio.to_thread(
                self._tokenizer.encode_batch_fast, texts, add_special_tokens=False
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait raise it
            for prompt, _ in rendered:
                if not prompt.tokens.done():
                    prompt.tokens.set_exception(error)
            return
        for (prompt, _), encoding in zip(rendered, found, strict=True):
            if not prompt.tokens.done():
                prompt.tokens.set_result(encoding.ids)

    def _encoded(self, task: asyncio.Task[None]) -> None:
        """In the turn in which they go on."""
        self._encoding.discard(task)
        self._encoding_long.discard(task)
        self._watch.begin()
        self._go_on()


def _rendered(prompt: _Prompt) -> str | None:
    """Its text; None where nobody waits for it any more, or it cannot be rendered."""
    if prompt.tokens.done():
        return None
    try:
        return prompt.render()
    except Exception as error:  # noqa: BLE001 - whatever it is, who waits raises it
        prompt.tokens.set_exception(error)
        return None
