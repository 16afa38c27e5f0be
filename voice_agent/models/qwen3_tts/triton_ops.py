"""The frame graph's operations by Triton kernels, or by cuBLAS with Triton around it, whichever suits the batch.

Same meaning as plain_ops. Small batches multiply in registers; from `dot_from` rows on they go through tensor cores,
by Triton or by cuBLAS, whichever was faster for the shape; from `cublas_from` rows on, all by cuBLAS.
"""
# pyright: basic

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from voice_agent.models.qwen3_tts import kernels as triton_kernels
from voice_agent.models.qwen3_tts.arena import STATE, Arena
from voice_agent.models.qwen3_tts.config import GROUPS
from voice_agent.models.qwen3_tts.frame_parts import Attention, Inputs, Pick
from voice_agent.models.qwen3_tts.sampling import CONTROL_CODES

kernels: Any = triton_kernels  # launched as kernel[grid](...), which no type says
_EPS = 1e-6


@dataclass(frozen=True)
class Tile:
    """How a matrix is cut: weight rows and columns of a program, warps, and steps loaded ahead."""

    rows: int
    columns: int
    warps: int = 4
    stages: int = 1


@dataclass
class TritonOps:
    """See frame_parts.Ops. `tiles` overrides the choice for (kernel, weight rows, columns, batch); None: cuBLAS."""

    pdl: bool = False
    dot_from: int = 5
    cublas_from: int = 10_000
    tiles: dict[tuple[str, int, int, int], Tile | None] = field(default_factory=dict)

    def norm_linear(
        self, out: Tensor, x: Tensor, norm: Tensor, weight: Tensor, bias: Tensor | None = None
    ) -> None:
        batch, (rows, columns) = len(x), weight.shape
        tile = self._tile("norm_linear", rows, columns, batch)
        if tile is None:
            product = F.linear(self._normed(x, norm, weight), weight, bias)
            out.copy_(product)
            return
        kernels.norm_linear[(rows // tile.rows,)](
            out, x, norm, weight, weight if bias is None else bias, _EPS, rows, columns,
            batch, self._padded(batch), tile.rows, tile.columns, bias is not None, batch >= self.dot_from,
            tile.stages, self.pdl, num_warps=tile.warps, launch_pdl=self.pdl,
        )  # fmt: skip

    def norm_swiglu(self, out: Tensor, x: Tensor, norm: Tensor, gate_up: Tensor) -> None:
        batch, (rows, columns) = len(x), gate_up.shape
        half = rows // 2
        tile = self._tile("norm_swiglu", rows, columns, batch)
        if tile is None:
            both = F.linear(self._normed(x, norm, gate_up), gate_up)
            kernels.silu_mul[(batch, half // 1024)](out, both, half, 1024, self.pdl, launch_pdl=self.pdl)
            return
        kernels.norm_swiglu[(rows // tile.rows,)](
            out, x, norm, gate_up, _EPS, half, columns, batch, self._padded(batch), tile.rows, tile.columns,
            batch >= self.dot_from, tile.stages, self.pdl, num_warps=tile.warps, launch_pdl=self.pdl,
        )  # fmt: skip

    def add_linear(self, total: Tensor, x: Tensor, weight: Tensor) -> None:
        batch, (rows, columns) = len(x), weight.shape
        tile = self._tile("add_linear", rows, columns, batch)
        if tile is None:
            total += F.linear(x, weight)
            return
        kernels.add_linear[(rows // tile.rows,)](
            total, x, weight, rows, columns, batch, self._padded(batch), tile.rows, tile.columns,
            batch >= self.dot_from, tile.stages, self.pdl, num_warps=tile.warps, launch_pdl=self.pdl,
        )  # fmt: skip

    def attend(self, out: Tensor, qkv: Tensor, parts: Attention) -> None:
        dim, by_slot = parts.query_norm.shape[0], parts.state is not None
        kernels.attend[(len(qkv), parts.heads)](
            out, qkv, parts.kv, parts.places, parts.places if parts.state is None else parts.state, parts.position,
            parts.query_norm, parts.key_norm, parts.cos, parts.sin, _EPS, parts.kv.shape[2], parts.heads,
            parts.kv_heads, dim, 64 if by_slot else 16, by_slot, STATE, self.pdl, num_warps=4 if by_slot else 1,
            launch_pdl=self.pdl,
        )  # fmt: skip

    def input_rows(self, out: Tensor, slots: Tensor, arena: Arena, inputs: Inputs) -> None:
        hidden = out.shape[1]
        kernels.input_rows[(len(out), hidden // 256)](
            out, slots, arena.state, arena.codes, arena.text, inputs.text_table, inputs.code_table,
            inputs.more_tables, inputs.pad, inputs.begin, hidden, 256, arena.ring, arena.text.shape[1],
            inputs.more_tables.shape[1], STATE, self.pdl, num_warps=2, launch_pdl=self.pdl,
        )  # fmt: skip

    def choose(self, logits: Tensor, slots: Tensor, arena: Arena, pick: Pick) -> None:
        vocab, first = logits.shape[1], pick.group == 0
        blank = logits
        table, ahead = (blank if part is None else part for part in (pick.table, pick.next))
        width = 1024 if pick.next is None else pick.next.shape[1]
        kernels.choose[(len(logits),)](
            logits, slots, arena.state, arena.codes, arena.seen, pick.result, ahead, table, pick.group, pick.eos,
            vocab, 1 << (vocab - 1).bit_length(), width, arena.ring, CONTROL_CODES, first, pick.group == GROUPS - 1,
            STATE, arena.spare, arena.length, 32 if first else 16, self.pdl, num_warps=4, launch_pdl=self.pdl,
        )  # fmt: skip

    def _normed(self, x: Tensor, norm: Tensor, like: Tensor) -> Tensor:
        out = torch.empty(x.shape, dtype=like.dtype, device=x.device)
        kernels.rms_norm[(len(x),)](
            out, x, norm, _EPS, x.shape[1], self.pdl, num_warps=8, launch_pdl=self.pdl
        )
        return out

    def _padded(self, batch: int) -> int:
        least = 16 if batch >= self.dot_from else 1
        return max(least, 1 << (batch - 1).bit_length())

    def _tile(self, kernel: str, rows: int, columns: int, batch: int) -> Tile | None:
        """None: leave the matrix to cuBLAS."""
        place = (kernel, rows, columns, batch)
        if place in self.tiles:
            return self.tiles[place]
        if batch >= self.cublas_from:
            return None
        return _dot_tile(kernel, columns, batch) if batch >= self.dot_from else _tile(kernel, columns, batch)


def _tile(kernel: str, columns: int, batch: int) -> Tile:
    """Measured on an H200 at one row; more rows hold more sums in registers, so their tiles are half as large."""
    if kernel == "add_linear":
        tile = Tile(4, 2048, 4) if columns == 2048 else Tile(4, 1024, 4)
    elif columns < 2048:
        tile = Tile(8, 1024, 4)
    else:
        tile = Tile(8, 2048, 8) if kernel == "norm_swiglu" else Tile(8, 512, 4)
    return tile if batch == 1 else Tile(4, min(1024, tile.columns), 4)


def _dot_tile(kernel: str, columns: int, batch: int) -> Tile | None:
    """Measured on an H200; None where cuBLAS with a norm before it is faster."""
    if kernel == "add_linear":
        return Tile(16, 128, 4, 5) if columns > 4096 and batch <= 32 else Tile(16, 256, 4, 3)
    if kernel == "norm_swiglu" and batch <= (16 if columns == 2048 else 32):
        return Tile(64, 64, 4, 5)
    return None
