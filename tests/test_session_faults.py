"""Odd orders of speech, events and wishes that once broke a session; each test says what holds."""

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tests.fakes import FakeEngine, Wait
from tests.test_session import STORY, Judge, Rig
from voice_agent.audio import PcmChunk
from voice_agent.clock import ManualClock
from voice_agent.commands import AddText, CancelReply, CommitInput, CreateReply, UpdateSettings
from voice_agent.config import TurnConfig
from voice_agent.events import (
    ReplyDone,
    ReplyStarted,
    SessionError,
    SpeechStarted,
    SpeechStopped,
    TurnTranscribed,
)
from voice_agent.media.paced import PacedOutput
from voice_agent.metrics import TurnTimeline
from voice_agent.reply import ReplyPorts, ReplyRun, saying_ask
from voice_agent.session_settings import SessionSettings
from voice_agent.turn.machine import Reply


def inside(rig: Rig) -> Any:
    """What no client can see."""
    return rig.session


def engine(fake: FakeEngine | None) -> list[Any]:
    """What an engine was asked."""
    assert fake
    return list(fake.requests)


async def test_push_to_talk_then_vad_hears_the_right_sound() -> None:
    async with Rig(settings=SessionSettings(instructions="", voice="", turn_detection="none")) as rig:
        await rig.say(400)
        await rig.wait(4600)
        rig.session.command(UpdateSettings({"turn_detection": "semantic"}))
        await rig.say(800)
        await rig.wait(3000)
        pcm = np.frombuffer(engine(rig.recognizer)[-1].pcm, dtype="<i2")
        assert 780 <= (abs(pcm.astype(int)) > 1000).sum() / 16 <= 820
        assert abs(rig.of(SpeechStarted)[-1].audio_start_ms - 5000) < 600


async def test_vad_off_while_held_does_not_hold_for_ever() -> None:
    clock = ManualClock()
    async with Rig(clock=clock, thinker=FakeEngine(clock, says=[STORY])) as rig:
        await rig.say(800)
        await rig.wait(1500)
        await rig.say(240)
        assert rig.session.machine.reply is Reply.HELD
        rig.session.command(UpdateSettings({"turn_detection": "none"}))
        await rig.wait(10000)
        assert not rig.output.held and rig.session.machine.reply is Reply.NONE


async def test_interrupt_off_while_held_does_not_hold_for_ever() -> None:
    clock = ManualClock()
    async with Rig(clock=clock, thinker=FakeEngine(clock, says=[STORY])) as rig:
        await rig.say(800)
        await rig.wait(1500)
        await rig.say(240)
        rig.session.command(UpdateSettings({"interrupt_response": False}))
        await rig.wait(10000)
        assert not rig.output.held and rig.session.machine.reply is Reply.NONE


@asynccontextmanager
async def spoken_over_and_ended_before_the_verdict() -> AsyncGenerator[Rig]:
    """A held reply, and a turn whose end waits for a verdict."""
    clock = ManualClock()
    async with Rig(
        clock=clock,
        thinker=FakeEngine(clock, says=[STORY]),
        recognizer=FakeEngine(clock, hears=["Tell.", [Wait(900), "Stop it now."]]),
        turn=TurnConfig(server_silence_ms=200),
        settings=SessionSettings(instructions="", voice="", turn_detection="server"),
    ) as rig:
        await rig.say(800)
        await rig.wait(1500)
        await rig.say(200)
        await rig.wait(320)
        yield rig


async def test_late_end_then_commit_does_not_kill() -> None:
    async with spoken_over_and_ended_before_the_verdict() as rig:
        assert inside(rig)._overlap.late_end and rig.session.machine.reply is Reply.HELD
        rig.session.command(CommitInput())
        await rig.wait(3000)
        assert not rig.task.done(), rig.task.exception()


async def test_late_end_then_a_new_onset_does_not_kill() -> None:
    async with spoken_over_and_ended_before_the_verdict() as rig:
        assert inside(rig)._overlap.late_end
        await rig.say(300)
        await rig.wait(3000)
        assert not rig.task.done(), rig.task.exception()


