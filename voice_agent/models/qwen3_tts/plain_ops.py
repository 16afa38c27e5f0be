"""The frame graph's operations in plain PyTorch: what the Triton kernels must equal, and what runs on a CPU.

Each writes into tensors it is given. Row b of everything belongs to slot `slots[b]`. Residual sums are float32.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from voice_agent.models.qwen3_tts import sampling
from voice_agent.models.qwen3_tts.arena import (
    BEFORE,
    FRAMES,
    PENALTY,
    POSITION,
    SEED,
    TEMPERATURE,
    TEXT_ROWS,
    TOP_K,
    Arena,
    floats,
)
from voice_agent.models.qwen3_tts.config import GROUPS
from voice_agent.models.qwen3_tts.frame_parts import Attention, Inputs, Pick, Residual
from voice_agent.models.qwen3_tts.transformer import attend as attend_rows
from voice_agent.models.qwen3_tts.transformer import rms_norm, rotate


class PlainOps:
    """All operations of a frame (see frame_parts.Ops)."""

    def norm_linear(self, out: Tensor, x: Residual, norm: Tensor, weight: Tensor) -> None:
        """out [B, N] = norm(x [B, K]) @ weight.T."""
        out.copy_(F.linear(_normed(x, norm), weight))

    def norm_swiglu(self, out: Tensor, x: Residual, norm: Tensor, gate_up: Tensor) -> None:
        """out [B, F] = silu(gate) * up of norm(x)."""
        gate, up = F.linear(_normed(x, norm), gate_up).chunk(2, dim=-1)
        out.copy_(F.silu(gate) * up)

    def add_linear(self, total: Residual, x: Tensor, weight: Tensor, following: Tensor) -> None:  # noqa: ARG002
        """total [B, N] += x [B, K] @ weight.T."""
        total.x.add_(F.linear(x, weight))

    def enter(
        self,
        total: Residual,
        x: Residual,
        norm: Tensor,
        narrow: tuple[Tensor, Tensor] | None,
        following: Tensor,  # noqa: ARG002
    ) -> None:
        """total [B, h] = norm(x [B, H]) through `narrow`, or as it is where both are as wide."""
        normed = _normed(x, norm)
        total.x.copy_(F.linear(normed, *narrow) if narrow else normed)

    def attend(self, out: Tensor, qkv: Tensor, parts: Attention) -> None:
        """out [B, heads * dim]: the rows' heads normed and turned, keys and values stored, all before them seen."""
        heads, kv_heads, dim = parts.heads, parts.kv_heads, parts.query_norm.shape[0]
        at = parts.places.long() if parts.state is not None else torch.arange(len(qkv), device=qkv.device)
        known = (
            parts.state[at, POSITION].long()
            if parts.state is not None
            else torch.full_like(at, parts.position)
        )
        rotation = parts.cos[known][:, None], parts.sin[known][:, None]
        queries, keys, values = qkv.unflatten(-1, (-1, dim)).split([heads, kv_heads, kv_heads], dim=1)
        queries = rotate(rms_norm(queries.float(), parts.query_norm.float(), 1e-6), rotation)
        keys = rotate(rms_norm(keys.float(), parts.key_norm.float(), 1e-6), rotation)
        parts.kv[at, 0, known] = keys.to(parts.kv.dtype)
        parts.kv[at, 1, known] = values.to(parts.kv.dtype)
        longest = int(known.max()) + 1 if parts.state is not None else parts.position + 1
        held = parts.kv[at, :, :longest].float()
        mask = (torch.arange(longest, device=qkv.device) <= known[:, None])[:, None, None]
        held = torch.where(
            mask[:, 0, 0, None, :, None, None], held, 0.0
        )  # a broken stream's leftovers times 0 are NaN
        out.copy_(attend_rows(queries[:, None], held[:, 0], held[:, 1], mask)[:, 0])

    def attend_two(self, out: Tensor, qkv: Tensor, parts: Attention) -> None:
        """The same for rows [2 B] of a sequence's first two positions, all first ones before all second ones."""
        batch = len(qkv) // 2
        for position in (0, 1):
            some = slice(position * batch, (position + 1) * batch)
            self.attend(out[some], qkv[some], replace(parts, position=position))

    def input_rows(
        self,
        out: Residual,
        slots: Tensor,
        arena: Arena,
        inputs: Inputs,
        following: Tensor,  # noqa: ARG002
    ) -> None:
        """out [B, H]: the text token of each row's frame, and its last codes or, before any, the begin code."""
        slot = slots.long()
        frames, texts = arena.state[slot, FRAMES].long(), arena.state[slot, TEXT_ROWS]
        tokens = torch.where(frames < texts, arena.text[slot, frames], inputs.pad).long()
        codes = arena.codes[slot, (frames - 1) % arena.ring].long()
        groups = torch.arange(GROUPS - 1, device=slot.device)
        spoken = inputs.code_table[codes[:, 0]].float() + inputs.more_tables[
            groups, codes[:, 1:]
        ].float().sum(1)
        begun = inputs.code_table[inputs.begin].float()
        out.x.copy_(inputs.text_table[tokens].float() + torch.where(frames[:, None] > 0, spoken, begun))

    def choose(self, logits: Tensor, slots: Tensor, arena: Arena, pick: Pick) -> None:
        """Sample group `pick.group` of each row's frame, keep it, and put its row of `pick.table` into `pick.next`."""
        slot = slots.long()
        state = arena.state[slot]
        frames, first = state[:, FRAMES].long(), pick.group == 0
        made = frames - state[:, BEFORE].long()  # without those of a clip
        rows = sampling.Sampling(
            floats(state, TEMPERATURE),
            state[:, TOP_K],
            torch.ones(len(slot), device=slot.device),
            state[:, SEED].long() & 0xFFFF_FFFF,
        )
        scores = logits.float()
        seen = (arena.seen[slot] != 0) & (made[:, None] > 0) if first else None
        if seen is not None:
            scores = sampling.allowed(scores, seen, floats(state, PENALTY), made, pick.eos)
        sound = (scores > -torch.inf).any(-1) & ~scores.isnan().any(-1)
        codes = sampling.choose(scores.nan_to_num(nan=0.0, neginf=-torch.inf), rows, made, pick.group)
        codes = torch.where(sound, codes, 0)
        arena.codes[slot, frames % arena.ring, pick.group] = codes.int()
        if seen is not None:
            seen[torch.arange(len(slot), device=slot.device), codes] = True
            arena.seen[slot] = seen.to(torch.int8)
            pick.result.copy_(torch.where(sound, codes, -1))
        else:
            pick.result.masked_fill_(~sound, -1)
        if pick.next is not None and pick.table is not None:
            pick.next.x.copy_(pick.table[codes])
        if pick.group == GROUPS - 1:
            busy = slot != arena.spare
            ahead = torch.stack((state[:, POSITION] + 1, state[:, FRAMES] + 1), 1).clamp(max=arena.length - 1)
            arena.state[slot, :2] = torch.where(busy[:, None], ahead, 0).int()


def _normed(x: Residual, norm: Tensor) -> Tensor:
    return rms_norm(x.x, norm.float(), 1e-6).to(norm.dtype)
