"""The Thinker's bench: what its command line refuses, and whether an end was named. The rest needs vLLM."""

import pytest

from voice_agent.bench.thinker import parsed
from voice_agent.bench.thinker_crash import ENDS, Session, summed_up


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--crash", "kill"], "--crash needs two models --together"),
        (["--crash", "kill", "--model", "a", "--model", "b"], "--crash needs two models --together"),
        (
            ["--crash", "kill,flood", "--together", "--model", "a", "--model", "b"],
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
        ["--crash", ",".join(ENDS), "--together", "--model", "a", "--model", "b", "--sessions", ""]
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
