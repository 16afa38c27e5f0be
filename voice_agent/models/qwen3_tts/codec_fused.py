"""The codec's step with a tenth of the launches: weights repacked for products over taps, state kept in its own slots.

Same function as codec.Codec.step over an arena (see codec_slots), within rounding. Needs Triton. Buffers are made once
for the largest launch and shared by all sizes of one lane, so launches of one lane must not overlap.
"""
# pyright: basic, reportMissingImports=false

from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor

from voice_agent.models.qwen3_tts import codec_kernels
from voice_agent.models.qwen3_tts.arena import Arena
from voice_agent.models.qwen3_tts.codec import Codec
from voice_agent.models.qwen3_tts.codec_conv import Conv, Snake, Upsample
from voice_agent.models.qwen3_tts.codec_slots import CodecRows
from voice_agent.models.qwen3_tts.transformer import rope

kernels: Any = codec_kernels  # launched as kernel[grid](...), which no type says
_PLACES = 128  # of the ring of keys and values: window and launch together are 88
_ANGLES = 4_096
_BLOCK_C = 128


@dataclass
class Product:
    """A convolution, a transposed one or a linear layer as sums over taps: weight [taps * inputs, outputs]."""

    weight: Tensor
    bias: Tensor | None
    taps: int = 1
    dilation: int = 1
    history: int | None = None  # its number among the histories

    @property
    def inputs(self) -> int:
        return len(self.weight) // self.taps


@dataclass
class After:
    """What follows a product."""

    act: int = codec_kernels.NONE
    snake: tuple[Tensor, Tensor] | None = None
    residual: Tensor | None = None
    norm: bool = False
    raw: bool = True


