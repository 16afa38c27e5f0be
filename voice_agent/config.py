"""The configuration: defaults of a profile, then one TOML file, then VOICE_AGENT_* variables, then flags.

Nothing else reads the environment. Every field is documented where it stands; `voice-agent config` prints them all
with their values. Unknown keys are refused with the nearest right one. Values are checked here and nowhere else.
"""

import ipaddress
import os
import re
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast
from urllib.parse import urlsplit

from voice_agent.errors import ConfigError
from voice_agent.family_options import check_options, names_of
from voice_agent.near_names import did_you_mean, did_you_mean_or_known

T = TypeVar("T")


def setting(doc: str, default: T) -> T:
    """A documented field with a default (mutable defaults are tuples here, so none is shared)."""
    return field(default=default, metadata={"doc": doc})


def table(doc: str) -> Any:
    """A documented field that holds a table, empty by default."""
    return field(default_factory=dict, metadata={"doc": doc})


@dataclass(frozen=True)
class ServerConfig:
    """Where the server listens and who may come in."""

    host: str = setting("Address to listen on. Anything but a loopback address needs api_keys.", "127.0.0.1")
    port: int = setting("TCP port of page and API.", 8000)
    served_model_name: str = setting("The model name clients see and send.", "voice-agent")
    api_keys: tuple[str, ...] = setting(
        "Bearer keys that are accepted, or their digests ('sha256:' and 64 hex digits). Empty: any, on loopback only.",
        (),
    )
    operator_keys: tuple[str, ...] = setting(
        "Bearer keys for /operator/ (restart or stop an engine). Empty: only without api_keys, from this machine.",
        (),
    )
    allowed_origins: tuple[str, ...] = setting("Web origins besides our own whose pages may call us.", ())
    tls_cert: str = setting("PEM certificate chain; with tls_key the server speaks HTTPS.", "")
    tls_key: str = setting("PEM private key for tls_cert.", "")
    workers: int = setting("Server processes. One: each would load every model.", 1)
    max_requests: int = setting(
        "Chat completions, speeches and transcriptions in hand at once; more get 503 with Retry-After.", 16
    )
    drain_s: float = setting(
        "How long a stop waits for running calls and requests before it ends them.", 15.0
    )


@dataclass(frozen=True)
class SessionConfig:
    """What a conversation is like."""

    max_sessions: int = setting(
        "Calls at once; more get 503 with Retry-After. Two is what two cores carry.", 2
    )
    instructions: str = setting(
        "System prompt.",
        "You are a friendly voice assistant. You are talking, not writing: answer in one or two short sentences, "
        "without lists, headings or emoji.",
    )
    greeting: str = setting("Said when a call connects; empty for none.", "")
    connect_timeout_s: float = setting("A peer that has not connected by then gives its seat back.", 15.0)
    silent_timeout_s: float = setting("A call in which nothing was said or done for so long is ended.", 600.0)
    max_session_s: float = setting("No call is longer than this.", 3600.0)
    resume_s: float = setting(
        "How long a client that lost its WebSocket may come back to its call, if it opened it with ?resumable=true.",
        30.0,
    )


@dataclass(frozen=True)
class RecognizerConfig:
    """Speech to text."""

    family: str = setting("Model family: whisper or scripted.", "whisper")
    model: str = setting(
        "A name that `voice-agent models` lists, or a folder. whisper-base hears other languages, in twice the time.",
        "whisper-tiny.en",
    )
    language: str = setting("Primary language tag (en, ko); empty lets the model decide.", "")
    threads: int = setting("CPU threads of an utterance.", 2)
    lanes: int = setting(
        "Utterances recognized at once, each on `threads`; for many callers on many cores.", 1
    )
    options: dict[str, Any] = table("Further options of the family.")


