"""The same answers as the published implementation, on the same small random weights (see golden_qwen3_tts)."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests import qwen3_tts_small as small  # noqa: E402
from tests.qwen3_tts_cases import CASES, ROLE, SAMPLER_CASES, Case, sampler_inputs  # noqa: E402
from voice_agent.models.qwen3_tts import sampling  # noqa: E402
from voice_agent.models.qwen3_tts.cloning import heard_before  # noqa: E402
from voice_agent.models.qwen3_tts.codec import build_codec  # noqa: E402
from voice_agent.models.qwen3_tts.codec_encoder import build_codec_encoder  # noqa: E402
from voice_agent.models.qwen3_tts.config import GROUPS  # noqa: E402
from voice_agent.models.qwen3_tts.prompt import Clone, Manner, Prompt, Spoken, build_prompt  # noqa: E402
from voice_agent.models.qwen3_tts.speak import speak  # noqa: E402
from voice_agent.models.qwen3_tts.speaker_encoder import build_speaker_encoder  # noqa: E402

GOLDEN = np.load(Path(__file__).parent / "data" / "qwen3_tts.npz")


@cache
def model() -> small.Model:
    return small.small_model()


def prompt_of(case: Case) -> Prompt:
    clone = None
    if case.clone:
        codes = torch.tensor(case.reference_codes) if case.reference_codes else None
        clone = Clone(small.speaker_vector(), codes, case.reference_text)
    manner = Manner(case.voice, case.language, case.instruction, clone, case.whole_text)
    return build_prompt(small.CONFIG, Spoken(ROLE, case.text), manner)


@pytest.mark.parametrize("case", CASES[::8], ids=lambda case: case.name)
def test_a_reply_alone_has_the_published_codes(case: Case) -> None:
    greedy = sampling.sampling_rows(1, temperature=0.0)
    codes = speak(model(), [prompt_of(case)], greedy, case.most_frames)[0]
    assert codes.tolist() == GOLDEN[f"codes.{case.name}"].tolist()


def test_replies_of_one_batch_have_the_published_codes() -> None:
    greedy = sampling.sampling_rows(len(CASES), temperature=0.0)
    spoken = speak(model(), [prompt_of(case) for case in CASES], greedy, CASES[0].most_frames)
    for case, codes in zip(CASES, spoken, strict=True):
        assert codes.tolist() == GOLDEN[f"codes.{case.name}"].tolist(), case.name


@pytest.mark.parametrize("name", small.SOUNDS)
def test_codes_have_the_published_sound(name: str) -> None:
    config, codes = small.SOUNDS[name]
    codec, published = build_codec(small.Named(), config), torch.tensor(GOLDEN[f"sound.{name}"])
    assert published.abs().max() < 1.0  # not hidden by the clamp
    assert torch.allclose(codec.decode(codes), published, atol=1e-5)
    state, parts = codec.new_state(len(codes)), list[torch.Tensor]()
    for part in codes.split(3, dim=1):
        sound, state = codec.step(part, state)
        parts.append(sound)
    assert torch.allclose(torch.cat(parts, 1), published, atol=1e-5)


@pytest.mark.parametrize("name", SAMPLER_CASES)
def test_candidates_have_the_published_chances(name: str) -> None:
    temperature, top_k, top_p, penalty = SAMPLER_CASES[name]
    logits, before = sampler_inputs(name)
    count, rows = len(logits), sampling.sampling_rows(len(logits), temperature, top_k, top_p)
    seen = torch.zeros_like(logits, dtype=torch.bool).scatter(1, before, True)
    frames = torch.full((count,), before.shape[1])
    scores = sampling.allowed(
        logits, seen, torch.full((count,), penalty), frames, small.TALKER.codec_eos_token_id
    )
    best, codes, kept = sampling.candidates(scores, rows)
    chances = (best / temperature).masked_fill(~kept, -torch.inf).softmax(-1)
    ours = torch.zeros_like(logits).scatter(1, codes, chances)
    assert torch.allclose(ours, torch.tensor(GOLDEN[f"chances.{name}"]), atol=1e-6)


@pytest.mark.parametrize("count", [26_000, 19_200])
def test_a_clip_has_the_published_voice_and_codes(count: int) -> None:
    clip = small.clip(count)
    speaker = build_speaker_encoder(small.Named(), small.SPEAKER)(clip)
    assert torch.allclose(speaker, torch.tensor(GOLDEN[f"speaker.{count}"]), atol=1e-5)
    codes = build_codec_encoder(small.Named(), small.ENCODER, GROUPS)(clip)
    assert codes.tolist() == GOLDEN[f"clip.{count}"].tolist()


def test_a_reply_after_a_clip_sounds_as_if_both_were_decoded_together() -> None:
    clip, reply = small.SOUNDS["many frames"][1][:1].split((15, 25), dim=1)
    codec = build_codec(small.Named(torch.float64), small.DECODER)
    together = codec.decode(torch.cat((clip, reply), dim=1))[:, clip.shape[1] * small.SAMPLES :]
    after, _ = codec.step(reply, heard_before(codec, Clone(small.speaker_vector(), clip[0])))
    assert torch.allclose(after, together, atol=1e-10)