async def test_late_end_then_cancel_commits_the_users_words_once() -> None:
    clock = ManualClock()
    async with Rig(
        clock=clock,
        thinker=FakeEngine(clock, says=[STORY, "Yes."]),
        recognizer=FakeEngine(clock, hears=["Tell.", [Wait(900), "Stop it now."]]),
        turn=TurnConfig(server_silence_ms=200),
        settings=SessionSettings(instructions="", voice="", turn_detection="server"),
    ) as rig:
        await rig.say(800)
        await rig.wait(1500)
        await rig.say(200)
        await rig.wait(320)
        rig.session.command(CancelReply())
        await rig.wait(3000)
        assert ("user", "Stop it now.") in rig.history


async def test_client_item_during_think_ahead_is_seen_by_the_answer() -> None:
    clock = ManualClock()
    async with Rig(clock=clock, judge=Judge(0.6), turn=TurnConfig(sure_ms=600)) as rig:
        await rig.say(800)
        await rig.wait(420)
        assert inside(rig)._replies.ahead
        rig.session.command(AddText("i", "system", "Answer in French."))
        rig.session.command(UpdateSettings({"instructions": "NEW"}))
        await rig.wait(3000)
        last = engine(rig.thinker)[-1].messages
        assert any("French" in m["content"] for m in last) and last[0]["content"].startswith("NEW"), last


async def test_cancel_takes_back_a_waiting_response_create() -> None:
    clock = ManualClock()
    async with Rig(
        clock=clock,
        recognizer=FakeEngine(clock, hears=[[Wait(800), "What?"]]),
        settings=SessionSettings(instructions="", voice="", turn_detection="none"),
    ) as rig:
        await rig.say(800)
        rig.session.command(CommitInput())
        rig.session.command(CreateReply())
        rig.session.command(CancelReply())
        await rig.wait(4000)
        assert not [e for e in rig.of(ReplyDone) if e.status == "completed"], rig.kinds()


async def test_two_creates_while_unheard_both_answered_or_refused() -> None:
    clock = ManualClock()
    async with Rig(
        clock=clock,
        recognizer=FakeEngine(clock, hears=[[Wait(800), "What?"]]),
        settings=SessionSettings(instructions="", voice="", turn_detection="none"),
    ) as rig:
        await rig.say(800)
        rig.session.command(CommitInput())
        rig.session.command(CreateReply(metadata={"n": "1"}))
        rig.session.command(CreateReply(metadata={"n": "2"}))
        await rig.wait(4000)
        assert len(rig.of(ReplyStarted)) + len(rig.of(SessionError)) == 2


async def test_auto_answer_and_create_make_one_response() -> None:
    clock = ManualClock()
    async with Rig(clock=clock, recognizer=FakeEngine(clock, hears=[[Wait(1600), "What?"]])) as rig:
        await rig.say(800)
        await rig.wait(1200)  # ended by patience
        assert inside(rig)._turns.unheard
        rig.session.command(CreateReply(metadata={"n": "1"}))
        await rig.wait(6000)
        assert len(rig.of(ReplyStarted)) == 1, rig.kinds()
        assert not inside(rig)._replies.alive()


async def test_push_to_talk_longer_than_30_s_keeps_its_beginning() -> None:
    async with Rig(settings=SessionSettings(instructions="", voice="", turn_detection="none")) as rig:
        await rig.say(35000)
        rig.session.command(CommitInput())
        await rig.wait(1000)
        assert sum(len(request.pcm) for request in engine(rig.recognizer)) // 32 >= 35000


async def test_push_to_talk_speech_is_activity() -> None:
    async with Rig(settings=SessionSettings(instructions="", voice="", turn_detection="none")) as rig:
        await rig.say(20000)
        assert rig.session.idle_ms < 5000


