"""vLLM's worker with one thing more: after each step's forward the wanted rows go from its buffer into the pool.

The copy is queued on the step's own stream before its tokens are sampled, so whoever has seen a token may read its row.
Which requests want rows stands in their sampling parameters (vllm_rows). Only the first of several tensor-parallel
ranks writes: all have the same rows.
"""
# pyright: reportMissingImports=false

import functools
from typing import Any

from voice_agent.models import vllm_versions
from voice_agent.models.vllm_rows import StepPicker
from voice_agent.models.vllm_sinks import RowSink, sink_for

_Base: Any = vllm_versions.worker_base()


class RowsWorker(_Base):
    """See above; named to vLLM by `worker_cls`."""

    def load_model(self, *arguments: Any, **more: Any) -> None:
        """Load, then open the pool, so that vLLM's memory profile counts what it takes."""
        super().load_model(*arguments, **more)
        self._step = self.model_runner.get_model().step_rows
        self._sink: RowSink | None = sink_for(self._step.plan, self._step.rows) if self.rank == 0 else None
        self._picker = StepPicker()

    def execute_model(self, scheduler_output: Any) -> Any:
        """A step, and its rows."""
        self._picker.forget(scheduler_output.finished_req_ids)
        for request in scheduler_output.scheduled_new_reqs:
            extra_args = getattr(request.sampling_params, "extra_args", None)
            self._picker.want(request.req_id, extra_args, len(request.prompt_token_ids or ()))
        output = super().execute_model(scheduler_output)
        if self._sink is not None:
            picked = self._picker.pick(
                vllm_versions.batch_order(self.model_runner),
                vllm_versions.decode_positions(scheduler_output),
                functools.partial(vllm_versions.scheduled, scheduler_output),
            )
            if picked.indices:
                self._sink.write(self._step.rows, picked)
        return output
