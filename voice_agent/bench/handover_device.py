"""The two sides of `bench handover` on GPUs: what they put on their streams, and when the device came to it.

Each way hands the same rows over and ends in the same small kernel, which reads them and writes down the device's time;
the writer has the same kernel right before its event. Neither side waits for the device while steps are measured,
except where the way is to (the pickled queue). `ipc-ahead` queues the reader's kernel before the rows are made: its
stream waits for a word in device memory that the writer's stream stores to, so no host is in between.
"""
# pyright: reportMissingImports=false

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voice_agent.bench.handover_job import BF16_BYTES, MOST_ROWS, WAIT_S, WIDTH, Job, value_of
from voice_agent.bench.stamp_kernel import StampKernel, wait_until_written, write_when_reached
from voice_agent.engine.cuda_driver import LibCuda
from voice_agent.engine.cuda_ipc import DeviceBlock, DeviceReader, DeviceWriter
from voice_agent.engine.shared_memory import SharedMemoryPool

_WORD_BYTES = 2 << 20  # an allocation of its own for the one word, so that its handle is no other's


@dataclass
class DeviceSide:
    """A process's device, its stream, and the stamps of one run of steps."""

    cuda: LibCuda
    stream: int
    kernel: StampKernel

    @classmethod
    def opened(cls, job: Job, device: int) -> "DeviceSide":
        """On the framework's own context, with a stream of our own."""
        import torch

        torch.cuda.set_device(device)
        stream = torch.cuda.Stream()
        torch.cuda.set_stream(stream)
        cuda = LibCuda(device)
        return cls(cuda, stream.cuda_stream, StampKernel(cuda, job.warm_steps + job.steps))

    def stamps(self) -> NDArray[np.uint64]:
        """Of the run that is through; the next run's kernel may be queued on our own stream already."""
        return self.kernel.read(0)


class _Stamping:
    """The writer's driver, whose every record of an event has the stamp before it (and the word behind it)."""

    def __init__(self, side: DeviceSide, source: int, word: int) -> None:
        self._side = side
        self._source = source
        self._word = word
        self._sent = itertools.count(1)
        self._steps = itertools.count()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._side.cuda, name)

    def record(self, event: int, stream: int) -> None:
        """See Driver."""
        self._side.kernel.launch(next(self._steps), self._source, stream)
        self._side.cuda.record(event, stream)
        if self._word:
            write_when_reached(self._side.cuda, stream, self._word, next(self._sent))


def device_writer(
    job: Job, queue: Any
) -> tuple[Callable[[int], None], Callable[[int, int], int], DeviceSide]:
    """`prepare` fills the rows, `send` hands them over and gives the instant of the event on the host's clock."""
    import torch

    side = DeviceSide.opened(job, job.devices[0])
    block = torch.zeros(MOST_ROWS, WIDTH, dtype=torch.bfloat16, device="cuda")
    torch.cuda.synchronize()

    def prepare(step: int) -> None:
        block.fill_(value_of(step))
        torch.cuda.synchronize()

    if job.kind == "queue":

        def put(step: int, rows: int) -> int:
            side.kernel.launch(step, block.data_ptr(), side.stream)
            queue.put((step, block[:rows].cpu().view(torch.int16).numpy()))
            return time.monotonic_ns()

        return prepare, put, side

    word = 0
    if job.kind == "ipc-ahead":
        word = side.cuda.allocate(_WORD_BYTES)
        write_when_reached(side.cuda, side.stream, word, 0)
        torch.cuda.synchronize()
        queue.put(side.cuda.export_memory(word))
    driver: Any = _Stamping(side, block.data_ptr(), word)
    via = "host" if job.kind == "memory" else "device"
    writer = DeviceWriter(SharedMemoryPool.attach(job.address), driver, via)

    def send(step: int, rows: int) -> int:
        ref = writer.send(block.data_ptr(), rows, side.stream, step, WAIT_S)
        if ref is None:
            raise TimeoutError("the reader gave no slot back")
        return ref.stamp_ns

    return prepare, send, side


