"""What a session is handed by whoever makes it: engines, ears, outputs, clock, and its rooms of the configuration."""

from dataclasses import dataclass

from voice_agent.audio import AudioOutput
from voice_agent.clock import Clock
from voice_agent.config import SessionConfig, TurnConfig
from voice_agent.engine.client import EngineClient
from voice_agent.listening import Ears
from voice_agent.speech.cascade import Cascade


@dataclass(frozen=True)
class SessionParts:
    """What a session is made of; the composition root fills it in."""

    recognizer: EngineClient
    cascade: Cascade
    ears: Ears
    output: AudioOutput
    clock: Clock
    turn: TurnConfig
    conversation: SessionConfig
    language: str = ""
    aside_output: AudioOutput | None = None  # for replies outside the conversation; None: the same
