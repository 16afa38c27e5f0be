"""The codec's decoder: frames of 16 codes to 1,920 samples each, any number of frames at a time.

There is one way to decode: a step over T frames with the stream's state. A whole decode is one step from a new
state, so cutting a stream anywhere changes nothing but rounding. Source of the shapes: the published 12 Hz codec.
The encoder is in codec_encoder; the Talker's codes come from elsewhere.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from voice_agent.models.qwen3_tts.codec_conv import (
    Conv,
    ConvNeXt,
    Layout,
    Pass,
    ResidualUnit,
    Shape,
    Snake,
    Upsample,
    build_conv,
    build_conv_next,
    build_residual_unit,
    build_snake,
    build_upsample,
)
from voice_agent.models.qwen3_tts.codec_transformer import CodecTransformer, build_codec_transformer, window
from voice_agent.models.qwen3_tts.config import DecoderConfig
from voice_agent.models.qwen3_tts.weights import Source

_FEWEST_USES = 1e-5  # a codebook entry's published divisor is at least this


@dataclass(frozen=True)
class CodecState:
    """What a step needs from before, a row a stream: all zeros for a new one.

    2.6 MB a stream in bfloat16 at the published shape, nearly all of it keys and values.
    """

    frames: Tensor  # [B] int64: frames decoded so far
    kv: Tensor  # [B, layers, 2, 71, heads, dim]
    columns: Tensor  # [B, S]: the convolutions' histories


@dataclass(frozen=True)
class Block:
    """A stage of the waveform decoder: Snake, upsampling, three residual units."""

    snake: Snake
    upsample: Upsample
    units: list[ResidualUnit]


@dataclass(frozen=True)
class Codec:
    """Weights of the decoder and its step; holds no state of any stream."""

    config: DecoderConfig
    entries: Tensor  # [16 * codes, 512]: every code's vector, its group's projection folded in
    enter: Conv
    transformer: CodecTransformer
    stages: list[tuple[Upsample, ConvNeXt]]
    widen: Conv
    blocks: list[Block]
    last_snake: Snake
    last: Conv
    history_elements: int

    def new_state(self, rows: int) -> CodecState:
        """The state of streams that have not begun."""
        config, entries = self.config, self.entries
        heads = (config.num_key_value_heads, config.head_dim)
        return CodecState(
            frames=torch.zeros(rows, dtype=torch.int64, device=entries.device),
            kv=entries.new_zeros((rows, config.num_hidden_layers, 2, config.sliding_window - 1, *heads)),
            columns=entries.new_zeros((rows, self.history_elements)),
        )

    def decode(self, codes: Tensor) -> Tensor:
        """A whole sound [B, T * 1920] from its codes [B, T, 16], in -1..1."""
        return self.step(codes, self.new_state(len(codes)))[0]

    def step(
        self, codes: Tensor, state: CodecState, frames: Tensor | None = None
    ) -> tuple[Tensor, CodecState]:
        """The next T frames [B, T, 16] as sound [B, T * 1920] in -1..1, and the state after them.

        With `frames` [B] only that many of a row's frames are real; its sound is right up to there, its state stands
        there, and 0 leaves the row's state as it was. Codes out of range are taken for the nearest in range: they
        can spoil their own stream and nothing else. The given state is not changed.
        """
        count = codes.shape[1]
        after = Pass(state.columns, torch.empty_like(state.columns), frames)
        seen = window(state.frames, count, self.config.sliding_window, frames)
        x = self.enter(self._entries(codes), after, 1)
        x, kv = self.transformer(x.transpose(1, 2), state.kv, seen)
        sound = self._waveform(x.transpose(1, 2), after)
        return sound, CodecState(state.frames + (count if frames is None else frames), kv, after.after)

    def _entries(self, codes: Tensor) -> Tensor:
        """Sum of the codes' vectors [B, 512, T]."""
        size = self.config.codebook_size
        groups = torch.arange(codes.shape[-1], device=codes.device) * size
        return F.embedding(codes.clamp(0, size - 1) + groups, self.entries).sum(-2).transpose(1, 2)

    def _waveform(self, x: Tensor, state: Pass) -> Tensor:
        columns = 1  # a frame's columns here
        for upsample, conv_next in self.stages:
            x = upsample(x, state, columns)
            columns *= upsample.stride
            x = conv_next(x, state, columns)
        x = self.widen(x, state, columns)
        for block in self.blocks:
            x = block.upsample(block.snake(x), state, columns)
            columns *= block.upsample.stride
            for unit in block.units:
                x = unit(x, state, columns)
        return self.last(self.last_snake(x), state, columns)[:, 0].clamp(-1.0, 1.0)


def build_codec(source: Source, config: DecoderConfig) -> Codec:
    """The decoder from the published names under `decoder.`; raises WeightsError."""
    source, layout, latent = source.under("decoder"), Layout(), config.latent_dim
    waveform, width = source.under("decoder"), config.decoder_dim
    count = len(config.upsample_rates)
    narrow = width >> count
    return Codec(
        config=config,
        entries=_entry_table(source.under("quantizer"), config),
        enter=build_conv(source.under("pre_conv"), layout, Shape(config.codebook_dim, latent, 3)),
        transformer=build_codec_transformer(source.under("pre_transformer"), config),
        stages=[
            _stage(source.under(f"upsample.{index}"), layout, latent, ratio)
            for index, ratio in enumerate(config.upsampling_ratios)
        ],
        widen=build_conv(waveform.under("0"), layout, Shape(latent, width, 7)),
        blocks=[
            _block(waveform.under(f"{index + 1}.block"), layout, width >> index, rate)
            for index, rate in enumerate(config.upsample_rates)
        ],
        last_snake=build_snake(waveform.under(f"{count + 1}"), narrow),
        last=build_conv(waveform.under(f"{count + 2}"), layout, Shape(narrow, 1, 7)),
        history_elements=layout.elements,
    )


def _stage(source: Source, layout: Layout, channels: int, ratio: int) -> tuple[Upsample, ConvNeXt]:
    upsample = build_upsample(source.under("0"), layout, Shape(channels, channels, ratio), ratio)
    return upsample, build_conv_next(source.under("1"), layout, channels)


def _block(source: Source, layout: Layout, channels: int, rate: int) -> Block:
    half = channels // 2
    return Block(
        snake=build_snake(source.under("0"), channels),
        upsample=build_upsample(source.under("1"), layout, Shape(channels, half, 2 * rate), rate),
        units=[
            build_residual_unit(source.under(f"{place}"), layout, half, dilation)
            for place, dilation in ((2, 1), (3, 3), (4, 9))
        ],
    )


def _entry_table(source: Source, config: DecoderConfig) -> Tensor:
    """All codebooks through their group's output projection, [16 * codes, 512]; folded in float32."""
    tables: list[Tensor] = []
    for name, count in (("rvq_first", 1), ("rvq_rest", config.num_quantizers - 1)):
        group, dim = source.under(name), config.codebook_dim // 2
        project = group.get("output_proj.weight", config.codebook_dim, dim, 1)[..., 0]
        for index in range(count):
            book = group.under(f"vq.layers.{index}._codebook")
            uses = book.get("cluster_usage", config.codebook_size).float().clamp(min=_FEWEST_USES)
            entries = book.get("embedding_sum", config.codebook_size, dim).float() / uses[:, None]
            tables.append((entries @ project.float().T).to(project.dtype))
    return torch.cat(tables)
