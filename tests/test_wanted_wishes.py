"""What a client's wish for a reply does to the replies that are there, and how a wish is taken back."""

from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import Fail, Stall, Wait
from tests.session_pieces import Pieces, spoken_item
from tests.test_wanted_replies import MINE, SLOW, SLOW_MS, Wanting
from voice_agent.commands import AddText, CancelReply, CreateReply
from voice_agent.engine.messages import Transcribe
from voice_agent.events import ReplyDone, ReplyStarted
from voice_agent.media.wire_sound import MAX_WAITING_BYTES
from voice_agent.turn.machine import Event, Reply, User

LIMIT = "rate_limit_exceeded"
NOT_ACTIVE = "response_cancel_not_active"
TEXT = (AddText("own", "user", "Is it rude?"),)
SOUND = (*TEXT, spoken_item("s"))
STALLED: list[Any] = [[Stall()]]


def statuses(pieces: Pieces) -> list[str]:
    return [event.status for event in pieces.of(ReplyDone)]


# --- room for the reply -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("live_ms", "floor", "first_ends"),
    [
        (None, [Event.REPLY], []),
        (0, [Event.REPLY, Event.CANCEL, Event.REPLY], ["cancelled"]),  # still being made
        (200, [Event.REPLY, Event.SOUND, Event.OVER, Event.REPLY], ["completed"]),  # only plays
    ],
)
async def test_what_is_being_made_is_stopped_for_a_wish_and_what_only_plays_is_played_out(
    live_ms: int | None, floor: list[Event], first_ends: list[str]
) -> None:
    async with Pieces() as pieces:
        wanting = Wanting(pieces)
        if live_ms is not None:
            wanting.wanted.create(CreateReply())
        if live_ms:
            await pieces.settle(live_ms)
        wanting.wanted.create(MINE)
        assert pieces.floor == floor and statuses(pieces) == first_ends
        await pieces.settle(2000)
        started: list[ReplyStarted] = pieces.of(ReplyStarted)
        assert statuses(pieces) == [*first_ends, "completed"]
        assert started[-1].request is MINE and pieces.output.played_samples(started[-1].reply_id) > 0
        if live_ms:
            written = pieces.output.written(started[0].reply_id)
            played = pieces.output.played_samples(started[0].reply_id)
            assert played == sum(len(chunk.samples) for chunk in written)


async def test_a_wish_answers_the_open_question_too() -> None:
    async with Pieces() as pieces:
        wanting = Wanting(pieces)
        wanting.wanted.create(CreateReply())
        await pieces.settle(200)
        wanting.ask()  # while the reply plays
        wanting.wanted.create(MINE)
        await pieces.settle(3000)
        assert wanting.replies == ["wish", "wish"]


async def test_a_wish_has_a_timeline_of_its_own_that_begins_with_it_and_an_aside_none() -> None:
    async with Pieces() as pieces:
        wanting = Wanting(pieces)
        await pieces.settle(40)
        wanting.wanted.create(CreateReply({"instructions": "Be kind."}))
        wanting.wanted.create(CreateReply(aside=True))
        (timeline,) = wanting.kept
        run = pieces.replies.current
        assert run and run.timeline is timeline
        assert (timeline.turn_id, timeline.voiced_ns) == (None, 40_000_000)
        await pieces.settle()
        assert pieces.asked() == ["Be kind.", ""]


async def test_an_aside_stops_nothing() -> None:
    async with Pieces(says=STALLED) as pieces:
        wanting = Wanting(pieces)
        wanting.ask()
        wanting.wanted.create(CreateReply(aside=True))
        assert wanting.replies == ["turn", "aside"] and statuses(pieces) == []
        assert pieces.machine.reply is Reply.THINKING and pieces.floor == [Event.REPLY]


async def test_the_settings_of_the_moment_hold_for_wishes_too() -> None:
    async with Pieces() as pieces:
        wanting = Wanting(pieces)
        pieces.settings = replace(pieces.settings, instructions="Be long.")
        wanting.wanted.create(CreateReply())
        wanting.wanted.create(CreateReply(aside=True))
        await pieces.settle()
        assert pieces.asked() == ["Be long.", "Be long."]


# --- sound in a reply's own context -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "heard", "asked"),
    [(None, 0, ""), (TEXT, 0, "Is it rude?"), (SOUND, 1, "Is it rude?\nWhy?")],
)
@pytest.mark.parametrize("aside", [True, False])
async def test_sound_in_the_context_is_recognized_before_the_reply_is_asked_for(
    context: Any, heard: int, asked: str, aside: bool
) -> None:
    async with Pieces(hears=SLOW) as pieces:
        wanting = Wanting(pieces)
        pieces.machine.user = User.SPEAKING
        wanting.wanted.ask(CreateReply(aside=aside, context=context))
        assert len(wanting.replies) == 1 - heard
        await pieces.settle(SLOW_MS)
        assert wanting.replies == ["aside" if aside else "wish"] and pieces.asked() == [asked]
        assert len(pieces.recognizer.of_kind(Transcribe)) == heard


