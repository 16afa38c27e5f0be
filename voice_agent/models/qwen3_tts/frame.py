"""A whole frame of many streams in one go: Talker step, first code, Code Predictor's 15 codes, all on the device.

The order is that of the published generate(), begun at the row: text and last codes in, 16 codes out, kept in the
slots' rings. Written once over `Ops`; captured into a CUDA graph per batch size, or run as it is on a CPU. The host
learns only each row's first code (the end code among them).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from voice_agent.models.qwen3_tts.arena import Arena
from voice_agent.models.qwen3_tts.config import GROUPS
from voice_agent.models.qwen3_tts.frame_parts import At, Inputs, Ops, Pick, Residual, Scratch, Stack
from voice_agent.models.qwen3_tts.model import Model
from voice_agent.models.qwen3_tts.transformer import Layer, Shape, rope

_TABLE_TOKENS = 4_096  # of the text table at once
_FEW, _FINE, _COARSE = 5, 4, 16  # rows that are few, and columns of a sum of squares for few and for many


@dataclass(frozen=True)
class FrameWeights:
    """The model and what follows from it: text projected once, codes as the Code Predictor sees them, both stacks."""

    model: Model
    inputs: Inputs
    narrow_tables: list[Tensor]  # of group 0 [vocab, h], then of groups 1..14 [codes, h]
    wide: Stack
    narrow: Stack


@dataclass(frozen=True)
class Rows:
    """The buffers of one batch size, kept in place for its graph."""

    slots: Tensor  # [B] int32
    result: Tensor  # [B] int32: code 0
    wide: Scratch
    both: Scratch  # [2 B]: the Code Predictor's first position of every row, then the second
    narrow: Scratch  # [B]: its second half, and all later positions
    kv: Tensor  # [layers, B, 2, 16, heads, dim] of the Code Predictor


def frame_weights(model: Model, length: int) -> FrameWeights:
    """Tables for streams of up to `length` rows; 0.7 GB at the published shape in bfloat16."""
    talker, predictor, config = model.talker, model.code_predictor, model.config
    shape = talker.config

    def narrowed(table: Tensor) -> Tensor:
        return F.linear(table, *predictor.narrow) if predictor.narrow else table

    return FrameWeights(
        model,
        Inputs(
            talker.text.projected_table(_TABLE_TOKENS),
            talker.codec_embedding,
            predictor.embeddings,
            config.tts_pad_token_id,
            shape.codec_bos_id,
        ),
        [narrowed(talker.codec_embedding), *(narrowed(table) for table in predictor.embeddings[:-1])],
        _stack(talker.layers, shape, talker.norm, length),
        _stack(predictor.layers, predictor.config, predictor.norm, GROUPS),
    )


def _stack(layers: list[Layer], shape: Shape, norm: Tensor, length: int) -> Stack:
    device = norm.device
    cos, sin = rope(torch.arange(length, device=device), shape.head_dim, shape.rope_theta, torch.float32)
    norms = [*(layer.attention_norm for layer in layers), norm]
    return Stack(layers, shape, cos[:, 0].contiguous(), sin[:, 0].contiguous(), norms)


def new_rows(weights: FrameWeights, batch: int, spare: int) -> Rows:
    """Buffers for a batch, all rows padding."""
    model, like = weights.model, weights.model.talker.norm
    talker, predictor = model.talker.config, model.code_predictor.config
    grain = grain_for(batch)
    both = _scratch(predictor, predictor.vocab_size, 2 * batch, grain, like)
    return Rows(
        slots=torch.full((batch,), spare, dtype=torch.int32, device=like.device),
        result=torch.zeros(batch, dtype=torch.int32, device=like.device),
        wide=_scratch(talker, talker.vocab_size, batch, grain, like),
        both=both,
        narrow=both.rows(batch),
        kv=model.code_predictor.new_kv(batch),
    )


def grain_for(batch: int) -> int:
    """Columns of a sum of squares: no more than a program of the kernels for so many rows owns."""
    return _FINE if batch < _FEW else _COARSE


def new_residual(batch: int, width: int, grain: int, like: Tensor) -> Residual:
    """A sum of zeros on the device of `like`, to be read in its dtype."""
    return Residual(
        x=like.new_zeros((batch, width), dtype=torch.float32),
        ready=like.new_zeros((batch, width)),
        squares=like.new_zeros((batch, width // grain), dtype=torch.float32),
    )


def _scratch(shape: Shape, vocab: int, batch: int, grain: int, like: Tensor) -> Scratch:
    heads = shape.num_attention_heads
    return Scratch(
        sums=new_residual(batch, shape.hidden_size, grain, like),
        qkv=like.new_zeros((batch, (heads + 2 * shape.num_key_value_heads) * shape.head_dim)),
        seen=like.new_zeros((batch, heads * shape.head_dim)),
        fed=like.new_zeros((batch, shape.intermediate_size)),
        logits=like.new_zeros((batch, vocab)),
    )


@torch.inference_mode()
def make_frame(ops: Ops, weights: FrameWeights, arena: Arena, rows: Rows) -> None:
    """One frame of every row; leaves codes in the slots' rings and first codes in `rows.result`."""
    talker_step(ops, weights, arena, rows)
    first_code(ops, weights, arena, rows)
    more_codes(ops, weights, arena, rows)


