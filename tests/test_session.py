"""A whole conversation on a clock turned by hand: fakes for models and ear, everything else real."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from tests.fakes import Fail, FakeEngine, FakeOutput, Stall, Use, Voice, Wait
from voice_agent.audio import MicrophoneFrame, Samples
from voice_agent.clock import ManualClock
from voice_agent.commands import AddText, AddToolResult, CancelReply, CommitInput, CreateReply, UpdateSettings
from voice_agent.config import SessionConfig, TurnConfig
from voice_agent.events import (
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    ReplyToolCall,
    ReplyTruncated,
    SessionError,
    SessionEvent,
    SpeechStarted,
    SpeechStopped,
    TranscriptionFailed,
    TurnCommitted,
    TurnTranscribed,
)
from voice_agent.listening import Ears
from voice_agent.session import VoiceSession
from voice_agent.session_parts import SessionParts
from voice_agent.session_settings import SessionSettings
from voice_agent.speech.cascade import Cascade
from voice_agent.speech.thinker import EngineThinker
from voice_agent.speech.watermark import PassThrough
from voice_agent.turn.machine import Reply

WINDOW = 512
STORY = (
    "Once upon a time there was a small frog, who lived in a very deep well, and he sang every single day."
)


class AtOnce(Executor):
    """Runs work where it is asked for: no threads on a clock turned by hand."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class LoudIsVoice:
    """A voice detector: any sound is voice."""

    def __init__(self) -> None:
        self._samples = np.zeros(0, dtype=np.int16)
        self._first = 0

    async def push(self, samples: Samples) -> list[tuple[float, int]]:
        self._samples = np.concatenate([self._samples, samples])
        windows: list[tuple[float, int]] = []
        while len(self._samples) >= WINDOW:
            loud = bool(np.abs(self._samples[:WINDOW]).max() > 1000)
            windows.append((0.95 if loud else 0.02, self._first))
            self._samples = self._samples[WINDOW:]
            self._first += WINDOW
        return windows


class Judge:
    """An end-of-turn model with a script; the last opinion repeats."""

    def __init__(self, *opinions: float) -> None:
        self._opinions = list(opinions) or [0.95]

    def probability(self, samples: Samples) -> float:
        return self._opinions.pop(0) if len(self._opinions) > 1 else self._opinions[0]


