"""The hand-turned clock wakes sleepers in order, at their own instants."""

import asyncio

from voice_agent.clock import NS_PER_MS, ManualClock, MonotonicClock


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
