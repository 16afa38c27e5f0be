"""Rounds the rest of a 4-bit GGUF to 4 bits, once per file, because llama.cpp has no fast path for the rest.

K-quants come in blocks of 256 weights. A model whose rows are no multiple of that (896 in Qwen2.5-0.5B) has Q5_0 and
Q8_0 in their place, which a CPU multiplies row by row; IQ4_NL it takes eight rows at a time, as Q4_0, which is a third
further off. Files that are not 4-bit stay as their maker meant them.

Source: llama.cpp's ggml-common.h (block_iq4_nl and its values, block_q5_0, block_q8_0: a scale
in 16 bits, then 32 weights).
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from voice_agent.errors import WeightsError
from voice_agent.models.derived import Recipe, derive
from voice_agent.models.gguf_file import Gguf, NewTensor, Tensor, map_file, read_head, write

logger = logging.getLogger(__name__)

ROUNDED = "model.gguf"
BLOCK = 32
CHUNK_BLOCKS = 4_096  # 512 kB of floats: the passes over them stay in a core's cache
# The 16 values of a weight, closer together about zero, where most weights are.
VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
QUOTIENTS = (-118.0, -127.0, -136.0)  # a block's largest weight may reach so far; more tries gain nothing
WORTH_IT = 0.2  # share of the file's bytes from which it is worth a second file
IQ4_NL, IQ4_NL_BYTES = 20, 18  # ggml's number of the type; bytes of a block
# Q4_0, Q4_1, Q4_K_S, Q4_K_M, IQ4_NL, IQ4_XS as llama.cpp numbers files
_FOUR_BIT_FILES = {2, 3, 14, 15, 25, 30}

Floats = NDArray[np.float32]  # [blocks, 32]
Bytes = NDArray[np.uint8]  # [blocks, bytes of one]


def faster(model: Path) -> Path:
    """The file to load in place of this one: itself, or the one rounded, which takes 10 s the first time.

    Where nothing can be written, the file cannot be read or there is no memory for it, the file itself has to do.
    """
    try:
        return derive(model, Recipe("rounded2", (ROUNDED,), _write_rounded)) / ROUNDED
    except (WeightsError, MemoryError) as error:
        logger.warning("%s is used as it is, and slower: %s", model.name, error or "no memory")
        return model


def _write_rounded(model: Path, folder: Path) -> None:
    """Leave the rounded file in a folder, or a link to the model if that would gain nothing."""
    content = map_file(model)
    head = read_head(content)
    if not gains(model.name, head):
        (folder / ROUNDED).symlink_to(model.resolve())
        return
    logger.info("%s: rounding what is not 4-bit yet, which is done once", model.name)
    with (folder / ROUNDED).open("wb") as rounded:
        write(rounded, head, [_new(tensor, content, head) for tensor in head.tensors])


def gains(name: str, head: Gguf) -> bool:
    """Whether a file is faster rounded: 4-bit, whole, and a good part of it in other blocks."""
    if "-of-" in name or head.file_type not in _FOUR_BIT_FILES:
        return False
    slow = sum(tensor.size for tensor in head.tensors if _is_slow(tensor, head))
    return slow > WORTH_IT * sum(tensor.size for tensor in head.tensors)


def pack(weights: Floats) -> Bytes:
    """Round blocks to IQ4_NL, [blocks, 18]; large weights count more, as they do in a product."""
    largest = weights[np.arange(len(weights)), np.abs(weights).argmax(axis=1)]
    inverse = np.divide(1, largest, out=np.zeros_like(largest), where=largest != 0)
    size = np.sqrt(np.einsum("ij,ij->i", weights, weights) / BLOCK)
    importance = np.abs(weights) + size[:, None]
    weighted = importance * weights
    explained, scales, chosen = (np.zeros_like(largest) for _ in range(3))
    for quotient in QUOTIENTS:
        values = VALUES[_nearest(weights, inverse * np.float32(quotient))]
        along = np.einsum("ij,ij->i", weighted, values)
        length = np.einsum("ij,ij->i", importance, values * values)
        scale = np.divide(along, length, out=np.zeros_like(along), where=length > 0)
        better = along * scale > explained  # what the least squares leave is the block's square less this
        explained = np.where(better, along * scale, explained)
        scales = np.where(better, scale, scales)
        chosen = np.where(better, np.float32(quotient), chosen)
    nibbles = _nearest(weights, inverse * chosen)
    halves = scales.astype("<f2").view(np.uint8).reshape(-1, 2)
    low, high = nibbles[:, :16], nibbles[:, 16:]
    return np.concatenate([halves, np.bitwise_or(low, np.left_shift(high, 4, dtype=np.uint8))], axis=1)


# which of the values is nearest to -128..127, for whole numbers as bytes
_NEAREST = (
    np.abs(np.arange(256, dtype=np.uint8).view(np.int8)[:, None] - VALUES).argmin(axis=1).astype(np.uint8)
)


def _nearest(weights: Floats, factors: NDArray[np.float32]) -> Bytes:
    """Which value is nearest to each scaled weight."""
    scaled = weights * factors[:, None]
    whole = np.clip(np.rint(scaled, out=scaled), -128, 127, out=scaled).astype(np.int8)
    return _NEAREST[whole.view(np.uint8)]


def unpack_q5_0(blocks: Bytes) -> Floats:
    """Weights of Q5_0: the scale, the fifth bits, then the nibbles."""
    fifth = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little").astype(np.int8) << 4
    nibbles = np.concatenate([blocks[:, 6:] & 15, blocks[:, 6:] >> 4], axis=1).view(np.int8)
    return _scale(blocks) * ((nibbles | fifth) - 16)


def unpack_q8_0(blocks: Bytes) -> Floats:
    """Weights of Q8_0: the scale, then a byte each."""
    return _scale(blocks) * blocks[:, 2:].view(np.int8)


_UNPACK: dict[int, tuple[int, Callable[[Bytes], Floats]]] = {  # ggml's type: bytes of a block, how to read it
    6: (22, unpack_q5_0),
    8: (34, unpack_q8_0),
}


def _scale(blocks: Bytes) -> Floats:
    return np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)


def _is_slow(tensor: Tensor, head: Gguf) -> bool:
    if tensor.type_number not in _UNPACK or tensor.lengths[0] % BLOCK or len(tensor.lengths) != 2:
        return False
    # of the embeddings single rows are read, unless they are the output's weights too
    return tensor.name != "token_embd.weight" or all(other.name != "output.weight" for other in head.tensors)


def _new(tensor: Tensor, content: memoryview, head: Gguf) -> NewTensor:
    bytes_now = content[tensor.start : tensor.start + tensor.size]
    if not _is_slow(tensor, head):
        return NewTensor(tensor, tensor.type_number, tensor.size, [bytes_now])
    blocks = tensor.lengths[0] * tensor.lengths[1] // BLOCK
    if tensor.size < blocks * _UNPACK[tensor.type_number][0]:
        raise WeightsError(f"the GGUF file is cut short: {tensor.name} is not whole")
    return NewTensor(tensor, IQ4_NL, blocks * IQ4_NL_BYTES, _rounded(tensor, bytes_now, blocks))


def _rounded(tensor: Tensor, content: memoryview, blocks: int) -> Iterator[bytes]:
    block_bytes, unpack = _UNPACK[tensor.type_number]
    rows = np.frombuffer(content, np.uint8, count=blocks * block_bytes).reshape(blocks, block_bytes)
    for first in range(0, blocks, CHUNK_BLOCKS):
        yield pack(unpack(rows[first : first + CHUNK_BLOCKS])).tobytes()
