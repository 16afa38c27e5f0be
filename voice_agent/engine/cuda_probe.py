"""Whether two processes can share device memory here: tried once with two of them, not guessed from versions.

`why_not` is for the server's side and loads nothing; its two children load the driver only. Containers without a common
IPC namespace, MIG slices and some virtual GPUs refuse; then the host path stands in.
"""

import ctypes
import subprocess
import sys
import time
from collections.abc import Sequence

from voice_agent.engine.cuda_driver import LibCuda
from voice_agent.engine.cuda_ipc import DeviceReader, DeviceWriter, device_pool
from voice_agent.engine.shared_memory import SharedMemoryPool
from voice_agent.engine.slots import Shape
from voice_agent.errors import SharedMemoryError

_SHAPE = Shape(slots=2, rows=1, row_bytes=4096)
_PATTERN = bytes(range(256)) * 16
_BLOCKS = 5  # more than slots, so that one must come back


def why_not(writer_device: int, reader_device: int, timeout_s: float = 60.0) -> str:
    """Empty when rows written on one device were read on the other, byte for byte; else the reason. Blocks."""
    pool = device_pool(_SHAPE)
    command = (sys.executable, "-m", "voice_agent.engine.cuda_probe", pool.address)
    sides = [("write", writer_device), ("read", reader_device)]
    started = [
        subprocess.Popen([*command, side, str(device)], stdout=subprocess.PIPE, text=True)
        for side, device in sides
    ]
    until_s = time.monotonic() + timeout_s
    try:
        reasons = [_reason(process, until_s) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
        pool.close()
    return next((f"{side}: {reason}" for (side, _), reason in zip(sides, reasons, strict=True) if reason), "")


def main(arguments: Sequence[str]) -> int:
    """One side's child: prints a reason, or nothing."""
    address, side, device = arguments
    try:
        (_write if side == "write" else _read)(SharedMemoryPool.attach(address), LibCuda(int(device)))
    except SharedMemoryError as error:
        sys.stdout.write(str(error))
        return 1
    return 0


def _reason(process: subprocess.Popen[str], until_s: float) -> str:
    try:
        said, _ = process.communicate(timeout=max(0.0, until_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "no answer in time"
    return said or (f"ended with status {process.returncode}" if process.returncode else "")


def _write(pool: SharedMemoryPool, cuda: LibCuda) -> None:
    writer = DeviceWriter(pool, cuda)
    rows = cuda.allocate(len(_PATTERN))
    host = ctypes.create_string_buffer(_PATTERN, len(_PATTERN))
    cuda.copy(rows, ctypes.addressof(host), len(_PATTERN), 0)
    for tag in range(_BLOCKS):
        if writer.send(rows, 1, 0, tag, timeout_s=20.0) is None:
            raise SharedMemoryError("the reader gave no slot back")
    until_s = time.monotonic() + 20.0
    while pool.table.free() < _SHAPE.slots and time.monotonic() < until_s:
        time.sleep(0.01)
    writer.close()


def _read(pool: SharedMemoryPool, cuda: LibCuda) -> None:
    reader = DeviceReader(pool, cuda)
    rows, done = cuda.allocate(len(_PATTERN)), cuda.new_event(interprocess=False)
    host = ctypes.create_string_buffer(len(_PATTERN))
    for tag in range(_BLOCKS):
        block = reader.take(timeout_s=40.0)
        if block is None:
            raise SharedMemoryError("nothing came")
        block.copy_to(rows, 0)
        cuda.copy(ctypes.addressof(host), rows, len(_PATTERN), 0)
        block.release(0)
        cuda.record(done, 0)
        cuda.synchronize(done)
        if block.ref.tag != tag or host.raw != _PATTERN:
            raise SharedMemoryError("other bytes came than were written")
    reader.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
