"""What a sound would be if the codec had rendered it in one go and exactly, and how far another rendering is from it.

The measure is the distance of two log mel spectrograms in dB: 0 is the same sound. Knows no engine.
"""

import math
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from voice_agent.models.qwen3_tts.codec import Codec
from voice_agent.models.qwen3_tts.mel import log_mel

BANDS = 80
PUBLISHED_CONTEXT = 25  # frames that the published wrapper decodes again before each chunk


@torch.inference_mode()
def full_context(codec: Codec, codes: Tensor) -> Tensor:
    """The whole sound [T * 1920] of codes [T, 16] in -1..1; give it a `widened` codec."""
    return codec.decode(codes[None])[0]


@torch.inference_mode()
def cut_anew(codec: Codec, codes: Tensor, chunk: int, context: int) -> Tensor:
    """The same by a codec that remembers nothing: each chunk decoded behind so many frames, which are cut off."""
    sounds: list[Tensor] = []
    for first in range(0, len(codes), chunk):
        begin = max(0, first - context)
        sound = codec.decode(codes[None, begin : first + chunk])[0]
        sounds.append(sound[(first - begin) * codec.config.samples_per_frame :])
    return torch.cat(sounds)


def distance_db(one: Tensor, other: Tensor) -> float:
    """Mean over time of the bands' root mean square difference, for two sounds [T] of one length."""
    spectra = [log_mel(sound.float(), BANDS) for sound in (one, other)]
    apart = (spectra[0] - spectra[1]) * (20 / math.log(10))
    return float(apart.square().mean(0).sqrt().mean())


def widened(part: Any) -> Any:
    """The same weights in float32."""
    if isinstance(part, Tensor):
        return part.float()
    if isinstance(part, list | tuple):
        return type(part)(widened(one) for one in part)
    if is_dataclass(part) and not isinstance(part, type) and "Config" not in type(part).__name__:
        return replace(part, **{f.name: widened(getattr(part, f.name)) for f in fields(part)})
    return part