async def test_announced_turn_gets_its_stop_when_a_create_overtakes_it() -> None:
    clock = ManualClock()
    async with Rig(clock=clock, thinker=FakeEngine(clock, says=[STORY])) as rig:
        await rig.say(100)
        assert rig.of(SpeechStarted)
        rig.session.command(CreateReply())
        await rig.wait(6000)
        assert len(rig.of(SpeechStopped)) == len(rig.of(SpeechStarted)), rig.kinds()


SLOW_EAR = [[Wait(900), "Stop it now."]]


async def test_default_config_create_in_the_pause_then_commit_does_not_kill() -> None:
    """All defaults: a question, response.create in its pause (hold), the end of the turn waits, commit."""
    clock = ManualClock()
    async with Rig(
        clock=clock,
        thinker=FakeEngine(clock, says=[[Wait(900), "Yes."]]),
        recognizer=FakeEngine(clock, hears=SLOW_EAR),
    ) as rig:
        await rig.say(800)
        await rig.wait(160)
        rig.session.command(CreateReply())
        await rig.wait(160)
        rig.session.command(CommitInput())
        await rig.wait(3000)
        assert not rig.task.done(), rig.task.exception()


async def test_default_config_create_in_the_pause_then_speech_does_not_kill() -> None:
    clock = ManualClock()
    async with Rig(
        clock=clock,
        thinker=FakeEngine(clock, says=[[Wait(900), "Yes."]]),
        recognizer=FakeEngine(clock, hears=SLOW_EAR),
    ) as rig:
        await rig.say(400)
        await rig.wait(160)
        rig.session.command(CreateReply())
        await rig.wait(160)
        await rig.say(300)
        await rig.wait(3000)
        assert not rig.task.done(), rig.task.exception()


async def test_server_vad_defaults_two_short_sounds_over_a_reply_do_not_kill() -> None:
    clock = ManualClock()
    for first in (160, 180, 200):
        for gap in (480, 500, 520, 540, 560, 580):
            clock = ManualClock()
            async with Rig(
                clock=clock,
                thinker=FakeEngine(clock, says=[STORY]),
                recognizer=FakeEngine(clock, hears=["Tell.", *SLOW_EAR]),
                settings=SessionSettings(instructions="", voice="", turn_detection="server"),
            ) as rig:
                await rig.say(800)
                await rig.wait(1500)
                await rig.say(first)
                await rig.wait(gap)
                await rig.say(300)
                await rig.wait(500)
                assert not rig.task.done(), (first, gap, rig.task.exception())


async def test_sound_that_comes_after_the_stop_neither_plays_nor_mutes_the_next_reply() -> None:
    nothing: Any = None

    clock = ManualClock()
    output = PacedOutput(clock)
    run = ReplyRun(
        ReplyPorts(nothing, output, clock, lambda e: None),
        saying_ask(SessionSettings("", ""), "A."),
        TurnTimeline(None),
    )
    run.go_live(None)
    run.stop("client_cancelled")  # before its first sound
    await run.sound(
        PcmChunk(np.full(2205, 9000, np.int16), 22050)
    )  # the reader was already awake: one more step
    await output.write("B", PcmChunk(np.full(2205, 5000, np.int16), 22050))
    output.finish("B")
    for _ in range(20):
        task = asyncio.create_task(output.next_frame())
        await clock.advance_ms(20)
        await task
    assert output.played_samples(run.reply_id) == 0
    assert output.played_samples("B") == 2205


async def test_a_slow_judge_does_not_make_a_second_answer() -> None:

    class Slow(Executor):
        def __init__(self) -> None:
            self.asked: list[Future[Any]] = []

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            f: Future[Any] = Future()
            self.asked.append(f)
            return f

    slow = Slow()
    async with Rig() as rig:
        inside(rig)._listener._ears = replace(inside(rig)._listener._ears, judge_thread=slow)
        await rig.say(800)
        await rig.wait(1600)  # ended by patience; words known, judge still busy
        slow.asked[0].set_result(0.9)
        await rig.wait(8000)
        assert len(rig.of(TurnTranscribed)) == 1 and len(rig.of(ReplyStarted)) == 1, rig.kinds()
