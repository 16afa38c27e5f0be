"""`python -m voice_agent.bench.speech_stages`: the GPU speech engine's stages one by one, on random weights.

Needs torch, triton, numpy and msgspec, and a GPU; no weights, no server. Checks every Triton kernel against its plain
twin, then times matrices by tile, the frame graph by batch and variant, the codec by (frames, batch), and both at
once. Each part that fails is told and the next one runs. Prints tables; `--json` writes everything.
"""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from voice_agent.bench import stage_kernels
from voice_agent.bench.full_context import widened
from voice_agent.bench.stage_kernels import Case
from voice_agent.models.qwen3_tts import frame as frames
from voice_agent.models.qwen3_tts.arena import Arena, Start, new_arena
from voice_agent.models.qwen3_tts.codec_fused import FusedCodec, FusedLane
from voice_agent.models.qwen3_tts.codec_slots import new_codec_rows, render
from voice_agent.models.qwen3_tts.config import LARGE, CodecConfig
from voice_agent.models.qwen3_tts.graphs import Captured
from voice_agent.models.qwen3_tts.model import Model, exact_shape_random
from voice_agent.models.qwen3_tts.plain_ops import PlainOps
from voice_agent.models.qwen3_tts.triton_ops import Tile, TritonOps

BATCHES = (1, 2, 4, 8, 16, 32, 64)
CODEC_FRAMES, CODEC_ROWS = (1, 2, 4, 8, 16), (1, 4, 8, 16, 32)
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


def main(argv: Sequence[str]) -> int:
    """Run all parts; 1 if a kernel is wrong or a part failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-sweep", action="store_true")
    parser.add_argument("--parts", default="check,frames,codec,overlap")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("speech_stages needs a GPU", file=sys.stderr)
        return 2
    began, parts, failed = time.monotonic(), options.parts.split(","), False
    device = torch.device("cuda")
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    if "check" in parts:
        found["kernels"] = _checks(not options.no_sweep)
        print(f"[{time.monotonic() - began:.0f} s] kernels checked", flush=True)
    rig = _rig(device, found)
    for name, part in (
        ("tiles", _tiles),
        ("frames", _frames),
        ("codec", _codec),
        ("overlap", _overlap),
        ("fused", _fused),
    ):
        if name not in parts or (name == "tiles" and options.no_sweep):
            continue
        try:
            rig.found[name] = part(rig)
        except Exception:  # noqa: BLE001 - the next part may still tell something
            failed = True
            traceback.print_exc()
        print(f"[{time.monotonic() - began:.0f} s] {name} done", flush=True)
    rig.found["memory_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
    print(f"memory {rig.found['memory_gb']} GB, {time.monotonic() - began:.0f} s in all")
    if options.json:
        options.json.write_text(json.dumps(rig.found, indent=1, default=str))
    return int(failed)


def _checks(sweep: bool) -> dict[str, str]:
    verdicts = stage_kernels.check_all(stage_kernels.cases(sweep), limit_s=75.0)
    bad = {case: told for case, told in verdicts.items() if not told.startswith("ok")}
    print(f"kernels: {len(verdicts) - len(bad)} of {len(verdicts)} equal their plain twins")
    for case, told in list(bad.items())[:25]:
        print(f"  {case}: {told}")
    worst: dict[str, str] = {}
    for case, told in verdicts.items():
        if told.startswith("ok"):
            worst[case.op] = max(worst.get(case.op, "ok 0"), told, key=lambda text: float(text.split()[1]))
    print("  largest relative error: " + ", ".join(f"{op} {told[3:]}" for op, told in worst.items()))
    return {str(case): told for case, told in verdicts.items()}


def _rig(device: torch.device, found: dict[str, Any]) -> Rig:
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


def _tiles(rig: Rig) -> dict[str, Any]:
    """Each matrix by tile and by cuBLAS, walking over all layers so that the cache holds nothing."""
    table: dict[str, Any] = {}
    print("matrix: us a launch (GB/s) by tile; best first")
    for name, kernel, rows, columns in stage_kernels.matrices():
        stack = _weights_of(rig, name, rows, columns)
        for batch in stage_kernels.SWEPT:
            tries: dict[str, float] = {}
            for tile in stage_kernels.tiles_for(kernel, columns, batch):
                tries[str(tile)] = _matrix_us(rig, Case(kernel, rows, columns, batch, tile), stack)
            if kernel != "enter":
                tries["cublas"] = _matrix_us(rig, Case(kernel, rows, columns, batch), stack, cublas=True)
            ordered = dict(sorted(tries.items(), key=lambda item: item[1]))
            table[f"{name} {batch}"] = ordered
            best = next(iter(ordered))
            tile = None if best == "cublas" else Tile(*json.loads(best.replace("(", "[").replace(")", "]")))
            rig.tiles[(kernel, rows, columns, batch)] = tile
            gb = rows * columns * 2 / 1e3
            shown = [f"{key} {us:.1f} ({gb / us:.0f})" for key, us in list(ordered.items())[:3]]
            print(
                f"  {name:18} x{batch:<3} {' | '.join(shown)} | cublas {tries.get('cublas', 0):.1f}",
                flush=True,
            )
    return table


def _weights_of(rig: Rig, name: str, rows: int, columns: int) -> list[Tensor]:
    owner, _, part = name.partition(" ")
    layers = {"talker": rig.model.talker.layers, "predictor": rig.model.code_predictor.layers}.get(owner)
    if layers is None:
        count = max(2, int(150e6 / (rows * columns * 2)))
        return list(torch.randn(count, rows, columns, device=rig.device, dtype=torch.bfloat16))
    return [getattr(layer, part) for layer in layers[:12]]


def _matrix_us(rig: Rig, case: Case, stack: list[Tensor], cublas: bool = False) -> float:
    try:
        ops = stage_kernels.tuned(case)
        ops.cublas_from = 0 if cublas else 10_000
        out, *rest = stage_kernels.inputs(case)
        all_inputs = [stage_kernels.with_weight(case, rest, weight) for weight in stack]

        def work() -> None:
            for some in all_inputs:
                getattr(ops, case.op)(out, *some)

        return 1e3 * timed(_inference(work, rig), 10) / len(stack)
    except Exception as error:  # noqa: BLE001 - a tile that does not fit is a row of the table
        print(f"  {case}: {type(error).__name__} {str(error)[:120]}")
        return 1e9


def _frames(rig: Rig) -> dict[str, Any]:
    """The frame graph by batch and variant, with its parts, and how far its logits are from the plain way's."""
    table: dict[str, Any] = {}
    print(
        "frame graph ms: whole, talker, predictor; error: of all 16 logits, codes given, against plain torch in bf16"
    )
    for batch in BATCHES:
        plain = _forced_logits(rig, PlainOps(), batch)
        for name, ops in _variants(rig, batch).items():
            try:
                told = _frame_ms(rig, ops, batch)
                logits = _forced_logits(rig, ops, batch)
                told["error"] = max(_distance(*pair) for pair in zip(logits, plain, strict=True))
            except Exception as error:  # noqa: BLE001 - the other variants still count
                print(f"  B={batch} {name}: {type(error).__name__} {str(error)[:200]}")
                continue
            table[f"{name} {batch}"] = told
            shown = " ".join(f"{key} {value:.3f}" for key, value in told.items())
            print(f"  B={batch:<3} {name:10} {shown}", flush=True)
    return table


