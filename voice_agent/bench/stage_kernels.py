"""Triton kernels of the frame graph checked against their plain twins at the published shapes, and timed by tile.

Checks run in processes of their own, which also compiles every kernel in parallel; what they compiled is found again in
Triton's cache by the process that measures. Needs a GPU.
"""

import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

TALKER = {"qkv": (4096, 2048), "out": (2048, 2048), "gate_up": (12288, 2048), "down": (2048, 6144)}
PREDICTOR = {"qkv": (4096, 1024), "out": (1024, 2048), "gate_up": (6144, 1024), "down": (1024, 3072)}
KERNELS = {"qkv": "norm_linear", "gate_up": "norm_swiglu", "out": "add_linear", "down": "add_linear"}
HEADS = {"first head": (3072, 2048), "head": (2048, 1024)}
TILES = [(4, 512, 4, 1), (8, 512, 4, 1), (8, 1024, 4, 1), (4, 1024, 2, 1), (4, 2048, 4, 1), (8, 2048, 8, 1)]
DOT_TILES = [
    (16, 256, 4, 3),
    (16, 128, 4, 5),
    (32, 128, 4, 4),
    (32, 64, 4, 6),
    (64, 64, 4, 5),
    (64, 128, 4, 3),
    (64, 128, 8, 4),
]
WORKERS, FEW = 14, 5
SWEPT = (1, 8, 32)


@dataclass(frozen=True)
class Case:
    """One kernel at one shape; `tile` None takes the default."""

    op: str
    rows: int
    columns: int
    batch: int
    tile: tuple[int, int, int, int] | None = None
    pdl: bool = False


def matrices() -> list[tuple[str, str, int, int]]:
    """Name, kernel, weight rows and columns of every matrix of the frame."""
    found = [(f"talker {n}", KERNELS[n], *shape) for n, shape in TALKER.items()]
    found += [(f"predictor {n}", KERNELS[n], *shape) for n, shape in PREDICTOR.items()]
    found.append(("narrow", "enter", 1024, 2048))
    return found + [(name, "norm_linear", *shape) for name, shape in HEADS.items()]


def cases(sweep: bool) -> list[Case]:
    """All checks: defaults with and without PDL, then the tiles that are to be timed."""
    found = [
        Case(op, 0, 0, 3, None, pdl)
        for op in ("attend", "attend16", "attend_two", "input_rows", "choose0", "choose1", "choose15")
        for pdl in (False, True)
    ]
    for _, kernel, rows, columns in matrices():
        found += [
            Case(kernel, rows, columns, batch, None, pdl)
            for batch in (1, 2, 4, 8, 32, 64, 128)
            for pdl in (False, True)
        ]
        if sweep:
            found += [
                Case(kernel, rows, columns, batch, tile)
                for batch in SWEPT
                for tile in tiles_for(kernel, columns, batch)
            ]
    return found


def tiles_for(kernel: str, columns: int, batch: int) -> list[tuple[int, int, int, int]]:
    """What is worth a try for a matrix."""
    few = batch < FEW
    fits = [tile for tile in (TILES if few else DOT_TILES) if columns % tile[1] == 0]
    sums = kernel in ("add_linear", "enter")  # whole grains of squares
    return [tile for tile in fits if tile[0] <= 32 or not sums] if not few else fits


def with_weight(case: Case, rest: list[Any], weight: Any) -> list[Any]:
    """The inputs behind the output with another weight in place."""
    place = {"add_linear": 1, "enter": 2}.get(case.op, len(rest) - 1)
    held = (weight, rest[2][1]) if case.op == "enter" else weight
    return [*rest[:place], held, *rest[place + 1 :]]


def check_all(todo: list[Case], limit_s: float) -> dict[Case, str]:
    """Each case's verdict: 'ok ERROR' or what went wrong."""
    verdicts: dict[Case, str] = {}
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        waiting = {case: pool.submit(check, case) for case in todo}
        for case, future in waiting.items():
            try:
                verdicts[case] = future.result(timeout=limit_s)
            except Exception as error:  # noqa: BLE001 - one kernel's failure is a row of the table
                verdicts[case] = f"FAILED {type(error).__name__} {error}"
    return verdicts


def check(case: Case) -> str:
    """Run a case in both ways."""
    try:
        return _check(case)
    except Exception as error:  # noqa: BLE001 - told in the table
        return f"FAILED {type(error).__name__}: {str(error)[:300]} @ {traceback.format_exc().splitlines()[-3][:200]}"


def _check(case: Case) -> str:
    import torch

    from voice_agent.models.qwen3_tts.plain_ops import PlainOps

    torch.manual_seed(case.rows + case.batch)
    ops, plain = tuned(case), PlainOps()
    if case.op.startswith("choose"):
        return _check_choose(ops, plain, int(case.op[6:]))
    if case.op == "attend_two":
        return _check_attend_two(ops, plain)
    if case.op.startswith("attend"):
        return _check_attend(ops, plain, case.op == "attend")
    if case.op == "input_rows":
        return _check_inputs(ops, plain)
    out, *rest = inputs(case)
    results = [_copied(out), _copied(out)]
    for which, result in zip((ops, plain), results, strict=True):
        getattr(which, case.op)(result, *rest)
    if case.op in ("add_linear", "enter"):
        return _residual_verdict(results[0], results[1], rest[-1])
    scale = _norm_factor(rest[0]) if case.op == "norm_linear" else 1.0
    return _verdict(results[0] * scale, results[1], 0.02)


