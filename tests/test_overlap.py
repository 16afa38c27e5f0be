"""Speech over a reply: what is known of it comes to be judged, and the verdict reaches the floor in its order."""

import logging
from typing import Any

import pytest

from tests.fakes import Stall
from tests.session_pieces import LOUD, Pieces
from voice_agent.config import TurnConfig
from voice_agent.engine.messages import Transcribe
from voice_agent.events import SpeechStarted
from voice_agent.overlap import Overlap, OverlapPorts
from voice_agent.turn.endpoint import Edge, Onset, Pause, TurnEnd
from voice_agent.turn.machine import Action, Event, Reply, User
from voice_agent.turn.rules import barge_in_rules

QUIET = LOUD // 4  # 12 dB less: somebody else's talk
END = TurnEnd(16_000, "silence")
HELD, NOISE, STOP = Event.OVERLAP, Event.BACKCHANNEL, Event.INTERRUPT
UNKNOWN: list[Any] = [[Stall()]]  # the recognizer never says what it heard


class Talk:
    """Speech over a reply that plays; a pause makes `text` known. What the floor says is done as a session does it."""

    def __init__(self, pieces: Pieces, reply: Reply = Reply.SPEAKING) -> None:
        self.pieces = pieces
        self.text: str | None = None
        self.first_words: str | None = None
        pieces.carry_out = self._carry_out
        ports = OverlapPorts(
            "s1",
            pieces.machine,
            pieces.listener,
            pieces.turns,
            pieces.clock,
            pieces.present_settings,
            pieces.tell,
        )
        self.overlap = Overlap(ports, barge_in_rules(TurnConfig()))
        self.begin_reply(reply)

    def begin_reply(self, reply: Reply = Reply.SPEAKING) -> None:
        self.pieces.machine.reply = reply
        self.overlap.reply_begins()

    async def usual_loudness(self) -> None:
        """A turn that was answered: now it is known how loud the user is."""
        self.pieces.machine.reply = Reply.NONE
        await self.say(20)
        self.pieces.listener.loudness.learn()
        self._forget()
        self.pieces.machine.user = User.SILENT
        await self.say(3, 0)
        self.begin_reply()
        self.pieces.floor.clear()

    async def say(self, windows: int, level: int = LOUD) -> None:
        for _ in range(windows):
            for edge in await self.pieces.hear(level):
                self._on_edge(edge)
            if turn := self.pieces.turns.current:
                turn.first_words = self.first_words
            self.overlap.judge()

    def _on_edge(self, edge: Edge) -> None:
        match edge:
            case Onset():
                self.overlap.end_late_turn(forced=True)
                self.pieces.machine.handle(Event.ONSET)
                self.pieces.turns.open(announce=False)
            case Pause():
                self.pieces.machine.handle(Event.PAUSE)
                if turn := self.pieces.turns.current:
                    turn.pause, turn.text = edge, self.text
            case TurnEnd() if self.pieces.machine.reply is Reply.HELD:
                self.overlap.late_end = edge
            case _:
                self.pieces.tell(Event.TURN_END, edge)

    def _carry_out(self, actions: tuple[Action, ...], *_: object) -> None:
        if Action.HOLD in actions:
            self.overlap.held()
        if Action.FORGET_TURN in actions:
            self._forget()

    def _forget(self) -> None:
        self.pieces.turns.forget()
        self.pieces.endpointer.reset()


# --- what is known of the speech reaches the verdict ------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoken", "silent", "text", "first_words", "told"),
    [  # windows of 32 ms; the fifth holds the reply
        (4, 0, None, None, []),
        (5, 0, None, None, [HELD]),
        (32, 0, None, None, [HELD]),  # 1,024 ms: still any sound
        (33, 0, None, None, [HELD, STOP]),
        (21, 0, None, "What is", [HELD]),
        (22, 0, None, "What is", [HELD, STOP]),  # 704 ms of words
        (32, 0, None, "oh, I", [HELD]),  # the deadline is past, but it begins like a sound of listening
        (10, 1, "stop please", None, [HELD]),  # no pause yet
        (10, 2, "stop please", None, [HELD, STOP]),
        (10, 12, "Mm-hmm.", None, [HELD]),  # 384 ms of silence: "but ..." may come
        (10, 13, "Mm-hmm.", None, [HELD, NOISE]),
        (18, 5, "Mm-hmm.", None, [HELD]),
        (18, 6, "Mm-hmm.", None, [HELD, NOISE]),  # 608 ms after the hold
        (15, 8, "", None, [HELD]),
        (15, 9, "", None, [HELD, NOISE]),
        (10, 23, None, None, [HELD]),
        (10, 24, None, None, [HELD, NOISE]),  # 928 ms after the hold, words or no words
        (15, 19, None, None, [HELD, STOP]),  # 480 ms are too long for a sound of listening
    ],
)
async def test_the_evidence_of_each_moment_is_judged(
    spoken: int, silent: int, text: str | None, first_words: str | None, told: list[Event]
) -> None:
    async with Pieces(hears=UNKNOWN) as pieces:
        talk = Talk(pieces)
        talk.text, talk.first_words = text, first_words
        await talk.say(spoken)
        await talk.say(silent, 0)
        assert pieces.floor == told


