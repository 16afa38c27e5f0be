"""Seats in a VoiceBox: in order, within limits, and none lost however a wait ends."""

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine_rig import clause, running, speech_spec, until
from tests.fakes import FakeEngine
from voice_agent.clock import ManualClock, MonotonicClock
from voice_agent.engine.admission import Admission, AdmissionLimits, AdmittedEngine, VoiceBoxBusy
from voice_agent.engine.client import EngineClient
from voice_agent.engine.messages import Speak, SpeakEnd, SpeechChunk, Think


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


# --- in front of a real engine ----------------------------------------------------------------------------------


async def spoken(engine: EngineClient, name: str, order: list[str], end: asyncio.Event) -> int:
    """Speak until told to end; notes its name when it sounds. Samples heard."""
    speak = Speak(name, engine.next_epoch(), "low")
    heard = 0
    async with engine.submit(speak) as stream:
        stream.push(clause(name, speak.epoch, "one two three"))
        async for result in stream:
            if isinstance(result, SpeechChunk) and not heard:
                order.append(name)
                await end.wait()
                stream.push(SpeakEnd(name, speak.epoch))
            heard += len(result.pcm) // 2 if isinstance(result, SpeechChunk) else 0
    return heard


@pytest.mark.process
async def test_of_one_reply_more_than_fits_the_last_is_spoken_whole_once_a_seat_is_free() -> None:
    order, ends = list[str](), {name: asyncio.Event() for name in ("a", "b", "c")}
    async with running(speech_spec()) as process:
        admission = Admission(AdmissionLimits(2, queued=1, wait_s=30), MonotonicClock())
        engine = AdmittedEngine(process, admission)
        tasks = {}
        for name, end in ends.items():
            tasks[name] = asyncio.create_task(spoken(engine, name, order, end))
            await until(lambda name=name: name in order or admission.waiting == 1)
        assert order == ["a", "b"] and sorted(process.in_flight()) == ["a", "b"]
        with pytest.raises(VoiceBoxBusy, match="2 replies are being spoken and 1 wait"):
            await spoken(engine, "d", order, asyncio.Event())
        ends["b"].set()
        await until(lambda: order == ["a", "b", "c"])
        assert not tasks["a"].done()
        for end in ends.values():
            end.set()
        lengths = await asyncio.gather(*tasks.values())
        assert len(set(lengths)) == 1 and lengths[0] > 0


@pytest.mark.process
async def test_who_gets_no_seat_in_time_is_told_busy_and_costs_the_engine_nothing() -> None:
    order, end = list[str](), asyncio.Event()
    async with running(speech_spec()) as process:
        engine = AdmittedEngine(
            process, Admission(AdmissionLimits(1, queued=4, wait_s=0.2), MonotonicClock())
        )
        first = asyncio.create_task(spoken(engine, "a", order, end))
        await until(lambda: order == ["a"])
        with pytest.raises(VoiceBoxBusy, match="none ended in 0.2 s"):
            await spoken(engine, "b", order, end)
        assert process.in_flight() == ["a"]
        end.set()
        assert await first > 0 and order == ["a"]
