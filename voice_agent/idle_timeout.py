"""Nobody has spoken for long after a reply: the silence counts as the user's turn, and is answered.

OpenAI's `idle_timeout_ms`, which only turn detection by silence has. Knows neither sound nor words.
"""

from collections.abc import Callable
from secrets import token_hex

from voice_agent.audio import MODEL_RATE_HZ, samples_to_ms
from voice_agent.commands import CreateReply
from voice_agent.events import IdleTimedOut, SessionEvent, TurnCommitted
from voice_agent.session_settings import SessionSettings
from voice_agent.speech.chat import Chat
from voice_agent.turn.idle import Silence
from voice_agent.turn.machine import Reply, TurnMachine, User


class IdleTimeout:
    """Follows the silence after a reply; `create` makes the reply that breaks it."""

    def __init__(
        self,
        machine: TurnMachine,
        chat: Chat,
        emit: Callable[[SessionEvent], None],
        create: Callable[[CreateReply], None],
    ) -> None:
        self._machine = machine
        self._chat = chat
        self._emit = emit
        self._create = create
        self._silence = Silence()

    def reply_over(self, end: int) -> None:
        """A reply is over; `end` is the microphone's sample now."""
        self._silence.begin(end)

    def listen(self, settings: SessionSettings, end: int) -> None:
        """Nobody has spoken for long after a reply: commit the silence, and say something."""
        if self._machine.reply is not Reply.NONE or self._machine.user is not User.SILENT:
            self._silence.broken()
        limit_ms = settings.idle_timeout_ms
        if not limit_ms or settings.turn_detection != "server":
            return
        since = self._silence.longer_than(limit_ms, end)
        if since is None:
            return
        turn_id = token_hex(10)
        start_ms, end_ms = (round(samples_to_ms(at, MODEL_RATE_HZ)) for at in (since, end))
        self._emit(IdleTimedOut(turn_id, start_ms, end_ms))
        self._chat.add_user(turn_id, "")
        self._emit(TurnCommitted(turn_id))
        if settings.create_response:
            self._create(CreateReply())
