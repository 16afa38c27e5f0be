"""Where vLLM's worker leaves hidden rows: blocks of a pool, in host memory or in the device's.

A step's rows fill as many blocks as they need. When the reader has given none back the step waits, and with it every
reply: that is the pool's back-pressure. Nothing is dropped; a reader that takes nothing for WAIT_S ends the engine,
which is better than an engine that stands still for ever. Runs in vLLM's worker, on its thread.
"""
# pyright: reportMissingImports=false, reportUnknownParameterType=false

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from voice_agent.engine.shared_memory import SharedMemoryPool
from voice_agent.errors import SharedMemoryError
from voice_agent.models.vllm_rows import NAME_BYTES, HiddenRows

WAIT_S = 10.0


class RowSink(Protocol):
    """Takes a step's rows."""

    def write(self, rows: torch.Tensor, picked: NDArray[np.int64]) -> None:
        """Publish rows [T, W] that `picked` (see picked_rows) names. Raises SharedMemoryError."""
        ...


def sink_for(plan: HiddenRows, rows: torch.Tensor) -> RowSink:
    """The sink for the plan; `rows` shows a row's width, type and device. Raises SharedMemoryError."""
    pool = SharedMemoryPool.attach(plan.pool)
    needed = rows.shape[1] * rows.element_size() + NAME_BYTES
    if pool.shape.row_bytes != needed:
        raise SharedMemoryError(f"the pool's rows have {pool.shape.row_bytes} bytes, this model's {needed}")
    return DeviceSink(pool, plan, rows) if rows.is_cuda else HostSink(pool)


class HostSink:
    """Rows that are in host memory already."""

    def __init__(self, pool: SharedMemoryPool) -> None:
        self._shape = pool.shape
        self._writer = pool.writer()
        self._steps = 0

    def write(self, rows: torch.Tensor, picked: NDArray[np.int64]) -> None:
        """See RowSink."""
        self._steps += 1
        values = rows.view(torch.uint8).numpy()  # [T, W * value size]
        for part in _parts(picked, self._shape.rows):
            lease = self._writer.lease(WAIT_S)
            if lease is None:
                raise _unread()
            size = len(part) * self._shape.row_bytes
            target = np.frombuffer(lease.buffer[:size], np.uint8).reshape(len(part), -1)
            target[:, :-NAME_BYTES] = values[part[:, 0]]
            target[:, -NAME_BYTES:] = np.ascontiguousarray(part[:, 1:]).view(np.uint8)
            del target
            lease.publish(len(part), self._steps)


class DeviceSink:
    """Rows on the device: gathered there, named there, copied in the order of the worker's own stream."""

    def __init__(self, pool: SharedMemoryPool, plan: HiddenRows, rows: torch.Tensor) -> None:
        from voice_agent.engine.cuda_driver import LibCuda
        from voice_agent.engine.cuda_ipc import DeviceWriter

        via: Any = plan.via
        self._shape = pool.shape
        self._writer = DeviceWriter(pool, LibCuda(rows.device.index or 0), via)
        words = pool.shape.row_bytes // 8
        self._block = torch.zeros(pool.shape.rows, words, dtype=torch.int64, device=rows.device)
        self._steps = 0

    def write(self, rows: torch.Tensor, picked: NDArray[np.int64]) -> None:
        """See RowSink."""
        self._steps += 1
        values, stream = rows.view(torch.int64), torch.cuda.current_stream().cuda_stream
        for part in _parts(picked, self._shape.rows):
            told = torch.from_numpy(part).to(rows.device, non_blocking=True)
            block = self._block[: len(part)]
            block[:, :-2] = values[told[:, 0]]
            block[:, -2:] = told[:, 1:]
            if self._writer.send(block.data_ptr(), len(part), stream, self._steps, WAIT_S) is None:
                raise _unread()


def _parts(picked: NDArray[np.int64], most: int) -> list[NDArray[np.int64]]:
    return [picked[at : at + most] for at in range(0, len(picked), most)]


def _unread() -> SharedMemoryError:
    return SharedMemoryError(f"nobody has read a hidden row for {WAIT_S:g} s")
