"""Which engine processes a configuration needs, and their life together.

Recognizer and Thinker share one process, Talker and VoiceBox another; a Thinker behind a URL leaves the first with the
recognizer alone. Both start at once and are ready after their warm-up.
"""

import asyncio
import importlib.util
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from voice_agent.clock import Clock
from voice_agent.config import Config
from voice_agent.engine.admission import Admission, AdmissionLimits, AdmittedEngine
from voice_agent.engine.client import EngineClient
from voice_agent.engine.failures import not_installed
from voice_agent.engine.messages import primary_tag
from voice_agent.engine.runtime import (
    EngineLimits,
    EngineSpec,
    RecognizerOptions,
    TalkerOptions,
    ThinkerOptions,
)
from voice_agent.engine.supervisor import EngineProcess, Lasting
from voice_agent.errors import ConfigError, EngineError, RemoteProtocolError
from voice_agent.hidden_rows import hidden_pool
from voice_agent.models.catalog import MODELS
from voice_agent.models.pinned import Role
from voice_agent.models.store import Store, check_folder, check_hugging_face
from voice_agent.places import Ability, Needed
from voice_agent.placing import place
from voice_agent.speech.cascade import Cascade
from voice_agent.speech.stopping import StopAware
from voice_agent.speech.thinker import EngineThinker, RemoteThinker, Thinker
from voice_agent.speech.watermark import PassThrough

VLLM_START_S = 900.0  # weights from a cold disk, compilation, graphs
GRAPHS_START_S = 300.0  # weights, kernels compiled for the first time, some 120 graphs
GPU_MODULES = {"vllm": "vllm", "qwen3-tts": "torch"}  # which the extra `gpu` brings, by family
TALKERS = {"piper-joe": "piper", "kokoro-82m": "kokoro"}  # the pinned ones' families
THINKER_NICE = 8  # an LLM takes every core there is: media, words and first sound go before it


@dataclass(frozen=True)
class Engines:
    """What all sessions share."""

    thinker_process: EngineProcess
    speech_process: EngineProcess
    thinker: Thinker
    talker: EngineClient  # the speech engine behind its admission

    def reasons(self) -> list[str]:
        """Why not ready, in callers' words; empty when ready."""
        return [
            notice for process in (self.thinker_process, self.speech_process) if (notice := process.notice())
        ]

    @property
    def lasting(self) -> Lasting:
        """Whether an engine is down until an operator acts; empty if not."""
        lasting: set[Lasting] = {self.thinker_process.lasting, self.speech_process.lasting}
        if "failed" in lasting:
            return "failed"
        return "stopped" if "stopped" in lasting else ""

    @property
    def needed(self) -> dict[Ability, Needed]:
        """Which process must be up for what; none for a Thinker behind a URL."""
        needed: dict[Ability, Needed] = {"hear": self.thinker_process, "speak": self.speech_process}
        if not isinstance(self.thinker, RemoteThinker):
            needed["think"] = self.thinker_process
        return needed

    def voices(self, first: str) -> tuple[str, ...]:
        """The voices there are, the configured one first; none before the engine was ready once."""
        named = tuple(self.speech_process.describe.get("voices", ()))
        return (first, *(name for name in named if name != first)) if first and named else named

    @property
    def languages(self) -> tuple[str, ...]:
        """What the voice can speak, once ready."""
        return tuple(self.speech_process.describe.get("languages", ()))

    def hearing(self, language: str, param: str) -> str:
        """See heard_language; any will do before the recognizer was ready once."""
        return heard_language(language, self.thinker_process.describe.get("hears", ()), param)

    @property
    def instructed(self) -> tuple[str, ...]:
        """The voices that follow instructions, once ready."""
        return tuple(self.speech_process.describe.get("instructed", ()))

    @property
    def forced_lengths(self) -> bool:
        """Whether the voice is of random weights, which end no reply by themselves."""
        return bool(self.speech_process.describe.get("forced_lengths"))

    @property
    def by_word(self) -> bool:
        """Whether the voice takes text as it comes: it speaks while later words are still being written."""
        return bool(self.speech_process.describe.get("by_word"))


def heard_language(language: str, known: Sequence[str], param: str) -> str:
    """A language that the recognizer hears; raises RemoteProtocolError about the parameter if it does not.

    `known` are primary tags (en, ko); none means that it takes any.
    """
    if known and primary_tag(language) not in known:
        message = f"The language '{language[:64]}' is not heard here; this server hears {', '.join(known)}."
        raise RemoteProtocolError("invalid_value", message, param)
    return language


