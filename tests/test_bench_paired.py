"""How sure a difference is: it brackets a true one, tells none where there is none, and refuses what has no pairs."""

import statistics

import numpy as np
import pytest

from voice_agent.bench.paired import between


def test_a_true_difference_is_bracketed_and_rounds_that_took_turns_cancel_what_they_share() -> None:
    chance = np.random.default_rng(3)
    shared = chance.normal(100, 30, 24)  # a round is slow for both ways
    bare = (shared + chance.normal(0, 1, 24)).tolist()
    ours = (shared + 2 + chance.normal(0, 1, 24)).tolist()
    found = between(ours, bare, statistics.fmean)
    assert found.low < found.found < found.high
    assert found.low < 2 < found.high
    assert found.high - found.low < 2  # the rounds' own 30 ms would make it 30


def test_no_difference_is_told_as_one_whose_range_holds_nought() -> None:
    chance = np.random.default_rng(4)
    bare, ours = chance.normal(100, 5, (2, 40)).tolist()
    found = between(ours, bare, statistics.median)
    assert found.low < 0 < found.high
    assert str(found) == f"{found.found:+.2f} ({found.low:+.2f} to {found.high:+.2f})"


@pytest.mark.parametrize(("ours", "bare"), [([], []), ([1.0], [1.0, 2.0])])
def test_without_pairs_there_is_no_difference(ours: list[float], bare: list[float]) -> None:
    with pytest.raises(ValueError):
        between(ours, bare, statistics.fmean)
