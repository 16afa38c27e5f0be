"""Requests beside each other on the loop: every one of them ends exactly once."""

import asyncio
import logging

import pytest

from voice_agent.clock import ManualClock
from voice_agent.engine.messages import Failed, Finished, FromEngine
from voice_agent.engine.tasks import Request, Tasks
from voice_agent.errors import EngineError


class Room:
    """Tasks, what they sent, and a gate that holds every request until it is opened."""

    def __init__(self) -> None:
        self.sent: list[FromEngine] = []
        self.clock = ManualClock()
        self.tasks = Tasks(self.sent.append, self.clock)
        self.gate = asyncio.Event()
        self.cancelled: list[int] = []

    async def work(self, request: Request) -> Finished:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(request.epoch)
            raise
        return Finished(request.request_id, request.epoch)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_requests_run_beside_each_other() -> None:
    room = Room()
    for number in range(3):
        room.tasks.put(f"r{number}", 1, room.work)
    await settle()
    assert room.tasks.in_flight() == ["r0", "r1", "r2"]
    room.gate.set()
    await settle()
    assert room.sent == [Finished("r0", 1), Finished("r1", 1), Finished("r2", 1)]
    assert room.tasks.in_flight() == []


async def test_an_abort_cancels_one_and_says_so_once() -> None:
    room = Room()
    room.tasks.put("a", 1, room.work)
    room.tasks.put("b", 1, room.work)
    await settle()
    room.tasks.abort("a", 1)
    room.tasks.abort("b", 2)  # no such attempt
    room.tasks.abort("c", 1)
    await settle()
    assert room.sent == [Finished("a", 1, "aborted")]
    assert room.cancelled == [1]
    assert room.tasks.in_flight() == ["b"]


async def test_one_that_is_aborted_before_its_first_step_ends_too() -> None:
    room = Room()
    room.tasks.put("a", 1, room.work)
    room.tasks.abort("a", 1)
    await settle()
    assert room.sent == [Finished("a", 1, "aborted")]
    assert room.cancelled == []


async def test_a_newer_attempt_ends_the_older_and_an_older_one_never_begins() -> None:
    room = Room()
    room.tasks.put("a", 2, room.work)
    await settle()
    room.tasks.put("a", 1, room.work)
    assert room.sent == [Finished("a", 1, "aborted")]
    room.tasks.put("a", 3, room.work)
    await settle()
    assert room.sent[1:] == [Finished("a", 2, "aborted")]
    room.gate.set()
    await settle()
    assert room.sent[2:] == [Finished("a", 3)]
    assert room.tasks.in_flight() == []


async def test_an_error_ends_its_own_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    room = Room()

    async def refuse(request: Request) -> Finished:
        raise EngineError("too long", code="context_length_exceeded")

    async def break_down(request: Request) -> Finished:
        raise ZeroDivisionError("a secret")

    room.tasks.put("good", 1, room.work)
    with caplog.at_level(logging.CRITICAL):
        room.tasks.put("bad", 1, refuse)
        room.tasks.put("worse", 1, break_down)
        await settle()
    codes = [message.code for message in room.sent if isinstance(message, Failed)]
    assert codes == ["context_length_exceeded", "model_error"]
    assert "secret" not in str(room.sent)
    assert room.tasks.in_flight() == ["good"]


async def test_busy_counts_from_the_last_move_of_any_and_only_while_there_is_work() -> None:
    room = Room()
    await room.clock.advance_ms(5_000)
    assert room.tasks.busy_ms() == 0
    moving: list[Request] = []

    async def work(request: Request) -> Finished:
        moving.append(request)
        return await room.work(request)

    room.tasks.put("a", 1, work)
    await settle()
    await room.clock.advance_ms(300)
    assert room.tasks.busy_ms() == 300
    assert not moving[0].stopped()
    assert room.tasks.busy_ms() == 0