@dataclass
class FusedCodec:
    """Weights and per-slot state; `step` renders."""

    codec: Codec
    slots: int
    histories: list[Tensor] = field(default_factory=list)  # [slots + 1, columns, channels]
    fields: list[tuple[int, int, int]] = field(default_factory=list)  # channels, columns, columns a frame
    parts: dict = field(default_factory=dict)
    scales: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        codec, config = self.codec, self.codec.config
        heads = (config.num_attention_heads, config.head_dim)
        like = codec.entries
        self.kv = like.new_zeros((self.slots + 1, config.num_hidden_layers, 2, _PLACES, *heads))
        positions = torch.arange(_ANGLES, device=like.device)
        cos, sin = rope(positions, config.head_dim, config.rope_theta, torch.float32)
        self.cos, self.sin = cos[:, 0].contiguous(), sin[:, 0].contiguous()
        self.parts["enter"] = self._conv(codec.enter, 1)
        self.parts["layers"] = [self._layer(layer) for layer in codec.transformer.layers]
        self.parts["into"] = Product(codec.transformer.enter[0].T.contiguous(), codec.transformer.enter[1])
        self.parts["leave"] = _normed(
            codec.transformer.leave[0], codec.transformer.norm, codec.transformer.leave[1]
        )
        columns, stages = 1, []
        for upsample, conv_next in codec.stages:
            up = self._upsample(upsample, columns)
            columns *= upsample.stride
            depthwise = conv_next.depthwise
            number = self._history(depthwise.weight.shape[0], depthwise.history.columns, columns)
            narrow = (conv_next.narrow[0].float() * conv_next.gamma.float()[:, None]).to(like.dtype)
            stages.append((
                up, number, depthwise.weight[:, 0].T.contiguous(), depthwise.bias, conv_next.norm,
                Product(conv_next.widen[0].T.contiguous(), conv_next.widen[1]),
                Product(narrow.T.contiguous(), (conv_next.narrow[1].float() * conv_next.gamma.float()).to(like.dtype)),
            ))  # fmt: skip
        self.parts["stages"] = stages
        self.parts["widen"] = self._conv(codec.widen, columns)
        blocks = []
        for block in codec.blocks:
            up = self._upsample(block.upsample, columns)
            columns *= block.upsample.stride
            units = [(self._conv(u.wide, columns), self._conv(u.pointwise, columns), u) for u in block.units]
            blocks.append((up, block, units))
        self.parts["blocks"] = blocks
        last = codec.last
        self.parts["last"] = last.weight[0].T.contiguous(), self._history(last.weight.shape[1], 6, columns)

    def snake(
        self, snake: Snake, *, repeat: int = 1, raw: bool = True, residual: Tensor | None = None
    ) -> After:
        """What follows a product whose outputs are so many columns of the Snake's channels."""
        if id(snake) not in self.scales:
            self.scales[id(snake)] = (
                snake.a[:, 0].repeat(repeat).contiguous(),
                snake.inverse_b[:, 0].repeat(repeat).contiguous(),
            )
        return After(kernels.SNAKE, self.scales[id(snake)], residual, raw=raw)

    # --- repacking ----------------------------------------------------------------------------------------------

    def _history(self, channels: int, columns: int, per_frame: int) -> int:
        self.histories.append(self.codec.entries.new_zeros((self.slots + 1, columns, channels)))
        self.fields.append((channels, columns, per_frame))
        return len(self.histories) - 1

    def _conv(self, conv: Conv, per_frame: int) -> Product:
        out, channels, taps = conv.weight.shape
        number = self._history(channels, conv.history.columns, per_frame) if conv.history.columns else None
        weight = conv.weight.permute(2, 1, 0).reshape(taps * channels, out).contiguous()
        return Product(weight, conv.bias, taps, conv.dilation, number)

    def _upsample(self, upsample: Upsample, per_frame: int) -> Product:
        """Output columns of one input column lie side by side: [taps * inputs, stride * outputs]."""
        channels, out, kernel = upsample.weight.shape
        stride = upsample.stride
        taps = kernel // stride  # the column before comes first
        parts = [upsample.weight[:, :, tap * stride : (tap + 1) * stride] for tap in reversed(range(taps))]
        weight = torch.cat(
            [part.permute(0, 2, 1).reshape(channels, stride * out) for part in parts]
        ).contiguous()
        number = self._history(channels, taps - 1, per_frame) if taps > 1 else None
        return Product(weight, upsample.bias.repeat(stride).contiguous(), taps, 1, number)

    def _layer(self, layer) -> tuple[Product, Product, Product, Product]:
        gate, up = _normed(layer.gate_up, layer.mlp_norm).weight.chunk(2, dim=1)
        return (
            _normed(layer.qkv, layer.attention_norm),
            _scaled(layer.out, layer.attention_scale),
            Product(torch.stack((gate, up), 2).flatten(1).contiguous(), None),
            _scaled(layer.down, layer.mlp_scale),
        )


def _normed(weight: Tensor, norm: Tensor, bias: Tensor | None = None) -> Product:
    """A linear layer with its norm's weight folded in; the norm's factor comes in the kernel."""
    return Product((weight.float() * norm.float()).to(weight.dtype).T.contiguous(), bias)


def _scaled(weight: Tensor, scale: Tensor) -> Product:
    return Product((weight.float() * scale.float()[:, None]).to(weight.dtype).T.contiguous(), None)


