"""The Talker: one row of text and codes in, the next frame's first code out.

Rows are embeddings: projected text plus codec embeddings. Keys and values live in an arena the caller owns,
[layers, slots, 2, max_len, kv heads, head dim]; a call is told which slot and position each row has.
Does not sample (see sampling), does not know prompts (see prompt).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from voice_agent.models.qwen3_tts.config import TalkerConfig
from voice_agent.models.qwen3_tts.transformer import Layer, SlotCache, build_layers, rms_norm, run_layers
from voice_agent.models.qwen3_tts.weights import Source


@dataclass(frozen=True)
class TextRows:
    """Text embedding and its projection to the Talker's width."""

    embedding: Tensor  # [text vocab, text hidden]
    fc1: Tensor
    fc1_bias: Tensor
    fc2: Tensor
    fc2_bias: Tensor

    def __call__(self, ids: Tensor) -> Tensor:
        """Rows [..., H] of token ids."""
        wide = F.silu(F.linear(self.embedding[ids], self.fc1, self.fc1_bias))
        return F.linear(wide, self.fc2, self.fc2_bias)

    def projected_table(self, chunk_tokens: int = 4096) -> Tensor:
        """Every token's row, [text vocab, H], so that a step needs one gather (0.62 GB in bfloat16 for 1.7B)."""
        ids = torch.arange(len(self.embedding), device=self.embedding.device)
        return torch.cat([self(part) for part in ids.split(chunk_tokens)])


@dataclass(frozen=True)
class Talker:
    """Weights of the Talker and its steps; holds no state of any stream."""

    config: TalkerConfig
    layers: list[Layer]
    norm: Tensor  # [H]
    text: TextRows
    codec_embedding: Tensor  # [codec vocab, H]: codes, control codes and preset voices
    head: Tensor  # [codec vocab, H]

    def new_kv(self, slots: int, max_len: int) -> Tensor:
        """An empty arena for so many streams of so many rows."""
        config = self.config
        shape = (config.num_hidden_layers, slots, 2, max_len, config.num_key_value_heads, config.head_dim)
        return self.norm.new_zeros(shape)

    def step(
        self, rows: Tensor, kv: Tensor, slots: Tensor, positions: Tensor, longest: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """One row [B, H] for each of B different slots, at positions [B]: hidden [B, H] and logits [B, vocab].

        The hidden state (after the final norm) is what the Code Predictor starts from. `longest` bounds the positions
        read and must exceed every position; the arena's whole length without it.
        """
        hidden = self.prefill(rows[:, None], kv, slots, positions, longest)[:, 0]
        return hidden, F.linear(hidden, self.head)

    def prefill(
        self, rows: Tensor, kv: Tensor, slots: Tensor, starts: Tensor, longest: int | None = None
    ) -> Tensor:
        """T rows [B, T, H] for each slot from position `starts` [B] on: hidden [B, T, H].

        Shorter prompts may be padded at the right: what the padding writes is overwritten before it is read.
        """
        longest = longest or kv.shape[3]
        positions = starts[:, None] + torch.arange(rows.shape[1], device=rows.device)
        held = torch.arange(longest, device=rows.device)
        mask = (held <= positions[..., None])[:, None]  # [B, 1, T, L]
        cache = SlotCache(kv, slots, positions, longest)
        rows = run_layers(self.layers, self.config, rows, positions, cache, mask)
        return rms_norm(rows, self.norm, self.config.rms_norm_eps)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of the next first code, [..., codec vocab]."""
        return F.linear(hidden, self.head)


def build_talker(source: Source, config: TalkerConfig) -> Talker:
    """The Talker from the published names under `talker.`; raises WeightsError."""
    hidden, wide = config.hidden_size, config.text_hidden_size
    model, projection = source.under("talker.model"), source.under("talker.text_projection")
    text = TextRows(
        embedding=model.get("text_embedding.weight", config.text_vocab_size, wide),
        fc1=projection.get("linear_fc1.weight", wide, wide),
        fc1_bias=projection.get("linear_fc1.bias", wide),
        fc2=projection.get("linear_fc2.weight", hidden, wide),
        fc2_bias=projection.get("linear_fc2.bias", hidden),
    )
    return Talker(
        config=config,
        layers=build_layers(model, config),
        norm=model.get("norm.weight", hidden),
        text=text,
        codec_embedding=model.get("codec_embedding.weight", config.vocab_size, hidden),
        head=source.get("talker.codec_head.weight", config.vocab_size, hidden),
    )
