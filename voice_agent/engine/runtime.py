"""What an engine process is made of: the models' protocols and the spec that says which ones to load.

Models know nothing of processes and requests' epochs. They are synchronous, each called from one thread at a time,
except for a Thinker that schedules many requests itself (ConcurrentThinkerModel). A family is a module with
`load(folder, options)`; the child looks it up in a table (see families.py). The server side builds an EngineSpec and
never imports a family.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from voice_agent.audio import Samples
from voice_agent.engine.messages import HeardWord, RowsRef, SpokenWord, Think

EXIT_BROKEN = 70  # a child's exit code when its inside failed

# --- what the models hand back ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolCallParts:
    """A whole function call of the Thinker; `arguments` is JSON text as the model wrote it."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ThinkerEnd:
    """Why an answer ended (stop, length, tool_calls or aborted) and what it took."""

    reason: str
    usage: dict[str, int] = field(default_factory=dict[str, int])
    tool_calls: list[ToolCallParts] = field(default_factory=list[ToolCallParts])


@dataclass(frozen=True, slots=True)
class FrameWord:
    """A word's range in the reply's written text, and its latent frames counted from the clause's first."""

    start_char: int
    end_char: int
    first_frame: int
    end_frame: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Latents:
    """A clause before its waveform: `frames` of them, the model's own `data`, and the words in frames.

    Zero frames is a normal value: the clause has no sound ("...").
    """

    frames: int
    data: Any
    words: list[FrameWord] = field(default_factory=list[FrameWord])


# --- the models -------------------------------------------------------------------------------------------------


class RecognizerModel(Protocol):
    """Speech to text; blocking, called from as many threads at once as its options' lanes.

    `languages` are the primary tags it knows; empty if it takes any.
    """

    languages: tuple[str, ...]

    def transcribe(self, samples: Samples, language: str | None) -> tuple[str, str]:
        """Text and its language for int16 16 kHz [T]; empty text if there were no words."""
        ...

    def align(self, samples: Samples, text: str, language: str) -> list[HeardWord]:
        """When each word of a text it recognized in these samples was spoken; empty if it cannot tell."""
        ...

    def count_tokens(self, text: str) -> int:
        """How many tokens a text that it recognized has."""
        ...


class ThinkerModel(Protocol):
    """The LLM; blocking, one thread."""

    context_tokens: int

    def count_tokens(self, messages: list[dict[str, Any]]) -> int:
        """Prompt tokens of a conversation in OpenAI's chat form, template included."""
        ...

    def stream(self, request: Think, emit: Callable[[str], bool]) -> ThinkerEnd:
        """Answer piece by piece through `emit`, which never gets a split character and returns True to stop."""
        ...


@runtime_checkable
class ConcurrentThinkerModel(Protocol):
    """An LLM that schedules many requests itself; event loop only, except for `count_tokens`."""

    context_tokens: int

    async def warm_up(self, text: str) -> None:
        """Answer a first request with `text` as its system prompt, so that nothing is left to load or compile."""
        ...

    def count_tokens(self, messages: list[dict[str, Any]]) -> int:
        """As ThinkerModel's."""
        ...

    async def answer(self, request: Think, emit: Callable[[str, RowsRef | None], bool]) -> ThinkerEnd:
        """Answer through `emit` (text that never splits a character, and where the hidden rows of its tokens lie).

        Stops when `emit` returns True. Cancelling it frees the request at once. Raises EngineError.
        """
        ...

    async def died(self) -> str:
        """Wait until it cannot go on; returns why."""
        ...


class TalkerModel(Protocol):
    """Talker and VoiceBox of one voice family; blocking, one thread."""

    rate_hz: int
    samples_per_frame: int
    voices: tuple[str, ...]
    languages: tuple[str, ...]

    def encode(self, words: list[SpokenWord], voice: str, speed: float, seed: int) -> Latents:
        """Talker: one clause to latent frames and word times. May raise errors.UnsupportedLanguage."""
        ...

    def decode(self, latents: Latents, first_frame: int, frames: int) -> Samples:
        """VoiceBox: int16 [frames * samples_per_frame] of a window; takes its own context, so windows join."""
        ...


@runtime_checkable
class RowReader(Protocol):
    """A TalkerModel that reads the Thinker's hidden rows from the pool that its options name."""

    def read(self, rows: RowsRef) -> None:
        """Take the rows of the clause that `encode` gets next; they are in the pool. Raises EngineError."""
        ...


SLOWEST, FASTEST = 0.25, 4.0  # speeds that a reply may ask for, as OpenAI's speech route

# --- which models, where ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecognizerOptions:
    """One recognizer: `family` names the module, `language` None lets the model decide per request.

    It is called from `lanes` threads at a time.
    """

    family: str
    folder: str
    threads: int = 1
    language: str | None = None
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class ThinkerOptions:
    """One LLM; `context_tokens` covers prompt and answer together."""

    family: str
    folder: str
    threads: int = 2
    context_tokens: int = 4096
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class TalkerOptions:
    """One voice family; `voice` is what a request without one gets, and what warm-up speaks with."""

    family: str
    folder: str
    voice: str = ""
    threads: int = 1
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """When an engine counts as stuck, and how far ahead speech is rendered."""

    start_s: float = 120.0  # from spawn to Ready: covers a cold disk
    ping_s: float = 1.0
    silent_s: float = 10.0  # no Pong for so long: the loop hangs
    stuck_step_s: float = 60.0  # one model step: a 30 s utterance on a busy laptop stays below
    shutdown_s: float = 2.0
    terminate_s: float = 3.0
    queued_requests: int = 64
    queued_results: int = 2_000
    ramp_frames: tuple[int, ...] = (16, 32, 64, 96)  # latency-first windows; the last one repeats
    quality_frames: int = 384  # quality-first windows
    lead_s: float = 6.0  # ahead of real time while others wait
    lead_cap_s: float = 20.0  # ahead of real time, ever

    def __post_init__(self) -> None:
        """Refuse windows that would never move."""
        if not self.ramp_frames or min(self.quality_frames, *self.ramp_frames) < 1:
            raise ValueError("ramp_frames and quality_frames must be at least one frame each")


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Everything a child needs to know, as JSON: which models, warm-up text, environment before any import.

    A "thinker" engine holds `recognizer`, `thinker` or both; a "speech" engine holds `talker`.
    """

    kind: Literal["thinker", "speech"]
    recognizer: RecognizerOptions | None = None
    thinker: ThinkerOptions | None = None
    talker: TalkerOptions | None = None
    warm_up_text: str = "Hello."
    env: dict[str, str] = field(default_factory=dict[str, str])
    has_children: bool = False  # the model starts processes of its own, which must not outlive the server
    nice: int = 0  # how far an LLM steps back behind the others when cores are short (POSIX nice)
    patient: bool = False  # a spare: nobody waits for its load, so that steps back too
    limits: EngineLimits = field(default_factory=EngineLimits)

    def __post_init__(self) -> None:
        """Refuse a spec whose parts do not fit its kind."""
        thinks = self.recognizer is not None or self.thinker is not None
        if self.kind == "thinker" and (not thinks or self.talker is not None):
            raise ValueError("a thinker engine needs a recognizer or a thinker, and no talker")
        if self.kind == "speech" and (thinks or self.talker is None):
            raise ValueError("a speech engine needs a talker and nothing else")
