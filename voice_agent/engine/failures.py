"""What an engine says when something foreign went wrong: a code, and a sentence without anything it may quote.

Errors of libraries may carry a transcript or a prompt in their text, so only their type is told.
"""

from voice_agent.errors import VoiceAgentError

OUT_OF_MEMORY = "out_of_memory"
_DEVICE_MEMORY_TYPES = {
    "OutOfMemoryError",
    "CUDAOutOfMemoryError",
}  # torch's; torch is not imported to know it


def code_and_text(error: Exception) -> tuple[str, str]:
    """For a request that raised, or a start that did."""
    if isinstance(error, VoiceAgentError):
        return error.code, str(error)
    if isinstance(error, MemoryError):
        return (
            OUT_OF_MEMORY,
            "out of host memory: give the machine or container more, or take a smaller model",
        )
    if type(error).__name__ in _DEVICE_MEMORY_TYPES:
        return OUT_OF_MEMORY, "out of GPU memory: see the memory plan in the server's log for what to lower"
    if isinstance(error, ModuleNotFoundError):
        return "missing_module", f"the module {error.name} is not installed"
    return "model_error", f"the model failed with {type(error).__name__}"
