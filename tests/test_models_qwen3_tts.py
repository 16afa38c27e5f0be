"""Talker, Code Predictor, codec and sampling: cuts, batches and paddings change nothing."""

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from tests import qwen3_tts_small as small  # noqa: E402
from voice_agent.models.qwen3_tts import sampling  # noqa: E402
from voice_agent.models.qwen3_tts.config import GROUPS, LARGE, SMALL, CodecConfig  # noqa: E402
from voice_agent.models.qwen3_tts.model import Model, build_model, exact_shape_random  # noqa: E402
from voice_agent.models.qwen3_tts.prompt import Manner, Spoken, build_prompt  # noqa: E402
from voice_agent.models.qwen3_tts.speak import speak  # noqa: E402

MODEL = small.small_model()
EXACT = small.small_model(dtype=torch.float64)  # rounding is no excuse


def codes_of(batch: int, count: int, seed: int = 1) -> Tensor:
    return torch.randint(small.CODES, (batch, count, GROUPS), generator=torch.Generator().manual_seed(seed))


def rows_of(batch: int, count: int, model: Model = EXACT) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    shape = (batch, count, model.config.talker_config.hidden_size)
    return torch.randn(shape, generator=generator, dtype=model.talker.norm.dtype)


# --- codec ------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=8)
@given(cuts=st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_a_whole_decode_equals_any_cut(cuts: list[int]) -> None:
    codes = codes_of(2, sum(cuts))
    state, parts = EXACT.codec.new_state(2), list[Tensor]()
    for part in codes.split(cuts, dim=1):
        sound, state = EXACT.codec.step(part, state)
        parts.append(sound)
    assert torch.allclose(torch.cat(parts, 1), EXACT.codec.decode(codes), atol=1e-10)
    assert state.frames.tolist() == [sum(cuts)] * 2


@settings(deadline=None, max_examples=8)
@given(first=st.lists(st.integers(0, 5), min_size=3, max_size=3))
def test_ragged_rows_share_a_step(first: list[int]) -> None:
    codes = codes_of(3, 9)
    whole = EXACT.codec.decode(codes)
    padded = codes[:, :5].clone()
    for row, count in enumerate(first):
        padded[row, count:] = 63  # padding that must not be heard
    sound, state = EXACT.codec.step(padded, EXACT.codec.new_state(3), torch.tensor(first))
    rest = torch.stack([codes[row, count : count + 4] for row, count in enumerate(first)])
    after, _ = EXACT.codec.step(rest, state)
    for row, count in enumerate(first):
        heard = torch.cat((sound[row, : count * small.SAMPLES], after[row]))
        assert torch.allclose(heard, whole[row, : len(heard)], atol=1e-10)


def test_a_step_leaves_the_state_it_was_given_alone() -> None:
    state = EXACT.codec.new_state(1)
    EXACT.codec.step(codes_of(1, 3), state)
    assert not state.columns.any() and not state.kv.any() and not state.frames.any()


def test_a_code_out_of_range_spoils_only_its_row() -> None:
    codes = codes_of(2, 4)
    spoilt = codes.clone()
    spoilt[0, 1, 3], spoilt[0, 2, 0] = 9_999, -7
    sound = MODEL.codec.decode(spoilt)
    assert sound.isfinite().all()
    assert torch.allclose(sound[1], MODEL.codec.decode(codes)[1], atol=1e-6)


def test_every_code_is_heard() -> None:
    codes = codes_of(1, 3)
    whole = EXACT.codec.decode(codes)
    for group in range(GROUPS):
        other = codes.clone()
        other[0, 1, group] = (other[0, 1, group] + 1) % small.CODES
        difference = (EXACT.codec.decode(other) - whole).abs()[0]
        assert not difference[: small.SAMPLES].any()  # causal
        assert difference[small.SAMPLES :].max() > 1e-6


# --- talker -----------------------------------------------------------------------------------------------------


def test_rows_one_by_one_equal_a_prefill() -> None:
    talker, rows = EXACT.talker, rows_of(2, 7)
    slots, start = torch.tensor([3, 1]), torch.tensor([0, 0])
    whole = talker.prefill(rows, talker.new_kv(4, 16), slots, start)
    kv = talker.new_kv(4, 16)
    for position in range(7):
        hidden, logits = talker.step(rows[:, position], kv, slots, start + position, longest=position + 1)
        assert torch.allclose(hidden, whole[:, position], atol=1e-10)
        assert torch.allclose(logits, talker.logits(whole[:, position]), atol=1e-10)


def test_rows_of_a_batch_do_not_see_each_other_nor_what_a_slot_held_before() -> None:
    talker, rows = EXACT.talker, rows_of(3, 4)
    kv = torch.full_like(talker.new_kv(5, 12), 7.0)  # left behind by earlier streams
    slots = torch.tensor([4, 0, 2])
    for row, count in enumerate((4, 2, 3)):  # different lengths
        talker.prefill(rows[row : row + 1, :count], kv, slots[row : row + 1], torch.tensor([0]))
    following = rows_of(3, 5)[:, 4]
    together, _ = talker.step(following, kv, slots, torch.tensor([4, 2, 3]))
    for row, count in enumerate((4, 2, 3)):
        alone = torch.cat((rows[row, :count], following[row : row + 1]))[None]
        expected = talker.prefill(alone, talker.new_kv(1, 12), torch.tensor([0]), torch.tensor([0]))
        assert torch.allclose(together[row], expected[0, -1], atol=1e-10)


def test_padding_behind_a_prompt_is_overwritten_before_it_is_read() -> None:
    talker, rows = EXACT.talker, rows_of(2, 6)
    slots, kv = torch.tensor([0, 1]), talker.new_kv(2, 12)
    talker.prefill(rows, kv, slots, torch.tensor([0, 0]))  # row 1's prompt is 3 long, the rest is padding
    hidden, _ = talker.step(rows[:, 0], kv, slots, torch.tensor([6, 3]))
    alone = torch.cat((rows[1, :3], rows[1, :1]))[None]
    expected = talker.prefill(alone, talker.new_kv(1, 12), torch.tensor([0]), torch.tensor([0]))
    assert torch.allclose(hidden[1], expected[0, -1], atol=1e-10)


def test_the_projected_table_is_the_projection() -> None:
    ids = torch.tensor([0, 5, 199])
    table = EXACT.talker.text.projected_table(chunk_tokens=64)
    assert table.shape == (200, 48)
    assert torch.allclose(table[ids], EXACT.talker.text(ids), atol=1e-12)


# --- code predictor ---------------------------------------------------------------------------------------------


def greedy(logits: Tensor, group: int) -> Tensor:
    return logits.argmax(-1)


def test_a_frame_in_a_batch_equals_a_frame_alone() -> None:
    predictor, hidden = EXACT.code_predictor, rows_of(3, 1)[:, 0]
    code0 = torch.tensor([1, 2, 3])
    row0 = EXACT.talker.codec_embedding[code0]
    codes, total = predictor.frame(hidden, code0, row0, predictor.new_kv(4), greedy)
    assert codes.shape == (3, GROUPS) and codes[:, 0].tolist() == [1, 2, 3]
    assert torch.allclose(total, row0 + predictor.sum_rows(codes), atol=1e-12)
    scratch = torch.full_like(
        predictor.new_kv(1), 9.0
    )  # a frame leaves nothing behind that the next one reads
    for row in range(3):
        one = slice(row, row + 1)
        alone, _ = predictor.frame(hidden[one], code0[one], row0[one], scratch, greedy)
        assert torch.equal(alone[0], codes[row])


# --- sampling ---------------------------------------------------------------------------------------------------


def test_sampling_follows_the_softmax_of_the_kept_candidates() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -9.0])
    count = 20_000
    rows = sampling.sampling_rows(count, temperature=0.8, top_k=4)
    chosen = sampling.choose(logits.expand(count, -1), rows, torch.zeros(count, dtype=torch.int64), group=3)
    shares = torch.bincount(chosen, minlength=5) / count
    expected = torch.cat(((logits[:4] / 0.8).softmax(-1), torch.zeros(1)))
    assert (shares - expected).abs().max() < 0.012  # over 3 sigma of 20,000


