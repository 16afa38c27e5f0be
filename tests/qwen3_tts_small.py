"""Qwen3-TTS small enough for a test: the published structure with tiny sizes, and weights that any machine makes alike.

A tensor's values come from its name alone (numpy's frozen RandomState), so the script that asks the published
implementation and the tests that compare against its answers need no common file.
"""

import zlib
from dataclasses import dataclass, replace

import numpy as np
import torch
from msgspec.structs import replace as replace_struct
from torch import Tensor

from voice_agent.models.qwen3_tts.config import (
    CodecConfig,
    DecoderConfig,
    EncoderConfig,
    ModelConfig,
    PredictorConfig,
    SpeakerConfig,
    TalkerConfig,
)
from voice_agent.models.qwen3_tts.model import Model, build_model
from voice_agent.models.qwen3_tts.weights import spread

torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other

CODES = 64
PREDICTOR = PredictorConfig(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=CODES,
)
TALKER = TalkerConfig(
    hidden_size=48,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    vocab_size=CODES + 1024,
    text_vocab_size=200,
    text_hidden_size=16,
    codec_pad_id=CODES + 100,
    codec_bos_id=CODES + 101,
    codec_eos_token_id=CODES + 102,
    codec_think_id=CODES + 106,
    codec_nothink_id=CODES + 107,
    codec_think_bos_id=CODES + 108,
    codec_think_eos_id=CODES + 109,
    spk_id={"ryan": 3061 - 1984, "sohee": 2864 - 1984, "eric": 2875 - 1984},
    spk_is_dialect={"ryan": False, "sohee": False, "eric": "sichuan_dialect"},
    codec_language_id={
        "english": CODES + 2,
        "chinese": CODES + 7,
        "korean": CODES + 16,
        "sichuan_dialect": CODES + 14,
    },
    code_predictor_config=PREDICTOR,
)
CONFIG = ModelConfig(
    talker_config=TALKER,
    im_start_token_id=190,
    im_end_token_id=191,
    tts_pad_token_id=192,
    tts_bos_token_id=193,
    tts_eos_token_id=194,
)
DECODER = DecoderConfig(
    codebook_size=CODES,
    codebook_dim=16,
    latent_dim=24,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=8,
    sliding_window=5,
    decoder_dim=32,
    upsample_rates=(3, 2),
    upsampling_ratios=(2,),
)
FULL_RATE = replace_struct(DECODER, upsample_rates=(8, 5, 4, 3), upsampling_ratios=(2, 2))
LAST_CONVS = ("decoder.decoder.4.conv.weight", "decoder.decoder.6.conv.weight")  # of the two decoders above
ENCODER = EncoderConfig(
    hidden_size=16,
    num_filters=4,
    codebook_size=CODES,
    codebook_dim=8,
    vector_quantization_hidden_dimension=8,
    num_hidden_layers=2,
    intermediate_size=24,
    num_attention_heads=2,
    num_key_value_heads=2,
)
CODEC = CodecConfig(decoder_config=DECODER, encoder_config=ENCODER)
SPEAKER = SpeakerConfig(
    mel_dim=128, enc_dim=48, enc_channels=(16, 16, 16, 16, 48), enc_attention_channels=8, enc_se_channels=8
)

SAMPLES = DECODER.samples_per_frame


def values(name: str, shape: tuple[int, ...]) -> Tensor:
    """The tensor that bears this published name."""
    random = np.random.RandomState(zlib.crc32(name.encode()))
    if name.endswith("cluster_usage"):
        return torch.tensor(random.uniform(0.5, 2.0, shape), dtype=torch.float64)
    middle = (
        1.0
        if "norm" in name and name.endswith("weight")
        else 0.3
        if name.endswith(("scale", "gamma"))
        else 0.0
    )
    wide = 0.1 if middle else spread(name, shape)
    if name in LAST_CONVS:  # far from the clamp, which would hide differences
        wide *= 0.1
    return torch.tensor(middle + wide * random.standard_normal(shape), dtype=torch.float64)


@dataclass(frozen=True)
class Named:
    """A source of weights by name (see weights.Source)."""

    dtype: torch.dtype = torch.float32
    prefix: str = ""

    def get(self, name: str, *shape: int) -> Tensor:
        return values(self.prefix + name, shape).to(self.dtype)

    def under(self, prefix: str) -> "Named":
        return replace(self, prefix=f"{self.prefix}{prefix}.")


def small_model(config: ModelConfig = CONFIG, dtype: torch.dtype = torch.float32) -> Model:
    return build_model(Named(dtype), Named(dtype), config, CODEC)


def clip(count: int) -> Tensor:
    """So many samples of something like a voice: a low tone with overtones, swelling, with noise."""
    at = np.arange(count) / 24_000
    tones = sum(np.sin(2 * np.pi * 150 * n * at + n) / n for n in range(1, 20))
    noise = np.random.RandomState(11).standard_normal(count)
    return torch.tensor(0.1 * tones * (1 + np.sin(9 * at)) + 0.02 * noise, dtype=torch.float32)


def speaker_vector() -> Tensor:
    """What a speaker encoder might have said."""
    return values("speaker", (TALKER.hidden_size,)).float()


def _codes(batch: int, count: int) -> Tensor:
    return torch.randint(CODES, (batch, count, 16), generator=torch.Generator().manual_seed(5))


SOUNDS = {  # codes [B, T, 16] to decode: many frames at few samples, few at the published rates
    "many frames": (DECODER, _codes(2, 40)),
    "published rates": (FULL_RATE, _codes(1, 4)),
}
