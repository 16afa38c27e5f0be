"""The user's turn as the client ends it, or takes it back: push to talk, and a commit beside turn detection.

Knows the floor only by what it tells it; what the turn meant is found out as for any other.
"""

from collections.abc import Callable

from voice_agent.commands import CommitInput
from voice_agent.events import InputCleared, SessionEvent, complaint
from voice_agent.listening import Listener
from voice_agent.replies import Replies
from voice_agent.turn.endpoint import Edge, TurnEnd
from voice_agent.turn.machine import Event, TurnMachine, User
from voice_agent.turns import COMMIT, Turns

SHORTEST_COMMIT_MS = 100  # OpenAI's own limit for a manual commit
KEPT_SOUND_MS = 120_000  # of a push-to-talk turn; of a longer one the end is heard, and said so


class PushToTalk:
    """Carries out the client's word on the user's turn; `tell` is the floor's ear."""

    def __init__(
        self,
        machine: TurnMachine,
        listener: Listener,
        turns: Turns,
        replies: Replies,
        emit: Callable[[SessionEvent], None],
        tell: Callable[[Event, Edge | None], None],
    ) -> None:
        self._machine = machine
        self._listener = listener
        self._turns = turns
        self._replies = replies
        self._emit = emit
        self._tell = tell

    def clear(self) -> None:
        """Forget what was said so far."""
        self._tell(Event.CLEAR, None)
        self._listener.begin_turn()
        self._emit(InputCleared())

    def commit(self, command: CommitInput) -> None:
        """The turn is what was heard since the last one; a reply that is under way is stopped for it."""
        if self._listener.turn_ms < SHORTEST_COMMIT_MS:
            self._emit(
                complaint(
                    "input_audio_buffer_commit_empty", "there is less than 100 ms of audio to commit", command
                )
            )
            return
        if self._listener.turn_ms > KEPT_SOUND_MS:
            message = f"only the last {KEPT_SOUND_MS // 1000} s of the audio were kept"
            self._emit(complaint("input_audio_buffer_overflow", message, command))
        if self._replies.current and self._machine.can(Event.CANCEL):
            self._tell(Event.CANCEL, None)
        if self._machine.user is User.SILENT:
            self._machine.handle(Event.ONSET)
            self._turns.open(announce=False)
        self._listener.endpointer.reset()
        self._tell(Event.TURN_END, TurnEnd(self._listener.end_sample, COMMIT))
        self._listener.begin_turn()
