"""Conversations to tokens for many requests at once, without holding up the event loop that the answers come through.

One that is alone in its turn of the loop is rendered and encoded there and then, unless much of it is new: a request
alone pays for no thread. Of several, those that an idle model begins with come first, there and then as well, since
nobody else waits for anything. The others are rendered a few at a time and go to a thread together, where the tokenizer
takes every core it finds and lets go of the interpreter, and come back a few at a time, so that a wave of starts leaves
the loop room for the first answers. Event loop only.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from voice_agent.models.text_tokens import TextTokens

SHORT_CHARS = 4_000  # of new text: a millisecond for one; several take as long where there are cores for them
AT_ONCE = 4  # requests that go on in one turn of the loop: a millisecond of vLLM's own work
WARM_UP_TEXTS = 16
USUAL_TOKENS_PER_CHAR = 0.25


class Watch(Protocol):
    """Is told of a wave of prompts."""

    def expect(self, lengths: Sequence[int]) -> int:
        """Several of about so many tokens are on their way; gives how many, of the first ones, are wanted at once."""
        ...

    def given(self, lengths: Sequence[int], left: Sequence[int]) -> None:
        """Prompts of so many tokens were handed on in this turn; others of about as many as `left` says come next."""
        ...

    def begin(self) -> None:
        """Nothing more is on its way."""
        ...


@dataclass(eq=False, slots=True)
class _Asked:
    """A prompt that somebody waits for; its text once it is rendered, its tokens once it is encoded."""

    chars: int
    render: Callable[[], str]
    future: asyncio.Future[list[int]]
    text: str | None = None
    tokens: list[int] | None = None

    def rendered(self) -> bool:
        """Render it, once; False if nobody waits any more, be it for what the template has against it."""
        if self.future.done():
            return False
        try:
            self.text = self.render() if self.text is None else self.text
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits raises it
            self.future.set_exception(error)
        return not self.future.done()

    def handed_on(self) -> bool:
        """Give out the tokens; False if there are none or nobody waits any more."""
        if self.tokens is None or self.future.done():
            return False
        self.future.set_result(self.tokens)
        return True


class PromptTokens:
    """One model's prompts; `of` for each. `watch` is told of those that come together.

    Whoever was cancelled meanwhile is passed over.
    """

    def __init__(self, tokens: TextTokens, watch: Watch) -> None:
        self._tokens = tokens
        self._watch = watch
        self._waiting: list[_Asked] = []  # of this turn
        self._encoding: set[_Asked] = set()  # of which there are no tokens yet
        self._ready: deque[_Asked] = deque()
        self._batches: set[asyncio.Task[None]] = set()
        self._tokens_per_char = USUAL_TOKENS_PER_CHAR  # of those handed on last

    async def of(self, chars: int, render: Callable[[], str]) -> list[int]:
        """The tokens of the text that `render` gives, about `chars` long. Raises what that or the tokenizer raises."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._end_turn)
        future: asyncio.Future[list[int]] = loop.create_future()
        self._waiting.append(_Asked(chars, render, future))
        return await future

    async def warm_up(self) -> None:
        """Start the threads that a first wave would wait for."""
        texts = [f"Hello {number}." for number in range(WARM_UP_TEXTS)]
        await asyncio.gather(*(self.of(len(text), lambda text=text: text) for text in texts))

    def _end_turn(self) -> None:
        waiting, self._waiting = self._waiting, []
        wanted = self._watch.expect(self._about(waiting)) if len(waiting) > 1 else 1
        first = [asked for asked in waiting[:wanted] if asked.rendered()]
        long = [asked for asked in first if self._tokens.unknown_chars(asked.text or "") > SHORT_CHARS]
        later = [*long, *waiting[wanted:]]
        self._encoding.update(later)
        if len(first) > len(long) or not later:
            self._encode_here([asked for asked in first if asked not in long])
        if later:
            task = asyncio.get_running_loop().create_task(self._encode_beside(later))
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)

    def _encode_here(self, rendered: list[_Asked]) -> None:
        try:
            self._encode(rendered)
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits raises it
            _fail(rendered, error)
        self._hand_on(rendered)

    async def _encode_beside(self, later: list[_Asked]) -> None:
        rendered: list[_Asked] = []
        for asked in later:
            if not len(rendered) % AT_ONCE:
                await asyncio.sleep(0)  # those that were handed on go first, and an answer may have come
            rendered += [asked] if asked.rendered() else []
        try:
            await asyncio.to_thread(self._encode, rendered)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait raise it
            _fail(rendered, error)
        self._encoding.difference_update(later)
        begun = bool(self._ready)
        self._ready += rendered
        if not begun:
            self._give_out()

    def _encode(self, rendered: Sequence[_Asked]) -> None:
        for asked, tokens in zip(
            rendered, self._tokens.of([asked.text or "" for asked in rendered]), strict=True
        ):
            asked.tokens = tokens

    def _give_out(self) -> None:
        """The next few, then again in the loop's next turn."""
        self._hand_on([self._ready.popleft() for _ in range(min(AT_ONCE, len(self._ready)))])
        if self._ready:
            asyncio.get_running_loop().call_soon(self._give_out)

    def _hand_on(self, encoded: list[_Asked]) -> None:
        """Give them their tokens, and say what is still to come."""
        given = [asked for asked in encoded if asked.handed_on()]
        lengths = [len(asked.tokens or ()) for asked in given]
        if chars := sum(asked.chars for asked in given):
            self._tokens_per_char = sum(lengths) / chars
        coming = [*self._ready, *self._encoding, *self._waiting]
        self._watch.given(lengths, self._about(coming))
        if not coming:
            self._watch.begin()

    def _about(self, some: Sequence[_Asked]) -> list[int]:
        """Their lengths in tokens, guessed where they are not known yet."""
        rate = self._tokens_per_char
        return [int(asked.chars * rate) if asked.tokens is None else len(asked.tokens) for asked in some]


def _fail(asked: Sequence[_Asked], error: Exception) -> None:
    for each in asked:
        if not each.future.done():
            each.future.set_exception(error)
