"""Work captured into CUDA graphs: warmed on a side stream, recorded, replayed in microseconds of host time.

On a device without graphs the same object runs the work as it is, so that callers need no second path.
"""

from collections.abc import Callable
from typing import Any

import torch

WARM_UPS = 2  # libraries choose their kernels in the first run; the second must allocate nothing new


class Captured:
    """One piece of work with fixed tensors; `replay` launches it on the current stream.

    Graphs that may run at once must be captured on different streams: cuBLAS has a workspace for each stream, and
    keeps using that of the capture.
    """

    def __init__(
        self, work: Callable[[], None], device: torch.device, pool: Any = None, stream: Any = None
    ) -> None:
        self._work = work
        self._graph: torch.cuda.CUDAGraph | None = None
        if device.type == "cuda":
            self._graph = _capture(work, pool, stream or torch.cuda.Stream())

    def replay(self) -> None:
        """Do it once more."""
        if self._graph is None:
            self._work()
        else:
            self._graph.replay()


def _capture(work: Callable[[], None], pool: Any, side: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
        work()
    return graph
