"""What a client changes in a conversation's history: items added or deleted, and a reply cut to what it played.

What was thought ahead was thought without the change, so it is thrown away. Knows no turn; of the floor it only asks to
stop a live reply that was cut.
"""

from collections.abc import Callable
from dataclasses import replace

from voice_agent.commands import AddSpoken, AddText, AddToolCall, AddToolResult, DeleteItem, TruncateReply
from voice_agent.events import SessionEvent, TextAdded, complaint
from voice_agent.items import add_item, delete_item
from voice_agent.replies import Replies
from voice_agent.speech.chat import Chat
from voice_agent.spoken_items import SpokenItems

LOOSE_MS = 500  # a client may say to have played that much more than it got: its clock is its own

HistoryEdit = AddText | AddSpoken | AddToolCall | AddToolResult | DeleteItem | TruncateReply


class HistoryEdits:
    """Makes a client's edits at once and tells what came of each; `stop_reply` stops the live reply."""

    def __init__(
        self,
        chat: Chat,
        replies: Replies,
        spoken: SpokenItems,
        emit: Callable[[SessionEvent], None],
        stop_reply: Callable[[], None],
    ) -> None:
        self._chat = chat
        self._replies = replies
        self._spoken = spoken
        self._emit = emit
        self._stop_reply = stop_reply

    def make(self, edit: HistoryEdit) -> None:
        """Change the history, or say why not."""
        match edit:
            case AddSpoken():
                self._add_spoken(edit)
            case DeleteItem():
                self._delete_item(edit)
            case TruncateReply():
                self._truncate(edit)
            case AddText() | AddToolCall() | AddToolResult():
                self._replies.throw_away_ahead()  # it was thought without the item
                self._emit(add_item(self._chat, edit))

    def _add_spoken(self, command: AddSpoken) -> None:
        """Keep the item's place; what is said in it is written there once it is recognized."""
        self._replies.throw_away_ahead()
        if refusal := self._spoken.refusal(command):
            error = complaint("rate_limit_exceeded", refusal, command, "item.content")
            self._emit(replace(error, item_id=command.item_id))
            return
        added = add_item(self._chat, command)
        self._emit(added)
        if isinstance(added, TextAdded):
            self._spoken.hear(command)

    def _delete_item(self, command: DeleteItem) -> None:
        self._replies.throw_away_ahead()
        run = self._replies.current
        if run and not run.done and run.reply_id == command.item_id:
            message = "The item is still being made; cancel its response first."
            self._emit(complaint("invalid_value", message, command, "item_id"))
        else:
            self._emit(delete_item(self._chat, command))

    def _truncate(self, command: TruncateReply) -> None:
        """The client says how much of a reply it played: that is what was heard."""
        run = self._replies.recent(command.reply_id)
        if run is None:
            message = "The item is too old to be truncated, or has no sound."
            self._emit(complaint("item_truncate_invalid_item_id", message, command, "item_id"))
        elif command.audio_end_ms > run.sound_ms + LOOSE_MS:
            message = f"Audio content of {run.sound_ms}ms is already shorter than {command.audio_end_ms}ms"
            self._emit(complaint("invalid_value", message, command, "audio_end_ms"))
        else:
            self._replies.throw_away_ahead()
            if run is self._replies.current:
                self._stop_reply()
            truncated = run.truncate(command.audio_end_ms)
            self._chat.truncate(run.reply_id, truncated.heard_text)
            self._emit(truncated)
