"""Which replies are wanted, and when each is made: to the user's open question, and to a client's wishes.

A reply waits while the words that it would answer are not known, an answer to the user also while somebody has the
floor. Knows no sound, and not how a reply is made: it asks the session's replies for one.
"""

from collections.abc import Callable
from dataclasses import dataclass

from voice_agent.clock import Clock
from voice_agent.commands import CancelReply, CreateReply, ItemReference
from voice_agent.events import SessionEvent, complaint
from voice_agent.metrics import TurnTimeline
from voice_agent.replies import MAX_ASIDES, Replies
from voice_agent.session_settings import SessionSettings
from voice_agent.spoken_items import SpokenItems, spoken_in
from voice_agent.turn.machine import Event, Reply, TurnMachine, User
from voice_agent.turns import Turns, UserTurn


@dataclass(frozen=True)
class WantedPorts:
    """What it needs of its session; `settings` are asked for each reply, `tell` is the floor's ear, `keep` keeps the
    timeline of a reply without a turn.
    """

    machine: TurnMachine
    turns: Turns
    spoken: SpokenItems
    replies: Replies
    clock: Clock
    settings: Callable[[], SessionSettings]
    emit: Callable[[SessionEvent], None]
    tell: Callable[[Event], None]
    keep: Callable[[TurnTimeline], None]


class WantedReplies:
    """What wants a reply.

    State: `_open_question` a turn that wants an answer, `_answering` the one that is getting it; `_waiting` a wish for
    a reply to words not yet known, `_waiting_asides` those for replies outside the conversation, at most MAX_ASIDES.
    """

    def __init__(self, ports: WantedPorts) -> None:
        self._ports = ports
        self._open_question: UserTurn | None = None
        self._answering: UserTurn | None = None
        self._waiting: CreateReply | None = None
        self._waiting_asides: list[CreateReply] = []

    # the user's question

    def question(self, turn: UserTurn) -> None:
        """The user said something; a client that commits turns itself, or has a wish, asks for its own reply."""
        self._open_question = None if turn.by_client or self._waiting else turn

    def answer_open_question(self) -> None:
        """Answer what was last asked once nobody has the floor; who goes on is answered with the next turn."""
        ports, turn, settings = self._ports, self._open_question, self._ports.settings()
        free = ports.machine.reply is Reply.NONE and ports.machine.user is User.SILENT
        free = free and not ports.spoken.waiting
        if turn and free and settings.create_response:
            self._open_question, self._answering = None, turn
            ports.replies.answer(settings, turn.text or "", turn.timeline)

    def stop(self, reason: str) -> None:
        """Stop the live reply; one that was cut off before a word was heard leaves its question open."""
        question, self._answering = self._answering, None
        heard = self._ports.replies.stop(reason)
        if question and not heard and reason == "turn_detected":
            self._open_question = self._open_question or question  # what was asked since is the later one

    def over(self) -> None:
        """The live reply is over."""
        self._answering = None
        self.answer_open_question()

    # the client's wishes

    def ask(self, command: CreateReply) -> None:
        """A reply whose own context holds sound is asked for once that was recognized."""
        spoken = spoken_in(command)
        if not spoken:
            self.create(command)
        elif refusal := self._ports.spoken.refusal(*spoken):
            self._ports.emit(complaint("rate_limit_exceeded", refusal, command, "response.input"))
        else:
            self._ports.spoken.hear_context(command, self.create)

    def create(self, command: CreateReply) -> None:
        """Make the reply, or keep the wish until the words are known."""
        ports = self._ports
        unknown = ports.turns.unheard or ports.spoken.waiting
        if unknown and (_answers_the_conversation(command) or not command.aside):
            self._keep(command)
            return
        if command.aside:
            self._create_aside(command)
            return
        self._open_question = None
        self._make_way()
        timeline = TurnTimeline(turn_id=None, voiced_ns=ports.clock.now_ns())
        ports.keep(timeline)
        ports.replies.create(ports.settings(), command, timeline)

    def create_waiting(self) -> None:
        """The words of a turn are known: make the replies that were wished for meanwhile."""
        wishes, self._waiting_asides = self._waiting_asides, []
        if self._waiting:
            wishes, self._waiting = [*wishes, self._waiting], None
        for command in wishes:
            self.create(command)

    def answer_what_waits(self) -> None:
        """The words of all items are known."""
        self.create_waiting()
        self.answer_open_question()

    def cancel(self, command: CancelReply) -> None:
        """Take back a wish that waits, or stop the live reply, or say that there is none."""
        replies = self._ports.replies
        if command.reply_id and replies.cancel_aside(command.reply_id):
            return
        if self._waiting and not command.reply_id:
            self._waiting = None
            return
        if not command.reply_id and self._ports.spoken.forget_asked():
            return
        run = replies.current
        if not run or (command.reply_id is not None and run.reply_id != command.reply_id):
            self._ports.emit(
                complaint(
                    "response_cancel_not_active", "Cancellation failed: no active response found", command
                )
            )
            return
        self._ports.tell(Event.CANCEL)

    def _keep(self, command: CreateReply) -> None:
        """Let a wish wait for the words, the user's just committed ones; refuses it if as many wait as may be made."""
        if command.aside and len(self._waiting_asides) < MAX_ASIDES:
            self._waiting_asides.append(command)
        elif command.aside:
            self._refuse_aside(command)
        elif self._waiting:
            code = "conversation_already_has_active_response"
            message = "A reply to the words just committed was asked for already."
            self._ports.emit(complaint(code, message, command))
        else:
            self._waiting = command

    def _make_way(self) -> None:
        """For a reply that was asked for: one that is being made is stopped, one that only plays is played out."""
        run = self._ports.replies.current
        if run and run.done:
            self._ports.replies.leave_to_play()
            self._ports.tell(Event.OVER)
        elif run:
            self._ports.tell(Event.CANCEL)

    def _create_aside(self, command: CreateReply) -> None:
        if not self._ports.replies.create_aside(self._ports.settings(), command):
            self._refuse_aside(command)

    def _refuse_aside(self, command: CreateReply) -> None:
        message = "Too many replies outside the conversation at once; wait for one to be done."
        self._ports.emit(complaint("rate_limit_exceeded", message, command))


def _answers_the_conversation(command: CreateReply) -> bool:
    """Whether anything of the conversation is in what it answers."""
    context = command.context
    return context is None or any(isinstance(entry, ItemReference) for entry in context)