@dataclass
class Rig:
    """A session and everything around it; `say` and `wait` move the clock by whole microphone frames."""

    clock: ManualClock = field(default_factory=ManualClock)
    recognizer: FakeEngine | None = None
    thinker: FakeEngine | None = None
    talker: FakeEngine | None = None
    judge: Judge = field(default_factory=Judge)
    turn: TurnConfig = field(default_factory=lambda: TurnConfig(read_ahead_ms=0))
    conversation: SessionConfig = field(default_factory=SessionConfig)
    settings: SessionSettings = field(
        default_factory=lambda: SessionSettings(instructions="Be brief.", voice="")
    )
    events: list[SessionEvent] = field(default_factory=list[SessionEvent])

    async def __aenter__(self) -> "Rig":
        self.recognizer = self.recognizer or FakeEngine(self.clock, hears=[[Wait(200), "What is it?"]])
        self.thinker = self.thinker or FakeEngine(self.clock, says=[[Wait(200), "It is a frog."]])
        self.talker = self.talker or FakeEngine(self.clock)
        self.output = FakeOutput(self.clock)
        cascade = Cascade(EngineThinker(self.thinker), self.talker, PassThrough, self.clock)
        parts = SessionParts(
            self.recognizer,
            cascade,
            Ears(LoudIsVoice(), self.judge, AtOnce()),
            self.output,
            self.clock,
            self.turn,
            self.conversation,
        )
        self._frames: asyncio.Queue[MicrophoneFrame | None] = asyncio.Queue()
        self._first = 0
        self.session = VoiceSession("test", parts, self.settings, self._microphone(), self.events.append)
        self.task = asyncio.create_task(self.session.run())
        await self.clock.advance_ms(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._frames.put_nowait(None)
        await self.clock.advance_ms(1)
        await asyncio.wait_for(self.task, timeout=5)

    async def _microphone(self) -> AsyncIterator[MicrophoneFrame]:
        while (frame := await self._frames.get()) is not None:
            yield frame

    async def say(self, ms: int, level: int = 8000) -> None:
        for _ in range(ms // 20):
            await self.clock.advance_ms(20)
            samples = np.full(320, level, dtype=np.int16)
            self._frames.put_nowait(MicrophoneFrame(samples, self._first))
            self._first += 320
            await self.clock.advance_ms(0)

    async def wait(self, ms: int) -> None:
        await self.say(ms, level=0)

    def of(self, *kinds: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    @property
    def history(self) -> list[tuple[str, str]]:
        return [(m["role"], m["content"]) for m in self.session.chat.messages("")]


async def test_a_spoken_question_is_answered_and_every_event_comes_once_in_order() -> None:
    async with Rig() as rig:
        await rig.say(800)
        await rig.wait(3000)
        assert [k for k in rig.kinds() if k != "ReplyText"] == [
            "SpeechStarted",
            "SpeechStopped",
            "TurnCommitted",
            "TurnTranscribed",
            "ReplyStarted",
            "ReplyDone",
            "PlayoutStarted",
            "PlayoutStopped",
        ]
        (done,) = rig.of(ReplyDone)
        assert (done.status, done.text) == ("completed", "It is a frog.")
        assert rig.history == [("user", "What is it?"), ("assistant", "It is a frog.")]
        assert rig.session.machine.state == "listening"


async def test_parts_of_the_timeline_sum_to_the_total() -> None:
    async with Rig() as rig:
        await rig.say(800)
        await rig.wait(3000)
        (turn,) = rig.session.timeline()["turns"]  # pyright: ignore[reportGeneralTypeIssues]
        parts = turn["parts_ms"]
        assert abs(sum(parts.values()) - turn["total_ms"]) < 0.5
        assert all(ms >= 0 for ms in parts.values())
        assert 400 < turn["total_ms"] < 900


async def test_work_ahead_overlaps_recognition_and_thinking_with_the_end_of_turn_wait() -> None:
    """Silence is 240 ms, recognizer and Thinker 200 each: one after the other they would take 640 and more."""
    async with Rig() as rig:
        await rig.say(800)
        await rig.wait(3000)
        (turn,) = rig.session.timelines
        total = turn.total_ms()
        assert total is not None and total < 640


async def test_going_on_after_a_pause_throws_the_provisional_answer_away_unheard() -> None:
    recognizer_clock = ManualClock()
    recognizer = FakeEngine(recognizer_clock, hears=["What now", "What is the time?"])
    thinker = FakeEngine(recognizer_clock, says=["Wrong.", "It is noon."])
    async with Rig(
        clock=recognizer_clock, recognizer=recognizer, thinker=thinker, judge=Judge(0.6, 0.95)
    ) as rig:
        await rig.say(600)
        await rig.wait(180)
        await rig.say(600)
        await rig.wait(3000)
        assert [e.text for e in rig.of(ReplyDone)] == ["It is noon."]
        assert len(rig.of(TurnCommitted)) == 1
        assert rig.history == [("user", "What is the time?"), ("assistant", "It is noon.")]


async def test_barge_in_holds_then_cancels_everywhere_and_history_keeps_what_was_heard() -> None:
    clock = ManualClock()
    thinker = FakeEngine(clock, says=[STORY * 3, "Sorry."])
    recognizer = FakeEngine(clock, hears=["Tell me a story.", "Stop, please."])
    async with Rig(clock=clock, thinker=thinker, recognizer=recognizer) as rig:
        await rig.say(800)
        await rig.wait(1500)
        assert rig.session.machine.state == "speaking"
        await rig.say(240)
        assert rig.session.machine.state == "held"
        assert rig.output.calls[-1][0] == "hold"
        await rig.say(700)
        assert rig.session.machine.state == "hearing"
        (cut,) = rig.of(ReplyTruncated)
        assert STORY.startswith(cut.heard_text) and 3 <= len(cut.heard_text.split()) <= 12
        assert [e.reason for e in rig.of(ReplyDone)] == ["turn_detected"]
        assert rig.of(PlayoutCleared)
        inside: Any = rig.session.timeline()
        assert not any(inside["in_flight"][stage] for stage in ("thinker", "talker", "playout"))
        await rig.wait(3000)
        assert rig.history[1] == ("assistant", cut.heard_text)
        assert rig.history[2:] == [("user", "Stop, please."), ("assistant", "Sorry.")]


async def test_quiet_talk_in_the_room_holds_a_reply_once_and_a_loud_word_still_stops_it() -> None:
    clock = ManualClock()
    recognizer = FakeEngine(clock, hears=["Tell me a story.", "dinner is ready", "Stop, please."])
    thinker = FakeEngine(clock, says=[STORY * 3])
    async with Rig(clock=clock, thinker=thinker, recognizer=recognizer) as rig:
        await rig.say(800)
        await rig.wait(1500)
        await rig.say(2500, level=1500)
        await rig.wait(300)
        await rig.say(500, level=1500)
        await rig.wait(1000)
        assert [call[0] for call in rig.output.calls].count("hold") == 1
        assert rig.session.machine.state == "speaking"
        await rig.say(700)
        await rig.wait(500)
        assert [e.reason for e in rig.of(ReplyDone)] == ["turn_detected"]


async def test_speech_started_of_a_barge_in_is_told_at_the_verdict_and_dated_back() -> None:
    clock = ManualClock()
    async with Rig(clock=clock, thinker=FakeEngine(clock, says=[STORY])) as rig:
        await rig.say(800)
        await rig.wait(1500)
        await rig.say(240)
        assert len(rig.of(SpeechStarted)) == 1
        await rig.say(700)
        started = rig.of(SpeechStarted)[1]
        assert 1800 <= started.audio_start_ms <= 2320


async def test_a_backchannel_costs_a_pause_and_no_word() -> None:
    clock = ManualClock()
    thinker = FakeEngine(clock, says=[STORY])
    recognizer = FakeEngine(clock, hears=["Tell me a story.", [Wait(100), "Mm-hmm."]])
    async with Rig(clock=clock, thinker=thinker, recognizer=recognizer) as rig:
        await rig.say(800)
        await rig.wait(1500)
        await rig.say(300)
        await rig.wait(8000)
        assert [call for call, _ in rig.output.calls if call in {"hold", "resume", "flush"}] == [
            "hold",
            "resume",
        ]
        assert [e.status for e in rig.of(ReplyDone)] == ["completed"]
        assert len(rig.of(SpeechStarted)) == 1
        assert rig.history[-1] == ("assistant", STORY)
        written = sum(len(c.samples) for c in rig.output.written(rig.of(ReplyStarted)[0].reply_id))
        assert len(rig.output.heard(rig.of(ReplyStarted)[0].reply_id)) == written


async def test_a_finished_reply_is_not_cut_when_the_user_speaks_later() -> None:
    async with Rig() as rig:
        await rig.say(800)
        await rig.wait(4000)
        await rig.say(800)
        await rig.wait(3000)
        assert not rig.of(ReplyTruncated)
        assert rig.history[1] == ("assistant", "It is a frog.")
        assert len(rig.of(ReplyDone)) == 2


async def test_no_words_close_the_turn_without_a_reply_and_the_next_one_works() -> None:
    clock = ManualClock()
    async with Rig(clock=clock, recognizer=FakeEngine(clock, hears=["", "What is it?"])) as rig:
        await rig.say(500)
        await rig.wait(2000)
        assert [e.text for e in rig.of(TurnTranscribed)] == [""]
        assert not rig.of(ReplyStarted) and rig.session.machine.state == "listening"
        await rig.say(500)
        await rig.wait(3000)
        assert len(rig.of(ReplyDone)) == 1


async def test_typed_text_interrupts_a_spoken_reply_at_once() -> None:
    clock = ManualClock()
    async with Rig(clock=clock, thinker=FakeEngine(clock, says=[STORY, "Yes."])) as rig:
        await rig.say(800)
        await rig.wait(1500)
        rig.session.command(AddText("item_1", "user", "Are you there?"))
        rig.session.command(CreateReply())
        await rig.wait(2000)
        assert [(e.status, e.reason) for e in rig.of(ReplyDone)] == [
            ("cancelled", "client_cancelled"),
            ("completed", None),
        ]
        assert rig.history[-2:] == [("user", "Are you there?"), ("assistant", "Yes.")]


async def test_cancel_stops_the_reply_and_again_is_an_error_with_the_clients_event_id() -> None:
    clock = ManualClock()
    async with Rig(clock=clock, thinker=FakeEngine(clock, says=[STORY])) as rig:
        await rig.say(800)
        await rig.wait(1000)
        rig.session.command(CancelReply())
        rig.session.command(CancelReply(client_event_id="e1"))
        assert len(rig.of(ReplyDone)) == 1
        (error,) = rig.of(SessionError)
        assert (error.code, error.client_event_id) == ("response_cancel_not_active", "e1")


@pytest.mark.parametrize("steps", [[Fail("boom")], ["Half a", Fail("boom")]])
async def test_a_thinker_that_fails_ends_the_reply_with_its_code_and_the_session_lives(steps: Any) -> None:
    clock = ManualClock()
    async with Rig(clock=clock, thinker=FakeEngine(clock, says=[steps, "Fine."])) as rig:
        await rig.say(800)
        await rig.wait(3000)
        await rig.say(800)
        await rig.wait(3000)
        assert [(e.status, e.reason) for e in rig.of(ReplyDone)] == [("failed", "boom"), ("completed", None)]


async def test_a_thinker_that_stalls_is_given_up_after_its_limit() -> None:
    clock = ManualClock()
    async with Rig(clock=clock, thinker=FakeEngine(clock, says=[["Well then,", Stall()], "Fine."])) as rig:
        await rig.say(800)
        await rig.wait(19_000)
        assert not rig.of(ReplyDone)
        await rig.wait(3000)
        assert [(e.status, e.reason) for e in rig.of(ReplyDone)] == [("failed", "engine_stalled")]
        await rig.say(800)
        await rig.wait(3000)
        assert rig.of(ReplyDone)[-1].status == "completed"


async def test_an_engine_failure_before_any_sound_is_tried_once_more() -> None:
    clock = ManualClock()
    async with Rig(
        clock=clock, thinker=FakeEngine(clock, says=[[Fail("died", retryable=True)], "Here I am."])
    ) as rig:
        await rig.say(800)
        await rig.wait(3000)
        assert [(e.status, e.text) for e in rig.of(ReplyDone)] == [("completed", "Here I am.")]


@pytest.mark.parametrize(("temperature", "status"), [(0.0, "completed"), (0.7, "failed")])
async def test_what_was_shown_but_not_played_is_tried_again_if_the_words_will_be_the_same(
    temperature: float, status: str
) -> None:
    clock = ManualClock()
    broken_off = ["Here ", Wait(300), Fail("died", retryable=True)]
    settings = SessionSettings(instructions="", voice="", temperature=temperature)
    thinker = FakeEngine(clock, says=[broken_off, "Here I am."])
    async with Rig(clock=clock, thinker=thinker, settings=settings) as rig:
        await rig.say(800)
        await rig.wait(4000)
        done = rig.of(ReplyDone)
        assert [e.status for e in done] == [status]
        assert "".join(e.delta for e in rig.of(ReplyText)) == done[0].text
        assert done[0].text == ("Here I am." if status == "completed" else "Here ")


async def test_what_was_written_before_the_thinker_died_is_heard_to_its_end() -> None:
    clock = ManualClock()
    written = "The old mill near the river is closed today, and the baker has gone to town."
    thinker = FakeEngine(clock, says=[[written, Wait(100), Fail("engine_died")], "Fine."])
    async with Rig(clock=clock, thinker=thinker) as rig:
        await rig.say(800)
        await rig.wait(1500)
        (error,) = rig.of(SessionError)
        assert error.code == "engine_died"  # at once, while it is still spoken
        assert rig.session.machine.reply is Reply.SPEAKING
        await rig.wait(6000)
        (done,) = rig.of(ReplyDone)
        assert (done.status, done.reason) == ("failed", "engine_died")
        assert rig.history[-1] == ("assistant", written)
        (reply,) = rig.of(ReplyStarted)
        assert len(rig.output.heard(reply.reply_id)) == 16 * 4410  # every word of it
        await rig.say(800)
        await rig.wait(3000)
        assert rig.of(ReplyDone)[-1].status == "completed"


async def test_a_barge_in_stops_what_a_dead_thinker_left_behind() -> None:
    clock = ManualClock()
    thinker = FakeEngine(clock, says=[[STORY, Wait(100), Fail("engine_died")], "Fine."])
    async with Rig(clock=clock, thinker=thinker) as rig:
        await rig.say(800)
        await rig.wait(1500)
        await rig.say(1200)
        await rig.wait(3000)
        assert [e.status for e in rig.of(ReplyDone)] == ["failed", "completed"]
        (cut,) = rig.of(ReplyTruncated)
        assert cut.heard_text and len(cut.heard_text) < len(STORY) / 2
        assert rig.talker and not rig.talker.in_flight()


async def test_a_recognizer_that_fails_says_so_and_no_reply_is_made() -> None:
    clock = ManualClock()
    async with Rig(clock=clock, recognizer=FakeEngine(clock, hears=[[Fail("deaf")], "What is it?"])) as rig:
        await rig.say(800)
        await rig.wait(2000)
        assert [e.code for e in rig.of(TranscriptionFailed)] == ["deaf"]
        assert not rig.of(ReplyStarted)
        await rig.say(800)
        await rig.wait(3000)
        assert len(rig.of(ReplyDone)) == 1


async def test_push_to_talk_commits_only_when_told() -> None:
    settings = SessionSettings(instructions="", voice="", turn_detection="none")
    async with Rig(settings=settings) as rig:
        await rig.say(1000)
        await rig.wait(5000)
        await rig.say(500)
        assert not rig.of(TurnCommitted)
        rig.session.command(CommitInput())
        await rig.wait(3000)
        assert len(rig.of(TurnCommitted)) == 1 and not rig.of(SpeechStarted, SpeechStopped, ReplyStarted)
        assert rig.recognizer
        (request,) = rig.recognizer.requests
        assert len(request.pcm) // 2 >= 6400 * 16  # pyright: ignore[reportAttributeAccessIssue]
        rig.session.command(CreateReply())
        await rig.wait(2000)
        assert [e.status for e in rig.of(ReplyDone)] == ["completed"]


async def test_a_reply_asked_for_right_after_a_commit_waits_for_its_words() -> None:
    settings = SessionSettings(instructions="", voice="", turn_detection="none")
    async with Rig(settings=settings) as rig:
        await rig.say(1000)
        rig.session.command(CommitInput())
        rig.session.command(CreateReply())
        await rig.wait(2000)
        assert rig.history == [("user", "What is it?"), ("assistant", "It is a frog.")]


async def test_speech_over_a_reply_that_must_not_be_interrupted_is_answered_after_it() -> None:
    clock = ManualClock()
    thinker = FakeEngine(clock, says=[STORY, "Yes."])
    recognizer = FakeEngine(clock, hears=["Tell me a story.", "Is it true?"])
    async with Rig(clock=clock, thinker=thinker, recognizer=recognizer) as rig:
        rig.session.command(UpdateSettings({"interrupt_response": False}))
        await rig.say(800)
        await rig.wait(1500)
        await rig.say(800)
        await rig.wait(9000)
        assert [e.status for e in rig.of(ReplyDone)] == ["completed", "completed"]
        assert [text for _, text in rig.history] == ["Tell me a story.", STORY, "Is it true?", "Yes."]


async def test_a_cough_that_stopped_an_unheard_reply_does_not_leave_the_question_unanswered() -> None:
    clock = ManualClock()
    recognizer = FakeEngine(clock, hears=["What is it?", ""])
    thinker = FakeEngine(clock, says=[[Wait(900), "It is a frog."]])
    async with Rig(clock=clock, thinker=thinker, recognizer=recognizer) as rig:
        await rig.say(800)
        await rig.wait(600)
        await rig.say(760)  # long enough to be taken for speech
        await rig.wait(4000)
        assert rig.of(ReplyDone)[-1].status == "completed"
        assert rig.history[-1] == ("assistant", "It is a frog.")


async def test_an_empty_commit_is_refused() -> None:
    async with Rig() as rig:
        rig.session.command(CommitInput("e9"))
        (error,) = rig.of(SessionError)
        assert (error.code, error.client_event_id) == ("input_audio_buffer_commit_empty", "e9")


async def test_greeting_is_said_first_and_can_be_interrupted() -> None:
    conversation = replace(SessionConfig(), greeting=STORY)
    clock = ManualClock()
    async with Rig(
        clock=clock,
        conversation=conversation,
        recognizer=FakeEngine(clock, hears=["Wait, what is this?"]),
    ) as rig:
        await rig.wait(1000)
        assert rig.of(PlayoutStarted)
        await rig.say(1000)
        await rig.wait(3000)
        assert [(e.status) for e in rig.of(ReplyDone)] == ["cancelled", "completed"] or [
            e.status for e in rig.of(ReplyDone)
        ] == ["completed", "completed"]
        assert rig.of(ReplyTruncated) and rig.history[0][0] == "assistant"
        assert STORY.startswith(rig.history[0][1]) and rig.history[0][1] != STORY


async def test_a_reply_does_not_start_before_the_floor_that_was_set() -> None:
    async with Rig(turn=replace(TurnConfig(), min_reply_delay_ms=1500)) as rig:
        await rig.say(800)
        await rig.wait(4000)
        total_ms = rig.session.timelines[0].total_ms()
        assert total_ms is not None and 1490 <= total_ms <= 1560


async def test_a_recognizer_that_hangs_is_given_up_and_the_next_turn_works() -> None:
    clock = ManualClock()
    async with Rig(clock=clock, recognizer=FakeEngine(clock, hears=[[Stall()], "What is it?"])) as rig:
        await rig.say(800)
        await rig.wait(17_000)
        assert [e.code for e in rig.of(TranscriptionFailed)] == ["engine_stalled"]
        await rig.say(800)
        await rig.wait(3000)
        assert [e.status for e in rig.of(ReplyDone)] == ["completed"]


async def test_a_tool_interrupted_in_mid_flight_ends_exactly_once_as_cancelled() -> None:
    clock = ManualClock()
    thinker = FakeEngine(clock, says=[[Use("weather")], "Never mind."])
    recognizer = FakeEngine(clock, hears=["Will it rain?", "Forget it."])
    async with Rig(clock=clock, thinker=thinker, recognizer=recognizer) as rig:
        await rig.say(800)
        await rig.wait(2000)
        (call,) = rig.of(ReplyToolCall)
        await rig.say(800)
        await rig.wait(2500)
        rig.session.command(AddToolResult("late", call.call_id, "rain"))
        messages = rig.session.chat.messages("")
        assert [m["content"] for m in messages if m["role"] == "tool"] == ["cancelled"]
        assert rig.of(SessionError)[-1].code == "invalid_value"


async def test_a_tool_call_waits_for_the_turn_to_be_certain_and_its_result_is_paired() -> None:
    clock = ManualClock()
    thinker = FakeEngine(clock, says=[["Let me see. ", Use("weather", '{"city":"Oslo"}')], "It rains."])
    async with Rig(clock=clock, thinker=thinker) as rig:
        await rig.say(800)
        await rig.wait(2500)
        (call,) = rig.of(ReplyToolCall)
        order = rig.kinds()
        assert order.index("TurnCommitted") < order.index("ReplyToolCall") < order.index("ReplyDone")
        rig.session.command(AddToolResult("item_r", call.call_id, "rain"))
        rig.session.command(AddToolResult("item_s", call.call_id, "again"))
        assert [e.code for e in rig.of(SessionError)] == ["invalid_value"]
        rig.session.command(CreateReply())
        await rig.wait(2500)
        assert rig.of(ReplyDone)[-1].text == "It rains."
        roles = [m["role"] for m in rig.session.chat.messages("")]
        assert roles == ["user", "assistant", "tool", "assistant"]


async def test_korean_text_for_an_english_voice_gives_captions_and_a_typed_error() -> None:
    clock = ManualClock()
    async with Rig(clock=clock, thinker=FakeEngine(clock, says=["안녕하세요, 반갑습니다."])) as rig:
        rig.session._parts.cascade._languages = lambda: ("en",)  # pyright: ignore[reportPrivateUsage]
        await rig.say(800)
        await rig.wait(2000)
        assert [e.code for e in rig.of(SessionError)] == ["unsupported_language"]
        assert "".join(e.delta for e in rig.of(ReplyText)) == "안녕하세요, 반갑습니다."
        assert not rig.of(PlayoutStarted) and rig.session.machine.state == "listening"


async def test_settings_change_while_running() -> None:
    async with Rig() as rig:
        rig.session.command(UpdateSettings({"instructions": "Shout.", "text_only": True}))
        await rig.say(800)
        await rig.wait(2000)
        assert rig.thinker and rig.talker
        (think,) = rig.thinker.requests
        assert think.messages[0] == {"role": "system", "content": "Shout."}  # pyright: ignore[reportAttributeAccessIssue]
        assert not rig.talker.requests and rig.of(ReplyDone)[0].status == "completed"


async def test_silence_from_the_talker_ends_the_reply_normally() -> None:
    clock = ManualClock()
    talker = FakeEngine(clock, voice=Voice(silent=True))
    async with Rig(clock=clock, thinker=FakeEngine(clock, says=["...", "Yes."]), talker=talker) as rig:
        await rig.say(800)
        await rig.wait(1500)
        assert [e.status for e in rig.of(ReplyDone)] == ["completed"]
        assert rig.session.machine.state == "listening"
        assert not rig.of(PlayoutStopped)
