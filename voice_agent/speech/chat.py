"""The conversation so far: items in order, and the messages a Thinker is given.

Kept is what happened: what the user said, what the agent said *and was heard*, tools called and what came of them.
`messages` renders it in OpenAI's chat form under rules that keep every request valid and its beginning stable (a
Thinker's prefix cache lives on that): items are only appended or cut at the end in the normal course; two messages
of one role in a row are merged (small models expect the roles to alternate); each tool call is followed by exactly
one result, "cancelled" if none came.

Bounded by `max_items`: past it the oldest turns leave whole, a quarter of the history at once, so that the prefix
does not move with every turn. System items outlive their turn. Knows nothing of engines, sound or the wire.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Literal

Role = Literal["user", "assistant", "system"]
Kind = Literal["message", "call", "result"]
Status = Literal["in_progress", "completed", "incomplete"]

ROOT = "root"  # insert after this: at the very front
CANCELLED = "cancelled"  # the result of a call that got none


@dataclass(frozen=True, slots=True)
class Item:
    """One thing in the conversation.

    A message has a role and text (of an interrupted reply: what was heard, possibly nothing). A call has `call_id`,
    `name` and its arguments as JSON in `text`; a result the same `call_id` and its output in `text`.
    """

    id: str
    kind: Kind
    text: str
    role: Role = "assistant"
    status: Status = "completed"
    interrupted: bool = False
    call_id: str = ""
    name: str = ""
    images: tuple[str, ...] = ()  # data URIs that a user's message shows
    sound_s: float = 0.0  # how much of a user's message was spoken


class Chat:
    """One conversation's history, in the order it is told to the Thinker."""

    def __init__(self, max_items: int = 400) -> None:
        if max_items < 4:
            raise ValueError("max_items must be at least 4")
        self._max_items = max_items
        self._items: list[Item] = []

    @property
    def items(self) -> tuple[Item, ...]:
        """All items in order."""
        return tuple(self._items)

    # --- items by id --------------------------------------------------------------------------------------------

    def get(self, item_id: str) -> Item | None:
        """Find an item."""
        place = self._place(item_id)
        return None if place is None else self._items[place]

    def insert(self, item: Item, after: str | None = None) -> bool:
        """Put an item after another, at the front after ROOT, at the end after None.

        False, and nothing changes, if `after` is unknown, the id is taken, or it is a result that no call waits for.
        """
        if self._place(item.id) is not None or not self._fits(item):
            return False
        place = self._after(after)
        if place is None:
            return False
        self._items.insert(place, item)
        self._drop_oldest()
        return True

    def delete(self, item_id: str) -> bool:
        """Take an item out; a call takes its result along. False if unknown."""
        item = self.get(item_id)
        if item is None:
            return False
        gone = {item.id}
        if item.kind == "call":
            gone |= {
                other.id for other in self._items if other.kind == "result" and other.call_id == item.call_id
            }
        self._items = [other for other in self._items if other.id not in gone]
        return True

    # --- what happens in a conversation -------------------------------------------------------------------------

    def add_user(self, turn_id: str, text: str) -> bool:
        """Append what the user said or typed; False if the id is taken."""
        return self.insert(Item(turn_id, "message", text, "user"))

    @property
    def sound_s(self) -> float:
        """Seconds of the user's sound in the conversation."""
        return sum(item.sound_s for item in self._items)

    def write_user(self, turn_id: str, text: str, sound_s: float = 0.0) -> bool:
        """The words of a turn whose place in the conversation was kept; False if it is not there any more."""
        place = self._place(turn_id)
        if place is None:
            return False
        self._items[place] = replace(self._items[place], text=text, sound_s=sound_s)
        return True

    def add_system(self, item_id: str, text: str) -> bool:
        """Append an instruction in mid-conversation; False if the id is taken."""
        return self.insert(Item(item_id, "message", text, "system"))

    def add_assistant(self, reply_id: str, text: str) -> bool:
        """Set what a reply says so far; call again as it grows. Ignored (False) once it was heard or finished."""
        place = self._place(reply_id)
        if place is None:
            return self.insert(Item(reply_id, "message", text, "assistant", "in_progress"))
        item = self._items[place]
        if item.role != "assistant" or item.status != "in_progress":
            return False
        self._items[place] = replace(item, text=text)
        return True

    def finish(self, reply_id: str) -> bool:
        """The reply was played to its end: nothing can shorten it any more."""
        place = self._place(reply_id)
        if place is None or self._items[place].status != "in_progress":
            return False
        self._items[place] = replace(self._items[place], status="completed")
        return True

    def hear(self, reply_id: str, heard_text: str) -> bool:
        """The reply was interrupted: keep what was heard. Nothing heard: it stays known, but is no message.

        False for unknown and finished replies; called again it can only shorten.
        """
        item = self.get(reply_id)
        if item is None or item.kind != "message" or item.status == "completed":
            return False
        shorter = heard_text if not item.interrupted or len(heard_text) < len(item.text) else item.text
        return self._truncate(item, shorter)

    def truncate(self, reply_id: str, heard_text: str) -> bool:
        """A client that does its own playing says what was heard: believed even of a finished reply."""
        item = self.get(reply_id)
        if item is None or item.kind != "message" or item.role != "assistant":
            return False
        return self._truncate(item, heard_text)

    def add_call(self, item_id: str, call_id: str, name: str, arguments: str) -> bool:
        """Append a tool call, whole. False if the item's or the call's id is taken."""
        return self.insert(Item(item_id, "call", arguments, call_id=call_id, name=name))

    def add_result(self, item_id: str, call_id: str, output: str) -> bool:
        """Record a call's result. False, and ignored, if no call waits for it: unknown, answered or cancelled."""
        return self.insert(Item(item_id, "result", output, call_id=call_id))

    def open_calls(self) -> tuple[str, ...]:
        """Ids of the calls without a result, oldest first."""
        answered = {item.call_id for item in self._items if item.kind == "result"}
        return tuple(i.call_id for i in self._items if i.kind == "call" and i.call_id not in answered)

    def cancel_calls(self) -> tuple[str, ...]:
        """Give every open call the result "cancelled", so that a late one is ignored; returns their ids."""
        cancelled = self.open_calls()
        for call_id in cancelled:
            call = next(item for item in self._items if item.kind == "call" and item.call_id == call_id)
            self.insert(Item(f"{call.id}.{CANCELLED}", "result", CANCELLED, call_id=call_id))
        return cancelled

    # --- for the Thinker ----------------------------------------------------------------------------------------

    def messages(self, instructions: str, provisional: str = "") -> list[dict[str, Any]]:
        """Render the conversation in OpenAI's chat form; `instructions` come first unless empty.

        `provisional` is what the user may be saying just now: rendered last, exactly as if it had been added.
        """
        results = {item.call_id: item.text for item in self._items if item.kind == "result"}
        rendered: list[dict[str, Any]] = []
        if instructions:
            rendered.append({"role": "system", "content": instructions})
        in_round = False  # calls made before the first result belong to one message of the assistant
        for item in self._items:
            if item.kind == "call":
                _append_call(rendered, item, results.get(item.call_id, CANCELLED), in_round)
                in_round = True
            elif item.kind == "result":
                in_round = False
            elif item.kind == "message" and (item.text.strip() or item.images):
                _append_message(rendered, item)
        if provisional.strip():
            _append_message(rendered, Item("", "message", provisional, "user"))
        return rendered

    # --- inside -------------------------------------------------------------------------------------------------

    def _place(self, item_id: str) -> int | None:
        # From the end: what is asked for is nearly always recent.
        for place in range(len(self._items) - 1, -1, -1):
            if self._items[place].id == item_id:
                return place
        return None

    def _after(self, item_id: str | None) -> int | None:
        if item_id is None:
            return len(self._items)
        if item_id == ROOT:
            return 0
        place = self._place(item_id)
        return None if place is None else place + 1

    def _fits(self, item: Item) -> bool:
        if item.kind == "call":
            return all(other.kind != "call" or other.call_id != item.call_id for other in self._items)
        return item.kind != "result" or item.call_id in self.open_calls()

    def _truncate(self, item: Item, heard_text: str) -> bool:
        place = self._place(item.id)
        assert place is not None
        self._items[place] = replace(item, text=heard_text, status="incomplete", interrupted=True)
        return True

    def _drop_oldest(self) -> None:
        if len(self._items) <= self._max_items:
            return
        surplus = len(self._items) - self._max_items * 3 // 4
        turns = [n for n, item in enumerate(self._items) if item.kind == "message" and item.role == "user"]
        # Up to the first turn that begins late enough; a single endless turn is cut inside.
        cut = next(
            (start for start in turns if start >= surplus), turns[-1] if turns and turns[-1] else surplus
        )
        kept_calls = {item.call_id for item in self._items[cut:] if item.kind == "call"}
        system = [item for item in self._items[:cut] if item.role == "system"][-self._max_items // 4 :]
        rest = [item for item in self._items[cut:] if item.kind != "result" or item.call_id in kept_calls]
        self._items = system + rest
        if len(self._items) > self._max_items:
            self._items = self._items[-self._max_items :]


def _append_message(rendered: list[dict[str, Any]], item: Item) -> None:
    last = rendered[-1] if rendered else None
    is_instructions = len(rendered) == 1 and item.role == "system"
    seen = bool(item.images) or (last is not None and not isinstance(last["content"], str))
    if last is None or last["role"] != item.role or "tool_calls" in last or is_instructions or seen:
        rendered.append({"role": item.role, "content": _content(item)})
    else:
        last["content"] += ("\n" if item.role != "assistant" else " ") + item.text


def _content(item: Item) -> str | list[dict[str, Any]]:
    """The text alone, or images and text as parts."""
    if not item.images:
        return item.text
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in item.images]
    return [*parts, *([{"type": "text", "text": item.text}] if item.text else [])]


def _append_call(rendered: list[dict[str, Any]], item: Item, result: str, in_round: bool) -> None:
    """Add a call to the assistant's message it belongs to (the lead-in, or calls of the round), its result behind."""
    call = {
        "id": item.call_id,
        "type": "function",
        "function": {"name": item.name, "arguments": _valid(item.text)},
    }
    owner = len(rendered) - 1
    while in_round and owner >= 0 and rendered[owner]["role"] == "tool":
        owner -= 1
    if owner < 0 or rendered[owner]["role"] != "assistant":
        rendered.append({"role": "assistant", "content": ""})
        owner = len(rendered) - 1
    rendered[owner].setdefault("tool_calls", []).append(call)
    rendered.append({"role": "tool", "tool_call_id": item.call_id, "content": result})


def _valid(arguments: str) -> str:
    """Return the arguments if they are a JSON object: chat templates parse them, and a bad one spoils all requests."""
    try:
        parsed: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return "{}"
    return arguments if isinstance(parsed, dict) else "{}"
