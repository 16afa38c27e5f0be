"""The published checkpoints' configuration: what of config.json the code needs, and the shapes of the two sizes.

A checkpoint's folder holds config.json (Talker, Code Predictor, speaker encoder, voices, languages) and
speech_tokenizer/config.json (codec). Defaults here are the published 12 Hz checkpoints' values, not the defaults of
the published Python classes, which differ. Knows no weights.
"""

from math import prod
from pathlib import Path
from typing import TypeVar

import msgspec

from voice_agent.errors import WeightsError

_T = TypeVar("_T")

GROUPS = 16  # codes in a frame
CODES = 2_048  # valid values of every code
SAMPLES_PER_FRAME = 1_920
RATE_HZ = 24_000

VOICES = {
    "serena": 3066,
    "vivian": 3065,
    "uncle_fu": 3010,
    "ryan": 3061,
    "aiden": 2861,
    "ono_anna": 2873,
    "sohee": 2864,
    "eric": 2875,
    "dylan": 2878,
}
LANGUAGES = {
    "chinese": 2055,
    "english": 2050,
    "german": 2053,
    "italian": 2070,
    "portuguese": 2071,
    "spanish": 2054,
    "japanese": 2058,
    "korean": 2064,
    "french": 2061,
    "russian": 2069,
    "beijing_dialect": 2074,
    "sichuan_dialect": 2062,
}
DIALECTS: dict[str, str | bool] = {name: False for name in VOICES} | {
    "eric": "sichuan_dialect",
    "dylan": "beijing_dialect",
}


class PredictorConfig(msgspec.Struct, frozen=True):
    """Code Predictor: 5 layers that never see more than 16 positions."""

    hidden_size: int = 1024
    intermediate_size: int = 3072
    num_hidden_layers: int = 5
    num_attention_heads: int = 16
    num_key_value_heads: int = 8
    head_dim: int = 128
    vocab_size: int = CODES
    num_code_groups: int = GROUPS
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6


class TalkerConfig(msgspec.Struct, frozen=True):
    """Talker, with the ids of its control codes, voices and languages."""

    hidden_size: int = 2048
    intermediate_size: int = 6144
    num_hidden_layers: int = 28
    num_attention_heads: int = 16
    num_key_value_heads: int = 8
    head_dim: int = 128
    vocab_size: int = 3072
    text_vocab_size: int = 151_936
    text_hidden_size: int = 2048
    num_code_groups: int = GROUPS
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6
    codec_pad_id: int = 2148
    codec_bos_id: int = 2149
    codec_eos_token_id: int = 2150
    codec_think_id: int = 2154
    codec_nothink_id: int = 2155
    codec_think_bos_id: int = 2156
    codec_think_eos_id: int = 2157
    spk_id: dict[str, int] = msgspec.field(default_factory=lambda: dict(VOICES))
    spk_is_dialect: dict[str, str | bool] = msgspec.field(default_factory=lambda: dict(DIALECTS))
    codec_language_id: dict[str, int] = msgspec.field(default_factory=lambda: dict(LANGUAGES))
    code_predictor_config: PredictorConfig = PredictorConfig()


class SpeakerConfig(msgspec.Struct, frozen=True):
    """Speaker encoder (ECAPA-TDNN) of the Base models; `enc_dim` is the Talker's hidden size."""

    mel_dim: int = 128
    enc_dim: int = 1024
    enc_channels: tuple[int, ...] = (512, 512, 512, 512, 1536)
    enc_kernel_sizes: tuple[int, ...] = (5, 3, 3, 3, 1)
    enc_dilations: tuple[int, ...] = (1, 2, 3, 4, 1)
    enc_attention_channels: int = 128
    enc_res2net_scale: int = 8
    enc_se_channels: int = 128
    sample_rate: int = RATE_HZ


class ModelConfig(msgspec.Struct, frozen=True):
    """config.json of a checkpoint; `tts_model_type` is custom_voice, base or voice_design."""

    talker_config: TalkerConfig = TalkerConfig()
    speaker_encoder_config: SpeakerConfig = SpeakerConfig()
    tts_model_type: str = "custom_voice"
    tts_model_size: str = "1b7"
    tokenizer_type: str = "qwen3_tts_tokenizer_12hz"
    im_start_token_id: int = 151_644
    im_end_token_id: int = 151_645
    tts_pad_token_id: int = 151_671
    tts_bos_token_id: int = 151_672
    tts_eos_token_id: int = 151_673


class DecoderConfig(msgspec.Struct, frozen=True):
    """Codec decoder: codes to waveform."""

    codebook_size: int = CODES
    codebook_dim: int = 512
    num_quantizers: int = GROUPS
    latent_dim: int = 1024
    hidden_size: int = 512
    intermediate_size: int = 1024
    num_hidden_layers: int = 8
    num_attention_heads: int = 16
    num_key_value_heads: int = 16
    head_dim: int = 64
    sliding_window: int = 72
    rms_norm_eps: float = 1e-5
    rope_theta: float = 1e4
    decoder_dim: int = 1536
    upsample_rates: tuple[int, ...] = (8, 5, 4, 3)
    upsampling_ratios: tuple[int, ...] = (2, 2)

    @property
    def samples_per_frame(self) -> int:
        """1,920 at the published shape."""
        return prod((*self.upsample_rates, *self.upsampling_ratios))


class EncoderConfig(msgspec.Struct, frozen=True):
    """Codec encoder (Mimi): waveform to codes, for cloning only."""

    hidden_size: int = 512
    num_filters: int = 64
    num_residual_layers: int = 1
    upsampling_ratios: tuple[int, ...] = (8, 6, 5, 4)
    kernel_size: int = 7
    last_kernel_size: int = 3
    residual_kernel_size: int = 3
    dilation_growth_rate: int = 2
    compress: int = 2
    codebook_size: int = CODES
    codebook_dim: int = 256
    num_quantizers: int = 32
    num_semantic_quantizers: int = 1
    vector_quantization_hidden_dimension: int = 256
    num_hidden_layers: int = 8
    intermediate_size: int = 2048
    num_attention_heads: int = 8
    num_key_value_heads: int = 8
    head_dim: int | None = None
    rope_theta: float = 1e4
    norm_eps: float = 1e-5


class CodecConfig(msgspec.Struct, frozen=True):
    """speech_tokenizer/config.json of a checkpoint."""

    decoder_config: DecoderConfig = DecoderConfig()
    encoder_config: EncoderConfig = EncoderConfig()
    encoder_valid_num_quantizers: int = GROUPS
    input_sample_rate: int = RATE_HZ
    output_sample_rate: int = RATE_HZ
    decode_upsample_rate: int = SAMPLES_PER_FRAME
    encode_downsample_rate: int = SAMPLES_PER_FRAME


LARGE = ModelConfig()
SMALL = ModelConfig(
    talker_config=TalkerConfig(hidden_size=1024, intermediate_size=3072), tts_model_size="0b6"
)  # 1.7B and 0.6B CustomVoice as published


def read_model_config(path: Path) -> ModelConfig:
    """Read config.json; raises WeightsError that names the field which is missing or wrong."""
    config = _read(path, ModelConfig)
    if config.tokenizer_type != "qwen3_tts_tokenizer_12hz":
        raise WeightsError(
            f"{path.name}: tokenizer_type is {config.tokenizer_type!r}; only qwen3_tts_tokenizer_12hz can be served"
        )
    return config


def read_codec_config(path: Path) -> CodecConfig:
    """Read speech_tokenizer/config.json; raises WeightsError that names the field."""
    return _read(path, CodecConfig)


def _read(path: Path, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise WeightsError(f"{path}: {error}") from error
