"""Where vLLM's worker leaves hidden rows: blocks of a pool, in host memory or in the device's.

A step's rows fill as many blocks as they need. When the reader has given none back the step waits, and with it every
reply: that is the pool's back-pressure. Nothing is dropped; a reader that takes nothing for WAIT_S ends the engine,
which is better than an engine that stands still for ever. Runs in vLLM's worker, on its thread, between two steps: the
thread never waits for the device here, and what it does for a step of 64 replies is one copy, one event and one wake.
"""
# pyright: reportMissingImports=false, reportUnknownParameterType=false

from collections.abc import Generator
from typing import Any, Protocol

import numpy as np
import torch

from voice_agent.engine.shared_memory import SharedMemoryPool
from voice_agent.errors import SharedMemoryError
from voice_agent.models.vllm_rows import HiddenRows, Picked

WAIT_S = 10.0


class RowSink(Protocol):
    """Takes a step's rows."""

    def write(self, rows: torch.Tensor, picked: Picked) -> None:
        """Publish rows [T, W] that `picked` names. Raises SharedMemoryError."""
        ...


def sink_for(plan: HiddenRows, rows: torch.Tensor) -> RowSink:
    """The sink for the plan; `rows` shows a row's width, type and device. Raises SharedMemoryError."""
    pool = SharedMemoryPool.attach(plan.pool)
    needed = rows.shape[1] * rows.element_size()
    if pool.shape.row_bytes != needed:
        raise SharedMemoryError(f"the pool's rows have {pool.shape.row_bytes} bytes, this model's {needed}")
    return DeviceSink(pool, plan, rows) if rows.is_cuda else HostSink(pool)


class HostSink:
    """Rows that are in host memory already."""

    def __init__(self, pool: SharedMemoryPool) -> None:
        self._shape = pool.shape
        self._writer = pool.writer()
        self._steps = 0

    def write(self, rows: torch.Tensor, picked: Picked) -> None:
        """See RowSink."""
        self._steps += 1
        values = rows.view(torch.uint8).numpy()  # [T, bytes of a row]
        for part in _parts(picked, self._shape.rows):
            lease = self._writer.lease(WAIT_S)
            if lease is None:
                raise _unread()
            count, notes = len(part.indices), part.notes()
            target = np.frombuffer(lease.buffer[: count * self._shape.row_bytes], np.uint8)
            target.reshape(count, -1)[:] = values[part.indices]
            del target
            lease.notes[: len(notes)] = notes
            lease.publish(count, self._steps)


class DeviceSink:
    """Rows on the device, copied in the order of the worker's own stream: the next step cannot overtake the copy."""

    def __init__(self, pool: SharedMemoryPool, plan: HiddenRows, rows: torch.Tensor) -> None:
        from voice_agent.engine.cuda_driver import LibCuda
        from voice_agent.engine.cuda_ipc import DeviceWriter

        via: Any = plan.via
        self._shape = pool.shape
        self._writer = DeviceWriter(pool, LibCuda(rows.device.index or 0), via)
        self._block = torch.zeros(pool.shape.rows, rows.shape[1], dtype=rows.dtype, device=rows.device)
        self._steps = 0

    def write(self, rows: torch.Tensor, picked: Picked) -> None:
        """See RowSink."""
        self._steps += 1
        stream = torch.cuda.current_stream().cuda_stream
        for part in _parts(picked, self._shape.rows):
            source, count = self._source(rows, part.indices), len(part.indices)
            if self._writer.send(source, count, stream, self._steps, WAIT_S, part.notes()) is None:
                raise _unread()

    def _source(self, rows: torch.Tensor, indices: list[int]) -> int:
        """Where these rows lie together: in place if they do already, as when everybody decodes, else gathered."""
        count = len(indices)
        if indices[-1] - indices[0] == count - 1:  # they rise
            return rows.data_ptr() + indices[0] * self._shape.row_bytes
        # locked memory, or the copy could wait for the whole forward
        told = torch.tensor(indices, dtype=torch.int64, pin_memory=True).to(rows.device, non_blocking=True)
        torch.index_select(rows, 0, told, out=self._block[:count])
        return self._block.data_ptr()


def _parts(picked: Picked, most: int) -> Generator[Picked]:
    for first in range(0, len(picked.indices), most):
        yield picked.part(first, most)


def _unread() -> SharedMemoryError:
    return SharedMemoryError(f"nobody has read a hidden row for {WAIT_S:g} s")
