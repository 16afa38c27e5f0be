"""What each model family takes in the `options` table of its section of the configuration.

Declared here alone: the configuration is checked against it before a library or a weight is loaded, the family's module
reads its values from it, `voice-agent config` and docs/options.md list it. Knows no family's meaning of a value. Fields
that the server fills in are no settings: a configuration that names one is refused.
"""

import typing
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, cast

import msgspec

from voice_agent.errors import ConfigError
from voice_agent.near_names import did_you_mean

T = TypeVar("T")


def option(doc: str, default: T) -> T:
    """An option with its meaning; lists and tables are copied for each reader."""
    if isinstance(default, list | dict):
        return field(default_factory=cast(Any, default).copy, metadata={"doc": doc})
    return field(default=default, metadata={"doc": doc})


def filled_in(default: T) -> T:
    """A value that comes with the options and from the server itself."""
    return field(default=default, metadata={})


@dataclass(frozen=True)
class WhisperOptions:
    """Recognizer, family whisper."""

    languages: list[str] = option("Primary tags that it may decide for; empty: all it knows.", list[str]())


@dataclass(frozen=True)
class EarScript:
    """Recognizer, family scripted."""

    text: str = option("What it hears in any sound.", "Hello there.")
    by_duration: list[tuple[float, str]] = option(
        "[longest ms, text], the first that is long enough before `text`.", list[tuple[float, str]]()
    )
    delay_ms: float = option("How long it takes.", 0.0)
    language: str = option("What it says it heard.", "en")
    languages: list[str] = option("What it says it knows.", ["en", "ko"])


@dataclass(frozen=True)
class LlamaOptions:
    """Thinker, family llama."""

    instructions: str = option("A system prompt that is read in advance.", "")
    poll: int = option("How eagerly idle threads spin, 0 to 100.", 50)
    gpu_layers: int = option("Layers on a GPU, where llama.cpp was built for one.", 0)
    round_weights: bool = option("Round a 4-bit file's other weights to 4 bits, once: faster on a CPU.", True)


@dataclass(frozen=True)
class VllmOptions:
    """Thinker, family vllm; empty and zero leave vLLM its own choice.

    hidden: "" or what a hidden row holds: "last" (the last layer's state), "last+embedding" (beside it the input's
    embedding), "layer:K" (the state after layer K, 0 the embedding). hidden_pool, hidden_via: the pool's address, and
    whether its blocks are in "device" memory or the "host"'s.
    """

    dtype: str = option("Type of the weights.", "auto")
    tensor_parallel_size: int = option(
        "GPUs that share each layer; with engine `devices` as many as those.", 1
    )
    quantization: str = option("How the weights are quantized.", "")
    max_num_seqs: int = option("Answers in one step; more wait.", 64)
    gpu_memory_utilization: float = option(
        "Part of the GPU's memory; with engine `devices` it is planned.", 0.0
    )
    kv_cache_bytes: int = option("Size of the KV cache; with engine `devices` it is planned.", 0)
    prefix_caching: bool = option("Keep what was read for the next turn.", True)
    load_format: str = option("'dummy' makes random weights.", "auto")
    enforce_eager: bool = option("No CUDA graphs.", False)
    ignore_eos: bool = option("For measuring: every answer has its full length.", False)
    engine_args: dict[str, Any] = option(
        "Anything else of vLLM's AsyncEngineArgs, by its name there.", dict[str, Any]()
    )
    hidden: str = filled_in("")
    hidden_pool: str = filled_in("")
    hidden_via: str = filled_in("device")


@dataclass(frozen=True)
class RemoteOptions:
    """Thinker, family remote: none."""


