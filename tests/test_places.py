"""Places for requests: how many, and which engines must be up for whom."""

import asyncio
from dataclasses import dataclass

import pytest

from voice_agent.clock import ManualClock
from voice_agent.errors import BusyError
from voice_agent.places import Ability, Places, all_up


@dataclass
class Engine:
    """Serves or not; counts who asked."""

    name: str
    up: bool = True
    asked: int = 0

    async def comes_up(self) -> bool:
        self.asked += 1
        return self.up

    def notice(self) -> str:
        return f"the {self.name} engine is stopped by an operator"


async def test_more_than_there_are_places_are_refused_and_a_place_comes_back() -> None:
    places = Places(1)
    async with places.taken():
        with pytest.raises(BusyError, match="Too many requests"):
            async with places.taken():
                pass
    async with places.taken():
        pass


@pytest.mark.parametrize(
    ("down", "abilities", "refused"),
    [
        ("speak", ["think"], False),
        ("speak", ["hear"], False),
        ("speak", ["think", "speak"], True),
        ("think", ["speak"], False),
        ("think", ["think"], True),
        ("hear", ["hear", "think"], True),
    ],
)
async def test_only_the_engines_that_a_request_needs_refuse_it(
    down: Ability, abilities: list[Ability], refused: bool
) -> None:
    engines: dict[Ability, Engine] = {
        "hear": Engine("first"),
        "think": Engine("second"),
        "speak": Engine("third"),
    }
    engines[down].up = False
    places = Places(1, engines)
    for _ in range(2):  # a refusal takes no place
        if refused:
            message = f"The server is not ready: {engines[down].notice()}."
            with pytest.raises(BusyError, match=message) as caught:
                async with places.taken(*abilities):
                    pytest.fail("it was let in")
            assert caught.value.retry_after_s == 2
        else:
            async with places.taken(*abilities):
                pass
    assert not any(engine.asked for ability, engine in engines.items() if ability not in abilities)


async def test_an_ability_without_an_engine_here_needs_none() -> None:
    async with Places(1, {"hear": Engine("only", up=False)}).taken("think"):
        pass


async def test_all_that_a_call_needs_must_be_up() -> None:
    await all_up([Engine("a"), Engine("b")])
    with pytest.raises(BusyError, match="the b engine"):
        await all_up([Engine("a"), Engine("b", up=False)])


@pytest.mark.parametrize(("ends", "waited_ms"), [(True, 300), (False, 2_000)])
async def test_a_drain_refuses_what_is_new_and_waits_for_what_is_in_hand(ends: bool, waited_ms: int) -> None:
    clock, places, over = ManualClock(), Places(4), asyncio.Event()

    async def request() -> None:
        async with places.taken():
            await over.wait()

    requests = [asyncio.create_task(request()) for _ in range(2)]
    await clock.advance_ms(1)
    assert places.in_hand == 2
    drain = asyncio.create_task(places.drain(clock, 2.0))
    await clock.advance_ms(waited_ms - 50)
    assert not drain.done()
    with pytest.raises(BusyError, match="about to stop"):
        async with places.taken():
            pass
    if ends:
        over.set()
    await clock.advance_ms(60)
    assert drain.done() and places.in_hand == (0 if ends else 2)
    over.set()
    await asyncio.gather(*requests)