@pytest.mark.parametrize(
    ("user", "reply", "told"),
    [
        (User.SILENT, Reply.NONE, []),
        (User.SILENT, Reply.SPEAKING, []),
        (User.SILENT, Reply.HELD, []),
        (User.SPEAKING, Reply.NONE, []),
        (User.SPEAKING, Reply.THINKING, [HELD, STOP]),
        (User.SPEAKING, Reply.SPEAKING, [HELD, STOP]),
        (User.SPEAKING, Reply.HELD, [STOP]),
        (User.PAUSED, Reply.NONE, []),
        (User.PAUSED, Reply.SPEAKING, [HELD, STOP]),
        (User.PAUSED, Reply.HELD, [STOP]),
    ],
)
@pytest.mark.parametrize("interrupt_response", [True, False])
async def test_only_speech_over_a_reply_that_may_be_interrupted_is_judged(
    user: User, reply: Reply, told: list[Event], interrupt_response: bool
) -> None:
    async with Pieces(hears=UNKNOWN, interrupt_response=interrupt_response) as pieces:
        talk = Talk(pieces, Reply.NONE)
        await talk.say(40)
        pieces.machine.user, pieces.machine.reply = user, reply
        talk.overlap.judge()
        assert pieces.floor == (told if interrupt_response else [])


async def test_an_interruption_is_told_to_the_client_before_the_floor_and_once() -> None:
    async with Pieces(hears=UNKNOWN) as pieces:
        await Talk(pieces).say(40)
        started, stop = pieces.told[1:]
        assert isinstance(started, SpeechStarted) and stop is STOP  # clients stop their loudspeaker on it


async def test_a_sound_of_listening_is_told_to_no_client() -> None:
    async with Pieces(hears=UNKNOWN) as pieces:
        talk = Talk(pieces)
        talk.text = "Mm-hmm."
        await talk.say(10)
        await talk.say(20, 0)
        assert pieces.told == [HELD, NOISE]


@pytest.mark.parametrize(("reply", "heard"), [(Reply.NONE, 0), (Reply.SPEAKING, 1)])
async def test_first_words_are_heard_of_speech_that_holds_a_reply(reply: Reply, heard: int) -> None:
    async with Pieces(hears=UNKNOWN) as pieces:
        talk = Talk(pieces, reply)
        await talk.say(10)  # 320 ms
        assert not pieces.recognizer.of_kind(Transcribe)
        await talk.say(1)
        await pieces.settle()
        assert len(pieces.recognizer.of_kind(Transcribe)) == heard


async def test_the_log_tells_the_evidence_once_and_no_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "voice_agent.overlap")
    async with Pieces(hears=UNKNOWN) as pieces:
        talk = Talk(pieces)
        talk.text = "stop please"
        await talk.say(10)
        await talk.say(3, 0)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "voice_agent.overlap"]
    assert line.startswith("session s1: 320 ms of speech") and "2 words" in line and "stop" not in line


# --- quiet talk: somebody else's --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "level", "told"),
    [
        (None, QUIET, []),  # it was ignored, and more of it holds nothing
        (None, LOUD, [HELD]),  # the user
        ("Mm-hmm.", QUIET, []),  # nor after the user was heard to listen
        ("next reply", QUIET, [HELD]),  # each reply is held once for it
    ],
)
async def test_quiet_talk_holds_a_reply_once(then: str | None, level: int, told: list[Event]) -> None:
    async with Pieces(hears=UNKNOWN) as pieces:
        talk = Talk(pieces)
        await talk.usual_loudness()
        await talk.say(24, QUIET)  # goes on beyond the deadline
        assert pieces.floor == [HELD, NOISE]
        await talk.say(3, 0)
        if then == "Mm-hmm.":
            talk.text = then
            await talk.say(10)
            await talk.say(20, 0)
            assert pieces.floor[2:] == [HELD, NOISE]
        elif then:
            talk.begin_reply()
        pieces.floor.clear()
        await talk.say(8, level)
        assert pieces.floor == told


