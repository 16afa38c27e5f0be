"""What a transport may ask of a session: small frozen values, transport-neutral.

What the session tells in return is in `events`. `api/realtime.py` makes these of OpenAI's wire.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

Encoding = Literal["audio/pcm", "audio/pcmu", "audio/pcma"]


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """Change only the named settings (field name of SessionSettings to its new value)."""

    changes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AddText:
    """A typed message; it does not ask for a reply by itself. `after` is an item's id, "root", or None for the end.

    `images` are data URIs, for a Thinker that sees; `sound_s` how much of it was spoken and has become text.
    """

    item_id: str
    role: Literal["user", "system", "assistant"]
    text: str
    client_event_id: str | None = None
    after: str | None = None
    images: tuple[str, ...] = ()
    sound_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Sound:
    """Sound as a client sent it, to be recognized; `part` is its number among its item's parts."""

    payload: bytes
    encoding: Encoding
    part: int


@dataclass(frozen=True, slots=True)
class AddSpoken:
    """A message of the user with sound in it: texts and sounds in order. It has its place before its words."""

    item_id: str
    parts: tuple[str | Sound, ...]
    client_event_id: str | None = None
    after: str | None = None
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AddToolCall:
    """A function call of an earlier conversation, from a client that brings its history along."""

    item_id: str
    call_id: str
    name: str
    arguments: str
    client_event_id: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class AddToolResult:
    """What a function call gave."""

    item_id: str
    call_id: str
    output: str
    client_event_id: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class ItemReference:
    """An item of the conversation, taken into a reply's own context."""

    item_id: str


@dataclass(frozen=True, slots=True)
class DeleteItem:
    """Take an item out of the conversation, a call together with its result."""

    item_id: str
    client_event_id: str | None = None


@dataclass(frozen=True, slots=True)
class TruncateReply:
    """The client played so much of a reply's sound and no more; a reply that is still live is stopped."""

    reply_id: str
    audio_end_ms: int
    client_event_id: str | None = None


NewItem = AddText | AddSpoken | AddToolCall | AddToolResult


@dataclass(frozen=True, slots=True)
class CreateReply:
    """Answer now; `changes` override settings for this reply alone. Interrupts a reply that is still being made.

    `context` is what it answers instead of the conversation. One that is `aside` is no part of the conversation,
    interrupts nothing and is interrupted by nothing. `note` is the transport's own, handed back in ReplyStarted.
    """

    changes: dict[str, Any] = field(default_factory=dict[str, Any])
    metadata: dict[str, str] | None = None
    client_event_id: str | None = None
    aside: bool = False
    context: tuple[NewItem | ItemReference, ...] | None = None
    note: Any = None


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


@dataclass(frozen=True, slots=True)
class AppendSound:
    """The user's sound as the client sent it; for transports that bring it in messages, not for the session."""

    payload: bytes
    encoding: Encoding
    client_event_id: str | None = None


SessionCommand = (
    UpdateSettings
    | AddText
    | AddSpoken
    | AddToolCall
    | AddToolResult
    | DeleteItem
    | TruncateReply
    | AppendSound
    | CreateReply
    | CancelReply
    | ClearOutput
    | ClearInput
    | CommitInput
)
