"""The decoder layers that Talker and Code Predictor share: RMS norm, grouped attention with normed heads, SwiGLU.

A layer reads and writes keys and values through a `Cache`, so the same code serves an arena of slots and the 16
positions of a frame. mRoPE is plain RoPE here: for text and codes its three position rows are equal.
Knows no embedding, no head and no sampling.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from voice_agent.models.qwen3_tts.weights import Source


class Shape(Protocol):
    """The sizes of a stack of layers."""

    @property
    def hidden_size(self) -> int: ...  # noqa: D102
    @property
    def intermediate_size(self) -> int: ...  # noqa: D102
    @property
    def num_hidden_layers(self) -> int: ...  # noqa: D102
    @property
    def num_attention_heads(self) -> int: ...  # noqa: D102
    @property
    def num_key_value_heads(self) -> int: ...  # noqa: D102
    @property
    def head_dim(self) -> int: ...  # noqa: D102
    @property
    def rms_norm_eps(self) -> float: ...  # noqa: D102
    @property
    def rope_theta(self) -> float: ...  # noqa: D102


class Cache(Protocol):
    """Keys and values of the rows so far."""

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store [B, T, heads, dim] of the new rows; give all that may be read, [B, L, heads, dim] each."""
        ...


@dataclass(frozen=True)
class Layer:
    """Weights of one layer; query, key and value are one matrix, gate and up another."""

    attention_norm: Tensor  # [H]
    qkv: Tensor  # [(q + 2 kv) * dim, H]
    query_norm: Tensor  # [dim]
    key_norm: Tensor  # [dim]
    out: Tensor  # [H, q * dim]
    mlp_norm: Tensor  # [H]
    gate_up: Tensor  # [2 * ffn, H]
    down: Tensor  # [H, ffn]


@dataclass(frozen=True)
class SlotCache:
    """Rows of an arena [layers, slots, 2, max_len, heads, dim]: row b lives in slot `slots[b]`.

    `longest` bounds what is read, so that short contexts don't pay for the arena's length.
    """

    kv: Tensor
    slots: Tensor  # [B]
    positions: Tensor  # [B, T]
    longest: int

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write at (slot, position) and read the slot from its start; what lies behind a row's position is masked."""
        arena = self.kv[layer]  # [slots, 2, max_len, heads, dim]
        arena[self.slots[:, None], 0, self.positions] = keys
        arena[self.slots[:, None], 1, self.positions] = values
        held = arena[self.slots, :, : self.longest]  # [B, 2, L, heads, dim]
        return held[:, 0], held[:, 1]


@dataclass(frozen=True)
class PrefixCache:
    """The first rows of a scratch [layers, B, 2, positions, heads, dim], filled from the left, all rows alike."""

    kv: Tensor
    start: int

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append at `start`; gives views, no copies."""
        batch, count = keys.shape[:2]
        held = self.kv[layer, :batch, :, : self.start + count]
        held[:, 0, self.start :] = keys
        held[:, 1, self.start :] = values
        return held[:, 0], held[:, 1]


def build_layers(source: Source, shape: Shape) -> list[Layer]:
    """All layers from the published names; `source` stands at the level of `layers.0`."""
    return [_layer(source.under(f"layers.{index}"), shape) for index in range(shape.num_hidden_layers)]


def _layer(source: Source, shape: Shape) -> Layer:
    hidden, ffn, dim = shape.hidden_size, shape.intermediate_size, shape.head_dim
    queries, keys = shape.num_attention_heads * dim, shape.num_key_value_heads * dim
    attention, mlp = source.under("self_attn"), source.under("mlp")
    qkv = [
        attention.get(f"{n}_proj.weight", w, hidden) for n, w in (("q", queries), ("k", keys), ("v", keys))
    ]
    return Layer(
        attention_norm=source.get("input_layernorm.weight", hidden),
        qkv=torch.cat(qkv),
        query_norm=attention.get("q_norm.weight", dim),
        key_norm=attention.get("k_norm.weight", dim),
        out=attention.get("o_proj.weight", hidden, queries),
        mlp_norm=source.get("post_attention_layernorm.weight", hidden),
        gate_up=torch.cat([mlp.get(f"{name}_proj.weight", ffn, hidden) for name in ("gate", "up")]),
        down=mlp.get("down_proj.weight", hidden, ffn),
    )


def run_layers(
    layers: list[Layer], shape: Shape, rows: Tensor, positions: Tensor, cache: Cache, mask: Tensor | None
) -> Tensor:
    """Rows [B, T, H] at positions [B, T] through all layers; mask [B, 1, T, L] is true where a row may look."""
    rotation = rope(positions, shape.head_dim, shape.rope_theta, rows.dtype)
    eps = shape.rms_norm_eps
    for index, layer in enumerate(layers):
        queries, keys, values = _heads(layer, shape, rms_norm(rows, layer.attention_norm, eps), rotation)
        seen = attend(queries, *cache.extend(index, keys, values), mask)
        rows = rows + F.linear(seen, layer.out)
        rows = rows + swiglu(rms_norm(rows, layer.mlp_norm, eps), layer.gate_up, layer.down)
    return rows


def _heads(
    layer: Layer, shape: Shape, rows: Tensor, rotation: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys [B, T, heads, dim], normed per head and rotated, and values."""
    counts = [shape.num_attention_heads, shape.num_key_value_heads, shape.num_key_value_heads]
    heads = F.linear(rows, layer.qkv).unflatten(-1, (-1, shape.head_dim))
    queries, keys, values = heads.split(counts, dim=-2)
    queries = rotate(rms_norm(queries, layer.query_norm, shape.rms_norm_eps), rotation)
    return queries, rotate(rms_norm(keys, layer.key_norm, shape.rms_norm_eps), rotation), values


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax attention of [B, T, q, dim] over [B, L, kv, dim], joined to [B, T, q * dim]."""
    queries, keys, values = (heads.transpose(1, 2) for heads in (queries, keys, values))
    grouped = queries.shape[1] != keys.shape[1]
    seen = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=grouped)
    return seen.transpose(1, 2).flatten(-2)


def swiglu(rows: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """The gated feed-forward part, without biases."""
    gate, up = F.linear(rows, gate_up).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, down)


def rms_norm(rows: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root mean square norm over the last axis, computed in float32 as published."""
    wide = rows.float()
    return weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(rows.dtype)


def rope(positions: Tensor, dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine [..., 1, dim / 2] of each position, for `rotate`; angles in float32."""
    steps = torch.arange(0, dim, 2, device=positions.device, dtype=torch.float32)
    angles = positions[..., None, None].float() * (1.0 / theta ** (steps / dim))
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(heads: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the first half of each head's dimensions against the second: [B, T, heads, dim]."""
    cos, sin = rotation
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
