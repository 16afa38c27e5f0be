"""Percentiles by nearest rank: each one is a value that was measured, never one in between."""

import math
from collections.abc import Sequence

PERCENTS = (50, 95, 99)


def nearest_rank(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed; raises ValueError on none."""
    if not values:
        raise ValueError("no values, no percentile")
    return sorted(values)[max(1, math.ceil(percent / 100 * len(values))) - 1]


def summary(values: Sequence[float]) -> dict[str, float | int | None]:
    """p50, p95, p99 and n, rounded to 0.1; None without values."""
    ranks = {f"p{p}": round(nearest_rank(values, p), 1) if values else None for p in PERCENTS}
    return {**ranks, "n": len(values)}
