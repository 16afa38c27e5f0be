"""The codec's Triton way against the plain one, in Triton's interpreter: run with TRITON_INTERPRET=1, else skipped."""

import os

import pytest

torch = pytest.importorskip("torch")

from tests.qwen3_tts_small import Named  # noqa: E402
from voice_agent.models.qwen3_tts.arena import new_arena  # noqa: E402
from voice_agent.models.qwen3_tts.codec import build_codec  # noqa: E402
from voice_agent.models.qwen3_tts.codec_slots import new_codec_rows, render  # noqa: E402
from voice_agent.models.qwen3_tts.config import DecoderConfig, TalkerConfig  # noqa: E402

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1", allow_module_level=True)

DECODER = DecoderConfig(
    codebook_size=64,
    codebook_dim=32,
    latent_dim=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=16,
    decoder_dim=64,
    upsample_rates=(3, 2),
    upsampling_ratios=(2,),
)


def test_ragged_chunks_sound_as_the_plain_codec_makes_them() -> None:
    from voice_agent.models.qwen3_tts.codec_fused import FusedCodec, FusedLane

    codec = build_codec(Named(), DECODER)
    arena = new_arena(TalkerConfig(num_hidden_layers=1, vocab_size=64), 3, 8, 96, torch.zeros(1))
    arena.codes.random_(0, 64)
    fused = FusedCodec(codec, 3)
    lane, states = FusedLane(fused, arena, 8), codec.new_state(4)
    begun = {0: 0, 2: 0}
    for frames, valid in ((2, (2, 1)), (3, (1, 3)), (1, (1, 1)), (4, (4, 2)), (2, (2, 2))):
        buffers, plain = (new_codec_rows(codec, frames, 2, 3) for _ in range(2))
        rows = [
            [slot, first, count, int(first == 0)]
            for (slot, first), count in zip(begun.items(), valid, strict=True)
        ]
        for made in (buffers, plain):
            made.rows[:] = torch.tensor(rows, dtype=torch.int32)
        lane.step(buffers, frames)
        render(codec, states, arena, plain, frames)
        for row, count in enumerate(valid):
            got, right = (
                made.sound[row, : count * DECODER.samples_per_frame].int() for made in (buffers, plain)
            )
            assert int(right.abs().max()) > 100
            assert int((got - right).abs().max()) <= 3, (frames, row)
        begun = {slot: first + count for (slot, first), count in zip(begun.items(), valid, strict=True)}
