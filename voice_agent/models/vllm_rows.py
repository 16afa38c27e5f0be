"""Hidden rows between vLLM's worker, which writes them, and this process, which tells whose they are.

Every row has its name beside it in the pool (a note, in host memory): the reply's key and its number in that reply. Row
0 is the prompt's last position (or its first, for `whole`), and every token has the row that it was chosen from. So
nobody has to be told what lies where: the worker knows key and first position from the request's sampling parameters, a
reference is known here from the number of tokens that have come, and the reader of the pool finds the name in the
block. A token arrives only after the step that wrote its row, so what a reference names has been published. No torch,
no vLLM.
"""

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from voice_agent.engine.messages import RowsRef
from voice_agent.engine.slots import Shape
from voice_agent.errors import ConfigError

ENVIRONMENT = "VOICE_AGENT_HIDDEN_ROWS"  # how the plan reaches vLLM's processes, which load the plugin
EXTRA_ARG = "voice_agent_rows"  # in a request's SamplingParams.extra_args: [key, whole or not]
_NAME_BYTES = 16  # key and number, int64 each
_ONE_ON = np.array([0, 1], np.int64)
_NO_NAMES = np.empty((0, 2), np.int64)


@dataclass(frozen=True)
class HiddenRows:
    """What a row holds, and the pool it goes to: its address, and by device memory or the host's."""

    content: str  # "last", "last+embedding" or "layer"
    layer: int
    pool: str
    via: str

    @classmethod
    def planned(cls, hidden: str, pool: str, via: str) -> Self:
        """From the configured words; raises ConfigError."""
        content, _, layer = hidden.partition(":")
        known = content in {"last", "last+embedding"} and not layer
        if not known and not (content == "layer" and layer.isdigit()):
            raise ConfigError(
                f"thinker.options.hidden: {hidden!r} is none of last, last+embedding, layer:K (K counted from 0)"
            )
        if not pool:
            raise ConfigError("thinker.options.hidden_pool: hidden rows need a pool to go to")
        if via not in {"device", "host"}:
            raise ConfigError(f"thinker.options.hidden_via: {via!r} is none of device, host")
        return cls(content, int(layer or 0), pool, via)

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


def pool_shape(hidden: str, hidden_size: int, value_bytes: int, *, slots: int, rows: int) -> Shape:
    """A pool for such rows, `rows` to a block; ValueError as Shape says."""
    parts = 2 if hidden == "last+embedding" else 1
    return Shape(slots, rows, parts * hidden_size * value_bytes, _NAME_BYTES)


class ReplyRows:
    """One reply's rows as this side counts them; `whole` means from the prompt's first position on."""

    def __init__(self, key: int, *, whole: bool) -> None:
        self._key = key
        self._tokens = self._told = 0
        self.whole = whole

    @property
    def extra_arg(self) -> list[int]:
        """For the worker."""
        return [self._key, int(self.whole)]

    def grown(self, tokens: int, prompt_tokens: int) -> RowsRef | None:
        """The rows that are new after so many more tokens have come; the prompt's as vLLM widened it for its media."""
        if not tokens:
            return None
        self._tokens += tokens
        first, self._told = self._told, self._tokens + (prompt_tokens - 1 if self.whole else 0)
        return RowsRef(self._key, first, self._told)


class Picked(NamedTuple):
    """What of a step goes to the pool, in the order of its tokens: their indices in the step, and their rows' names."""

    indices: list[int]
    names: NDArray[np.int64]  # [n, 2] key and number

    def part(self, first: int, most: int) -> "Picked":
        """From the `first` on, `most` of them at most."""
        return Picked(self.indices[first : first + most], self.names[first : first + most])

    def notes(self) -> bytes:
        """The names as the pool holds them."""
        return self.names.tobytes()


class StepPicker:
    """Worker's side: which requests want rows, and what of each step that is. Time in it is time the GPU may wait for.

    A step of decoding is the last one, each reply a token on: of 64 replies it takes 10 us, any other step 60.
    """

    def __init__(self) -> None:
        self._wanted: dict[str, tuple[int, int]] = {}  # key and the position of row 0
        self._order: list[str] = []  # of the last step, if it was one of decoding in which all wanted rows
        self._positions = 0
        self._picked = Picked([], _NO_NAMES)

    def want(self, name: str, extra_args: dict[str, Any] | None, prompt_tokens: int) -> None:
        """Of a new request, what its sampling parameters say."""
        if found := (extra_args or {}).get(EXTRA_ARG):
            self._wanted[name] = int(found[0]), 0 if found[1] else prompt_tokens - 1

    def forget(self, names: Iterable[str]) -> None:
        """Requests that ended."""
        for name in names:
            self._wanted.pop(name, None)

    def pick(
        self, order: list[str], positions: int | None, scheduled: Callable[[], dict[str, tuple[int, int]]]
    ) -> Picked:
        """What of a step goes to the pool.

        `order`: requests as their tokens lie in the step; `positions`: the sum of their tokens' positions, None where
        one has more than a token or is new; `scheduled`: the position of a request's first token, and how many.
        """
        steady = self._order and order == self._order and positions == self._positions + len(order)
        if steady:
            self._picked = Picked(self._picked.indices, self._picked.names + _ONE_ON)
        else:
            self._picked = self._found(order, scheduled()) if self._wanted else Picked([], _NO_NAMES)
            every = positions is not None and len(self._picked.indices) == len(order)
            self._order = order if every else []
        self._positions = positions or 0
        return self._picked

    def _found(self, order: list[str], scheduled: dict[str, tuple[int, int]]) -> Picked:
        indices: list[int] = []
        names: list[int] = []
        at = 0
        for name in order:
            first, count = scheduled[name]
            if name in self._wanted:
                key, position = self._wanted[name]
                for token in range(max(first, position), first + count):
                    indices.append(at + token - first)
                    names += (key, token - position)
            at += count
        return Picked(indices, np.array(names, np.int64).reshape(-1, 2))
