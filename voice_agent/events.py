"""What a session tells its transport, and what the transport may ask of it: small frozen values, transport-neutral.

A *turn* is the user's, a *reply* the agent's. `api/realtime.py` maps these to and from OpenAI's wire.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

ReplyStatus = Literal["completed", "cancelled", "failed", "incomplete"]


# --- session to transport


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The user began to speak; the time counts from the session's first microphone sample, padding included."""

    turn_id: str
    audio_start_ms: int


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The user's turn ended."""

    turn_id: str
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class TurnCommitted:
    """The user's sound became an item of the conversation."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class TurnTranscribed:
    """What the recognizer understood; empty if there were no words."""

    turn_id: str
    text: str
    audio_seconds: float


@dataclass(frozen=True, slots=True)
class TranscriptionFailed:
    """The recognizer could not."""

    turn_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class InputCleared:
    """The transport's wish to forget the turn so far was carried out."""


@dataclass(frozen=True, slots=True)
class TextAdded:
    """A typed item is in the conversation."""

    item_id: str
    role: str
    text: str


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The session's settings are now these (the effective ones, whole)."""

    settings: "SessionSettings"


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """The agent will answer; `turn_id` is what it answers, None for a greeting or a bare request.

    `text_only` says whether it is written instead of spoken; None means as the session's settings say.
    """

    reply_id: str
    turn_id: str | None
    metadata: dict[str, str] | None = None
    text_only: bool | None = None


@dataclass(frozen=True, slots=True)
class ReplyText:
    """The next piece of the reply's written text."""

    reply_id: str
    delta: str


@dataclass(frozen=True, slots=True)
class ReplyToolCall:
    """The Thinker wants a function called; arguments are whole."""

    reply_id: str
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class PlayoutStarted:
    """The first sound of the reply left for the user."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class PlayoutStopped:
    """The reply was played to its end."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class PlayoutCleared:
    """What was not yet played was dropped."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class ReplyTruncated:
    """History keeps only what was heard: `heard_text`, up to `audio_end_ms` of the reply's sound."""

    reply_id: str
    heard_text: str
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """The reply is over; exactly one for each ReplyStarted.

    `reason` is one of the wire's words (turn_detected, client_cancelled, max_output_tokens, content_filter) or an
    error code; `error` is what to show.
    """

    reply_id: str
    status: ReplyStatus
    text: str
    reason: str | None = None
    error: str | None = None
    usage: dict[str, int] | None = None


@dataclass(frozen=True, slots=True)
class SessionError:
    """Something went wrong that belongs to no reply; the session lives on."""

    code: str
    message: str
    param: str | None = None
    client_event_id: str | None = None
    item_id: str | None = None  # of the item that was refused


SessionEvent = (
    SpeechStarted
    | SpeechStopped
    | TurnCommitted
    | TurnTranscribed
    | TranscriptionFailed
    | InputCleared
    | TextAdded
    | SettingsChanged
    | ReplyStarted
    | ReplyText
    | ReplyToolCall
    | PlayoutStarted
    | PlayoutStopped
    | PlayoutCleared
    | ReplyTruncated
    | ReplyDone
    | SessionError
)


# --- transport to session


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a client may change of a running session; the defaults come from the configuration."""

    instructions: str
    voice: str
    latency_first: bool = True
    speed: float = 1.0
    max_output_tokens: int = 512
    temperature: float = 0.0
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str = "auto"
    turn_detection: Literal["semantic", "server", "none"] = "semantic"
    create_response: bool = True
    interrupt_response: bool = True
    text_only: bool = False
    overlap: bool = True  # false runs stage after stage: for measuring what the overlap gains


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """Change only the named settings (field name of SessionSettings to its new value)."""

    changes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AddText:
    """A typed message; it does not ask for a reply by itself."""

    item_id: str
    role: Literal["user", "system", "assistant"]
    text: str
    client_event_id: str | None = None


@dataclass(frozen=True, slots=True)
class AddToolResult:
    """What a function call gave."""

    item_id: str
    call_id: str
    output: str
    client_event_id: str | None = None


@dataclass(frozen=True, slots=True)
class CreateReply:
    """Answer now; `changes` override settings for this reply alone. Interrupts a reply that is being spoken."""

    changes: dict[str, Any] = field(default_factory=dict[str, Any])
    metadata: dict[str, str] | None = None
    client_event_id: str | None = None


@dataclass(frozen=True, slots=True)
class CancelReply:
    """Stop the reply in flight everywhere; the named one, or whichever it is."""

    reply_id: str | None = None
    client_event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClearOutput:
    """Drop what is not yet played."""


@dataclass(frozen=True, slots=True)
class ClearInput:
    """Forget what the user has said in this turn so far."""


@dataclass(frozen=True, slots=True)
class CommitInput:
    """The user's turn ends here (push to talk)."""

    client_event_id: str | None = None


SessionCommand = (
    UpdateSettings
    | AddText
    | AddToolResult
    | CreateReply
    | CancelReply
    | ClearOutput
    | ClearInput
    | CommitInput
)
