"""Reads hidden rows as a Talker's process would: `python -m voice_agent.bench.thinker_reader ADDRESS WAY`.

Takes every block, copies it to memory of its own and gives the slot back, until standard input ends; then prints how
many rows and blocks there were. The way is `device` (needs a GPU, the first one), `host`, or `nobody`, which gives the
slots back unread: what the writer alone costs, without another process on the GPU.
"""

import json
import os
import select
import sys
from collections.abc import Callable, Sequence

from voice_agent.engine.shared_memory import SharedMemoryPool

_LOOK_EVERY_S = 0.2  # whether standard input has ended


def main(arguments: Sequence[str]) -> int:
    """Read until told to stop."""
    address, via = arguments
    pool = SharedMemoryPool.attach(address)
    take = _from_device(pool) if via == "device" else _from_host(pool, reads=via == "host")
    blocks = rows = 0
    while True:
        taken = take()
        blocks, rows = blocks + bool(taken), rows + taken
        if not taken and select.select([0], [], [], 0)[0] and not os.read(0, 1):
            print(json.dumps({"rows": rows, "blocks": blocks}), flush=True)
            return 0


def _from_device(pool: SharedMemoryPool) -> Callable[[], int]:
    from voice_agent.engine.cuda_driver import LibCuda
    from voice_agent.engine.cuda_ipc import DeviceReader

    cuda = LibCuda(0)
    reader, memory, stream = DeviceReader(pool, cuda), cuda.allocate(pool.shape.slot_bytes), 0

    def take() -> int:
        block = reader.take(_LOOK_EVERY_S)
        if block is None:
            return 0
        block.copy_to(memory, stream)
        block.release(stream)
        return block.ref.rows

    return take


def _from_host(pool: SharedMemoryPool, *, reads: bool) -> Callable[[], int]:
    reader, memory = pool.reader(), bytearray(pool.shape.slot_bytes)

    def take() -> int:
        lease = reader.take(_LOOK_EVERY_S)
        if lease is None:
            return 0
        if reads:
            memory[: len(lease.buffer)] = lease.buffer
        lease.release()
        return lease.ref.rows

    return take


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
