"""The codec over the slots of an arena: codes from the rings, state gathered and scattered by slot, int16 out.

One launch takes rows of different lengths: `frames` says how many of each row's are real. The spare slot pads.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from voice_agent.models.qwen3_tts.arena import Arena
from voice_agent.models.qwen3_tts.codec import Codec, CodecState

_INT16 = 32_767.0


@dataclass(frozen=True)
class CodecRows:
    """The buffers of one (frames, batch) size: `rows` [B, 4] int32 is slot, first frame, frames, new stream or not."""

    rows: Tensor
    sound: Tensor  # [B, T * 1920] int16


def new_codec_rows(codec: Codec, frames: int, batch: int, spare: int) -> CodecRows:
    """Buffers for a launch, all rows padding."""
    device = codec.entries.device
    rows = torch.tensor([[spare, 0, frames, 1]] * batch, dtype=torch.int32, device=device)
    count = frames * codec.config.samples_per_frame
    return CodecRows(rows, torch.zeros((batch, count), dtype=torch.int16, device=device))


@torch.inference_mode()
def render(codec: Codec, states: CodecState, arena: Arena, buffers: CodecRows, frames: int) -> None:
    """The rows' next frames from the rings as sound; their states move on. A new stream's row starts from zeros."""
    slots, first, valid, new = buffers.rows.long().unbind(1)
    at = (first[:, None] + torch.arange(frames, device=slots.device)) % arena.ring
    codes = arena.codes[slots[:, None], at].long()
    held = (new == 0).to(states.kv.dtype)
    state = CodecState(
        states.frames[slots] * (new == 0),
        states.kv[slots] * held[:, None, None, None, None, None],
        states.columns[slots] * held[:, None],
    )
    sound, after = codec.step(codes, state, valid)
    states.frames[slots], states.kv[slots], states.columns[slots] = after.frames, after.kv, after.columns
    buffers.sound.copy_((sound.float() * _INT16).round().to(torch.int16))