@dataclass(frozen=True)
class ThinkerConfig:
    """The LLM."""

    family: str = setting(
        "Model family: llama, vllm (any Hugging Face folder or name), remote (an OpenAI-compatible url) or scripted.",
        "llama",
    )
    model: str = setting(
        "A name that `voice-agent models` lists, a folder, or the remote model's name.", "qwen2.5-coder-0.5b"
    )
    url: str = setting(
        "Base URL of an OpenAI-compatible server (http://host:port/v1); sets family to remote.", ""
    )
    api_key: str = setting("Key for url.", "")
    threads: int = setting("CPU threads that read the prompt; half of them write. 0 takes every core.", 0)
    context_tokens: int = setting("Longest context; older turns are cut whole.", 4096)
    max_output_tokens: int = setting("Longest answer.", 512)
    temperature: float = setting("0 is greedy.", 0.0)
    sees: bool = setting(
        "Whether it takes images (image_url parts); of a remote one you have to say so.", False
    )
    hears: bool = setting(
        "Whether it takes sound (input_audio parts); else the recognizer writes it down.", False
    )
    stall_s: float = setting("A Thinker that gives nothing for so long is given up.", 20.0)
    options: dict[str, Any] = table("Further options of the family.")


@dataclass(frozen=True)
class TalkerConfig:
    """Text to speech: Talker and VoiceBox."""

    family: str = setting(
        "Model family: piper, kokoro, qwen3-tts (GPU) or scripted (a tone for each word).", "piper"
    )
    model: str = setting("A name that `voice-agent models` lists, or a folder.", "piper-joe")
    voice: str = setting("Voice within the model; empty takes its first.", "")
    threads: int = setting("CPU threads.", 1)
    max_jobs: int = setting("Replies rendered at once; the rest wait in order, then get 'busy'.", 32)
    queued_jobs: int = setting("Replies that may wait to be rendered.", 64)
    job_wait_s: float = setting("How long each may wait.", 5.0)
    aliases: dict[str, Any] = table(
        "More names for voices: alias to voice ('' is the default, which OpenAI's names and preset_spk_1 mean)."
    )
    clones: dict[str, Any] = table(
        "Cloned voices (Qwen3-TTS Base): name to { file = 'clip.wav', text = 'what is said in it' }; without the text "
        "only the voice's colour is taken."
    )
    latency_first: bool = setting("Smallest chunks first (true) or whole sentences with full context.", True)
    options: dict[str, Any] = table("Further options of the family.")


@dataclass(frozen=True)
class EngineConfig:
    """One engine process: where it runs, and what it takes of its GPUs (figures as measured for the model)."""

    devices: tuple[int, ...] = setting("GPUs, counted as nvidia-smi does. Empty: the CPU.", ())
    warm_spare: bool = setting(
        "Keep a second process ready: it serves at once if the first one dies. Takes its memory twice. Not for vllm.",
        False,
    )
    weights_gb: float = setting("GPU memory of the weights; 0 takes the size of their files.", 0.0)
    work_gb: float = setting("GPU memory of CUDA context, graphs and working memory, on each GPU.", 3.0)
    cache_gb: float = setting("Least KV cache on each GPU; it takes whatever is left.", 4.0)
    job_gb: float = setting("GPU memory of one reply in the VoiceBox.", 0.05)


@dataclass(frozen=True)
class EnginesConfig:
    """The engine processes."""

    thinker: EngineConfig = field(default_factory=EngineConfig)
    speech: EngineConfig = field(default_factory=EngineConfig)


