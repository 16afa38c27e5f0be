"""Seats in a VoiceBox: in order, within limits, and none lost however a wait ends."""

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import FakeEngine
from voice_agent.clock import ManualClock
from voice_agent.engine.admission import Admission, AdmissionLimits, AdmittedEngine, VoiceBoxBusy
from voice_agent.engine.messages import Speak, Think


class Room:
    """Jobs that stay until told; `order` is who got in, in order."""

    def __init__(self, limits: AdmissionLimits) -> None:
        self.clock = ManualClock()
        self.admission = Admission(limits, self.clock)
        self.order: list[int] = []
        self.inside = self.most = 0
        self.ends: dict[int, asyncio.Event] = {}
        self.tasks: dict[int, asyncio.Task[str]] = {}

    def enter(self, number: int) -> None:
        self.ends[number] = asyncio.Event()
        self.tasks[number] = asyncio.create_task(self._job(number))

    async def _job(self, number: int) -> str:
        try:
            async with self.admission.seat():
                self.order.append(number)
                self.inside += 1
                self.most = max(self.most, self.inside)
                try:
                    await self.ends[number].wait()
                finally:
                    self.inside -= 1
        except VoiceBoxBusy as busy:
            return busy.code
        return "done"


async def test_one_more_than_fits_waits_in_order_and_is_then_let_in() -> None:
    room = Room(AdmissionLimits(2, queued=2, wait_s=5))
    for number in range(4):
        room.enter(number)
    await room.clock.advance_ms(1000)
    assert room.order == [0, 1] and room.admission.waiting == 2
    room.ends[1].set()
    await room.clock.advance_ms(0)
    assert room.order == [0, 1, 2]
    room.ends[0].set()
    await room.clock.advance_ms(0)
    assert room.order == [0, 1, 2, 3] and room.most == 2
    for end in room.ends.values():
        end.set()
    assert await asyncio.gather(*room.tasks.values()) == ["done"] * 4


async def test_who_waits_too_long_or_too_deep_in_the_queue_is_told_busy() -> None:
    room = Room(AdmissionLimits(1, queued=1, wait_s=5))
    for number in range(3):
        room.enter(number)
    await room.clock.advance_ms(4999)
    assert await room.tasks[2] == "busy" and not room.tasks[1].done()
    await room.clock.advance_ms(1)
    assert await room.tasks[1] == "busy" and room.admission.waiting == 0
    room.ends[0].set()
    room.enter(3)
    await room.clock.advance_ms(0)
    assert room.order == [0, 3]
    room.ends[3].set()
    await asyncio.gather(*room.tasks.values())


@given(
    st.lists(st.tuples(st.sampled_from(["enter", "end", "cancel", "wait"]), st.integers(0, 5)), max_size=40),
    st.integers(1, 3),
)
def test_whatever_happens_no_seat_is_lost_and_none_is_given_twice(
    events: list[tuple[str, int]], jobs: int
) -> None:
    async def run() -> None:
        room = Room(AdmissionLimits(jobs, queued=2, wait_s=1))
        number = 0
        for what, which in events:
            alive = [n for n, task in room.tasks.items() if not task.done()]
            if what == "enter":
                room.enter(number)
                number += 1
            elif what == "wait":
                await room.clock.advance_ms(400 * which)
            elif alive and what == "end":
                room.ends[alive[which % len(alive)]].set()
            elif alive:
                room.tasks[alive[which % len(alive)]].cancel()
            if which % 2:
                await room.clock.advance_ms(0)
        for end in room.ends.values():
            end.set()
        await room.clock.advance_ms(3000)
        await asyncio.gather(*room.tasks.values(), return_exceptions=True)
        assert room.most <= jobs and room.inside == 0 and room.admission.waiting == 0
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(jobs):
                async with asyncio.timeout(1):
                    await stack.enter_async_context(room.admission.seat())

    asyncio.run(run())


async def test_only_speech_needs_a_seat() -> None:
    clock = ManualClock()
    engine = FakeEngine(clock)
    admitted = AdmittedEngine(engine, Admission(AdmissionLimits(1, queued=0, wait_s=0), clock))
    async with admitted.submit(Speak("a", 1, "")), admitted.submit(Think("t", 1, [])):
        assert sorted(admitted.in_flight()) == ["a", "t"]
        with pytest.raises(VoiceBoxBusy, match="1 replies are being spoken"):
            async with admitted.submit(Speak("b", 2, "")):
                pass
    async with admitted.submit(Speak("b", 2, "")):
        assert engine.aborted == ["t", "a"]


@pytest.mark.parametrize("limits", [(0, 1, 1.0), (1, -1, 1.0), (1, 1, -1.0)])
def test_limits_that_let_nobody_in_are_refused(limits: tuple[int, int, float]) -> None:
    with pytest.raises(ValueError, match="at least one job"):
        AdmissionLimits(*limits)