def _variants(rig: Rig, batch: int) -> dict[str, TritonOps]:
    found: dict[str, TritonOps] = {}
    for pdl in (False, True):
        end = "+pdl" if pdl else ""
        if batch < 5:
            found[f"registers{end}"] = TritonOps(pdl, dot_from=5)
        found[f"mixed{end}"] = TritonOps(pdl, dot_from=2)
    if rig.tiles:
        found["swept"] = TritonOps(dot_from=2, tiles=_tiles_near(rig, batch))
    return found | {"cublas": TritonOps(cublas_from=1)}


def _tiles_near(rig: Rig, batch: int) -> dict[tuple[str, int, int, int], Tile | None]:
    """What the sweep found for the nearest batch of the same kind, for these rows and for twice as many."""
    found: dict[tuple[str, int, int, int], Tile | None] = {}
    for rows in (batch, 2 * batch):
        known = 1 if rows == 1 else max(size for size in stage_kernels.SWEPT if size <= max(rows, 8))
        if rows <= 64:
            found |= {(*key[:3], rows): tile for key, tile in rig.tiles.items() if key[3] == known}
    return found


def _distance(got: Tensor, expected: Tensor) -> float:
    return float((got.float() - expected.float()).norm() / expected.float().norm())


def _norm_factor(of: Any) -> Any:
    return (of.x.square().mean(1, keepdim=True) + 1e-6).rsqrt()


class Forced:
    """Operations that choose given codes and remember the logits: what teacher forcing is."""

    def __init__(self, ops: Any, codes: Tensor) -> None:
        self._ops, self._codes = ops, codes
        self.logits: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def choose(self, logits: Tensor, slots: Tensor, arena: Arena, pick: Any) -> None:  # noqa: ARG002
        """Keep the logits, put the given code's row where the next pass finds it."""
        scale = 1.0 if isinstance(self._ops, PlainOps) else _norm_factor(pick.of)
        self.logits.append(logits.float() * scale)
        if pick.next is not None:
            pick.next.x.copy_(pick.table[self._codes[: len(logits), pick.group]])
            pick.next.settle(pick.following)


