"""What an engine says when something foreign went wrong: a code, and a sentence without anything it may quote.

Errors of libraries may carry a transcript or a prompt in their text, so only their type is told.
"""

from voice_agent.errors import VoiceAgentError

OUT_OF_MEMORY = "out_of_memory"
HOST_MEMORY = "out of host memory: give the machine or container more, or take a smaller model"
GPU_MEMORY = "out of GPU memory: see the memory plan in the server's log for what to lower"
_GPU_MEMORY_TYPES = {"OutOfMemoryError", "CUDAOutOfMemoryError"}  # torch's; torch is not imported to know it
# what torch, CUDA and NCCL say in errors of a general type; looked for, never quoted
_GPU_MEMORY_WORDS = (
    "cuda out of memory",
    "cuda error: out of memory",
    "cuda_error_out_of_memory",
    "cudaerrormemory",
)
_HOST_MEMORY_WORDS = ("can't allocate memory", "cannot allocate memory", "std::bad_alloc", "enomem")

_GPU_MODULES = {"vllm", "torch", "triton", "safetensors", "tokenizers", "transformers"}  # the extra `gpu`


def code_and_text(error: BaseException) -> tuple[str, str]:
    """For a request that raised, or a start that did."""
    if isinstance(error, VoiceAgentError):
        return error.code, str(error)
    if memory := _which_memory(error):
        return OUT_OF_MEMORY, memory
    if isinstance(error, ModuleNotFoundError):
        return "missing_module", not_installed(error.name or "")
    return "model_error", f"the model failed with {type(error).__name__}"


def not_installed(module: str) -> str:
    """The sentence for a module that is missing, with the way to it if an extra of ours brings it."""
    known = module.partition(".")[0] in _GPU_MODULES
    way = ": .venv/bin/pip install -e '.[gpu]' in the clone (docs/engines.md)" if known else ""
    return f"the module {module} is not installed{way}"


def _which_memory(error: BaseException) -> str:
    """The sentence for the memory that ran out; empty if none did."""
    if isinstance(error, MemoryError):
        return HOST_MEMORY
    if type(error).__name__ in _GPU_MEMORY_TYPES:
        return GPU_MEMORY
    if not isinstance(error, RuntimeError | OSError):
        return ""
    text = str(error).lower()
    if any(words in text for words in _GPU_MEMORY_WORDS):
        return GPU_MEMORY
    return HOST_MEMORY if any(words in text for words in _HOST_MEMORY_WORDS) else ""
