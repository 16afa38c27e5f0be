"""The frame by Triton kernels against the plain one, in Triton's interpreter: skipped without TRITON_INTERPRET=1."""

import os

import pytest
from msgspec.structs import replace as replace_struct

torch = pytest.importorskip("torch")

from tests.qwen3_tts_small import CONFIG, small_model  # noqa: E402
from tests.test_models_qwen3_tts_frame import enter, prompt  # noqa: E402
from voice_agent.models.qwen3_tts.arena import Arena, new_arena  # noqa: E402
from voice_agent.models.qwen3_tts.frame import FrameWeights, Rows, frame_weights, make_frame, new_rows  # noqa: E402
from voice_agent.models.qwen3_tts.frame_parts import Ops  # noqa: E402
from voice_agent.models.qwen3_tts.model import Model  # noqa: E402
from voice_agent.models.qwen3_tts.plain_ops import PlainOps  # noqa: E402

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1", allow_module_level=True)

pytestmark = [
    pytest.mark.slow,
    # of the interpreter: loop bounds from arrays, hashes that wrap
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

SEEDS, TEXTS = (7, 8, 9, 10, 11, 12), ([5, 6, 7], [8, 9], [4, 11, 12, 13], [3], [5, 5], [8])


class SmallTiles(dict):
    """Tiles that fit matrices of a test's size; `cublas` names the kernels that are left to the library."""

    def __init__(self, rows: int, cublas: tuple[str, ...]) -> None:
        super().__init__()
        self._rows, self._cublas = rows, cublas

    def __contains__(self, _key: object) -> bool:
        return True

    def __getitem__(self, key: tuple[str, int, int, int]):  # noqa: ANN204
        from voice_agent.models.qwen3_tts.triton_ops import Tile

        return None if key[0] in self._cublas else Tile(self._rows, 16)


def power_of_two_model(wide: int) -> Model:
    """Kernels take widths that are powers of two."""
    talker = replace_struct(CONFIG.talker_config, hidden_size=wide)
    return small_model(replace_struct(CONFIG, talker_config=talker))


def begun(model: Model, weights: FrameWeights, batch: int) -> tuple[Arena, Rows]:
    arena = new_arena(model.talker.config, batch, 64, 16, model.talker.norm)
    for slot in range(batch):
        enter(model, arena, slot, prompt("ryan", TEXTS[slot]), TEXTS[slot], SEEDS[slot])
    rows = new_rows(weights, batch + 1, arena.spare)
    rows.slots[:batch] = torch.arange(batch - 1, -1, -1, dtype=torch.int32)
    return arena, rows


@pytest.mark.parametrize(
    ("batch", "wide", "dot_from", "rows", "cublas"),
    [
        (1, 64, 5, 4, ()),  # in registers, all of it
        (1, 64, 2, 16, ()),  # on tensor cores, fine sums of squares
        (5, 64, 2, 16, ("norm_linear",)),  # mixed, coarse sums
        (5, 32, 2, 16, ("norm_linear", "norm_swiglu", "add_linear")),  # nothing to narrow
    ],
    ids=["registers", "dots", "mixed", "library"],
)
def test_frames_have_the_codes_of_the_plain_way(
    batch: int, wide: int, dot_from: int, rows: int, cublas: tuple[str, ...]
) -> None:
    from voice_agent.models.qwen3_tts.triton_ops import TritonOps

    model = power_of_two_model(wide)
    weights = frame_weights(model, 64)
    ops = TritonOps(dot_from=dot_from, tiles=SmallTiles(rows, cublas))
    made: list[tuple[Arena, Rows]] = []
    which: Ops
    for which in (ops, PlainOps()):
        arena, its_rows = begun(model, weights, batch)
        for _ in range(2):
            make_frame(which, weights, arena, its_rows)
        made.append((arena, its_rows))
    (arena, ours), (plain, theirs) = made
    assert arena.codes[:batch].tolist() == plain.codes[:batch].tolist()
    assert ours.result[:batch].tolist() == theirs.result[:batch].tolist()
    assert arena.state.tolist() == plain.state.tolist()
    assert arena.seen[:batch].tolist() == plain.seen[:batch].tolist()
    assert torch.allclose(arena.kv[:, :batch], plain.kv[:, :batch], atol=1e-4)
    assert torch.allclose(ours.kv, theirs.kv, atol=1e-4)


def test_a_broken_row_is_told_and_hurts_no_other() -> None:
    from voice_agent.models.qwen3_tts.triton_ops import TritonOps

    model = power_of_two_model(64)
    weights = frame_weights(model, 64)
    (arena, rows), (plain, _) = begun(model, weights, 2), begun(model, weights, 2)
    plain_rows = new_rows(weights, 3, plain.spare)
    plain_rows.slots.copy_(rows.slots)
    arena.kv[:, 1, :, 0] = torch.nan
    for _ in range(2):
        make_frame(TritonOps(dot_from=2, tiles=SmallTiles(16, ())), weights, arena, rows)
        make_frame(PlainOps(), weights, plain, plain_rows)
        assert rows.result[0] == -1 and rows.result[1] == plain_rows.result[1]
    assert arena.codes[0, :2].tolist() == plain.codes[0, :2].tolist()
