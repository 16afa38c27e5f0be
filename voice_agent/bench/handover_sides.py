"""The two processes of `bench handover`: one makes a block a step, the other runs a kernel over it.

Ways: `queue` pickles through a multiprocessing.Queue; `memory` goes through the pool's host slots; `ipc` through device
memory. `-spin` means that the reader looks without pause instead of sleeping. Without a device the block is a numpy
array and the kernel a copy. The bench checks the values it gets, outside what it times.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from voice_agent.engine.cuda_driver import LibCuda
from voice_agent.engine.cuda_ipc import DeviceReader, DeviceWriter
from voice_agent.engine.shared_memory import SharedMemoryPool

WIDTH = 3584
BF16_BYTES = 2
MOST_ROWS = 64
WAIT_S = 60.0
CHECK_EVERY = 16
NO_DEVICE = -1


@dataclass(frozen=True)
class Job:
    """What one pair of processes does; `devices` are the writer's and the reader's, NO_DEVICE for host arrays."""

    way: str
    devices: tuple[int, int]
    address: str
    rows: tuple[int, ...]
    steps: int
    warm_steps: int
    period_s: float

    @property
    def spins(self) -> bool:
        """Whether the reader looks without pause."""
        return self.way.endswith("-spin")

    @property
    def kind(self) -> str:
        """The way without how the reader waits."""
        return self.way.removesuffix("-spin")


@dataclass
class Stamps:
    """Instants by step, and what it took of the CPU per step, of one side for one number of rows."""

    first_ns: list[int] = field(default_factory=list[int])  # writer: rows are ready; reader: block is in hand
    second_ns: list[int] = field(default_factory=list[int])  # writer: event recorded; reader: kernel is done
    cpu_us: float = 0.0


def value_of(step: int) -> int:
    """What every number of a step's block is: exact in bf16."""
    return 1 + step % 120


def write_side(job: Job, queue: Any, gate: Any, results: Any) -> None:
    """Child: send a block each period, for each number of rows."""
    prepare, send = _writer(job, queue)
    for rows in job.rows:
        gate.wait(WAIT_S)
        results.put(("writer", rows, _write(job, rows, prepare, send)))
    gate.wait(WAIT_S)


def read_side(job: Job, queue: Any, gate: Any, results: Any) -> None:
    """Child: take each block, run the kernel, see it done."""
    take, value = _reader(job, queue)
    for rows in job.rows:
        gate.wait(WAIT_S)
        results.put(("reader", rows, _read(job, take, value)))
    gate.wait(WAIT_S)


def _write(job: Job, rows: int, prepare: Callable[[int], None], send: Callable[[int, int], int]) -> Stamps:
    stamps, cpu_ns = Stamps(), 0
    gc.disable()
    due_s = time.monotonic()
    for step in range(job.warm_steps + job.steps):
        due_s = max(due_s + job.period_s, time.monotonic())
        if step == job.warm_steps:
            cpu_ns = time.process_time_ns()
        prepare(step)
        time.sleep(max(0.0, due_s - time.monotonic()))
        ready_ns = time.monotonic_ns()
        stamps.second_ns.append(send(step, rows))
        stamps.first_ns.append(ready_ns)
    stamps.cpu_us = (time.process_time_ns() - cpu_ns) / 1000 / job.steps
    gc.enable()
    return stamps


def _read(job: Job, take: Callable[[], int], value: Callable[[], float]) -> Stamps:
    stamps, cpu_ns = Stamps(), 0
    gc.disable()
    for step in range(job.warm_steps + job.steps):
        if step == job.warm_steps:
            cpu_ns = time.process_time_ns()
        stamps.first_ns.append(take())
        stamps.second_ns.append(time.monotonic_ns())
        if step % CHECK_EVERY == 0 and value() != value_of(step):
            raise AssertionError(f"step {step} holds {value()}, not {value_of(step)}")
    stamps.cpu_us = (time.process_time_ns() - cpu_ns) / 1000 / job.steps
    gc.enable()
    return stamps


# --- writers: prepare(step) fills the rows; send(step, rows) hands them over and gives the instant of the event ---


def _writer(job: Job, queue: Any) -> tuple[Callable[[int], None], Callable[[int, int], int]]:
    if job.devices[0] == NO_DEVICE:
        return _host_writer(job, queue)
    return _device_writer(job, queue)


