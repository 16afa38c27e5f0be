"""The client's own items in a session's history: added at a place, deleted, or gathered into a reply's own context.

Knows no turn and no reply; answers each command with the one event that its transport is to be told.
"""

from voice_agent.commands import (
    AddSpoken,
    AddText,
    AddToolCall,
    AddToolResult,
    DeleteItem,
    ItemReference,
    NewItem,
)
from voice_agent.events import ItemDeleted, SessionError, TextAdded
from voice_agent.speech.chat import Chat, Item
from voice_agent.spoken_items import written

NO_CALL = "no function call {!r} waits for a result"


def add_item(chat: Chat, command: NewItem) -> TextAdded | SessionError:
    """Put an item where the client wants it."""
    item, role = _item(command), _role(command)
    after = command.after
    if after is not None and after != "root" and chat.get(after) is None:
        after = None  # one that the history has let go of
    if chat.insert(item, after):
        return TextAdded(item.id, role, item.text)
    code, param = "item_create_duplicate_item_id", "item.id"
    message = f"there is an item {item.id!r} already"
    if chat.get(item.id) is None:
        code, param = "invalid_value", "item.call_id"
        message = f"there is a function call {item.call_id!r} already"
        if item.kind == "result":
            message = NO_CALL.format(item.call_id)
    return SessionError(code, message, param, command.client_event_id, item.id)


def delete_item(chat: Chat, command: DeleteItem) -> ItemDeleted:
    """Take an item out; one that the history has let go of is gone already."""
    chat.delete(command.item_id)
    return ItemDeleted(command.item_id)


def context_of(chat: Chat, items: tuple[NewItem | ItemReference, ...]) -> Chat:
    """A history of its own out of given items and references; what is not known any more is left out."""
    context = Chat()
    for entry in items:
        item = chat.get(entry.item_id) if isinstance(entry, ItemReference) else _item(entry)
        if item is not None:
            context.insert(item)
    return context


def _item(command: NewItem) -> Item:
    match command:
        case AddText():
            return Item(
                command.item_id,
                "message",
                command.text,
                command.role,
                images=command.images,
                sound_s=command.sound_s,
            )
        case AddSpoken():
            return _item(written(command, {}))
        case AddToolCall():
            return Item(
                command.item_id, "call", command.arguments, call_id=command.call_id, name=command.name
            )
        case AddToolResult():
            return Item(command.item_id, "result", command.output, call_id=command.call_id)


def _role(command: NewItem) -> str:
    if isinstance(command, AddSpoken):
        return "user"
    return command.role if isinstance(command, AddText) else "tool"
