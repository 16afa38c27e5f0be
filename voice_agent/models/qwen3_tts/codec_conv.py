"""Causal convolutions that remember the columns they need: a sound cut anywhere comes out as if it were whole.

Each convolution reads a few input columns from before; those are all its state, for transposed ones too (the one
column whose tail overlaps the next). All histories of a stream lie side by side in one row of `columns` [B, S], so
that an engine gathers and scatters a stream's state as one block. Zeros are the published left padding, so a new
stream is a row of zeros.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from voice_agent.models.qwen3_tts.weights import Source


class Layout:
    """Deals out the places of histories in a stream's row, in the order of asking."""

    def __init__(self) -> None:
        self.elements = 0

    def take(self, channels: int, columns: int) -> "History":
        """The next `channels * columns` elements."""
        begin, self.elements = self.elements, self.elements + channels * columns
        return History(slice(begin, self.elements), channels, columns)


@dataclass(frozen=True)
class History:
    """Where one convolution keeps its last input columns."""

    place: slice
    channels: int
    columns: int


@dataclass(frozen=True)
class Pass:
    """One step's view of all histories: `before` is read, `after` written, both [B, S].

    `frames` [B] says how many of the step's frames are real in each row (None: all); the rest are padding behind
    them, which a causal model never looks back from.
    """

    before: Tensor
    after: Tensor
    frames: Tensor | None

    def extend(self, history: History, x: Tensor, columns_per_frame: int) -> Tensor:
        """[B, C, n + T]: the history's n columns before x [B, C, T]; what the next step needs is kept."""
        if not history.columns:
            return x
        shape = (len(x), history.channels, history.columns)
        x = torch.cat((self.before[:, history.place].view(shape), x), dim=-1)
        self.after[:, history.place] = self._last(x, history.columns, columns_per_frame).flatten(1)
        return x

    def _last(self, x: Tensor, columns: int, columns_per_frame: int) -> Tensor:
        if self.frames is None:
            return x[..., -columns:]
        begin = self.frames * columns_per_frame  # of the columns before the first that is padding
        at = begin[:, None, None] + torch.arange(columns, device=x.device)
        return x.gather(-1, at.expand(-1, x.shape[1], -1))


@dataclass(frozen=True)
class Conv:
    """A causal convolution of stride 1."""

    weight: Tensor  # [out, in / groups, kernel]
    bias: Tensor
    dilation: int
    groups: int
    history: History

    def __call__(self, x: Tensor, state: Pass, columns_per_frame: int) -> Tensor:
        """[B, in, T] to [B, out, T]."""
        x = state.extend(self.history, x, columns_per_frame)
        return F.conv1d(x, self.weight, self.bias, dilation=self.dilation, groups=self.groups)


@dataclass(frozen=True)
class Upsample:
    """A transposed convolution of kernel `stride` or twice that, trimmed at the right only."""

    weight: Tensor  # [in, out, kernel]
    bias: Tensor
    stride: int
    history: History

    def __call__(self, x: Tensor, state: Pass, columns_per_frame: int) -> Tensor:
        """[B, in, T] to [B, out, T * stride]."""
        new = x.shape[-1] * self.stride
        x = state.extend(self.history, x, columns_per_frame)
        begin = self.history.columns * self.stride
        return F.conv_transpose1d(x, self.weight, self.bias, stride=self.stride)[..., begin : begin + new]


@dataclass(frozen=True)
class Snake:
    """x + sin(a x)^2 / b, per channel; SnakeBeta of the published model with its exponentials taken."""

    a: Tensor  # [C, 1]
    inverse_b: Tensor  # [C, 1]

    def __call__(self, x: Tensor) -> Tensor:
        """[B, C, T] to the same."""
        return x + self.inverse_b * torch.sin(x * self.a).square()


