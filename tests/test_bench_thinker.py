"""The Thinker's bench: what its command line refuses, and whether an end was named. The rest needs vLLM."""

import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from voice_agent.bench.thinker import parsed
from voice_agent.bench.thinker_crash import ENDS, Session, summed_up
from voice_agent.bench.thinker_waves import Bench, Wave, over
from voice_agent.bench.thinker_waves import summed_up as summed_up_waves
from voice_agent.engine.messages import Finished, Result, TextDelta, Think
from voice_agent.engine.supervisor import EngineProcess


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--crash", "kill"], "--crash needs two models --together"),
        (["--crash", "kill", "--model", "tiny", "--model", "tiny"], "--crash needs two models --together"),
        (
            ["--crash", "kill,flood", "--together", "--model", "tiny", "--model", "tiny"],
            "--crash: flood is none of kill",
        ),
    ],
)
def test_a_crash_needs_somebody_beside_it(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(argv)
    assert says in capsys.readouterr().err


def test_several_ends_are_brought_about_in_turn_and_waves_may_be_left_out() -> None:
    arguments = parsed(
        ["--crash", ",".join(ENDS), "--together", "--model", "tiny", "--model", "tiny", "--sessions", ""]
    )
    assert arguments.crash == list(ENDS)
    assert arguments.sessions == []


@pytest.mark.parametrize(
    ("end", "error", "named"),
    [
        ("gpu-memory", "vLLM's engine core ended: out of GPU memory: see the plan", True),
        ("gpu-memory", "vLLM's engine core was killed by SIGKILL", False),
        (
            "host-kill",
            "vLLM's engine core was killed by SIGKILL, by the kernel for want of host memory",
            True,
        ),
        ("host-limit", "vLLM's engine core ended: out of host memory: give", True),
        ("kill", "vLLM's engine core was killed by SIGKILL", True),
        ("kill", "", False),
    ],
)
def test_an_end_counts_as_named_when_every_error_names_it(end: str, error: str, named: bool) -> None:
    found = summed_up(end, [Session(5.0, error), Session(9.0)], [Session(7.0), Session(3.0, "lost")])
    assert found["named"] is named
    assert found["victim_failed"] == int(bool(error))
    assert (found["beside_finished"], found["beside_errors"]) == (1, ["lost"])
    assert found["beside_longest_gap_ms"] == {"p50": 3.0, "max": 7.0}


def test_what_is_over_bare_counts_all_sessions_and_says_how_sure_it_is() -> None:
    bare = [Wave([0, 1], [10 + n, 20 + n], 200, 2.0) for n in range(4)]
    ours = [Wave([0, 1], [12 + n, 23 + n], 200, 2.5) for n in range(4)]
    assert summed_up_waves(ours) == {
        "own_clock_ms_p50": 15.0,
        "first_ms_mean": 19.0,
        "first_ms_p50": 15.0,
        "first_ms_p95": 26.0,
        "tokens_per_s": 80.0,
        "n": 8,
        "waves_p50_ms": [12.0, 13.0, 14.0, 15.0],
    }
    found = over(ours, bare)
    assert found["p50_ms"].startswith("+2.00 (")
    assert found["p95_ms"].startswith("+3.00 (")
    assert found["mean_ms"] == "+2.50 (+2.50 to +2.50)"
    assert found["tokens_percent"] == "-20.00 (-20.00 to -20.00)"


class Engine:
    """Answers every question at once, and remembers them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._epochs = itertools.count(1)

    def next_epoch(self) -> int:
        return next(self._epochs)

    @asynccontextmanager
    async def submit(self, request: Think) -> AsyncGenerator[AsyncIterator[Result]]:
        self.asked += [message["content"] for message in request.messages]
        yield self._results(request)

    async def _results(self, request: Think) -> AsyncIterator[Result]:
        count = len(request.messages)
        wave = {"asked_ms": [0.0] * count, "first_ms": [1.0] * count, "tokens": count, "seconds": 1.0}
        text = json.dumps(wave) if request.request_id.startswith("bare") else "Yes."
        yield TextDelta(request.request_id, request.epoch, text)
        yield Finished(request.request_id, request.epoch, usage={"completion_tokens": 1})


async def test_no_question_is_asked_twice_at_whatever_levels() -> None:
    engine = Engine()
    bench = Bench(cast(EngineProcess, engine), parsed(["--least-answers", "8", "--texts"]), "", waves=2)
    for sessions in (4, 1, 3):
        await bench.level(sessions)
    assert len(engine.asked) == len(set(engine.asked)) > 60
