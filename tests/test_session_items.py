"""What a Realtime client may ask of a session beyond talking: items, truncation, replies aside, knobs, silence."""

from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import FakeEngine, Wait
from tests.test_session import STORY, Rig
from voice_agent.clock import ManualClock
from voice_agent.commands import (
    AddText,
    AddToolCall,
    AddToolResult,
    CancelReply,
    CreateReply,
    DeleteItem,
    ItemReference,
    TruncateReply,
    UpdateSettings,
)
from voice_agent.config import TurnConfig
from voice_agent.engine.messages import Think
from voice_agent.events import (
    IdleTimedOut,
    ItemDeleted,
    ReplyDone,
    ReplyStarted,
    ReplyTruncated,
    SessionError,
    SpeechStarted,
    TextAdded,
    TurnCommitted,
)
from voice_agent.session_settings import SessionSettings
from voice_agent.turn.rules import endpoint_rules, session_rules

BY_HAND = SessionSettings(instructions="", voice="", turn_detection="none")


def of(rig: Rig, kind: type[Any]) -> list[Any]:
    return [event for event in rig.events if isinstance(event, kind)]


def contents(rig: Rig) -> list[str]:
    return [str(message["content"]) for message in rig.session.chat.messages("")]


async def test_items_go_where_the_client_wants_them_and_leave_again() -> None:
    async with Rig(settings=BY_HAND) as rig:
        for command in (
            AddText("b", "user", "two"),
            AddText("a", "user", "one", after="root"),
            AddText("c", "assistant", "three"),
            AddText("x", "assistant", "not this", after="a"),
            DeleteItem("x"),
            AddText("d", "user", "four", after="forgotten long ago"),
        ):
            rig.session.command(command)
        assert contents(rig) == ["one\ntwo", "three", "four"]
        assert [event.item_id for event in of(rig, TextAdded)] == ["b", "a", "c", "x", "d"]
        assert of(rig, ItemDeleted) == [ItemDeleted("x")]


async def test_a_history_with_calls_can_be_brought_along() -> None:
    async with Rig(settings=BY_HAND) as rig:
        rig.session.command(AddToolCall("f", "c1", "clock", "{}"))
        rig.session.command(AddToolResult("g", "c1", "noon"))
        rig.session.command(AddToolResult("h", "c1", "again", "mine"))
        rig.session.command(AddToolCall("i", "c1", "clock", "{}"))
        messages = rig.session.chat.messages("")
        assert messages[0]["tool_calls"][0]["id"] == "c1" and messages[1]["content"] == "noon"
        assert [error.param for error in of(rig, SessionError)] == ["item.call_id"] * 2
        assert of(rig, SessionError)[0].client_event_id == "mine"
        rig.session.command(DeleteItem("f"))
        assert contents(rig) == []


async def test_words_take_their_turns_place_though_items_came_meanwhile() -> None:
    clock = ManualClock()
    slow = FakeEngine(clock, hears=[[Wait(2000), "What is it?"]])
    settings = replace(BY_HAND, turn_detection="server")
    async with Rig(clock=clock, recognizer=slow, settings=settings) as rig:
        await rig.say(600)
        while not of(rig, TurnCommitted):
            await rig.wait(20)
        rig.session.command(AddText("later", "user", "And that?"))
        await rig.wait(3000)
        assert contents(rig)[0] == "What is it?\nAnd that?"


async def spoken_story(rig: Rig) -> str:
    """A reply whose text is whole and whose sound is being heard; returns its id."""
    rig.session.command(CreateReply())
    await rig.wait(1500)
    return of(rig, ReplyStarted)[0].reply_id


def storyteller(clock: ManualClock) -> FakeEngine:
    return FakeEngine(clock, says=[[STORY]])


async def test_a_truncation_stops_the_reply_and_keeps_what_the_client_played() -> None:
    clock = ManualClock()
    async with Rig(clock=clock, settings=BY_HAND, thinker=storyteller(clock)) as rig:
        reply_id = await spoken_story(rig)
        rig.session.command(TruncateReply(reply_id, 600))
        assert rig.session.machine.state == "listening"
        told = [event for event in of(rig, ReplyTruncated) if event.by_client]
        assert told[-1].audio_end_ms == 600 and STORY.startswith(told[-1].heard_text)
        first = contents(rig)
        assert first == [told[-1].heard_text] and 0 < len(first[0]) < len(STORY)
        rig.session.command(TruncateReply(reply_id, 300))
        assert len(contents(rig)[0]) < len(first[0])
        assert len(of(rig, ReplyDone)) == 1