def test_noise_differs_by_seed_frame_and_group_and_is_even() -> None:
    seeds, codes = torch.arange(2000)[:, None], torch.arange(8)[None]
    frames = torch.zeros_like(seeds)
    noise = sampling.gumbel(seeds, frames, 0, codes)
    for other in (
        sampling.gumbel(seeds + 2000, frames, 0, codes),
        sampling.gumbel(seeds, frames + 1, 0, codes),
        sampling.gumbel(seeds, frames, 1, codes),
        sampling.gumbel(seeds, frames, 0, codes + 8),
    ):
        correlation = torch.corrcoef(torch.stack((noise.flatten(), other.flatten())))[0, 1]
        assert correlation.abs() < 0.04
    assert abs(noise.mean().item() - 0.5772) < 0.04 and abs(noise.var().item() - 1.645) < 0.1


def test_a_row_chooses_the_same_alone_and_in_a_batch() -> None:
    logits = torch.randn((4, 100), generator=torch.Generator().manual_seed(3))
    rows, frames = sampling.sampling_rows(4, seeds=[5, 6, 7, 8]), torch.tensor([9, 3, 0, 9])
    together = sampling.choose(logits, rows, frames, 2)
    for row, seed in enumerate((5, 6, 7, 8)):
        alone = sampling.sampling_rows(1, seeds=[seed])
        one = slice(row, row + 1)
        assert sampling.choose(logits[one], alone, frames[one], 2) == together[row]


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), [(0.0, 50, 1.0), (0.9, 1, 1.0), (0.9, 50, 1e-6)])
def test_no_room_for_chance_is_greedy(temperature: float, top_k: int, top_p: float) -> None:
    logits = torch.randn((64, 200), generator=torch.Generator().manual_seed(4))
    rows = sampling.sampling_rows(64, temperature, top_k, top_p)
    assert torch.equal(sampling.choose(logits, rows, torch.arange(64), 0), logits.argmax(-1))