def _copied(out: Any) -> Any:
    return (
        type(out)(out.x.clone(), out.ready.clone(), out.squares.clone()) if hasattr(out, "x") else out.clone()
    )


def _norm_factor(of: Any) -> Any:
    """What the kernels leave out of a norm's product."""
    return (of.x.square().mean(1, keepdim=True) + 1e-6).rsqrt()


def _residual_verdict(got: Any, expected: Any, following: Any) -> str:
    """The sum, and that what goes with it belongs to it."""
    settled = _copied(got)
    settled.settle(following)
    for part, right in ((got.ready, settled.ready), (got.squares, settled.squares)):
        told = _verdict(part, right, 0.01)
        if not told.startswith("ok"):
            return f"beside the sum {told}"
    return _verdict(got.x, expected.x, 0.02)


def tuned(case: Case) -> Any:
    """Operations with the case's tile."""
    from voice_agent.models.qwen3_tts.triton_ops import Tile, TritonOps

    ops = TritonOps(pdl=case.pdl)
    if case.tile:
        ops.tiles[(case.op, case.rows, case.columns, case.batch)] = Tile(*case.tile)
    return ops


def inputs(case: Case) -> list[Any]:
    """Output, x and what belongs to the kernel; for matrices the weight comes last or, where a sum is left, before."""
    import torch

    def made(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Any:
        return torch.randn(shape, device="cuda").to(dtype)

    weight = made(case.rows, case.columns) * case.columns**-0.5
    norm, following = 1 + 0.1 * made(case.columns), 1 + 0.1 * made(case.rows)
    if case.op == "add_linear":
        return [residual(case.batch, case.rows, following), made(case.batch, case.columns), weight, following]
    x = residual(case.batch, case.columns, norm)
    if case.op == "enter":
        narrow = weight, made(case.rows)
        return [residual(case.batch, case.rows, following), x, norm, narrow, following]
    out = made(case.batch, case.rows // (2 if case.op == "norm_swiglu" else 1))
    return [out, x, norm, weight]


def residual(batch: int, width: int, norm: Any, grain: int | None = None) -> Any:
    """A random sum, ready for a reader with this norm."""
    import torch

    from voice_agent.models.qwen3_tts.frame import grain_for, new_residual

    made = new_residual(batch, width, grain or grain_for(batch), norm)
    made.x.copy_(3 * torch.randn(made.x.shape, device=made.x.device))
    made.settle(norm)
    return made


def _verdict(got: Any, expected: Any, most: float) -> str:
    error = float((got.float() - expected.float()).norm() / expected.float().norm())
    return f"ok {error:.1e}" if error < most else f"WRONG {error:.2e}"


def _arena() -> Any:
    import torch

    from voice_agent.models.qwen3_tts.arena import Start, new_arena
    from voice_agent.models.qwen3_tts.config import TalkerConfig

    config = TalkerConfig(num_hidden_layers=1)
    arena = new_arena(config, 4, 256, 64, torch.zeros(1, device="cuda", dtype=torch.bfloat16))
    arena.kv.normal_()
    arena.codes.random_(0, 2048)
    arena.text.random_(0, 1000)
    for slot in range(4):
        words = Start(9 + 60 * slot, 20, 5 + slot).words()
        words[1] = 3 * slot
        words[7] = 8 if slot == 3 else 0  # of a clip
        arena.state[slot] = torch.tensor(words, dtype=torch.int32)
    return arena


def _check_attend(ops: Any, plain: Any, by_slot: bool) -> str:
    import torch

    from voice_agent.models.qwen3_tts.frame_parts import Attention
    from voice_agent.models.qwen3_tts.transformer import rope

    arena, slots = _arena(), torch.tensor([2, 0, 3], device="cuda", dtype=torch.int32)
    cos, sin = (t[:, 0].contiguous() for t in rope(torch.arange(256, device="cuda"), 128, 1e6, torch.float32))
    qkv = torch.randn(3, 4096, device="cuda").to(torch.bfloat16)
    norms: Any = [(1 + 0.1 * torch.randn(128, device="cuda")).to(torch.bfloat16) for _ in range(2)]
    of = residual(3, 1024, torch.ones(1024, device="cuda", dtype=torch.bfloat16))
    results: list[Any] = []
    caches: list[Any] = []
    for which in (ops, plain):
        kv = arena.kv[0].clone() if by_slot else arena.kv[0, :, :, :16].clone()
        parts = Attention(kv, slots, arena.state if by_slot else None, 7, *norms, cos, sin, 16, 8, of)
        out = torch.zeros(3, 2048, device="cuda", dtype=torch.bfloat16)
        which.attend(out, qkv if which is ops else qkv.float() * _norm_factor(of), parts)
        results.append(out)
        caches.append(kv)
    cache = _verdict(caches[0], caches[1], 0.01)
    return _verdict(results[0], results[1], 0.02) if cache.startswith("ok") else f"cache {cache}"


def _check_attend_two(ops: Any, plain: Any) -> str:
    import torch

    from voice_agent.models.qwen3_tts.frame_parts import Attention
    from voice_agent.models.qwen3_tts.transformer import rope

    cos, sin = (t[:, 0].contiguous() for t in rope(torch.arange(16, device="cuda"), 128, 1e6, torch.float32))
    qkv = torch.randn(6, 4096, device="cuda").to(torch.bfloat16)
    norms: Any = [(1 + 0.1 * torch.randn(128, device="cuda")).to(torch.bfloat16) for _ in range(2)]
    of = residual(6, 1024, torch.ones(1024, device="cuda", dtype=torch.bfloat16))
    places, results, caches = torch.arange(3, device="cuda"), list[Any](), list[Any]()
    for which in (ops, plain):
        kv = torch.ones(3, 2, 16, 8, 128, device="cuda", dtype=torch.bfloat16)
        parts = Attention(kv, places, None, 0, *norms, cos, sin, 16, 8, of)
        out = torch.zeros(6, 2048, device="cuda", dtype=torch.bfloat16)
        which.attend_two(out, qkv if which is ops else qkv.float() * _norm_factor(of), parts)
        results.append(out)
        caches.append(kv)
    cache = _verdict(caches[0], caches[1], 0.01)
    return _verdict(results[0], results[1], 0.02) if cache.startswith("ok") else f"cache {cache}"


def _check_inputs(ops: Any, plain: Any) -> str:
    import torch

    from voice_agent.models.qwen3_tts.frame_parts import Inputs

    tables = [
        torch.randn(*shape, device="cuda").to(torch.bfloat16)
        for shape in ((1000, 2048), (3072, 2048), (15, 2048, 2048))
    ]
    arena, slots = _arena(), torch.tensor([2, 0, 3], device="cuda", dtype=torch.int32)
    norm = 1 + 0.1 * torch.randn(2048, device="cuda").to(torch.bfloat16)
    results = [residual(3, 2048, norm) for _ in range(2)]
    for which, out in zip((ops, plain), results, strict=True):
        which.input_rows(out, slots, arena, Inputs(tables[0], tables[1], tables[2], 7, 2149), norm)
    return _residual_verdict(results[0], results[1], norm)


def _check_choose(ops: Any, plain: Any, group: int) -> str:
    """Same codes but for ties at the threshold and rounding: 3 rows, 40 draws each."""
    import torch

    from voice_agent.models.qwen3_tts.frame_parts import Pick

    vocab, same, total = 3072 if group == 0 else 2048, 0, 0
    table = torch.randn(vocab, 1024, device="cuda").to(torch.bfloat16)
    norm = 1 + 0.1 * torch.randn(1024, device="cuda").to(torch.bfloat16)
    of = residual(3, 2048 if group == 0 else 1024, torch.ones(1, device="cuda", dtype=torch.bfloat16))
    slots = torch.tensor([2, 0, 3], device="cuda", dtype=torch.int32)
    for _ in range(40):
        logits = (6 * torch.randn(3, vocab, device="cuda")).to(torch.bfloat16)
        arena, answers = _arena(), []
        arena.seen.random_(0, 2)
        seen = arena.seen.clone()
        for which in (ops, plain):
            arena.seen.copy_(seen)
            state = arena.state.clone()
            result = torch.full((3,), 9, device="cuda", dtype=torch.int32)
            ahead, last = residual(3, 1024, norm), group == 15
            seen_logits = logits if which is ops else logits.float() * _norm_factor(of)
            follow = (None, None, None) if last else (table, ahead, norm)
            which.choose(seen_logits, slots, arena, Pick(group, 2150, result, of, *follow))
            places = arena.state[slots.long(), 1].long() if not last else state[slots.long(), 1].long()
            code = arena.codes[slots.long(), places, group]
            told = torch.equal(result, code) if group == 0 else bool((result == 9).all())
            moved = last or torch.equal(ahead.x, table[code.long()].float())
            moved &= which is plain or _residual_verdict(ahead, ahead, norm).startswith("ok") or last
            answers.append((code, arena.seen.clone(), arena.state.clone(), told and moved))
            arena.state.copy_(state)
        same += int((answers[0][0] == answers[1][0]).sum())
        total += 3
        if not (answers[0][3] and answers[1][3] and torch.equal(answers[0][2], answers[1][2])):
            return f"WRONG bookkeeping {answers}"[:300]
    return f"ok {1 - same / total:.1e}" if same / total > 0.95 else f"WRONG {same}/{total} codes alike"
