"""Which replies are made, and when: to the user's question, and to wishes for words that are not known yet."""

from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import Stall, Wait
from tests.session_pieces import Pieces, user_turn
from voice_agent.commands import AddText, CancelReply, CreateReply, ItemReference
from voice_agent.events import ReplyDone, ReplyStarted, SessionError
from voice_agent.metrics import TurnTimeline
from voice_agent.replies import MAX_ASIDES
from voice_agent.turn.endpoint import TurnEnd
from voice_agent.turn.machine import Action, Event, Reply, User
from voice_agent.wanted_replies import WantedPorts, WantedReplies

SLOW_MS = 300  # that the recognizer takes
SLOW: list[Any] = [[Wait(SLOW_MS), "Why?"]]
MINE = CreateReply(client_event_id="mine")
BUSY = "conversation_already_has_active_response"


class Wanting:
    """What wants replies of these pieces; what the floor says is done as a session does it."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces
        self.kept: list[TurnTimeline] = []
        ports = WantedPorts(
            pieces.machine,
            pieces.turns,
            pieces.spoken,
            pieces.replies,
            pieces.clock,
            pieces.present_settings,
            pieces.told.append,
            pieces.tell,
            self.kept.append,
        )
        self.wanted = WantedReplies(ports)
        pieces.carry_out = self._carry_out
        pieces.items_heard = self.wanted.answer_what_waits

    def _carry_out(self, actions: tuple[Action, ...], event: Event, _: object) -> None:
        if Action.CANCEL in actions:
            self.wanted.stop("turn_detected" if event is Event.INTERRUPT else "client_cancelled")
        if event is Event.OVER:
            self.wanted.over()

    def ask(self, text: str = "Why?", turn_id: str = "turn") -> None:
        """The user asked something, and nothing stands in the way."""
        self.pieces.chat.add_user(turn_id, text)
        self.wanted.question(user_turn(text, turn_id))
        self.wanted.answer_open_question()

    def commit_a_turn(self) -> None:
        """A turn of the user's is over, and its words are not known yet."""
        self.pieces.turns.open(announce=False)
        self.pieces.turns.commit(TurnEnd(0, "silence"))

    def wait_for(self, what: str) -> None:
        if what == "item":
            self.pieces.wait_for_an_item()
        elif what == "turn":
            self.commit_a_turn()

    async def words_come(self) -> None:
        """All words are known; of a turn the session tells it, of items these tell it themselves."""
        await self.pieces.settle(SLOW_MS)
        self.wanted.create_waiting()
        await self.pieces.settle()

    @property
    def replies(self) -> list[str]:
        """What each reply answers: a turn, a client's wish (of the conversation, or aside)."""
        return [_answered(event) for event in self.pieces.of(ReplyStarted)]

    @property
    def errors(self) -> list[SessionError]:
        return self.pieces.of(SessionError)


def _answered(event: ReplyStarted) -> str:
    return event.turn_id or ("aside" if event.aside else "wish")


# --- the user's question ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "user", "waits", "create_response", "answered"),
    [
        (Reply.NONE, User.SILENT, False, True, True),
        (Reply.NONE, User.SILENT, False, False, False),
        (Reply.NONE, User.SILENT, True, True, False),
        (Reply.NONE, User.SPEAKING, False, True, False),
        (Reply.NONE, User.PAUSED, False, True, False),
        (Reply.THINKING, User.SILENT, False, True, False),
        (Reply.SPEAKING, User.SILENT, False, True, False),
        (Reply.HELD, User.PAUSED, False, True, False),
    ],
)
async def test_a_question_is_answered_once_nobody_has_the_floor(
    reply: Reply, user: User, waits: bool, create_response: bool, answered: bool
) -> None:
    async with Pieces(create_response=create_response) as pieces:
        wanting = Wanting(pieces)
        wanting.wait_for("item" if waits else "")
        pieces.machine.reply, pieces.machine.user = reply, user
        wanting.ask()
        assert wanting.replies == (["turn"] if answered else [])
        pieces.machine.reply, pieces.machine.user = Reply.NONE, User.SILENT
        wanting.wanted.answer_open_question()
        kept_for_later = create_response and not waits
        assert wanting.replies == (["turn"] if answered or kept_for_later else [])  # and not twice


