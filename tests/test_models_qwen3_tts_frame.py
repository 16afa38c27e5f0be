"""The frame over a slot arena against the plain way of speaking: same codes, alone and among others."""

import pytest

torch = pytest.importorskip("torch")

from tests.qwen3_tts_small import CONFIG, small_model  # noqa: E402
from voice_agent.models.qwen3_tts.arena import Arena, Start, new_arena  # noqa: E402
from voice_agent.models.qwen3_tts.frame import frame_weights, make_frame, new_rows  # noqa: E402
from voice_agent.models.qwen3_tts.model import Model  # noqa: E402
from voice_agent.models.qwen3_tts.plain_ops import PlainOps  # noqa: E402
from voice_agent.models.qwen3_tts.prompt import Manner, Prompt, Spoken, build_prompt, embed  # noqa: E402
from voice_agent.models.qwen3_tts.sampling import sampling_rows  # noqa: E402
from voice_agent.models.qwen3_tts.speak import speak  # noqa: E402

FRAMES = 9


def prompt(voice: str, text: list[int]) -> Prompt:
    return build_prompt(CONFIG, Spoken([1, 2, 3], text), Manner(voice, "english"))


def enter(model: Model, arena: Arena, slot: int, spoken: Prompt, text: list[int], seed: int) -> None:
    """As an engine does it: the shared rows' keys and values, the state, the text."""
    rows = embed(model.talker, model.code_predictor, spoken)[: spoken.shared]
    model.talker.prefill(rows[None], arena.kv, torch.tensor([slot]), torch.tensor([0]))
    tokens = [*text, CONFIG.tts_eos_token_id]
    arena.text[slot, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
    words = Start(spoken.shared, len(tokens), seed).words()
    arena.state[slot] = torch.tensor(words, dtype=torch.int32)


def test_the_frame_gives_the_codes_of_the_plain_way() -> None:
    model = small_model()
    texts, slots, seeds = [[5, 6, 7], [8, 9], [4, 11, 12, 13, 14]], [4, 0, 2], [7, 8, 9]
    prompts = [prompt(voice, text) for voice, text in zip(("ryan", "sohee", "ryan"), texts, strict=True)]
    expected = speak(model, prompts, sampling_rows(3, seeds=seeds), FRAMES)
    arena = new_arena(model.talker.config, 5, 64, 16, model.talker.norm)
    weights = frame_weights(model, 64)
    for slot, spoken, text, seed in zip(slots, prompts, texts, seeds, strict=True):
        enter(model, arena, slot, spoken, text, seed)
    rows = new_rows(weights, 4, arena.spare)
    rows.slots[:3] = torch.tensor(slots, dtype=torch.int32)
    first: list[list[int]] = []
    for _ in range(FRAMES):
        make_frame(PlainOps(), weights, arena, rows)
        first.append(rows.result.tolist())
    for row, (slot, codes) in enumerate(zip(slots, expected, strict=True)):
        count = len(codes)
        assert count >= 3
        assert arena.codes[slot, :count].tolist() == codes.tolist()
        assert [made[row] for made in first[:count]] == codes[:, 0].tolist()
    assert arena.state[arena.spare, :2].tolist() == [0, 0]


def test_a_broken_row_is_told_and_hurts_no_other() -> None:
    model = small_model()
    arena = new_arena(model.talker.config, 2, 64, 16, model.talker.norm)
    weights = frame_weights(model, 64)
    text = [5, 6, 7]
    spoken = prompt("ryan", text)
    [expected] = speak(model, [spoken], sampling_rows(1, seeds=[3]), 2)
    for slot in (0, 1):
        enter(model, arena, slot, spoken, text, 3)
    arena.kv[:, 1, :, 0] = torch.nan
    rows = new_rows(weights, 2, arena.spare)
    rows.slots[:] = torch.tensor([0, 1], dtype=torch.int32)
    for _ in range(2):
        make_frame(PlainOps(), weights, arena, rows)
        assert rows.result[1] == -1
    assert arena.codes[0, :2].tolist() == expected.tolist()
    assert int(arena.codes[1].max()) < 64