@pytest.mark.parametrize(
    ("reply_id", "end_ms", "code", "param"),
    [
        ("nobody", 5, "item_truncate_invalid_item_id", "item_id"),
        (None, 60_000, "invalid_value", "audio_end_ms"),
    ],
)
async def test_a_truncation_that_cannot_be_is_refused_and_nothing_happens(
    reply_id: str | None, end_ms: int, code: str, param: str
) -> None:
    clock = ManualClock()
    async with Rig(clock=clock, settings=BY_HAND, thinker=storyteller(clock)) as rig:
        found = await spoken_story(rig)
        rig.session.command(TruncateReply(reply_id or found, end_ms, "mine"))
        (error,) = of(rig, SessionError)
        assert (error.code, error.param, error.client_event_id) == (code, param, "mine")
        assert rig.session.machine.state == "speaking" and of(rig, ReplyTruncated) == []


async def test_the_reply_in_the_making_cannot_be_deleted_but_a_whole_one_can() -> None:
    clock = ManualClock()
    thinker = FakeEngine(clock, says=[["One, ", Wait(3000), "two."]])
    async with Rig(clock=clock, settings=BY_HAND, thinker=thinker) as rig:
        reply_id = await spoken_story(rig)
        rig.session.command(DeleteItem(reply_id))
        assert of(rig, SessionError)[0].param == "item_id"
        await rig.wait(8000)
        rig.session.command(DeleteItem(reply_id))
        assert of(rig, ItemDeleted) == [ItemDeleted(reply_id)] and contents(rig) == []


async def test_a_reply_aside_stops_nothing_and_leaves_no_trace() -> None:
    clock = ManualClock()
    thinker = storyteller(clock)
    async with Rig(clock=clock, settings=BY_HAND, thinker=thinker) as rig:
        rig.session.command(AddText("q", "user", "Tell me."))
        reply_id = await spoken_story(rig)
        context = (ItemReference("q"), ItemReference("unknown"), AddText("own", "user", "Is it rude?"))
        aside = CreateReply(
            {"text_only": True, "instructions": "Judge."}, {"k": "v"}, aside=True, context=context
        )
        rig.session.command(aside)
        await rig.wait(200)
        assert rig.session.machine.state == "speaking"
        started = of(rig, ReplyStarted)[-1]
        assert started.aside and started.metadata == {"k": "v"}
        asked = [request for request in thinker.requests if isinstance(request, Think)][-1]
        assert [message["content"] for message in asked.messages] == ["Judge.", "Tell me.\nIs it rude?"]
        assert [event.reply_id for event in of(rig, ReplyDone)][-1] == started.reply_id
        assert [item.id for item in rig.session.chat.items] == ["q", reply_id]


async def test_a_reply_aside_is_cancelled_by_its_id_alone() -> None:
    clock = ManualClock()
    thinker = FakeEngine(clock, says=[["One, ", Wait(5000), "two."]])
    async with Rig(clock=clock, settings=BY_HAND, thinker=thinker) as rig:
        rig.session.command(CreateReply({"text_only": True}, aside=True))
        await rig.wait(100)
        rig.session.command(CancelReply(client_event_id="other"))
        assert of(rig, SessionError)[0].code == "response_cancel_not_active"
        reply_id = of(rig, ReplyStarted)[0].reply_id
        rig.session.command(CancelReply(reply_id))
        assert of(rig, ReplyDone)[0].status == "cancelled"
        for _ in range(9):
            rig.session.command(CreateReply({"text_only": True}, aside=True))
        assert of(rig, SessionError)[-1].code == "rate_limit_exceeded"


async def test_a_follow_up_lets_what_is_whole_play_to_its_end() -> None:
    """C64."""
    clock = ManualClock()
    thinker = FakeEngine(clock, says=[["Let me look at that for you."], ["It is noon."]])
    async with Rig(clock=clock, settings=BY_HAND, thinker=thinker) as rig:
        first = await spoken_story(rig)
        assert of(rig, ReplyDone) and rig.output.played_samples(first) > 0
        rig.session.command(CreateReply())
        await rig.wait(6000)
        second = of(rig, ReplyStarted)[1].reply_id
        assert [event.status for event in of(rig, ReplyDone)] == ["completed", "completed"]
        for reply_id in (first, second):
            written = sum(len(chunk.samples) for chunk in rig.output.written(reply_id))
            assert rig.output.played_samples(reply_id) == written > 0
        assert contents(rig) == ["Let me look at that for you. It is noon."]
        assert rig.session.machine.state == "listening"


