"""The codec's transformer: 8 layers over frames, each seeing itself and the 71 frames before it.

Its state is the last 71 keys and values of every layer and the number of frames so far. Keys are stored turned to
their absolute position; rotary attention depends on differences alone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from voice_agent.models.qwen3_tts.config import DecoderConfig
from voice_agent.models.qwen3_tts.transformer import attend, rms_norm, rope, rotate, swiglu
from voice_agent.models.qwen3_tts.weights import Source


@dataclass(frozen=True)
class Window:
    """What a pass over T new frames may see: positions, mask and each row's real frames (None: all)."""

    positions: Tensor  # [B, T]
    mask: Tensor  # [B, 1, T, past + T]
    frames: Tensor | None
    past: int

    def last(self, held: Tensor) -> Tensor:
        """The `past` entries [B, heads...] of [B, past + T, ...] that end with each row's last real frame."""
        if self.frames is None:
            return held[:, -self.past :]
        at = self.frames[:, None] + torch.arange(self.past, device=held.device)
        return held[torch.arange(len(held), device=held.device)[:, None], at]


@dataclass(frozen=True)
class CodecLayer:
    """Weights of one layer; both branches are scaled per channel before they are added."""

    attention_norm: Tensor
    qkv: Tensor
    out: Tensor
    attention_scale: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor
    mlp_scale: Tensor


@dataclass(frozen=True)
class CodecTransformer:
    """All layers with the projections into and out of their width."""

    config: DecoderConfig
    layers: list[CodecLayer]
    norm: Tensor
    enter: tuple[Tensor, Tensor]
    leave: tuple[Tensor, Tensor]

    def __call__(self, x: Tensor, kv: Tensor, window: Window) -> tuple[Tensor, Tensor]:
        """Frames [B, T, latent] and kv [B, layers, 2, 71, heads, dim] to the same, one step on."""
        config, kept = self.config, torch.empty_like(kv)
        rotation = rope(window.positions, config.head_dim, config.rope_theta, x.dtype)
        x = F.linear(x, *self.enter)
        for index, layer in enumerate(self.layers):
            heads = F.linear(rms_norm(x, layer.attention_norm, config.rms_norm_eps), layer.qkv)
            queries, keys, values = heads.unflatten(-1, (-1, config.head_dim)).split(self._counts, dim=-2)
            keys = torch.cat((kv[:, index, 0], rotate(keys, rotation)), dim=1)
            values = torch.cat((kv[:, index, 1], values), dim=1)
            kept[:, index, 0], kept[:, index, 1] = window.last(keys), window.last(values)
            seen = attend(rotate(queries, rotation), keys, values, window.mask)
            x = x + layer.attention_scale * F.linear(seen, layer.out)
            fed = swiglu(rms_norm(x, layer.mlp_norm, config.rms_norm_eps), layer.gate_up, layer.down)
            x = x + layer.mlp_scale * fed
        return F.linear(rms_norm(x, self.norm, config.rms_norm_eps), *self.leave), kept

    @property
    def _counts(self) -> list[int]:
        config = self.config
        return [config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads]


def window(seen: Tensor, count: int, sliding_window: int, frames: Tensor | None) -> Window:
    """The window of `count` new frames for streams that have seen `seen` [B] frames before."""
    past = sliding_window - 1
    positions = seen[:, None] + torch.arange(count, device=seen.device)
    held = (
        seen[:, None] - past + torch.arange(past + count, device=seen.device)
    )  # [B, past + T], below 0: none
    behind = positions[:, :, None] - held[:, None]
    mask = (behind >= 0) & (behind < sliding_window) & (held >= 0)[:, None]
    return Window(positions, mask[:, None], frames, past)


def build_codec_transformer(source: Source, config: DecoderConfig) -> CodecTransformer:
    """From the published names under `pre_transformer.`; raises WeightsError."""
    hidden, latent = config.hidden_size, config.latent_dim
    layers = [_layer(source.under(f"layers.{index}"), config) for index in range(config.num_hidden_layers)]
    return CodecTransformer(
        config=config,
        layers=layers,
        norm=source.get("norm.weight", hidden),
        enter=(source.get("input_proj.weight", hidden, latent), source.get("input_proj.bias", hidden)),
        leave=(source.get("output_proj.weight", latent, hidden), source.get("output_proj.bias", latent)),
    )


def _layer(source: Source, config: DecoderConfig) -> CodecLayer:
    hidden, ffn, dim = config.hidden_size, config.intermediate_size, config.head_dim
    widths = {
        "q": config.num_attention_heads,
        "k": config.num_key_value_heads,
        "v": config.num_key_value_heads,
    }
    attention, mlp = source.under("self_attn"), source.under("mlp")
    qkv = [attention.get(f"{name}_proj.weight", heads * dim, hidden) for name, heads in widths.items()]
    return CodecLayer(
        attention_norm=source.get("input_layernorm.weight", hidden),
        qkv=torch.cat(qkv),
        out=attention.get("o_proj.weight", hidden, widths["q"] * dim),
        attention_scale=source.get("self_attn_layer_scale.scale", hidden),
        mlp_norm=source.get("post_attention_layernorm.weight", hidden),
        gate_up=torch.cat([mlp.get(f"{name}_proj.weight", ffn, hidden) for name in ("gate", "up")]),
        down=mlp.get("down_proj.weight", hidden, ffn),
        mlp_scale=source.get("mlp_layer_scale.scale", hidden),
    )