async def test_the_settings_of_the_moment_hold_and_the_history_is_answered() -> None:
    async with Pieces(instructions="Be brief.") as pieces:
        wanting = Wanting(pieces)
        pieces.settings = replace(pieces.settings, instructions="Be long.")
        wanting.ask()
        await pieces.settle()
        (think,) = pieces.thinker.requests
        assert [message["content"] for message in think.messages] == ["Be long.", "Why?"]  # pyright: ignore
        assert wanting.kept == []  # the turn's own timeline goes with it


async def test_what_was_thought_ahead_on_the_same_words_is_the_answer() -> None:
    async with Pieces() as pieces:
        wanting = Wanting(pieces)
        turn = user_turn("Why?")
        pieces.replies.think_ahead(pieces.settings, "Why?", turn.timeline)
        await pieces.settle()
        wanting.wanted.question(turn)
        wanting.wanted.answer_open_question()
        await pieces.settle()
        assert wanting.replies == ["turn"] and pieces.asked() == ["Why?"]
        assert turn.timeline.reply_id and "thinker" in turn.timeline.stamps_ns


async def test_a_turn_that_the_client_commits_is_answered_when_the_client_asks() -> None:
    async with Pieces() as pieces:
        wanting = Wanting(pieces)
        pieces.machine.user = User.SPEAKING
        wanting.ask(turn_id="earlier")
        pieces.machine.user = User.SILENT
        wanting.wanted.question(user_turn("Why?", by_client=True))
        wanting.wanted.answer_open_question()
        assert wanting.replies == []


async def test_a_question_beside_a_wish_is_the_wishs_even_when_that_is_taken_back() -> None:
    async with Pieces(hears=SLOW) as pieces:
        wanting = Wanting(pieces)
        wanting.wait_for("item")
        wanting.wanted.create(MINE)
        wanting.wanted.question(user_turn("Why?"))
        wanting.wanted.cancel(CancelReply())
        await wanting.words_come()
        assert wanting.replies == [] and wanting.errors == []


async def test_who_asks_over_a_reply_is_answered_after_it_with_the_last_question() -> None:
    async with Pieces() as pieces:
        wanting = Wanting(pieces)
        wanting.ask(turn_id="first")
        wanting.ask(turn_id="second")
        wanting.ask(turn_id="third")
        assert wanting.replies == ["first"]
        await pieces.settle(1000)
        assert wanting.replies == ["first", "third"]


@pytest.mark.parametrize(
    ("by_question", "heard", "stopped_by", "answered_again"),
    [
        (True, False, Event.INTERRUPT, True),  # who goes on speaking is answered with the next turn
        (True, True, Event.INTERRUPT, False),
        (True, False, Event.CANCEL, False),
        (False, False, Event.INTERRUPT, False),
    ],
)
async def test_a_question_stays_open_if_the_user_went_on_before_a_word_was_heard(
    by_question: bool, heard: bool, stopped_by: Event, answered_again: bool
) -> None:
    async with Pieces() as pieces:
        wanting = Wanting(pieces)
        if by_question:
            wanting.ask()
        else:
            wanting.wanted.create(MINE)
        if heard:
            await pieces.settle(300)
        if stopped_by is Event.INTERRUPT:
            pieces.machine.reply = Reply.HELD
        pieces.tell(stopped_by)
        (done,) = pieces.of(ReplyDone)
        reason = "turn_detected" if stopped_by is Event.INTERRUPT else "client_cancelled"
        assert heard or done.reason == reason
        wanting.wanted.answer_open_question()
        assert wanting.replies[1:] == (["turn"] if answered_again else [])


@pytest.mark.parametrize("over", [True, False])
async def test_a_question_whose_answer_is_over_is_not_opened_by_what_follows(over: bool) -> None:
    async with Pieces() as pieces:
        wanting = Wanting(pieces)
        wanting.ask()
        if over:
            await pieces.settle(1000)
        assert (Event.OVER in pieces.floor) is over
        wanting.wanted.create(MINE)
        pieces.machine.reply = Reply.HELD
        pieces.tell(Event.INTERRUPT)
        wanting.wanted.answer_open_question()
        assert wanting.replies == ["turn", "wish"]


async def test_a_newer_question_stands_beside_one_that_was_cut_off() -> None:
    async with Pieces() as pieces:
        wanting = Wanting(pieces)
        wanting.ask(turn_id="first")
        wanting.ask(turn_id="second")
        pieces.machine.reply = Reply.HELD
        pieces.tell(Event.INTERRUPT)
        wanting.wanted.answer_open_question()
        assert wanting.replies == ["first", "second"]


