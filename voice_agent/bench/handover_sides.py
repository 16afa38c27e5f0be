"""The two processes of `bench handover`: one makes a block a step, the other runs a kernel over it.

Ways: `queue` pickles through a multiprocessing.Queue; `memory` goes through the pool's host slots; `ipc` through device
memory. `-spin` means that the reader looks without pause instead of sleeping. Without a device the block is a numpy
array and the kernel a copy; with one see `handover_device`. The values that arrive are checked, outside what is timed.
"""

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from voice_agent.bench.handover_device import DeviceSide, device_reader, device_times, device_writer
from voice_agent.bench.handover_job import MOST_ROWS, NO_DEVICE, WAIT_S, WIDTH, Job, Stamps, value_of
from voice_agent.engine.shared_memory import SharedMemoryPool

CHECK_EVERY = 16


def write_side(job: Job, queue: Any, gate: Any, results: Any) -> None:
    """Child: send a block each period, for each number of rows."""
    prepare, send, side = _writer(job, queue)
    for rows in job.rows:
        gate.wait(WAIT_S)
        stamps = _write(job, rows, prepare, send)
        gate.wait(WAIT_S)  # the reader has seen it all
        stamps.device_ns = _device_times(side)
        results.put(("writer", rows, stamps))
    gate.wait(WAIT_S)


def read_side(job: Job, queue: Any, gate: Any, results: Any) -> None:
    """Child: take each block, run the kernel, see it done."""
    take, value, side = _reader(job, queue)
    for rows in job.rows:
        gate.wait(WAIT_S)
        stamps = _read(job, take, value)
        gate.wait(WAIT_S)
        stamps.device_ns = _device_times(side)
        results.put(("reader", rows, stamps))
    gate.wait(WAIT_S)


def _device_times(side: DeviceSide | None) -> list[int]:
    return device_times(side.stamps(), value_of) if side else []


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


def _read(job: Job, take: Callable[[], int], value: Callable[[], float] | None) -> Stamps:
    stamps, cpu_ns = Stamps(), 0
    gc.disable()
    for step in range(job.warm_steps + job.steps):
        if step == job.warm_steps:
            cpu_ns = time.process_time_ns()
        stamps.first_ns.append(take())
        stamps.second_ns.append(time.monotonic_ns())
        if value and step % CHECK_EVERY == 0 and value() != value_of(step):
            raise AssertionError(f"step {step} holds {value()}, not {value_of(step)}")
    stamps.cpu_us = (time.process_time_ns() - cpu_ns) / 1000 / job.steps
    gc.enable()
    return stamps


# --- writers: prepare(step) fills the rows; send(step, rows) hands them over and gives the instant of the event ---


def _writer(
    job: Job, queue: Any
) -> tuple[Callable[[int], None], Callable[[int, int], int], DeviceSide | None]:
    if job.devices[0] == NO_DEVICE:
        return *_host_writer(job, queue), None
    return device_writer(job, queue)


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


# --- readers: take() gets a block, runs the kernel, sees it done, and gives the instant the block was in hand -----


def _reader(job: Job, queue: Any) -> tuple[Callable[[], int], Callable[[], float] | None, DeviceSide | None]:
    if job.devices[1] == NO_DEVICE:
        return *_host_reader(job, queue), None
    take, side = device_reader(job, queue)
    return take, None, side


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
