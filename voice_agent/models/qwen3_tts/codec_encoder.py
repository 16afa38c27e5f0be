"""The codec's encoder (Mimi): a clip to frames of 16 codes, for in-context cloning.

Strided causal convolutions down to 25 vectors a second, 8 transformer layers, one more halving, and residual
quantization by nearest entry. Runs once a voice, on the whole clip.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from voice_agent.models.qwen3_tts.config import EncoderConfig
from voice_agent.models.qwen3_tts.transformer import attend, rope, rotate
from voice_agent.models.qwen3_tts.weights import Source

_FEWEST_USES = 1e-5


@dataclass(frozen=True)
class Conv:
    """A causal convolution; the end is padded so that every sample is covered."""

    weight: Tensor  # [out, in, kernel]
    bias: Tensor | None
    stride: int = 1
    dilation: int = 1
    padding: str = "constant"

    def __call__(self, x: Tensor) -> Tensor:
        """[B, in, T] to [B, out, ceil(T / stride)]."""
        reach = (self.weight.shape[-1] - 1) * self.dilation + 1
        short = -x.shape[-1] % self.stride
        x = F.pad(x, (reach - self.stride, short), mode=self.padding)
        return F.conv1d(x, self.weight, self.bias, stride=self.stride, dilation=self.dilation)


@dataclass(frozen=True)
class Stage:
    """Residual units, then a convolution that takes the rate down; ELU before each convolution."""

    units: list[tuple[Conv, Conv]]
    down: Conv

    def __call__(self, x: Tensor) -> Tensor:
        """[B, C, T] to [B, 2 C, T / stride]."""
        for wide, narrow in self.units:
            x = x + narrow(F.elu(wide(F.elu(x))))
        return self.down(F.elu(x))


@dataclass(frozen=True)
class EncoderLayer:
    """A transformer layer: layer norms with bias, GELU, both branches scaled."""

    attention_norm: tuple[Tensor, Tensor]
    qkv: Tensor
    out: Tensor
    attention_scale: Tensor
    mlp_norm: tuple[Tensor, Tensor]
    widen: Tensor
    narrow: Tensor
    mlp_scale: Tensor


@dataclass(frozen=True)
class Quantizer:
    """Codebooks that each code what the ones before left over."""

    enter: Tensor  # [dim, hidden]
    books: list[Tensor]  # [codes, dim] each

    def __call__(self, x: Tensor) -> Tensor:
        """Vectors [T, hidden] to codes [T, books]."""
        rest, codes = F.linear(x, self.enter).float(), list[Tensor]()
        for book in self.books:
            code = torch.cdist(rest, book).argmin(-1)
            rest = rest - book[code]
            codes.append(code)
        return torch.stack(codes, dim=-1)


@dataclass(frozen=True)
class CodecEncoder:
    """Weights of the encoder."""

    config: EncoderConfig
    first: Conv
    stages: list[Stage]
    last: Conv
    layers: list[EncoderLayer]
    halve: Conv
    semantic: Quantizer
    acoustic: Quantizer

    def __call__(self, samples: Tensor) -> Tensor:
        """A clip [T] at 24 kHz in -1..1 to its codes [ceil(T / 1920), 16]."""
        x = self.first(samples.to(self.first.weight)[None, None])
        for stage in self.stages:
            x = stage(x)
        x = self._transform(self.last(F.elu(x)).transpose(1, 2))
        vectors = self.halve(x.transpose(1, 2))[0].T
        return torch.cat((self.semantic(vectors), self.acoustic(vectors)), dim=-1)

    def _transform(self, x: Tensor) -> Tensor:
        config, positions = self.config, torch.arange(x.shape[1], device=x.device)
        mask = (
            positions[:, None] >= positions
        )  # the published run has no window here, whatever the configuration says
        dim = config.head_dim or config.hidden_size // config.num_attention_heads
        rotation = rope(positions[None], dim, config.rope_theta, x.dtype)
        counts = [config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads]
        for layer in self.layers:
            heads = F.linear(_norm(x, layer.attention_norm, config.norm_eps), layer.qkv)
            queries, keys, values = heads.unflatten(-1, (-1, dim)).split(counts, dim=-2)
            seen = attend(rotate(queries, rotation), rotate(keys, rotation), values, mask)
            x = x + layer.attention_scale * F.linear(seen, layer.out)
            fed = F.gelu(F.linear(_norm(x, layer.mlp_norm, config.norm_eps), layer.widen))
            x = x + layer.mlp_scale * F.linear(fed, layer.narrow)
        return x


def _norm(x: Tensor, weights: tuple[Tensor, Tensor], eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], *weights, eps=eps)


def build_codec_encoder(source: Source, config: EncoderConfig, groups: int) -> CodecEncoder:
    """The encoder from the published names under `encoder.`, with the first `groups` of its codebooks."""
    source, hidden = source.under("encoder"), config.hidden_size
    convolutions, width = source.under("encoder"), config.num_filters
    stages, at = list[Stage](), 1
    for ratio in reversed(config.upsampling_ratios):
        stages.append(_stage(convolutions, config, at, width, ratio))
        at, width = at + config.num_residual_layers + 2, 2 * width
    semantic = config.num_semantic_quantizers
    return CodecEncoder(
        config=config,
        first=_conv(convolutions.under("layers.0"), (1, config.num_filters, config.kernel_size)),
        stages=stages,
        last=_conv(convolutions.under(f"layers.{at + 1}"), (width, hidden, config.last_kernel_size)),
        layers=[
            _layer(source.under(f"encoder_transformer.layers.{index}"), config)
            for index in range(config.num_hidden_layers)
        ],
        halve=Conv(source.get("downsample.conv.weight", hidden, hidden, 4), None, 2, padding="replicate"),
        semantic=_quantizer(source.under("quantizer.semantic_residual_vector_quantizer"), config, semantic),
        acoustic=_quantizer(
            source.under("quantizer.acoustic_residual_vector_quantizer"), config, groups - semantic
        ),
    )


def _stage(source: Source, config: EncoderConfig, at: int, width: int, ratio: int) -> Stage:
    narrow, units = width // config.compress, list[tuple[Conv, Conv]]()
    for index in range(config.num_residual_layers):
        unit, dilation = source.under(f"layers.{at + index}.block"), config.dilation_growth_rate**index
        wide = _conv(unit.under("1"), (width, narrow, config.residual_kernel_size), dilation=dilation)
        units.append((wide, _conv(unit.under("3"), (narrow, width, 1))))
    down = source.under(f"layers.{at + config.num_residual_layers + 1}")
    return Stage(units, _conv(down, (width, 2 * width, 2 * ratio), stride=ratio))


def _conv(source: Source, sizes: tuple[int, int, int], stride: int = 1, dilation: int = 1) -> Conv:
    inputs, outputs, kernel = sizes
    weight = source.get("conv.weight", outputs, inputs, kernel)
    return Conv(weight, source.get("conv.bias", outputs), stride, dilation)


def _layer(source: Source, config: EncoderConfig) -> EncoderLayer:
    hidden, ffn = config.hidden_size, config.intermediate_size
    dim = config.head_dim or hidden // config.num_attention_heads
    widths = {
        "q": config.num_attention_heads,
        "k": config.num_key_value_heads,
        "v": config.num_key_value_heads,
    }
    attention = source.under("self_attn")
    qkv = [attention.get(f"{name}_proj.weight", heads * dim, hidden) for name, heads in widths.items()]
    return EncoderLayer(
        attention_norm=_norm_weights(source.under("input_layernorm"), hidden),
        qkv=torch.cat(qkv),
        out=attention.get("o_proj.weight", hidden, widths["q"] * dim),
        attention_scale=source.get("self_attn_layer_scale.scale", hidden),
        mlp_norm=_norm_weights(source.under("post_attention_layernorm"), hidden),
        widen=source.get("mlp.fc1.weight", ffn, hidden),
        narrow=source.get("mlp.fc2.weight", hidden, ffn),
        mlp_scale=source.get("mlp_layer_scale.scale", hidden),
    )


def _norm_weights(source: Source, size: int) -> tuple[Tensor, Tensor]:
    return source.get("weight", size), source.get("bias", size)


def _quantizer(source: Source, config: EncoderConfig, count: int) -> Quantizer:
    dim, books = config.vector_quantization_hidden_dimension, list[Tensor]()
    for index in range(count):
        book = source.under(f"layers.{index}.codebook")
        uses = book.get("cluster_usage", config.codebook_size).float().clamp(min=_FEWEST_USES)
        books.append(book.get("embed_sum", config.codebook_size, config.codebook_dim).float() / uses[:, None])
    enter = source.get("input_proj.weight", dim, config.hidden_size, 1)[..., 0]
    return Quantizer(enter, books)
