"""An idle vLLM is held until a wave fills a step or is whole; one that runs is never held."""

import asyncio
import math
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.models import vllm_first_step
from voice_agent.models.vllm_first_step import FirstStep, Scheduling, first_step_tokens

STEP_TOKENS = 1_000


class Dead(Exception):
    """vLLM is gone."""


class Scheduler:
    """Takes orders as vLLM does: at once, in order; answers come whenever."""

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.busy = False
        self.dead = False

    def watched(self, now_s: Callable[[], float] = time.monotonic) -> FirstStep:
        scheduling = Scheduling(STEP_TOKENS, self._order("hold"), self._order("release"), Dead)
        return FirstStep(scheduling, lambda: self.busy, now_s)

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
    step.given([STEP_TOKENS // 2], None)
    await turns()
    assert scheduler.orders == ["hold"]
    step.begin()
    await turns()
    assert scheduler.orders == ["hold", "release"]


async def test_a_full_step_waits_for_nobody(scheduler: Scheduler) -> None:
    step = scheduler.watched()
    step.expect()
    step.given([STEP_TOKENS // 2], None)
    step.given([STEP_TOKENS // 2], None)
    await turns()
    assert scheduler.orders == ["hold", "release"]
    step.given([STEP_TOKENS], None)
    step.begin()
    await turns()
    assert scheduler.orders == ["hold", "release"]


@pytest.mark.parametrize(
    ("lengths", "first"),
    [
        pytest.param([300] * 8, 2_400, id="one step: all"),
        pytest.param([300] * 32, 8_192, id="two: the full one"),
        pytest.param([300] * 64, 19_200 - 2 * (8_192 - 64), id="three: what two full ones do not take"),
        pytest.param([300] * 100, 8_192, id="four: a full one"),
        pytest.param([8_192 - 1], 8_191, id="a whole step for one"),
        pytest.param([3] * 9_000, 8_192, id="more prompts than a step has tokens"),
    ],
)
def test_a_wave_begins_with_the_step_that_gets_half_of_it_through_soonest(
    lengths: list[int], first: int
) -> None:
    assert first_step_tokens(sum(lengths), len(lengths), 8_192) == first


@given(lengths=st.lists(st.integers(1, 400), min_size=1, max_size=100))
def test_it_takes_no_step_more_than_full_ones_would(lengths: list[int]) -> None:
    wave, room = sum(lengths), 1_000 - len(lengths)
    first = first_step_tokens(wave, len(lengths), 1_000)
    assert min(wave, room) <= first or math.ceil((wave - first) / room) == math.ceil(wave / room) - 1


@pytest.mark.parametrize(
    ("seen_s", "orders"),
    [
        pytest.param([], ["hold"], id="no step seen yet: a full one first"),
        pytest.param([0.05], ["hold"], id="a short one"),
        pytest.param([0.2], ["hold", "release"], id="a long one: a small one first"),
        pytest.param([0.2, 0.05, 0.2], ["hold"], id="the shortest of several counts"),
    ],
)
async def test_a_small_step_comes_first_where_a_full_one_takes_long(
    scheduler: Scheduler, seen_s: list[float], orders: list[str]
) -> None:
    time_s = 5.0
    step = scheduler.watched(lambda: time_s)
    for step_s in seen_s:
        step.expect()
        step.given([STEP_TOKENS], None)
        time_s += step_s
        step.answered()
        time_s += 1.0
        step.answered()  # the next tokens say nothing
        step.begin()
    await turns()
    scheduler.orders.clear()
    step.expect()
    step.given([200], [300] * 6)  # 2,000 tokens, 993 a step: the first takes 14 at least
    await turns()
    assert scheduler.orders == orders
    step.begin()
    await turns()


async def test_a_step_that_was_not_full_tells_nothing(scheduler: Scheduler) -> None:
    time_s = 5.0
    step = scheduler.watched(lambda: time_s)
    step.expect()
    step.given([STEP_TOKENS - 1], [])
    step.begin()
    await turns()
    time_s += 0.5
    step.answered()
    step.expect()
    step.given([200], [300] * 6)
    await turns()
    assert scheduler.orders == ["hold", "release", "hold"]
    step.begin()
    await turns()


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
    step.given([STEP_TOKENS], None)
    await turns()
    await asked
    assert scheduler.orders == ["hold", "request", "release"]


async def test_one_that_runs_is_never_held(scheduler: Scheduler) -> None:
    scheduler.busy = True
    step = scheduler.watched()
    step.expect()
    step.given([10], None)
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