@dataclass(frozen=True)
class ResidualUnit:
    """Snake, wide convolution, Snake, pointwise convolution, and the input beside them."""

    first_snake: Snake
    wide: Conv
    second_snake: Snake
    pointwise: Conv

    def __call__(self, x: Tensor, state: Pass, columns_per_frame: int) -> Tensor:
        """[B, C, T] to the same shape."""
        y = self.wide(self.first_snake(x), state, columns_per_frame)
        return x + self.pointwise(self.second_snake(y), state, columns_per_frame)


@dataclass(frozen=True)
class ConvNeXt:
    """Depthwise convolution, layer norm, two linear layers with GELU, scaled, and the input beside them."""

    depthwise: Conv
    norm: tuple[Tensor, Tensor]
    widen: tuple[Tensor, Tensor]
    narrow: tuple[Tensor, Tensor]
    gamma: Tensor

    def __call__(self, x: Tensor, state: Pass, columns_per_frame: int) -> Tensor:
        """[B, C, T] to the same shape."""
        y = self.depthwise(x, state, columns_per_frame).transpose(1, 2)
        y = F.gelu(F.linear(F.layer_norm(y, y.shape[-1:], *self.norm, eps=1e-6), *self.widen))
        return x + (self.gamma * F.linear(y, *self.narrow)).transpose(1, 2)


@dataclass(frozen=True)
class Shape:
    """A convolution's sizes."""

    inputs: int
    outputs: int
    kernel: int
    dilation: int = 1
    groups: int = 1


def build_conv(source: Source, layout: Layout, shape: Shape) -> Conv:
    """A causal convolution from `conv.weight` and `conv.bias`."""
    return Conv(
        weight=source.get("conv.weight", shape.outputs, shape.inputs // shape.groups, shape.kernel),
        bias=source.get("conv.bias", shape.outputs),
        dilation=shape.dilation,
        groups=shape.groups,
        history=layout.take(shape.inputs, (shape.kernel - 1) * shape.dilation),
    )


def build_upsample(source: Source, layout: Layout, shape: Shape, stride: int) -> Upsample:
    """A transposed convolution from `conv.weight` and `conv.bias`."""
    return Upsample(
        weight=source.get("conv.weight", shape.inputs, shape.outputs, shape.kernel),
        bias=source.get("conv.bias", shape.outputs),
        stride=stride,
        history=layout.take(shape.inputs, (shape.kernel - 1) // stride),
    )


def build_snake(source: Source, channels: int) -> Snake:
    """SnakeBeta from the logarithms `alpha` and `beta`."""
    alpha, beta = source.get("alpha", channels).float(), source.get("beta", channels)
    inverse = 1.0 / (beta.float().exp() + 1e-9)
    return Snake(alpha.exp().to(beta.dtype)[:, None], inverse.to(beta.dtype)[:, None])


def build_residual_unit(source: Source, layout: Layout, channels: int, dilation: int) -> ResidualUnit:
    """One unit from `act1`, `conv1`, `act2`, `conv2`."""
    return ResidualUnit(
        build_snake(source.under("act1"), channels),
        build_conv(source.under("conv1"), layout, Shape(channels, channels, 7, dilation)),
        build_snake(source.under("act2"), channels),
        build_conv(source.under("conv2"), layout, Shape(channels, channels, 1)),
    )


def build_conv_next(source: Source, layout: Layout, channels: int) -> ConvNeXt:
    """One block from `dwconv`, `norm`, `pwconv1`, `pwconv2`, `gamma`."""
    wide = 4 * channels
    return ConvNeXt(
        build_conv(source.under("dwconv"), layout, Shape(channels, channels, 7, groups=channels)),
        norm=(source.get("norm.weight", channels), source.get("norm.bias", channels)),
        widen=(source.get("pwconv1.weight", wide, channels), source.get("pwconv1.bias", wide)),
        narrow=(source.get("pwconv2.weight", channels, wide), source.get("pwconv2.bias", channels)),
        gamma=source.get("gamma", channels),
    )
