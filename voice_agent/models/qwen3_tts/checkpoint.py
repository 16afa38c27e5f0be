"""A checkpoint's folder as published: config.json, model.safetensors, tokenizer files, speech_tokenizer/.

Loads the 1.7B and 0.6B CustomVoice, VoiceDesign and Base models. Nothing is downloaded and nothing executed:
safetensors and JSON only.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from voice_agent.errors import WeightsError
from voice_agent.models.qwen3_tts.cloning import build_cloning
from voice_agent.models.qwen3_tts.config import read_codec_config, read_model_config
from voice_agent.models.qwen3_tts.model import Model, build_model
from voice_agent.models.qwen3_tts.text import TextTokenizer
from voice_agent.models.qwen3_tts.weights import Checkpoint

CODEC_FOLDER = "speech_tokenizer"


class Generation(msgspec.Struct, frozen=True):
    """generation_config.json: how the model is meant to be sampled, Talker and (subtalker_) Code Predictor."""

    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0
    repetition_penalty: float = 1.05
    subtalker_temperature: float = 0.9
    subtalker_top_k: int = 50
    subtalker_top_p: float = 1.0
    max_new_tokens: int = 8192


@dataclass(frozen=True)
class Loaded:
    """A checkpoint ready to speak."""

    model: Model
    tokenizer: TextTokenizer
    generation: Generation


def load(
    folder: Path, device: torch.device, dtype: torch.dtype, codec_dtype: torch.dtype = torch.float32
) -> Loaded:
    """Load a checkpoint's folder; raises WeightsError that names the file, tensor or field."""
    config = read_model_config(folder / "config.json")
    codec_config = read_codec_config(folder / CODEC_FOLDER / "config.json")
    source = Checkpoint(tensors(folder), device, dtype)
    codec_source = Checkpoint(tensors(folder / CODEC_FOLDER), device, codec_dtype)
    model = build_model(source, codec_source, config, codec_config)
    if model.cloning:  # a clip is heard once, so exactly
        exact, codec_exact = (replace(part, dtype=torch.float32) for part in (source, codec_source))
        model = replace(model, cloning=build_cloning(exact, codec_exact, config, codec_config))
    return Loaded(model, TextTokenizer(folder), _generation(folder / "generation_config.json"))


def tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder's safetensors files (one, or several shards), mapped rather than read."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise WeightsError(f"{folder} has no .safetensors file")
    found: dict[str, Tensor] = {}
    for path in files:
        try:
            found |= load_file(path)
        except (OSError, SafetensorError) as error:
            raise WeightsError(f"{path}: {error}") from error
    return found


def _generation(path: Path) -> Generation:
    if not path.exists():
        return Generation()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Generation)
    except msgspec.MsgspecError as error:
        raise WeightsError(f"{path}: {error}") from error
