"""The configuration: what can be set, each field documented where it stands, with the defaults of every profile.

It knows neither where values come from (config_sources), nor which may stand (config_checks), nor how they are shown
(config_text).
"""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

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
