"""The codec's part of `speech_stages`: plain and fused by frames and rows, a first decode, beside the frame graph."""

import itertools
from typing import Any

import torch

from voice_agent.bench.full_context import widened
from voice_agent.bench.stage_rig import SLOTS, Rig, Tensor, captured, distance, timed
from voice_agent.models.qwen3_tts import frame as frames
from voice_agent.models.qwen3_tts.codec_fused import FusedCodec, FusedLane
from voice_agent.models.qwen3_tts.codec_slots import new_codec_rows, render
from voice_agent.models.qwen3_tts.graphs import Captured
from voice_agent.models.qwen3_tts.triton_ops import TritonOps

CODEC_FRAMES, CODEC_ROWS = (1, 2, 4, 8, 16), (1, 4, 8, 16, 32)


def plain(rig: Rig) -> dict[str, Any]:
    """The stateful codec by frames and batch, bfloat16, as captured torch."""
    table: dict[str, Any] = {}
    codec = rig.model.codec
    with torch.inference_mode():
        states = codec.new_state(SLOTS + 1)
    print("codec ms (torch, bf16): frames x rows; us a frame")
    for count in CODEC_FRAMES:
        shown: list[str] = []
        for batch in CODEC_ROWS:
            graph = _codec_graph(rig, states, count, batch)
            ms = timed(graph, 10)
            table[f"{count}x{batch}"] = ms
            shown.append(f"{batch}: {ms:.2f} ({1e3 * ms / count / batch:.0f})")
        print(f"  {count:>2} frames  " + "  ".join(shown), flush=True)
    return table


def fused(rig: Rig) -> dict[str, Any]:
    """The codec by Triton kernels: both bf16 ways against float32 over ragged chunks, then ms by frames and batch."""
    codec, table = rig.model.codec, dict[str, Any]()
    with torch.inference_mode():
        rig.reset()
        wide = widened(codec)
        lane = FusedLane(FusedCodec(codec, SLOTS), rig.arena, 512)
        states, exact = codec.new_state(SLOTS + 1), wide.new_state(SLOTS + 1)
        sounds: list[list[Tensor]] = [[], [], []]
        first = [0, 0]
        for count, valid in (
            (2, (2, 1)),
            (3, (1, 3)),
            (1, (1, 1)),
            (8, (8, 5)),
            (16, (16, 16)),
            (16, (16, 9)),
            (4, (3, 4)),
        ):
            made = [new_codec_rows(codec, count, 2, rig.arena.spare) for _ in range(3)]
            rows = [
                [slot, begun, some, int(begun == 0)]
                for slot, begun, some in zip((5, 77), first, valid, strict=True)
            ]
            for buffers in made:
                buffers.rows.copy_(torch.tensor(rows, dtype=torch.int32))
            lane.step(made[0], count)
            render(codec, states, rig.arena, made[1], count)
            render(wide, exact, rig.arena, made[2], count)
            for kept, buffers in zip(sounds, made, strict=True):
                kept += [buffers.sound[row, : some * 1920].clone() for row, some in enumerate(valid)]
            first = [begun + some for begun, some in zip(first, valid, strict=True)]
        torch.cuda.synchronize()
        ours, plain, right = (torch.cat(kept).float() for kept in sounds)
    table["error"] = {"fused": distance(ours, right), "torch bf16": distance(plain, right)}
    print(f"fused codec: error against float32 {table['error']}", flush=True)
    for count in (1, 2, 4, 8, 16):
        shown: list[str] = []
        for batch in (1, 4, 8, 32):
            buffers = new_codec_rows(codec, count, batch, rig.arena.spare)
            buffers.rows[:, 0] = torch.arange(batch)
            ms = timed(captured(lambda b=buffers, c=count: lane.step(b, c), rig), 10)
            table[f"{count}x{batch}"] = ms
            shown.append(f"{batch}: {ms:.2f} ({1e3 * ms / count / batch:.0f})")
        print(f"  {count:>2} frames  " + "  ".join(shown), flush=True)
    return table


