"""Triton kernels of the frame graph: few launches, every weight read once, no float of a row more than is needed.

Each is launched by a function of the same meaning in triton_ops, whose plain twin is in plain_ops. With PDL a kernel
starts while its forerunner still runs and waits (`gdc_wait`) before it reads anything that was written before it;
weights never change, so they may be fetched earlier. Row b of everything belongs to slot `slots[b]`. Whoever writes a
residual sum writes it times the next norm's weight and its squares besides (see frame_parts.Residual).
"""
# pyright: basic, reportMissingImports=false

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _products(
    x_ptr,
    w_ptr,
    rows,
    B,
    BB: tl.constexpr,
    K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    DOT: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """Rows `rows` of w times each row of x, [BB, BLOCK_N] float32."""
    batch = tl.arange(0, BB)
    if DOT:
        if PDL:
            gdc_wait()
            gdc_launch_dependents()
        acc = tl.zeros((BLOCK_N, BB), tl.float32)
        for start in tl.range(0, K, BLOCK_K, num_stages=STAGES):
            at = start + tl.arange(0, BLOCK_K)
            w = tl.load(w_ptr + rows[:, None] * K + at[None, :])
            x = tl.load(x_ptr + batch[:, None] * K + at[None, :], mask=batch[:, None] < B, other=0.0)
            acc = tl.dot(w, tl.trans(x), acc)
        result = tl.trans(acc)
    else:
        wide = tl.zeros((BB, BLOCK_N, BLOCK_K), tl.float32)
        first = tl.arange(0, BLOCK_K)
        w = tl.load(w_ptr + rows[:, None] * K + first[None, :])
        if PDL:
            gdc_launch_dependents()
            gdc_wait()
        for start in tl.range(0, K, BLOCK_K, num_stages=STAGES):
            at = start + tl.arange(0, BLOCK_K)
            x = tl.load(x_ptr + batch[:, None] * K + at[None, :], mask=batch[:, None] < B, other=0.0)
            x = x.to(tl.float32)
            if BLOCK_K < K:
                ahead = at + BLOCK_K
                following = tl.load(
                    w_ptr + rows[:, None] * K + ahead[None, :], mask=ahead[None, :] < K, other=0.0
                )
                wide += w.to(tl.float32)[None, :, :] * x[:, None, :]
                w = following
            else:
                wide += w.to(tl.float32)[None, :, :] * x[:, None, :]
        result = tl.sum(wide, 2)
    return result


@triton.jit
def _factors(squares_ptr, B, BB: tl.constexpr, PARTS: tl.constexpr, K: tl.constexpr, eps):
    """What makes each row's product one of its norm, [BB]."""
    batch = tl.arange(0, BB)
    where = squares_ptr + batch[:, None] * PARTS + tl.arange(0, PARTS)[None, :]
    parts = tl.load(where, mask=batch[:, None] < B, other=0.0)
    return tl.rsqrt(tl.sum(parts, 1) / K + eps)


@triton.jit
def _factor(squares_ptr, row, PARTS: tl.constexpr, K: tl.constexpr, eps):
    """The same of one row."""
    parts = tl.load(squares_ptr + row * PARTS + tl.arange(0, PARTS))
    return tl.rsqrt(tl.sum(parts, 0) / K + eps)


@triton.jit
def _leave(
    x, x_ptr, ready_ptr, squares_ptr, norm_ptr, row, at, first, K, WIDTH: tl.constexpr, GRAIN: tl.constexpr
):
    """Columns `at` (WIDTH of them from `first` on) of one row of a residual sum, for its next reader."""
    tl.store(x_ptr + row * K + at, x)
    ready = x * tl.load(norm_ptr + at).to(tl.float32)
    tl.store(ready_ptr + row * K + at, ready.to(ready_ptr.dtype.element_ty))
    squares = tl.sum(tl.reshape(x * x, (WIDTH // GRAIN, GRAIN)), 1)
    place = first // GRAIN + tl.arange(0, WIDTH // GRAIN)
    tl.store(squares_ptr + row * (K // GRAIN) + place, squares)


@triton.jit(do_not_specialize=["B"])
def norm_linear(
    out_ptr,
    x_ptr,
    w_ptr,
    N: tl.constexpr,
    K: tl.constexpr,
    B,
    BB: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    DOT: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """out [B, N] = norm(x) @ w.T but for the norm's factor, which is one number a row and left to the reader."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = _products(x_ptr, w_ptr, rows, B, BB, K, BLOCK_N, BLOCK_K, DOT, STAGES, PDL)
    batch = tl.arange(0, BB)
    where = out_ptr + batch[:, None] * N + rows[None, :]
    tl.store(where, acc.to(out_ptr.dtype.element_ty), mask=batch[:, None] < B)


@triton.jit(do_not_specialize=["B"])
def norm_swiglu(
    out_ptr,
    x_ptr,
    squares_ptr,
    w_ptr,
    eps,
    F: tl.constexpr,
    K: tl.constexpr,
    PARTS: tl.constexpr,
    B,
    BB: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    DOT: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """out [B, F] = silu(gate) * up of norm(x); BLOCK_N counts rows of gate and up together, taken in turn."""
    place = tl.arange(0, BLOCK_N)
    rows = tl.program_id(0) * (BLOCK_N // 2) + place // 2 + (place % 2) * F
    acc = _products(x_ptr, w_ptr, rows, B, BB, K, BLOCK_N, BLOCK_K, DOT, STAGES, PDL)
    acc = acc * _factors(squares_ptr, B, BB, PARTS, K, eps)[:, None]
    gate, up = tl.split(tl.reshape(acc, (BB, BLOCK_N // 2, 2)))
    fed = gate * tl.sigmoid(gate) * up
    batch = tl.arange(0, BB)
    columns = tl.program_id(0) * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)
    where = out_ptr + batch[:, None] * F + columns[None, :]
    tl.store(where, fed.to(out_ptr.dtype.element_ty), mask=batch[:, None] < B)


@triton.jit(do_not_specialize=["B"])
def add_linear(
    sum_ptr,
    ready_ptr,
    squares_ptr,
    x_ptr,
    of_ptr,
    w_ptr,
    bias_ptr,
    norm_ptr,
    eps,
    N: tl.constexpr,
    K: tl.constexpr,
    PARTS: tl.constexpr,
    GRAIN: tl.constexpr,
    B,
    BB: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ENTER: tl.constexpr,
    DOT: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """sum [B, N] += x @ w.T, or with ENTER = norm(x) @ w.T + bias; each element has one owner."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = _products(x_ptr, w_ptr, rows, B, BB, K, BLOCK_N, BLOCK_K, DOT, STAGES, PDL)
    batch = tl.arange(0, BB)
    real = batch[:, None] < B
    where = batch[:, None] * N + rows[None, :]
    if ENTER:
        acc = acc * _factors(of_ptr, B, BB, PARTS, K, eps)[:, None] + tl.load(bias_ptr + rows)[None, :].to(
            tl.float32
        )
    else:
        acc += tl.load(sum_ptr + where, mask=real, other=0.0)
    tl.store(sum_ptr + where, acc, mask=real)
    ready = acc * tl.load(norm_ptr + rows)[None, :].to(tl.float32)
    tl.store(ready_ptr + where, ready.to(ready_ptr.dtype.element_ty), mask=real)
    squares = tl.sum(tl.reshape(acc * acc, (BB, BLOCK_N // GRAIN, GRAIN)), 2)
    place = tl.program_id(0) * (BLOCK_N // GRAIN) + tl.arange(0, BLOCK_N // GRAIN)
    tl.store(squares_ptr + batch[:, None] * (N // GRAIN) + place[None, :], squares, mask=real)


@triton.jit
def settle(
    sum_ptr,
    ready_ptr,
    squares_ptr,
    more_ptr,
    norm_ptr,
    K: tl.constexpr,
    GRAIN: tl.constexpr,
    MORE: tl.constexpr,
    PDL: tl.constexpr,
):
    """sum [B, K] += more, made ready for its reader; one program a row."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    at = tl.arange(0, K)
    x = tl.load(sum_ptr + row * K + at)
    if MORE:
        x += tl.load(more_ptr + row * K + at).to(tl.float32)
    _leave(x, sum_ptr, ready_ptr, squares_ptr, norm_ptr, row, at, 0, K, K, GRAIN)


@triton.jit
def silu_mul(
    out_ptr,
    both_ptr,
    squares_ptr,
    eps,
    F: tl.constexpr,
    K: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    """out [B, F] = silu(gate) * up of [B, 2 F], which lack their rows' factor."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    factor = _factor(squares_ptr, row, PARTS, K, eps)
    gate = tl.load(both_ptr + row * 2 * F + at).to(tl.float32) * factor
    up = tl.load(both_ptr + row * 2 * F + F + at).to(tl.float32) * factor
    tl.store(out_ptr + row * F + at, (gate * tl.sigmoid(gate) * up).to(out_ptr.dtype.element_ty))


@triton.jit
def _normed_halves(ptr, norm_ptr, scale, cos, sin, eps, D: tl.constexpr):
    """A head's two halves, brought to scale, normed and turned."""
    half = tl.arange(0, D // 2)
    first = tl.load(ptr + half).to(tl.float32) * scale
    second = tl.load(ptr + D // 2 + half).to(tl.float32) * scale
    factor = tl.rsqrt((tl.sum(first * first, 0) + tl.sum(second * second, 0)) / D + eps)
    first = first * factor * tl.load(norm_ptr + half).to(tl.float32)
    second = second * factor * tl.load(norm_ptr + D // 2 + half).to(tl.float32)
    return first * cos - second * sin, second * cos + first * sin


@triton.jit
def _keep(kv_ptr, keys, values, first, second, value, D: tl.constexpr):
    """One head's key, in halves, and value at their place."""
    half = tl.arange(0, D // 2)
    tl.store(keys + half, first.to(kv_ptr.dtype.element_ty))
    tl.store(keys + D // 2 + half, second.to(kv_ptr.dtype.element_ty))
    tl.store(values + tl.arange(0, D), value.to(kv_ptr.dtype.element_ty))


@triton.jit(do_not_specialize=["position"])
def attend(
    out_ptr, qkv_ptr, kv_ptr, slots_ptr, state_ptr, position, query_norm_ptr, key_norm_ptr, cos_ptr, sin_ptr,
    squares_ptr, eps,
    H: tl.constexpr, PARTS: tl.constexpr, LENGTH: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
    D: tl.constexpr, BLOCK_L: tl.constexpr, BY_SLOT: tl.constexpr, STATE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One query head of one row: norm, turn, write key and value, attend to what lies before and to itself.

    BY_SLOT: the row's place in the cache is its slot and its position stands in the slot's state; otherwise it is the
    row's number and `position`.
    """
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    head = tl.program_id(1)
    group: tl.constexpr = HEADS // KV_HEADS
    kv_head = head // group
    if BY_SLOT:
        place = tl.load(slots_ptr + row).to(tl.int64)
        at = tl.load(state_ptr + place * STATE)
    else:
        place = tl.cast(row, tl.int64)
        at = position
    half = tl.arange(0, D // 2)
    whole = tl.arange(0, D)
    cos = tl.load(cos_ptr + at * (D // 2) + half)
    sin = tl.load(sin_ptr + at * (D // 2) + half)
    factor = _factor(squares_ptr, row, PARTS, H, eps)
    qkv_ptr += row * (HEADS + 2 * KV_HEADS) * D
    q1, q2 = _normed_halves(qkv_ptr + head * D, query_norm_ptr, factor, cos, sin, eps, D)
    k1, k2 = _normed_halves(qkv_ptr + (HEADS + kv_head) * D, key_norm_ptr, factor, cos, sin, eps, D)
    value = tl.load(qkv_ptr + (HEADS + KV_HEADS + kv_head) * D + whole).to(tl.float32) * factor
    keys = kv_ptr + place * (2 * LENGTH * KV_HEADS * D) + kv_head * D
    values = keys + LENGTH * KV_HEADS * D
    if head % group == 0:
        mine = at * (KV_HEADS * D)
        _keep(kv_ptr, keys + mine, values + mine, k1, k2, value, D)
    scale = 1.0 / tl.sqrt(D * 1.0)
    q1 = q1 * scale
    q2 = q2 * scale
    most = tl.sum(q1 * k1, 0) + tl.sum(q2 * k2, 0)
    total = most * 0.0 + 1.0
    acc = value
    for start in range(0, at, BLOCK_L):
        past = start + tl.arange(0, BLOCK_L)
        known = past < at
        offsets = past[:, None] * (KV_HEADS * D)
        p1 = tl.load(keys + offsets + half[None, :], mask=known[:, None], other=0.0).to(tl.float32)
        p2 = tl.load(keys + offsets + D // 2 + half[None, :], mask=known[:, None], other=0.0).to(tl.float32)
        v = tl.load(values + offsets + whole[None, :], mask=known[:, None], other=0.0).to(tl.float32)
        scores = tl.sum(p1 * q1[None, :], 1) + tl.sum(p2 * q2[None, :], 1)
        scores = tl.where(known, scores, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, 0))
        chances = tl.exp(scores - higher)
        fade = tl.exp(most - higher)
        acc = acc * fade + tl.sum(chances[:, None] * v, 0)
        total = total * fade + tl.sum(chances, 0)
        most = higher
    tl.store(out_ptr + (row * HEADS + head) * D + whole, (acc / total).to(out_ptr.dtype.element_ty))


@triton.jit(do_not_specialize=["B"])
def attend_two(
    out_ptr,
    qkv_ptr,
    kv_ptr,
    B,
    query_norm_ptr,
    key_norm_ptr,
    cos_ptr,
    sin_ptr,
    squares_ptr,
    eps,
    H: tl.constexpr,
    PARTS: tl.constexpr,
    LENGTH: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    PDL: tl.constexpr,
):
    """One query head of a sequence's first two positions, rows b and b + B: the first sees itself, the second both."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    head = tl.program_id(1)
    group: tl.constexpr = HEADS // KV_HEADS
    width: tl.constexpr = (HEADS + 2 * KV_HEADS) * D
    kv_head = head // group
    key: tl.constexpr = HEADS * D
    half = tl.arange(0, D // 2)
    whole = tl.arange(0, D)
    cos0 = tl.load(cos_ptr + half)
    sin0 = tl.load(sin_ptr + half)
    cos1 = tl.load(cos_ptr + D // 2 + half)
    sin1 = tl.load(sin_ptr + D // 2 + half)
    factor0 = _factor(squares_ptr, row, PARTS, H, eps)
    factor1 = _factor(squares_ptr, row + B, PARTS, H, eps)
    first = qkv_ptr + row * width
    second = qkv_ptr + (row + B) * width
    q1, q2 = _normed_halves(second + head * D, query_norm_ptr, factor1, cos1, sin1, eps, D)
    k1, k2 = _normed_halves(first + key + kv_head * D, key_norm_ptr, factor0, cos0, sin0, eps, D)
    m1, m2 = _normed_halves(second + key + kv_head * D, key_norm_ptr, factor1, cos1, sin1, eps, D)
    before = tl.load(first + key + (KV_HEADS + kv_head) * D + whole).to(tl.float32) * factor0
    value = tl.load(second + key + (KV_HEADS + kv_head) * D + whole).to(tl.float32) * factor1
    if head % group == 0:
        keys = kv_ptr + row.to(tl.int64) * (2 * LENGTH * KV_HEADS * D) + kv_head * D
        values = keys + LENGTH * KV_HEADS * D
        _keep(kv_ptr, keys, values, k1, k2, before, D)
        _keep(kv_ptr, keys + KV_HEADS * D, values + KV_HEADS * D, m1, m2, value, D)
    scale = 1.0 / tl.sqrt(D * 1.0)
    earlier = (tl.sum(q1 * k1, 0) + tl.sum(q2 * k2, 0)) * scale
    own = (tl.sum(q1 * m1, 0) + tl.sum(q2 * m2, 0)) * scale
    share = tl.sigmoid(earlier - own)
    mixed = share * before + (1.0 - share) * value
    kind = out_ptr.dtype.element_ty
    tl.store(out_ptr + (row * HEADS + head) * D + whole, before.to(kind))
    tl.store(out_ptr + ((row + B) * HEADS + head) * D + whole, mixed.to(kind))


@triton.jit
def input_rows(
    out_ptr,
    ready_ptr,
    squares_ptr,
    norm_ptr,
    slots_ptr,
    state_ptr,
    codes_ptr,
    text_ptr,
    text_table_ptr,
    code_table_ptr,
    more_tables_ptr,
    pad,
    begin,
    H: tl.constexpr,
    BLOCK: tl.constexpr,
    GRAIN: tl.constexpr,
    RING: tl.constexpr,
    TEXT: tl.constexpr,
    CODES: tl.constexpr,
    STATE: tl.constexpr,
    PDL: tl.constexpr,
):
    """The Talker's next row: the frame's text token, and the last frame's codes or, before any, the begin code."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots_ptr + row).to(tl.int64)
    frame = tl.load(state_ptr + slot * STATE + 1)
    known = tl.load(state_ptr + slot * STATE + 2)
    token = tl.load(text_ptr + slot * TEXT + frame, mask=frame < known, other=pad).to(tl.int64)
    total = tl.load(text_table_ptr + token * H + at).to(tl.float32)
    spoken = frame > 0
    codes = codes_ptr + (slot * RING + (frame + RING - 1) % RING) * 16
    code = tl.load(codes, mask=spoken, other=begin).to(tl.int64)
    total += tl.load(code_table_ptr + code * H + at).to(tl.float32)
    for group in tl.static_range(1, 16):
        code = tl.load(codes + group, mask=spoken, other=0).to(tl.int64)
        table = more_tables_ptr + ((group - 1) * CODES + code) * H
        total += tl.load(table + at, mask=spoken & (at < H), other=0.0).to(tl.float32)
    first = tl.program_id(1) * BLOCK
    _leave(total, out_ptr, ready_ptr, squares_ptr, norm_ptr, row, at, first, H, BLOCK, GRAIN)


@triton.jit
def _mixed(word):
    word = (word ^ (word >> 16)) * 0x7FEB352D
    word = (word ^ (word >> 15)) * 0x846CA68B
    return word ^ (word >> 16)


@triton.jit(do_not_specialize=["group"])
def choose(
    logits_ptr,
    slots_ptr,
    state_ptr,
    codes_ptr,
    seen_ptr,
    result_ptr,
    of_ptr,
    next_ptr,
    ready_ptr,
    squares_ptr,
    norm_ptr,
    table_ptr,
    group,
    eos,
    eps,
    V: tl.constexpr,
    VP: tl.constexpr,
    K: tl.constexpr,
    PARTS: tl.constexpr,
    H: tl.constexpr,
    GRAIN: tl.constexpr,
    RING: tl.constexpr,
    CONTROL: tl.constexpr,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
    STATE: tl.constexpr,
    SPARE: tl.constexpr,
    LENGTH: tl.constexpr,
    BITS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Sample a code for each row: penalty and ban of control codes (FIRST), top-k, noise of (seed, frame, group, code).

    The logits lack their row's factor, that of a norm over K columns.

    The k-th largest score is found bit by bit in an order-keeping integer of the upper BITS of the float. The code's
    row of `table` goes to `next`, for the pass that follows. A row without one finite score is reported as -1.
    """
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    slot = tl.load(slots_ptr + row).to(tl.int64)
    state = state_ptr + slot * STATE
    frame = tl.load(state + 1)
    made = frame - tl.load(state + 7)  # without those of a clip
    seed = tl.load(state + 3).to(tl.uint32, bitcast=True)
    top = tl.load(state + 4)
    temperature = tl.load(state + 5).to(tl.float32, bitcast=True)
    ids = tl.arange(0, VP)
    factor = _factor(of_ptr, row, PARTS, K, eps)
    score = tl.load(logits_ptr + row * V + ids, mask=ids < V, other=float("-inf")).to(tl.float32) * factor
    if FIRST:
        penalty = tl.load(state + 6).to(tl.float32, bitcast=True)
        seen = tl.load(seen_ptr + slot * V + ids, mask=ids < V, other=0).to(tl.int32)
        seen = tl.where(made > 0, seen, 0)
        score = tl.where(seen != 0, tl.where(score > 0, score / penalty, score * penalty), score)
        may = (ids < V - CONTROL) | ((ids == eos) & (made >= 2))
        score = tl.where(may, score, float("-inf"))
    bits = score.to(tl.uint32, bitcast=True)
    key = tl.where((bits >> 31) != 0, bits ^ 0xFFFFFFFF, bits | 0x80000000) >> (32 - BITS)
    least = tl.full((), 0, tl.uint32)
    step = tl.full((), 1, tl.uint32) << (BITS - 1)
    for _ in range(BITS):
        candidate = least | step
        step = step >> 1
        enough = tl.sum((key >= candidate).to(tl.int32), 0) >= top
        least = tl.where(enough, candidate, least)
    word = _mixed(seed)
    word = _mixed(word ^ (made.to(tl.uint32) * 0x9E3779B1))
    word = _mixed(word ^ (group.to(tl.uint32) * 0x85EBCA77))
    noise = _mixed(word ^ (ids.to(tl.uint32) * 0xC2B2AE3D))
    chance = ((noise >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07
    noisy = score - temperature * tl.log(-tl.log(chance))
    noisy = tl.where(key >= least, noisy, float("-inf"))
    best = tl.max(noisy, 0)
    sound = best > float("-inf")
    code = tl.argmax(noisy, 0)
    code = tl.where(sound, tl.minimum(code, V - 1), 0)
    where = codes_ptr + (slot * RING + frame % RING) * 16 + group
    tl.store(where, code)
    if FIRST:
        tl.store(result_ptr + row, tl.where(sound, code, -1))
        marked = (seen != 0) | (ids == code)
        tl.store(seen_ptr + slot * V + ids, marked.to(tl.int8), mask=ids < V)
    else:
        tl.store(result_ptr + row, -1, mask=sound == 0)
    if LAST:
        at = tl.load(state)
        busy = slot != SPARE
        tl.store(state, tl.where(busy, tl.minimum(at + 1, LENGTH - 1), 0))
        tl.store(state + 1, tl.where(busy, frame + 1, 0))
    else:
        columns = tl.arange(0, H)
        x = tl.load(table_ptr + code.to(tl.int64) * H + columns).to(tl.float32)
        _leave(x, next_ptr, ready_ptr, squares_ptr, norm_ptr, row, columns, 0, H, H, GRAIN)
