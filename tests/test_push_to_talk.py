"""What a client's commit does to each state of the floor: everything real but the microphone and the engines."""

from typing import Any

import pytest

from tests.test_session import Rig
from voice_agent.commands import ClearInput, CommitInput
from voice_agent.events import InputCleared, SessionError, TurnCommitted
from voice_agent.session_settings import SessionSettings

BY_HAND = SessionSettings(instructions="", voice="", turn_detection="none")


@pytest.mark.parametrize(
    ("spoken_ms", "codes", "committed"),
    [
        (0, ["input_audio_buffer_commit_empty"], 0),
        (80, ["input_audio_buffer_commit_empty"], 0),
        (100, [], 1),
        (400, [], 1),
    ],
)
async def test_a_commit_needs_a_tenth_of_a_second_of_sound(
    spoken_ms: int, codes: list[str], committed: int
) -> None:
    async with Rig(settings=BY_HAND) as rig:
        await rig.say(spoken_ms)
        rig.session.command(CommitInput("e1"))
        errors: list[Any] = rig.of(SessionError)
        assert [error.code for error in errors] == codes
        assert all(error.client_event_id == "e1" for error in errors)
        assert len(rig.of(TurnCommitted)) == committed
        await rig.wait(3000)


async def test_what_was_cleared_is_not_committed() -> None:
    async with Rig(settings=BY_HAND) as rig:
        await rig.say(400)
        rig.session.command(ClearInput())
        rig.session.command(CommitInput())
        assert rig.of(InputCleared) and not rig.of(TurnCommitted)
        assert [error.code for error in rig.of(SessionError)] == ["input_audio_buffer_commit_empty"]


async def test_sound_is_committed_once() -> None:
    async with Rig(settings=BY_HAND) as rig:
        await rig.say(400)
        rig.session.command(CommitInput())
        rig.session.command(CommitInput())
        assert len(rig.of(TurnCommitted)) == 1 and len(rig.of(SessionError)) == 1
        await rig.wait(3000)
