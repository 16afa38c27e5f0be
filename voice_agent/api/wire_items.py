"""The conversation as clients see it: items in order, each with the id of the one before it.

Only what the wire needs: the session's own history is elsewhere. The newest MAX_ITEMS can be retrieved; older ones
are forgotten here, not in the conversation.
"""

from collections import OrderedDict
from typing import Any

Json = dict[str, Any]
MAX_ITEMS = 1000


class WireItems:
    """Items by id; `last_id` is what the next one follows."""

    def __init__(self) -> None:
        self.last_id: str | None = None
        self._items: OrderedDict[str, Json] = OrderedDict()
        self._previous: dict[str, str | None] = {}

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._items

    def get(self, item_id: str) -> Json | None:
        """The item itself, not a copy: whoever closes it changes it here too."""
        return self._items.get(item_id)

    def previous(self, item_id: str) -> str | None:
        """The id of the item before it; None for the first and for forgotten ones."""
        return self._previous.get(item_id)

    def add(self, item: Json) -> Json:
        """Append an item; returns its conversation.item.added."""
        previous_id, self.last_id = self.last_id, item["id"]
        self._items[item["id"]] = item
        self._previous[item["id"]] = previous_id
        if len(self._items) > MAX_ITEMS:
            oldest_id, _ = self._items.popitem(last=False)
            del self._previous[oldest_id]
        return {"type": "conversation.item.added", "previous_item_id": previous_id, "item": item}

    def add_whole(self, item: Json) -> list[Json]:
        """Append an item that is complete from the start; returns added and done."""
        added = self.add(item)
        return [added, added | {"type": "conversation.item.done"}]


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
