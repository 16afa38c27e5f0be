"""Speech over a reply: hold the reply, gather evidence of what the speech is, and tell the floor what it was.

What is decided is decided in `turn.barge_in`; here is what that needs to know of the moment. A turn that ends while the
reply is held waits for the verdict. Knows no words but those of the present turn, and neither cancels nor commits.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from voice_agent.clock import Clock, ms_between
from voice_agent.listening import Listener
from voice_agent.session_settings import SessionSettings
from voice_agent.turn.barge_in import BargeInRules, Evidence, Verdict, decide, should_hold
from voice_agent.turn.endpoint import Edge, TurnEnd
from voice_agent.turn.machine import Event, Reply, TurnMachine, User
from voice_agent.turns import Turns

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OverlapPorts:
    """What judging needs of its session; `tell` is the floor's ear."""

    session_id: str
    machine: TurnMachine
    listener: Listener
    turns: Turns
    clock: Clock
    settings: Callable[[], SessionSettings]
    tell: Callable[[Event, Edge | None], None]


class Overlap:
    """Judges speech over the live reply, frame by frame.

    State: `late_end` the end of a turn that waits for a verdict; `_held_ns` since when the output is held;
    `_speech_ms` of the turn; `_aside_ignored` whether quiet talk was heard over this reply.
    """

    def __init__(self, ports: OverlapPorts, rules: BargeInRules) -> None:
        self._ports = ports
        self._rules = rules
        self._held_ns = 0
        self._speech_ms = 0.0
        self._aside_ignored = False
        self.late_end: TurnEnd | None = None

    def reply_begins(self) -> None:
        """Nothing was heard over this reply yet."""
        self._aside_ignored = False

    def held(self) -> None:
        """The output is held from now on."""
        self._held_ns = self._ports.clock.now_ns()

    def judge(self) -> None:
        """Speech over a reply: hold it, then decide what the speech was."""
        ports, machine = self._ports, self._ports.machine
        self.end_late_turn()
        if machine.user is User.SILENT or not ports.settings().interrupt_response:
            return
        if not self.late_end:  # else the endpointer has begun anew
            self._speech_ms = ports.listener.endpointer.voiced_ms
        speech_ms = self._speech_ms
        loudness_db = ports.listener.loudness.relative_db
        quiet_db = loudness_db if self._aside_ignored else 0.0
        if machine.can(Event.OVERLAP) and should_hold(speech_ms, self._rules, quiet_db):
            ports.tell(Event.OVERLAP, None)
        if machine.reply is Reply.HELD:
            ports.turns.listen_in(speech_ms)
            evidence = self._evidence(speech_ms, loudness_db)
            verdict = decide(evidence, self._rules)
            if verdict:
                logger.info("session %s: %s", ports.session_id, evidence.described)
            self._aside_ignored |= verdict is Verdict.BACKCHANNEL and loudness_db <= -self._rules.aside_db
            self._carry_out(verdict)

    def end_late_turn(self, *, forced: bool = False) -> None:
        """End the turn whose end had to wait for a verdict; who speaks again (`forced`) means to interrupt."""
        machine = self._ports.machine
        if not self.late_end or (machine.reply is Reply.HELD and not forced):
            return
        end, self.late_end = self.late_end, None
        if machine.reply is Reply.HELD:
            self._carry_out(Verdict.INTERRUPT)
        if machine.can(Event.TURN_END):
            self._ports.tell(Event.TURN_END, end)

    def _evidence(self, speech_ms: float, loudness_db: float) -> Evidence:
        turn, endpointer = self._ports.turns.current, self._ports.listener.endpointer
        return Evidence(
            speech_ms,
            ms_between(self._held_ns, self._ports.clock.now_ns()),
            endpointer.speaking,
            turn.text if turn else None,
            loudness_db,
            endpointer.silence_ms,
            turn.first_words if turn else None,
        )

    def _carry_out(self, verdict: Verdict | None) -> None:
        if verdict is Verdict.BACKCHANNEL:
            self._ports.tell(Event.BACKCHANNEL, None)
        if verdict is not Verdict.INTERRUPT:
            return
        self._ports.turns.announce()  # first: clients stop their loudspeaker on it
        self._ports.tell(Event.INTERRUPT, None)
