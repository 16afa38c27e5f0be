"""Who has the floor: a table over what the user does and what the reply does.

Two small regions run side by side. The user is SILENT, SPEAKING or PAUSED (silent, but the turn may go on). The
reply is NONE, THINKING (nothing audible yet), SPEAKING or HELD (stopped while it is judged whether the user means
to interrupt). A row gives the next pair and what to do; a pair and event without a row is a bug and raises.

    user:   SILENT --onset--> SPEAKING --pause--> PAUSED --resume--> SPEAKING
            PAUSED/SPEAKING --turn end--> SILENT [commit]
    reply:  NONE --reply--> THINKING --sound--> SPEAKING --over--> NONE
            THINKING/SPEAKING --overlap--> HELD --interrupt--> NONE [cancel]
                                           HELD --backchannel--> as before [resume, forget the turn]
"""

from enum import Enum

from voice_agent.errors import IllegalTransition


class User(Enum):
    """What the user does."""

    SILENT = "silent"
    SPEAKING = "speaking"
    PAUSED = "paused"


class Reply(Enum):
    """What the reply does."""

    NONE = "none"
    THINKING = "thinking"
    SPEAKING = "speaking"
    HELD = "held"


class Event(Enum):
    """What happened."""

    ONSET = "onset"
    PAUSE = "pause"
    RESUME = "resume"
    TURN_END = "turn end"
    OVERLAP = "overlap"
    INTERRUPT = "interrupt"
    BACKCHANNEL = "backchannel"
    REPLY = "reply"
    SOUND = "sound"
    OVER = "over"
    CANCEL = "cancel"
    CLEAR = "clear"


class Action(Enum):
    """What the session has to do, in the order given."""

    OPEN_TURN = "open turn"
    WORK_AHEAD = "work ahead"
    DROP_AHEAD = "drop ahead"
    COMMIT = "commit"
    HOLD = "hold"
    RESUME = "resume"
    CANCEL = "cancel"
    FORGET_TURN = "forget turn"


_USERS = tuple(User)
_REPLIES = tuple(Reply)
_HAS_FLOOR = (Reply.THINKING, Reply.SPEAKING)
_IN_TURN = (User.SPEAKING, User.PAUSED)
Row = tuple[User | None, Reply | None, tuple[Action, ...]]  # None: stays as it is


def _table() -> dict[tuple[User, Reply, Event], Row]:
    rows: dict[tuple[User, Reply, Event], Row] = {}

    def add(users: tuple[User, ...], replies: tuple[Reply, ...], event: Event, row: Row) -> None:
        rows.update({(user, reply, event): row for user in users for reply in replies})

    held = (Reply.HELD,)
    add((User.SILENT,), _REPLIES, Event.ONSET, (User.SPEAKING, None, (Action.OPEN_TURN,)))
    add((User.SPEAKING,), _REPLIES, Event.PAUSE, (User.PAUSED, None, (Action.WORK_AHEAD,)))
    add((User.PAUSED,), _REPLIES, Event.RESUME, (User.SPEAKING, None, (Action.DROP_AHEAD,)))
    add(_IN_TURN, (Reply.NONE,), Event.TURN_END, (User.SILENT, None, (Action.COMMIT,)))
    # too short to have held the reply: a click, a breath
    add(_IN_TURN, _HAS_FLOOR, Event.TURN_END, (User.SILENT, None, (Action.FORGET_TURN,)))
    add(_IN_TURN, _HAS_FLOOR, Event.OVERLAP, (None, Reply.HELD, (Action.HOLD,)))
    add(_USERS, held, Event.INTERRUPT, (None, Reply.NONE, (Action.CANCEL,)))
    add(_USERS, held, Event.BACKCHANNEL, (User.SILENT, None, (Action.RESUME, Action.FORGET_TURN)))
    add(_USERS, (Reply.NONE,), Event.REPLY, (None, Reply.THINKING, ()))
    add(_USERS, _HAS_FLOOR, Event.SOUND, (None, Reply.SPEAKING, ()))
    add(_USERS, held, Event.SOUND, (None, Reply.HELD, ()))
    add(_USERS, _HAS_FLOOR, Event.OVER, (None, Reply.NONE, ()))
    add(_USERS, held, Event.OVER, (None, Reply.NONE, (Action.RESUME,)))
    add(_USERS, (*_HAS_FLOOR, *held), Event.CANCEL, (None, Reply.NONE, (Action.CANCEL,)))
    # the client wants the user's sound so far forgotten
    add(_USERS, (Reply.NONE, *_HAS_FLOOR), Event.CLEAR, (User.SILENT, None, (Action.FORGET_TURN,)))
    add(_USERS, held, Event.CLEAR, (User.SILENT, None, (Action.RESUME, Action.FORGET_TURN)))
    return rows


TABLE = _table()


class TurnMachine:
    """Holds the pair of states; one writer, the session. `sounded` tells whether the reply was heard at all."""

    def __init__(self) -> None:
        self.user = User.SILENT
        self.reply = Reply.NONE
        self.sounded = False

    def can(self, event: Event) -> bool:
        """Whether the event is legal now."""
        return (self.user, self.reply, event) in TABLE

    def handle(self, event: Event) -> tuple[Action, ...]:
        """Take an event; returns what to do. Raises IllegalTransition where the table has no row."""
        row = TABLE.get((self.user, self.reply, event))
        if row is None:
            raise IllegalTransition(f"{event.value} while user {self.user.value}, reply {self.reply.value}")
        user, reply, actions = row
        self.user = user or self.user
        if reply is None and self.reply is Reply.HELD and Action.RESUME in actions:
            reply = Reply.SPEAKING if self.sounded else Reply.THINKING
        self.reply = reply or self.reply
        self._note_sound(event)
        return actions

    def _note_sound(self, event: Event) -> None:
        if event is Event.SOUND:
            self.sounded = True
        elif self.reply is Reply.NONE or event is Event.REPLY:
            self.sounded = False

    @property
    def state(self) -> str:
        """One word for people: connecting is the transport's, the rest is here."""
        if self.reply is Reply.HELD:
            return "held"
        if self.reply is not Reply.NONE:
            return self.reply.value
        return "listening" if self.user is User.SILENT else "hearing"
