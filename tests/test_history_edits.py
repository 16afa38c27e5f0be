"""What each edit of a client's does to the history, and what the client is told of it."""

from typing import Any

import pytest

from tests.fakes import Stall, Wait
from tests.session_pieces import Pieces, spoken_item
from voice_agent.commands import (
    AddSpoken,
    AddText,
    AddToolCall,
    AddToolResult,
    CreateReply,
    DeleteItem,
    TruncateReply,
)
from voice_agent.engine.messages import Transcribe
from voice_agent.events import (
    ItemDeleted,
    ReplyDone,
    ReplyTruncated,
    SessionError,
    SoundTranscribed,
    TextAdded,
)
from voice_agent.history_edits import HistoryEdit, HistoryEdits
from voice_agent.media.wire_sound import MAX_WAITING_BYTES
from voice_agent.metrics import TurnTimeline
from voice_agent.turn.machine import Action, Event, Reply

FROG = "A small frog lives in the well."
LONG = [FROG, Wait(5000), " It sings."]  # still being made when a word was heard


class Edited:
    """A conversation with a question and a call that waits for its result, and who edits it."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces
        pieces.chat.add_user("q", "What lives there?")
        pieces.chat.add_call("f", "c1", "look", "{}")
        self.edits = HistoryEdits(
            pieces.chat, pieces.replies, pieces.spoken, pieces.told.append, lambda: pieces.tell(Event.CANCEL)
        )
        pieces.carry_out = self._carry_out

    def _carry_out(self, actions: tuple[Action, ...], *_: object) -> None:
        if Action.CANCEL in actions:
            self.pieces.replies.stop("client_cancelled")

    async def reply(self, ms: float) -> str:
        """A reply that was asked for so long ago."""
        self.pieces.replies.create(self.pieces.settings, CreateReply(), TurnTimeline(None))
        await self.pieces.settle(ms)
        run = self.pieces.replies.current
        assert run
        return run.reply_id

    def make(self, edit: HistoryEdit) -> list[Any]:
        """Make it; gives what the client was told at once."""
        before = len(self.pieces.told)
        self.edits.make(edit)
        return [one for one in self.pieces.told[before:] if not isinstance(one, Event)]

    @property
    def ids(self) -> list[str]:
        return [item.id for item in self.pieces.chat.items]

    def text(self, item_id: str) -> str | None:
        item = self.pieces.chat.get(item_id)
        return item.text if item else None


def refused(code: str, param: str, item_id: str | None) -> dict[str, Any]:
    """What an error must say; the client's own id of its command besides."""
    return {"code": code, "param": param, "client_event_id": "mine", "item_id": item_id}


def matches(event: Any, expected: Any) -> bool:
    """Whether the event is this one, or an error that says so."""
    if not isinstance(expected, dict):
        return event == expected
    return isinstance(event, SessionError) and all(getattr(event, k) == v for k, v in expected.items())


TAKEN = "item_create_duplicate_item_id"


@pytest.mark.parametrize(
    ("edit", "told", "ids"),
    [
        (AddText("a", "user", "And?"), TextAdded("a", "user", "And?"), ["q", "f", "a"]),
        (
            AddText("a", "system", "Be brief.", after="root"),
            TextAdded("a", "system", "Be brief."),
            ["a", "q", "f"],
        ),
        (AddText("a", "assistant", "Ah.", after="q"), TextAdded("a", "assistant", "Ah."), ["q", "a", "f"]),
        (AddText("a", "user", "And?", after="long gone"), TextAdded("a", "user", "And?"), ["q", "f", "a"]),
        (AddText("q", "user", "And?", "mine"), refused(TAKEN, "item.id", "q"), ["q", "f"]),
        (AddToolCall("g", "c2", "look", "{}"), TextAdded("g", "tool", "{}"), ["q", "f", "g"]),
        (
            AddToolCall("g", "c1", "look", "{}", "mine"),
            refused("invalid_value", "item.call_id", "g"),
            ["q", "f"],
        ),
        (AddToolResult("r", "c1", "a frog"), TextAdded("r", "tool", "a frog"), ["q", "f", "r"]),
        (
            AddToolResult("r", "c9", "a frog", "mine"),
            refused("invalid_value", "item.call_id", "r"),
            ["q", "f"],
        ),
        (spoken_item("s"), TextAdded("s", "user", ""), ["q", "f", "s"]),
        (spoken_item("q"), refused(TAKEN, "item.id", "q"), ["q", "f"]),
        (DeleteItem("q"), ItemDeleted("q"), ["f"]),
        (DeleteItem("long gone"), ItemDeleted("long gone"), ["q", "f"]),
        (
            TruncateReply("q", 0, "mine"),  # no reply
            refused("item_truncate_invalid_item_id", "item_id", None),
            ["q", "f"],
        ),
    ],
)
async def test_each_edit_is_made_at_once_or_refused(edit: HistoryEdit, told: Any, ids: list[str]) -> None:
    async with Pieces() as pieces:
        edited = Edited(pieces)
        (event,) = edited.make(edit)
        assert matches(event, told), event
        assert edited.ids == ids and edited.text("q") in {"What lives there?", None}


