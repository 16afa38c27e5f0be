"""Choosing codes: temperature, top-k, top-p, repetition penalty, and noise that depends on a row's seed alone.

The noise of a candidate is a hash of (seed, frame, group, code), so a stream gives the same codes alone, in any
batch and on any device, up to rounding: nothing is drawn from a shared generator. Temperature 0 is greedy.
Order as published: penalty, forbidden codes, temperature, top-k, top-p. Knows no model.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

FEWEST_FRAMES = 2  # the end code is forbidden before: published min_new_tokens
MOST_CANDIDATES = 64  # the widest top-k; a fixed number, so that a graph's shapes are
CONTROL_CODES = 1_024  # the last ids of the Talker's table: never audio
_COLDEST = 1e-4  # below it the noise is nothing beside the gap between two logits
_WORD = 0xFFFF_FFFF


@dataclass(frozen=True)
class Sampling:
    """How each of B rows samples; all tensors [B]. Published: 0.9, 50, 1.0 at both levels."""

    temperature: Tensor  # float, 0 is greedy
    top_k: Tensor  # int, 1..MOST_CANDIDATES
    top_p: Tensor  # float, 0..1
    seed: Tensor  # int64, 0..2**32 - 1


def sampling_rows(
    count: int, temperature: float = 0.9, top_k: int = 50, top_p: float = 1.0, seeds: list[int] | None = None
) -> Sampling:
    """Rows on the CPU that all sample alike, each with its own seed (0.. without any); raises ValueError."""
    if not 1 <= top_k <= MOST_CANDIDATES:
        raise ValueError(f"top_k is {top_k}; it must be 1..{MOST_CANDIDATES}")
    if not 0.0 < top_p <= 1.0 or temperature < 0.0:
        raise ValueError(f"top_p is {top_p} (0..1], temperature {temperature} (0 or more)")
    return Sampling(
        temperature=torch.full((count,), temperature),
        top_k=torch.full((count,), top_k),
        top_p=torch.full((count,), top_p),
        seed=torch.tensor(seeds if seeds is not None else list(range(count)), dtype=torch.int64),
    )


def rows_at(rows: Sampling, at: Tensor) -> Sampling:
    """The rows of some streams [n]."""
    return Sampling(rows.temperature[at], rows.top_k[at], rows.top_p[at], rows.seed[at])


def moved(rows: Sampling, device: torch.device) -> Sampling:
    """The same rows on a device."""
    return Sampling(*(part.to(device) for part in (rows.temperature, rows.top_k, rows.top_p, rows.seed)))


def choose(logits: Tensor, rows: Sampling, frames: Tensor, group: int) -> Tensor:
    """A code [B] from logits [B, V]; `frames` [B] is each stream's frame count, `group` 0..15."""
    scores, codes, kept = candidates(logits, rows)
    noisy = scores + rows.temperature[:, None] * gumbel(rows.seed[:, None], frames[:, None], group, codes)
    best = noisy.masked_fill(~kept, -torch.inf).argmax(-1, keepdim=True)
    return codes.gather(-1, best)[:, 0]


def candidates(logits: Tensor, rows: Sampling) -> tuple[Tensor, Tensor, Tensor]:
    """The best logits, falling, their codes, and whether top-k and top-p keep them: [B, MOST_CANDIDATES] each."""
    scores, codes = logits.float().topk(min(MOST_CANDIDATES, logits.shape[-1]), dim=-1)
    kept = torch.arange(scores.shape[-1], device=logits.device) < rows.top_k[:, None]
    warm = scores / rows.temperature[:, None].clamp(min=_COLDEST)
    chances = warm.masked_fill(~kept, -torch.inf).softmax(-1)
    return scores, codes, kept & (chances.cumsum(-1) - chances < rows.top_p[:, None])


def allowed(logits: Tensor, seen: Tensor, penalty: Tensor, frames: Tensor, eos: int) -> Tensor:
    """The Talker's logits [B, V] with repeats made less likely and what is no code forbidden.

    `seen` [B, V] marks the codes that the stream has chosen before, `penalty` [B] is 1.05 as published. Only codes
    and, from frame 2 on, the end code remain.
    """
    scores = logits.float()
    dampened = torch.where(scores > 0, scores / penalty[:, None], scores * penalty[:, None])
    scores = torch.where(seen, dampened, scores)
    ids = torch.arange(scores.shape[-1], device=scores.device)
    may_end = (ids == eos) & (frames[:, None] >= FEWEST_FRAMES)
    return scores.masked_fill(~((ids < len(ids) - CONTROL_CODES) | may_end), -torch.inf)


def gumbel(seed: Tensor, frames: Tensor, group: int, codes: Tensor) -> Tensor:
    """Gumbel noise of each candidate [B, K]: adding it and taking the largest is sampling from the softmax."""
    word = _mix(seed & _WORD)
    word = _mix(word ^ (frames * 0x9E37_79B1 & _WORD))
    word = _mix(word ^ (group * 0x85EB_CA77 & _WORD))
    word = _mix(word ^ (codes * 0xC2B2_AE3D & _WORD))
    chance = ((word >> 9).float() + 0.5) * 2.0**-23  # 23 bits: exact in float32, never 0, never 1
    return -torch.log(-torch.log(chance))


def _mix(word: Tensor) -> Tensor:
    """A 32-bit integer hash on int64 (the low half of a wrapping product is exact)."""
    word = ((word ^ (word >> 16)) * 0x7FEB_352D) & _WORD
    word = ((word ^ (word >> 15)) * 0x846C_A68B) & _WORD
    return word ^ (word >> 16)
