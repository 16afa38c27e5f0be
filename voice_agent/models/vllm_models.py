"""Thinkers that leave what a hidden row holds in a static buffer, step by step, inside their forward.

The copy is part of the forward, so it is in the CUDA graph where there is one. Rows lie in the order of the step's
tokens; RowsWorker moves those that are wanted into the pool. Classes are made from vLLM's by one function, since each
family differs only in where its language model sits. Loaded by name, see vllm_plugin.
"""
# pyright: reportMissingImports=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch

from voice_agent.models.vllm_rows import HiddenRows


class StepRows(torch.nn.Module):
    """The static buffer of one step: [most tokens of a step, parts * hidden size] in the model's dtype."""

    def __init__(self, most_tokens: int, plan: HiddenRows, hidden_size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.plan = plan
        self.hidden_size = hidden_size
        # no parameter and no registered buffer: weight loaders must not look for it
        self.rows = torch.zeros(most_tokens, plan.parts * hidden_size, dtype=dtype)

    def keep(self, state: torch.Tensor, embedding: torch.Tensor | None) -> None:
        """Copy a step's rows [T, H]; the embedding goes behind the state if it is wanted."""
        count, size = state.shape[0], self.hidden_size
        self.rows[:count, :size].copy_(state)
        if embedding is not None:
            self.rows[:count, size:].copy_(embedding)


def _with_rows(base: type[Any], language_model_of: Callable[[Any], Any]) -> type[Any]:
    """A subclass of one of vLLM's Thinkers; `language_model_of` gives the module with `embed_input_ids` and layers."""

    class Rows(base):
        def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
            super().__init__(vllm_config=vllm_config, prefix=prefix)
            plan = HiddenRows.from_environment()
            assert plan is not None, "the plugin registers these classes only where rows are wanted"
            if prefix:  # the language model inside of another model of ours, which keeps the rows itself
                return
            model = vllm_config.model_config
            most_tokens = vllm_config.scheduler_config.max_num_batched_tokens
            self.step_rows = StepRows(most_tokens, plan, model.get_hidden_size(), model.dtype)
            if plan.content == "layer":
                language_model_of(self)._set_aux_hidden_state_layers((plan.layer,))

        def forward(
            self,
            input_ids: torch.Tensor | None,
            positions: torch.Tensor,
            intermediate_tensors: Any = None,
            inputs_embeds: torch.Tensor | None = None,
            **more: Any,
        ) -> Any:
            found = super().forward(input_ids, positions, intermediate_tensors, inputs_embeds, **more)
            state, plan = found, self.step_rows.plan
            if plan.content == "layer":
                found, (state,) = found
            embedding = None
            if plan.content == "last+embedding":
                embedding = inputs_embeds
                if embedding is None:
                    embedding = language_model_of(self).embed_input_ids(input_ids)
            self.step_rows.keep(state, embedding)
            return found

    Rows.__name__ = Rows.__qualname__ = f"Rows{base.__name__}"
    return Rows


def _inner(model: Any) -> Any:
    return model.model


def _omni_inner(model: Any) -> Any:
    return model.language_model.model


# our name -> vLLM's module and class, and where its language model sits
_BASES: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "RowsQwen2": ("qwen2", "Qwen2ForCausalLM", _inner),
    "RowsQwen3": ("qwen3", "Qwen3ForCausalLM", _inner),
    "RowsLlama": ("llama", "LlamaForCausalLM", _inner),
    "RowsQwen25Omni": ("qwen2_5_omni_thinker", "Qwen2_5OmniThinkerForConditionalGeneration", _omni_inner),
    "RowsQwen3Omni": ("qwen3_omni_moe_thinker", "Qwen3OmniMoeThinkerForConditionalGeneration", _omni_inner),
}


@functools.cache
def __getattr__(name: str) -> type[Any]:
    """The class of that name, made at its first use: a family's module may need what others do not (PEP 562)."""
    if name not in _BASES:
        raise AttributeError(name)
    module, base, language_model_of = _BASES[name]
    found = importlib.import_module(f"vllm.model_executor.models.{module}")
    return _with_rows(getattr(found, base), language_model_of)
