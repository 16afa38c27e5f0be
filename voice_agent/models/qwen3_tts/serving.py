"""A checkpoint made ready to serve: device, weights, graphs, tokenizer. What the speech engine loads.

On a machine without a GPU everything runs eagerly in float32, for tests.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch
from msgspec import structs

from voice_agent.engine.runtime import TalkerOptions
from voice_agent.errors import ConfigError, WeightsError
from voice_agent.family_options import Qwen3TtsOptions, read_options
from voice_agent.models.qwen3_tts.clips import VoiceClip, read_clips
from voice_agent.models.qwen3_tts.cloning import build_cloning
from voice_agent.models.qwen3_tts.config import (
    LARGE,
    SMALL,
    CodecConfig,
    DecoderConfig,
    EncoderConfig,
    ModelConfig,
    PredictorConfig,
    SpeakerConfig,
    TalkerConfig,
)
from voice_agent.models.qwen3_tts.device import Sizes, SpeechDevice
from voice_agent.models.qwen3_tts.frame_parts import Ops
from voice_agent.models.qwen3_tts.model import Model, exact_shape_random
from voice_agent.models.qwen3_tts.plain_ops import PlainOps
from voice_agent.models.qwen3_tts.prompt import ISO_639, Clone, Manner
from voice_agent.models.qwen3_tts.stand_in import StandInText
from voice_agent.models.qwen3_tts.weights import random_weights

TINY = (
    ModelConfig(
        TalkerConfig(
            64, 128, 2, 4, 2, 16, text_hidden_size=16, code_predictor_config=PredictorConfig(32, 64, 1, 4, 2, 8)
        )
    ),
    CodecConfig(
        DecoderConfig(codebook_dim=16, latent_dim=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                      num_attention_heads=2, num_key_value_heads=2, head_dim=8, decoder_dim=48),
        EncoderConfig(hidden_size=16, num_filters=4, codebook_dim=8, vector_quantization_hidden_dimension=8,
                      num_hidden_layers=1, intermediate_size=24, num_attention_heads=2, num_key_value_heads=2),
    ),
)  # fmt: skip
SHAPES = {"1.7b": (LARGE, CodecConfig()), "0.6b": (SMALL, CodecConfig()), "tiny": TINY}  # of random weights
SIZES = Sizes()
_ROLE = [151_644, 77_091, 198]  # "<|im_start|>assistant\n" of the published vocabulary


class Text(Protocol):
    """A reply's text as it comes: ids that no later piece can change."""

    def add(self, piece: str) -> list[int]: ...  # noqa: D102
    def close(self) -> list[int]: ...  # noqa: D102


@dataclass(frozen=True)
class Told:
    """What of a checkpoint is about text: its tokenizer's work, and how it is meant to be sampled."""

    new_text: Callable[[], Text]
    role: list[int]  # tokens of "<|im_start|>assistant\n"
    ids: Callable[[str], list[int]]  # of a whole text
    instruction: Callable[[str], list[int]]  # of a user turn
    temperature: float = 0.9


@dataclass(frozen=True)
class Serving:
    """Everything the engine needs of the family."""

    device: SpeechDevice
    told: Told
    voices: tuple[str, ...]
    languages: tuple[str, ...]  # ISO 639-1
    end_token: int
    end_code: int
    instructions: str = ""  # where a reply has none
    random: bool = False  # no reply ends by itself: lengths may be forced
    frames_per_token: int | None = None  # None: the model ends its speech itself

    @property
    def new_text(self) -> Callable[[], Text]:
        """A new reply's text."""
        return self.told.new_text

    @property
    def instructed(self) -> tuple[str, ...]:
        """Voices that follow instructions."""
        return self.device.openings.instructed

    def instruction(self, text: str) -> list[int]:
        """Token ids of an instruction, the configured one where there is none."""
        return self.told.instruction(text or self.instructions)