def talker_step(ops: Ops, weights: FrameWeights, arena: Arena, rows: Rows) -> None:
    """The Talker on the rows' next input: logits of code 0 and the Code Predictor's first row."""
    talker, scratch, stack = weights.model.talker, rows.wide, weights.wide
    ops.input_rows(scratch.sums, rows.slots, arena, weights.inputs, stack.norms[0])
    at = At(rows.slots, arena.state)
    for index in range(len(stack.layers)):
        _attend(ops, stack, index, scratch, arena.kv, at)
        _feed(ops, stack, index, scratch)
    start = rows.both.sums.rows(0, len(rows.slots))
    ops.enter(start, scratch.sums, talker.norm, weights.model.code_predictor.narrow, weights.narrow.norms[0])
    ops.norm_linear(scratch.logits, scratch.sums, talker.norm, talker.head)


def first_code(ops: Ops, weights: FrameWeights, arena: Arena, rows: Rows) -> None:
    """Sample code 0."""
    eos, reader = weights.model.config.talker_config.codec_eos_token_id, weights.narrow.norms[0]
    pick = Pick(0, eos, rows.result, rows.wide.sums, weights.narrow_tables[0], rows.narrow.sums, reader)
    ops.choose(rows.wide.logits, rows.slots, arena, pick)


def more_codes(ops: Ops, weights: FrameWeights, arena: Arena, rows: Rows, *, sampling: bool = True) -> None:
    """Codes 1..15, one pass each; the first takes two positions. `sampling` off only to measure."""
    predictor, scratch = weights.model.code_predictor, rows.narrow
    reader = weights.narrow.norms[0]
    for group in range(1, GROUPS):
        if group == 1:
            _first_pass(ops, weights.narrow, rows)
        else:
            _pass(ops, weights.narrow, rows, group)
        ops.norm_linear(scratch.logits, scratch.sums, predictor.norm, predictor.heads[group - 1])
        pick = Pick(group, -1, rows.result, scratch.sums)
        if group < GROUPS - 1:
            pick = replace(pick, table=weights.narrow_tables[group], next=scratch.sums, following=reader)
        if sampling:
            ops.choose(scratch.logits, rows.slots, arena, pick)


def _first_pass(ops: Ops, stack: Stack, rows: Rows) -> None:
    """Two positions of each row; the first one goes along up to where nobody reads it any more."""
    at, last = At(rows.slots, None), len(stack.layers) - 1
    for index in range(last + 1):
        _attend(ops, stack, index, rows.both, rows.kv, at, two=True)
        _feed(ops, stack, index, rows.narrow if index == last else rows.both)


def _pass(ops: Ops, stack: Stack, rows: Rows, position: int) -> None:
    at = At(rows.slots, None, position)
    for index in range(len(stack.layers)):
        _attend(ops, stack, index, rows.narrow, rows.kv, at)
        _feed(ops, stack, index, rows.narrow)


def _attend(  # noqa: PLR0913, PLR0917
    ops: Ops, stack: Stack, index: int, scratch: Scratch, kv: Tensor, at: At, *, two: bool = False
) -> None:
    """A layer's first half; `two`: rows of two positions."""
    layer = stack.layers[index]
    ops.norm_linear(scratch.qkv, scratch.sums, layer.attention_norm, layer.qkv)
    attend = ops.attend_two if two else ops.attend
    attend(scratch.seen, scratch.qkv, stack.heads(index, kv, at, scratch.sums))


def _feed(ops: Ops, stack: Stack, index: int, scratch: Scratch) -> None:
    """Its second half."""
    layer = stack.layers[index]
    ops.add_linear(scratch.sums, scratch.seen, layer.out, layer.mlp_norm)
    ops.norm_swiglu(scratch.fed, scratch.sums, layer.mlp_norm, layer.gate_up)
    ops.add_linear(scratch.sums, scratch.fed, layer.down, stack.norms[index + 1])