@dataclass(frozen=True)
class TurnConfig:
    """When the user's turn ends, and what counts as an interruption. Times in ms of microphone sound."""

    mode: Literal["semantic", "server", "none"] = setting(
        "semantic: silence and the end-of-turn model; server: silence alone; none: push to talk.", "semantic"
    )
    start_threshold: float = setting("Silero probability at which speech begins.", 0.5)
    end_threshold: float = setting(
        "Probability below which it ends; lower, so that it does not flutter.", 0.35
    )
    start_ms: int = setting("Speech shorter than this begins no turn; two windows reject clicks.", 64)
    prefix_ms: int = setting(
        "Sound before the onset that belongs to the turn, so that no first syllable is lost.", 400
    )
    pause_ms: int = setting("Silence after which a pause is judged; recognition starts here, ahead.", 64)
    server_silence_ms: int = setting("Silence that ends the turn in mode server.", 500)
    end_probability: float = setting("End-of-turn probability from which the turn is over.", 0.5)
    sure_ms: int = setting(
        "Silence that ends a turn the model calls finished, once its words are known. The answer is thought ahead "
        "meanwhile, so a shorter one gains nothing and interrupts slow speakers.",
        320,
    )
    asked_ms: int = setting(
        "Silence that ends a turn whose words are a whole question, though the model calls it unfinished.",
        640,
    )
    unsure_ms: int = setting("Silence that ends a turn the model calls unfinished.", 1000)
    open_ms: int = setting(
        "Silence that ends a turn whose words are open (a number, a spelling, 'and').", 1600
    )
    longest_ms: int = setting("A turn is cut here: the recognizer hears 30 s at once.", 28_000)
    hold_ms: int = setting("Speech over a reply after which the playout is held.", 150)
    surely_speech_ms: int = setting("Speech over a reply that is no backchannel any more.", 700)
    surely_not_listening_ms: int = setting(
        "The same for speech that begins like a sound of listening ('oh, I see' takes a second), or of which no word "
        "is known.",
        1050,
    )
    longest_backchannel_ms: int = setting(
        "Speech over a reply, already over, that without words known counts as a sound of listening.", 450
    )
    aside_db: float = setting(
        "Speech over a reply so much quieter than the user usually is, is somebody else's talk in the room. Talk at "
        "-12 dB measures as -8, since only its louder half counts as voice; interruptions measured -3 and more.",
        7.5,
    )
    settle_ms: int = setting(
        "Silence after a sound of listening before the reply goes on; 'okay, please stop' begins like one.",
        400,
    )
    verdict_ms: int = setting("Time from hold to verdict; longer only for speech without a known word.", 600)
    words_ms: int = setting(
        "Longest time from hold to verdict when the user is silent again but the words are not known yet.",
        900,
    )
    cancel_echo: bool = setting(
        "Take the reply's own sound out of the microphone: not every client does, and none at once.", True
    )
    read_ahead_ms: int = setting(
        "Speech after which, and each time again, the words so far go into the LLM's cache, so that less is left to "
        "read at the end of the turn; 0: never. Only for LLMs in our own process, which read slowly.",
        900,
    )
    min_reply_delay_ms: int = setting(
        "Floor for how soon a reply may start; some find under 200 ms uncanny.", 0
    )


@dataclass(frozen=True)
class IceServer:
    """One STUN or TURN server, as RTCPeerConnection takes it."""

    urls: tuple[str, ...] = setting("stun: or turn: URLs.", ())
    username: str = setting("User name for TURN.", "")
    credential: str = setting("Password for TURN.", "")


@dataclass(frozen=True)
class IceConfig:
    """How peers find a way to each other."""

    servers: tuple[IceServer, ...] = setting("STUN and TURN servers that server and clients use.", ())
    turn_secret: str = setting("Shared secret for TURN credentials that expire (coturn's REST form).", "")


@dataclass(frozen=True)
class ModelsConfig:
    """Where weights are kept and come from."""

    cache: str = setting("Folder for weights; empty takes VOICE_AGENT_CACHE or ~/.cache/voice-agent.", "")
    offline: bool = setting("Never fetch anything.", False)
    files: dict[str, str] = table("Your own copies: model name to folder.")


@dataclass(frozen=True)
class Config:
    """Everything; `profile` chooses the defaults of the model sections."""

    profile: Literal["cpu", "cpu-small", "gpu-cascade", "scripted"] = setting(
        "cpu, cpu-small (240 MB, for CI), gpu-cascade (vLLM and Qwen3-TTS on one GPU) or scripted (no models).",
        "cpu",
    )
    server: ServerConfig = field(default_factory=ServerConfig)
    session: SessionConfig = field(default_factory=SessionConfig)
    recognizer: RecognizerConfig = field(default_factory=RecognizerConfig)
    thinker: ThinkerConfig = field(default_factory=ThinkerConfig)
    talker: TalkerConfig = field(default_factory=TalkerConfig)
    engines: EnginesConfig = field(default_factory=EnginesConfig)
    turn: TurnConfig = field(default_factory=TurnConfig)
    ice: IceConfig = field(default_factory=IceConfig)
    models: ModelsConfig = field(default_factory=ModelsConfig)


