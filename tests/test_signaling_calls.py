import asyncio

import pytest

from signaling.calls import CallLimits
from signaling.seats import Seats
from tests.scripted_calls import Stage
from voice_agent.clock import ManualClock
from voice_agent.errors import BusyError, OfferRejected, UnknownCall


async def test_ids_are_random_and_long() -> None:
    async with Stage(max_sessions=50).running() as stage:
        ids = {(await stage.registry.open("v=0"))[0] for _ in range(50)}
        assert len(ids) == 50
        assert all(one.startswith("rtc_") and len(one) >= 36 for one in ids)


async def test_the_call_after_the_last_seat_is_told_when_to_come_again() -> None:
    async with Stage(max_sessions=2).running() as stage:
        first, _ = await stage.registry.open("v=0")
        await stage.registry.open("v=0")
        with pytest.raises(BusyError) as busy:
            await stage.registry.open("v=0")
        assert busy.value.retry_after_s == 6
        await stage.registry.end(first, "test")
        await stage.settle()
        await stage.registry.open("v=0")


async def test_a_call_that_never_connects_gives_its_seat_back() -> None:
    async with Stage(max_sessions=1).running() as stage:
        call_id, _ = await stage.registry.open("v=0")
        await stage.clock.advance_ms(14_999)
        assert stage.seats.in_use == 1
        await stage.clock.advance_ms(2)
        assert stage.seats.in_use == 0
        assert stage.calls[0].reasons == ["connect_timeout"]
        with pytest.raises(UnknownCall):
            stage.registry.get(call_id)
        await stage.registry.open("v=0")


async def test_a_connected_call_keeps_its_seat_as_long_as_it_lives() -> None:
    async with Stage(max_sessions=1).running() as stage:
        await stage.registry.open("v=0")
        stage.calls[0].connected = True
        await stage.clock.advance_ms(3_600_000)
        assert stage.seats.in_use == 1 and stage.calls[0].reasons == []
        stage.calls[0].vanish()
        await stage.settle()
        assert stage.seats.in_use == 0


async def test_a_failure_while_the_call_is_made_gives_the_seat_back() -> None:
    async with Stage(max_sessions=1).running() as stage:
        stage.create_error = OfferRejected("no")
        for _ in range(3):
            with pytest.raises(OfferRejected):
                await stage.registry.open("v=0")
        assert stage.seats.in_use == 0


async def test_a_call_that_is_never_made_ends_as_busy_and_gives_the_seat_back() -> None:
    async with Stage(max_sessions=1).running() as stage:
        stage.create_gate = asyncio.Event()
        opening = asyncio.create_task(stage.registry.open("v=0"))
        await stage.clock.advance_ms(20_001)
        with pytest.raises(BusyError):
            await opening
        assert stage.seats.in_use == 0


async def test_a_caller_who_gives_up_while_the_call_is_made_frees_the_seat() -> None:
    async with Stage(max_sessions=1).running() as stage:
        stage.create_gate = asyncio.Event()
        opening = asyncio.create_task(stage.registry.open("v=0"))
        await stage.settle()
        assert stage.seats.in_use == 1
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert stage.seats.in_use == 0


async def test_a_call_is_unknown_after_its_end_and_its_timeline_is_kept_a_minute() -> None:
    async with Stage().running() as stage:
        call_id, _ = await stage.registry.open("v=0")
        assert stage.registry.timeline(call_id)["state"] == "live"
        await stage.registry.end(call_id, "client_hangup")
        assert stage.calls[0].reasons == ["client_hangup"]
        with pytest.raises(UnknownCall):
            await stage.registry.end(call_id, "client_hangup")
        await stage.settle()
        assert stage.registry.timeline(call_id)["state"] == "ended"
        await stage.clock.advance_ms(59_000)
        assert stage.registry.timeline(call_id)["state"] == "ended"
        await stage.clock.advance_ms(2_000)
        with pytest.raises(UnknownCall):
            stage.registry.timeline(call_id)


async def test_while_a_call_is_being_closed_its_timeline_knows_why_already() -> None:
    """The other side learns that it is over before all of it is freed, and asks at once."""
    async with Stage().running() as stage:
        call_id, _ = await stage.registry.open("v=0")
        stage.calls[0].close_gate = asyncio.Event()
        ending = asyncio.create_task(stage.registry.end(call_id, "client_hangup"))
        await stage.settle()
        assert stage.registry.timeline(call_id)["end_reason"] == "client_hangup"
        stage.calls[0].close_gate.set()
        await ending


async def test_remembered_timelines_are_bounded_and_the_oldest_go() -> None:
    async with Stage(limits=CallLimits(timelines_kept=3)).running() as stage:
        ids: list[str] = []
        for _ in range(5):
            ids.append((await stage.registry.open("v=0"))[0])
            await stage.registry.end(ids[-1], "test")
            await stage.settle()
        for old in ids[:2]:
            with pytest.raises(UnknownCall):
                stage.registry.timeline(old)
        assert all(stage.registry.timeline(one) for one in ids[2:])


async def test_draining_refuses_new_calls_and_waits_for_the_running_ones() -> None:
    async with Stage().running() as stage:
        await stage.registry.open("v=0")
        draining = asyncio.create_task(stage.registry.drain(30))
        await stage.settle()
        with pytest.raises(BusyError):
            await stage.registry.open("v=0")
        assert not draining.done()
        stage.calls[0].vanish()
        await stage.settle()
        await draining
        assert stage.calls[0].reasons == []


async def test_draining_ends_what_still_runs_when_the_time_is_over() -> None:
    async with Stage().running() as stage:
        await stage.registry.open("v=0")
        stage.calls[0].connected = True
        draining = asyncio.create_task(stage.registry.drain(30))
        await stage.clock.advance_ms(30_001)
        await draining
        assert stage.calls[0].reasons == ["server_shutdown"]


async def test_leaving_ends_every_call_although_one_fails_and_one_hangs() -> None:
    stage = Stage(max_sessions=3)
    async with stage.registry:
        for _ in range(3):
            await stage.registry.open("v=0")
        stage.calls[0].close_error = OSError("socket")
        stage.calls[1].close_gate = asyncio.Event()
        ticking = asyncio.create_task(stage.clock.advance_ms(10_000))
    await ticking
    assert all(call.reasons == ["server_shutdown"] for call in stage.calls)
    assert stage.seats.in_use == 0 and len(stage.registry) == 0


async def test_a_call_that_fails_to_close_disturbs_no_other() -> None:
    async with Stage(max_sessions=2).running() as stage:
        await stage.registry.open("v=0")
        second, _ = await stage.registry.open("v=0")
        stage.calls[1].connected = True
        stage.calls[0].close_error = OSError("socket")
        await stage.clock.advance_ms(15_001)
        assert stage.registry.get(second) is stage.calls[1]
        assert stage.seats.in_use == 1


async def test_a_registry_that_is_not_entered_takes_no_calls() -> None:
    with pytest.raises(BusyError):
        await Stage().registry.open("v=0")


async def test_a_lease_ends_by_itself_unless_kept_and_is_released_once() -> None:
    clock = ManualClock()
    seats = Seats(2, clock)
    lost, kept = seats.acquire(10), seats.acquire(10)
    kept.keep()
    await clock.advance_ms(10_001)
    assert seats.in_use == 1
    lost.release()
    kept.release()
    kept.release()
    assert seats.in_use == 0
    for _ in range(2):
        seats.acquire(10)
    with pytest.raises(BusyError) as busy:
        seats.acquire(10)
    assert 2 <= busy.value.retry_after_s <= 6
