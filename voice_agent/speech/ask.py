"""What a run of the cascade is asked for, what it gives back, and where its pieces go."""

from dataclasses import dataclass
from typing import Protocol

from voice_agent.audio import PcmChunk
from voice_agent.engine.messages import Speak, Think, ToolCall
from voice_agent.errors import EngineError


@dataclass(frozen=True)
class Ask:
    """What to answer and how: `think` for the Thinker, or the text itself (a greeting); `speak` None is text only.

    Without `overlap` each stage waits for the end of the one before, for comparison.
    """

    reply_id: str
    think: Think | str
    speak: Speak | None
    overlap: bool = True
    language_hint: str = "en"

    @property
    def same_again(self) -> bool:
        """Whether a second run writes the same words."""
        return isinstance(self.think, str) or self.think.temperature == 0


@dataclass(frozen=True)
class Answer:
    """How a run ended: finish reason (stop, length, tool_calls) and token counts."""

    reason: str
    usage: dict[str, int]


class Sink(Protocol):
    """Where a reply's pieces go. `sound` may wait (the output is full); the others return at once."""

    def text(self, delta: str) -> None:
        """The next piece of written text."""
        ...

    async def sound(self, pcm: PcmChunk) -> None:
        """The next piece of sound, with the words that begin in it."""
        ...

    def tool_call(self, call: ToolCall) -> None:
        """A whole function call."""
        ...

    def unspoken(self, start_char: int, end_char: int, language: str) -> None:
        """This range of the text has captions only, since the voice has not its language; the reply goes on."""
        ...

    def stamp(self, stage: str) -> None:
        """A stage gave its first result: thinker, clause or talker."""
        ...

    def may_start_over(self) -> bool:
        """Whether a second run can stand in for this one: nothing of it was played, or shown in other words."""
        ...

    def breaks_off(self, error: EngineError) -> None:
        """Nothing more is written; what was is spoken to its end, and then `run` raises this."""
        ...
