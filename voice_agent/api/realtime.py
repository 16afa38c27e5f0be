"""OpenAI's Realtime protocol (GA shape), without I/O.

Client text in, commands for the session out (`receive`); session events in, server events out (`translate`). What is
answered here at once (errors, retrieved items) waits in `events_to_send`. Never raises for what a client sends. Events
out are JSON objects that may share items: whoever sends them later has to write them down at once. The mapping lives
in wire_session, wire_turns, wire_reply, wire_items and wire_new_items.
"""

import itertools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from voice_agent.api.decoded import Decoded
from voice_agent.api.parse import Frame, parse_event, parse_session, read_frame
from voice_agent.api.schema import (
    BufferAppend,
    ClientEvent,
    ItemCreate,
    ItemNamed,
    ItemTruncate,
    NewItem,
    ResponseCancel,
    ResponseCreate,
    SessionUpdate,
)
from voice_agent.api.wire_items import ROOT, Json, WireItems, typed_item
from voice_agent.api.wire_new_items import Taken, command_for
from voice_agent.api.wire_reply import ReplyShape, SoundEncoder, WireReply, reply_id
from voice_agent.api.wire_session import TRANSCRIPTION, Names, WireSession
from voice_agent.api.wire_turns import WireTurns
from voice_agent.commands import (
    AppendSound,
    CancelReply,
    ClearInput,
    ClearOutput,
    CommitInput,
    CreateReply,
    DeleteItem,
    ItemReference,
    SessionCommand,
    TruncateReply,
    UpdateSettings,
)
from voice_agent.commands import NewItem as NewItemCommand
from voice_agent.errors import RemoteProtocolError
from voice_agent.events import (
    IdleTimedOut,
    InputCleared,
    ItemDeleted,
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    ReplyDone,
    ReplySound,
    ReplyStarted,
    ReplyText,
    ReplyToolCall,
    ReplyTruncated,
    SessionError,
    SessionEvent,
    SettingsChanged,
    SoundFailed,
    SoundTranscribed,
    SpeechStarted,
    SpeechStopped,
    TextAdded,
    TranscriptionFailed,
    TurnCommitted,
    TurnTranscribed,
)
from voice_agent.session_settings import SessionSettings

MAX_REPLIES = 64  # closed ones are kept for the playout events that come after
MAX_PENDING_ITEMS = 64  # created, not yet taken in by the session
MAX_APPEND_BYTES = 15 * 1024 * 1024  # OpenAI's own limit
SERVER_CODES = ("engine_", "internal_", "weights_", "thinker_")


@dataclass(frozen=True, slots=True)
class Transport:
    """What the protocol must know of what carries it.

    `encoder` makes a reply's sound into bytes of a wire format where sound goes in events; without it sound is on a
    track. `sees` says whether the Thinker takes images; `expires_at` is the session's end in Unix seconds.
    `names` gives the voice or language that a name means, or RemoteProtocolError about the parameter named.
    """

    encoder: Callable[[str], SoundEncoder] | None = None
    sees: bool = False
    expires_at: int | None = None
    names: Names = field(default_factory=Names)


