"""What a request that stands alone (no session) asks for, and what it is given piece by piece.

Small frozen values, neutral to the wire: `api/` reads JSON and forms into them and writes the pieces out, `answers`
and `transcripts` do the work. The three Protocols are what `api/` is handed.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from voice_agent.audio import AudioFormat

Role = Literal["system", "user", "assistant", "tool"]

AUDIO_TOKENS_IN_PER_S = 10  # how sound is counted in `usage`, as OpenAI does
AUDIO_TOKENS_OUT_PER_S = 20


# --- what is asked for


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text of a message."""

    text: str


@dataclass(frozen=True, slots=True)
class SoundPart:
    """A sound file of a message; `param` is its path in the request, for errors."""

    data: bytes
    param: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image by address (data: URI or https), as the client gave it."""

    url: str
    detail: str
    param: str


Part = TextPart | SoundPart | ImagePart


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `tool_calls` in OpenAI's form (of an assistant), `tool_call_id` of a tool's result."""

    role: Role
    parts: tuple[Part, ...]
    tool_calls: tuple[dict[str, Any], ...] = ()
    tool_call_id: str = ""


@dataclass(frozen=True, slots=True)
class SpeechWish:
    """How something is to be said; not `streamed` means one whole file at the end.

    `temperature` is for voices that sample (None: the model's own). `most_frames` cuts the speech of random weights
    (0: no limit).
    """

    voice: str
    audio_format: AudioFormat
    latency_first: bool
    streamed: bool
    speed: float = 1.0
    seed: int = 0
    temperature: float | None = None
    instructions: str = ""
    most_frames: int = 0


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A conversation to answer; None where the configuration decides. `speech` None: in writing only.

    Not `streamed`: its pieces may all come at the end, so that until then nothing is given out.
    """

    messages: tuple[Message, ...]
    speech: SpeechWish | None = None
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str = "auto"
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    streamed: bool = True


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """A text to say."""

    text: str
    speech: SpeechWish


@dataclass(frozen=True, slots=True)
class TranscriptionRequest:
    """A sound file to write down; `language` None lets the recognizer decide, `timed` asks for word times."""

    data: bytes
    language: str | None
    timed: bool
    param: str = "file"


# --- what is given


@dataclass(frozen=True, slots=True)
class TextPiece:
    """The next written text of a reply."""

    text: str


@dataclass(frozen=True, slots=True)
class SoundPiece:
    """The next bytes of the reply's sound file."""

    data: bytes


@dataclass(frozen=True, slots=True)
class CallPiece:
    """The Thinker wants a function called; arguments are JSON text, whole."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What a reply took, in tokens; sound is counted by its length."""

    text_in: int = 0
    audio_in: int = 0
    text_out: int = 0
    audio_out: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """A reply's last piece: stop, length or tool_calls."""

    reason: str
    usage: Usage = field(default_factory=Usage)


ReplyPiece = TextPiece | SoundPiece | CallPiece | Ended


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word and when it was said, in seconds from the file's start."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech written down."""

    text: str
    start_s: float
    end_s: float
    language: str
    words: tuple[TimedWord, ...] = ()


@dataclass(frozen=True, slots=True)
class Transcribed:
    """The end of a transcription: how much sound there was."""

    duration_s: float


@dataclass(frozen=True, slots=True)
class Voice:
    """One voice: `aliases` name it too."""

    name: str
    languages: Sequence[str]
    licence: str
    default: bool
    aliases: Sequence[str]
    instructed: bool = False  # follows `instructions`


# --- who does it


class Answerer(Protocol):
    """Answers and speaks. A generator that is closed early (or cancelled) stops every stage at once.

    Raises before the first piece what the request is to be blamed for (RemoteProtocolError, MediaError), BusyError
    when too much is in hand, EngineError at any time.
    """

    def answer(self, request: ChatRequest) -> AsyncGenerator[ReplyPiece]:
        """Pieces of a reply; Ended is the last."""
        ...

    def say(self, request: SpeechRequest) -> AsyncGenerator[SoundPiece | Ended]:
        """The sound of a text; Ended is the last."""
        ...


class Transcriber(Protocol):
    """Writes sound files down; ends and fails as Answerer does."""

    def transcribe(self, request: TranscriptionRequest) -> AsyncGenerator[Segment | Transcribed]:
        """Stretches of speech in order; Transcribed is the last."""
        ...


class VoiceList(Protocol):
    """The voices there are, once ready."""

    def all(self) -> Sequence[Voice]:
        """The default one first."""
        ...

    def named(self, name: str, param: str) -> str:
        """The voice that a name or alias stands for; raises RemoteProtocolError that lists them."""
        ...
