"""vLLM's general plugin of ours: runs in every process of a vLLM engine, before a model is chosen.

Where hidden rows are wanted it puts our subclasses in the place of the Thinkers they extend, under the same names, so
that nothing else in vLLM sees a difference. In an engine of ours it also lets fatal errors leave their last words.
Everywhere else it does nothing.
"""
# pyright: reportMissingImports=false

import logging
import os

from voice_agent.models.vllm_last_words import ENVIRONMENT, LeaveLastWords
from voice_agent.models.vllm_rows import HiddenRows

# architecture in config.json -> our subclass, see vllm_models
_MODELS = {
    "Qwen2ForCausalLM": "RowsQwen2",
    "Qwen3ForCausalLM": "RowsQwen3",
    "LlamaForCausalLM": "RowsLlama",
    "Qwen2_5OmniModel": "RowsQwen25Omni",
    "Qwen2_5OmniForConditionalGeneration": "RowsQwen25Omni",
    "Qwen3OmniMoeForConditionalGeneration": "RowsQwen3Omni",
}


def register() -> None:
    """The entry point; may run more than once in a process."""
    if path := os.environ.get(ENVIRONMENT):
        from voice_agent.models.vllm_versions import FATAL_LOGGERS

        for name in FATAL_LOGGERS:
            logging.getLogger(name).handlers = [LeaveLastWords(path)]
    if HiddenRows.from_environment() is None:
        return
    from vllm import ModelRegistry

    for architecture, name in _MODELS.items():
        ModelRegistry.register_model(architecture, f"voice_agent.models.vllm_models:{name}")
