"""The parts of `speech_stages`, behind its command line: the kernels' checks, matrices by tile, the frame graph.

The codec's are in stage_codec. Imports torch and triton.
"""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

from voice_agent.bench import stage_codec, stage_kernels
from voice_agent.bench.stage_kernels import Case
from voice_agent.bench.stage_rig import SLOTS, Rig, Tensor, captured, distance, new_rig, timed
from voice_agent.models.qwen3_tts import frame as frames
from voice_agent.models.qwen3_tts.arena import Arena
from voice_agent.models.qwen3_tts.plain_ops import PlainOps
from voice_agent.models.qwen3_tts.triton_ops import Tile, TritonOps

BATCHES = (1, 2, 4, 8, 16, 32, 64)


def run(options: argparse.Namespace) -> int:
    """Run the parts that were asked for; 1 if a kernel is wrong or a part failed, 2 without a GPU."""
    if not torch.cuda.is_available():
        print("speech_stages needs a GPU", file=sys.stderr)
        return 2
    began, parts, failed = time.monotonic(), options.parts, False
    device = torch.device("cuda")
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    if "check" in parts:
        found["kernels"] = _checks(not options.no_sweep)
        print(f"[{time.monotonic() - began:.0f} s] kernels checked", flush=True)
    rig = new_rig(device, found)
    for name, part in (
        ("tiles", _tiles),
        ("frames", _frames),
        ("codec", stage_codec.plain),
        ("overlap", stage_codec.overlap),
        ("fused", stage_codec.fused),
        ("first", stage_codec.first_decode),
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

        return 1e3 * timed(captured(work, rig), 10) / len(stack)
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
                told["error"] = max(distance(*pair) for pair in zip(logits, plain, strict=True))
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
    return {key: timed(captured(work, rig), 20, rig.reset) for key, work in parts.items()}
