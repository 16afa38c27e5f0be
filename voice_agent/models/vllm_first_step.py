"""Lets an idle vLLM begin with a full step of a wave of prompts, not with a step that holds the wave's first one.

Whoever asks an idle vLLM first gets a step of his own, and everybody who comes right after him waits for it and for the
next: with 64 prompts of 300 tokens that is four steps in the place of three. So where several prompts become tokens
together its scheduler is held until there are enough for a good first step or the last of them is there, 20 ms at most.
Once it runs nothing is held: what comes meanwhile goes into its next step anyway. Event loop only.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

logger = logging.getLogger(__name__)

HOLD_S = 0.02  # most that a prompt waits for those beside it
LONG_STEP_S = 0.1  # a full step that hides what it takes to bring the rest in behind a small first one


@dataclass(frozen=True)
class Scheduling:
    """vLLM's scheduler, from outside: tokens of a full step, and what holds it and lets it go.

    Both are sent at once, in order with the requests; they raise `dead` once vLLM is gone, whose requests tell of it.
    """

    step_tokens: int
    hold: Callable[[], Awaitable[None]]
    release: Callable[[], Awaitable[None]]
    dead: type[Exception]


def first_step_tokens(wave_tokens: int, prompts: int, step_tokens: int) -> int:
    """Tokens of the step that a wave should begin with, so that as few steps as can be take it all.

    An odd number of steps has room for one that is not full, and it comes first then: the wave begins sooner, and half
    of the prompts are through after the middle step, which so ends earlier. Of an even number half are through after
    the half of the steps, which a small first one would only put off.
    """
    room = max(1, step_tokens - prompts)  # a prompt that is through takes a token of each later step
    steps = math.ceil(wave_tokens / room)
    return wave_tokens - (steps - 1) * room if steps % 2 else step_tokens


class FirstStep:
    """One vLLM's; `busy` says whether it has requests already.

    A wave begins with a full step until one has been seen that is long enough for a small one to come first.
    """

    def __init__(
        self, scheduling: Scheduling, busy: Callable[[], bool], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._scheduling = scheduling
        self._busy = busy
        self._now_s = now_s
        # the shortest that was seen: whatever comes between makes it longer
        self._full_step_s: float | None = None
        self._begun: tuple[float, int] | None = None  # when a first step began, and with how many tokens
        self._given_tokens = self._given_prompts = 0
        self._latest: asyncio.TimerHandle | None = None  # while it is held
        self._sending: set[asyncio.Task[None]] = set()

    def expect(self) -> None:
        """Several prompts are on their way."""
        if self._latest or self._busy():
            return
        self._given_tokens = self._given_prompts = 0
        self._latest = asyncio.get_running_loop().call_later(HOLD_S, self.begin)
        self._send(self._scheduling.hold)

    def given(self, lengths: Sequence[int], left: Sequence[int] | None) -> None:
        """Prompts of so many tokens were handed on just now; they reach vLLM in the loop's next turn.

        `left`: those that come behind them, None while that is not known.
        """
        if not self._latest:
            return
        self._given_tokens += sum(lengths)
        self._given_prompts += len(lengths)
        enough = step_tokens = self._scheduling.step_tokens
        if left is not None and (self._full_step_s or 0.0) >= LONG_STEP_S:
            wave_tokens = self._given_tokens + sum(left)
            enough = first_step_tokens(wave_tokens, self._given_prompts + len(left), step_tokens)
        if self._given_tokens >= enough:
            self.begin()

    def begin(self) -> None:
        """Nothing more is on its way, or it took too long; may be called at any time."""
        if not self._latest:
            return
        self._latest.cancel()
        self._latest = None
        self._begun = self._now_s(), self._given_tokens
        # behind those who were handed their tokens in this turn
        asyncio.get_running_loop().call_soon(self._send, self._scheduling.release)

    def answered(self) -> None:
        """A first token came; may be called for every one."""
        if self._begun is None:
            return
        (begun_s, tokens), self._begun = self._begun, None
        if tokens >= self._scheduling.step_tokens:
            step_s = self._now_s() - begun_s
            self._full_step_s = min(step_s, self._full_step_s or step_s)

    def _send(self, order: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(self._sent(order))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _sent(self, order: Callable[[], Awaitable[None]]) -> None:
        try:
            await order()
        except self._scheduling.dead:
            logger.debug("vLLM was gone before it was held or let go")
