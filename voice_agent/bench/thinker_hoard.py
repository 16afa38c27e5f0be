"""A vLLM worker that takes all the memory there is when it is told to: for `bench thinker --crash`, inside vLLM.

Its allocations are real ones, and what fails afterwards fails as in any process that has run out.
"""
# pyright: reportMissingImports=false

import threading
from typing import Any

import torch

from voice_agent.models import vllm_versions

PIECE_BYTES = 64 << 20
LEAST_PIECE_BYTES = 512  # the least that torch's allocator gives

_Base: Any = vllm_versions.worker_base()


class HoardingWorker(_Base):
    """See above; named to vLLM by `worker_cls`."""

    def hoard(self, memory: str) -> int:
        """Take all of the "gpu"'s memory before it returns, or begin to take the "host"'s; gives the bytes so far."""
        self.hoarded = list[Any]()
        if memory == "gpu":
            return _all_of_the_gpu(self.hoarded)
        threading.Thread(target=_all_of_the_host, args=(self.hoarded,), daemon=True).start()
        return 0


def _all_of_the_gpu(hoarded: list[Any]) -> int:
    """From large pieces to small ones, so that nothing that torch still keeps for itself is left either."""
    size, taken = 1 << 30, 0
    while size >= LEAST_PIECE_BYTES:
        try:
            hoarded.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            taken += size
        except RuntimeError:  # torch.OutOfMemoryError is one
            size //= 2
    return taken


def _all_of_the_host(hoarded: list[Any]) -> None:
    while True:
        hoarded.append(b"\1" * PIECE_BYTES)  # written to, so that the kernel must find the pages
