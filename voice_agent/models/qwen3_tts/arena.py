"""What every stream has on the device, a slot each: the host names slots and sends nothing else.

One spare slot stands behind the others: rows that pad a batch to its bucket live there and disturb nobody. A stream's
state is one row of int32 (floats by their bits), so that taking a slot is three small copies.
"""

import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from voice_agent.models.qwen3_tts.config import GROUPS, TalkerConfig

STATE = 8  # int32 a slot, as below
POSITION, FRAMES, TEXT_ROWS, SEED, TOP_K, TEMPERATURE, PENALTY, BEFORE = range(STATE)


@dataclass(frozen=True)
class Arena:
    """Tensors of all slots; `spare` is the slot of padding."""

    kv: Tensor  # [layers, slots + 1, 2, length, kv heads, dim]
    state: Tensor  # [slots + 1, STATE] int32
    text: Tensor  # [slots + 1, length] int32: token of each frame, the end's included
    codes: Tensor  # [slots + 1, ring, 16] int32
    seen: Tensor  # [slots + 1, vocab] int8: first codes chosen before

    @property
    def spare(self) -> int:
        """The slot behind the last."""
        return len(self.state) - 1

    @property
    def length(self) -> int:
        """Rows a slot holds."""
        return self.kv.shape[3]

    @property
    def ring(self) -> int:
        """Frames of codes a slot holds."""
        return self.codes.shape[1]


@dataclass(frozen=True)
class Start:
    """A stream's state as it begins: `position` rows are in its cache, `before` frames of a clip count as spoken."""

    position: int
    text_rows: int
    seed: int
    temperature: float = 0.9
    top_k: int = 50
    penalty: float = 1.05
    before: int = 0

    def words(self) -> list[int]:
        """The state's row."""
        floats = struct.unpack("<2i", struct.pack("<2f", self.temperature, self.penalty))
        seed = struct.unpack("<i", struct.pack("<I", self.seed & 0xFFFF_FFFF))[0]
        return [self.position, self.before, self.text_rows, seed, self.top_k, *floats, self.before]


def new_arena(config: TalkerConfig, slots: int, length: int, ring: int, like: Tensor) -> Arena:
    """Empty slots on the device and in the dtype of `like`; the spare one samples as published."""
    shape = (config.num_hidden_layers, slots + 1, 2, length, config.num_key_value_heads, config.head_dim)

    def zeros(*sizes: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.zeros(sizes, dtype=dtype, device=like.device)

    arena = Arena(
        kv=like.new_zeros(shape),
        state=zeros(slots + 1, STATE),
        text=zeros(slots + 1, length),
        codes=zeros(slots + 1, ring, GROUPS),
        seen=zeros(slots + 1, config.vocab_size, dtype=torch.int8),
    )
    arena.state[:] = torch.tensor(Start(0, 0, 0).words(), dtype=torch.int32)
    return arena


def floats(state: Tensor, column: int) -> Tensor:
    """A column of the state that holds floats."""
    return state[:, column].contiguous().view(torch.float32)