PROFILES: dict[str, dict[str, dict[str, Any]]] = {
    "cpu": {},
    "cpu-small": {"thinker": {"model": "smollm2-135m"}},
    "gpu-cascade": {
        "session": {"max_sessions": 64},
        "recognizer": {"lanes": 4},
        "thinker": {"family": "vllm", "model": "Qwen/Qwen3-8B", "context_tokens": 8192},
        "talker": {
            "family": "qwen3-tts",
            "model": "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice",
            "max_jobs": 96,
        },
        # one card for both; figures for these two models on an H200, 128 slots of the Talker's laid out at start
        "engines": {
            "thinker": {"devices": [0], "work_gb": 6.0, "cache_gb": 8.0},
            "speech": {"devices": [0], "work_gb": 28.0, "job_gb": 0.0},
        },
    },
    "scripted": {
        "recognizer": {"family": "scripted", "model": ""},
        "thinker": {"family": "scripted", "model": ""},
        "talker": {"family": "scripted", "model": ""},
    },
}

FAMILIES = {  # of models, by section
    "recognizer": ("whisper", "scripted"),
    "thinker": ("llama", "vllm", "remote", "scripted"),
    "talker": ("piper", "kokoro", "qwen3-tts", "scripted"),
}
DIGEST = "sha256:"  # before the digest of a key that stands in the configuration for the key itself
DIGEST_OF_KEY = re.compile(r"sha256:[0-9a-fA-F]{64}")
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+")  # as a browser sends it: another form would never match
LANGUAGE_TAG = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*")

ENVIRONMENT_PREFIX = "VOICE_AGENT_"
# read by others than this module's fields: the weights' folder and where the file is
RESERVED_VARIABLES = {"VOICE_AGENT_CACHE", "VOICE_AGENT_CONFIG", "VOICE_AGENT_API_KEY"}


def load_config(
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    flags: Mapping[str, Mapping[str, Any]] | None = None,
) -> Config:
    """Read the configuration once. Raises ConfigError that names the field and what would be right."""
    text = environment.get("VOICE_AGENT_CONFIG", "")
    file = file or (Path(text) if text else None)
    layers = [_read_toml(file) if file else {}, _from_environment(environment), dict(flags or {})]
    chosen = [str(layer["profile"]) for layer in layers if "profile" in layer]
    profile = chosen[-1] if chosen else "cpu"
    if profile not in PROFILES:
        raise ConfigError(f"profile: {_none_of(profile, PROFILES)}")
    tree: dict[str, Any] = {"profile": profile}
    for layer in [PROFILES[profile], *layers]:
        tree = _merge(tree, layer)
    config = _build(Config, _with_fitting_turns(tree), "")
    return _checked(_with_remote_thinker(config))


def describe(value: Any, path: str = "") -> str:
    """The configuration as commented TOML, every field with its meaning."""
    lines: list[str] = []
    tables: list[str] = []
    for item in fields(value):
        current = getattr(value, item.name)
        if is_dataclass(current):
            tables.append(f"\n[{path}{item.name}]\n{describe(current, f'{path}{item.name}.')}")
            continue
        secret = (
            item.name in {"api_keys", "operator_keys", "api_key", "turn_secret", "credential"} and current
        )
        shown = "..." if secret else current
        doc = item.metadata["doc"]
        if item.name == "options":
            doc += f" {value.family}: {', '.join(names_of(path[:-1], value.family)) or 'none'}."
        lines += [f"# {doc}", f"{item.name} = {_toml(shown)}"]
    return "\n".join(lines + tables)


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from error


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """VOICE_AGENT_SERVER_PORT=9000 is server.port; lists are separated by commas, tables written as in TOML."""
    tree: dict[str, Any] = {}
    sections = {item.name: item for item in fields(Config)}
    for name, text in environment.items():
        if not name.startswith(ENVIRONMENT_PREFIX) or name in RESERVED_VARIABLES:
            continue
        key = name.removeprefix(ENVIRONMENT_PREFIX).lower()
        if key == "profile":
            tree["profile"] = text
            continue
        section, _, rest = key.partition("_")
        if section not in sections:
            raise ConfigError(
                f"{name}: there is no section {section!r}{did_you_mean_or_known(section, sections)}"
            )
        table_of = tree.setdefault(section, {})
        if section == "engines":  # an engine's settings are a table each
            engine, _, rest = rest.partition("_")
            table_of = table_of.setdefault(engine, {})
        table_of[rest] = text
    return tree


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(old, dict)
        merged[key] = _merge(cast(dict[str, Any], old), value) if both else value
    return merged