class RealtimeProtocol:
    """One session's protocol state.

    `_pending` holds items that were created and are not yet taken in, with what they follow; the session answers each
    with TextAdded or SessionError, and each UpdateSettings (also an empty one) with SettingsChanged.
    """

    def __init__(
        self, session_id: str, model: str, settings: SessionSettings, transport: Transport | None = None
    ) -> None:
        self._transport = transport or Transport()
        self._session = WireSession(
            session_id, model, settings, self._transport.expires_at, self._transport.names
        )
        self._session_id = session_id
        self._items = WireItems()
        turns = WireTurns(self._items)
        self._replies: OrderedDict[str, WireReply] = OrderedDict()
        self._pending: dict[str, tuple[Json, str | None]] = {}
        self._outbox: list[Json] = []
        self._numbers = itertools.count(1)
        self._on_client: dict[str, Callable[[Any], list[SessionCommand]]] = {
            "session.update": self._session_update,
            "conversation.item.retrieve": self._item_retrieve,
            "conversation.item.delete": self._item_delete,
            "conversation.item.truncate": self._item_truncate,
            "response.create": self._response_create,
            "response.cancel": self._response_cancel,
            "input_audio_buffer.commit": lambda event: [CommitInput(event.event_id)],
            "input_audio_buffer.clear": lambda event: [ClearInput()],
            "output_audio_buffer.clear": self._output_clear,
        }
        self._on_session: dict[type, Callable[[Any], list[Json]]] = {
            SpeechStarted: turns.speech_started,
            SpeechStopped: turns.speech_stopped,
            IdleTimedOut: turns.idle,
            TurnCommitted: turns.committed,
            TurnTranscribed: lambda event: turns.transcribed(event, self._session.transcription),
            TranscriptionFailed: lambda event: turns.failed(event, self._session.transcription),
            SoundTranscribed: lambda event: turns.sound_transcribed(event, self._session.transcription),
            SoundFailed: lambda event: turns.sound_failed(event, self._session.transcription),
            InputCleared: lambda event: [{"type": "input_audio_buffer.cleared"}],
            TextAdded: self._text_added,
            ItemDeleted: self._item_deleted,
            SettingsChanged: self._settings_changed,
            ReplyStarted: self._reply_started,
            ReplyText: lambda event: self._of_reply(event, lambda reply: reply.delta(event.delta)),
            ReplySound: lambda event: self._of_reply(event, lambda reply: reply.sound(event.pcm)),
            ReplyToolCall: lambda event: self._of_reply(event, lambda reply: reply.call(event)),
            PlayoutStarted: lambda event: self._of_reply(event, lambda reply: reply.playout("started")),
            PlayoutStopped: lambda event: self._of_reply(event, lambda reply: reply.playout("stopped")),
            PlayoutCleared: lambda event: self._of_reply(event, lambda reply: reply.playout("cleared")),
            ReplyTruncated: lambda event: self._of_reply(event, lambda reply: reply.truncate(event)),
            ReplyDone: lambda event: self._of_reply(event, lambda reply: reply.close(event)),
            SessionError: self._session_error,
        }

    def configure(self, session: str) -> dict[str, Any]:
        """Apply the session (JSON) a call was made with, before it starts; returns the settings that it changes.

        It may make it a session for transcription alone. Raises RemoteProtocolError, nothing applied.
        """
        return self._session.update(parse_session(session, self._session.kind), begins=True)

    def adopt(self, settings: SessionSettings) -> None:
        """The session as it really is, before it starts."""
        self._session.adopt(settings)

    def session(self) -> Json:
        """The whole session object as it is now."""
        return self._session.full()

    def opening(self) -> Json:
        """session.created: the first thing a client hears, with the session as it is now."""
        return self._sent({"type": "session.created", "session": self._session.full()})

    def receive(self, text: str, reading: Callable[[Json], Json] | None = None) -> list[SessionCommand]:
        """As `take`, of a client's text."""
        return self.take(read_frame(text), reading)

    def take(self, frame: Frame, reading: Callable[[Json], Json] | None = None) -> list[SessionCommand]:
        """Take one client event; an error goes to `events_to_send`, and nothing of that event is applied.

        `reading` turns another dialect's event into ours; it may raise RemoteProtocolError.
        """
        event_id: Any = None
        try:
            if isinstance(frame.value, RemoteProtocolError):
                raise frame.value
            event_id = frame.value.get("event_id")
            event = parse_event(reading(frame.value) if reading else frame.value)
            match event:
                case BufferAppend():
                    return self._append(event, frame.decoded["audio"])
                case ItemCreate():
                    return self._item_create(event, frame.decoded)
                case _:
                    return self._on_client[event.type](event)
        except RemoteProtocolError as error:
            client_id = event_id if isinstance(event_id, str) else None
            self._outbox.append(self._sent(_error(error.code, str(error), error.param, client_id)))
            return []

    def events_to_send(self) -> list[Json]:
        """What `receive` answered by itself, in order; empties the list."""
        sending, self._outbox = self._outbox, []
        return sending

    def translate(self, event: SessionEvent) -> list[Json]:
        """Server events for one session event; none for a reply that is unknown or over."""
        return [self._sent(one) for one in self._on_session[type(event)](event)]

    # --- from the client ----------------------------------------------------------------------------------------

    def _session_update(self, event: SessionUpdate) -> list[SessionCommand]:
        """Also without changes: the session answers with SettingsChanged, which becomes session.updated."""
        return [UpdateSettings(self._session.update(event.session))]

    def _item_create(self, event: ItemCreate, decoded: Decoded) -> list[SessionCommand]:
        if event.item.type == "item_reference":
            message = "References go into the input of a response, not into the conversation."
            raise RemoteProtocolError("invalid_value", message, "item.type")
        item_id = event.item.id or self._new_id()
        if item_id in self._items or item_id in self._pending:
            raise RemoteProtocolError(
                "item_create_duplicate_item_id", f"The item {item_id!r} exists.", "item.id"
            )
        after = event.previous_item_id
        if after is not None and after != ROOT and after not in self._items and after not in self._pending:
            message = f"There is no item {after[:64]!r}; leave it out to add the item at the end."
            raise RemoteProtocolError("invalid_value", message, "previous_item_id")
        if len(self._pending) >= MAX_PENDING_ITEMS:
            raise RemoteProtocolError(
                "rate_limit_exceeded", "Too many items at once; wait for them to be added."
            )
        command, item = command_for(
            item_id, event.item, event.event_id, replace(self._taken, decoded=decoded)
        )
        self._pending[item_id] = (item, after)
        session_after = None if after is None else self._items.session_id(after)
        return [replace(command, after=session_after)]

    def _item_retrieve(self, event: ItemNamed) -> list[SessionCommand]:
        item = self._known_item(event.item_id, "item_retrieve_invalid_item_id")
        self._outbox.append(self._sent({"type": "conversation.item.retrieved", "item": item}))
        return []

    def _item_delete(self, event: ItemNamed) -> list[SessionCommand]:
        self._known_item(event.item_id, "item_delete_invalid_item_id")
        return [DeleteItem(self._items.session_id(event.item_id), event.event_id)]

    def _item_truncate(self, event: ItemTruncate) -> list[SessionCommand]:
        item = self._known_item(event.item_id, "item_truncate_invalid_item_id")
        if self._transport.encoder is None:
            message = "Here the server knows what was played and truncates by itself; use output_audio_buffer.clear."
            raise RemoteProtocolError("invalid_event_for_transport", message, "type")
        parts = [part["type"] for part in item.get("content", [])]
        if item.get("role") != "assistant" or (parts and "output_audio" not in parts):
            message = "Only the agent's own spoken messages can be truncated."
            raise RemoteProtocolError("item_truncate_invalid_item_id", message, "item_id")
        if event.content_index > 0:
            message = "The item has one content part: content_index should be 0."
            raise RemoteProtocolError("invalid_value", message, "content_index")
        return [TruncateReply(self._items.session_id(event.item_id), event.audio_end_ms, event.event_id)]

    def _append(self, event: BufferAppend, payload: bytes | ValueError) -> list[SessionCommand]:
        if self._transport.encoder is None:
            message = "Over WebRTC sound comes from the audio track, not from input_audio_buffer.append."
            raise RemoteProtocolError("invalid_event_for_transport", message, "type")
        if isinstance(payload, ValueError):
            message = f"Invalid value for 'audio': it should be base64 ({payload})."
            raise RemoteProtocolError("invalid_value", message, "audio")
        if len(payload) > MAX_APPEND_BYTES:
            message = f"'audio' holds {len(payload)} bytes; {MAX_APPEND_BYTES} are the most in one event."
            raise RemoteProtocolError("invalid_value", message, "audio")
        return [AppendSound(payload, self._session.input_encoding, event.event_id)]

    def _output_clear(self, event: ClientEvent) -> list[SessionCommand]:
        if self._transport.encoder is not None:
            message = "Here the client plays; stop playing, then send conversation.item.truncate."
            raise RemoteProtocolError("invalid_event_for_transport", message, "type")
        return [ClearOutput()]

    def _response_create(self, event: ResponseCreate) -> list[SessionCommand]:
        if self._session.kind == TRANSCRIPTION:
            message = "This session is for transcription alone: it makes no responses."
            raise RemoteProtocolError("invalid_value", message, "type")
        options = event.response
        if options is None:
            return [CreateReply(client_event_id=event.event_id)]
        context: tuple[NewItemCommand | ItemReference, ...] | None = None
        if options.input is not None:
            context = tuple(self._context_item(n, item) for n, item in enumerate(options.input))
        return [
            CreateReply(
                self._session.overrides(options),
                options.metadata,
                event.event_id,
                aside=options.conversation == "none",
                context=context,
                note=self._session.shape_of(options),
            )
        ]

    def _context_item(self, n: int, item: NewItem) -> NewItemCommand | ItemReference:
        root = f"response.input[{n}]"
        if item.type != "item_reference":
            item_id = item.id or self._new_id()
            return command_for(item_id, item, None, self._taken, root)[0]
        if item.id is None or item.id not in self._items:
            message = f"There is no item {str(item.id)[:64]!r}."
            raise RemoteProtocolError("invalid_value", message, f"{root}.id")
        return ItemReference(self._items.session_id(item.id))

    def _response_cancel(self, event: ResponseCancel) -> list[SessionCommand]:
        named = reply_id(event.response_id) if event.response_id else None
        return [CancelReply(named, event.event_id)]

    @property
    def _taken(self) -> Taken:
        return Taken(self._transport.sees, self._session.input_encoding)

    def _known_item(self, item_id: str, code: str) -> Json:
        item = self._items.get(item_id)
        if item is None:
            raise RemoteProtocolError(code, f"There is no item {item_id[:64]!r}.", "item_id")
        return item

    def _new_id(self) -> str:
        return f"item_client_{next(self._numbers):x}"

    # --- from the session ---------------------------------------------------------------------------------------

    def _text_added(self, event: TextAdded) -> list[Json]:
        """An item the client created keeps its shape; any other (a session's own) is a message."""
        made = typed_item(event.item_id, event.role, event.text)
        item, after = self._pending.pop(event.item_id, (made, None))
        return [] if event.item_id in self._items else self._items.add_whole(item, after)

    def _item_deleted(self, event: ItemDeleted) -> list[Json]:
        item_id = self._items.wire_id(event.item_id)
        self._items.remove(item_id)
        return [{"type": "conversation.item.deleted", "item_id": item_id}]

    def _session_error(self, event: SessionError) -> list[Json]:
        if event.item_id is not None:
            self._pending.pop(event.item_id, None)
        return [_error(event.code, event.message, event.param, event.client_event_id)]

    def _settings_changed(self, event: SettingsChanged) -> list[Json]:
        self._session.adopt(event.settings)
        return [{"type": "session.updated", "session": self._session.full()}]

    def _reply_started(self, event: ReplyStarted) -> list[Json]:
        asked: Json = (event.request and event.request.note) or {}
        output = asked.get("output", self._session.output)
        text_only = self._session.text_only if event.text_only is None else event.text_only
        shape = ReplyShape(
            conversation_id=None if event.aside else f"conv_{self._session_id}",
            text_only=text_only,
            output=output,
            max_output_tokens=asked.get("max_output_tokens", self._session.max_output_tokens),
            metadata=event.metadata,
        )
        make = self._transport.encoder
        encoder = make(output["format"]["type"]) if make else None
        reply = WireReply(event.reply_id, shape, self._items, encoder)
        self._replies[event.reply_id] = reply
        if len(self._replies) > MAX_REPLIES:
            self._replies.popitem(last=False)
        return reply.open()

    def _of_reply(self, event: Any, act: Callable[[WireReply], list[Json]]) -> list[Json]:
        reply = self._replies.get(event.reply_id)
        return act(reply) if reply else []

    def _sent(self, event: Json) -> Json:
        return {"event_id": f"event_{next(self._numbers):x}_{self._session_id}"[:64], **event}


def _error(code: str, message: str, param: str | None, client_event_id: str | None) -> Json:
    kind = "server_error" if code.startswith(SERVER_CODES) else "invalid_request_error"
    error = {"type": kind, "code": code, "message": message[:500], "param": param and param[:200]}
    error["event_id"] = client_event_id and client_event_id[:512]
    return {"type": "error", "error": error}
