"""OpenAI's Realtime protocol (GA shape) over WebRTC, without I/O.

Client text in, commands for the session out (`receive`); session events in, server events out (`translate`).
What is answered here at once (errors, retrieved items) waits in `events_to_send`. Never raises for what a client
sends. Sound is on the track: no audio event crosses here. The mapping lives in wire_session, wire_reply, wire_items.
"""

import itertools
import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from voice_agent.api.parse import parse_event, parse_session, read_object
from voice_agent.api.schema import (
    ClientEvent,
    ItemCreate,
    ItemNamed,
    ItemTruncate,
    NewItem,
    ResponseCancel,
    ResponseCreate,
    SessionUpdate,
)
from voice_agent.api.wire_items import Json, WireItems, result_item, spoken_item, typed_item
from voice_agent.api.wire_reply import ReplyShape, WireReply, reply_id
from voice_agent.api.wire_session import WireSession
from voice_agent.errors import RemoteProtocolError
from voice_agent.events import (
    AddText,
    AddToolResult,
    CancelReply,
    ClearInput,
    ClearOutput,
    CommitInput,
    CreateReply,
    InputCleared,
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    ReplyToolCall,
    ReplyTruncated,
    SessionCommand,
    SessionError,
    SessionEvent,
    SessionSettings,
    SettingsChanged,
    SpeechStarted,
    SpeechStopped,
    TextAdded,
    TranscriptionFailed,
    TurnCommitted,
    TurnTranscribed,
    UpdateSettings,
)

MAX_REPLIES = 64  # closed ones are kept for the playout events that come after
MAX_PENDING_ITEMS = 64  # created, not yet taken in by the session
SERVER_CODES = ("engine_", "internal_", "weights_", "thinker_")
TEXT_PARTS = {"input_text", "output_text", "text"}