def serve(options: TalkerOptions, tell: Callable[[str], None], sizes: Sizes = SIZES) -> Serving:
    """Load, prepare every voice, capture every size; blocks for a minute. Raises WeightsError, ConfigError."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    chosen = read_options(Qwen3TtsOptions, options.extra)
    clips = read_clips(chosen.clones)
    model, told = _weights(options.folder, chosen, device, dtype)
    clones = _clones(model, clips, told.ids)
    sizes = replace(
        sizes,
        slots=sizes.slots if chosen.slots is None else chosen.slots,
        length=sizes.length if chosen.length is None else chosen.length,
        fused_codec=device.type == "cuda" if chosen.fused_codec is None else chosen.fused_codec,
    )
    serving = ready(replace(model, cloning=None), _ops(device, pdl=chosen.pdl), sizes, told, tell, clones)
    return replace(
        serving,
        instructions=chosen.instructions,
        random=chosen.random,
        frames_per_token=chosen.frames_per_token,
    )


def ready(  # noqa: PLR0913, PLR0917
    model: Model,
    ops: Sequence[Ops],
    sizes: Sizes,
    told: Told,
    tell: Callable[[str], None],
    clones: Mapping[str, Clone] | None = None,
) -> Serving:
    """A model as it serves; captures everything. Raises ConfigError where a clone has the name of a preset voice."""
    config = model.config.talker_config
    languages = tuple(code for code, name in ISO_639.items() if name in config.codec_language_id)
    manners = {name: Manner(name) for name in config.spk_id}
    for name, clone in (clones or {}).items():
        if name in manners:
            raise ConfigError(f"talker.clones.{name}: the model has a voice of this name; choose another")
        manners[name] = Manner(clone=clone)
    device = SpeechDevice(model, ops, sizes, told.role)
    tell("voices")
    device.prepare_voices(manners, languages)
    device.capture(tell)
    return Serving(
        device,
        told,
        tuple(manners),
        languages,
        model.config.tts_eos_token_id,
        config.codec_eos_token_id,
    )


def _clones(
    model: Model, clips: Mapping[str, VoiceClip], ids: Callable[[str], list[int]]
) -> dict[str, Clone]:
    if not clips:
        return {}
    if model.cloning is None:
        kind = model.config.tts_model_type
        raise ConfigError(f"talker.clones: only a Base model clones voices, this one is {kind}")
    device = model.talker.norm.device
    cloned = {
        name: model.cloning.clone(clip.samples.to(device), ids(clip.text)) for name, clip in clips.items()
    }
    return cloned


def _weights(
    folder: str, chosen: Qwen3TtsOptions, device: torch.device, dtype: torch.dtype
) -> tuple[Model, Told]:
    if chosen.random:
        if chosen.size not in SHAPES:
            raise ConfigError(f"talker.options.size is {chosen.size!r}; there are {', '.join(SHAPES)}")
        made = _random(*SHAPES[chosen.size], device, dtype, clones=bool(chosen.clones))
        ids = StandInText().add
        return made, Told(StandInText, _ROLE, ids, lambda text: [*_ROLE, *ids(text)] if text.strip() else [])
    from voice_agent.models.qwen3_tts.checkpoint import load
    from voice_agent.models.qwen3_tts.text import TextStream

    loaded = load(_folder(folder), device, dtype, dtype)
    tokenizer = loaded.tokenizer
    told = Told(
        lambda: TextStream(tokenizer),
        tokenizer.role,
        tokenizer.ids,
        tokenizer.instruction,
        loaded.generation.temperature,
    )
    return loaded.model, told


@torch.inference_mode()
def _random(
    config: ModelConfig, codec: CodecConfig, device: torch.device, dtype: torch.dtype, *, clones: bool
) -> Model:
    """A random model of a shape; one that clones has the preset voices too, which no published one has."""
    made = exact_shape_random(device, dtype, config=config, codec=codec)
    if not clones:
        return made
    speaker = SpeakerConfig(enc_dim=config.talker_config.hidden_size)
    source, config = (
        random_weights(1, device, torch.float32),
        structs.replace(config, speaker_encoder_config=speaker),
    )
    return replace(made, cloning=build_cloning(source, source, config, codec))


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


def _ops(device: torch.device, *, pdl: bool) -> Sequence[Ops]:
    """The sets of operations that every frame graph is tried with."""
    if device.type != "cuda":
        return (PlainOps(),)
    from voice_agent.models.qwen3_tts.triton_ops import TritonOps

    return TritonOps(pdl, dot_from=2), TritonOps(pdl, dot_from=5), TritonOps(pdl, cublas_from=2)
