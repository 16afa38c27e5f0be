"""Lets an idle vLLM begin a wave of prompts with a step of a good size, not with one that holds the wave's first one.

Whoever asks an idle vLLM first gets a step of his own, and everybody who comes right after him waits for it and for the
next. So where several prompts become tokens together its scheduler is held until there are enough for a good first step
or the last of them is there, 20 ms at most. Once it runs nothing is held: what comes meanwhile goes into its next step
anyway. Event loop only.
"""

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

logger = logging.getLogger(__name__)

HOLD_S = 0.02  # most that a prompt waits for those beside it
SHORT_STEP_S = 0.015  # below it a step takes as long to launch as to compute
TELLING_TOKENS = 1_000  # a first step of so many tells how long one takes
REMEMBERED = 16  # requests over which the share of cached tokens is averaged


@dataclass(frozen=True)
class Scheduling:
    """vLLM's scheduler, from outside: tokens of a full step, and what holds it and lets it go.

    Both are sent at once, in order with the requests; they raise `dead` once vLLM is gone, whose requests tell of it.
    """

    step_tokens: int
    hold: Callable[[], Awaitable[None]]
    release: Callable[[], Awaitable[None]]
    dead: type[Exception]


def first_step_tokens(wave_tokens: int, prompts: int, step_tokens: int, least_tokens: int) -> int:
    """Tokens of the step that a wave should begin with, so that half of its prompts are through as early as can be.

    A step's prompts are all through at its end only, so the first takes what full ones leave of that half. None is to
    be shorter than `least_tokens`, nor what is left for the last; where that cannot be, the first takes all it can.
    """
    room = max(1, step_tokens - prompts)  # a prompt that is through takes a token of each later step
    half = wave_tokens / 2 + wave_tokens / max(1, prompts)  # and one prompt more
    first = max(least_tokens, math.ceil(half % room))
    return first if first + least_tokens <= wave_tokens and first < room else step_tokens


class FirstStep:
    """One vLLM's; `busy` says whether it has requests already.

    A wave begins with as full a step as can be until steps of known size have told how long a token takes.
    """

    def __init__(
        self, scheduling: Scheduling, busy: Callable[[], bool], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._scheduling = scheduling
        self._busy = busy
        self._now_s = now_s
        # of a prompt; the least that was seen: whatever comes between makes it longer
        self._token_s: float | None = None
        self._cached_share = 0.0  # of the tokens of the last prompts: vLLM does not compute these
        self._begun: tuple[float, int] | None = None  # when a first step began, and with how many tokens
        self._given_tokens = self._given_prompts = 0
        self._latest: asyncio.TimerHandle | None = None  # while it is held
        self._sending: set[asyncio.Task[None]] = set()

    def expect(self, lengths: Sequence[int]) -> int:
        """Several prompts of about so many tokens are on their way.

        Gives how many the first step takes, and one more, since they are guessed; 0 where it is not held for them.
        """
        if self._latest or self._busy():
            return 0
        self._given_tokens = self._given_prompts = 0
        self._latest = asyncio.get_running_loop().call_later(HOLD_S, self.begin)
        self._send(self._scheduling.hold)
        enough = self._enough(sum(lengths), len(lengths))
        return 2 + sum(behind < enough for behind in itertools.accumulate(lengths))

    def given(self, lengths: Sequence[int], left: Sequence[int]) -> None:
        """Prompts of so many tokens were handed on just now; they reach vLLM in the loop's next turn.

        `left`: those that come behind them, as far as they are known.
        """
        if not self._latest:
            return
        self._given_tokens += sum(lengths)
        self._given_prompts += len(lengths)
        wave_tokens, prompts = self._given_tokens + sum(left), self._given_prompts + len(left)
        if self._given_tokens >= self._enough(wave_tokens, prompts):
            self.begin()

    def _enough(self, wave_tokens: int, prompts: int) -> int:
        """Tokens that the wave should begin with."""
        step_tokens = self._scheduling.step_tokens
        if self._token_s is None:
            return step_tokens
        computed = max(0.01, 1 - self._cached_share)
        least_tokens = math.ceil(SHORT_STEP_S / self._token_s)
        first = first_step_tokens(int(wave_tokens * computed), prompts, step_tokens, least_tokens)
        return step_tokens if first == step_tokens else math.ceil(first / computed)

    def begin(self) -> None:
        """Nothing more is on its way, or it took too long; may be called at any time."""
        if not self._latest:
            return
        self._latest.cancel()
        self._latest = None
        self._begun = self._now_s(), self._given_tokens
        # behind those who were handed their tokens in this turn
        asyncio.get_running_loop().call_soon(self._send, self._scheduling.release)

    def answered(self, prompt_tokens: int, cached_tokens: int) -> None:
        """A request's first token came; so many of its prompt's were cached."""
        share = cached_tokens / max(1, prompt_tokens)
        if self._begun is not None:
            (begun_s, given_tokens), self._begun = self._begun, None
            tokens = min(given_tokens, self._scheduling.step_tokens) * (1 - share)
            if tokens >= TELLING_TOKENS:
                token_s = (self._now_s() - begun_s) / tokens
                self._token_s = min(token_s, self._token_s or token_s)
        self._cached_share += (share - self._cached_share) / REMEMBERED

    def _send(self, order: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(self._sent(order))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _sent(self, order: Callable[[], Awaitable[None]]) -> None:
        try:
            await order()
        except self._scheduling.dead:
            logger.debug("vLLM was gone before it was held or let go")
