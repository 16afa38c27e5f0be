"""All layers of a stack for a few rows in one launch: programs stay, and meet where one's sums are another's input.

A kernel of its own for each step costs more than the bytes it moves when rows are few. Here every program fetches the
weights of its next step before it waits for the others. As many programs as multiprocessors, so that all of them are
there at once; nothing else waits for them. Triton's interpreter runs one program after the other, so a test launches
each step by itself (`ONLY`). See kernels for what the steps are.
"""
# pyright: basic, reportMissingImports=false

import triton
import triton.language as tl

from voice_agent.models.qwen3_tts.kernels import _attend_head, _factor

STEPS = 5  # of a layer: qkv, heads, out, gate and up, down


@triton.jit
def _meet(count_ptr, target):
    """Wait until all programs came here; what they stored before is seen after."""
    tl.debug_barrier()
    came = tl.atomic_add(count_ptr, 1, sem="acq_rel", scope="gpu") + 1
    while came < target:
        came = tl.atomic_add(count_ptr, 0, sem="acq_rel", scope="gpu")
    tl.debug_barrier()


@triton.jit
def _weights(w_ptr, rows, real, K: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr):
    """Some rows of a matrix, the PART-th BLOCK columns of them."""
    at = PART * BLOCK + tl.arange(0, BLOCK)
    return tl.load(w_ptr + rows.to(tl.int64)[:, None] * K + at[None, :], mask=real[:, None], other=0.0)


