"""What is begun before a turn is certain, and what is not worth it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import Fail, Stall, Wait
from tests.session_pieces import Pieces, user_turn
from tests.test_session import Judge
from voice_agent.config import TurnConfig
from voice_agent.engine.messages import Think, Transcribe
from voice_agent.turn.endpoint import Pause
from voice_agent.turn.machine import Reply
from voice_agent.turns import UserTurn
from voice_agent.working_ahead import AheadPorts, WorkingAhead

PAUSE = Pause(1, 16_000)
SLOW_MS = 200


def working_ahead(pieces: Pieces, rules: TurnConfig | None = None) -> WorkingAhead:
    return WorkingAhead(
        AheadPorts(
            pieces.machine,
            pieces.endpointer,
            pieces.recognizer,
            pieces.turns,
            pieces.spoken,
            pieces.replies,
            rules or TurnConfig(),
            pieces.present_settings,
        )
    )


def open_turn(pieces: Pieces) -> UserTurn:
    pieces.turns.open(announce=False)
    assert pieces.turns.current
    return pieces.turns.current


# --- while the user speaks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoken", "silent", "every_ms", "reply", "changes", "busy", "heard"),
    [  # windows of 32 ms
        (28, 0, 900, Reply.NONE, {}, False, 0),
        (29, 0, 900, Reply.NONE, {}, False, 1),
        (29, 0, 0, Reply.NONE, {}, False, 0),  # off
        (29, 2, 900, Reply.NONE, {}, False, 0),  # a pause is understood by itself
        (0, 3, 900, Reply.NONE, {}, False, 0),
        (29, 0, 900, Reply.THINKING, {}, False, 0),
        (29, 0, 900, Reply.SPEAKING, {}, False, 0),
        (29, 0, 900, Reply.HELD, {}, False, 0),
        (29, 0, 900, Reply.NONE, {"answers": False}, False, 0),
        (29, 0, 900, Reply.NONE, {"overlap": False}, False, 0),
        (29, 0, 900, Reply.NONE, {"create_response": False}, False, 1),  # the client will ask
        (29, 0, 900, Reply.NONE, {}, True, 0),  # somebody waits for the recognizer
    ],
)
async def test_the_words_so_far_are_read_while_the_user_speaks_if_nobody_else_waits(
    spoken: int, silent: int, every_ms: int, reply: Reply, changes: dict[str, Any], busy: bool, heard: int
) -> None:
    async with Pieces(hears=[[Stall()]], **changes) as pieces:
        ahead = working_ahead(pieces, TurnConfig(read_ahead_ms=every_ms))
        open_turn(pieces)
        if busy:
            pieces.wait_for_an_item()
        for level in [8000] * spoken + [0] * silent:
            await pieces.hear(level)
        pieces.machine.reply = reply
        ahead.read()
        await pieces.settle()
        assert len(pieces.recognizer.of_kind(Transcribe)) == heard + busy


async def test_more_words_are_read_after_as_much_speech_again() -> None:
    async with Pieces(hears=["What", "What is"]) as pieces:
        ahead = working_ahead(pieces)
        turn = open_turn(pieces)
        words: list[str | None] = []
        for _ in range(60):  # 1,920 ms
            await pieces.hear()
            ahead.read()
            await pieces.settle()
            if turn.first_words not in [None, *words]:
                words.append(turn.first_words)
        assert words == ["What", "What is"] and len(pieces.recognizer.of_kind(Transcribe)) == 2


async def test_without_a_turn_there_is_nothing_to_read_or_to_understand() -> None:
    async with Pieces() as pieces:
        ahead = working_ahead(pieces)
        for _ in range(40):
            await pieces.hear()
        ahead.read()
        ahead.paused(PAUSE)
        await pieces.settle()
        assert pieces.recognizer.requests == []


# --- at a pause -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reply", "broken_off", "text", "probability"),
    [
        ({}, Reply.NONE, True, "What is it?", 0.7),
        ({"turn_detection": "server"}, Reply.NONE, True, "What is it?", None),  # silence alone decides
        ({"overlap": False}, Reply.NONE, True, None, None),
        ({}, Reply.THINKING, False, "What is it?", None),  # speech over a reply: a verdict decides
        ({}, Reply.HELD, False, "What is it?", None),
        ({"overlap": False}, Reply.HELD, False, None, None),
    ],
)
async def test_at_a_pause_its_words_are_wanted_and_whether_it_ends_the_turn(
    changes: dict[str, Any], reply: Reply, broken_off: bool, text: str | None, probability: float | None
) -> None:
    async with Pieces(hears=[[Stall()], "What is it?"], judge=Judge(0.7), **changes) as pieces:
        ahead = working_ahead(pieces)
        turn = open_turn(pieces)
        pieces.turns.listen_in(1000)
        await pieces.settle()
        (first,) = pieces.recognizer.of_kind(Transcribe)
        pieces.machine.reply = reply
        ahead.paused(PAUSE)
        await pieces.settle()
        assert (pieces.recognizer.aborted == [first.request_id]) is broken_off
        assert (turn.text, turn.probability) == (text, probability)


async def test_who_goes_on_ends_what_was_begun_for_the_pause() -> None:
    async with Pieces(hears=[[Stall()]]) as pieces:
        ahead = working_ahead(pieces)
        turn = open_turn(pieces)
        ahead.paused(PAUSE)
        await pieces.settle()
        pieces.turns.drop_ahead()
        await pieces.settle()
        assert pieces.recognizer.aborted == [turn.turn_id] and not turn.working
        assert pieces.understood == [turn]  # of the judgement alone


# --- when words come --------------------------------------------------------------------------------------------

THOUGHT = ("What is it?", False)
READ = ("What is", True)


@pytest.mark.parametrize(
    ("known", "reply", "waits", "create_response", "asked"),
    [
        ({"text": "What is it?"}, Reply.NONE, False, True, THOUGHT),
        ({"text": "What is it?", "probability": 0.5}, Reply.NONE, False, True, THOUGHT),
        ({"text": "What is it?", "probability": 0.49}, Reply.NONE, False, True, None),
        ({"text": "What is it?", "first_words": "What is"}, Reply.NONE, False, True, THOUGHT),
        ({"text": "What is it?"}, Reply.THINKING, False, True, None),
        ({"text": "What is it?"}, Reply.SPEAKING, False, True, None),
        ({"text": "What is it?"}, Reply.HELD, False, True, None),
        ({"text": "What is it?"}, Reply.NONE, True, True, None),  # it would be thought without an item
        ({"text": "What is it?"}, Reply.NONE, False, False, None),
        ({"text": "Tell me about the"}, Reply.NONE, False, True, None),  # more will come
        ({"text": "Tell me about the", "probability": 0.9}, Reply.NONE, False, True, None),
        ({"text": ""}, Reply.NONE, False, True, None),
        ({"probability": 0.9}, Reply.NONE, False, True, None),
        ({"text": None, "first_words": "What is"}, Reply.NONE, False, True, READ),
        ({"text": None, "first_words": "What is"}, Reply.NONE, False, False, READ),  # the client will ask
        ({"text": None, "first_words": ""}, Reply.NONE, False, True, None),
        ({"text": None, "first_words": "What is", "pause": PAUSE}, Reply.NONE, False, True, None),
        ({"text": "", "first_words": "What is", "pause": PAUSE}, Reply.NONE, False, True, None),
    ],
)
async def test_words_are_thought_on_if_nothing_says_that_more_will_come(
    known: dict[str, Any], reply: Reply, waits: bool, create_response: bool, asked: tuple[str, bool] | None
) -> None:
    async with Pieces(hears=[[Stall()]], create_response=create_response) as pieces:
        if waits:
            pieces.wait_for_an_item()
        pieces.machine.reply = reply
        turn = user_turn(**known)
        working_ahead(pieces).understood(turn)
        await pieces.settle()
        thinks: list[Think] = pieces.thinker.of_kind(Think)
        assert [(str(one.messages[-1]["content"]), one.max_output_tokens == 1) for one in thinks] == (
            [asked] if asked else []
        )
        run = pieces.replies.ahead
        assert (run is not None) == (asked == THOUGHT)
        assert run is None or (run.timeline is turn.timeline and not run.live.is_set())
        assert pieces.told == []  # nobody hears of it


async def test_the_probability_that_is_enough_is_configured_and_the_settings_are_those_of_the_moment() -> (
    None
):
    async with Pieces(instructions="Be brief.") as pieces:
        ahead = working_ahead(pieces, TurnConfig(end_probability=0.8))
        ahead.understood(user_turn("What is it?", probability=0.79))
        assert pieces.replies.ahead is None
        pieces.settings = replace(pieces.settings, instructions="Be long.")
        ahead.understood(user_turn("What is it?", probability=0.8))
        await pieces.settle()
        (think,) = pieces.thinker.of_kind(Think)
        assert [message["content"] for message in think.messages] == ["Be long.", "What is it?"]


@pytest.mark.parametrize("probability", [0.7, 0.3])
async def test_words_and_a_judgement_come_one_after_the_other_and_are_thought_on_once(
    probability: float,
) -> None:
    async with Pieces(hears=[[Wait(SLOW_MS), "What is it?"]], judge=Judge(probability)) as pieces:
        ahead = working_ahead(pieces)
        turn = open_turn(pieces)
        ahead.paused(PAUSE)
        await pieces.settle()
        assert pieces.understood == [turn] and turn.text is None
        ahead.understood(turn)
        await pieces.settle(SLOW_MS)
        assert pieces.understood == [turn, turn]
        for _ in range(2):
            ahead.understood(turn)
            await pieces.settle()
        assert pieces.asked() == (["What is it?"] if probability == 0.7 else [])


async def test_what_the_recognizer_could_not_hear_is_not_thought_on() -> None:
    async with Pieces(hears=[[Fail()]]) as pieces:
        ahead = working_ahead(pieces)
        turn = open_turn(pieces)
        ahead.paused(PAUSE)
        await pieces.settle()
        assert turn.error and turn.text == ""
        ahead.understood(turn)
        await pieces.settle()
        assert pieces.thinker.requests == []