def _build(kind: type[T], tree: Mapping[str, Any], path: str) -> T:
    known = {item.name: item for item in fields(cast(Any, kind))}
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in tree.items():
        if key not in known:
            raise ConfigError(f"{path}{key}: no such setting{did_you_mean_or_known(key, known)}")
        values[key] = _coerce(hints[key], value, f"{path}{key}")
    return kind(**values)


def _coerce(hint: Any, value: Any, path: str) -> Any:
    """Bring a TOML or environment value to the field's type; raises ConfigError naming the field."""
    if isinstance(value, str) and (typing.get_origin(hint) is dict or value.lstrip().startswith("[{")):
        value = _inline(value, path)
    if is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path}: should be a table")
        return _build(cast(type, hint), value, f"{path}.")
    origin = typing.get_origin(hint)
    if origin is Literal:
        options = typing.get_args(hint)
        if value not in options:
            raise ConfigError(f"{path}: {_none_of(value, options)}")
        return value
    if origin is tuple:
        parts = [part for part in value.split(",") if part] if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            raise ConfigError(f"{path}: should be a list")
        return tuple(_coerce(typing.get_args(hint)[0], part, f"{path}[{n}]") for n, part in enumerate(parts))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path}: should be a table")
        return dict(value)
    return _coerce_scalar(hint, value, path)


def _inline(text: str, path: str) -> Any:
    """A table, or a list of them, that stands in one variable."""
    try:
        return tomllib.loads(f"it = {text}")["it"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f'{path}: should be a table, as in TOML: {{ name = "value" }} ({error})') from error


def _coerce_scalar(hint: type, value: Any, path: str) -> Any:
    if hint is bool and isinstance(value, str) and value.lower() in {"true", "false", "1", "0"}:
        return value.lower() in {"true", "1"}
    if hint in {int, float} and isinstance(value, str):
        try:
            return hint(value)
        except ValueError:
            raise ConfigError(f"{path}: {value!r} is not a number") from None
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        names: dict[type, str] = {
            str: "text",
            int: "a whole number",
            float: "a number",
            bool: "true or false",
        }
        raise ConfigError(f"{path}: should be {names.get(hint, hint.__name__)}, not {value!r}")
    return value


def _none_of(value: Any, known: typing.Iterable[str]) -> str:
    return f"{value!r} is none of {', '.join(known)}{did_you_mean(str(value), known)}"


def _with_remote_thinker(config: Config) -> Config:
    if not config.thinker.url:
        return config
    return replace(config, thinker=replace(config.thinker, family="remote"))


def _with_fitting_turns(tree: dict[str, Any]) -> dict[str, Any]:
    """Nothing is read ahead, unless it is asked for, where it gains nothing or is charged for."""
    thinker: dict[str, Any] = tree.get("thinker", {})
    if thinker.get("family", "llama") == "llama" and not thinker.get("url"):
        return tree
    return _merge({"turn": {"read_ahead_ms": 0}}, tree)