def cascade_of(engines: Engines, config: Config, clock: Clock) -> Cascade:
    """Thinker and Talker as one stage: behind the speech engine's admission, and ended by stop sequences."""
    return Cascade(
        StopAware(engines.thinker),
        engines.talker,
        PassThrough,
        clock,
        lambda: engines.languages,
        config.thinker.stall_s,
        lambda: engines.by_word,
    )


def default_cache(config: Config) -> Path:
    """The weights' folder: configured, VOICE_AGENT_CACHE, or the user's cache."""
    named = config.models.cache or os.environ.get("VOICE_AGENT_CACHE", "")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "voice-agent"


def store_of(config: Config) -> Store:
    """The store this configuration reads weights from."""
    overrides = {name: Path(folder) for name, folder in config.models.files.items()}
    return Store(default_cache(config), offline=config.models.offline, overrides=overrides)


def model_names(config: Config) -> list[str]:
    """Names of the pinned models that the configuration needs, ears included; ConfigError for a misplaced one."""
    _check_roles(config)
    chosen = [
        config.recognizer.model if config.recognizer.family != "scripted" else "",
        config.thinker.model if config.thinker.family not in {"scripted", "remote", "vllm"} else "",
        config.talker.model if config.talker.family not in {"scripted", "qwen3-tts"} else "",
    ]
    return ["silero-vad", "smart-turn", *(name for name in chosen if name and not _is_path(name))]


def _check_roles(config: Config) -> None:
    """A pinned model stands in its own section, with its own family, and hears the language that is asked for."""
    for section, role in (("recognizer", "recognizer"), ("thinker", "thinker"), ("talker", "talker")):
        chosen = getattr(config, section)
        model = MODELS.get(chosen.model)
        if model is None or chosen.family in {"scripted", "remote", "vllm", "qwen3-tts"}:
            continue
        if model.role != role:
            fitting = ", ".join(name for name, one in MODELS.items() if one.role == role)
            raise ConfigError(
                f"{section}.model: {model.name!r} is a model for {model.role}, not for {role}; there are {fitting}"
            )
        family = TALKERS.get(model.name, chosen.family)
        if chosen.family != family:
            raise ConfigError(
                f"{section}.family: {model.name!r} is of family {family!r}, not {chosen.family!r}"
            )
    recognizer = config.recognizer
    ears, tag = MODELS.get(recognizer.model), primary_tag(recognizer.language)
    if recognizer.family == "whisper" and ears and ears.languages == ("en",) and tag not in {"", "en"}:
        raise ConfigError(
            f"recognizer.language: {ears.name} hears English only, not {tag!r}; whisper-base hears other languages"
        )


def folder_of(store: Store, name: str, role: Role) -> str:
    """The folder of a named or own model, checked. Raises WeightsError, ConfigError for an unknown name."""
    if not name:
        return ""
    if _is_path(name):
        return str(check_folder(Path(name).expanduser(), role))
    if name not in MODELS:
        raise ConfigError(f"{role}.model: {name!r} is neither a folder nor one of {', '.join(MODELS)}")
    return str(store.folder_of(name))


def thinker_spec(config: Config, store: Store) -> EngineSpec:
    """The process of recognizer and Thinker."""
    recognizer, thinker = config.recognizer, config.thinker
    threads = thinker.threads or os.cpu_count() or 2
    options = ThinkerOptions(
        thinker.family,
        _thinker_folder(config, store),
        threads,
        thinker.context_tokens,
        thinker.options,
    )
    return EngineSpec(
        kind="thinker",
        recognizer=RecognizerOptions(
            recognizer.family,
            folder_of(store, recognizer.model, "recognizer"),
            recognizer.threads,
            recognizer.language or None,
            recognizer.options,
            recognizer.lanes,
        ),
        thinker=None if thinker.family == "remote" else options,
        warm_up_text=config.session.instructions,
        nice=0 if thinker.family == "vllm" else THINKER_NICE,
        has_children=thinker.family == "vllm",
        env=_environment(recognizer.threads, store),
        limits=EngineLimits(start_s=VLLM_START_S) if thinker.family == "vllm" else EngineLimits(),
    )


def _thinker_folder(config: Config, store: Store) -> str:
    """Where the Thinker's weights lie; vLLM finds a Hugging Face name itself."""
    thinker = config.thinker
    if thinker.family == "vllm":
        path = Path(thinker.model).expanduser()
        if (
            path.is_absolute() or thinker.model.startswith(".") or path.exists()
        ):  # what is left is a hub's name
            check_hugging_face(path, weights=thinker.options.get("load_format") != "dummy")
        return str(path)
    return folder_of(store, thinker.model, "thinker") if thinker.family == "llama" else ""


