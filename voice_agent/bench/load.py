"""Who asks for speech when: an open loop (Poisson), the same for every server and every run with one seed.

An open loop does not wait for answers: a server that falls behind gets no mercy, as it would from real callers.
"""

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from voice_agent.bench.sentences import texts
from voice_agent.errors import ConfigError

MEAN_FRAMES, SIGMA, FEWEST_FRAMES, MOST_FRAMES = 52.0, 0.38, 16, 140  # of 80 ms; p95 is 91


@dataclass(frozen=True, slots=True)
class Job:
    """One request: when it is due (s from the start), its text, how long its speech is to be where that is forced.

    `counts` is false while warming up.
    """

    at_s: float
    text: str
    frames: int
    counts: bool = True


def reply_frames(draw: random.Random) -> int:
    """A reply's length in frames: lognormal by its mean, cut."""
    mu = math.log(MEAN_FRAMES) - SIGMA**2 / 2
    return min(MOST_FRAMES, max(FEWEST_FRAMES, round(draw.lognormvariate(mu, SIGMA))))


def open_loop(rps: float, warm_up_s: float, seconds: float, seed: int) -> list[Job]:
    """All jobs of a point; the warm-up runs into the measurement without a pause. Raises ConfigError on no load."""
    if rps <= 0 or seconds <= 0:
        raise ConfigError("a load needs more than 0 requests a second and more than 0 seconds")
    draw, due_s, jobs = random.Random(f"arrivals {seed}"), 0.0, list[Job]()
    for text, frames in zip(texts(seed), lengths(seed), strict=False):
        due_s += draw.expovariate(rps)
        if due_s >= warm_up_s + seconds:
            break
        jobs.append(Job(due_s, text, frames, due_s >= warm_up_s))
    return jobs


def lengths(seed: int) -> Iterator[int]:
    """Lengths without end."""
    draw = random.Random(f"lengths {seed}")
    return (reply_frames(draw) for _ in itertools.count())