class RealtimeProtocol:
    """One session's protocol state.

    `_pending` holds items that were created and are not yet taken in; the session answers each AddText and
    AddToolResult with TextAdded, and each UpdateSettings (also an empty one) with SettingsChanged.
    """

    def __init__(self, session_id: str, model: str, settings: SessionSettings) -> None:
        self._session = WireSession(session_id, model, settings)
        self._session_id = session_id
        self._items = WireItems()
        self._replies: OrderedDict[str, WireReply] = OrderedDict()
        self._pending: dict[str, Json] = {}
        self._outbox: list[str] = []
        self._numbers = itertools.count(1)
        self._on_client: dict[str, Callable[[Any], list[SessionCommand]]] = {
            "session.update": self._session_update,
            "conversation.item.create": self._item_create,
            "conversation.item.retrieve": self._item_retrieve,
            "conversation.item.delete": self._item_delete,
            "conversation.item.truncate": self._item_truncate,
            "response.create": self._response_create,
            "response.cancel": self._response_cancel,
            "input_audio_buffer.append": self._append,
            "input_audio_buffer.commit": lambda event: [CommitInput(event.event_id)],
            "input_audio_buffer.clear": lambda event: [ClearInput()],
            "output_audio_buffer.clear": lambda event: [ClearOutput()],
        }
        self._on_session: dict[type, Callable[[Any], list[Json]]] = {
            SpeechStarted: self._speech_started,
            SpeechStopped: self._speech_stopped,
            TurnCommitted: self._turn_committed,
            TurnTranscribed: self._turn_transcribed,
            TranscriptionFailed: self._transcription_failed,
            InputCleared: lambda event: [{"type": "input_audio_buffer.cleared"}],
            TextAdded: self._text_added,
            SettingsChanged: self._settings_changed,
            ReplyStarted: self._reply_started,
            ReplyText: lambda event: self._of_reply(event, lambda reply: reply.delta(event.delta)),
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

        Raises RemoteProtocolError, nothing applied.
        """
        return self._session.update(parse_session(session))

    def adopt(self, settings: SessionSettings) -> None:
        """The session as it really is, before it starts."""
        self._session.adopt(settings)

    def opening(self) -> list[str]:
        """session.created: the first thing a client hears, with the session as it is now."""
        return [self._sent({"type": "session.created", "session": self._session.full()})]

    def receive(self, text: str) -> list[SessionCommand]:
        """Take one client event; an error goes to `events_to_send`, and nothing of that event is applied."""
        event_id: Any = None
        try:
            value = read_object(text)
            event_id = value.get("event_id")
            event = parse_event(value)
            return self._on_client[event.type](event)
        except RemoteProtocolError as error:
            client_id = event_id if isinstance(event_id, str) else None
            self._outbox.append(self._sent(_error(error.code, str(error), error.param, client_id)))
            return []

    def events_to_send(self) -> list[str]:
        """What `receive` answered by itself, in order; empties the list."""
        sending, self._outbox = self._outbox, []
        return sending

    def translate(self, event: SessionEvent) -> list[str]:
        """Server events for one session event; none for a reply that is unknown or over."""
        return [self._sent(one) for one in self._on_session[type(event)](event)]

    # --- from the client ----------------------------------------------------------------------------------------

    def _session_update(self, event: SessionUpdate) -> list[SessionCommand]:
        """Also without changes: the session answers with SettingsChanged, which becomes session.updated."""
        return [UpdateSettings(self._session.update(event.session))]

    def _item_create(self, event: ItemCreate) -> list[SessionCommand]:
        item_id = event.item.id or f"item_client_{next(self._numbers):x}"
        if item_id in self._items or item_id in self._pending:
            raise RemoteProtocolError(
                "item_create_duplicate_item_id", f"The item {item_id!r} exists.", "item.id"
            )
        self._refuse_position(event.previous_item_id)
        if len(self._pending) >= MAX_PENDING_ITEMS:
            raise RemoteProtocolError(
                "rate_limit_exceeded", "Too many items at once; wait for them to be added."
            )
        command, item = _command_for(item_id, event.item, event.event_id)
        self._pending[item_id] = item
        return [command]

    def _refuse_position(self, previous_id: str | None) -> None:
        last_id = next(reversed(self._pending), self._items.last_id)
        if previous_id is None or previous_id == last_id or (previous_id == "root" and last_id is None):
            return
        if previous_id == "root" or previous_id in self._items or previous_id in self._pending:
            message = f"Items can only be added at the end here; leave it out or name {last_id!r}."
        else:
            message = f"There is no item {previous_id[:64]!r}."
        raise RemoteProtocolError("invalid_value", message, "previous_item_id")

    def _item_retrieve(self, event: ItemNamed) -> list[SessionCommand]:
        item = self._known_item(event.item_id, "item_retrieve_invalid_item_id")
        self._outbox.append(self._sent({"type": "conversation.item.retrieved", "item": item}))
        return []

    def _item_delete(self, event: ItemNamed) -> list[SessionCommand]:
        self._known_item(event.item_id, "item_delete_invalid_item_id")
        raise RemoteProtocolError("unsupported_value", "Items cannot be deleted on this server.", "item_id")

    def _item_truncate(self, event: ItemTruncate) -> list[SessionCommand]:
        self._known_item(event.item_id, "item_truncate_invalid_item_id")
        message = "Over WebRTC the server knows what was played and truncates by itself; use output_audio_buffer.clear."
        raise RemoteProtocolError("invalid_event_for_transport", message, "type")

    def _append(self, event: ClientEvent) -> list[SessionCommand]:
        message = "Over WebRTC sound comes from the audio track, not from input_audio_buffer.append."
        raise RemoteProtocolError("invalid_event_for_transport", message, "type")

    def _response_create(self, event: ResponseCreate) -> list[SessionCommand]:
        options = event.response
        if options is None:
            return [CreateReply(client_event_id=event.event_id)]
        if options.conversation == "none" or options.input is not None:
            param = "response.conversation" if options.conversation == "none" else "response.input"
            message = "Replies outside the conversation are not supported on this server."
            raise RemoteProtocolError("unsupported_value", message, param)
        return [CreateReply(self._session.overrides(options), options.metadata, event.event_id)]

    def _response_cancel(self, event: ResponseCancel) -> list[SessionCommand]:
        named = reply_id(event.response_id) if event.response_id else None
        return [CancelReply(named, event.event_id)]

    def _known_item(self, item_id: str, code: str) -> Json:
        item = self._items.get(item_id)
        if item is None:
            raise RemoteProtocolError(code, f"There is no item {item_id[:64]!r}.", "item_id")
        return item

    # --- from the session ---------------------------------------------------------------------------------------

    def _speech_started(self, event: SpeechStarted) -> list[Json]:
        kind = "input_audio_buffer.speech_started"
        return [{"type": kind, "audio_start_ms": event.audio_start_ms, "item_id": _turn_item(event.turn_id)}]

    def _speech_stopped(self, event: SpeechStopped) -> list[Json]:
        kind = "input_audio_buffer.speech_stopped"
        return [{"type": kind, "audio_end_ms": event.audio_end_ms, "item_id": _turn_item(event.turn_id)}]

    def _turn_committed(self, event: TurnCommitted) -> list[Json]:
        item_id = _turn_item(event.turn_id)
        committed = {
            "type": "input_audio_buffer.committed",
            "item_id": item_id,
            "previous_item_id": self._items.last_id,
        }
        return [committed, *self._items.add_whole(spoken_item(item_id))]

    def _turn_transcribed(self, event: TurnTranscribed) -> list[Json]:
        item_id = _turn_item(event.turn_id)
        if item := self._items.get(item_id):
            item["content"] = [{"type": "input_audio", "transcript": event.text}]
        if not self._session.transcribes:
            return []
        return [
            {
                "type": "conversation.item.input_audio_transcription.completed",
                "item_id": item_id,
                "content_index": 0,
                "transcript": event.text,
                "usage": {"type": "duration", "seconds": round(event.audio_seconds, 3)},
            }
        ]

    def _transcription_failed(self, event: TranscriptionFailed) -> list[Json]:
        if not self._session.transcribes:
            return []
        return [
            {
                "type": "conversation.item.input_audio_transcription.failed",
                "item_id": _turn_item(event.turn_id),
                "content_index": 0,
                "error": {"type": "server_error", "code": event.code, "message": event.message},
            }
        ]

    def _text_added(self, event: TextAdded) -> list[Json]:
        """An item the client created keeps its shape; any other (a session's own) is a message."""
        item = self._pending.pop(event.item_id, None) or typed_item(event.item_id, event.role, event.text)
        return [] if event.item_id in self._items else self._items.add_whole(item)

    def _session_error(self, event: SessionError) -> list[Json]:
        if event.item_id is not None:
            self._pending.pop(event.item_id, None)
        return [_error(event.code, event.message, event.param, event.client_event_id)]

    def _settings_changed(self, event: SettingsChanged) -> list[Json]:
        self._session.adopt(event.settings)
        return [{"type": "session.updated", "session": self._session.full()}]

    def _reply_started(self, event: ReplyStarted) -> list[Json]:
        shape = ReplyShape(
            conversation_id=f"conv_{self._session_id}",
            text_only=self._session.text_only if event.text_only is None else event.text_only,
            output=self._session.output,
            max_output_tokens=self._session.max_output_tokens,
            metadata=event.metadata,
        )
        reply = WireReply(event.reply_id, shape, self._items)
        self._replies[event.reply_id] = reply
        if len(self._replies) > MAX_REPLIES:
            self._replies.popitem(last=False)
        return reply.open()

    def _of_reply(self, event: Any, act: Callable[[WireReply], list[Json]]) -> list[Json]:
        reply = self._replies.get(event.reply_id)
        return act(reply) if reply else []

    def _sent(self, event: Json) -> str:
        """One frame: ASCII, so that nothing in it can fail to be encoded."""
        return json.dumps({"event_id": f"event_{next(self._numbers):x}_{self._session_id}"[:64], **event})


def _turn_item(turn_id: str) -> str:
    return f"item_{turn_id}"


def _error(code: str, message: str, param: str | None, client_event_id: str | None) -> Json:
    kind = "server_error" if code.startswith(SERVER_CODES) else "invalid_request_error"
    error = {"type": kind, "code": code, "message": message[:500], "param": param and param[:200]}
    error["event_id"] = client_event_id and client_event_id[:512]
    return {"type": "error", "error": error}


def _command_for(item_id: str, item: NewItem, event_id: str | None) -> tuple[SessionCommand, Json]:
    """A new item's command and its shape on the wire; raises RemoteProtocolError."""
    if item.type == "function_call_output":
        if item.call_id is None or item.output is None:
            param = "item.call_id" if item.call_id is None else "item.output"
            raise RemoteProtocolError(
                "missing_required_parameter", f"Missing required parameter: '{param}'.", param
            )
        command = AddToolResult(item_id, item.call_id, item.output, event_id)
        return command, result_item(item_id, item.call_id, item.output)
    if item.type != "message":
        raise RemoteProtocolError(
            "unsupported_value", f"Items of type {item.type} cannot be added.", "item.type"
        )
    if item.role is None or item.content is None:
        param = "item.role" if item.role is None else "item.content"
        raise RemoteProtocolError(
            "missing_required_parameter", f"Missing required parameter: '{param}'.", param
        )
    text = _text_of(item)
    return AddText(item_id, item.role, text, event_id), typed_item(item_id, item.role, text)


def _text_of(item: NewItem) -> str:
    texts: list[str] = []
    for n, part in enumerate(item.content or []):
        param = f"item.content[{n}]"
        if part.type not in TEXT_PARTS:
            message = (
                f"Parts of type {part.type} cannot be taken here; speak on the audio track or send text."
            )
            raise RemoteProtocolError("unsupported_value", message, f"{param}.type")
        if part.text is None:
            raise RemoteProtocolError(
                "missing_required_parameter", f"Missing required parameter: '{param}.text'.", f"{param}.text"
            )
        texts.append(part.text)
    return "\n".join(texts)
