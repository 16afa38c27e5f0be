"""The user's turn while it is being understood: its words and its end, worked on ahead at every pause.

Recognition starts at the first pause while the end-of-turn model decides; what was found for a pause that the user
spoke on after is thrown away. It knows no reply: the session asks it for words.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from voice_agent.audio import MODEL_RATE_HZ, Samples
from voice_agent.engine.client import EngineClient
from voice_agent.engine.messages import Failed, Transcribe, Transcript
from voice_agent.errors import EngineError
from voice_agent.listening import Listener
from voice_agent.metrics import TurnTimeline
from voice_agent.turn.endpoint import Pause


@dataclass
class UserTurn:
    """A turn from its onset on.

    State: `pause` the one being judged; `text` the words up to it (None while unknown); `probability` that it ends
    the turn; `committed` once it is over; `tasks` what runs for the present pause.
    """

    turn_id: str
    timeline: TurnTimeline
    start_ms: int
    pause: Pause | None = None
    text: str | None = None
    probability: float | None = None
    committed: bool = False
    announced: bool = False
    error: EngineError | None = None
    audio_seconds: float = 0.0
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def forget_pause(self) -> None:
        """The user went on: what was found for the pause is void."""
        for task in self.tasks:
            task.cancel()
        self.tasks.clear()
        self.pause = self.text = self.probability = self.error = None


class Understanding:
    """Runs recognizer and end-of-turn model for pauses; `spawn` owns the tasks, `told` hears of results."""

    def __init__(
        self,
        recognizer: EngineClient,
        listener: Listener,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        told: Callable[[UserTurn], None],
        language: str,
    ) -> None:
        self._recognizer = recognizer
        self._listener = listener
        self._spawn = spawn
        self._told = told
        self._language = language or None

    def work_ahead(self, turn: UserTurn, pause: Pause, *, judge: bool) -> None:
        """Begin on a pause: its words, and (if asked) whether it ends the turn."""
        turn.forget_pause()
        turn.pause = pause
        samples = self._listener.turn_samples(pause.last_voiced_sample)
        if judge:
            turn.tasks.append(self._spawn(self._judge(turn, pause)))
        turn.tasks.append(self._spawn(self._recognize(turn, pause, samples)))

    async def _judge(self, turn: UserTurn, pause: Pause) -> None:
        turn.probability = await self._listener.finished_probability(pause.last_voiced_sample)
        self._listener.endpointer.judged(pause.number, turn.probability)
        self._told(turn)

    async def _recognize(self, turn: UserTurn, pause: Pause, samples: Samples) -> None:
        turn.audio_seconds = len(samples) / MODEL_RATE_HZ
        try:
            turn.text = await self._transcribe(turn.turn_id, samples)
        except EngineError as error:
            turn.error = error
            turn.text = ""
        self._listener.endpointer.understood(pause.number, turn.text)
        self._told(turn)

    async def _transcribe(self, turn_id: str, samples: Samples) -> str:
        request = Transcribe(
            turn_id, self._recognizer.next_epoch(), samples.astype("<i2").tobytes(), self._language
        )
        async with self._recognizer.submit(request) as results:
            async for result in results:
                match result:
                    case Transcript(text=text):
                        return text
                    case Failed(code=code, message=message, retryable=retryable):
                        raise EngineError(message, code=code, retryable=retryable)
                    case _:
                        continue
        return ""
