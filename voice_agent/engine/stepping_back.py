"""When an LLM's own threads go behind everybody else's: once its first answer since its load has begun.

An answer takes seconds and its words a moment; with equal shares the words over a reply come too late for it. But
whoever asks first has waited for the load as well, and threads that wait for each other after each operation stand
still most of the time where one of them is kept waiting: a first piece beside sixteen speaking replies took 2.8 s eight
steps behind, 0.5 s with an equal share (two threads, two cores). Niceness is a thread's own and goes on to the threads
that it starts. Knows no model.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from voice_agent import precedence
from voice_agent.engine.runtime import EngineSpec

Model = TypeVar("Model")


class SteppingBack:
    """An LLM's own threads, which still have everybody's share. Call from one thread."""

    def __init__(self, threads: set[int], by: int) -> None:
        self._threads = threads
        self._by = by

    def first_piece(self) -> None:
        """An answer has begun: step back, once."""
        threads, self._threads = self._threads, set()
        if threads:
            precedence.let_step_back(threads, self._by)


def loaded(spec: EngineSpec, load_model: Callable[[], Model]) -> tuple[Model, SteppingBack]:
    """Load a model on this thread; one that nobody waits for, a spare, loads behind the others.

    A spare comes forward once it has loaded, where the kernel allows that; else it stays behind.
    """
    before = precedence.threads()
    if not spec.patient:
        model = load_model()
        return model, SteppingBack(precedence.threads() - before, spec.nice)
    with ThreadPoolExecutor(1, initializer=os.nice, initargs=(spec.nice,)) as thread:
        model = thread.submit(load_model).result()
    own = precedence.threads() - before
    forward = precedence.let_come_forward(own, os.getpriority(os.PRIO_PROCESS, 0))
    return model, SteppingBack(own if forward else set(), spec.nice)
