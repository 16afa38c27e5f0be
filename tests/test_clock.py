"""The hand-turned clock wakes sleepers in order, at their own instants."""

import asyncio

import pytest

from voice_agent.clock import NS_PER_MS, ManualClock, MonotonicClock, first_result, within


async def test_sleepers_wake_in_order_at_their_instants() -> None:
    clock = ManualClock()
    woken: list[tuple[str, int]] = []

    async def sleeper(name: str, at_ms: int) -> None:
        await clock.sleep_until(at_ms * NS_PER_MS)
        woken.append((name, clock.now_ns() // NS_PER_MS))

    async with asyncio.TaskGroup() as group:
        for name, at_ms in (("late", 30), ("early", 10), ("middle", 20)):
            group.create_task(sleeper(name, at_ms))
        await clock.advance_ms(15)
        assert woken == [("early", 10)]
        await clock.advance_ms(15)
    assert woken == [("early", 10), ("middle", 20), ("late", 30)]


async def test_an_instant_in_the_past_does_not_wait() -> None:
    clock = MonotonicClock()
    await asyncio.wait_for(clock.sleep_until(clock.now_ns() - NS_PER_MS), timeout=1)
    await asyncio.wait_for(ManualClock().sleep_until(0), timeout=1)


async def test_within_gives_the_result_or_cancels_the_work_at_the_instant() -> None:
    clock = ManualClock()
    forever = asyncio.Event()

    async def work(ms: int) -> str:
        await clock.sleep_until(ms * NS_PER_MS)
        return "done"

    in_time = asyncio.create_task(within(clock, 20 * NS_PER_MS, work(10)))
    too_late = asyncio.create_task(within(clock, 20 * NS_PER_MS, forever.wait()))
    await clock.advance_ms(30)
    assert await in_time == "done"
    with pytest.raises(TimeoutError):
        await too_late
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelling_within_cancels_the_work() -> None:
    clock = ManualClock()
    task = asyncio.create_task(within(clock, NS_PER_MS, asyncio.Event().wait()))
    await clock.advance_ms(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("ends", ["well", "badly", "cancelled"])
async def test_the_first_to_end_gives_its_result_and_the_others_are_over_by_then(ends: str) -> None:
    over: list[str] = []

    async def for_ever(name: str) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            over.append(name)
        return name

    async def ended() -> str:
        await asyncio.sleep(0)
        if ends == "badly":
            raise ValueError("no result")
        return "first"

    task = asyncio.create_task(
        first_result(for_ever("a"), for_ever("b"), ended() if ends != "cancelled" else for_ever("c"))
    )
    if ends == "cancelled":
        await asyncio.sleep(0.01)
        task.cancel()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    assert over == (["a", "b", "c"] if ends == "cancelled" else ["a", "b"])
    kinds = {"well": str, "badly": ValueError, "cancelled": asyncio.CancelledError}
    assert isinstance(outcome, kinds[ends])
