"""The GGUF file as gguf's own reader sees it, blocks as its own quants read them, and llama.cpp on the result."""

import os
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.model_weights import weights
from voice_agent.engine.runtime import ThinkerOptions
from voice_agent.errors import WeightsError
from voice_agent.models import llama
from voice_agent.models.gguf_file import map_file, read_head
from voice_agent.models.llama_weights import faster, gains, pack, unpack_q5_0, unpack_q8_0

Q4_K_M = 15


def gguf_file(path: Path, kinds: dict[str, Type], file_type: int = Q4_K_M) -> Path:
    """A model file with [4, 64] tensors of these kinds, written by the reference library."""
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_file_type(file_type)
    writer.add_string("general.name", "tiny")
    writer.add_array("tokenizer.ggml.tokens", ["a", "우", "long" * 99])
    writer.add_array("numbers", [1, -2, 3])
    generator = np.random.default_rng(5)
    for name, kind in kinds.items():
        values = generator.standard_normal((4, 64)).astype(np.float32)
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


MIXED = {
    "token_embd.weight": Type.Q5_0,
    "blk.0.norm.weight": Type.F32,
    "blk.0.ffn_up.weight": Type.Q5_0,
    "blk.0.ffn_down.weight": Type.Q4_0,
    "output.weight": Type.Q8_0,
}


def values_of(path: Path) -> dict[str, np.ndarray]:
    read = gguf.GGUFReader(path)
    return {t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape(4, 64) for t in read.tensors}


def kinds_of(path: Path) -> dict[str, Type]:
    return {tensor.name: tensor.tensor_type for tensor in gguf.GGUFReader(path).tensors}


# --- the file ---------------------------------------------------------------------------------------------------


def test_slow_blocks_are_rounded_and_all_else_is_kept(tmp_path: Path) -> None:
    model = gguf_file(tmp_path / "m.gguf", MIXED)
    rounded = faster(model)
    assert kinds_of(rounded) == MIXED | {"blk.0.ffn_up.weight": Type.IQ4_NL, "output.weight": Type.IQ4_NL}
    before, after = values_of(model), values_of(rounded)
    for name in ("token_embd.weight", "blk.0.norm.weight", "blk.0.ffn_down.weight"):
        np.testing.assert_array_equal(before[name], after[name])
    for name in ("blk.0.ffn_up.weight", "output.weight"):
        assert (
            0 < np.abs(before[name] - after[name]).max() < 0.3
        )  # a step is an eighth of a block's largest weight at most
    fields, kept = gguf.GGUFReader(model).fields, gguf.GGUFReader(rounded).fields
    counts = {name for name in fields if name.startswith("GGUF.")}
    assert {n: f.contents() for n, f in fields.items() if n not in counts} == {
        n: f.contents() for n, f in kept.items() if n not in counts
    }


def test_embeddings_that_are_the_output_too_are_rounded(tmp_path: Path) -> None:
    model = gguf_file(tmp_path / "m.gguf", {"token_embd.weight": Type.Q8_0, "blk.0.ffn_up.weight": Type.Q4_0})
    assert kinds_of(faster(model))["token_embd.weight"] is Type.IQ4_NL


@pytest.mark.parametrize(
    ("name", "kinds", "file_type"),
    [
        ("m.gguf", MIXED, 7),  # its maker wanted 8 bits
        ("m.gguf", MIXED, 1),  # and 16
        ("m-00001-of-00002.gguf", MIXED, Q4_K_M),
        ("m.gguf", {"blk.0.ffn_up.weight": Type.Q4_0, "token_embd.weight": Type.Q4_0}, 2),
    ],
)
def test_other_files_stay_as_they_are(
    tmp_path: Path, name: str, kinds: dict[str, Type], file_type: int
) -> None:
    model = gguf_file(tmp_path / name, kinds, file_type)
    assert faster(model).resolve() == model.resolve()
    assert values_of(faster(model)).keys() == kinds.keys()


def test_rounding_is_done_once_and_anew_for_another_file(tmp_path: Path) -> None:
    model = gguf_file(tmp_path / "m.gguf", MIXED)
    first = faster(model)
    written_ns = first.stat().st_mtime_ns
    assert faster(model) == first and first.stat().st_mtime_ns == written_ns
    os.utime(model, (1, 1))
    assert faster(model) != first and not first.exists()


def test_where_nothing_can_be_written_the_file_itself_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = gguf_file(tmp_path / "m.gguf", MIXED)
    for folder in (tmp_path / "derived", tmp_path / "cache"):
        folder.touch()  # a file in the way: stands for a read-only disk, also for root
    monkeypatch.setenv("VOICE_AGENT_CACHE", str(tmp_path / "cache"))
    assert faster(model) == model
    assert "m.gguf" in caplog.text and "slower" in caplog.text


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = gguf_file(tmp_path / "m.gguf", MIXED)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("voice_agent.models.llama_weights.write", full)
    assert faster(model) == model
    assert list((tmp_path / "derived").iterdir()) == []