async def test_an_interruption_while_two_replies_are_queued_stops_both() -> None:
    clock = ManualClock()
    thinker = FakeEngine(clock, says=[[STORY], ["It is noon."]])
    settings = replace(BY_HAND, turn_detection="server")
    async with Rig(clock=clock, settings=settings, thinker=thinker) as rig:
        first = await spoken_story(rig)
        rig.session.command(CreateReply())
        await rig.wait(300)
        rig.session.command(CancelReply())
        second = of(rig, ReplyStarted)[1].reply_id
        heard = {event.reply_id: event.heard_text for event in of(rig, ReplyTruncated)}
        assert 0 < len(heard[first]) < len(STORY) and heard[second] == ""
        assert contents(rig) == [heard[first]] and rig.session.machine.state == "listening"


async def test_a_long_silence_after_a_reply_is_committed_and_answered_once() -> None:
    settings = replace(BY_HAND, turn_detection="server", idle_timeout_ms=5000)
    async with Rig(settings=settings) as rig:
        await rig.wait(7000)
        assert of(rig, IdleTimedOut) == []  # nothing was said yet
        rig.session.command(CreateReply())
        await rig.wait(9000)
        (idle,) = of(rig, IdleTimedOut)
        assert idle.audio_end_ms - idle.audio_start_ms == pytest.approx(5000, abs=40)
        assert of(rig, TurnCommitted) == [TurnCommitted(idle.turn_id)] and len(of(rig, ReplyStarted)) == 2


async def test_whoever_speaks_is_not_asked_whether_they_are_there() -> None:
    settings = replace(BY_HAND, turn_detection="server", idle_timeout_ms=5000, create_response=False)
    async with Rig(settings=settings) as rig:
        rig.session.command(CreateReply())
        await rig.wait(3500)
        await rig.say(600)
        await rig.wait(4000)
        assert of(rig, IdleTimedOut) == []


async def silence_until_stop(rig: Rig) -> int:
    """How long after 600 ms of speech the turn is committed."""
    await rig.say(600)
    waited = 0
    while not of(rig, TurnCommitted) and waited < 5000:
        await rig.wait(20)
        waited += 20
    await rig.wait(3000)  # its words, and an answer
    return waited


@pytest.mark.parametrize("silence_ms", [200, 500, 1500])
async def test_server_vad_obeys_its_silence(silence_ms: int) -> None:
    async with Rig(settings=replace(BY_HAND, turn_detection="server", silence_ms=silence_ms)) as rig:
        assert await silence_until_stop(rig) == pytest.approx(silence_ms, abs=64)


@pytest.mark.parametrize("prefix_ms", [0, 100, 500])
async def test_the_padding_is_obeyed_also_after_an_update(prefix_ms: int) -> None:
    async with Rig(settings=replace(BY_HAND, turn_detection="server")) as rig:
        rig.session.command(UpdateSettings({"prefix_ms": prefix_ms}))
        await rig.wait(1000)
        await rig.say(300)
        assert of(rig, SpeechStarted)[0].audio_start_ms == pytest.approx(1000 - prefix_ms, abs=40)


def test_the_threshold_and_the_eagerness_are_obeyed() -> None:
    turn = TurnConfig()
    configured = endpoint_rules(turn, "server")
    assert session_rules(turn, replace(BY_HAND, turn_detection="server")) == configured
    strict = session_rules(turn, replace(BY_HAND, turn_detection="server", vad_threshold=0.9))
    assert strict.start_threshold == 0.9 and configured.end_threshold < strict.end_threshold < 0.9
    lax = session_rules(turn, replace(BY_HAND, turn_detection="server", vad_threshold=0.1))
    assert 0 < lax.end_threshold < 0.1
    waits = {
        eagerness: session_rules(
            turn, replace(BY_HAND, turn_detection="semantic", eagerness=eagerness)
        ).unsure_ms
        for eagerness in ("low", "medium", "auto", "high")
    }
    assert waits["low"] > waits["medium"] == waits["auto"] == turn.unsure_ms > waits["high"] > 0