@pytest.mark.parametrize(
    "edit",
    [
        AddText("a", "user", "And?"),
        AddToolCall("g", "c2", "look", "{}"),
        AddToolResult("r", "c1", "a frog"),
        spoken_item("s"),
        DeleteItem("q"),
    ],
)
async def test_what_was_thought_without_the_edit_is_thrown_away(edit: HistoryEdit) -> None:
    async with Pieces(says=[[Stall()]]) as pieces:
        edited = Edited(pieces)
        pieces.replies.think_ahead(pieces.settings, "Why?", TurnTimeline("turn"))
        await pieces.settle()
        edited.make(edit)
        assert pieces.replies.ahead is None
        await pieces.settle()
        assert len(pieces.thinker.aborted) == 1


# --- items with sound -------------------------------------------------------------------------------------------


async def test_a_sound_has_its_place_before_its_words() -> None:
    async with Pieces(hears=[[Wait(300), "Who sings?"]]) as pieces:
        edited = Edited(pieces)
        edited.make(spoken_item("s"))
        edited.make(AddText("a", "user", "And why?"))
        assert pieces.spoken.waiting and edited.text("s") == ""
        await pieces.settle(400)
        (heard,) = pieces.of(SoundTranscribed)
        assert (heard.item_id, heard.text) == ("s", "Who sings?") and not pieces.spoken.waiting
        assert edited.ids == ["q", "f", "s", "a"] and edited.text("s") == "Who sings?"


async def test_what_is_not_in_the_conversation_is_not_heard() -> None:
    async with Pieces() as pieces:
        Edited(pieces).make(spoken_item("q"))
        await pieces.settle(100)
        assert not pieces.spoken.waiting and not pieces.recognizer.of_kind(Transcribe)


@pytest.mark.parametrize(("more_bytes", "taken"), [(0, True), (1, False)])
async def test_more_sound_than_may_wait_is_refused_and_leaves_no_trace(more_bytes: int, taken: bool) -> None:
    async with Pieces() as pieces:
        edited = Edited(pieces)
        edited.make(spoken_item("s", bytes(MAX_WAITING_BYTES - 1000)))
        (event,) = edited.make(spoken_item("t", bytes(1000 + more_bytes)))
        if taken:
            assert event == TextAdded("t", "user", "")
        else:
            assert matches(event, refused("rate_limit_exceeded", "item.content", "t")), event
        assert ("t" in edited.ids) is taken


async def test_of_a_deleted_item_no_words_come() -> None:
    async with Pieces(hears=[[Wait(300), "Who sings?"]]) as pieces:
        edited = Edited(pieces)
        item: AddSpoken = spoken_item("s")
        edited.make(item)
        edited.make(DeleteItem("s"))
        await pieces.settle(400)
        assert pieces.of(SoundTranscribed) == [] and edited.ids == ["q", "f"] and not pieces.spoken.waiting


