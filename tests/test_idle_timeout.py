"""When silence after a reply is answered, and when it is not."""

from dataclasses import replace
from typing import Any

import pytest

from voice_agent.commands import CreateReply
from voice_agent.events import IdleTimedOut, TurnCommitted
from voice_agent.idle_timeout import IdleTimeout
from voice_agent.session_settings import SessionSettings
from voice_agent.speech.chat import Chat
from voice_agent.turn.machine import Event, TurnMachine

SECOND = 16_000
SETTINGS = SessionSettings(instructions="", voice="", turn_detection="server", idle_timeout_ms=5000)


class Rig:
    """A silence to follow; `asked` are the replies that it led to."""

    def __init__(self, machine: TurnMachine) -> None:
        self.events: list[Any] = []
        self.asked: list[CreateReply] = []
        self.chat = Chat()
        self.idle = IdleTimeout(machine, self.chat, self.events.append, self.asked.append)

    @property
    def told(self) -> list[type]:
        return [type(event) for event in self.events]


@pytest.mark.parametrize(
    ("changes", "at_s", "told", "asked"),
    [
        ({}, 14.9, [], 0),
        ({}, 15, [IdleTimedOut, TurnCommitted], 1),
        ({}, 60, [IdleTimedOut, TurnCommitted], 1),
        ({"create_response": False}, 15, [IdleTimedOut, TurnCommitted], 0),
        ({"idle_timeout_ms": None}, 60, [], 0),
        ({"turn_detection": "semantic"}, 60, [], 0),
        ({"turn_detection": "none"}, 60, [], 0),
    ],
)
def test_silence_ten_seconds_into_a_call(
    changes: dict[str, Any], at_s: float, told: list[type], asked: int
) -> None:
    rig = Rig(TurnMachine())
    rig.idle.reply_over(10 * SECOND)
    rig.idle.listen(replace(SETTINGS, **changes), round(at_s * SECOND))
    assert (rig.told, len(rig.asked)) == (told, asked)


def test_the_silence_is_a_turn_with_its_own_times_and_place_and_comes_once() -> None:
    rig = Rig(TurnMachine())
    rig.idle.reply_over(10 * SECOND)
    rig.idle.listen(SETTINGS, 15 * SECOND)
    rig.idle.listen(SETTINGS, 60 * SECOND)
    timed_out, committed = rig.events
    assert (timed_out.audio_start_ms, timed_out.audio_end_ms) == (10_000, 15_000)
    assert timed_out.turn_id == committed.turn_id
    assert rig.chat.get(committed.turn_id) is not None


@pytest.mark.parametrize("event", [Event.ONSET, Event.REPLY])
def test_whoever_has_the_floor_breaks_the_silence(event: Event) -> None:
    machine = TurnMachine()
    rig = Rig(machine)
    rig.idle.reply_over(0)
    machine.handle(event)
    rig.idle.listen(SETTINGS, SECOND)
    machine.handle(Event.CLEAR if event is Event.ONSET else Event.OVER)
    rig.idle.listen(SETTINGS, 60 * SECOND)
    assert not rig.events and not rig.asked


def test_before_any_reply_nobody_is_waited_for() -> None:
    rig = Rig(TurnMachine())
    rig.idle.listen(SETTINGS, 60 * SECOND)
    assert not rig.events
