"""What a session tells its transport: small frozen values, transport-neutral.

A *turn* is the user's, a *reply* the agent's. What the transport may ask in return is in `commands`. `api/realtime.py`
maps these to OpenAI's wire.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from voice_agent.audio import PcmChunk
from voice_agent.commands import CreateReply
from voice_agent.session_settings import SessionSettings

ReplyStatus = Literal["completed", "cancelled", "failed", "incomplete"]


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
class IdleTimedOut:
    """Nobody spoke for so long after a reply; the silence is committed as a turn and answered."""

    turn_id: str
    audio_start_ms: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class TurnCommitted:
    """The user's sound became an item of the conversation."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class TurnTranscribed:
    """What the recognizer understood; empty if there were no words. `tokens` is how many it wrote."""

    turn_id: str
    text: str
    audio_seconds: float
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class TranscriptionFailed:
    """The recognizer could not."""

    turn_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class SoundTranscribed:
    """The words of a sound in a client's own item; `part` is its number among the item's parts."""

    item_id: str
    part: int
    text: str
    audio_seconds: float
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class SoundFailed:
    """The recognizer could not, of such a sound."""

    item_id: str
    part: int
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
class ItemDeleted:
    """An item is not in the conversation any more."""

    item_id: str


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The session's settings are now these (the effective ones, whole)."""

    settings: SessionSettings


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """The agent will answer; `turn_id` is what it answers, None for a greeting or a bare request.

    `text_only` says whether it is written instead of spoken; None means as the session's settings say. `request` is
    what it was asked for by, and `aside` whether it stays outside the conversation.
    """

    reply_id: str
    turn_id: str | None
    metadata: dict[str, str] | None = None
    text_only: bool | None = None
    request: CreateReply | None = None

    @property
    def aside(self) -> bool:
        """Whether it is no part of the conversation."""
        return self.request is not None and self.request.aside


@dataclass(frozen=True, slots=True)
class ReplyText:
    """The next piece of the reply's written text."""

    reply_id: str
    delta: str


@dataclass(frozen=True, slots=True)
class ReplySound:
    """The next piece of the reply's sound; told only where the user's player is at the client's."""

    reply_id: str
    pcm: PcmChunk


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
    """History keeps only what was heard: `heard_text`, up to `audio_end_ms` of the reply's sound.

    `by_client` if the client said what was heard, not our own count of what was played.
    """

    reply_id: str
    heard_text: str
    audio_end_ms: int
    by_client: bool = False


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """The reply is over; exactly one for each ReplyStarted.

    `reason` is one of the wire's words (turn_detected, client_cancelled, max_output_tokens, content_filter) or an
    error code; `error` is what to show. `usage` is the Thinker's count of text; `heard_s` and `said_s` are the sound
    that the conversation held and that the reply made.
    """

    reply_id: str
    status: ReplyStatus
    text: str
    reason: str | None = None
    error: str | None = None
    usage: dict[str, int] | None = None
    heard_s: float = 0.0
    said_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SessionError:
    """Something went wrong that belongs to no reply; the session lives on."""

    code: str
    message: str
    param: str | None = None
    client_event_id: str | None = None
    item_id: str | None = None  # of the item that was refused


class Asked(Protocol):
    """A command whose client may have given it an id."""

    @property
    def client_event_id(self) -> str | None:
        """The id, which an error names."""
        ...


def complaint(code: str, message: str, command: Asked, param: str | None = None) -> SessionError:
    """What is wrong with a client's command."""
    return SessionError(code, message, param, command.client_event_id)


SessionEvent = (
    SpeechStarted
    | SpeechStopped
    | IdleTimedOut
    | TurnCommitted
    | TurnTranscribed
    | TranscriptionFailed
    | SoundTranscribed
    | SoundFailed
    | InputCleared
    | TextAdded
    | ItemDeleted
    | SettingsChanged
    | ReplyStarted
    | ReplyText
    | ReplySound
    | ReplyToolCall
    | PlayoutStarted
    | PlayoutStopped
    | PlayoutCleared
    | ReplyTruncated
    | ReplyDone
    | SessionError
)