# --- replies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "deleted"),
    [
        (LONG, False),
        ([FROG], True),  # whole: it only plays
    ],
)
async def test_a_reply_that_is_still_being_made_cannot_be_deleted(says: list[Any], deleted: bool) -> None:
    async with Pieces(says=[says]) as pieces:
        edited = Edited(pieces)
        reply_id = await edited.reply(500)
        (event,) = edited.make(DeleteItem(reply_id, "mine"))
        expected = ItemDeleted(reply_id) if deleted else refused("invalid_value", "item_id", None)
        assert matches(event, expected), event
        assert (reply_id in edited.ids) is not deleted
        assert edited.make(DeleteItem("q")) == [ItemDeleted("q")]  # others always
        assert pieces.machine.reply is Reply.SPEAKING  # nothing stops it


@pytest.mark.parametrize("says", [LONG, [FROG]])
@pytest.mark.parametrize("played_ms", [250, 1100])  # by our count, which the client knows better
async def test_a_cut_stops_the_live_reply_and_keeps_what_the_client_played(
    says: list[Any], played_ms: int
) -> None:
    async with Pieces(says=[says]) as pieces:
        edited = Edited(pieces)
        reply_id = await edited.reply(played_ms)
        *_, cut = edited.make(TruncateReply(reply_id, 450))
        assert cut == ReplyTruncated(reply_id, "A small", 450, by_client=True)
        assert edited.text(reply_id) == "A small" and pieces.floor[-1] is Event.CANCEL
        assert pieces.replies.current is None and pieces.output.played_samples(reply_id) > 0
        await pieces.settle()
        assert pieces.replies.alive() == [] and len(pieces.of(ReplyDone)) == 1


async def test_a_reply_that_was_live_is_cut_without_a_word_to_the_floor() -> None:
    async with Pieces(says=[[FROG], LONG]) as pieces:
        edited = Edited(pieces)
        earlier = await edited.reply(1000)
        await pieces.settle(500)
        assert pieces.floor[-1] is Event.OVER and edited.text(earlier) == FROG
        live = await edited.reply(500)
        assert edited.make(TruncateReply(earlier, 250)) == [ReplyTruncated(earlier, "A", 250, by_client=True)]
        assert edited.text(earlier) == "A"
        assert pieces.replies.current and pieces.replies.current.reply_id == live
        assert Event.CANCEL not in pieces.floor


@pytest.mark.parametrize(("beyond_ms", "taken"), [(0, True), (500, True), (501, False), (60_000, False)])
async def test_a_client_may_say_a_little_more_than_it_got(beyond_ms: int, taken: bool) -> None:
    async with Pieces(says=[[FROG]]) as pieces:
        edited = Edited(pieces)
        reply_id = await edited.reply(500)
        run = pieces.replies.current
        assert run and run.sound_ms == 1400
        told = edited.make(TruncateReply(reply_id, run.sound_ms + beyond_ms, "mine"))
        if taken:
            assert told[-1] == ReplyTruncated(reply_id, FROG, 1400 + beyond_ms, by_client=True)
        else:
            assert len(told) == 1 and matches(told[0], refused("invalid_value", "audio_end_ms", None))
            assert "1400ms" in told[0].message
        assert (pieces.replies.current is None) is taken


@pytest.mark.parametrize(("end_ms", "kept"), [(250, False), (60_000, True)])
async def test_a_cut_that_is_made_throws_away_what_was_thought_ahead(end_ms: int, kept: bool) -> None:
    async with Pieces(says=[[FROG], [Stall()]]) as pieces:
        edited = Edited(pieces)
        reply_id = await edited.reply(1000)
        pieces.tell(Event.CANCEL)
        pieces.replies.think_ahead(pieces.settings, "Why?", TurnTimeline("turn"))
        edited.make(TruncateReply(reply_id, end_ms))
        assert (pieces.replies.ahead is not None) is kept


async def test_a_reply_is_remembered_as_long_as_it_can_be_cut() -> None:
    """The one that was forgotten is refused, though its item is still there."""
    async with Pieces(says=["Oh."]) as pieces:
        edited = Edited(pieces)
        ids = list[str]()
        for _ in range(65):
            ids.append(await edited.reply(0))
            pieces.tell(Event.CANCEL)
        (event,) = edited.make(TruncateReply(ids[0], 0, "mine"))
        assert matches(event, refused("item_truncate_invalid_item_id", "item_id", None)), event
        assert edited.make(TruncateReply(ids[1], 0)) == [ReplyTruncated(ids[1], "", 0, by_client=True)]
