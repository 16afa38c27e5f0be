"""Hidden rows between vLLM's worker, which writes them, and this process, which tells where they lie.

A reply gets a slot of the pool for its life: row 0 is its prompt's last position (or first, for `whole`), and every
token has the row that it was chosen from. So both sides count alike: the worker knows slot and first position from the
request's sampling parameters, the reference is known here from the number of tokens that have come. A token arrives
only after the step that wrote its row, so a reference that is told is ready to be read.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from voice_agent.engine.messages import RowsRef
from voice_agent.errors import ConfigError

ENVIRONMENT = "VOICE_AGENT_HIDDEN_ROWS"  # how the plan reaches vLLM's processes, which load the plugin
EXTRA_ARG = "voice_agent_rows"  # in a request's SamplingParams.extra_args: [slot, first position]


@dataclass(frozen=True)
class HiddenRows:
    """What a row holds, and the pool's shape."""

    content: str  # "last", "last+embedding" or "layer"
    layer: int
    slots: int
    rows_per_slot: int

    @classmethod
    def planned(cls, hidden: str, *, slots: int, rows_per_slot: int) -> Self:
        """From the configured word; raises ConfigError."""
        content, _, layer = hidden.partition(":")
        known = content in {"last", "last+embedding"} and not layer
        if not known and not (content == "layer" and layer.isdigit()):
            raise ConfigError(
                f"thinker.options.hidden: {hidden!r} is none of last, last+embedding, layer:K (K counted from 0)"
            )
        return cls(content, int(layer or 0), slots, rows_per_slot)

    @classmethod
    def from_environment(cls) -> Self | None:
        """The plan as vLLM's processes see it; None when no rows are wanted."""
        text = os.environ.get(ENVIRONMENT)
        return cls(**json.loads(text)) if text else None

    def to_environment(self) -> None:
        """Leave the plan for the processes that vLLM starts from here."""
        os.environ[ENVIRONMENT] = json.dumps(asdict(self))

    @property
    def parts(self) -> int:
        """How many hidden sizes wide a row is."""
        return 2 if self.content == "last+embedding" else 1


class RowLease:
    """One reply's slot, and how many of its rows have been told."""

    def __init__(self, slot: int, generation: int, *, prompt_tokens: int, whole: bool) -> None:
        self._slot, self._generation = slot, generation
        self._told = 0
        self._written = prompt_tokens - 1 if whole else 0
        self.whole = whole
        self.first_position = 0 if whole else prompt_tokens - 1

    @property
    def extra_arg(self) -> list[int]:
        """For the worker."""
        return [self._slot, self.first_position]

    def grown(self, tokens: int) -> RowsRef | None:
        """The rows that are new after so many more tokens have come."""
        if not tokens:
            return None
        self._written += tokens
        first, self._told = self._told, self._written
        return RowsRef(self._slot, self._generation, first, self._written)


class RowSlots:
    """The pool's slots; who finds none free waits for the oldest reply to give its own back. Event loop only."""

    def __init__(self, rows: HiddenRows) -> None:
        self._free: asyncio.LifoQueue[int] = asyncio.LifoQueue()
        for slot in reversed(range(rows.slots)):
            self._free.put_nowait(slot)
        self._generations = [0] * rows.slots

    @contextlib.asynccontextmanager
    async def lease(self, prompt_tokens: int, *, whole: bool) -> AsyncGenerator[RowLease]:
        """A slot for one reply; after the block its rows may be overwritten, under a new generation."""
        slot = await self._free.get()
        self._generations[slot] += 1
        try:
            yield RowLease(slot, self._generations[slot], prompt_tokens=prompt_tokens, whole=whole)
        finally:
            self._free.put_nowait(slot)


def wanted_rows(plan: HiddenRows, extra_args: dict[str, Any] | None) -> tuple[int, int] | None:
    """Worker's side: a request's first row in the pool and the position it stands for; None if it wants no rows."""
    found = (extra_args or {}).get(EXTRA_ARG)
    return (int(found[0]) * plan.rows_per_slot, int(found[1])) if found else None


def destinations(
    order: list[str],
    scheduled: dict[str, tuple[int, int]],
    wanted: dict[str, tuple[int, int]],
    spill: int,
) -> NDArray[np.int64]:
    """Pool row of every token of a step, in the batch's order: int64 [T]; `spill` for tokens nobody wants.

    `scheduled`: per request its first token's position and how many; `wanted`: first pool row, first position.
    """
    parts: list[NDArray[np.int64]] = []
    for name in order:
        first, count = scheduled[name]
        row, position = wanted.get(name, (spill, -1))
        if position < 0:
            parts.append(np.full(count, spill, np.int64))
            continue
        offsets = np.arange(first - position, first - position + count)
        parts.append(np.where(offsets >= 0, row + offsets, spill))
    return np.concatenate(parts)
