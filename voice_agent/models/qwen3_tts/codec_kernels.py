"""Triton kernels of the codec, channels last: a convolution is a matrix product over taps, so is a transposed one.

What follows a product (bias, residual, Snake, GELU, SwiGLU, a norm's factor) is done where the sum still lies in
registers. Columns from before a launch come from the stream's history, found by slot. `rows` [B, 4] int32 is slot,
first frame, real frames, 1 for a new stream.
"""
# pyright: basic, reportMissingImports=false

import triton
import triton.language as tl

NONE, SNAKE, GELU, SWIGLU = 0, 1, 2, 3


@triton.jit(do_not_specialize=["T"])
def entries(
    out_ptr, rows_ptr, codes_ptr, table_ptr, T, CODES: tl.constexpr, C: tl.constexpr, RING: tl.constexpr
):
    """out [B, T, C]: the sum of each frame's 16 vectors; codes out of range count as the nearest in range."""
    m = tl.program_id(0)
    at = tl.arange(0, C)
    slot = tl.load(rows_ptr + m // T * 4).to(tl.int64)
    frame = tl.load(rows_ptr + m // T * 4 + 1) + m % T
    codes = codes_ptr + (slot * RING + frame % RING) * 16
    total = tl.zeros((C,), tl.float32)
    for group in tl.static_range(16):
        code = tl.minimum(tl.maximum(tl.load(codes + group), 0), CODES - 1)
        total += tl.load(table_ptr + (group * CODES + code) * C + at).to(tl.float32)
    tl.store(out_ptr + m * C + at, total.to(out_ptr.dtype.element_ty))


@triton.jit(do_not_specialize=["M", "T", "TAPS", "DILATION", "COLUMNS"])
def product(
    out_ptr,
    act_ptr,
    x_ptr,
    history_ptr,
    w_ptr,
    bias_ptr,
    residual_ptr,
    a_ptr,
    inverse_b_ptr,
    rows_ptr,
    M,
    T,
    CIN,
    N,
    TAPS,
    DILATION,
    COLUMNS,
    eps,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    HISTORY: tl.constexpr,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    ACT: tl.constexpr,
    RAW: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Sums [M, N] over taps and inputs, M = B x T columns; raw to `out`, activated to `act` as asked for."""
    across = N // BN
    m = tl.program_id(0) // across * BM + tl.arange(0, BM)
    n = tl.program_id(0) % across * BN + tl.arange(0, BN)
    real = m < M
    b = m // T
    t = m % T
    slot = tl.zeros((BM,), tl.int64)
    begun = real
    if HISTORY:
        slot = tl.load(rows_ptr + b * 4, mask=real, other=0).to(tl.int64)
        begun = tl.load(rows_ptr + b * 4 + 1, mask=real, other=0) > 0
    acc = tl.zeros((BM, BN), tl.float32)
    powers = tl.zeros((BM, BK), tl.float32)
    steps = CIN // BK
    for step in tl.range(0, TAPS * steps, num_stages=STAGES):
        tap = step // steps
        k = step % steps * BK + tl.arange(0, BK)
        at = t - (TAPS - 1 - tap) * DILATION
        place = x_ptr + (m - t + at).to(tl.int64) * CIN
        known = real & (at >= 0)
        if HISTORY:
            place = tl.where(at >= 0, place, history_ptr + (slot * COLUMNS + COLUMNS + at) * CIN)
            known = real & ((at >= 0) | begun)
        x = tl.load(place[:, None] + k[None, :], mask=known[:, None], other=0.0)
        w = tl.load(w_ptr + (tap * CIN + k)[:, None] * N + n[None, :])
        acc = tl.dot(x, w, acc)
        if NORM:
            wide = x.to(tl.float32)
            powers += wide * wide
    if NORM:
        acc = acc * tl.rsqrt(tl.sum(powers, 1) / CIN + eps)[:, None]
    if BIAS:
        acc += tl.load(bias_ptr + n)[None, :].to(tl.float32)
    offsets = m.to(tl.int64)[:, None] * N + n[None, :]
    if RESIDUAL:
        acc += tl.load(residual_ptr + offsets, mask=real[:, None], other=0.0).to(tl.float32)
    if RAW:
        tl.store(out_ptr + offsets, acc.to(out_ptr.dtype.element_ty), mask=real[:, None])
    if ACT == 1:
        turned = tl.sin(acc * tl.load(a_ptr + n)[None, :].to(tl.float32))
        acc += tl.load(inverse_b_ptr + n)[None, :].to(tl.float32) * turned * turned
        tl.store(act_ptr + offsets, acc.to(act_ptr.dtype.element_ty), mask=real[:, None])
    if ACT == 2:
        acc = 0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))
        tl.store(act_ptr + offsets, acc.to(act_ptr.dtype.element_ty), mask=real[:, None])
    if ACT == 3:
        gate, up = tl.split(tl.reshape(acc, (BM, BN // 2, 2)))
        fed = gate * tl.sigmoid(gate) * up
        half = tl.program_id(0) % across * (BN // 2) + tl.arange(0, BN // 2)
        where = act_ptr + m.to(tl.int64)[:, None] * (N // 2) + half[None, :]
        tl.store(where, fed.to(act_ptr.dtype.element_ty), mask=real[:, None])


@triton.jit
def _turned(ptr, mask, cos, sin, D: tl.constexpr):
    half = tl.arange(0, D // 2)
    first = tl.load(ptr + half[None, :], mask=mask, other=0.0).to(tl.float32)
    second = tl.load(ptr + D // 2 + half[None, :], mask=mask, other=0.0).to(tl.float32)
    return first * cos - second * sin, second * cos + first * sin


@triton.jit(do_not_specialize=["layer", "T"])
def attend_window(
    out_ptr,
    qkv_ptr,
    kv_ptr,
    rows_ptr,
    cos_ptr,
    sin_ptr,
    layer,
    T,
    LAYERS: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    PLACES: tl.constexpr,
    WINDOW: tl.constexpr,
    TP: tl.constexpr,
    PAST: tl.constexpr,
):
    """One head of one stream's new frames: turn, keep keys and values in the ring, see the window before each.

    Keys in the ring are turned to their absolute position; writes and reads of one launch never meet (PLACES is longer
    than the window and a launch together).
    """
    b = tl.program_id(0)
    head = tl.program_id(1)
    slot = tl.load(rows_ptr + b * 4).to(tl.int64)
    first = tl.load(rows_ptr + b * 4 + 1)
    t = tl.arange(0, TP)
    new = (t < T)[:, None]
    half = tl.arange(0, D // 2)
    whole = tl.arange(0, D)
    angles = ((first + t) % 4096)[:, None] * (D // 2) + half[None, :]
    cos = tl.load(cos_ptr + angles)
    sin = tl.load(sin_ptr + angles)
    mine = qkv_ptr + (b * T + t)[:, None] * (3 * HEADS * D) + head * D
    q1, q2 = _turned(mine, new, cos, sin, D)
    k1, k2 = _turned(mine + HEADS * D, new, cos, sin, D)
    v = tl.load(mine + 2 * HEADS * D + whole[None, :], mask=new, other=0.0)
    kind = kv_ptr.dtype.element_ty
    k1 = k1.to(kind)
    k2 = k2.to(kind)
    scale = 1.0 / tl.sqrt(D * 1.0)
    q1 = (q1 * scale).to(kind)
    q2 = (q2 * scale).to(kind)
    keys = kv_ptr + ((slot * LAYERS + layer) * 2 * PLACES * HEADS + head) * D
    values = keys + PLACES * HEADS * D
    ring = ((first + t) % PLACES)[:, None] * (HEADS * D)
    tl.store(keys + ring + half[None, :], k1, mask=new)
    tl.store(keys + ring + D // 2 + half[None, :], k2, mask=new)
    tl.store(values + ring + whole[None, :], v.to(kind), mask=new)
    past = first - (WINDOW - 1) + tl.arange(0, PAST)
    known = (past >= 0) & (past < first)
    held = ((past + PLACES) % PLACES)[:, None] * (HEADS * D)
    p1 = tl.load(keys + held + half[None, :], mask=known[:, None], other=0.0)
    p2 = tl.load(keys + held + D // 2 + half[None, :], mask=known[:, None], other=0.0)
    pv = tl.load(values + held + whole[None, :], mask=known[:, None], other=0.0)
    before = tl.dot(q1, tl.trans(p1)) + tl.dot(q2, tl.trans(p2))
    behind = (first + t)[:, None] - past[None, :]
    before = tl.where(known[None, :] & (behind < WINDOW), before, float("-inf"))
    among = tl.dot(q1, tl.trans(k1)) + tl.dot(q2, tl.trans(k2))
    among = tl.where(t[:, None] >= t[None, :], among, float("-inf"))
    most = tl.maximum(tl.max(before, 1), tl.max(among, 1))[:, None]
    before = tl.exp(before - most)
    among = tl.exp(among - most)
    total = tl.sum(before, 1) + tl.sum(among, 1)
    seen = tl.dot(before.to(kind), pv) + tl.dot(among.to(kind), v.to(kind))
    where = out_ptr + (b * T + t)[:, None] * (HEADS * D) + head * D + whole[None, :]
    tl.store(where, (seen / total[:, None]).to(out_ptr.dtype.element_ty), mask=new)


@triton.jit(do_not_specialize=["T"])
def depthwise_norm(
    out_ptr,
    x_ptr,
    history_ptr,
    rows_ptr,
    w_ptr,
    bias_ptr,
    norm_ptr,
    shift_ptr,
    T,
    C: tl.constexpr,
    TAPS: tl.constexpr,
):
    """out [B, T, C]: a convolution of each channel by itself, then layer norm; w is [TAPS, C]."""
    m = tl.program_id(0)
    b = m // T
    t = m % T
    c = tl.arange(0, C)
    slot = tl.load(rows_ptr + b * 4).to(tl.int64)
    begun = tl.load(rows_ptr + b * 4 + 1) > 0
    total = tl.load(bias_ptr + c).to(tl.float32)
    for tap in tl.static_range(TAPS):
        at = t - (TAPS - 1 - tap)
        now = tl.load(x_ptr + (m - t + at) * C + c, mask=(at >= 0) & (c < C), other=0.0).to(tl.float32)
        held = history_ptr + (slot * (TAPS - 1) + TAPS - 1 + at) * C + c
        now += tl.load(held, mask=(at < 0) & begun & (c < C), other=0.0).to(tl.float32)
        total += now * tl.load(w_ptr + tap * C + c).to(tl.float32)
    total -= tl.sum(total, 0) / C
    total = total * tl.rsqrt(tl.sum(total * total, 0) / C + 1e-6)
    total = total * tl.load(norm_ptr + c).to(tl.float32) + tl.load(shift_ptr + c).to(tl.float32)
    tl.store(out_ptr + m * C + c, total.to(out_ptr.dtype.element_ty))


@triton.jit(do_not_specialize=["M", "T"])
def last_conv(
    out_ptr,
    x_ptr,
    history_ptr,
    rows_ptr,
    w_ptr,
    bias_ptr,
    M,
    T,
    C,
    CP: tl.constexpr,
    TAPS: tl.constexpr,
    BM: tl.constexpr,
):
    """out [B, T] int16: the convolution to one channel, cut to -1..1; w is [TAPS, C]."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    real = m < M
    b = m // T
    t = m % T
    c = tl.arange(0, CP)
    there = c < C
    slot = tl.load(rows_ptr + b * 4, mask=real, other=0).to(tl.int64)
    begun = tl.load(rows_ptr + b * 4 + 1, mask=real, other=0) > 0
    total = tl.zeros((BM, CP), tl.float32)
    for tap in range(TAPS):
        at = t - (TAPS - 1 - tap)
        place = x_ptr + (m - t + at).to(tl.int64) * C
        place = tl.where(at >= 0, place, history_ptr + (slot * (TAPS - 1) + TAPS - 1 + at) * C)
        known = real & ((at >= 0) | begun)
        x = tl.load(place[:, None] + c[None, :], mask=known[:, None] & there[None, :], other=0.0).to(
            tl.float32
        )
        total += x * tl.load(w_ptr + tap * C + c, mask=there, other=0.0).to(tl.float32)[None, :]
    sound = tl.sum(total, 1) + tl.load(bias_ptr).to(tl.float32)
    sound = tl.minimum(tl.maximum(sound, -1.0), 1.0) * 32767.0
    sound = tl.where(sound < 0, sound - 0.5, sound + 0.5)
    tl.store(out_ptr + m, sound.to(tl.int16), mask=real)


@triton.jit(do_not_specialize=["T"])
def keep_history(
    table_ptr, rows_ptr, T, FIELDS: tl.constexpr, HP: tl.constexpr, BC: tl.constexpr, KIND: tl.constexpr
):
    """Every convolution's last input columns into its history: table rows are x, history, channels, columns, per frame.

    A stream stands where its real frames end. All of a tile is read before any of it is written.
    """
    row = table_ptr + tl.program_id(0) * FIELDS
    x_ptr = tl.load(row).to(tl.pointer_type(KIND))
    history_ptr = tl.load(row + 1).to(tl.pointer_type(KIND))
    channels = tl.load(row + 2)
    columns = tl.load(row + 3)
    per_frame = tl.load(row + 4)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    if tl.program_id(2) * BC < channels:
        b = tl.program_id(1)
        slot = tl.load(rows_ptr + b * 4).to(tl.int64)
        first = tl.load(rows_ptr + b * 4 + 1)
        made = tl.load(rows_ptr + b * 4 + 2) * per_frame
        j = tl.arange(0, HP)
        at = made + j - columns  # column of this launch, below 0: of the history
        wanted = (j < columns)[:, None] & (c < channels)[None, :]
        fresh = tl.load(
            x_ptr + (b * T * per_frame + at)[:, None] * channels + c[None, :],
            mask=wanted & (at >= 0)[:, None],
            other=0.0,
        )
        mine = history_ptr + slot * columns * channels
        old = tl.load(
            mine + (columns + at)[:, None] * channels + c[None, :],
            mask=wanted & (at < 0)[:, None] & (first > 0),
            other=0.0,
        )
        kept = tl.where((at >= 0)[:, None], fresh, old)
        tl.debug_barrier()
        tl.store(mine + j[:, None] * channels + c[None, :], kept, mask=wanted)