@triton.jit
def _weights_of(w_ptr, rows, N, K: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """All columns of some rows, in up to three parts; nothing is fetched for rows from N on."""
    w0 = _weights(w_ptr, rows, rows < N, K, BLOCK, 0)
    w1 = w0
    w2 = w0
    if PARTS == 3:
        w1 = _weights(w_ptr, rows, rows < N, K, BLOCK, 1)
        w2 = _weights(w_ptr, rows, rows < N, K, BLOCK, 2)
    return w0, w1, w2


@triton.jit
def _sums(w0, w1, w2, x_ptr, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """Rows of weights, in up to three parts, times one row of x."""
    at = tl.arange(0, BLOCK)
    total = tl.sum(w0.to(tl.float32) * tl.load(x_ptr + at).to(tl.float32)[None, :], 1)
    if PARTS == 3:
        total += tl.sum(w1.to(tl.float32) * tl.load(x_ptr + BLOCK + at).to(tl.float32)[None, :], 1)
        total += tl.sum(w2.to(tl.float32) * tl.load(x_ptr + 2 * BLOCK + at).to(tl.float32)[None, :], 1)
    return total


@triton.jit
def _add(
    sum_ptr, ready_ptr, squares_ptr, x_ptr, w_ptr, norm_ptr, count_ptr, target,
    B: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, GRAIN: tl.constexpr,
    PROGRAMS: tl.constexpr, MEETS: tl.constexpr,
):  # fmt: skip
    """sum [B, N] += x @ w.T, left ready for its reader."""
    parts: tl.constexpr = K // BLOCK
    turn = tl.arange(0, ROWS)
    rows = tl.program_id(0) * ROWS + turn
    w0, w1, w2 = _weights_of(w_ptr, rows, N, K, BLOCK, parts)
    if MEETS:
        _meet(count_ptr, target)
    for first in tl.range(0, N // ROWS, PROGRAMS, num_stages=1):
        tile = first + tl.program_id(0)
        rows = tile * ROWS + turn
        real = rows < N
        norm = tl.load(norm_ptr + rows, mask=real, other=0.0).to(tl.float32)
        next0, next1, next2 = _weights_of(w_ptr, rows + PROGRAMS * ROWS, N, K, BLOCK, parts)
        for b in tl.static_range(B):
            where = b * N + rows
            x = tl.load(sum_ptr + where, mask=real, other=0.0) + _sums(
                w0, w1, w2, x_ptr + b * K, BLOCK, parts
            )
            tl.store(sum_ptr + where, x, mask=real)
            tl.store(ready_ptr + where, (x * norm).to(ready_ptr.dtype.element_ty), mask=real)
            squares = tl.sum(tl.reshape(x * x, (ROWS // GRAIN, GRAIN)), 1)
            place = tile * (ROWS // GRAIN) + tl.arange(0, ROWS // GRAIN)
            tl.store(squares_ptr + b * (N // GRAIN) + place, squares, mask=place < N // GRAIN)
        w0 = next0
        w1 = next1
        w2 = next2


@triton.jit
def _swiglu(
    out_ptr, x_ptr, squares_ptr, w_ptr, count_ptr, target, eps,
    B: tl.constexpr, F: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, GRAIN: tl.constexpr,
    PROGRAMS: tl.constexpr, MEETS: tl.constexpr,
):  # fmt: skip
    """out [B, F] = silu(gate) * up of norm(x); ROWS counts rows of gate and up together, taken in turn."""
    turn = tl.arange(0, ROWS)
    columns = tl.program_id(0) * (ROWS // 2) + turn // 2
    w = _weights(w_ptr, columns + turn % 2 * F, columns < F, K, K, 0)
    if MEETS:
        _meet(count_ptr, target)
    for first in tl.range(0, 2 * F // ROWS, PROGRAMS, num_stages=1):
        tile = first + tl.program_id(0)
        ahead = (tile + PROGRAMS) * (ROWS // 2) + turn // 2
        following = _weights(w_ptr, ahead + turn % 2 * F, ahead < F, K, K, 0)
        fed = tile * (ROWS // 2) + tl.arange(0, ROWS // 2)
        for b in tl.static_range(B):
            total = _sums(w, w, w, x_ptr + b * K, K, 1) * _factor(squares_ptr, b, K // GRAIN, K, eps)
            gate, up = tl.split(tl.reshape(total, (ROWS // 2, 2)))
            value = gate * tl.sigmoid(gate) * up
            tl.store(out_ptr + b * F + fed, value.to(out_ptr.dtype.element_ty), mask=fed < F)
        w = following


@triton.jit
def _linear(
    out_ptr, x_ptr, w_ptr, count_ptr, target,
    B: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, PROGRAMS: tl.constexpr,
    MEETS: tl.constexpr,
):  # fmt: skip
    """out [B, N] = x @ w.T; the norm's factor is left to the reader. A target of 0: nobody is to be waited for."""
    turn = tl.arange(0, ROWS)
    rows = tl.program_id(0) * ROWS + turn
    w = _weights(w_ptr, rows, rows < N, K, K, 0)
    if MEETS:  # noqa: SIM102 - known when compiled, what follows is not
        if target > 0:
            _meet(count_ptr, target)
    for first in tl.range(0, N // ROWS, PROGRAMS, num_stages=1):
        rows = (first + tl.program_id(0)) * ROWS + turn
        ahead = rows + PROGRAMS * ROWS
        following = _weights(w_ptr, ahead, ahead < N, K, K, 0)
        for b in tl.static_range(B):
            total = _sums(w, w, w, x_ptr + b * K, K, 1)
            tl.store(out_ptr + b * N + rows, total.to(out_ptr.dtype.element_ty), mask=rows < N)
        w = following


@triton.jit
def _pointer(table_ptr, number, like_ptr):
    """An address out of the table; tensors begin at multiples of 16 bytes at least."""
    return tl.multiple_of(tl.load(table_ptr + number).to(like_ptr.dtype), 16)


@triton.jit(do_not_specialize=["position", "layer_stride", "first_layer", "end_layer"])
def stack(
    table_ptr, sum_ptr, ready_ptr, squares_ptr, qkv_ptr, seen_ptr, fed_ptr, kv_ptr, layer_stride, slots_ptr, state_ptr,
    position, cos_ptr, sin_ptr, count_ptr, eps, first_layer, end_layer,
    LAYERS: tl.constexpr, B: tl.constexpr, H: tl.constexpr, F: tl.constexpr, GRAIN: tl.constexpr, LENGTH: tl.constexpr,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, BLOCK_L: tl.constexpr, BY_SLOT: tl.constexpr,
    STATE: tl.constexpr, WIDE: tl.constexpr, NARROW: tl.constexpr, OUT_BLOCK: tl.constexpr, DOWN_BLOCK: tl.constexpr,
    PROGRAMS: tl.constexpr, ONLY: tl.constexpr,
):  # fmt: skip
    """Layers `first_layer` to `end_layer` of B rows; WIDE and NARROW are matrix rows of a program at a time.

    With ONLY, a step's number, programs do not meet and the other steps are left out.
    """
    meets: tl.constexpr = ONLY < 0
    heads: tl.constexpr = (HEADS + 2 * KV_HEADS) * D
    target = tl.full((), 0, tl.int64)
    if meets:  # every launch adds the same to the count; before the first meeting nobody is in the next round
        round_: tl.constexpr = PROGRAMS * (LAYERS * 5 - 1)
        target = tl.atomic_add(count_ptr, 0, sem="acq_rel", scope="gpu") // round_ * round_
    for layer in range(first_layer, end_layer):
        row = table_ptr + layer * 8
        if ONLY < 0 or ONLY == 0:
            wait = target
            if layer == 0:
                wait = target * 0
            w_ptr = _pointer(row, 0, ready_ptr)
            _linear(qkv_ptr, ready_ptr, w_ptr, count_ptr, wait, B, heads, H, WIDE, PROGRAMS, meets)
        if ONLY < 0 or ONLY == 1:
            mine_ptr = kv_ptr + layer_stride.to(tl.int64) * layer
            query_norm_ptr = _pointer(row, 4, ready_ptr)
            key_norm_ptr = _pointer(row, 5, ready_ptr)
            if meets:
                target += PROGRAMS
                _meet(count_ptr, target)
            for task in range(tl.program_id(0), B * HEADS, PROGRAMS):
                b = task // HEADS
                _attend_head(
                    seen_ptr, qkv_ptr, mine_ptr, slots_ptr, state_ptr, position, query_norm_ptr, key_norm_ptr, cos_ptr,
                    sin_ptr, squares_ptr, eps, b, task % HEADS, H, H // GRAIN, LENGTH, HEADS, KV_HEADS, D, BLOCK_L,
                    BY_SLOT, STATE,
                )  # fmt: skip
        target += PROGRAMS
        if ONLY < 0 or ONLY == 2:
            _add(
                sum_ptr, ready_ptr, squares_ptr, seen_ptr, _pointer(row, 1, ready_ptr), _pointer(row, 6, ready_ptr),
                count_ptr, target, B, H, HEADS * D, NARROW, OUT_BLOCK, GRAIN, PROGRAMS, meets,
            )  # fmt: skip
        target += PROGRAMS
        if ONLY < 0 or ONLY == 3:
            _swiglu(
                fed_ptr, ready_ptr, squares_ptr, _pointer(row, 2, ready_ptr), count_ptr, target, eps, B, F, H, WIDE,
                GRAIN, PROGRAMS, meets,
            )  # fmt: skip
        target += PROGRAMS
        if ONLY < 0 or ONLY == 4:
            _add(
                sum_ptr, ready_ptr, squares_ptr, fed_ptr, _pointer(row, 3, ready_ptr), _pointer(row, 7, ready_ptr),
                count_ptr, target, B, H, F, NARROW, DOWN_BLOCK, GRAIN, PROGRAMS, meets,
            )  # fmt: skip
        target += PROGRAMS
