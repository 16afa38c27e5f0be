"""Waves of a Thinker's bench: N sessions ask at the same moment, straight into vLLM or through our whole path.

Every session's time counts from the wave's begin, on both ways: the last of 64 has waited for the 63 before it. "Asked"
is when its own call began, so what a clock of each session's own would show is the difference.
"""

import argparse
import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from voice_agent.bench.statistics import nearest_rank
from voice_agent.bench.thinker_models import prompt
from voice_agent.clock import NS_PER_S, MonotonicClock, ms_between
from voice_agent.engine.messages import Failed, Finished, TextDelta, Think
from voice_agent.engine.supervisor import EngineProcess
from voice_agent.errors import EngineError

TEMPLATE_TOKENS = 9


@dataclass
class Waves:
    """All waves of one kind at one number of sessions."""

    asked_ms: list[float] = field(default_factory=list[float])
    first_ms: list[float] = field(default_factory=list[float])
    tokens: int = 0
    seconds: float = 0.0

    def add(self, wave: "Waves") -> None:
        """One more."""
        self.asked_ms += wave.asked_ms
        self.first_ms += wave.first_ms
        self.tokens += wave.tokens
        self.seconds += wave.seconds

    def summed_up(self) -> dict[str, float]:
        """First token in ms, and tokens a second."""
        own_ms = [first - asked for asked, first in zip(self.asked_ms, self.first_ms, strict=True)]
        return {
            "own_clock_ms_p50": round(nearest_rank(own_ms, 50), 2),
            "first_ms_mean": round(sum(self.first_ms) / len(self.first_ms), 2),
            "first_ms_p50": round(nearest_rank(self.first_ms, 50), 2),
            "first_ms_p95": round(nearest_rank(self.first_ms, 95), 2),
            "tokens_per_s": round(self.tokens / self.seconds, 1),
            "n": len(self.first_ms),
        }


class Bench:
    """One engine process, measured."""

    def __init__(self, engine: EngineProcess, arguments: argparse.Namespace, hidden: str) -> None:
        self._hidden = hidden
        self._engine = engine
        self._arguments = arguments
        self._clock = MonotonicClock()
        self._seed = 0  # a prompt is never asked twice: the prefix cache must not help one side

    async def level(self, sessions: int) -> dict[str, Any]:
        """Both kinds of waves at one number of sessions; the first of each is not counted."""
        kinds = {"bare": Waves(), "ours": Waves()}
        if self._hidden:
            kinds["hidden"] = Waves()
        for number in range(self._waves(sessions) + 1):
            order = list(kinds) if number % 2 else list(reversed(kinds))
            for kind in order:
                measured = await (self._bare(sessions) if kind == "bare" else self._ours(sessions, kind))
                if number:
                    kinds[kind].add(measured)
        return {kind: waves.summed_up() for kind, waves in kinds.items()}

    def _waves(self, sessions: int) -> int:
        return max(self._arguments.waves, min(self._arguments.least_answers // sessions, 40))

    def _prompts(self, sessions: int) -> list[dict[str, Any]]:
        self._seed += sessions
        length = self._arguments.prompt_tokens - TEMPLATE_TOKENS
        return [{"role": "user", "content": prompt(length, self._seed + n)} for n in range(sessions)]

    def _think(self, request_id: str, messages: list[dict[str, Any]], hidden: str = "") -> Think:
        tokens = self._arguments.answer_tokens
        return Think(request_id, self._engine.next_epoch(), messages, max_output_tokens=tokens, hidden=hidden)

    async def _bare(self, sessions: int) -> Waves:
        request, found = self._think(f"bare-{self._seed}", self._prompts(sessions)), ""
        async with self._engine.submit(request) as results:
            async for result in results:
                found += result.text if isinstance(result, TextDelta) else ""
        return Waves(**json.loads(found))

    async def _ours(self, sessions: int, kind: str) -> Waves:
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
        return Waves(list(asked_ms), list(first_ms), sum(tokens), seconds)

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
