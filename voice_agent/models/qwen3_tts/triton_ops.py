"""The frame graph's operations by Triton kernels, or by cuBLAS with Triton around it, whichever suits the batch.

Same meaning as plain_ops, but that a product of a norm lacks the norm's factor until `attend` or `choose` reads it.
Small batches multiply in registers; from `dot_from` rows on they go through tensor cores, by Triton or by cuBLAS,
whichever was faster for the shape; from `cublas_from` rows on, all by cuBLAS.
"""
# pyright: basic

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from voice_agent.models.qwen3_tts import kernels as triton_kernels
from voice_agent.models.qwen3_tts.arena import STATE, Arena
from voice_agent.models.qwen3_tts.config import GROUPS
from voice_agent.models.qwen3_tts.frame_parts import Attention, Inputs, Pick, Residual
from voice_agent.models.qwen3_tts.sampling import CONTROL_CODES
from voice_agent.models.qwen3_tts.transformer import rms_norm

kernels: Any = triton_kernels  # launched as kernel[grid](...), which no type says
_EPS = 1e-6


@dataclass(frozen=True)
class Tile:
    """How a matrix is cut: weight rows and columns of a program, warps, and steps loaded ahead."""

    rows: int
    columns: int
    warps: int = 4
    stages: int = 1


_PLAIN = Tile(16, 128, 4, 3)  # where a kernel must be ours and nothing was measured