async def test_quiet_talk_is_one_kind_of_noise_and_a_sound_of_listening_another() -> None:
    """Only what was ignored as somebody else's may not hold the reply again: not any noise, nor all that was quiet."""
    async with Pieces(hears=UNKNOWN) as pieces:
        talk = Talk(pieces)
        await talk.usual_loudness()
        talk.text = "Mm-hmm."
        await talk.say(6, QUIET)
        await talk.say(10)  # it was the user all along
        await talk.say(20, 0)
        assert pieces.floor == [HELD, NOISE]
        await talk.say(8, QUIET)
        assert pieces.floor == [HELD, NOISE, HELD]


# --- a turn that ends before the verdict ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "reply", "forced", "told", "kept"),
    [
        (User.PAUSED, Reply.HELD, False, [], True),
        (User.PAUSED, Reply.HELD, True, [STOP, Event.TURN_END], False),  # who speaks again means to interrupt
        (User.PAUSED, Reply.NONE, False, [Event.TURN_END], False),
        (User.PAUSED, Reply.NONE, True, [Event.TURN_END], False),
        (User.PAUSED, Reply.SPEAKING, False, [Event.TURN_END], False),
        (User.SPEAKING, Reply.NONE, False, [Event.TURN_END], False),
        (User.SILENT, Reply.NONE, False, [], False),  # what was said was forgotten
        (User.SILENT, Reply.SPEAKING, True, [], False),
    ],
)
async def test_a_late_end_waits_for_the_verdict_and_no_longer(
    user: User, reply: Reply, forced: bool, told: list[Event], kept: bool
) -> None:
    async with Pieces() as pieces:
        talk = Talk(pieces)
        edges: list[Edge | None] = []
        pieces.carry_out = lambda actions, event, edge: edges.append(edge)
        pieces.machine.user, pieces.machine.reply = user, reply
        talk.overlap.late_end = END
        talk.overlap.end_late_turn(forced=forced)
        assert pieces.floor == told and talk.overlap.late_end == (END if kept else None)
        assert (END in edges) == (Event.TURN_END in told)
        talk.overlap.end_late_turn()
        assert pieces.floor == told  # once


async def test_without_a_late_end_speech_again_interrupts_nothing() -> None:
    async with Pieces() as pieces:
        talk = Talk(pieces, Reply.HELD)
        talk.overlap.end_late_turn(forced=True)
        assert pieces.floor == []


async def test_a_late_end_is_told_though_the_reply_may_no_longer_be_interrupted() -> None:
    async with Pieces(interrupt_response=False) as pieces:
        talk = Talk(pieces, Reply.NONE)
        pieces.machine.user = User.PAUSED
        talk.overlap.late_end = END
        talk.overlap.judge()
        assert pieces.floor == [Event.TURN_END]


@pytest.mark.parametrize(
    ("spoken", "silent", "text", "told"),
    [  # the turn ends 224 ms after its last voiced window, before anything is known
        (15, 18, None, [HELD]),
        (15, 19, None, [HELD, STOP]),
        (15, 20, None, [HELD, STOP, Event.TURN_END]),
        (10, 24, None, [HELD, NOISE]),
        (15, 8, "Mm-hmm.", [HELD]),
        (15, 9, "Mm-hmm.", [HELD, NOISE]),
        (15, 3, "stop please", [HELD, STOP]),
    ],
)
async def test_speech_whose_turn_is_over_is_judged_by_its_length_all_the_same(
    spoken: int, silent: int, text: str | None, told: list[Event]
) -> None:
    async with Pieces(hears=UNKNOWN, turn_detection="server", silence_ms=200) as pieces:
        talk = Talk(pieces)
        talk.text = text
        await talk.say(spoken)
        await talk.say(silent, 0)
        assert pieces.floor == told


async def test_who_speaks_again_before_the_verdict_interrupts() -> None:
    async with Pieces(hears=UNKNOWN, turn_detection="server", silence_ms=200) as pieces:
        talk = Talk(pieces)
        await talk.say(10)
        await talk.say(8, 0)
        assert pieces.floor == [HELD] and talk.overlap.late_end
        await talk.say(2)
        assert pieces.floor == [HELD, STOP, Event.TURN_END]
        assert len(pieces.of(SpeechStarted)) == 1
