"""A user's own model: what is missing, cut or of the wrong kind is said before a runtime chokes on it."""

from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from voice_agent.errors import WeightsError
from voice_agent.models.pinned import Role
from voice_agent.models.store import check_folder, main_file

GGUF = b"GGUF" + bytes(100)


def onnx_bytes() -> bytes:
    """Return a small real model as the exporter writes it."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    weights = helper.make_tensor("w", TensorProto.FLOAT, [300], [0.5] * 300)
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [value], [helper.make_tensor_value_info("y", 1, [1])], [weights])
    return helper.make_model(graph, producer_name="test").SerializeToString()


ONNX = onnx_bytes()
WHISPER = {"model.bin": bytes(5_000), "config.json": b"{}", "vocabulary.txt": b"a"}
SOUND: list[tuple[Role, dict[str, bytes], str]] = [
    ("vad", {"v.onnx": ONNX}, "v.onnx"),
    ("end-of-turn", {"v.onnx": ONNX, "readme.md": b""}, "v.onnx"),
    ("recognizer", WHISPER, "model.bin"),
    ("recognizer", {"model.bin": bytes(5_000), "config.json": b"{}", "vocabulary.json": b"[]"}, "model.bin"),
    ("thinker", {"m.gguf": GGUF}, "m.gguf"),
    ("thinker", {"m-00002-of-00002.gguf": GGUF, "m-00001-of-00002.gguf": GGUF}, "m-00001-of-00002.gguf"),
    ("talker", {"v.onnx": ONNX, "v.onnx.json": b"{}"}, "v.onnx"),
]
WRONG: list[tuple[Role, dict[str, bytes], str]] = [
    ("thinker", {}, r"holds no \*\.gguf file \(it holds nothing\)"),
    ("thinker", {"v.onnx": ONNX}, r"holds no \*\.gguf file \(it holds v\.onnx\)"),
    ("thinker", {"m.gguf": b""}, r"m\.gguf in .* is empty"),
    ("thinker", {"m.gguf": b"GGUF"}, "is not a GGUF file, or is cut short"),
    ("thinker", {"m.gguf": b"<html>" * 20}, "is not a GGUF file"),
    ("thinker", {"a.gguf": GGUF, "b.gguf": GGUF}, r"several \(a\.gguf, b\.gguf\); name the file itself"),
    ("recognizer", {"model.bin": bytes(5_000)}, r"config\.json is missing"),
    ("recognizer", {"model.bin": bytes(5_000), "config.json": b"{}"}, r"vocabulary\.txt is missing"),
    ("recognizer", WHISPER | {"config.json": b""}, r"config\.json in .* is empty"),
    ("recognizer", WHISPER | {"model.bin": bytes(10)}, "too small"),
    ("recognizer", {"model.safetensors": b"x"}, r"holds no model\.bin"),
    ("talker", {"v.onnx": ONNX}, r"v\.onnx\.json is missing"),
    ("talker", {"v.onnx": ONNX[:-1], "v.onnx.json": b"{}"}, "is not an ONNX model, or is cut short"),
    ("vad", {"v.onnx": b"version https://git-lfs"}, "is not an ONNX model"),
]


def filled(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(("role", "files", "main"), SOUND)
def test_a_sound_folder_is_taken(tmp_path: Path, role: Role, files: dict[str, bytes], main: str):
    folder = filled(tmp_path / "mine", files)
    assert check_folder(folder, role) == folder
    assert main_file(folder, role) == folder / main


@pytest.mark.parametrize(("role", "files", "why"), WRONG)
def test_a_wrong_folder_says_what_is_wrong(tmp_path: Path, role: Role, files: dict[str, bytes], why: str):
    with pytest.raises(WeightsError, match=f"{role} model: .*{why}"):
        check_folder(filled(tmp_path / "mine", files), role)


def test_a_folder_that_is_not_there_is_said(tmp_path: Path):
    with pytest.raises(WeightsError, match="gone does not exist"):
        check_folder(tmp_path / "gone", "thinker")


def test_the_file_itself_may_be_named(tmp_path: Path):
    folder = filled(tmp_path / "mine", {"a.gguf": GGUF, "b.gguf": GGUF})
    assert main_file(folder / "b.gguf", "thinker") == folder / "b.gguf"
    assert check_folder(folder / "b.gguf", "thinker") == folder
    with pytest.raises(WeightsError, match=r"a\.gguf in .* is not a \*\.onnx file"):
        check_folder(folder / "a.gguf", "talker")


def test_every_cut_of_an_onnx_file_is_noticed(tmp_path: Path):
    assert onnx.load_from_string(ONNX).graph.node[0].op_type == "Identity"
    for end in range(len(ONNX)):
        (tmp_path / "v.onnx").write_bytes(ONNX[:end])
        with pytest.raises(WeightsError):
            check_folder(tmp_path, "vad")


@given(content=st.binary(max_size=200))
def test_any_bytes_are_a_clear_error_or_a_model(tmp_path_factory: pytest.TempPathFactory, content: bytes):
    folder = filled(tmp_path_factory.getbasetemp() / "any", {"v.onnx": content})
    try:
        check_folder(folder, "vad")
    except WeightsError as error:
        assert "v.onnx" in str(error)
