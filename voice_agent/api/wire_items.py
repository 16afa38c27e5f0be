"""The conversation as clients see it: items in order, each with the id of the one before it.

Only what the wire needs: the session's own history is elsewhere, and knows some items by another id. The newest
MAX_ITEMS can be retrieved; older ones are forgotten here, not in the conversation.
"""

from typing import Any

Json = dict[str, Any]
MAX_ITEMS = 1000
ROOT = "root"  # as the id before it: the very front


class WireItems:
    """Items by id, `_order` their ids in order, `_session_ids` what the session calls them where that differs."""

    def __init__(self) -> None:
        self._items: dict[str, Json] = {}
        self._order: list[str] = []
        self._session_ids: dict[str, str] = {}

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._items

    @property
    def last_id(self) -> str | None:
        """What the next item follows."""
        return self._order[-1] if self._order else None

    def get(self, item_id: str) -> Json | None:
        """The item itself, not a copy: whoever closes it changes it here too."""
        return self._items.get(item_id)

    def session_id(self, item_id: str) -> str:
        """The item's id in the session."""
        return self._session_ids.get(item_id, item_id)

    def wire_id(self, session_id: str) -> str:
        """The id on the wire of an item of the session."""
        named = (item_id for item_id, own in self._session_ids.items() if own == session_id)
        return next(named, session_id)

    def previous(self, item_id: str) -> str | None:
        """The id of the item before it; None for the first and for forgotten ones."""
        if item_id not in self._items:
            return None
        place = len(self._order) - 1 - self._order[::-1].index(item_id)  # it is nearly always a late one
        return self._order[place - 1] if place else None

    def add(self, item: Json, after: str | None = None, session_id: str | None = None) -> Json:
        """Put an item after another, at the front after ROOT, else at the end; returns its conversation.item.added."""
        item_id = item["id"]
        self._items[item_id] = item
        if session_id is not None and session_id != item_id:
            self._session_ids[item_id] = session_id
        if after == ROOT:
            self._order.insert(0, item_id)
        elif after in self._items:
            self._order.insert(self._order.index(after) + 1, item_id)
        else:
            self._order.append(item_id)
        added = {
            "type": "conversation.item.added",
            "previous_item_id": self.previous(item_id),
            "item": item,
        }
        if len(self._order) > MAX_ITEMS:
            self.remove(self._order[1] if self._order[0] == item_id else self._order[0])
        return added

    def add_whole(self, item: Json, after: str | None = None, session_id: str | None = None) -> list[Json]:
        """Add an item that is complete from the start; returns added and done."""
        added = self.add(item, after, session_id)
        return [added, added | {"type": "conversation.item.done"}]

    def remove(self, item_id: str) -> bool:
        """Forget an item; False if it is not known."""
        if self._items.pop(item_id, None) is None:
            return False
        self._order.remove(item_id)
        self._session_ids.pop(item_id, None)
        return True


def message_item(item_id: str, role: str, content: list[Json], status: str = "completed") -> Json:
    """A message; keys that do not apply are absent, never null."""
    return {
        "id": item_id,
        "object": "realtime.item",
        "type": "message",
        "status": status,
        "role": role,
        "content": content,
    }


def typed_item(item_id: str, role: str, text: str) -> Json:
    """A written message of either side."""
    kind = "output_text" if role == "assistant" else "input_text"
    return message_item(item_id, role, [{"type": kind, "text": text}])


def spoken_item(item_id: str) -> Json:
    """A turn of the user; the transcript comes when the recognizer has it."""
    return message_item(item_id, "user", [{"type": "input_audio", "transcript": None}])


def call_item(item_id: str, call_id: str, name: str, arguments: str, status: str) -> Json:
    """A function call of the agent."""
    return {
        "id": item_id,
        "object": "realtime.item",
        "type": "function_call",
        "status": status,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def result_item(item_id: str, call_id: str, output: str) -> Json:
    """What a function gave, from the client."""
    return {
        "id": item_id,
        "object": "realtime.item",
        "type": "function_call_output",
        "status": "completed",
        "call_id": call_id,
        "output": output,
    }
