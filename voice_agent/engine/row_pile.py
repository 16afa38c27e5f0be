"""Several steps' hidden rows read at once, by whoever shares a GPU with the Thinker that writes them.

Each time a second process has something to do there, the GPU changes to it and back, and the Thinker's next step waits:
read step by step, 64 replies lose 8 % of their tokens. A reply's first row is what its speech waits for and is handed
on at once, with all that lies before it. The later ones are spoken a quarter of a second each and can wait a moment.
Child side only, one thread.
"""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from voice_agent.engine.cuda_ipc import DeviceBlock, DeviceReader

LATE_S = 0.02  # most that a row waits for those behind it
MOST_BLOCKS = 8


def names_in(notes: memoryview) -> NDArray[np.int64]:
    """Key and number of each row of a block, int64 [n, 2], as models.vllm_rows writes them; lives as the notes do."""
    return np.frombuffer(notes, np.int64).reshape(-1, 2)


class RowPile:
    """Takes from a reader; never holds more than half of the pool's slots. With no `late_s` it reads step by step."""

    def __init__(
        self, reader: DeviceReader, late_s: float = LATE_S, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._reader = reader
        self._late_s = late_s
        self._now_s = now_s
        self._most = min(MOST_BLOCKS, reader.shape.slots // 2)
        self._blocks: list[DeviceBlock] = []
        self._due_s = 0.0  # while there are blocks

    def take(self, timeout_s: float) -> list[DeviceBlock]:
        """Blocks to be read now, oldest first, each to be released; [] when none became due within `timeout_s`."""
        until_s = self._now_s() + timeout_s
        while not (self._blocks and self._now_s() >= self._due_s):
            wake_s = min(until_s, self._due_s) if self._blocks else until_s
            block = self._reader.take(max(0.0, wake_s - self._now_s()))
            if block is not None:
                self._add(block)
            elif self._now_s() >= until_s:
                return []
        blocks, self._blocks = self._blocks, []
        return blocks

    def _add(self, block: DeviceBlock) -> None:
        while self._blocks and not self._blocks[0].is_there:  # its writer died, and this is a successor's
            self._blocks.pop(0).forget()
        if not self._blocks:
            self._due_s = self._now_s() + self._late_s
        self._blocks.append(block)
        first_row = 0 in names_in(block.notes)[:, 1]
        if first_row or len(self._blocks) == self._most:
            self._due_s = self._now_s()