@given(st.data())
def test_half_a_head_is_refused_and_no_more_than_read(data: st.DataObject) -> None:
    whole = _whole_head()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(WeightsError):
        read_head(memoryview(whole[:cut]))


@given(st.binary(max_size=400))
def test_bytes_that_are_no_file_are_refused(content: bytes) -> None:
    for start in (b"", b"GGUF", b"GGUF" + struct.pack("<IQQ", 3, 1, 2)):
        with pytest.raises(WeightsError):
            read_head(memoryview(start + content))


def _whole_head() -> bytes:
    entry = (
        struct.pack("<Q", 3) + b"key" + struct.pack("<IIQ", 9, 8, 2) + struct.pack("<Q", 1) + b"a" + bytes(8)
    )
    info = struct.pack("<Q", 1) + b"t" + struct.pack("<IQIQ", 1, 32, 2, 0)
    return b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + entry + info


@pytest.mark.parametrize("kept", [200, -40])  # in the head; in the last tensor, which would be rounded
def test_a_cut_model_is_left_to_llama_to_refuse(
    tmp_path: Path, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    model = gguf_file(tmp_path / "m.gguf", MIXED)
    model.write_bytes(model.read_bytes()[:kept])
    assert faster(model) == model
    assert "cut short" in caplog.text


@pytest.mark.parametrize(
    ("kept", "says"),
    [
        (12, r"m\.gguf cannot be loaded: .*head.*fetch the file again"),
        (-40, r"m\.gguf cannot be loaded: llama\.cpp refuses it .*lines above.*cut short"),
    ],
)
def test_a_file_that_was_cut_short_is_refused_with_what_to_do(tmp_path: Path, kept: int, says: str) -> None:
    whole = gguf_file(tmp_path / "m.gguf", MIXED).read_bytes()
    (tmp_path / "m.gguf").write_bytes(whole[:kept])
    with pytest.raises(WeightsError, match=says):
        llama.load(tmp_path, ThinkerOptions("llama", ""))


# --- blocks -----------------------------------------------------------------------------------------------------


def rows(kind: Type) -> tuple[np.ndarray, np.ndarray]:
    values = np.random.default_rng(3).standard_normal((64, 32)).astype(np.float32)
    packed = gguf.quants.quantize(values, kind)
    return packed, gguf.quants.dequantize(packed, kind)


def test_blocks_are_read_as_the_reference_reads_them() -> None:
    for kind, unpack in ((Type.Q5_0, unpack_q5_0), (Type.Q8_0, unpack_q8_0)):
        packed, values = rows(kind)
        np.testing.assert_array_equal(unpack(packed), values)


def test_packed_blocks_are_nearer_than_plain_rounding_to_q4_0() -> None:
    _, values = rows(Type.Q5_0)
    ours = gguf.quants.dequantize(pack(values), Type.IQ4_NL)
    plain = gguf.quants.dequantize(gguf.quants.quantize(values, Type.Q4_0), Type.Q4_0)
    assert np.square(ours - values).mean() < 0.7 * np.square(plain - values).mean()


@given(
    arrays.arrays(
        np.float32, st.tuples(st.integers(1, 4), st.just(32)), elements=st.floats(-1000, 1000, width=16)
    )
)
def test_any_block_is_packed_within_a_step(values: np.ndarray) -> None:
    ours = gguf.quants.dequantize(pack(values), Type.IQ4_NL)
    step = np.abs(values).max(axis=1, keepdims=True) / 6
    assert (np.abs(ours - values) <= step * 1.01 + 1e-3).all()


def test_zeros_stay_zeros() -> None:
    zeros = np.zeros((2, 32), np.float32)
    np.testing.assert_array_equal(gguf.quants.dequantize(pack(zeros), Type.IQ4_NL), zeros)


# --- the default model ------------------------------------------------------------------------------------------


@pytest.mark.weights
def test_the_default_model_is_worth_it() -> None:
    model = llama.find_model(weights("qwen2.5-coder-0.5b"))
    assert gains(model.name, read_head(map_file(model)))


def test_a_model_cut_behind_its_head_is_refused_as_cut(tmp_path: Path) -> None:
    whole = gguf_file(tmp_path / "m.gguf", MIXED).read_bytes()
    for tensor in read_head(memoryview(whole)).tensors:
        with pytest.raises(WeightsError, match="cut short"):
            read_head(memoryview(whole[: tensor.start]))