def test_control_codes_are_forbidden_and_the_end_before_frame_two() -> None:
    eos = small.TALKER.codec_eos_token_id
    logits = torch.zeros((3, small.TALKER.vocab_size))
    seen = torch.zeros_like(logits, dtype=torch.bool)
    scores = sampling.allowed(logits, seen, torch.full((3,), 1.05), torch.tensor([0, 1, 2]), eos)
    finite = scores.isfinite()
    assert finite[:, : small.CODES].all()
    assert finite[:, eos].tolist() == [False, False, True]
    assert finite.sum(-1).tolist() == [small.CODES, small.CODES, small.CODES + 1]


def test_a_repeat_is_made_less_likely_whatever_its_sign() -> None:
    logits = torch.zeros((1, small.TALKER.vocab_size))
    logits[0, 3], logits[0, 4] = 2.0, -2.0
    seen = torch.zeros_like(logits, dtype=torch.bool)
    seen[0, 3] = seen[0, 4] = True
    scores = sampling.allowed(
        logits, seen, torch.tensor([1.25]), torch.tensor([5]), small.TALKER.codec_eos_token_id
    )
    assert scores[0, 3] == pytest.approx(1.6) and scores[0, 4] == pytest.approx(-2.5) and scores[0, 5] == 0


def test_a_sampled_reply_is_the_same_alone_and_beside_others() -> None:
    texts = ([20, 21, 22], [30], [40, 41, 42, 43, 44])
    prompts = [
        build_prompt(small.CONFIG, Spoken([190, 77, 10], text), Manner("sohee", "ko")) for text in texts
    ]
    together = speak(EXACT, prompts, sampling.sampling_rows(3, seeds=[7, 8, 9]), most_frames=4)
    for prompt, seed, codes in zip(prompts, (7, 8, 9), together, strict=True):
        alone = speak(EXACT, [prompt], sampling.sampling_rows(1, seeds=[seed]), most_frames=4)[0]
        assert torch.equal(alone, codes)
    other = speak(EXACT, prompts[:1], sampling.sampling_rows(1, seeds=[70]), most_frames=4)[0]
    assert not torch.equal(other, together[0])


# --- random weights ---------------------------------------------------------------------------------------------


def test_random_weights_are_audible_never_end_and_come_again() -> None:
    model, again = (
        exact_shape_random(torch.device("cpu"), torch.float32, 3, small.CONFIG, small.CODEC) for _ in range(2)
    )
    sound = model.codec.decode(codes_of(1, 6))
    assert 0.02 < sound.square().mean().sqrt() < 0.5
    assert sound[0, :6].square().mean().sqrt() > 10 ** (-45 / 20)  # loud from its first samples
    assert not model.talker.head[small.TALKER.codec_eos_token_id].any()
    assert torch.equal(sound, again.codec.decode(codes_of(1, 6)))


class Counting:
    """A source that makes nothing and counts what it was asked for."""

    def __init__(self) -> None:
        self.total = 0

    def get(self, name: str, *shape: int) -> Tensor:
        self.total += torch.Size(shape).numel()
        return torch.empty(shape, device="meta", dtype=torch.bfloat16)

    def under(self, prefix: str) -> "Counting":
        return self


@pytest.mark.slow
def test_the_published_shape_has_the_published_size() -> None:
    weights, codec_weights = Counting(), Counting()
    model = build_model(weights, codec_weights, LARGE, CodecConfig())
    assert weights.total == 1_916_676_352  # of the published 1.7B file, 3.83 GB in bfloat16
    state = model.codec.new_state(1)
    assert state.kv.numel() == 1_163_264 and state.columns.numel() == 135_232  # 2.6 MB a stream in bfloat16
    small_weights = Counting()
    build_model(small_weights, Counting(), SMALL, CodecConfig())
    assert small_weights.total == 905_788_672  # 0.6B
