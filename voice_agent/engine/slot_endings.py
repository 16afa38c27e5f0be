"""What the engine of slots says of a reply that it refuses, and of one that is over. Pure: messages out."""

from collections.abc import Sequence

from voice_agent.engine.messages import Failed, Finished, Speak
from voice_agent.engine.runtime import FASTEST, SLOWEST
from voice_agent.engine.urgency import Key

COLDEST, WARMEST = 0.0, 2.0
_REASONS = {"stop": "stop", "length": "length", "runaway": "length", "aborted": "aborted"}
_FAILURES = {
    "busy": ("busy", "too many replies are spoken", True),
    "text_stalled": ("text_stalled", "no more text of this reply came", False),
    "broken": ("invalid_code", "the model gave no code for a frame", True),
}


def refusal(speak: Speak, voices: Sequence[str]) -> Failed | None:
    """Why a reply cannot be spoken at all; None if it can."""
    temperature = speak.temperature
    if not voices:
        return failed(speak, "unknown_voice", "this model has no voice of its own: clone one (talker.clones)")
    if speak.voice and speak.voice not in voices:
        return failed(speak, "unknown_voice", f"no voice {speak.voice!r}; there are {', '.join(voices)}")
    if not SLOWEST <= speak.speed <= FASTEST:
        return failed(speak, "invalid_speed", f"speed must be from {SLOWEST:g} to {FASTEST:g}")
    if temperature is not None and not COLDEST <= temperature <= WARMEST:
        return failed(speak, "invalid_temperature", f"temperature must be from {COLDEST:g} to {WARMEST:g}")
    return None


def busy(speak: Speak) -> Failed:
    """Too many wait already."""
    return Failed(speak.request_id, speak.epoch, *_FAILURES["busy"])


def too_long(speak: Speak, rows: int) -> Failed:
    """Its instructions are."""
    text = f"these instructions have {rows} tokens, too many for this server"
    return failed(speak, "invalid_instructions", text)


def failed(speak: Speak, code: str, text: str) -> Failed:
    """A failure that asking again would not help."""
    return Failed(speak.request_id, speak.epoch, code, text)


def ending(key: Key, why: str, frames: int, timings_ms: dict[str, float]) -> Finished | Failed:
    """The last message of a reply that ended so (see launches.Ending)."""
    if why in _FAILURES:
        return Failed(*key, *_FAILURES[why])
    return Finished(*key, _REASONS[why], {"frames": frames}, timings_ms)


def is_whole(why: str) -> bool:
    """Whether what was held back of its sound is to be heard."""
    return why in ("stop", "length", "runaway")