@dataclass
class TritonOps:
    """See frame_parts.Ops. `tiles` overrides the choice for (kernel, weight rows, columns, batch); None: cuBLAS."""

    pdl: bool = False
    dot_from: int = 5
    cublas_from: int = 10_000
    tiles: dict[tuple[str, int, int, int], Tile | None] = field(default_factory=dict)

    def norm_linear(self, out: Tensor, x: Residual, norm: Tensor, weight: Tensor) -> None:  # noqa: ARG002
        batch, (rows, columns) = len(out), weight.shape
        tile = self._tile("norm_linear", rows, columns, batch)
        if tile is None:
            torch.mm(x.ready, weight.T, out=out)
            return
        kernels.norm_linear[(rows // tile.rows,)](
            out, x.ready, weight, rows, columns, batch, self._padded(batch), tile.rows, tile.columns,
            batch >= self.dot_from, tile.stages, self.pdl, num_warps=tile.warps, launch_pdl=self.pdl,
        )  # fmt: skip

    def norm_swiglu(self, out: Tensor, x: Residual, norm: Tensor, gate_up: Tensor) -> None:  # noqa: ARG002
        batch, (rows, columns) = len(out), gate_up.shape
        half, parts = rows // 2, x.squares.shape[1]
        tile = self._tile("norm_swiglu", rows, columns, batch)
        if tile is None:
            block = min(1024, half & -half)
            kernels.silu_mul[(batch, half // block)](
                out, x.ready @ gate_up.T, x.squares, _EPS, half, columns, parts, block, self.pdl, launch_pdl=self.pdl
            )  # fmt: skip
            return
        kernels.norm_swiglu[(rows // tile.rows,)](
            out, x.ready, x.squares, gate_up, _EPS, half, columns, parts, batch, self._padded(batch), tile.rows,
            tile.columns, batch >= self.dot_from, tile.stages, self.pdl, num_warps=tile.warps, launch_pdl=self.pdl,
        )  # fmt: skip

    def add_linear(self, total: Residual, x: Tensor, weight: Tensor, following: Tensor) -> None:
        tile = self._tile("add_linear", *weight.shape, len(x))
        if tile is None:
            self._settle(total, x @ weight.T, following)
            return
        self._add(tile, total, x, None, (weight, weight), following)

    def enter(
        self,
        total: Residual,
        x: Residual,
        norm: Tensor,
        narrow: tuple[Tensor, Tensor] | None,
        following: Tensor,
    ) -> None:
        if narrow:
            tile = self._tile("enter", *narrow[0].shape, len(x.x))
            self._add(tile or _PLAIN, total, x.ready, x.squares, narrow, following)
        else:
            total.x.copy_(rms_norm(x.x, norm.float(), _EPS))
            self._settle(total, None, following)

    def attend(self, out: Tensor, qkv: Tensor, parts: Attention) -> None:
        dim, by_slot = parts.query_norm.shape[0], parts.state is not None
        of = parts.of
        kernels.attend[(len(qkv), parts.heads)](
            out, qkv, parts.kv, parts.places, parts.places if parts.state is None else parts.state, parts.position,
            parts.query_norm, parts.key_norm, parts.cos, parts.sin, of.squares, _EPS, of.x.shape[1],
            of.squares.shape[1], parts.kv.shape[2], parts.heads, parts.kv_heads, dim, 64 if by_slot else 16, by_slot,
            STATE, self.pdl, num_warps=4 if by_slot else 1, launch_pdl=self.pdl,
        )  # fmt: skip

    def attend_two(self, out: Tensor, qkv: Tensor, parts: Attention) -> None:
        batch, of = len(qkv) // 2, parts.of
        kernels.attend_two[(batch, parts.heads)](
            out, qkv, parts.kv, batch, parts.query_norm, parts.key_norm, parts.cos, parts.sin, of.squares, _EPS,
            of.x.shape[1], of.squares.shape[1], parts.kv.shape[2], parts.heads, parts.kv_heads,
            parts.query_norm.shape[0], self.pdl, num_warps=1, launch_pdl=self.pdl,
        )  # fmt: skip

    def input_rows(
        self, out: Residual, slots: Tensor, arena: Arena, inputs: Inputs, following: Tensor
    ) -> None:
        batch, hidden = out.x.shape
        block = min(256, hidden)
        kernels.input_rows[(batch, hidden // block)](
            out.x, out.ready, out.squares, following, slots, arena.state, arena.codes, arena.text, inputs.text_table,
            inputs.code_table, inputs.more_tables, inputs.pad, inputs.begin, hidden, block, out.grain, arena.ring,
            arena.text.shape[1], inputs.more_tables.shape[1], STATE, self.pdl, num_warps=2, launch_pdl=self.pdl,
        )  # fmt: skip

    def choose(self, logits: Tensor, slots: Tensor, arena: Arena, pick: Pick) -> None:
        vocab, first, last = logits.shape[1], pick.group == 0, pick.group == GROUPS - 1
        of, ahead = (
            pick.of,
            pick.next or pick.of,
        )  # the last group has nothing that follows and writes none of it
        table, norm = (logits if part is None else part for part in (pick.table, pick.following))
        kernels.choose[(len(logits),)](
            logits, slots, arena.state, arena.codes, arena.seen, pick.result, of.squares, ahead.x, ahead.ready,
            ahead.squares, norm, table, pick.group, pick.eos, _EPS, vocab, 1 << (vocab - 1).bit_length(),
            of.x.shape[1], of.squares.shape[1], ahead.x.shape[1], ahead.grain, arena.ring, CONTROL_CODES, first, last,
            STATE, arena.spare, arena.length, 32 if first else 16, self.pdl, num_warps=4, launch_pdl=self.pdl,
        )  # fmt: skip

    def _add(  # noqa: PLR0913, PLR0917
        self,
        tile: Tile,
        total: Residual,
        x: Tensor,
        squares: Tensor | None,
        weights: tuple[Tensor, Tensor],
        following: Tensor,
    ) -> None:
        """A product into a residual sum; with its own `squares`, x is the first of a stack and lacks their factor."""
        batch, (rows, columns), enters = len(x), weights[0].shape, squares is not None
        of = total.squares if squares is None else squares
        kernels.add_linear[(rows // tile.rows,)](
            total.x, total.ready, total.squares, x, of, *weights, following, _EPS, rows, columns, of.shape[1],
            total.grain, batch, self._padded(batch), tile.rows, tile.columns, enters, batch >= self.dot_from,
            tile.stages, self.pdl, num_warps=tile.warps, launch_pdl=self.pdl,
        )  # fmt: skip

    def _settle(self, total: Residual, more: Tensor | None, following: Tensor) -> None:
        batch, width = total.x.shape
        kernels.settle[(batch,)](
            total.x, total.ready, total.squares, total.x if more is None else more, following, width, total.grain,
            more is not None, self.pdl, num_warps=4, launch_pdl=self.pdl,
        )  # fmt: skip

    def _padded(self, batch: int) -> int:
        least = 16 if batch >= self.dot_from else 1
        return max(least, 1 << (batch - 1).bit_length())

    def _tile(self, kernel: str, rows: int, columns: int, batch: int) -> Tile | None:
        """None: leave the matrix to cuBLAS."""
        place = (kernel, rows, columns, batch)
        if place in self.tiles:
            return self.tiles[place]
        if batch >= self.cublas_from and kernel != "enter":
            return None
        return (
            _dot_tile(kernel, rows, columns, batch)
            if batch >= self.dot_from
            else _tile(kernel, columns, batch)
        )


def _tile(kernel: str, columns: int, batch: int) -> Tile:
    """Measured on an H200 at one row; more rows hold more sums in registers, so their tiles are half as large."""
    if kernel in ("add_linear", "enter"):
        tile = Tile(4, 2048, 4) if columns == 2048 else Tile(4, 1024, 4)
    elif columns < 2048:
        tile = Tile(8, 1024, 4)
    else:
        tile = Tile(8, 2048, 8) if kernel == "norm_swiglu" else Tile(8, 512, 4)
    return tile if batch == 1 else Tile(4, min(1024, tile.columns), 4)


def _dot_tile(kernel: str, rows: int, columns: int, batch: int) -> Tile | None:
    """Measured on an H200; None where cuBLAS is faster."""
    if batch > 64:
        return _PLAIN if kernel == "add_linear" else None
    if kernel in ("add_linear", "enter"):
        return Tile(16, 128, 4, 5) if columns > 4096 and batch <= 32 else Tile(16, 256, 4, 3)
    if columns == 2048:
        few = Tile(64, 64, 4, 5) if batch <= 16 else Tile(64, 128, 4, 3)
        return few if kernel == "norm_swiglu" else None
    if batch > 32:
        return None
    if kernel == "norm_swiglu":
        return Tile(64, 128, 8, 4)
    return Tile(16, 128, 4, 5) if rows <= 2048 else Tile(32, 128, 4, 4)
