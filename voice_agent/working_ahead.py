"""What is begun before a turn is certain: its words so far read, its pauses understood, provisional words thought on.

It costs work that may be thrown away and saves its time where it is not. Throwing away is for who knows that the turn
went on or that nobody may speak: the session.
"""

from collections.abc import Callable
from dataclasses import dataclass

from voice_agent.config import TurnConfig
from voice_agent.engine.client import EngineClient
from voice_agent.replies import Replies
from voice_agent.session_settings import SessionSettings
from voice_agent.spoken_items import SpokenItems
from voice_agent.turn.endpoint import Endpointer, Pause
from voice_agent.turn.machine import Reply, TurnMachine
from voice_agent.turn.wording import is_open_ended
from voice_agent.turns import Turns, UserTurn


@dataclass(frozen=True)
class AheadPorts:
    """What it needs of its session."""

    machine: TurnMachine
    endpointer: Endpointer
    recognizer: EngineClient
    turns: Turns
    spoken: SpokenItems
    replies: Replies
    rules: TurnConfig
    settings: Callable[[], SessionSettings]


class WorkingAhead:
    """Begins what is worth it. Holds no state: what is under way is known to the turns and the replies."""

    def __init__(self, ports: AheadPorts) -> None:
        self._ports = ports

    def read(self) -> None:
        """While the user speaks to nobody's answer: let the Thinker read what was said so far, if nobody else waits."""
        ports, settings = self._ports, self._ports.settings()
        every_ms = ports.rules.read_ahead_ms
        wanted = every_ms and settings.answers and settings.overlap
        speaking = ports.machine.reply is Reply.NONE and ports.endpointer.speaking
        if wanted and speaking and not ports.recognizer.in_flight():
            ports.turns.listen_in(ports.endpointer.voiced_ms, every_ms)

    def paused(self, pause: Pause) -> None:
        """Find out what was said up to a pause, and whether it ends the turn."""
        ports, settings = self._ports, self._ports.settings()
        if ports.machine.reply is Reply.NONE:
            ports.turns.stop_listening_in()
        if settings.overlap:
            judge = settings.turn_detection == "semantic" and ports.machine.reply is Reply.NONE
            ports.turns.work_ahead(pause, judge=judge)

    def understood(self, turn: UserTurn) -> None:
        """Words or a judgement came for the present pause of the current turn, or its first words."""
        ports = self._ports
        if self._worth_thinking(turn):
            ports.replies.think_ahead(ports.settings(), turn.text or "", turn.timeline)
        elif turn.first_words and not turn.pause:
            ports.replies.read_ahead(ports.settings(), turn.first_words)

    def _worth_thinking(self, turn: UserTurn) -> bool:
        """Whether to think on provisional words: there are some, and nothing says that more will come."""
        ports = self._ports
        if not turn.text or ports.replies.ahead or ports.machine.reply is not Reply.NONE:
            return False
        if ports.spoken.waiting:
            return False
        if not ports.settings().create_response or is_open_ended(turn.text):
            return False
        return turn.probability is None or turn.probability >= ports.rules.end_probability
