"""Reads hidden rows as a Talker's process would: `python -m voice_agent.bench.thinker_reader ADDRESS WAY`.

Takes every block, copies it to memory of its own and gives the slot back, until standard input ends; then prints how
many rows and blocks there were, in how many readings. The way is `device` (needs a GPU, the first one), which reads
several steps at once as RowStore does, `steps`, which reads each as it comes, `host`, or `nobody`, which gives the
slots back unread: what the writer alone costs, without another process on the GPU.
"""

import json
import os
import select
import sys
from collections.abc import Callable, Sequence

from voice_agent.engine.cuda_ipc import DeviceReader
from voice_agent.engine.row_pile import LATE_S, RowPile
from voice_agent.engine.shared_memory import SharedMemoryPool

HOST_WAYS = ("host", "nobody")
_LOOK_EVERY_S = 0.2  # whether standard input has ended


def main(arguments: Sequence[str]) -> int:
    """Read until told to stop."""
    address, via = arguments
    pool = SharedMemoryPool.attach(address)
    late_s = LATE_S if via == "device" else 0.0
    take = _from_host(pool, reads=via == "host") if via in HOST_WAYS else _from_device(pool, late_s)
    blocks = rows = readings = 0
    while True:
        if found := take():
            blocks, rows, readings = blocks + found[0], rows + found[1], readings + 1
        elif select.select([0], [], [], 0)[0] and not os.read(0, 1):
            print(json.dumps({"rows": rows, "blocks": blocks, "readings": readings}), flush=True)
            return 0


def _from_device(pool: SharedMemoryPool, late_s: float) -> Callable[[], tuple[int, int] | None]:
    from voice_agent.engine.cuda_driver import LibCuda

    cuda = LibCuda(0)
    pile, memory, stream = RowPile(DeviceReader(pool, cuda), late_s), cuda.allocate(pool.shape.slot_bytes), 0

    def take() -> tuple[int, int] | None:
        blocks = pile.take(_LOOK_EVERY_S)
        for block in blocks:
            block.copy_to(memory, stream)
            block.release(stream)
        return (len(blocks), sum(block.ref.rows for block in blocks)) if blocks else None

    return take


def _from_host(pool: SharedMemoryPool, *, reads: bool) -> Callable[[], tuple[int, int] | None]:
    reader, memory = pool.reader(), bytearray(pool.shape.slot_bytes)

    def take() -> tuple[int, int] | None:
        lease = reader.take(_LOOK_EVERY_S)
        if lease is None:
            return None
        if reads:
            memory[: len(lease.buffer)] = lease.buffer
        lease.release()
        return 1, lease.ref.rows

    return take


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