def _host_writer(job: Job, queue: Any) -> tuple[Callable[[int], None], Callable[[int, int], int]]:
    block = np.zeros((MOST_ROWS, WIDTH), np.uint16)  # bf16 has no numpy type; two bytes are two bytes

    def prepare(step: int) -> None:
        block.fill(value_of(step))

    if job.kind == "queue":

        def put(step: int, rows: int) -> int:
            queue.put((step, block[:rows].copy()))  # its thread pickles later, when the next step is made
            return time.monotonic_ns()

        return prepare, put

    writer = SharedMemoryPool.attach(job.address).writer()

    def send(step: int, rows: int) -> int:
        lease = writer.lease(WAIT_S)
        if lease is None:
            raise TimeoutError("the reader gave no slot back")
        np.frombuffer(lease.buffer, np.uint16, rows * WIDTH)[:] = block[:rows].reshape(-1)
        lease.publish(rows, step)
        return time.monotonic_ns()

    return prepare, send


def _device_writer(job: Job, queue: Any) -> tuple[Callable[[int], None], Callable[[int, int], int]]:
    import torch  # pyright: ignore[reportMissingImports]

    torch.cuda.set_device(job.devices[0])
    block = torch.zeros(MOST_ROWS, WIDTH, dtype=torch.bfloat16, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.set_stream(stream)
    torch.cuda.synchronize()

    def prepare(step: int) -> None:
        block.fill_(value_of(step))
        torch.cuda.synchronize()

    if job.kind == "queue":

        def put(step: int, rows: int) -> int:
            queue.put((step, block[:rows].cpu().view(torch.int16).numpy()))
            return time.monotonic_ns()

        return prepare, put

    pool = SharedMemoryPool.attach(job.address)
    writer = DeviceWriter(pool, LibCuda(job.devices[0]), "device" if job.kind == "ipc" else "host")
    source, handle = block.data_ptr(), stream.cuda_stream

    def send(step: int, rows: int) -> int:
        ref = writer.send(source, rows, handle, step, WAIT_S)
        if ref is None:
            raise TimeoutError("the reader gave no slot back")
        return ref.stamp_ns

    return prepare, send


# --- readers: take() gets a block, runs the kernel, sees it done, and gives the instant the block was in hand -----


def _reader(job: Job, queue: Any) -> tuple[Callable[[], int], Callable[[], float]]:
    if job.devices[1] == NO_DEVICE:
        return _host_reader(job, queue)
    return _device_reader(job, queue)


def _host_reader(job: Job, queue: Any) -> tuple[Callable[[], int], Callable[[], float]]:
    target = np.zeros((MOST_ROWS, WIDTH), np.uint16)

    def value() -> float:
        return float(target[0, 0])

    if job.kind == "queue":

        def get() -> int:
            _, block = queue.get(timeout=WAIT_S)
            taken_ns = time.monotonic_ns()
            target[: len(block)] = block
            return taken_ns

        return get, value

    reader = SharedMemoryPool.attach(job.address).reader()
    spin_s = WAIT_S if job.spins else 0.0

    def take() -> int:
        lease = reader.take(WAIT_S, spin_s)
        if lease is None:
            raise TimeoutError("nothing came")
        taken_ns = time.monotonic_ns()
        target.reshape(-1)[: lease.ref.rows * WIDTH] = np.frombuffer(lease.buffer, np.uint16)
        lease.release()
        return taken_ns

    return take, value


def _device_reader(job: Job, queue: Any) -> tuple[Callable[[], int], Callable[[], float]]:
    import torch  # pyright: ignore[reportMissingImports]

    torch.cuda.set_device(job.devices[1])
    target = torch.zeros(MOST_ROWS, WIDTH, dtype=torch.bfloat16, device="cuda")
    result = torch.zeros_like(target)
    stream = torch.cuda.Stream()
    torch.cuda.set_stream(stream)
    torch.mul(target, 1, out=result)  # loads the kernel
    torch.cuda.synchronize()

    def value() -> float:
        return float(result[0, 0].item())

    if job.kind == "queue":
        done = torch.cuda.Event()

        def get() -> int:
            _, block = queue.get(timeout=WAIT_S)
            taken_ns = time.monotonic_ns()
            rows = len(block)
            target[:rows].copy_(torch.from_numpy(block).view(torch.bfloat16), non_blocking=True)
            torch.mul(target[:rows], 1, out=result[:rows])
            done.record(stream)
            while not done.query():
                pass
            return taken_ns

        return get, value

    reader = DeviceReader(SharedMemoryPool.attach(job.address), LibCuda(job.devices[1]))
    pointer, handle = target.data_ptr(), stream.cuda_stream
    parts = {rows: (target[:rows], result[:rows]) for rows in job.rows}
    spin_s = WAIT_S if job.spins else 0.0

    def take() -> int:
        block = reader.take(WAIT_S, spin_s)
        if block is None:
            raise TimeoutError("nothing came")
        taken_ns = time.monotonic_ns()
        block.copy_to(pointer, handle)
        rows_in, rows_out = parts[block.ref.rows]
        torch.mul(rows_in, 1, out=rows_out)
        block.release(handle)
        while reader.reclaim():  # only to know when the kernel is done: in service, `take` looks
            pass
        return taken_ns

    return take, value
