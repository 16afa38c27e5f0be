"""The Code Predictor: codes 1 to 15 of a frame from the Talker's hidden state and code 0.

A frame is a sequence of 16 positions that starts anew each time: hidden state, code 0, then each code as it is
chosen. The first two go in together, so a frame takes 15 passes. No state crosses frames; the scratch for keys and
values [layers, B, 2, 16, kv heads, head dim] belongs to the caller so that a graph can keep it in place.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from voice_agent.models.qwen3_tts.config import GROUPS, PredictorConfig
from voice_agent.models.qwen3_tts.transformer import Layer, PrefixCache, build_layers, rms_norm, run_layers
from voice_agent.models.qwen3_tts.weights import Source

Choose = Callable[[Tensor, int], Tensor]  # logits [B, codes] of group 1..15 -> code [B]


@dataclass(frozen=True)
class CodePredictor:
    """Weights of the Code Predictor and its frame; holds no state."""

    config: PredictorConfig
    layers: list[Layer]
    norm: Tensor  # [h]
    embeddings: Tensor  # [15, codes, H]: of codes 1..15, in the Talker's width
    heads: Tensor  # [15, codes, h]
    narrow: tuple[Tensor, Tensor] | None  # H -> h, None where both are the same

    def new_kv(self, rows: int) -> Tensor:
        """Scratch for frames of up to `rows` streams at once."""
        config = self.config
        heads, dim = config.num_key_value_heads, config.head_dim
        return self.norm.new_zeros((config.num_hidden_layers, rows, 2, GROUPS, heads, dim))

    def frame(
        self, hidden: Tensor, code0: Tensor, code0_row: Tensor, kv: Tensor, choose: Choose
    ) -> tuple[Tensor, Tensor]:
        """A frame's codes [B, 16] and the sum of their embeddings [B, H], the codes' part of the Talker's next row.

        `hidden` [B, H] is the Talker's, `code0` [B] what was sampled from its logits, `code0_row` [B, H] that code's
        embedding in the Talker's table. `choose` turns each group's logits into codes.
        """
        rows, codes, total = torch.stack((hidden, code0_row), dim=1), [code0], code0_row
        for group in range(1, GROUPS):
            last = self._pass(rows, kv, start=0 if group == 1 else group)
            code = choose(F.linear(last, self.heads[group - 1]), group)
            row = self.embeddings[group - 1, code]
            codes.append(code)
            rows, total = row[:, None], total + row
        return torch.stack(codes, dim=1), total

    def _pass(self, rows: Tensor, kv: Tensor, start: int) -> Tensor:
        """Rows [B, T, H] at positions from `start` on; the last one's hidden state [B, h]."""
        if self.narrow:
            rows = F.linear(rows, *self.narrow)
        count = rows.shape[1]
        positions = torch.arange(start, start + count, device=rows.device)[None]
        held = torch.arange(start + count, device=rows.device)
        mask = (held <= positions[..., None])[:, None] if count > 1 else None
        rows = run_layers(self.layers, self.config, rows, positions, PrefixCache(kv, start), mask)
        return rms_norm(rows[:, -1], self.norm, self.config.rms_norm_eps)

    def sum_rows(self, codes: Tensor) -> Tensor:
        """Sum of the embeddings of codes 1..15 of whole frames [..., 16]: [..., H]; code 0's is the Talker's."""
        groups = torch.arange(GROUPS - 1, device=codes.device)
        return self.embeddings[groups, codes[..., 1:]].sum(-2)


def build_code_predictor(source: Source, config: PredictorConfig, talker_hidden: int) -> CodePredictor:
    """The Code Predictor from the published names under `talker.code_predictor.`; raises WeightsError."""
    if config.num_code_groups != GROUPS:
        raise ValueError(f"num_code_groups is {config.num_code_groups}; the codec has {GROUPS}")
    source = source.under("talker.code_predictor")
    model, hidden = source.under("model"), config.hidden_size
    groups, narrow = range(GROUPS - 1), None
    if hidden != talker_hidden:
        weight = source.get("small_to_mtp_projection.weight", hidden, talker_hidden)
        narrow = (weight, source.get("small_to_mtp_projection.bias", hidden))
    tables = [model.get(f"codec_embedding.{n}.weight", config.vocab_size, talker_hidden) for n in groups]
    return CodePredictor(
        config=config,
        layers=build_layers(model, config),
        norm=model.get("norm.weight", hidden),
        embeddings=torch.stack(tables),
        heads=torch.stack([source.get(f"lm_head.{n}.weight", config.vocab_size, hidden) for n in groups]),
        narrow=narrow,
    )
