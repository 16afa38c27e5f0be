"""An idle vLLM is held until a wave fills a step or is whole; one that runs is never held."""

import asyncio
import math
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.models import vllm_first_step
from voice_agent.models.vllm_first_step import (
    SHORT_STEP_S,
    TELLING_TOKENS,
    FirstStep,
    Scheduling,
    first_step_tokens,
)

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
    step.expect([])
    step.given([STEP_TOKENS // 2], [])
    await turns()
    assert scheduler.orders == ["hold"]
    step.begin()
    await turns()
    assert scheduler.orders == ["hold", "release"]


async def test_a_full_step_waits_for_nobody(scheduler: Scheduler) -> None:
    step = scheduler.watched()
    step.expect([])
    step.given([STEP_TOKENS // 2], [])
    step.given([STEP_TOKENS // 2], [])
    await turns()
    assert scheduler.orders == ["hold", "release"]
    step.given([STEP_TOKENS], [])
    step.begin()
    await turns()
    assert scheduler.orders == ["hold", "release"]


@pytest.mark.parametrize(
    ("count", "least", "first"),
    [
        pytest.param(8, 900, 1_500, id="within a step: five of eight"),
        pytest.param(8, 1_300, 8_192, id="the rest would be too short a step"),
        pytest.param(2, 900, 8_192, id="two: together"),
        pytest.param(32, 900, 5_100, id="over a step: seventeen"),
        pytest.param(
            64, 900, 9_900 - (8_192 - 64), id="over two: six, and half of them are through with the second"
        ),
        pytest.param(64, 3_000, 3_000, id="the first would be too short a step"),
        pytest.param(54, 900, 900, id="half of them in a full step, nearly"),
        pytest.param(52, 900, 8_100, id="just under a full step"),
        pytest.param(0, 900, 8_192, id="nobody"),
        pytest.param(9_000, 900, 8_192, id="more prompts than a step has tokens"),
    ],
)
def test_a_wave_begins_with_the_step_that_gets_half_of_it_through_soonest(
    count: int, least: int, first: int
) -> None:
    assert first_step_tokens(300 * count, count, 8_192, least) == first


@given(lengths=st.lists(st.integers(1, 400), min_size=1, max_size=100), least=st.integers(1, 900))
def test_half_of_a_wave_is_through_as_soon_as_with_full_steps_and_the_whole_a_step_later_at_most(
    lengths: list[int], least: int
) -> None:
    wave, room = sum(lengths), 1_000 - len(lengths)
    first = first_step_tokens(wave, len(lengths), 1_000, least)
    if first == 1_000:
        return
    assert least <= first <= wave - least
    assert first < room
    steps = math.ceil((wave / 2 - first) / room)
    assert first + steps * room >= wave / 2
    assert steps <= math.ceil(wave / 2 / room)
    assert math.ceil((wave - first) / room) <= math.ceil(wave / room)


LONG_STEP_S = 2.0 * SHORT_STEP_S * STEP_TOKENS / 300  # such that no step is to have under 150 tokens


class Seen:
    """A first step of a known size and length, which tells how long a token takes."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.time_s = 5.0
        self.step = scheduler.watched(lambda: self.time_s)
        self._scheduler = scheduler

    async def wave(self, tokens: int, step_s: float, cached: int = 0) -> None:
        self.step.expect([tokens])
        self.step.given([tokens], [])
        self.step.begin()
        self.time_s += step_s
        self.step.answered(tokens, cached)
        self.time_s += 1.0
        self.step.answered(tokens, cached)  # the others say nothing of the step
        await turns()
        self._scheduler.orders.clear()


@pytest.mark.parametrize(
    ("seen", "orders"),
    [
        pytest.param([], ["hold"], id="no step seen yet: as full a one as can be"),
        pytest.param([(STEP_TOKENS, LONG_STEP_S)], ["hold", "release"], id="a long one: half of the wave"),
        pytest.param([(STEP_TOKENS, LONG_STEP_S / 10)], ["hold"], id="a short one: all of it"),
        pytest.param(
            [(STEP_TOKENS, LONG_STEP_S), (STEP_TOKENS, LONG_STEP_S / 10), (STEP_TOKENS, LONG_STEP_S)],
            ["hold"],
            id="the shortest of several counts",
        ),
        pytest.param([(TELLING_TOKENS - 1, LONG_STEP_S)], ["hold"], id="one with few tokens tells nothing"),
    ],
)
async def test_a_wave_is_split_where_steps_take_long(
    scheduler: Scheduler, seen: list[tuple[int, float]], orders: list[str]
) -> None:
    known = Seen(scheduler)
    for tokens, step_s in seen:
        await known.wave(tokens, step_s)
    known.step.expect([100] * 8)
    known.step.given([100] * 5, [100] * 3)
    await turns()
    assert scheduler.orders == orders
    known.step.begin()
    await turns()


@pytest.mark.parametrize(
    ("lengths", "step_s", "wanted"),
    [
        pytest.param([100] * 3, LONG_STEP_S / 10, 3, id="short steps: all"),
        pytest.param([100] * 15, LONG_STEP_S / 10, 11, id="a full one, and one prompt more"),
        pytest.param([100] * 8, LONG_STEP_S, 6, id="long ones: over half, and one prompt more"),
        pytest.param([2_000, 100], LONG_STEP_S, 2, id="one that is longer than a step"),
    ],
)
async def test_so_many_are_wanted_at_once_as_the_first_step_takes(
    scheduler: Scheduler, lengths: list[int], step_s: float, wanted: int
) -> None:
    known = Seen(scheduler)
    await known.wave(STEP_TOKENS, step_s)
    assert min(known.step.expect(lengths), len(lengths)) == wanted
    assert known.step.expect(lengths) == 0  # who comes while it is held already waits like the others
    known.step.begin()
    scheduler.busy = True
    assert known.step.expect(lengths) == 0
    await turns()


async def test_what_is_cached_takes_no_time(scheduler: Scheduler) -> None:
    known = Seen(scheduler)
    await known.wave(STEP_TOKENS, LONG_STEP_S)
    for _ in range(100):
        known.step.answered(1_000, 900)
    assert known.step.expect([100] * 8) >= 8  # of which 80 are computed
    known.step.begin()
    assert known.step.expect([1_000] * 8) < 8
    known.step.begin()
    await turns()


async def test_a_step_over_cached_tokens_tells_nothing_of_one_without(scheduler: Scheduler) -> None:
    known = Seen(scheduler)
    await known.wave(STEP_TOKENS, LONG_STEP_S)
    await known.wave(STEP_TOKENS, LONG_STEP_S / 100, cached=STEP_TOKENS - 10)
    for _ in range(100):
        known.step.answered(1_000, 0)
    assert known.step.expect([100] * 8) < 8
    known.step.begin()
    await turns()


async def test_it_goes_behind_those_who_were_handed_their_tokens_in_the_same_turn(
    scheduler: Scheduler,
) -> None:
    step, tokens = scheduler.watched(), asyncio.get_running_loop().create_future()

    async def request() -> None:
        await tokens
        scheduler.orders.append("request")

    asked = asyncio.create_task(request())
    step.expect([])
    await turns()
    tokens.set_result(None)
    step.given([STEP_TOKENS], [])
    await turns()
    await asked
    assert scheduler.orders == ["hold", "request", "release"]


async def test_one_that_runs_is_never_held(scheduler: Scheduler) -> None:
    scheduler.busy = True
    step = scheduler.watched()
    step.expect([])
    step.given([10], [])
    step.begin()
    await turns()
    assert scheduler.orders == []


async def test_a_second_wave_meanwhile_holds_nothing_twice(scheduler: Scheduler) -> None:
    step = scheduler.watched()
    step.expect([])
    step.expect([])
    await turns()
    step.begin()
    await turns()
    assert scheduler.orders == ["hold", "release"]
    step.expect([])
    step.begin()
    await turns()
    assert scheduler.orders == ["hold", "release", "hold", "release"]


async def test_nobody_waits_longer_than_the_limit(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_first_step, "HOLD_S", 0)
    step = scheduler.watched()
    step.expect([])
    await turns(10)
    assert scheduler.orders == ["hold", "release"]


async def test_one_that_died_is_no_error_of_its_own(scheduler: Scheduler) -> None:
    scheduler.dead = True
    step = scheduler.watched()
    step.expect([])
    step.begin()
    await turns()
    assert scheduler.orders == ["hold", "release"]
