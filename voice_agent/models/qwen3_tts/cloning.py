"""Cloning with the Base models: a clip (and what is said in it) becomes a voice.

With its text the clip's own codes stand before the reply, which keeps more of the voice; without, the speaker vector
alone. Made once a voice and kept by the caller. Knows no resampling: clips come at 24 kHz.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from voice_agent.models.qwen3_tts.codec import Codec, CodecState
from voice_agent.models.qwen3_tts.codec_encoder import CodecEncoder, build_codec_encoder
from voice_agent.models.qwen3_tts.config import CodecConfig, ModelConfig
from voice_agent.models.qwen3_tts.prompt import Clone
from voice_agent.models.qwen3_tts.speaker_encoder import SpeakerEncoder, build_speaker_encoder
from voice_agent.models.qwen3_tts.weights import Source


@dataclass(frozen=True)
class Cloning:
    """The encoders that only Base checkpoints have."""

    speaker_encoder: SpeakerEncoder
    codec_encoder: CodecEncoder

    @torch.inference_mode()
    def clone(self, samples: Tensor, text: list[int] | None = None) -> Clone:
        """The voice of a clip [T] at 24 kHz in -1..1; `text` is token ids of what is said in it, if known.

        Raises EngineError for a clip under half a second.
        """
        speaker = self.speaker_encoder(samples)
        return Clone(speaker, self.codec_encoder(samples), text) if text else Clone(speaker)


def build_cloning(source: Source, codec_source: Source, config: ModelConfig, codec: CodecConfig) -> Cloning:
    """Both encoders from a Base checkpoint; raises WeightsError."""
    return Cloning(
        build_speaker_encoder(source, config.speaker_encoder_config),
        build_codec_encoder(codec_source, codec.encoder_config, codec.encoder_valid_num_quantizers),
    )


def heard_before(codec: Codec, clone: Clone) -> CodecState:
    """The codec's state for a reply in this voice [1 row]: as if the clip had just been played.

    The published wrapper decodes clip and reply together and cuts the clip off; this is the same sound, streamed.
    """
    state = codec.new_state(1)
    return state if clone.codes is None else codec.step(clone.codes[None], state)[1]
