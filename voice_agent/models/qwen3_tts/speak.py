"""The whole way in its plainest form: prompts in, frames of codes out, a batch of streams step by step.

The reference that engines are tested against; it measures nothing and hides no latency. Streams of a batch begin
together and end on their own; each gives the codes it would give alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from voice_agent.models.qwen3_tts.config import GROUPS
from voice_agent.models.qwen3_tts.model import Model
from voice_agent.models.qwen3_tts.prompt import Prompt, embed
from voice_agent.models.qwen3_tts.sampling import Sampling, allowed, choose, rows_at

PENALTY = 1.05  # published repetition penalty of the first code


@dataclass
class Streams:
    """State of a batch: row i of everything belongs to prompt i. `ended` says end or length once it is over."""

    prompts: list[Prompt]
    sampling: Sampling
    kv: Tensor
    scratch: Tensor
    logits: Tensor  # [B, vocab] of the next first code
    hidden: Tensor  # [B, H]
    positions: Tensor  # [B] of the next row
    frames: Tensor  # [B]
    seen: Tensor  # [B, vocab]
    penalty: Tensor  # [B]
    ended: list[str] = field(default_factory=list[str])

    def active(self) -> list[int]:
        """Rows that still speak."""
        return [row for row, reason in enumerate(self.ended) if not reason]


@torch.inference_mode()
def speak(model: Model, prompts: list[Prompt], sampling: Sampling, most_frames: int) -> list[Tensor]:
    """Each prompt's codes [n, 16], at most `most_frames` of them."""
    spoken: list[list[Tensor]] = [[] for _ in prompts]
    for rows, codes in frames(model, prompts, sampling, most_frames):
        for row, frame in zip(rows, codes, strict=True):
            spoken[row].append(frame)
    empty = torch.zeros((0, GROUPS), dtype=torch.int64)
    return [torch.stack(codes) if codes else empty for codes in spoken]


def frames(
    model: Model, prompts: list[Prompt], sampling: Sampling, most_frames: int
) -> Iterator[tuple[list[int], Tensor]]:
    """Frame by frame: which prompts still speak, and their codes [active, 16]."""
    streams = begin(model, prompts, sampling, most_frames)
    for _ in range(most_frames):
        rows, codes = advance(model, streams)
        if not rows:
            return
        yield rows, codes


def begin(
    model: Model, prompts: list[Prompt], sampling: Sampling, most_frames: int, penalty: float = PENALTY
) -> Streams:
    """Prefill every prompt; the arena is as long as the longest may get."""
    talker, batch, device = model.talker, len(prompts), model.talker.norm.device
    rows = [embed(talker, model.code_predictor, prompt) for prompt in prompts]
    lengths = torch.tensor([len(part) for part in rows], device=device)
    kv = talker.new_kv(batch, int(lengths.max()) + most_frames)
    slots = torch.arange(batch, device=device)
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    hidden = talker.prefill(padded, kv, slots, torch.zeros_like(lengths))[slots, lengths - 1]
    logits = talker.logits(hidden)
    return Streams(
        prompts,
        sampling,
        kv,
        model.code_predictor.new_kv(batch),
        logits,
        hidden,
        positions=lengths,
        frames=torch.zeros_like(lengths),
        seen=torch.zeros_like(logits, dtype=torch.bool),
        penalty=torch.full((batch,), penalty, device=device),
        ended=[""] * batch,
    )


def advance(model: Model, streams: Streams) -> tuple[list[int], Tensor]:
    """One frame of every stream that has not ended: their rows and codes [active, 16]."""
    talker, eos = model.talker, model.config.talker_config.codec_eos_token_id
    active = torch.tensor(streams.active(), dtype=torch.int64, device=streams.kv.device)
    first = _first_codes(streams, active, eos)
    for row in active[first == eos].tolist():
        streams.ended[row] = "end"
    active, first = active[first != eos], first[first != eos]
    if not len(active):
        return [], active.new_zeros((0, GROUPS))
    streams.seen[active, first] = True
    rows, counts = rows_at(streams.sampling, active), streams.frames[active]
    codes, row = model.code_predictor.frame(
        streams.hidden[active],
        first,
        talker.codec_embedding[first],
        streams.scratch,
        lambda logits, group: choose(logits, rows, counts, group),
    )
    row = row + talker.text(_next_text(model, streams, active))
    longest = int(streams.positions[active].max()) + 1
    hidden, logits = talker.step(row, streams.kv, active, streams.positions[active], longest)
    streams.hidden[active], streams.logits[active] = hidden, logits
    streams.positions[active] += 1
    streams.frames[active] += 1
    return active.tolist(), codes


def _first_codes(streams: Streams, active: Tensor, eos: int) -> Tensor:
    counts = streams.frames[active]
    scores = allowed(streams.logits[active], streams.seen[active], streams.penalty[active], counts, eos)
    return choose(scores, rows_at(streams.sampling, active), counts, group=0)


def _next_text(model: Model, streams: Streams, active: Tensor) -> Tensor:
    """The text token that goes with each stream's frame: the next of its text, then tts_pad."""
    pad = model.config.tts_pad_token_id
    tokens: list[int] = []
    for row in active.tolist():
        following, at = streams.prompts[row].following, int(streams.frames[row])
        tokens.append(following[at] if at < len(following) else pad)
    return torch.tensor(tokens, device=active.device)
