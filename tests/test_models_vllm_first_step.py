"""An idle vLLM is held until a wave fills a step or is whole; one that runs is never held."""

import asyncio
from collections.abc import Callable

import pytest

from voice_agent.models import vllm_first_step
from voice_agent.models.vllm_first_step import FirstStep, Scheduling

STEP_TOKENS = 1_000


class Dead(Exception):
    """vLLM is gone."""


class Scheduler:
    """Takes orders as vLLM does: at once, in order; answers come whenever."""

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.busy = False
        self.dead = False

    def watched(self) -> FirstStep:
        scheduling = Scheduling(STEP_TOKENS, self._order("hold"), self._order("release"), Dead)
        return FirstStep(scheduling, lambda: self.busy)

    def _order(self, name: str) -> Callable[[], asyncio.Future[None]]:
        def order() -> asyncio.Future[None]:
            answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.orders.append(name)
            answer.set_exception(Dead()) if self.dead else answer.set_result(None)
            return answer

        return order


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


async def turns(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_it_is_held_until_the_wave_is_whole(scheduler: Scheduler) -> None:
    step = scheduler.watched()
    step.expect()
    step.given(STEP_TOKENS // 2)
    await turns()
    assert scheduler.orders == ["hold"]
    step.begin()
    await turns()
    assert scheduler.orders == ["hold", "release"]


async def test_a_full_step_waits_for_nobody(scheduler: Scheduler) -> None:
    step = scheduler.watched()
    step.expect()
    step.given(STEP_TOKENS // 2)
    step.given(STEP_TOKENS // 2)
    await turns()
    assert scheduler.orders == ["hold", "release"]
    step.given(STEP_TOKENS)
    step.begin()
    await turns()
    assert scheduler.orders == ["hold", "release"]


async def test_it_goes_behind_those_who_were_handed_their_tokens_in_the_same_turn(
    scheduler: Scheduler,
) -> None:
    step, tokens = scheduler.watched(), asyncio.get_running_loop().create_future()

    async def request() -> None:
        await tokens
        scheduler.orders.append("request")

    asked = asyncio.create_task(request())
    step.expect()
    await turns()
    tokens.set_result(None)
    step.given(STEP_TOKENS)
    await turns()
    await asked
    assert scheduler.orders == ["hold", "request", "release"]


async def test_one_that_runs_is_never_held(scheduler: Scheduler) -> None:
    scheduler.busy = True
    step = scheduler.watched()
    step.expect()
    step.given(10)
    step.begin()
    await turns()
    assert scheduler.orders == []


async def test_a_second_wave_meanwhile_holds_nothing_twice(scheduler: Scheduler) -> None:
    step = scheduler.watched()
    step.expect()
    step.expect()
    await turns()
    step.begin()
    await turns()
    assert scheduler.orders == ["hold", "release"]
    step.expect()
    step.begin()
    await turns()
    assert scheduler.orders == ["hold", "release", "hold", "release"]


async def test_nobody_waits_longer_than_the_limit(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_first_step, "HOLD_S", 0)
    step = scheduler.watched()
    step.expect()
    await turns(10)
    assert scheduler.orders == ["hold", "release"]


async def test_one_that_died_is_no_error_of_its_own(scheduler: Scheduler) -> None:
    scheduler.dead = True
    step = scheduler.watched()
    step.expect()
    step.begin()
    await turns()
    assert scheduler.orders == ["hold", "release"]
