"""One conversation, whatever it comes through: the way of the sound from microphone to ear.

    microphone ─ listener (VAD, end of turn) ─ turn machine ─ recognizer ─ Thinker ─ Talker ─ VoiceBox ─ output
                                                                 heard text ─► chat history ◄─ played samples

One task group holds all that runs. Decisions are made by the pure objects in `turn/` in one synchronous step each,
with no await between asking and acting; a working-ahead result that comes too late finds its turn gone.

On the way: `listening` the ears, `turns` the user's turns and their words, `working_ahead` what is begun before one is
certain, `wanted_replies` what is to be answered, `replies` the answers, `overlap` speech over one of them. Beside it:
`push_to_talk`, `history_edits` and `spoken_items` for the client, `idle_timeout` for silence, `inside` for who looks.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

from voice_agent.audio import MicrophoneFrame, dbfs
from voice_agent.clock import ms_between
from voice_agent.commands import (
    AppendSound,
    CancelReply,
    ClearInput,
    ClearOutput,
    CommitInput,
    CreateReply,
    SessionCommand,
    UpdateSettings,
)
from voice_agent.events import SessionEvent, SettingsChanged
from voice_agent.history_edits import HistoryEdits
from voice_agent.idle_timeout import IdleTimeout
from voice_agent.inside import Inside
from voice_agent.listening import Listener
from voice_agent.metrics import TurnTimeline
from voice_agent.overlap import Overlap, OverlapPorts
from voice_agent.push_to_talk import KEPT_SOUND_MS, PushToTalk
from voice_agent.replies import Replies
from voice_agent.reply import ReplyPorts
from voice_agent.session_parts import SessionParts
from voice_agent.session_settings import SessionSettings
from voice_agent.speech.chat import Chat
from voice_agent.spoken_items import SpokenItems, SpokenPorts
from voice_agent.turn.endpoint import Edge, Endpointer, Onset, Pause, Resume, TurnEnd
from voice_agent.turn.machine import Action, Event, Reply, TurnMachine, User
from voice_agent.turn.rules import barge_in_rules, session_rules
from voice_agent.turns import TurnPorts, Turns, UserTurn
from voice_agent.wanted_replies import WantedPorts, WantedReplies
from voice_agent.working_ahead import AheadPorts, WorkingAhead

logger = logging.getLogger(__name__)

ACTIVE_DBFS = -45.0  # the level from which sound counts as voice where no detector is asked


class VoiceSession:
    """A conversation. `run` lives until the microphone ends or it is cancelled; `command` acts at once.

    State: `machine` who has the floor, `_turns` and `_replies` what is under way, `_wanted` what is to be answered.
    """

    def __init__(
        self,
        session_id: str,
        parts: SessionParts,
        settings: SessionSettings,
        microphone: AsyncIterator[MicrophoneFrame],
        emit: Callable[[SessionEvent], None],
    ) -> None:
        self.session_id = session_id
        self.settings = settings
        self.machine = TurnMachine()
        self.chat = Chat()
        self._parts = parts
        self._microphone = microphone
        self._emit = emit
        recognizer, clock, machine = parts.recognizer, parts.clock, self.machine
        self._endpointer = Endpointer(session_rules(parts.turn, settings))
        self._listener = Listener(parts.ears, self._endpointer, clock, self._prefix_ms, KEPT_SOUND_MS)
        turn_ports = TurnPorts(
            recognizer, self._listener, clock, self._language, self._tell_out, self._spawn, self._understood
        )
        self._turns = Turns(turn_ports)
        spoken_ports = SpokenPorts(
            recognizer, clock, self.chat, self._language, self._tell_out, self._spawn, self._items_understood
        )
        self._spoken = SpokenItems(spoken_ports)
        ports = ReplyPorts(
            parts.cascade,
            parts.output,
            clock,
            self._tell_out,
            parts.turn.min_reply_delay_ms,
            parts.aside_output,
        )
        self._replies = Replies(ports, self.chat, self._spawn, self._do)
        self._inside = Inside(
            session_id, machine, self._turns, self._replies, self.chat, parts.cascade, parts.output
        )
        self._edits = HistoryEdits(
            self.chat, self._replies, self._spoken, emit, lambda: self._do(Event.CANCEL)
        )
        wanted_ports = WantedPorts(
            machine,
            self._turns,
            self._spoken,
            self._replies,
            clock,
            self._present_settings,
            emit,
            self._do,
            self._inside.keep,
        )
        self._wanted = WantedReplies(wanted_ports)
        overlap_ports = OverlapPorts(
            session_id, machine, self._listener, self._turns, clock, self._present_settings, self._do
        )
        self._overlap = Overlap(overlap_ports, barge_in_rules(parts.turn))
        ahead_ports = AheadPorts(
            machine,
            self._endpointer,
            recognizer,
            self._turns,
            self._spoken,
            self._replies,
            parts.turn,
            self._present_settings,
        )
        self._ahead = WorkingAhead(ahead_ports)
        self._push_to_talk = PushToTalk(machine, self._listener, self._turns, self._replies, emit, self._do)
        self._idle_timeout = IdleTimeout(machine, self.chat, emit, self._wanted.create)
        self._active_ns = parts.clock.now_ns()
        self._group: asyncio.TaskGroup | None = None

    def _language(self) -> str:
        """That the user speaks; empty lets the recognizer decide."""
        return self.settings.language or self._parts.language

    def _present_settings(self) -> SessionSettings:
        return self.settings

    def _tell_out(self, event: SessionEvent) -> None:
        self._active_ns = self._parts.clock.now_ns()
        self._emit(event)

    # life

    async def run(self) -> None:
        """Listen, answer, be interrupted; returns when the microphone ends."""
        async with asyncio.TaskGroup() as self._group:
            greeting = self._parts.conversation.greeting
            if greeting and self.settings.answers:
                self._replies.say(self.settings, greeting)
            await self._listen()
            self._cancel_all()

    async def _listen(self) -> None:
        async for frame in self._microphone:
            by_hand = self.settings.turn_detection == "none"
            for edge in await self._listener.hear(frame, detect=not by_hand):
                self._on_edge(edge)
            if by_hand:
                self._follow_by_hand(frame)
            else:
                self._overlap.judge()
                self._ahead.read()
                self._idle_timeout.listen(self.settings, self._listener.end_sample)

    def _follow_by_hand(self, frame: MicrophoneFrame) -> None:
        """Push to talk: loud sound is activity, though nobody asks the voice detector."""
        if dbfs(frame.samples) > ACTIVE_DBFS:
            self._active_ns = self._parts.clock.now_ns()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._group is not None
        return self._group.create_task(work)

    def _cancel_all(self) -> None:
        self._turns.forget()
        self._replies.cancel_all()

    @property
    def idle_ms(self) -> float:
        """Time since anybody said or did something."""
        return ms_between(self._active_ns, self._parts.clock.now_ns())

    # the user's turn

    def _on_edge(self, edge: Edge) -> None:
        self._active_ns = self._parts.clock.now_ns()
        match edge:
            case Onset():
                self._overlap.end_late_turn(forced=True)
                self._do(Event.ONSET)
            case Pause():
                self._do(Event.PAUSE, edge)
            case Resume():
                self._do(Event.RESUME)
            case TurnEnd() if self.machine.reply is Reply.HELD:
                self._overlap.late_end = edge  # the verdict comes first
            case TurnEnd():
                self._do(Event.TURN_END, edge)

    def _do(self, event: Event, edge: Edge | None = None) -> None:
        """Tell the machine, carry out what it says."""
        for action in self.machine.handle(event):
            logger.info("session %s: %s, so %s", self.session_id, event.value, action.value)
            match action:
                case Action.OPEN_TURN:
                    self._turns.open(announce=self.machine.reply is Reply.NONE)
                case Action.WORK_AHEAD if isinstance(edge, Pause):
                    self._ahead.paused(edge)
                case Action.DROP_AHEAD:
                    self._turns.drop_ahead()
                    self._replies.throw_away_ahead()
                case Action.COMMIT if isinstance(edge, TurnEnd):
                    self._commit(edge)
                case Action.HOLD:
                    self._parts.output.hold()
                    self._overlap.held()
                case Action.RESUME:
                    self._parts.output.resume()
                case Action.CANCEL:
                    self._wanted.stop("turn_detected" if event is Event.INTERRUPT else "client_cancelled")
                    self._parts.output.resume()
                case Action.FORGET_TURN if isinstance(edge, TurnEnd) and self._was_meant():
                    self._commit(edge)
                case _:
                    self._forget_turn()
        if event is Event.REPLY:
            self._overlap.reply_begins()
        if event is Event.OVER:
            self._idle_timeout.reply_over(self._listener.end_sample)
            self._wanted.over()

    def _was_meant(self) -> bool:
        """Whether a turn that ends beside a reply counts: it was announced, or nothing may interrupt the reply."""
        turn = self._turns.current
        return bool(turn and turn.announced) or not self.settings.interrupt_response

    def _commit(self, end: TurnEnd) -> None:
        if self._turns.current:
            self.chat.add_user(
                self._turns.current.turn_id, ""
            )  # its place; the words come when they are known
        turn = self._turns.commit(end)
        self._listener.begin_turn()
        if turn:
            self._answer(turn)

    def _forget_turn(self) -> None:
        """What was said was not for us; a question that still stands is answered."""
        self._turns.forget()
        self._replies.throw_away_ahead()
        self._overlap.late_end = None
        self._endpointer.reset()
        self._wanted.answer_open_question()

    def _understood(self, turn: UserTurn) -> None:
        """Words or a judgement came for the present pause of a turn."""
        if turn.committed and turn.text is not None:
            self._answer(turn)
        elif turn is self._turns.current:
            self._ahead.understood(turn)
        self._overlap.judge()

    def _items_understood(self) -> None:
        """The words of all the client's own items are known."""
        self._wanted.answer_what_waits()

    def _answer(self, turn: UserTurn) -> None:
        """The turn is over and its words are known."""
        text = self._turns.transcribed(turn)
        self._inside.keep(turn.timeline)
        if text and self.chat.write_user(turn.turn_id, text, turn.audio_seconds):
            self._listener.loudness.learn()
            self._wanted.question(turn)
        self._wanted.answer_open_question()
        self._replies.throw_away_ahead()  # it was for other words, or nobody may speak now
        self._wanted.create_waiting()

    # the client's wishes

    def command(self, command: SessionCommand) -> None:
        """Do what the transport asks, at once."""
        self._active_ns = self._parts.clock.now_ns()
        match command:
            case UpdateSettings(changes=changes):
                self._update(changes)
            case CreateReply():
                self._wanted.ask(command)
            case CancelReply():
                self._wanted.cancel(command)
            case ClearOutput():
                self._clear_output()
            case ClearInput():
                self._push_to_talk.clear()
            case CommitInput():
                self._overlap.late_end = None
                self._push_to_talk.commit(command)
            case AppendSound():
                raise TypeError("sound goes to the session's microphone")
            case _:
                self._edits.make(command)

    def _update(self, changes: dict[str, Any]) -> None:
        self._replies.throw_away_ahead()  # it was thought under the old settings
        self.settings = replace(self.settings, **changes)
        by_hand = self.settings.turn_detection == "none"
        if self.machine.reply is Reply.HELD and (by_hand or not self.settings.interrupt_response):
            self._do(Event.BACKCHANNEL)
        if by_hand and self.machine.user is not User.SILENT:
            self._do(Event.CLEAR)
        self._endpointer.rules = session_rules(self._parts.turn, self.settings)
        self._listener.set_prefix(self._prefix_ms)
        self._emit(SettingsChanged(self.settings))

    def _clear_output(self) -> None:
        if self._replies.current:
            self._do(Event.CANCEL)

    @property
    def _prefix_ms(self) -> int:
        """Sound before an onset that belongs to the turn."""
        chosen = self.settings.prefix_ms
        return self._parts.turn.prefix_ms if chosen is None else chosen

    # the inside, seen from outside

    @property
    def timelines(self) -> list[TurnTimeline]:
        """Of the last turns, and of replies without one."""
        return self._inside.timelines

    def timeline(self) -> dict[str, object]:
        """State, stages in flight, turns with their parts, what was played and heard."""
        return self._inside.as_json()
