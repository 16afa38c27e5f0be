"""The Base models' speaker encoder: a clip of a voice to one vector that stands in the prompt's voice row.

ECAPA-TDNN (arXiv 2005.07143) over a 128-band log mel spectrogram at 24 kHz; every convolution pads by reflection.
Runs once a voice, so it is plain and not fast.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from voice_agent.errors import EngineError
from voice_agent.models.qwen3_tts.config import RATE_HZ, SpeakerConfig
from voice_agent.models.qwen3_tts.mel import log_mel
from voice_agent.models.qwen3_tts.weights import Source

SHORTEST_S = 0.5  # below it there is hardly a voice to hear
_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True)
class Conv:
    """A convolution that keeps the length, reflecting at both ends."""

    weight: Tensor  # [out, in, kernel]
    bias: Tensor
    dilation: int = 1

    def __call__(self, x: Tensor) -> Tensor:
        """[B, in, T] to [B, out, T]."""
        reach = self.dilation * (self.weight.shape[-1] - 1)
        if reach:
            x = F.pad(x, (reach // 2, reach - reach // 2), mode="reflect")
        return F.conv1d(x, self.weight, self.bias, dilation=self.dilation)


@dataclass(frozen=True)
class Block:
    """Squeeze-and-excitation Res2Net: the channels' parts pass through one another, then are weighted."""

    enter: Conv
    parts: list[Conv]
    leave: Conv
    squeeze: Conv
    excite: Conv

    def __call__(self, x: Tensor) -> Tensor:
        """[B, C, T] to the same shape."""
        chunks = list(F.relu(self.enter(x)).chunk(len(self.parts) + 1, dim=1))
        mixed, last = [chunks[0]], torch.zeros_like(chunks[0])
        for chunk, conv in zip(chunks[1:], self.parts, strict=True):
            last = F.relu(conv(chunk + last))
            mixed.append(last)
        y = F.relu(self.leave(torch.cat(mixed, dim=1)))
        weights = torch.sigmoid(self.excite(F.relu(self.squeeze(y.mean(-1, keepdim=True)))))
        return x + y * weights


@dataclass(frozen=True)
class SpeakerEncoder:
    """Weights of the encoder."""

    config: SpeakerConfig
    first: Conv
    blocks: list[Block]
    aggregate: Conv
    attention: tuple[Conv, Conv]
    last: Conv

    def __call__(self, samples: Tensor) -> Tensor:
        """A clip [T] at 24 kHz in -1..1 to its voice's vector [H]; raises EngineError for less than half a second."""
        if len(samples) < SHORTEST_S * RATE_HZ:
            raise EngineError(
                f"a clip to clone needs {SHORTEST_S} s of sound at least", code="clip_too_short"
            )
        x = F.relu(self.first(log_mel(samples, self.config.mel_dim).to(self.first.weight)[None]))
        heard: list[Tensor] = []
        for block in self.blocks:
            x = block(x)
            heard.append(x)
        x = F.relu(self.aggregate(torch.cat(heard, dim=1)))
        return self.last(self._pool(x)[..., None])[0, :, 0]

    def _pool(self, x: Tensor) -> Tensor:
        """Mean and deviation over time [B, 2 C], weighted by attention that sees both of the whole clip."""
        even = torch.full_like(x[:, :1], 1 / x.shape[-1])
        mean, deviation = (value[..., None].expand_as(x) for value in _statistics(x, even))
        enter, leave = self.attention
        scores = leave(torch.tanh(F.relu(enter(torch.cat((x, mean, deviation), dim=1)))))
        return torch.cat(_statistics(x, scores.softmax(-1)), dim=1)


def _statistics(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    mean = (weights * x).sum(-1)
    variance = (weights * (x - mean[..., None]).square()).sum(-1)
    return mean, variance.clamp(min=_LEAST_VARIANCE).sqrt()


def build_speaker_encoder(source: Source, config: SpeakerConfig) -> SpeakerEncoder:
    """The encoder from the published names under `speaker_encoder.`; raises WeightsError."""
    source, channels = source.under("speaker_encoder"), config.enc_channels
    kernels, dilations, wide = config.enc_kernel_sizes, config.enc_dilations, channels[-1]
    blocks = [_block(source.under(f"blocks.{at}"), config, at) for at in range(1, len(channels) - 1)]
    pooling = source.under("asp")
    return SpeakerEncoder(
        config=config,
        first=_conv(source.under("blocks.0.conv"), config.mel_dim, channels[0], kernels[0], dilations[0]),
        blocks=blocks,
        aggregate=_conv(source.under("mfa.conv"), sum(channels[1:-1]), wide, kernels[-1], dilations[-1]),
        attention=(
            _conv(pooling.under("tdnn.conv"), 3 * wide, config.enc_attention_channels),
            _conv(pooling.under("conv"), config.enc_attention_channels, wide),
        ),
        last=_conv(source.under("fc"), 2 * wide, config.enc_dim),
    )


def _block(source: Source, config: SpeakerConfig, at: int) -> Block:
    before, channels = config.enc_channels[at - 1], config.enc_channels[at]
    part, kernel, dilation = (
        channels // config.enc_res2net_scale,
        config.enc_kernel_sizes[at],
        config.enc_dilations[at],
    )
    inner, gate = source.under("res2net_block"), source.under("se_block")
    parts = [
        _conv(inner.under(f"blocks.{index}.conv"), part, part, kernel, dilation)
        for index in range(config.enc_res2net_scale - 1)
    ]
    return Block(
        enter=_conv(source.under("tdnn1.conv"), before, channels),
        parts=parts,
        leave=_conv(source.under("tdnn2.conv"), channels, channels),
        squeeze=_conv(gate.under("conv1"), channels, config.enc_se_channels),
        excite=_conv(gate.under("conv2"), config.enc_se_channels, channels),
    )


def _conv(source: Source, inputs: int, outputs: int, kernel: int = 1, dilation: int = 1) -> Conv:
    return Conv(source.get("weight", outputs, inputs, kernel), source.get("bias", outputs), dilation)
