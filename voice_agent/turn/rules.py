"""The knobs of the pure objects out of the configuration."""

from dataclasses import fields, replace

from voice_agent.config import TurnConfig
from voice_agent.session_settings import SessionSettings
from voice_agent.turn.barge_in import BargeInRules
from voice_agent.turn.endpoint import EndpointRules


def endpoint_rules(turn: TurnConfig, mode: str) -> EndpointRules:
    """The endpointer's, for a session's own turn detection mode."""
    names = [item.name for item in fields(EndpointRules) if item.name != "mode"]
    return EndpointRules(mode=mode, **{name: getattr(turn, name) for name in names})


# of the waits in mode semantic, after OpenAI's longest waits for low, medium and high: 8, 4 and 2 s
WAIT_FACTORS = {"low": 2.0, "medium": 1.0, "auto": 1.0, "high": 0.5}


def session_rules(turn: TurnConfig, settings: SessionSettings) -> EndpointRules:
    """The endpointer's, with the knobs that a client turned."""
    rules = endpoint_rules(turn, settings.turn_detection)
    if settings.turn_detection == "semantic":
        waits = ("sure_ms", "asked_ms", "unsure_ms", "open_ms")
        factor = WAIT_FACTORS[settings.eagerness]
        return replace(rules, **{name: round(factor * getattr(rules, name)) for name in waits})
    if settings.silence_ms is not None:
        rules = replace(rules, server_silence_ms=settings.silence_ms)
    if settings.vad_threshold is None or settings.vad_threshold == rules.start_threshold:
        return rules
    apart = rules.start_threshold - rules.end_threshold
    end_threshold = max(settings.vad_threshold / 2, settings.vad_threshold - apart)
    return replace(rules, start_threshold=settings.vad_threshold, end_threshold=end_threshold)


def barge_in_rules(turn: TurnConfig) -> BargeInRules:
    """The barge-in policy's."""
    return BargeInRules(**{item.name: getattr(turn, item.name) for item in fields(BargeInRules)})
