"""What the operations of a frame are told, beside their tensors: bundles of pointers.

Both sets of operations, plain and Triton, take the same bundles.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from voice_agent.models.qwen3_tts.arena import Arena
from voice_agent.models.qwen3_tts.transformer import Layer, Shape


@dataclass(frozen=True)
class Residual:
    """The sum that layers add to, and what its next reader takes of it: `ready`, it times that reader's norm weight.

    `ready` lacks the norm's factor, one number a row, which follows from `squares`: sums over so many columns each.
    Whoever writes the sum writes all three, so that no launch stands between it and a product. Plain operations use
    the sum alone.
    """

    x: Tensor  # [B, H] float32
    ready: Tensor  # [B, H] in the weights' dtype
    squares: Tensor  # [B, H / grain] float32

    @property
    def grain(self) -> int:
        """Columns of a sum of squares."""
        return self.x.shape[1] // self.squares.shape[1]

    def settle(self, following: Tensor) -> None:
        """Make the rest of `x`, for a reader with this norm weight."""
        self.ready.copy_(self.x * following)
        self.squares.copy_(self.x.square().unflatten(1, (-1, self.grain)).sum(-1))

    def rows(self, first: int, end: int | None = None) -> "Residual":
        """A view of some rows."""
        return Residual(self.x[first:end], self.ready[first:end], self.squares[first:end])


@dataclass(frozen=True)
class Scratch:
    """What a stack of layers writes."""

    sums: Residual
    qkv: Tensor
    seen: Tensor
    fed: Tensor
    logits: Tensor

    def rows(self, first: int) -> "Scratch":
        """A view of the rows from one on."""
        return Scratch(
            self.sums.rows(first), *(part[first:] for part in (self.qkv, self.seen, self.fed, self.logits))
        )


@dataclass(frozen=True)
class Stack:
    """Layers and what they need beside a batch: angles of positions, and each layer's reader's norm."""

    layers: list[Layer]
    shape: Shape
    cos: Tensor  # [length, dim / 2] float32
    sin: Tensor
    norms: list[Tensor]  # of every layer's first product, and of what reads behind the last

    def heads(self, index: int, kv: Tensor, at: "At", of: Residual) -> "Attention":
        """One layer's attention; kv [layers, places, ...]."""
        layer, shape = self.layers[index], self.shape
        counts = shape.num_attention_heads, shape.num_key_value_heads
        norms = layer.query_norm, layer.key_norm
        return Attention(kv[index], at.places, at.state, at.position, *norms, self.cos, self.sin, *counts, of)


@dataclass(frozen=True)
class At:
    """Where a batch's rows stand. With `state` a row's place in the cache is its slot; without, its number."""

    places: Tensor  # [B] slots
    state: Tensor | None
    position: int = 0


@dataclass(frozen=True)
class Attention:
    """One layer's heads (see At)."""

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
    of: Residual  # what queries, keys and values are products of


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
    of: Residual  # what the logits are a product of
    table: Tensor | None = None  # [codes, h]
    next: Residual | None = None  # [B, h]
    following: Tensor | None = None  # norm of the layer that reads `next`


class Ops(Protocol):
    """The operations of a frame; each writes its first argument.

    `following` is the norm weight of whoever reads the sum next. The rows of a product may lack their norm's factor as
    long as the same set's `attend` and `choose` give it to them.
    """

    def norm_linear(self, out: Tensor, x: Residual, norm: Tensor, weight: Tensor) -> None: ...  # noqa: D102
    def norm_swiglu(self, out: Tensor, x: Residual, norm: Tensor, gate_up: Tensor) -> None: ...  # noqa: D102
    def add_linear(self, total: Residual, x: Tensor, weight: Tensor, following: Tensor) -> None: ...  # noqa: D102
    def enter(  # noqa: D102
        self,
        total: Residual,
        x: Residual,
        norm: Tensor,
        narrow: tuple[Tensor, Tensor] | None,
        following: Tensor,
    ) -> None: ...
    def attend(self, out: Tensor, qkv: Tensor, parts: Attention) -> None: ...  # noqa: D102
    def attend_two(self, out: Tensor, qkv: Tensor, parts: Attention) -> None: ...  # noqa: D102
    def input_rows(  # noqa: D102
        self, out: Residual, slots: Tensor, arena: Arena, inputs: Inputs, following: Tensor
    ) -> None: ...
    def choose(self, logits: Tensor, slots: Tensor, arena: Arena, pick: Pick) -> None: ...  # noqa: D102