def _talker_folder(config: Config, store: Store) -> str:
    """Where the Talker's weights lie; Qwen3-TTS checks its own folder, and needs none for random weights."""
    talker = config.talker
    if talker.family == "qwen3-tts":
        return str(Path(talker.model).expanduser())
    return folder_of(store, talker.model, "talker")


def _environment(threads: int, store: Store) -> dict[str, str]:
    """How many threads a library takes, and where a model keeps what it makes of weights in a folder of others."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",
        "VOICE_AGENT_CACHE": str(store.folder.absolute()),
    }


def speech_spec(config: Config, store: Store) -> EngineSpec:
    """The process of Talker and VoiceBox."""
    talker = config.talker
    return EngineSpec(
        kind="speech",
        talker=TalkerOptions(
            talker.family,
            _talker_folder(config, store),
            talker.voice,
            talker.threads,
            talker.options | ({"clones": talker.clones} if talker.clones else {}),
        ),
        warm_up_text="Hello, how can I help you today?",
        env=_environment(talker.threads, store),
        limits=EngineLimits(start_s=GRAPHS_START_S) if talker.family == "qwen3-tts" else EngineLimits(),
    )


@asynccontextmanager
async def running_engines(
    config: Config, store: Store, clock: Clock, tell: Callable[[str], None]
) -> AsyncGenerator[Engines]:
    """Start both engines; yields before they are ready (see Engines.reasons), ends them on exit."""
    async with AsyncExitStack() as stack:
        pool = await asyncio.to_thread(hidden_pool, config, tell)  # it may try CUDA IPC, for seconds
        if pool:
            stack.callback(pool.close)
        placing = place(config, _weights(config, store), tell, pool_bytes=pool.device_bytes if pool else 0)
        stack.callback(placing.close)
        thinker_process, speech_process = (
            EngineProcess(
                name,
                placing.applied(name, pool.applied(spec) if pool else spec),
                clock,
                on_loading=lambda stage: tell(f"loading {stage}"),
                warm_spare=engine.warm_spare,
            )
            for name, spec, engine in (
                ("thinker", thinker_spec(config, store), config.engines.thinker),
                ("speech", speech_spec(config, store), config.engines.speech),
            )
        )
        for process in (thinker_process, speech_process):
            stack.push_async_callback(process.close)
        thinker: Thinker = EngineThinker(thinker_process, "reply" if pool else "")
        if config.thinker.family == "remote":
            thinker = await stack.enter_async_context(_remote(config, clock))
        talker = config.talker
        limits = AdmissionLimits(
            placing.jobs("speech", talker.max_jobs), talker.queued_jobs, talker.job_wait_s
        )
        admitted = AdmittedEngine(speech_process, Admission(limits, clock))
        yield Engines(thinker_process, speech_process, thinker, admitted)


def _check_modules(config: Config) -> None:
    """Raise ConfigError when a family's library is not installed, before a process is started to find that out."""
    for section, family in (("thinker", config.thinker.family), ("talker", config.talker.family)):
        module = GPU_MODULES.get(family)
        if module and importlib.util.find_spec(module) is None:
            raise ConfigError(f"{section}.family: for {family!r} {not_installed(module)}")


async def thinker_warning(engines: Engines) -> str:
    """What is wrong with a Thinker behind a URL, for the person who started the server; empty if nothing is."""
    return await engines.thinker.probe() if isinstance(engines.thinker, RemoteThinker) else ""


async def start_engines(engines: Engines, config: Config) -> None:
    """Wait until both are warm. Raises EngineStartFailed with what to do, ConfigError for an unknown voice."""
    _check_modules(config)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(engines.thinker_process.start())
            group.create_task(engines.speech_process.start())
    except* EngineError as failures:
        raise failures.exceptions[0] from None
    voices = engines.voices("")
    if config.talker.voice and config.talker.voice not in voices:
        raise ConfigError(f"talker.voice: {config.talker.voice!r} is none of {', '.join(voices)}")


def _weights(config: Config, store: Store) -> dict[str, str]:
    """Where each placed engine's weights lie, as far as they are folders here."""
    folders = dict[str, str]()
    if config.engines.thinker.devices:
        folders["thinker"] = _thinker_folder(config, store)
    if config.engines.speech.devices and config.talker.model:
        folders["speech"] = _talker_folder(config, store)
    return {name: folder for name, folder in folders.items() if folder and Path(folder).is_dir()}


def _remote(config: Config, clock: Clock) -> RemoteThinker:
    thinker = config.thinker
    return RemoteThinker(thinker.url, thinker.model, thinker.api_key, clock, thinker.stall_s, thinker.stall_s)


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.startswith((".", "~"))
