"""How sure a difference between two ways is that took turns: both are drawn again and again from the same rounds.

Answers of one wave resemble each other (they share its steps), so a round is drawn whole, and always for both ways.
Knows nothing of what was measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from voice_agent.bench.statistics import nearest_rank

DRAWS = 1000
LOW, HIGH = 2.5, 97.5

Round = TypeVar("Round")


@dataclass(frozen=True)
class Between:
    """What one way has over the other, and where 95 of 100 draws of it lie."""

    found: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.found:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


def between(
    ours: Sequence[Round], theirs: Sequence[Round], reading: Callable[[Sequence[Round]], float]
) -> Between:
    """`reading` of our rounds minus that of theirs; round n of both ran side by side.

    Raises ValueError where they are not equally many, or none.
    """
    pairs = list(zip(ours, theirs, strict=True))
    if not pairs:
        raise ValueError("no rounds, no difference")
    chance = np.random.default_rng(0)
    drawn = [
        reading([pairs[n][0] for n in picked]) - reading([pairs[n][1] for n in picked])
        for picked in chance.integers(0, len(pairs), (DRAWS, len(pairs))).tolist()
    ]
    return Between(reading(ours) - reading(theirs), nearest_rank(drawn, LOW), nearest_rank(drawn, HIGH))