async def test_more_sound_than_may_wait_is_refused() -> None:
    async with Pieces() as pieces:
        wanting = Wanting(pieces)
        wanting.wanted.ask(replace(MINE, context=(spoken_item("s", bytes(MAX_WAITING_BYTES + 1)),)))
        (error,) = wanting.errors
        assert (error.code, error.param, error.client_event_id) == (LIMIT, "response.input", "mine")
        assert not pieces.spoken.forget_asked() and wanting.replies == []


async def test_a_sound_that_cannot_be_recognized_fails_its_wish_alone() -> None:
    async with Pieces(hears=[[Fail("busy")], [Wait(SLOW_MS), "Why?"]]) as pieces:
        wanting = Wanting(pieces)
        wanting.wanted.ask(replace(MINE, context=SOUND))
        wanting.wanted.ask(CreateReply(context=SOUND))
        await pieces.settle(SLOW_MS)
        assert [(error.code, error.client_event_id) for error in wanting.errors] == [("busy", "mine")]
        assert wanting.replies == ["wish"]


async def test_a_context_that_is_heard_while_the_words_are_not_known_waits_on() -> None:
    async with Pieces(hears=["Why?", [Wait(SLOW_MS), "later"]]) as pieces:
        wanting = Wanting(pieces)
        wanting.wanted.ask(CreateReply(context=SOUND))
        wanting.wait_for("item")
        await pieces.settle()
        assert wanting.replies == []
        await pieces.settle(SLOW_MS)
        assert wanting.replies == ["wish"]


# --- wishes taken back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["live", None, "other", "aside"])
async def test_the_named_reply_is_stopped_and_no_other(named: str | None) -> None:
    async with Pieces(says=STALLED) as pieces:
        wanting = Wanting(pieces)
        wanting.wanted.create(CreateReply())
        wanting.wanted.create(CreateReply(aside=True))
        live, aside = [event.reply_id for event in pieces.of(ReplyStarted)]
        ids = {"live": live, "aside": aside, "other": "resp_other", None: None}
        wanting.wanted.cancel(CancelReply(ids[named], "mine"))
        stopped = [event.reply_id for event in pieces.of(ReplyDone)]
        assert stopped == {"live": [live], None: [live], "aside": [aside], "other": []}[named]
        assert (Event.CANCEL in pieces.floor) == (named in {"live", None})
        codes = [(error.code, error.client_event_id) for error in wanting.errors]
        assert codes == ([(NOT_ACTIVE, "mine")] if named == "other" else [])


@pytest.mark.parametrize("reply_id", [None, "resp_other"])
async def test_where_nothing_is_live_that_is_said(reply_id: str | None) -> None:
    async with Pieces() as pieces:
        wanting = Wanting(pieces)
        wanting.wanted.cancel(CancelReply(reply_id, "mine"))
        assert [(error.code, error.client_event_id) for error in wanting.errors] == [(NOT_ACTIVE, "mine")]
        assert pieces.floor == []


async def test_a_reply_outside_the_conversation_is_stopped_by_its_id_alone() -> None:
    async with Pieces(says=STALLED) as pieces:
        wanting = Wanting(pieces)
        wanting.wanted.create(CreateReply(aside=True))
        wanting.wanted.cancel(CancelReply())
        assert statuses(pieces) == [] and [error.code for error in wanting.errors] == [NOT_ACTIVE]


@pytest.mark.parametrize("wish", ["for words", "with sound"])
@pytest.mark.parametrize("named", [True, False])
async def test_a_wish_that_waits_is_taken_back_before_a_live_reply_is_stopped(wish: str, named: bool) -> None:
    """It has no name yet: who names a reply means another one."""
    async with Pieces(hears=SLOW, says=STALLED) as pieces:
        wanting = Wanting(pieces)
        wanting.ask()
        if wish == "for words":
            wanting.wait_for("item")
            wanting.wanted.create(CreateReply(aside=True))  # has a wish of its own
            wanting.wanted.create(MINE)
        else:
            wanting.wanted.ask(replace(MINE, context=SOUND))
            wanting.wanted.ask(replace(MINE, context=SOUND, aside=True))
        wanting.wanted.cancel(CancelReply("resp_other" if named else None))
        assert [error.code for error in wanting.errors] == ([NOT_ACTIVE] if named else [])
        assert pieces.machine.reply is Reply.THINKING and statuses(pieces) == []
        for _ in range(3):
            await pieces.settle(SLOW_MS)
        assert sorted(wanting.replies) == (["aside", "turn", "wish"] if named else ["aside", "turn"])
        if not named:
            wanting.wanted.cancel(CancelReply())  # now the live one
            assert statuses(pieces) == ["cancelled"]
