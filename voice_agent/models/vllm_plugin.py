"""vLLM's general plugin of ours: runs in every process of a vLLM engine, before a model is chosen.

Where hidden rows are wanted it puts our subclasses in the place of the Thinkers they extend, under the same names, so
that nothing else in vLLM sees a difference. And wherever it runs below an engine of ours it sees to it that vLLM's
processes end with their parent: an orphaned engine core would hold the GPU.
"""
# pyright: reportMissingImports=false

import ctypes
import os
import signal
import sys

from voice_agent.models.vllm_rows import HiddenRows

PARENT = "VOICE_AGENT_ENGINE_PID"  # the engine process that started vLLM
_PR_SET_PDEATHSIG = 1  # prctl(2)

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
    _end_with_parent()
    if HiddenRows.from_environment() is None:
        return
    from vllm import ModelRegistry

    for architecture, name in _MODELS.items():
        ModelRegistry.register_model(architecture, f"voice_agent.models.vllm_models:{name}")


def _end_with_parent() -> None:
    """Only the engine core itself, whose parent is the engine: its workers end with it by vLLM's own means."""
    engine_pid = os.environ.get(PARENT)
    if sys.platform != "linux" or engine_pid != str(os.getppid()):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if engine_pid != str(os.getppid()):  # it ended before we asked
        os._exit(0)
