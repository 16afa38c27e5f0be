"""The knobs of the pure objects out of the configuration."""

from dataclasses import fields

from voice_agent.config import TurnConfig
from voice_agent.turn.barge_in import BargeInRules
from voice_agent.turn.endpoint import EndpointRules


def endpoint_rules(turn: TurnConfig, mode: str) -> EndpointRules:
    """The endpointer's, for a session's own turn detection mode."""
    names = [item.name for item in fields(EndpointRules) if item.name != "mode"]
    return EndpointRules(mode=mode, **{name: getattr(turn, name) for name in names})


def barge_in_rules(turn: TurnConfig) -> BargeInRules:
    """The barge-in policy's."""
    return BargeInRules(**{item.name: getattr(turn, item.name) for item in fields(BargeInRules)})
