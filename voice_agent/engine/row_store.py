"""The reading side of a pool of hidden rows for a Talker that thinks on the host: rows kept until they are asked for.

A thread takes every block as it comes, so the Thinker never waits for a slot because a Talker is busy, and keeps its
rows by their names (see models.vllm_rows: a reply's key, and a row's number in that reply). What is kept is bounded:
when it is more than `most_bytes`, the oldest reply's rows are forgotten, whoever did not read them. Device memory is
copied to the host here; a Talker on the GPU has a DeviceReader of its own. Child side only.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from voice_agent.engine.messages import RowsRef
from voice_agent.engine.row_pile import RowPile, names_in
from voice_agent.engine.shared_memory import SharedMemoryPool
from voice_agent.errors import EngineError

LOOK_EVERY_S = 0.1  # whether it was closed
WAIT_S = 1.0  # a row is published before its token is told of: a moment for this thread, no more
MOST_BYTES = 256 << 20

_Block = tuple[NDArray[np.int64], NDArray[np.uint8]]  # names [n, 2], rows [n, row bytes]


class RowsMissing(EngineError):
    """Rows that were told of are not in the pool: their Thinker died, or they waited too long."""

    code = "rows_missing"


class RowStore:
    """One pool's reader. `read` from any thread."""

    def __init__(self, address: str, via: Literal["host", "device"], most_bytes: int = MOST_BYTES) -> None:
        """Claim the reader's side; raises SharedMemoryError."""
        self._pool = SharedMemoryPool.attach(address)
        self._most_bytes = most_bytes
        self._replies: OrderedDict[int, dict[int, NDArray[np.uint8]]] = OrderedDict()
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()
        take = _from_device(self._pool) if via == "device" else _from_host(self._pool)
        self._thread = threading.Thread(target=self._run, args=(take,), name="hidden rows", daemon=True)
        self._thread.start()

    def read(self, rows: RowsRef) -> NDArray[np.uint8]:
        """The rows, [n, row bytes], which the store forgets; raises RowsMissing."""
        numbers = range(rows.first_row, rows.end_row)
        until_s = time.monotonic() + WAIT_S
        with self._changed:
            while not (held := self._replies.get(rows.key, {})).keys() >= set(numbers):
                left_s = until_s - time.monotonic()
                if left_s <= 0 or self._closed:
                    raise RowsMissing(f"hidden rows {rows.first_row} to {rows.end_row} of a reply never came")
                self._changed.wait(left_s)
            found = np.stack([held.pop(number) for number in numbers])
            self._bytes -= found.nbytes
            if not held:
                del self._replies[rows.key]
        return found

    def close(self) -> None:
        """Leave the reader's side; whoever waits raises. May be called again."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._pool.close()

    def _run(self, take: Callable[[], list[_Block]]) -> None:
        while not self._closed:
            for block in take():
                self._keep(*block)

    def _keep(self, names: NDArray[np.int64], rows: NDArray[np.uint8]) -> None:
        with self._changed:
            for (key, number), row in zip(names.tolist(), rows, strict=True):
                self._replies.setdefault(key, {})[number] = row
            self._bytes += rows.nbytes
            while self._bytes > self._most_bytes and len(self._replies) > 1:
                _, forgotten = self._replies.popitem(last=False)
                self._bytes -= sum(row.nbytes for row in forgotten.values())
            self._changed.notify_all()


def _from_host(pool: SharedMemoryPool) -> Callable[[], list[_Block]]:
    reader = pool.reader()

    def take() -> list[_Block]:
        lease = reader.take(LOOK_EVERY_S)
        if lease is None:
            return []
        rows = np.frombuffer(bytes(lease.buffer), np.uint8).reshape(lease.ref.rows, -1)
        block = names_in(lease.notes).copy(), rows
        lease.release()
        return [block]

    return take


def _from_device(pool: SharedMemoryPool) -> Callable[[], list[_Block]]:
    from voice_agent.engine.cuda_driver import LibCuda
    from voice_agent.engine.cuda_ipc import DeviceReader

    cuda = LibCuda(0)
    pile, done, stream = RowPile(DeviceReader(pool, cuda)), cuda.new_event(interprocess=False), 0

    def take() -> list[_Block]:
        cuda.enter()  # the device is a thread's own
        blocks = pile.take(LOOK_EVERY_S)
        found = [
            (names_in(each.notes).copy(), np.empty((each.ref.rows, pool.shape.row_bytes), np.uint8))
            for each in blocks
        ]
        for block, (_, rows) in zip(blocks, found, strict=True):
            block.copy_to(rows.ctypes.data, stream)
            block.release(stream)
        if found:
            cuda.record(done, stream)
            cuda.synchronize(done)
        return found

    return take
