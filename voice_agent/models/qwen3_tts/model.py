"""The three parts together, built from any source of weights, and random ones of the exact published shape.

Knows no files (see checkpoint).
"""

from dataclasses import dataclass, replace

import torch

from voice_agent.models.qwen3_tts.cloning import Cloning, build_cloning
from voice_agent.models.qwen3_tts.code_predictor import CodePredictor, build_code_predictor
from voice_agent.models.qwen3_tts.codec import Codec, build_codec
from voice_agent.models.qwen3_tts.config import CODES, GROUPS, LARGE, CodecConfig, ModelConfig
from voice_agent.models.qwen3_tts.talker import Talker, build_talker
from voice_agent.models.qwen3_tts.weights import Source, random_weights

_LOUDNESS = 0.1  # RMS of the random codec's sound: -20 dBFS, audible by every onset rule
_PROBE_FRAMES = 8


@dataclass(frozen=True)
class Model:
    """Talker, Code Predictor and codec of one checkpoint; no state of any stream."""

    config: ModelConfig
    talker: Talker
    code_predictor: CodePredictor
    codec: Codec
    cloning: Cloning | None = None  # Base checkpoints only


def build_model(source: Source, codec_source: Source, config: ModelConfig, codec: CodecConfig) -> Model:
    """All parts; the codec's weights may live elsewhere and in another dtype. Raises WeightsError."""
    talker, base = config.talker_config, config.tts_model_type == "base"
    return Model(
        config=config,
        talker=build_talker(source, talker),
        code_predictor=build_code_predictor(source, talker.code_predictor_config, talker.hidden_size),
        codec=build_codec(codec_source, codec.decoder_config),
        cloning=build_cloning(source, codec_source, config, codec) if base else None,
    )


def exact_shape_random(
    device: torch.device,
    dtype: torch.dtype,
    seed: int = 0,
    config: ModelConfig = LARGE,
    codec: CodecConfig | None = None,
) -> Model:
    """Random weights of the published shape, made on the device: a stand-in for measuring, not for listening.

    The end code's row of the head is zero, so with top-k sampling no reply ever ends by itself and lengths can be
    forced; the codec's sound is loud from its first sample.
    """
    source = random_weights(seed, device, dtype)
    model = build_model(source, source, config, codec or CodecConfig())
    model.talker.head[config.talker_config.codec_eos_token_id] = 0.0
    return replace(model, codec=_audible(model.codec, seed))


def _audible(codec: Codec, seed: int) -> Codec:
    """The codec with its last convolution scaled to a fixed loudness, measured on a few frames of random codes."""
    codes = torch.randint(
        CODES, (1, _PROBE_FRAMES, GROUPS), generator=torch.Generator().manual_seed(seed)
    ).to(codec.entries.device)
    last = codec.last
    quiet = replace(last, weight=last.weight * 1e-3, bias=last.bias * 0.0)  # far from the clamp
    sound = replace(codec, last=quiet).decode(codes).float()
    gain = 1e-3 * _LOUDNESS / sound.square().mean().sqrt()
    return replace(codec, last=replace(quiet, weight=(last.weight.float() * gain).to(last.weight.dtype)))
