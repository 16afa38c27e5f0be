"""A vLLM worker that takes all the memory there is when it is told to: for `bench thinker --crash`, inside vLLM.

Its allocations are real ones, and what fails afterwards fails as in any process that has run out.
"""
# pyright: reportMissingImports=false

import threading
from collections.abc import Callable
from typing import Any

import torch

from voice_agent.models import vllm_versions

PIECE_BYTES = 64 << 20
LEAST_PIECE_BYTES = 512  # the least that torch's allocator gives
LEAST_HOST_PIECE_BYTES = 16 << 10  # a step's tensors are larger; what an error needs to be told of is smaller

_Base: Any = vllm_versions.worker_base()


class HoardingWorker(_Base):
    """See above; named to vLLM by `worker_cls`."""

    def hoard(self, memory: str) -> int:
        """Take all of the "gpu"'s memory, or of the host's that a "limit" leaves, or begin to take the "host"'s.

        Gives the bytes so far.
        """
        self.hoarded = list[Any]()
        if memory == "gpu":
            return _all(self.hoarded, _on_the_gpu, LEAST_PIECE_BYTES)
        if memory == "limit":
            return _all(self.hoarded, bytearray, LEAST_HOST_PIECE_BYTES)
        threading.Thread(target=_all_of_the_host, args=(self.hoarded,), daemon=True).start()
        return 0


def _all(hoarded: list[Any], piece: Callable[[int], Any], least: int) -> int:
    """From large pieces to small ones, so that nothing that an allocator still keeps for itself is left either."""
    size, taken = 1 << 30, 0
    while size >= least:
        try:
            hoarded.append(piece(size))
            taken += size
        except (RuntimeError, MemoryError):  # torch.OutOfMemoryError is a RuntimeError
            size //= 2
    return taken


def _on_the_gpu(size: int) -> Any:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def _all_of_the_host(hoarded: list[Any]) -> None:
    while True:
        hoarded.append(b"\1" * PIECE_BYTES)  # written to, so that the kernel must find the pages