@torch.inference_mode()
def _forced_logits(rig: Rig, ops: Any, batch: int) -> list[Tensor]:
    rig.reset()
    generator = torch.Generator().manual_seed(3)
    codes = torch.randint(2048, (batch, 16), generator=generator).to(rig.device)
    forced: Any = Forced(ops, codes)
    frames.make_frame(forced, rig.weights, rig.arena, _some_rows(rig, batch))
    torch.cuda.synchronize()
    return forced.logits


def _some_rows(rig: Rig, batch: int) -> frames.Rows:
    rows = frames.new_rows(rig.weights, batch, rig.arena.spare)
    rows.slots[:] = (torch.arange(batch, device=rig.device) * 37 % SLOTS).int()
    return rows


@torch.inference_mode()
def _frame_ms(rig: Rig, ops: TritonOps, batch: int) -> dict[str, float]:
    args = (ops, rig.weights, rig.arena, _some_rows(rig, batch))
    parts: dict[str, Callable[[], None]] = {
        "whole": lambda: frames.make_frame(*args),
        "talker": lambda: frames.talker_step(*args),
        "predictor": lambda: frames.more_codes(*args),
    }
    if batch in (1, 32):
        parts["unsampled"] = lambda: frames.more_codes(*args, sampling=False)
    return {key: timed(_inference(work, rig), 20, rig.reset) for key, work in parts.items()}


def _inference(work: Callable[[], None], rig: Rig, stream: Any = None) -> Captured:
    with torch.inference_mode():
        return Captured(work, rig.device, stream=stream)


def _codec(rig: Rig) -> dict[str, Any]:
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


def _fused(rig: Rig) -> dict[str, Any]:
    """The codec by Triton kernels: both bf16 ways against float32 over ragged chunks, then ms by frames and batch."""
    codec, table = rig.model.codec, dict[str, Any]()
    with torch.inference_mode():
        rig.reset()
        wide = widened(codec)
        fused = FusedCodec(codec, SLOTS)
        lane = FusedLane(fused, rig.arena, 512)
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
    table["error"] = {"fused": _distance(ours, right), "torch bf16": _distance(plain, right)}
    print(f"fused codec: error against float32 {table['error']}", flush=True)
    for count in (1, 2, 4, 8, 16):
        shown: list[str] = []
        for batch in (1, 4, 8, 32):
            buffers = new_codec_rows(codec, count, batch, rig.arena.spare)
            buffers.rows[:, 0] = torch.arange(batch)
            ms = timed(_inference(lambda b=buffers, c=count: lane.step(b, c), rig), 10)
            table[f"{count}x{batch}"] = ms
            shown.append(f"{batch}: {ms:.2f} ({1e3 * ms / count / batch:.0f})")
        print(f"  {count:>2} frames  " + "  ".join(shown), flush=True)
    return table


def _codec_graph(rig: Rig, states: Any, count: int, batch: int, stream: Any = None) -> Captured:
    buffers = new_codec_rows(rig.model.codec, count, batch, rig.arena.spare)
    buffers.rows[:, 0] = torch.arange(batch)
    buffers.rows[:, 3] = 0
    return _inference(lambda: render(rig.model.codec, states, rig.arena, buffers, count), rig, stream)


@torch.inference_mode()
def _overlap(rig: Rig) -> dict[str, Any]:
    """Frame cycles with codec launches beside them, and the other way round."""
    table: dict[str, Any] = {}
    print("overlap: frame ms alone -> beside, codec ms alone -> beside; priorities as CUDA counts them")
    fused = FusedCodec(rig.model.codec, SLOTS)
    for batch, count, codec_rows in ((1, 1, 1), (4, 2, 1), (8, 16, 2), (16, 16, 2), (16, 8, 8)):
        for pdl, priorities in (
            (False, (0, 0)),
            (False, (-1, 0)),
            (False, (0, -3)),
            (True, (0, -3)),
            (True, (-1, 0)),
        ):
            shape, ops = (batch, count, codec_rows), TritonOps(pdl=pdl, dot_from=2)
            told = _overlapped(rig, fused, shape, ops, priorities)
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
    frame = _inference(lambda: frames.make_frame(ops, rig.weights, rig.arena, rows), rig, one)
    lane = FusedLane(fused, rig.arena, count * codec_rows)
    buffers = new_codec_rows(rig.model.codec, count, codec_rows, rig.arena.spare)
    buffers.rows[:, 0] = torch.arange(codec_rows)
    codec = _inference(lambda: lane.step(buffers, count), rig, other)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