@dataclass(frozen=True)
class AnswerScript:
    """Thinker, family scripted: a piece is a word."""

    texts: list[str] = option(
        "What it writes, in turn by the number of user messages.", ["Hello, this is a test."]
    )
    first_ms: float = option("Time before the first piece.", 0.0)
    piece_ms: float = option("Time before each other.", 0.0)
    stall_after: int | None = option("Pieces after which nothing comes until it is stopped.", None)
    endless: bool = option("Begin the text again and again.", False)
    tool_call: dict[str, Any] | None = option(
        "{ name, arguments }: called when tools are offered and the last message is no tool's result.", None
    )


@dataclass(frozen=True)
class PiperOptions:
    """Talker, family piper."""

    keep_silence: bool = option("Do not cut the silence before the first sound (for measuring).", False)


@dataclass(frozen=True)
class KokoroOptions:
    """Talker, family kokoro."""

    keep_silence: bool = option("Do not cut the silence before the first sound (for measuring).", False)


@dataclass(frozen=True)
class Qwen3TtsOptions:
    """Talker, family qwen3-tts; None leaves the family its own choice."""

    instructions: str = option("How replies are spoken that say nothing of it.", "")
    slots: int | None = option("Replies laid out at start.", None)
    length: int | None = option("Rows of text and frames that a slot holds.", None)
    fused_codec: bool | None = option("Triton kernels in the codec, after a trial; false: none.", None)
    pdl: bool = option("Kernels that begin before the last one ends.", False)
    random: bool = option("Random weights, no files: for measuring.", False)
    size: str = option("Of random weights: 1.7b, 0.6b or tiny.", "1.7b")
    frames_per_token: int | None = option("How long a voice that never ends speaks, as random ones do.", None)
    clones: dict[str, Any] = field(default_factory=dict[str, Any], metadata={})


@dataclass(frozen=True)
class VoiceScript:
    """Talker, family scripted: a tone for each word."""

    encode_ms: float = option("How long it takes for a clause.", 0.0)
    frame_ms: float = option("How long the VoiceBox takes for a frame.", 0.0)
    fails_on: str = option("A clause with this text in it fails.", "")
    hidden: str = option("Read these hidden rows of a vLLM Thinker: last, last+embedding or layer:K.", "")
    hidden_pool: str = filled_in("")
    hidden_via: Literal["host", "device"] = filled_in("host")


OPTIONS: dict[tuple[str, str], type] = {  # by section and family
    ("recognizer", "whisper"): WhisperOptions,
    ("recognizer", "scripted"): EarScript,
    ("thinker", "llama"): LlamaOptions,
    ("thinker", "vllm"): VllmOptions,
    ("thinker", "remote"): RemoteOptions,
    ("thinker", "scripted"): AnswerScript,
    ("talker", "piper"): PiperOptions,
    ("talker", "kokoro"): KokoroOptions,
    ("talker", "qwen3-tts"): Qwen3TtsOptions,
    ("talker", "scripted"): VoiceScript,
}


def names_of(section: str, family: str) -> list[str]:
    """What may be set for a family, in order."""
    return [item.name for item in fields(OPTIONS[section, family]) if "doc" in item.metadata]


def check_options(section: str, family: str, table: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option that the family does not have, or of another type, naming it."""
    for name in table:
        _check_name(section, family, name, names_of(section, family))
    read_options(OPTIONS[section, family], table)


def read_options(kind: type[T], table: Mapping[str, Any]) -> T:
    """A family's options from its table, the server's values among them; ConfigError as check_options."""
    section, family = next(key for key, options in OPTIONS.items() if options is kind)
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, value in table.items():
        _check_name(section, family, name, hints)
        try:
            values[name] = msgspec.convert(value, hints[name])
        except msgspec.ValidationError as error:
            raise ConfigError(f"{section}.options.{name}: {error}") from error
    return kind(**values)


def _check_name(section: str, family: str, name: str, known: Container[str]) -> None:
    if name in known:
        return
    named = names_of(section, family)
    there = f"known are {', '.join(named)}" if named else "it takes none"
    meant = did_you_mean(name, named)
    raise ConfigError(f"{section}.options.{name}: no such option of {family}; {there}{meant}")
