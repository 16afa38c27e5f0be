"""A checkpoint made ready to serve: device, weights, graphs, tokenizer. What the speech engine loads.

`options.extra`: random (no files), size (of a random one: 1.7b, 0.6b, tiny), frames_per_token (how long a voice that
never ends speaks, as random ones do), slots, length (rows of a slot), pdl, fused_codec (false: the plain one without a
trial). On a machine without a GPU everything runs eagerly in float32, for tests.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from voice_agent.engine.runtime import TalkerOptions
from voice_agent.errors import ConfigError, WeightsError
from voice_agent.models.qwen3_tts.config import (
    LARGE,
    SMALL,
    CodecConfig,
    DecoderConfig,
    ModelConfig,
    PredictorConfig,
    TalkerConfig,
)
from voice_agent.models.qwen3_tts.device import Sizes, SpeechDevice
from voice_agent.models.qwen3_tts.frame_parts import Ops
from voice_agent.models.qwen3_tts.model import Model, exact_shape_random
from voice_agent.models.qwen3_tts.plain_ops import PlainOps
from voice_agent.models.qwen3_tts.prompt import ISO_639
from voice_agent.models.qwen3_tts.stand_in import StandInText

TINY = (
    ModelConfig(
        TalkerConfig(
            64, 128, 2, 4, 2, 16, text_hidden_size=16, code_predictor_config=PredictorConfig(32, 64, 1, 4, 2, 8)
        )
    ),
    CodecConfig(
        DecoderConfig(codebook_dim=16, latent_dim=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                      num_attention_heads=2, num_key_value_heads=2, head_dim=8, decoder_dim=48)
    ),
)  # fmt: skip
SHAPES = {"1.7b": (LARGE, CodecConfig()), "0.6b": (SMALL, CodecConfig()), "tiny": TINY}  # of random weights
_ROLE = [151_644, 77_091, 198]  # "<|im_start|>assistant\n" of the published vocabulary


class Text(Protocol):
    """A reply's text as it comes: ids that no later piece can change."""

    def add(self, piece: str) -> list[int]: ...  # noqa: D102
    def close(self) -> list[int]: ...  # noqa: D102


@dataclass(frozen=True)
class Serving:
    """Everything the engine needs of the family."""

    device: SpeechDevice
    new_text: Callable[[], Text]
    voices: tuple[str, ...]
    languages: tuple[str, ...]  # ISO 639-1
    end_token: int
    end_code: int
    temperature: float = 0.9
    frames_per_token: int | None = None  # None: the model ends its speech itself


def serve(options: TalkerOptions, tell: Callable[[str], None]) -> Serving:
    """Load, prepare every voice, capture every size; blocks for a minute. Raises WeightsError, ConfigError."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model, new_text, role, temperature = _weights(options, device, dtype)
    told = {
        name: value for name, value in options.extra.items() if name in ("slots", "length", "fused_codec")
    }
    sizes = replace(Sizes(fused_codec=device.type == "cuda"), **told)
    serving = ready(model, _ops(device, options.extra), sizes, new_text, role, tell)
    paced = options.extra.get("frames_per_token")
    return replace(serving, temperature=temperature, frames_per_token=paced)


def ready(  # noqa: PLR0913, PLR0917
    model: Model,
    ops: Sequence[Ops],
    sizes: Sizes,
    new_text: Callable[[], Text],
    role: list[int],
    tell: Callable[[str], None],
) -> Serving:
    """A model as it serves; captures everything."""
    config = model.config.talker_config
    languages = tuple(code for code, name in ISO_639.items() if name in config.codec_language_id)
    device = SpeechDevice(model, ops, sizes)
    tell("voices")
    device.prepare_prefixes(role, tuple(config.spk_id), languages)
    device.capture(tell)
    return Serving(
        device,
        new_text,
        tuple(config.spk_id),
        languages,
        model.config.tts_eos_token_id,
        config.codec_eos_token_id,
    )


def _weights(
    options: TalkerOptions, device: torch.device, dtype: torch.dtype
) -> tuple[Model, Callable[[], Text], list[int], float]:
    if options.extra.get("random"):
        size = options.extra.get("size", "1.7b")
        if size not in SHAPES:
            raise ConfigError(f"talker.options.size is {size!r}; there are {', '.join(SHAPES)}")
        config, codec = SHAPES[size]
        with torch.inference_mode():
            made = exact_shape_random(device, dtype, config=config, codec=codec)
        return made, StandInText, _ROLE, 0.9
    from voice_agent.models.qwen3_tts.checkpoint import load
    from voice_agent.models.qwen3_tts.text import TextStream

    loaded = load(_folder(options.folder), device, dtype, dtype)
    tokenizer = loaded.tokenizer
    return loaded.model, lambda: TextStream(tokenizer), tokenizer.role, loaded.generation.temperature


def _folder(name: str) -> Path:
    """A checkpoint's folder: itself, or a hub's name's, fetched if it is not in the hub's own cache.

    Raises WeightsError that says what would be right.
    """
    folder = Path(name)
    if folder.is_dir():
        return folder
    right = "name the folder of a Qwen3-TTS checkpoint, or its name on a hub that this machine reaches"
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError as error:
        raise WeightsError(
            f"talker.model: there is no folder {name!r}: {right} (needs huggingface_hub)"
        ) from error
    try:
        return Path(snapshot_download(name))
    except (OSError, ValueError) as error:  # the hub's own errors and those of its names derive from these
        raise WeightsError(
            f"talker.model: {name!r} is no folder and cannot be fetched ({error}): {right}"
        ) from error


def _ops(device: torch.device, options: Mapping[str, Any]) -> Sequence[Ops]:
    """The sets of operations that every frame graph is tried with."""
    if device.type != "cuda":
        return (PlainOps(),)
    from voice_agent.models.qwen3_tts.triton_ops import TritonOps

    pdl = bool(options.get("pdl"))
    return TritonOps(pdl, dot_from=2), TritonOps(pdl, dot_from=5), TritonOps(pdl, cublas_from=2)
