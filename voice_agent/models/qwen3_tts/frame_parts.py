"""What the operations of a frame are told, beside their tensors: bundles of pointers, no code.

Both sets of operations, plain and Triton, take the same bundles.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from voice_agent.models.qwen3_tts.arena import Arena


@dataclass(frozen=True)
class Attention:
    """One layer's heads. With `state` a row's place in `kv` is its slot; without, its number, at `position`."""

    kv: Tensor  # [places, 2, length, kv heads, dim]
    places: Tensor  # [B] slots
    state: Tensor | None
    position: int
    query_norm: Tensor
    key_norm: Tensor
    cos: Tensor  # [length, dim / 2] float32
    sin: Tensor
    heads: int
    kv_heads: int


@dataclass(frozen=True)
class Inputs:
    """Tables that the Talker's next row is summed from."""

    text_table: Tensor  # [text vocab, H], projected
    code_table: Tensor  # [vocab, H]
    more_tables: Tensor  # [15, codes, H]
    pad: int
    begin: int


@dataclass(frozen=True)
class Pick:
    """Which group is sampled, and where the chosen code's row goes for the pass that follows."""

    group: int
    eos: int
    result: Tensor  # [B] int32: code 0, or -1 when a row has no finite score
    table: Tensor | None  # [codes, h]
    next: Tensor | None  # [B, h]


class Ops(Protocol):
    """The operations of a frame; each writes its first argument."""

    def norm_linear(  # noqa: D102
        self, out: Tensor, x: Tensor, norm: Tensor, weight: Tensor, bias: Tensor | None = None
    ) -> None: ...
    def norm_swiglu(self, out: Tensor, x: Tensor, norm: Tensor, gate_up: Tensor) -> None: ...  # noqa: D102
    def add_linear(self, total: Tensor, x: Tensor, weight: Tensor) -> None: ...  # noqa: D102
    def attend(self, out: Tensor, qkv: Tensor, parts: Attention) -> None: ...  # noqa: D102
    def input_rows(self, out: Tensor, slots: Tensor, arena: Arena, inputs: Inputs) -> None: ...  # noqa: D102
    def choose(self, logits: Tensor, slots: Tensor, arena: Arena, pick: Pick) -> None: ...  # noqa: D102
