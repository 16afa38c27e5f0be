"""Waves of a Thinker's bench: N sessions ask at the same moment, straight into vLLM or through our whole path.

Every session's time counts from the wave's begin, on both ways: the last of 64 has waited for the 63 before it. "Asked"
is when its own call began, so what a clock of each session's own would show is the difference.
"""

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from voice_agent.bench.paired import between
from voice_agent.bench.statistics import nearest_rank
from voice_agent.bench.thinker_models import prompt
from voice_agent.clock import NS_PER_S, MonotonicClock, ms_between
from voice_agent.engine.messages import Failed, Finished, TextDelta, Think
from voice_agent.engine.supervisor import EngineProcess
from voice_agent.errors import EngineError

TEMPLATE_TOKENS = 9
# kinds of waves that go straight into vLLM, and how their ids begin
NOT_OURS = {"bare": "bare", "texts": "bare-texts"}


@dataclass(frozen=True)
class Wave:
    """One wave: each session's times, all tokens, and how long the whole took."""

    asked_ms: Sequence[float]
    first_ms: Sequence[float]
    tokens: int
    seconds: float


def first_ms(waves: Sequence[Wave], percent: float) -> float:
    """A percentile over all sessions of all waves; 0 is the mean."""
    found = [ms for wave in waves for ms in wave.first_ms]
    return nearest_rank(found, percent) if percent else sum(found) / len(found)


def tokens_per_s(waves: Sequence[Wave]) -> float:
    """While a wave ran."""
    return sum(wave.tokens for wave in waves) / sum(wave.seconds for wave in waves)


def summed_up(waves: Sequence[Wave]) -> dict[str, Any]:
    """First token in ms, and tokens a second; each wave's own median too."""
    own_ms = [
        first - asked for wave in waves for asked, first in zip(wave.asked_ms, wave.first_ms, strict=True)
    ]
    return {
        "own_clock_ms_p50": round(nearest_rank(own_ms, 50), 2),
        "first_ms_mean": round(first_ms(waves, 0), 2),
        "first_ms_p50": round(first_ms(waves, 50), 2),
        "first_ms_p95": round(first_ms(waves, 95), 2),
        "tokens_per_s": round(tokens_per_s(waves), 1),
        "n": len(own_ms),
        "waves_p50_ms": [round(first_ms([wave], 50), 1) for wave in waves],
    }


def over(waves: Sequence[Wave], bare: Sequence[Wave]) -> dict[str, str]:
    """What is between two kinds that took turns, each with the range that 95 of 100 draws of these waves give."""
    bare_per_s = tokens_per_s(bare)
    readings: dict[str, Callable[[Sequence[Wave]], float]] = {
        "p50_ms": lambda some: first_ms(some, 50),
        "p95_ms": lambda some: first_ms(some, 95),
        "mean_ms": lambda some: first_ms(some, 0),
        "tokens_percent": lambda some: 100 * tokens_per_s(some) / bare_per_s,
    }
    return {name: str(between(waves, bare, reading)) for name, reading in readings.items()}


class Bench:
    """One engine process, measured."""

    def __init__(self, engine: EngineProcess, arguments: argparse.Namespace, hidden: str, waves: int) -> None:
        self._hidden = hidden
        self._waves_at_least = waves
        self._engine = engine
        self._arguments = arguments
        self._clock = MonotonicClock()
        self._seed = 0  # a prompt is never asked twice: the prefix cache must not help one side

    async def level(self, sessions: int) -> dict[str, Any]:
        """Both kinds of waves at one number of sessions; the first of each is not counted."""
        more = [*(["texts"] if self._arguments.texts else []), *(["hidden"] if self._hidden else [])]
        kinds = {kind: list[Wave]() for kind in ("bare", "ours", *more)}
        for number in range(self._waves(sessions) + 1):
            order = list(kinds) if number % 2 else list(reversed(kinds))
            for kind in order:
                measured = await (self._bare if kind in NOT_OURS else self._ours)(sessions, kind)
                if number:
                    kinds[kind].append(measured)
        found = {kind: summed_up(waves) for kind, waves in kinds.items()}
        for kind in found.keys() - {"bare"}:
            found[kind]["over_bare"] = await asyncio.to_thread(over, kinds[kind], kinds["bare"])
        return found

    def _waves(self, sessions: int) -> int:
        return max(self._waves_at_least, min(self._arguments.least_answers // sessions, 40))

    def _prompts(self, sessions: int) -> list[dict[str, Any]]:
        first, self._seed = self._seed, self._seed + sessions
        length = self._arguments.prompt_tokens - TEMPLATE_TOKENS
        return [{"role": "user", "content": prompt(length, first + n)} for n in range(sessions)]

    def _think(self, request_id: str, messages: list[dict[str, Any]], hidden: str = "") -> Think:
        tokens = self._arguments.answer_tokens
        return Think(request_id, self._engine.next_epoch(), messages, max_output_tokens=tokens, hidden=hidden)

    async def _bare(self, sessions: int, kind: str) -> Wave:
        request, found = self._think(f"{NOT_OURS[kind]}-{self._seed}", self._prompts(sessions)), ""
        async with self._engine.submit(request) as results:
            async for result in results:
                if isinstance(result, Failed):
                    raise EngineError(result.message)
                found += result.text if isinstance(result, TextDelta) else ""
        return Wave(**json.loads(found))

    async def _ours(self, sessions: int, kind: str) -> Wave:
        hidden = "reply" if kind == "hidden" else ""
        messages = self._prompts(sessions)
        begin_ns = self._clock.now_ns()
        measured = await asyncio.gather(
            *(
                self._one(self._think(f"{kind}-{self._seed}-{n}", [message], hidden), begin_ns)
                for n, message in enumerate(messages)
            )
        )
        seconds = (self._clock.now_ns() - begin_ns) / NS_PER_S
        asked_ms, first_ms, tokens = zip(*measured, strict=True)
        return Wave(asked_ms, first_ms, sum(tokens), seconds)

    async def one_more(self, request_id: str, seed: int) -> None:
        """One answer of the longest kind, outside of any wave."""
        message = {"role": "user", "content": prompt(self._arguments.prompt_tokens, -1 - seed)}
        tokens = self._arguments.context - self._arguments.prompt_tokens - 100
        request = Think(request_id, self._engine.next_epoch(), [message], max_output_tokens=tokens)
        await self._one(request, self._clock.now_ns())

    async def _one(self, request: Think, begin_ns: int) -> tuple[float, float, int]:
        """One answer through our whole path: ms from `begin_ns` to its call and first piece, and its tokens."""
        asked_ms, first_ms, tokens = ms_between(begin_ns, self._clock.now_ns()), 0.0, 0
        async with self._engine.submit(request) as results:
            async for result in results:
                match result:
                    case TextDelta():
                        first_ms = first_ms or ms_between(begin_ns, self._clock.now_ns())
                    case Finished(usage=usage):
                        tokens = usage["completion_tokens"]
                    case Failed(message=message):
                        raise EngineError(message)
                    case _:
                        pass
        if not first_ms:
            raise EngineError("an answer without a piece of text")
        return asked_ms, first_ms, tokens
