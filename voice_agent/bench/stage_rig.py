"""What the stages of the GPU speech engine are timed on: random weights of the exact shape, every slot in mid-reply."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from voice_agent.models.qwen3_tts import frame as frames
from voice_agent.models.qwen3_tts.arena import Arena, Start, new_arena
from voice_agent.models.qwen3_tts.config import LARGE, CodecConfig
from voice_agent.models.qwen3_tts.graphs import Captured
from voice_agent.models.qwen3_tts.model import Model, exact_shape_random
from voice_agent.models.qwen3_tts.triton_ops import Tile

SLOTS, LENGTH, RING = 128, 1024, 64
HELD_ROWS = 60  # of keys and values, as in the middle of a reply

Tensor = torch.Tensor


@dataclass
class Rig:
    """Model, arena and what was found."""

    model: Model
    weights: frames.FrameWeights
    arena: Arena
    device: torch.device
    tiles: dict[tuple[str, int, int, int], Tile | None] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)
    codes: Tensor | None = None

    @torch.inference_mode()
    def reset(self) -> None:
        """Every slot in the middle of its reply."""
        state = torch.tensor(Start(HELD_ROWS, 30, 1).words(), dtype=torch.int32)
        self.arena.state[:] = state
        self.arena.state[:, 1] = HELD_ROWS - 10
        self.arena.state[:, 3] = torch.arange(SLOTS + 1)
        self.arena.seen.zero_()
        if self.codes is None:
            self.codes = torch.randint(2048, self.arena.codes.shape, device=self.device, dtype=torch.int32)
        self.arena.codes.copy_(self.codes)


def new_rig(device: torch.device, found: dict[str, Any]) -> Rig:
    """Random weights of the 1.7B shape."""
    with torch.inference_mode():
        model = exact_shape_random(device, torch.bfloat16, config=LARGE, codec=CodecConfig())
        weights = frames.frame_weights(model, LENGTH)
        arena = new_arena(model.talker.config, SLOTS, LENGTH, RING, model.talker.norm)
        arena.kv.normal_()
        arena.text.random_(0, 1000)
        rig = Rig(model, weights, arena, device, found=found)
        rig.reset()
    return rig


def timed(captured: Captured, repeats: int = 30, before: Callable[[], None] | None = None) -> float:
    """Median ms of a replay."""
    if before:
        before()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    for _ in range(3):
        captured.replay()
    marks[0].record()
    for mark in marks[1:]:
        captured.replay()
        mark.record()
    torch.cuda.synchronize()
    spans = sorted(a.elapsed_time(b) for a, b in zip(marks, marks[1:], strict=False))
    return spans[len(spans) // 2]


def captured(work: Callable[[], None], rig: Rig, stream: Any = None) -> Captured:
    """The work as a graph, made on a stream of its own or the one given."""
    with torch.inference_mode():
        return Captured(work, rig.device, stream=stream)


def distance(got: Tensor, expected: Tensor) -> float:
    """How far off, as a share of what was expected."""
    return float((got.float() - expected.float()).norm() / expected.float().norm())
