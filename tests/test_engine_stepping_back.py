"""An LLM's own threads have everybody's share until its first answer has begun, then they step back; a spare's too."""

import dataclasses
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine_rig import answer, running, text_of, think, thinker_spec, until
from voice_agent import precedence
from voice_agent.engine.runtime import EngineSpec
from voice_agent.engine.stepping_back import loaded
from voice_agent.engine.supervisor import EngineProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="niceness of a thread is Linux's")

NICED = dataclasses.replace(thinker_spec(), nice=3)


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


FULL = niceness()
BACK = min(
    FULL + 3, precedence.MOST_NICENESS
)  # where a run of these tests has stepped back itself there is less room


class Model:
    """Has a thread of its own from its load on."""

    def __init__(self) -> None:
        self.while_loading = niceness()
        self.own = ThreadPoolExecutor(1)
        self.own.submit(int).result()

    @property
    def niceness(self) -> int:
        return self.own.submit(niceness).result()


def of_a_load(spec: EngineSpec) -> list[int]:
    """Niceness of its own thread: while it loads, once it has, after its first piece and after its second."""
    model, share = loaded(spec, Model)
    try:
        found = [model.while_loading, model.niceness]
        for _ in range(2):
            share.first_piece()
            found.append(model.niceness)
        return found
    finally:
        model.own.shutdown()


def test_a_load_that_callers_wait_for_steps_back_with_its_first_piece() -> None:
    assert of_a_load(NICED) == [FULL, FULL, BACK, BACK]


def test_a_spare_steps_back_while_it_loads_and_comes_forward_for_its_first_answer_where_that_is_allowed() -> (
    None
):
    found = of_a_load(dataclasses.replace(NICED, patient=True))
    assert found in ([BACK, FULL, BACK, BACK], [BACK] * 4)


def test_other_threads_stay_where_they_are() -> None:
    with ThreadPoolExecutor(1) as other:
        before = other.submit(niceness).result()
        of_a_load(NICED)
        assert other.submit(niceness).result() == before


async def told(engine: EngineProcess, request_id: str) -> list[int]:
    """Niceness of the model's own thread before the first and the second piece of an answer."""
    return [
        int(word) for word in text_of(await answer(engine, think(engine, request_id, "niceness"))).split()
    ]


@pytest.mark.process
async def test_an_engine_and_its_spare_give_the_first_answer_a_full_share() -> None:
    async with running(NICED, warm_spare=True) as engine:
        assert await told(engine, "a") == [FULL, BACK]
        assert await told(engine, "b") == [BACK, BACK]
        await until(lambda: engine.spare_ready)
        first = engine.pid
        os.kill(first or 0, signal.SIGKILL)
        await until(lambda: engine.pid not in {None, first})
        assert await told(engine, "c") in ([FULL, BACK], [BACK, BACK])
        assert await told(engine, "d") == [BACK, BACK]