def device_reader(job: Job, queue: Any) -> tuple[Callable[[], int], DeviceSide]:
    """`take` gets a block, runs the kernel, sees it done, and gives the instant at which the block was in hand."""
    side = DeviceSide.opened(job, job.devices[1])
    if job.kind == "queue":
        return _from_queue(side, queue), side
    reader = DeviceReader(SharedMemoryPool.attach(job.address), side.cuda)
    if job.kind == "ipc-ahead":
        return _ahead(side, reader, side.cuda.open_memory(queue.get(timeout=WAIT_S)), job), side
    target, steps = side.cuda.allocate(MOST_ROWS * WIDTH * BF16_BYTES), itertools.count()

    def take() -> int:
        block = _next(reader, job)
        taken_ns = time.monotonic_ns()
        source = target
        if job.kind == "memory" or job.devices[0] != job.devices[1]:  # a model reads its rows where it runs
            block.copy_to(target, side.stream)
        else:
            source = block.read_on(side.stream)
        side.kernel.launch(next(steps), source, side.stream)
        _end(block, reader, side)
        return taken_ns

    return take, side


def _from_queue(side: DeviceSide, queue: Any) -> Callable[[], int]:
    import torch

    target = torch.zeros(MOST_ROWS, WIDTH, dtype=torch.bfloat16, device="cuda")
    done, steps = torch.cuda.Event(), itertools.count()

    def get() -> int:
        _, block = queue.get(timeout=WAIT_S)
        taken_ns = time.monotonic_ns()
        target[: len(block)].copy_(torch.from_numpy(block).view(torch.bfloat16), non_blocking=True)
        side.kernel.launch(next(steps), target.data_ptr(), side.stream)
        done.record()
        while not done.query():
            pass
        return taken_ns

    return get


def _ahead(side: DeviceSide, reader: DeviceReader, word: int, job: Job) -> Callable[[], int]:
    """Each call finds its kernel queued already, and queues the next one's before it returns.

    Where the next block will lie is known, since the writer takes its slots in turn and each is given back in time.
    """
    last = len(job.rows) * (job.warm_steps + job.steps)
    steps = itertools.count(1)
    first: list[int] = []  # the address of slot 0, once a block has been seen

    def queue_for(step: int) -> None:
        slot = step % reader.shape.slots
        wait_until_written(side.cuda, side.stream, word, step + 1)
        side.kernel.launch(step, first[0] + slot * reader.shape.slot_bytes, side.stream)

    def take() -> int:
        block = _next(reader, job)
        taken_ns = time.monotonic_ns()
        if not first:
            first.append(block.read_on(side.stream) - block.ref.slot * reader.shape.slot_bytes)
            queue_for(0)
        _end(block, reader, side)
        if (step := next(steps)) < last:
            queue_for(step)
        return taken_ns

    return take


def _next(reader: DeviceReader, job: Job) -> DeviceBlock:
    block = reader.take(WAIT_S, WAIT_S if job.spins else 0.0)
    if block is None:
        raise TimeoutError("nothing came")
    return block


def _end(block: DeviceBlock, reader: DeviceReader, side: DeviceSide) -> None:
    block.release(side.stream)
    while reader.reclaim():  # only to know when the kernel is done: in service, `take` looks
        pass


def device_times(stamps: NDArray[np.uint64], rows_of: Callable[[int], int]) -> list[int]:
    """The instants of a run's kernels on the device's clock; AssertionError if one saw other rows than its step's."""
    for step, seen in enumerate(stamps[:, 1].tolist()):
        expected = int(np.float32(rows_of(step)).view(np.uint32) >> 16) * 0x1_0001_0001_0001  # four bfloat16
        if seen != expected:
            raise AssertionError(f"step {step} saw {seen:x}, not {expected:x}")
    return stamps[:, 0].tolist()
