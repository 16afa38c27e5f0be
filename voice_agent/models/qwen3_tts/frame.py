"""A whole frame of many streams in one go: Talker step, first code, Code Predictor's 15 codes, all on the device.

The order is that of the published generate(), begun at the row: text and last codes in, 16 codes out, kept in the
slots' rings. Written once over `Ops`; captured into a CUDA graph per batch size, or run as it is on a CPU. The host
learns only each row's first code (the end code among them).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from voice_agent.models.qwen3_tts.arena import Arena
from voice_agent.models.qwen3_tts.config import GROUPS
from voice_agent.models.qwen3_tts.frame_parts import Attention, Inputs, Ops, Pick
from voice_agent.models.qwen3_tts.model import Model
from voice_agent.models.qwen3_tts.transformer import Layer, Shape, rms_norm, rope

_TABLE_TOKENS = 4_096  # of the text table at once


@dataclass(frozen=True)
class FrameWeights:
    """The model and what follows from it: text projected once, codes as the Code Predictor sees them, angles."""

    model: Model
    inputs: Inputs
    narrow_tables: list[Tensor]  # of group 0 [vocab, h], then of groups 1..14 [codes, h]
    cos: Tensor  # [length, dim / 2]
    sin: Tensor
    narrow_cos: Tensor  # [16, dim / 2]
    narrow_sin: Tensor


@dataclass(frozen=True)
class Rows:
    """The buffers of one batch size, kept in place for its graph."""

    slots: Tensor  # [B] int32
    result: Tensor  # [B] int32: code 0
    wide: "Scratch"
    narrow: "Scratch"
    start: Tensor  # [B, h] float32: the Code Predictor's first row
    kv: Tensor  # [layers, B, 2, 16, heads, dim] of the Code Predictor


@dataclass(frozen=True)
class Scratch:
    """What a stack of layers writes."""

    x: Tensor  # [B, H] float32
    qkv: Tensor
    seen: Tensor
    fed: Tensor
    logits: Tensor


def frame_weights(model: Model, length: int) -> FrameWeights:
    """Tables for streams of up to `length` rows; 0.7 GB at the published shape in bfloat16."""
    talker, predictor, config = model.talker, model.code_predictor, model.config
    shape, narrow = talker.config, predictor.config

    def narrowed(table: Tensor) -> Tensor:
        return F.linear(table, *predictor.narrow) if predictor.narrow else table

    device = talker.norm.device
    cos, sin = rope(torch.arange(length, device=device), shape.head_dim, shape.rope_theta, torch.float32)
    few = torch.arange(GROUPS, device=device)
    narrow_cos, narrow_sin = rope(few, narrow.head_dim, narrow.rope_theta, torch.float32)
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
        cos[:, 0].contiguous(),
        sin[:, 0].contiguous(),
        narrow_cos[:, 0].contiguous(),
        narrow_sin[:, 0].contiguous(),
    )


def new_rows(weights: FrameWeights, batch: int, spare: int) -> Rows:
    """Buffers for a batch, all rows padding."""
    model, like = weights.model, weights.model.talker.norm
    talker, predictor = model.talker.config, model.code_predictor.config
    return Rows(
        slots=torch.full((batch,), spare, dtype=torch.int32, device=like.device),
        result=torch.zeros(batch, dtype=torch.int32, device=like.device),
        wide=_scratch(talker, talker.vocab_size, batch, like),
        narrow=_scratch(predictor, predictor.vocab_size, batch, like),
        start=like.new_zeros((batch, predictor.hidden_size), dtype=torch.float32),
        kv=model.code_predictor.new_kv(batch),
    )


def _scratch(shape: Shape, vocab: int, batch: int, like: Tensor) -> Scratch:
    heads = shape.num_attention_heads
    return Scratch(
        x=like.new_zeros((batch, shape.hidden_size), dtype=torch.float32),
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
    talker, scratch = weights.model.talker, rows.wide
    ops.input_rows(scratch.x, rows.slots, arena, weights.inputs)
    for index, layer in enumerate(talker.layers):
        heads = _heads(layer, talker.config, arena.kv[index], (weights.cos, weights.sin))
        _layer(ops, layer, scratch, heads(rows.slots, arena.state, 0))
    narrow = weights.model.code_predictor.narrow
    if narrow:
        ops.norm_linear(rows.start, scratch.x, talker.norm, *narrow)
    else:
        rows.start.copy_(rms_norm(scratch.x, talker.norm.float(), talker.config.rms_norm_eps))
    ops.norm_linear(scratch.logits, scratch.x, talker.norm, talker.head)


def first_code(ops: Ops, weights: FrameWeights, arena: Arena, rows: Rows) -> None:
    """Sample code 0."""
    eos = weights.model.config.talker_config.codec_eos_token_id
    pick = Pick(0, eos, rows.result, weights.narrow_tables[0], rows.narrow.x)
    ops.choose(rows.wide.logits, rows.slots, arena, pick)


def more_codes(ops: Ops, weights: FrameWeights, arena: Arena, rows: Rows, *, sampling: bool = True) -> None:
    """Codes 1..15, one pass each; the first row gives nothing but keys and values. `sampling` off only to measure."""
    predictor, scratch = weights.model.code_predictor, rows.narrow
    _pass(ops, weights, rows, position=0)
    for group in range(1, GROUPS):
        _pass(ops, weights, rows, position=group)
        ops.norm_linear(scratch.logits, scratch.x, predictor.norm, predictor.heads[group - 1])
        last = group == GROUPS - 1
        table = None if last else weights.narrow_tables[group]
        if sampling:
            ops.choose(
                scratch.logits,
                rows.slots,
                arena,
                Pick(group, -1, rows.result, table, None if last else scratch.x),
            )


def _pass(ops: Ops, weights: FrameWeights, rows: Rows, position: int) -> None:
    predictor, scratch = weights.model.code_predictor, rows.narrow
    if position == 0:
        scratch = Scratch(rows.start, scratch.qkv, scratch.seen, scratch.fed, scratch.logits)
    for index, layer in enumerate(predictor.layers):
        heads = _heads(layer, predictor.config, rows.kv[index], (weights.narrow_cos, weights.narrow_sin))
        only_keys = position == 0 and index == len(predictor.layers) - 1
        _layer(ops, layer, scratch, heads(rows.slots, None, position), only_keys=only_keys)


def _heads(layer: Layer, shape: Shape, kv: Tensor, angles: tuple[Tensor, Tensor]):  # noqa: ANN202
    def parts(slots: Tensor, state: Tensor | None, position: int) -> Attention:
        norms = layer.query_norm, layer.key_norm
        counts = shape.num_attention_heads, shape.num_key_value_heads
        return Attention(kv, slots, state, position, *norms, *angles, *counts)

    return parts


def _layer(ops: Ops, layer: Layer, scratch: Scratch, heads: Attention, *, only_keys: bool = False) -> None:
    ops.norm_linear(scratch.qkv, scratch.x, layer.attention_norm, layer.qkv)
    ops.attend(scratch.seen, scratch.qkv, heads)
    if only_keys:
        return
    ops.add_linear(scratch.x, scratch.seen, layer.out)
    ops.norm_swiglu(scratch.fed, scratch.x, layer.mlp_norm, layer.gate_up)
    ops.add_linear(scratch.x, scratch.fed, layer.down)