def _checked(config: Config) -> Config:
    server = config.server
    _in_range("server.port", server.port, 0, 65535)
    _in_range("session.max_sessions", config.session.max_sessions, 1, 10_000)
    _in_range("thinker.context_tokens", config.thinker.context_tokens, 256, 1_000_000)
    _in_range("thinker.max_output_tokens", config.thinker.max_output_tokens, 1, 100_000)
    _in_range("thinker.threads", config.thinker.threads, 0, 1024)
    _in_range("recognizer.threads", config.recognizer.threads, 1, 1024)
    _in_range("recognizer.lanes", config.recognizer.lanes, 1, 64)
    _in_range("talker.threads", config.talker.threads, 1, 1024)
    _in_range("talker.max_jobs", config.talker.max_jobs, 1, 10_000)
    _in_range("talker.queued_jobs", config.talker.queued_jobs, 0, 10_000)
    _in_range("talker.job_wait_s", config.talker.job_wait_s, 0, 3600)
    for engine in ("thinker", "speech"):
        for name in ("weights_gb", "work_gb", "cache_gb", "job_gb"):
            _in_range(f"engines.{engine}.{name}", getattr(getattr(config.engines, engine), name), 0, 100_000)
    _in_range("turn.longest_ms", config.turn.longest_ms, 1000, 28_000)
    for section, value in (("turn", config.turn), ("session", config.session), ("server", config.server)):
        for item in fields(value):
            if item.name.endswith(("_ms", "_s", "_db")):
                _in_range(f"{section}.{item.name}", getattr(value, item.name), 0, 1_000_000)
    for name in ("start_threshold", "end_threshold", "end_probability"):
        _in_range(f"turn.{name}", getattr(config.turn, name), 0.0, 1.0)
    _check_names(config)
    for section in FAMILIES:
        chosen = getattr(config, section)
        check_options(section, chosen.family, chosen.options)
    if server.workers != 1:
        raise ConfigError(
            f"server.workers: {server.workers} server processes would each load every model and know nothing of each "
            "other's calls; one process serves them all, so leave it at 1"
        )
    if bool(server.tls_cert) != bool(server.tls_key):
        raise ConfigError("server.tls_cert and server.tls_key: both or neither")
    if not server.api_keys and not is_loopback(server.host):
        raise ConfigError(
            f"server.host: {server.host} can be reached by others, so clients must prove who they are: "
            "set server.api_keys (VOICE_AGENT_SERVER_API_KEYS=key1,key2), or listen on 127.0.0.1"
        )
    if config.talker.clones and config.talker.family != "qwen3-tts":
        raise ConfigError(f"talker.clones: family {config.talker.family} clones no voices; qwen3-tts does")
    if config.thinker.family == "remote" and not config.thinker.url:
        raise ConfigError("thinker.url: family remote needs the base URL of an OpenAI-compatible server")
    if config.thinker.url and (fault := url_fault(config.thinker.url)):
        raise ConfigError(f"thinker.url: {fault}")
    return config


def _check_names(config: Config) -> None:
    """Families, the language, origins and digests of keys."""
    for section, families in FAMILIES.items():
        family = getattr(config, section).family
        if family not in families:
            raise ConfigError(f"{section}.family: {_none_of(family, families)}")
    for name in ("api_keys", "operator_keys"):
        for n, key in enumerate(getattr(config.server, name)):
            if key.startswith(DIGEST) and not DIGEST_OF_KEY.fullmatch(key):
                raise ConfigError(
                    f"server.{name}[{n}]: {DIGEST!r} wants 64 hex digits (printf %s KEY | sha256sum)"
                )
    for n, origin in enumerate(config.server.allowed_origins):
        if origin != "*" and not ORIGIN.fullmatch(origin):
            raise ConfigError(
                f"server.allowed_origins[{n}]: {origin!r} is no origin: write it like https://shop.example, no path"
            )
    if config.recognizer.language and not LANGUAGE_TAG.fullmatch(config.recognizer.language):
        raise ConfigError(
            f"recognizer.language: {config.recognizer.language!r} is no language tag; write en, ko or de, or nothing"
        )


def _in_range(path: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{path}: {value} is not between {low} and {high}")


def url_fault(url: str) -> str:
    """What is wrong with a server's address; empty if nothing is."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError as error:  # of the port, or an open bracket
        return f"{url!r} is no address ({error})"
    return "" if whole else f"{url!r} should start with http:// or https:// and name a host"


def key_fault(key: str) -> str:
    """Why a key cannot be sent as a bearer token; empty if it can."""
    can = key.isascii() and key.isprintable()
    return "" if can else "a key goes into an HTTP header, so ASCII letters only"


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f'"{key}" = {_toml(item)}' for key, item in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(item) for item in cast("tuple[Any, ...]", value)) + "]"
    if is_dataclass(value):
        return (
            "{"
            + ", ".join(f"{item.name} = {_toml(getattr(value, item.name))}" for item in fields(value))
            + "}"
        )
    return str(value)