class FusedLane:
    """The buffers of one lane: launches of up to `most` frames in all, one at a time."""

    def __init__(self, fused: FusedCodec, arena: Arena, most: int) -> None:
        self._fused, self._arena, self._most = fused, arena, most
        self._flat: dict[str, Tensor] = {}
        self._inputs: dict[int, str] = {}
        self._table: Tensor | None = None

    @torch.inference_mode()
    def step(self, buffers: CodecRows, frames: int) -> None:
        """Render the rows' frames into `buffers.sound` and move their states on."""
        fused, codec, batch = self._fused, self._fused.codec, len(buffers.rows)
        call = _Call(self, buffers.rows, batch, frames)
        size = codec.config.codebook_size
        x = call.take("entries", 1, codec.entries.shape[1])
        kernels.entries[(batch * frames,)](
            x, buffers.rows, self._arena.codes, codec.entries, frames, size, x.shape[-1], self._arena.ring
        )
        x = call.product("enter", fused.parts["enter"], x, "entries", After())
        x = self._transform(call, x)
        columns = 1
        for index, (up, number, weight, bias, norm, widen, narrow) in enumerate(fused.parts["stages"]):
            x = call.product(f"stage{index}", up, x, "x", After()).view(batch, -1, up.inputs)
            columns = x.shape[1] // frames
            name = f"stage{index}"
            self._inputs.setdefault(number, name)
            normed = call.take(f"normed{index}", columns, up.inputs)
            kernels.depthwise_norm[(x.shape[0] * x.shape[1],)](
                normed,
                x,
                fused.histories[number],
                buffers.rows,
                weight,
                bias,
                *norm,
                x.shape[1],
                x.shape[2],
                7,
            )
            wide = call.product(f"wide{index}", widen, normed, "", After(kernels.GELU, raw=False))
            x = call.product(f"next{index}", narrow, wide, "", After(residual=x))
            call.last = f"next{index}"
        blocks = fused.parts["blocks"]
        act = call.product(
            "widen", fused.parts["widen"], x, call.last, fused.snake(blocks[0][1].snake, raw=False)
        )
        name = "widen.act"
        for index, (up, block, units) in enumerate(blocks):
            first = fused.snake(units[0][2].first_snake, repeat=block.upsample.stride)
            act = call.product(f"up{index}", up, act, name, first)
            out = len(units[0][0].bias)
            x, act = (part.view(batch, -1, out) for part in (call.raw, act))
            name = f"up{index}.act"
            for place, (conv, pointwise, unit) in enumerate(units):
                inner = call.product(
                    f"wide{index}.{place}", conv, act, name, fused.snake(unit.second_snake, raw=False)
                )
                last = place == len(units) - 1
                following = units[place + 1][2].first_snake if not last else (
                    blocks[index + 1][1].snake if index + 1 < len(blocks) else codec.last_snake
                )  # fmt: skip
                after = fused.snake(following, raw=not last, residual=x)
                name = f"unit{index}.{place}"
                act = call.product(name, pointwise, inner, "", after)
                x, name = call.raw, f"{name}.act"
        weight, number = fused.parts["last"]
        self._inputs.setdefault(number, name)
        count = act.shape[0] * act.shape[1]
        kernels.last_conv[((count + 31) // 32,)](
            buffers.sound, act, fused.histories[number], buffers.rows, weight, codec.last.bias, count, act.shape[1],
            act.shape[2], 1 << (act.shape[2] - 1).bit_length(), 7, 32, num_warps=4,
        )  # fmt: skip
        self._keep(buffers.rows, batch, frames)

    def _transform(self, call: "_Call", x: Tensor) -> Tensor:
        fused, config = self._fused, self._fused.codec.config
        heads, dim = config.num_attention_heads, config.head_dim
        x = call.product("into", fused.parts["into"], x, "", After())
        for index, (qkv, out, gate_up, down) in enumerate(fused.parts["layers"]):
            turned = call.product("qkv", qkv, x, "", After(norm=True))
            seen = call.take("seen", 1, heads * dim)
            kernels.attend_window[(call.batch, heads)](
                seen, turned, fused.kv, call.rows, fused.cos, fused.sin, index, call.frames, config.num_hidden_layers,
                heads, dim, _PLACES, config.sliding_window, 16, _PLACES, num_warps=4,
            )  # fmt: skip
            x = call.product(f"attended{index % 2}", out, seen, "", After(residual=x))
            fed = call.product("fed", gate_up, x, "", After(kernels.SWIGLU, norm=True, raw=False))
            x = call.product(f"layer{index % 2}", down, fed, "", After(residual=x))
        return call.product("x", fused.parts["leave"], x, "", After(norm=True))

    def _keep(self, rows: Tensor, batch: int, frames: int) -> None:
        fused = self._fused
        if self._table is None:
            fields = [
                [self._flat[self._inputs[number]].data_ptr(), history.data_ptr(), *fused.fields[number]]
                for number, history in enumerate(fused.histories)
            ]
            self._table = torch.tensor(fields, dtype=torch.int64, device=rows.device)
        widest = max(channels for channels, _, _ in fused.fields)
        longest = max(columns for _, columns, _ in fused.fields)
        grid = (len(fused.histories), batch, (widest + _BLOCK_C - 1) // _BLOCK_C)
        kernels.keep_history[grid](
            self._table,
            rows,
            frames,
            5,
            1 << (longest - 1).bit_length(),
            _BLOCK_C,
            _kind(fused.codec.entries.dtype),
        )


class _Call:
    """One step's launches."""

    def __init__(self, lane: FusedLane, rows: Tensor, batch: int, frames: int) -> None:
        self.lane, self.rows, self.batch, self.frames = lane, rows, batch, frames
        self.raw: Tensor = rows
        self.last = ""

    def take(self, name: str, columns: int, channels: int) -> Tensor:
        """A buffer [B, T, C] out of the lane's."""
        lane = self.lane
        if name not in lane._flat:
            like = lane._fused.codec.entries
            lane._flat[name] = torch.empty(
                lane._most * columns * channels, dtype=like.dtype, device=like.device
            )
        shape = (self.batch, self.frames * columns, channels)
        return lane._flat[name][: prod(shape)].view(shape)

    def product(self, name: str, part: Product, x: Tensor, source: str, after: After) -> Tensor:
        """Launch; returns what is activated, or the raw sums where nothing is. `source` names x's buffer."""
        fused, (batch, columns, inputs) = self.lane._fused, x.shape
        outputs = part.weight.shape[1]
        per_frame = columns // self.frames
        raw = self.take(name, per_frame, outputs) if after.raw else x
        narrow = outputs // 2 if after.act == kernels.SWIGLU else outputs
        act = self.take(f"{name}.act", per_frame, narrow) if after.act else raw
        history = x if part.history is None else fused.histories[part.history]
        if part.history is not None:
            self.lane._inputs.setdefault(part.history, source)
        rows, (bm, bn, bk, warps) = batch * columns, tile(batch * columns, outputs, inputs)
        a, inverse_b = after.snake or (part.weight, part.weight)
        kernels.product[((rows + bm - 1) // bm * (outputs // bn),)](
            raw, act, x, history, part.weight, part.weight if part.bias is None else part.bias,
            x if after.residual is None else after.residual, a, inverse_b, self.rows, rows, columns, inputs, outputs,
            part.taps, part.dilation, history.shape[1], 1e-5, bm, bn, bk, part.history is not None, after.norm,
            part.bias is not None, after.residual is not None, after.act, after.raw, 4 if bm * bn <= 4096 else 3,
            num_warps=warps,
        )  # fmt: skip
        self.raw = raw
        return act


def tile(rows: int, outputs: int, inputs: int) -> tuple[int, int, int, int]:
    """Rows, outputs and inputs of a program, and warps: small tiles where there are few, to fill the device."""
    bk = 64 if inputs % 64 == 0 else 32 if inputs % 32 == 0 else 16
    for bm, bn, warps in ((128, 128, 8), (128, 64, 4), (64, 64, 4), (32, 64, 4), (32, 32, 4)):
        if outputs % bn == 0 and ((rows + bm - 1) // bm) * (outputs // bn) >= 200:
            return bm, bn, bk, warps
    return 16 if rows <= 16 else 32, 32 if outputs % 32 == 0 else 16, bk, 4


def _kind(dtype: torch.dtype):
    import triton.language as tl

    return tl.bfloat16 if dtype == torch.bfloat16 else tl.float32
