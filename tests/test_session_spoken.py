"""Sound in a client's own items: recognized before the reply, in its place; and sessions that only write down."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.fakes import Fail, FakeEngine, Wait
from tests.test_session import Rig
from tests.test_session_items import BY_HAND, contents, of
from voice_agent.clock import ManualClock
from voice_agent.commands import (
    AddSpoken,
    AddText,
    CancelReply,
    CommitInput,
    CreateReply,
    DeleteItem,
    Sound,
    UpdateSettings,
)
from voice_agent.config import SessionConfig
from voice_agent.engine.messages import Think, Transcribe
from voice_agent.events import (
    ReplyDone,
    ReplyStarted,
    SessionError,
    SoundFailed,
    SoundTranscribed,
    TextAdded,
    TurnCommitted,
    TurnTranscribed,
)
from voice_agent.media.wire_sound import MAX_WAITING_BYTES
from voice_agent.session_settings import SessionSettings

SECOND = np.full(24_000, 4000, dtype="<i2").tobytes()


def sound(part: int = 0, payload: bytes = SECOND) -> Sound:
    return Sound(payload, "audio/pcm", part)


def rig(*heard: Any, settings: SessionSettings = BY_HAND) -> Rig:
    clock = ManualClock()
    return Rig(clock=clock, recognizer=FakeEngine(clock, hears=heard), settings=settings)


def asked(rig: Rig) -> list[str]:
    """What the Thinker was asked, without its instructions."""
    assert rig.thinker
    return [str([m["content"] for m in think.messages]) for think in rig.thinker.of_kind(Think)]


async def test_sound_is_recognized_before_the_reply_and_stands_between_its_texts() -> None:
    async with rig([Wait(500), "a frog"]) as stage:
        stage.session.command(AddText("a", "user", "before"))
        stage.session.command(AddSpoken("b", ("Look:", sound(1), "What is it?")))
        stage.session.command(AddText("c", "user", "after"))
        stage.session.command(CreateReply())
        assert [event.item_id for event in of(stage, TextAdded)] == ["a", "b", "c"]
        await stage.wait(400)
        assert of(stage, ReplyStarted) == [] and asked(stage) == []
        await stage.wait(3000)
        assert asked(stage) == [str(["before\nLook:\na frog\nWhat is it?\nafter"])]
        (told,) = of(stage, SoundTranscribed)
        assert (told.item_id, told.part, told.text, told.audio_seconds) == ("b", 1, "a frog", 1.0)
        assert of(stage, ReplyDone)[0].heard_s == 1.0


async def test_several_sounds_are_heard_in_their_order() -> None:
    async with rig([Wait(300), "one"], "two", "three") as stage:
        stage.session.command(AddSpoken("a", (sound(0), sound(1))))
        stage.session.command(AddSpoken("b", (sound(),), after="root"))
        stage.session.command(CreateReply())
        await stage.wait(3000)
        assert [(event.item_id, event.text) for event in of(stage, SoundTranscribed)] == [
            ("a", "one"),
            ("a", "two"),
            ("b", "three"),
        ]
        assert asked(stage) == [str(["three\none\ntwo"])]
        assert of(stage, ReplyDone)[0].heard_s == 3.0


async def test_a_question_by_voice_waits_for_the_items_before_it() -> None:
    settings = replace(BY_HAND, turn_detection="server")
    async with rig([Wait(4000), "the manual"], "What is it?", settings=settings) as stage:
        stage.session.command(AddSpoken("a", (sound(),)))
        await stage.say(600)
        while not of(stage, TurnTranscribed):
            await stage.wait(20)
        assert asked(stage) == []
        await stage.wait(6000)
        assert asked(stage) == [str(["the manual\nWhat is it?"])]


async def test_a_reply_aside_to_a_turn_just_committed_hears_its_words() -> None:
    async with rig([Wait(500), "What is it?"]) as stage:
        await stage.say(600)
        stage.session.command(CommitInput())
        stage.session.command(CreateReply(aside=True))
        await stage.wait(2000)
        assert asked(stage) == [str(["What is it?"])]


async def test_a_reply_aside_waits_too_and_one_with_its_own_context_does_not() -> None:
    async with rig([Wait(2000), "a frog"]) as stage:
        stage.session.command(AddSpoken("a", (sound(),)))
        stage.session.command(CreateReply(aside=True))
        stage.session.command(CreateReply(aside=True, context=(AddText("x", "user", "Hi"),)))
        await stage.wait(1000)
        assert asked(stage) == [str(["Hi"])]
        await stage.wait(2000)
        assert asked(stage)[1:] == [str(["a frog"])]


async def test_sound_in_a_replys_own_context_is_heard_first() -> None:
    async with rig([Wait(500), "a frog"]) as stage:
        context = (AddText("x", "user", "Guess:"), AddSpoken("y", (sound(),)))
        stage.session.command(CreateReply(context=context))
        await stage.wait(3000)
        assert asked(stage) == [str(["Guess:\na frog"])] and contents(stage)[:1] != ["Guess:"]
        assert of(stage, ReplyDone)[0].status == "completed" and of(stage, ReplyDone)[0].heard_s == 1.0


async def test_a_reply_whose_context_is_still_heard_can_be_cancelled() -> None:
    async with rig([Wait(500), "a frog"]) as stage:
        stage.session.command(CreateReply(context=(AddSpoken("y", (sound(),)),)))
        stage.session.command(CancelReply())
        await stage.wait(3000)
        assert asked(stage) == [] and of(stage, SessionError) == []
        stage.session.command(CancelReply())
        assert of(stage, SessionError)[0].code == "response_cancel_not_active"


async def test_what_cannot_be_recognized_is_told_and_the_rest_is_answered() -> None:
    async with rig([Fail("engine_died")], "fine") as stage:
        stage.session.command(AddSpoken("a", ("Hear this:", sound(1))))
        stage.session.command(CreateReply())
        await stage.wait(3000)
        (failed,) = of(stage, SoundFailed)
        assert (failed.item_id, failed.part, failed.code) == ("a", 1, "engine_died")
        assert asked(stage) == [str(["Hear this:"])]
        stage.session.command(CreateReply(context=(AddSpoken("y", (sound(),)),), client_event_id="mine"))
        await stage.wait(3000)
        assert len(asked(stage)) == 2


async def test_a_context_that_cannot_be_recognized_fails_the_wish_alone() -> None:
    async with rig([Fail("engine_died")]) as stage:
        stage.session.command(CreateReply(context=(AddSpoken("y", (sound(),)),), client_event_id="mine"))
        await stage.wait(1000)
        (error,) = of(stage, SessionError)
        assert (error.code, error.param, error.client_event_id) == ("engine_died", "response.input", "mine")
        assert of(stage, ReplyStarted) == []


async def test_an_item_that_was_deleted_meanwhile_stays_deleted() -> None:
    async with rig([Wait(500), "a frog"]) as stage:
        stage.session.command(AddSpoken("a", (sound(),)))
        stage.session.command(DeleteItem("a"))
        await stage.wait(1000)
        assert of(stage, SoundTranscribed) == [] and contents(stage) == []


@pytest.mark.parametrize("in_context", [False, True])
async def test_more_sound_than_may_wait_is_refused_and_what_waits_is_heard(in_context: bool) -> None:
    async with rig("a frog") as stage:
        big = AddSpoken("b", (sound(payload=bytes(MAX_WAITING_BYTES)),), "mine")
        stage.session.command(AddSpoken("a", (sound(),)))
        stage.session.command(CreateReply(context=(big,), client_event_id="mine") if in_context else big)
        (error,) = of(stage, SessionError)
        assert error.code == "rate_limit_exceeded" and error.client_event_id == "mine"
        assert error.item_id == (None if in_context else "b")
        await stage.wait(500)
        assert contents(stage) == ["a frog"]


async def test_a_long_sound_is_heard_piece_by_piece() -> None:
    async with rig("la") as stage:
        stage.session.command(AddSpoken("a", (Sound(bytes(8000) * 60, "audio/pcmu", 0),)))
        for _ in range(200):
            await stage.wait(20)
        assert stage.recognizer
        heard = stage.recognizer.of_kind(Transcribe)
        assert len(heard) == 3 and contents(stage) == ["la la la"]


async def test_the_language_of_a_session_goes_to_the_recognizer() -> None:
    async with rig("la") as stage:
        stage.session.command(UpdateSettings({"language": "ko"}))
        stage.session.command(AddSpoken("a", (sound(),)))
        await stage.wait(100)
        assert stage.recognizer and stage.recognizer.of_kind(Transcribe)[0].language == "ko"


async def test_a_session_for_transcription_hears_and_says_nothing() -> None:
    settings = SessionSettings("", "", turn_detection="server", create_response=False, answers=False)
    stage = rig("What is it?", settings=settings)
    stage.conversation = SessionConfig(greeting="Welcome!")
    async with stage:
        await stage.say(600)
        await stage.wait(3000)
        assert [event.text for event in of(stage, TurnTranscribed)] == ["What is it?"]
        assert of(stage, TurnCommitted) and of(stage, ReplyStarted) == [] and asked(stage) == []
