"""The settings of one running session; its transport changes them with `commands.UpdateSettings`."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a client may change of a running session; the defaults come from the configuration.

    Of the turn detection's knobs None means as configured.
    """

    instructions: str
    voice: str
    latency_first: bool = True
    speed: float = 1.0
    max_output_tokens: int = 512
    temperature: float = 0.0
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str = "auto"
    turn_detection: Literal["semantic", "server", "none"] = "semantic"
    create_response: bool = True
    interrupt_response: bool = True
    vad_threshold: float | None = None
    silence_ms: int | None = None  # that ends a turn in mode server
    prefix_ms: int | None = None
    eagerness: Literal["auto", "low", "medium", "high"] = "auto"
    idle_timeout_ms: int | None = None  # None: nobody is asked whether they are still there
    text_only: bool = False
    language: str = ""  # that the user speaks; empty: as configured
    answers: bool = True  # false: what is said is written down and never answered
    overlap: bool = True  # false runs stage after stage: for measuring what the overlap gains
