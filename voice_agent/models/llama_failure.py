"""Why llama.cpp could not load a model: it says so on standard error alone, and raises one sentence for all reasons.

What can be told from outside is told here: a broken head, and too little host memory. The sizes are those of the
weights' file and of a key and a value per token and layer, at 16 bits; what llama.cpp takes besides was measured.
"""

from dataclasses import dataclass
from pathlib import Path

from voice_agent.engine.host_memory import MemoryLeft
from voice_agent.errors import WeightsError
from voice_agent.models.gguf_file import Gguf, map_file, read_head

# address space of stacks, arenas and working buffers, with two threads: 300 MB for a model of 135M weights
WORKING_BYTES = 300 << 20
_HALF_BYTES = 2


@dataclass(frozen=True)
class Load:
    """What was to be loaded: the file, its context, and the host memory that was left before."""

    model: Path
    context_tokens: int
    left: MemoryLeft | None


def why_not(load: Load, error: Exception) -> str:
    """The reason in words, with what to do; the error is llama.cpp's own."""
    try:
        context_bytes = _context_bytes(read_head(map_file(load.model)), load.context_tokens)
    except WeightsError as broken:
        return f"{broken}; fetch the file again"
    except (OSError, MemoryError):  # it opened a moment ago, so it is memory that it cannot be mapped into
        return _out_of_memory(load, 0)
    left = load.left
    if isinstance(error, MemoryError) or (
        left and left.size < _bytes_of(load) + context_bytes + WORKING_BYTES
    ):
        return _out_of_memory(load, context_bytes)
    return (
        f"llama.cpp refuses it ({error}) and says why in the lines above; most often a file was cut short on its way "
        "(fetch it again) or is of a kind that this release does not know"
    )


def _out_of_memory(load: Load, context_bytes: int) -> str:
    context = f", a context of {load.context_tokens} tokens {_mb(context_bytes)}" if context_bytes else ""
    left = f", and {_mb(load.left.size)} were left {load.left.where}" if load.left else ""
    return (
        f"out of host memory: its weights take {_mb(_bytes_of(load))}{context}, its threads some {_mb(WORKING_BYTES)}"
        f"{left}. Free some, lower thinker.context_tokens, or name a smaller thinker.model"
    )


def _bytes_of(load: Load) -> int:
    """All parts of a split file."""
    name = load.model.name
    parts = load.model.parent.glob("*-of-*.gguf") if "-of-" in name else [load.model]
    return sum(part.stat().st_size for part in parts)


def _context_bytes(head: Gguf, tokens: int) -> int:
    """Keys and values of so many tokens; 0 if the head does not tell their sizes."""
    told = {key.partition(b".")[2]: value for key, value in head.numbers.items()}
    layers, heads = told.get(b"block_count", 0), told.get(b"attention.head_count", 0)
    if not layers or not heads:
        return 0
    shared = told.get(b"attention.head_count_kv", heads)
    width = told.get(b"attention.key_length", told.get(b"embedding_length", 0) // heads)
    return tokens * layers * 2 * shared * width * _HALF_BYTES


def _mb(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
