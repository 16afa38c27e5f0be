"""vLLM's worker with one thing more: after each step's forward the wanted rows go from its buffer into the pool.

The copy is queued on the step's own stream before its tokens are sampled, so whoever has seen a token may read its row.
Which requests want rows, and where, stands in their sampling parameters (vllm_rows). Only the first of several
tensor-parallel ranks writes: all have the same rows.
"""
# pyright: reportMissingImports=false

from typing import Any

import torch

from voice_agent.models import vllm_versions
from voice_agent.models.vllm_rows import HiddenRows, destinations, wanted_rows

_Base: Any = vllm_versions.worker_base()


class RowsWorker(_Base):
    """See above; named to vLLM by `worker_cls`."""

    def load_model(self, *arguments: Any, **more: Any) -> None:
        """Load, then allocate the pool, so that vLLM's memory profile counts it."""
        super().load_model(*arguments, **more)
        step = self._step = self.model_runner.get_model().step_rows
        plan: HiddenRows = step.plan
        self._plan = plan
        self._wanted: dict[str, tuple[int, int]] = {}
        self._spill = plan.slots * plan.rows_per_slot  # a row that nobody reads: for tokens nobody asked for
        self._pool = torch.zeros(
            self._spill + 1, step.rows.shape[1], dtype=step.rows.dtype, device=step.rows.device
        )

    def execute_model(self, scheduler_output: Any) -> Any:
        """A step, and its rows."""
        for name in scheduler_output.finished_req_ids:
            self._wanted.pop(name, None)
        for request in scheduler_output.scheduled_new_reqs:
            found = wanted_rows(self._plan, getattr(request.sampling_params, "extra_args", None))
            if found:
                self._wanted[request.req_id] = found
        output = super().execute_model(scheduler_output)
        if self._wanted and self.rank == 0:
            self._move_rows(scheduler_output)
        return output

    def read_rows(self, slot: int, first_row: int, end_row: int) -> list[list[float]]:
        """Rows of a slot as plain numbers, for `collective_rpc`: tests and people."""
        begin = slot * self._plan.rows_per_slot
        return self._pool[begin + first_row : begin + end_row].float().tolist()

    def _move_rows(self, scheduler_output: Any) -> None:
        order = vllm_versions.batch_order(self.model_runner)
        if order:
            target = destinations(order, vllm_versions.scheduled(scheduler_output), self._wanted, self._spill)
            index = torch.from_numpy(target).to(self._pool.device, non_blocking=True)
            self._pool.index_copy_(0, index, self._step.rows[: len(target)])