async def test_where_nothing_is_live_there_is_nothing_to_stop() -> None:
    async with Pieces() as pieces:
        wanting = Wanting(pieces)
        wanting.wanted.stop("turn_detected")
        wanting.wanted.over()
        assert pieces.told == []


# --- the client's wishes: when ----------------------------------------------------------------------------------

OWN = (AddText("own", "user", "Is it rude?"),)
REFERRED = (ItemReference("q"), *OWN)


@pytest.mark.parametrize(
    ("aside", "context", "waits_for", "at_once"),
    [
        (False, None, "", True),
        (False, None, "item", False),
        (False, None, "turn", False),
        (False, OWN, "item", False),
        (False, OWN, "turn", False),
        (True, None, "", True),
        (True, None, "item", False),
        (True, None, "turn", False),
        (True, OWN, "item", True),  # it answers nothing of the conversation
        (True, OWN, "turn", True),
        (True, REFERRED, "item", False),
        (True, REFERRED, "turn", False),
        (True, (), "turn", True),
    ],
)
async def test_a_reply_waits_while_the_words_that_it_would_answer_are_not_known(
    aside: bool, context: Any, waits_for: str, at_once: bool
) -> None:
    async with Pieces(hears=SLOW) as pieces:
        wanting = Wanting(pieces)
        wanting.wait_for(waits_for)
        wanting.wanted.create(CreateReply(aside=aside, context=context))
        made = ["aside" if aside else "wish"]
        assert wanting.replies == (made if at_once else [])
        await wanting.words_come()
        assert wanting.replies == made and wanting.errors == []


@pytest.mark.parametrize("aside", [True, False])
async def test_a_wish_waits_for_a_turn_and_an_item_alike(aside: bool) -> None:
    async with Pieces(hears=["soon", [Wait(SLOW_MS), "Why?"]]) as pieces:
        wanting = Wanting(pieces)
        wanting.wait_for("turn")
        await pieces.settle()  # the first words
        wanting.wait_for("item")
        wanting.wanted.create(CreateReply(aside=aside))
        wanting.wanted.create_waiting()  # those of the turn are known
        assert wanting.replies == []
        await pieces.settle(SLOW_MS)
        assert wanting.replies == ["aside" if aside else "wish"]


async def test_when_all_words_are_known_asides_come_first_and_a_wish_before_the_question() -> None:
    async with Pieces(hears=SLOW) as pieces:
        wanting = Wanting(pieces)
        wanting.wait_for("item")
        wanting.ask()
        wanting.wanted.create(MINE)
        wanting.wanted.create(CreateReply(aside=True))
        await wanting.words_come()
        assert wanting.replies == ["aside", "wish"]
        await pieces.settle(1000)
        assert wanting.replies == ["aside", "wish"]


async def test_a_question_waits_for_the_items_before_it() -> None:
    async with Pieces(hears=SLOW) as pieces:
        wanting = Wanting(pieces)
        wanting.wait_for("item")
        wanting.ask()
        await pieces.settle(SLOW_MS)
        assert wanting.replies == ["turn"]


async def test_a_second_wish_to_the_same_words_is_refused_and_the_first_one_stands() -> None:
    async with Pieces(hears=SLOW) as pieces:
        wanting = Wanting(pieces)
        wanting.wait_for("turn")
        wanting.wanted.create(CreateReply(metadata={"n": "1"}))
        wanting.wanted.create(MINE)
        assert [(error.code, error.client_event_id) for error in wanting.errors] == [(BUSY, "mine")]
        await wanting.words_come()
        assert [event.metadata for event in pieces.of(ReplyStarted)] == [{"n": "1"}]


@pytest.mark.parametrize("waits_for", ["", "item"])
async def test_more_asides_than_may_be_are_refused_at_once(waits_for: str) -> None:
    async with Pieces(hears=SLOW, says=[[Stall()]]) as pieces:
        wanting = Wanting(pieces)
        wanting.wait_for(waits_for)
        for _ in range(MAX_ASIDES):
            wanting.wanted.create(CreateReply(aside=True))
        assert wanting.errors == []
        wanting.wanted.create(replace(MINE, aside=True))
        (error,) = wanting.errors
        assert (error.code, error.client_event_id) == ("rate_limit_exceeded", "mine")
        await wanting.words_come()
        assert wanting.replies == ["aside"] * MAX_ASIDES and len(wanting.errors) == 1