def first_decode(rig: Rig) -> dict[str, list[float]]:
    """A reply's first frames: decoded as a whole, without slots, against the stateful step of either codec; ms.

    What was decoded as a whole leaves no state, so the next chunk would decode these frames again.
    """
    codec, table = rig.model.codec, dict[str, list[float]]()
    with torch.inference_mode():
        lane, states = FusedLane(FusedCodec(codec, SLOTS), rig.arena, 32), codec.new_state(SLOTS + 1)
    print("first decode ms: whole, plain step, fused step")
    for count, batch in itertools.product((1, 2, 3, 4), (1, 4, 8)):
        codes = rig.arena.codes[:batch, :count].long()
        buffers = new_codec_rows(codec, count, batch, rig.arena.spare)
        buffers.rows[:, 0], buffers.rows[:, 3] = torch.arange(batch), 1
        table[f"{count}x{batch}"] = told = [
            timed(captured(lambda c=codes: codec.decode(c), rig), 10),
            timed(captured(lambda b=buffers, n=count: render(codec, states, rig.arena, b, n), rig), 10),
            timed(captured(lambda b=buffers, n=count: lane.step(b, n), rig), 10),
        ]
        print(f"  {count} frames x {batch}: " + "  ".join(f"{ms:.2f}" for ms in told), flush=True)
    return table


def _codec_graph(rig: Rig, states: Any, count: int, batch: int, stream: Any = None) -> Captured:
    buffers = new_codec_rows(rig.model.codec, count, batch, rig.arena.spare)
    buffers.rows[:, 0] = torch.arange(batch)
    buffers.rows[:, 3] = 0
    return captured(lambda: render(rig.model.codec, states, rig.arena, buffers, count), rig, stream)


@torch.inference_mode()
def overlap(rig: Rig) -> dict[str, Any]:
    """Frame cycles with codec launches beside them, and the other way round."""
    table: dict[str, Any] = {}
    print("overlap: frame ms alone -> beside, codec ms alone -> beside; priorities as CUDA counts them")
    codec = FusedCodec(rig.model.codec, SLOTS)
    for batch, count, codec_rows in ((1, 1, 1), (4, 2, 1), (8, 16, 2), (16, 16, 2), (16, 8, 8)):
        for pdl, priorities in (
            (False, (0, 0)),
            (False, (-1, 0)),
            (False, (0, -3)),
            (True, (0, -3)),
            (True, (-1, 0)),
        ):
            shape, ops = (batch, count, codec_rows), TritonOps(pdl=pdl, dot_from=2)
            told = _overlapped(rig, codec, shape, ops, priorities)
            name = f"B={batch} codec {count}x{codec_rows} pdl={pdl} {priorities}"
            table[name] = told
            print(f"  {name}: {_arrows(told)}", flush=True)
    return table


def _arrows(told: list[float]) -> str:
    return f"frame {told[0]:.2f} -> {told[2]:.2f}, codec {told[1]:.2f} -> {told[3]:.2f}"


def _overlapped(
    rig: Rig, fused: FusedCodec, shape: tuple[int, int, int], ops: TritonOps, priorities: tuple[int, int]
) -> list[float]:
    """ms of a frame graph and of a codec graph, alone, then each beside the other."""
    batch, count, codec_rows = shape
    rows = frames.new_rows(rig.weights, batch, rig.arena.spare)
    rows.slots[:] = torch.arange(batch)
    rig.reset()
    one, other = (
        torch.cuda.Stream(priority=priority) for priority in priorities
    )  # kept by the graphs' kernels
    frame = captured(lambda: frames.make_frame(ops, rig.weights, rig.arena, rows), rig, one)
    lane = FusedLane(fused, rig.arena, count * codec_rows)
    buffers = new_codec_rows(rig.model.codec, count, codec_rows, rig.arena.spare)
    buffers.rows[:, 0] = torch.arange(codec_rows)
    codec = captured(lambda: lane.step(buffers, count), rig, other)
    alone = timed(frame, 20, rig.reset), timed(codec, 20)
    beside = _beside(frame, codec, (one, other), alone, rig)
    return [*alone, beside, _beside(codec, frame, (other, one), alone[::-1], rig)]


def _beside(
    one: Captured, other: Captured, streams: tuple[Any, Any], alone: tuple[float, float], rig: Rig
) -> float:
    """ms of one replay of `one` while `other` is replayed without a pause on its own stream."""
    rig.reset()
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(streams[1]):
        for _ in range(
            40 + int(40 * alone[0] / alone[1])
        ):  # longer than what is timed, however slow that gets
            other.replay()
    with torch.cuda.stream(streams[0]):
        one.replay()
        begin.record()
        for _ in range(10):
            one.replay()
        end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 10
