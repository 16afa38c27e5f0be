"""Check a model that the user brought: a folder (or file) with no pinned digest.

Looks at names, sizes and file headers only; whether a runtime can load it is seen when it does.
"""

from pathlib import Path

from voice_agent.errors import WeightsError
from voice_agent.models.gguf_file import MAGIC
from voice_agent.models.pinned import Role

GGUF_HEADER_BYTES = 24  # magic, version, tensor count, metadata count
ONNX_FIELDS = {7, 8}  # graph and opset_import of ModelProto (onnx.proto3); written in this order, late
FIELD_HEAD_BYTES = 20  # a tag and a length are at most ten bytes each
CTRANSLATE2_MIN_BYTES = 1024

# What the main file of a role is called, and what it needs beside itself.
_MAIN_PATTERN: dict[Role, str] = {
    "vad": "*.onnx",
    "end-of-turn": "*.onnx",
    "recognizer": "model.bin",
    "thinker": "*.gguf",
    "talker": "*.onnx",
}


def check_folder(path: Path, role: Role) -> Path:
    """Return the folder of a user's own model; WeightsError if it lacks a file or one looks cut."""
    main = main_file(path, role)
    _check_header(main, role)
    for companion in _companions(main, role):
        _check_not_empty(companion, role)
    return main.parent


def check_hugging_face(path: Path, *, weights: bool = True) -> Path:
    """Return a language model's folder as Hugging Face's libraries read it; WeightsError that says what it lacks."""
    if not path.exists():
        raise WeightsError(f"thinker model: {path} does not exist")
    hint = (
        '; a GGUF runs with thinker.family = "llama"'
        if path.suffix == ".gguf" or any(path.glob("*.gguf"))
        else ""
    )
    if path.is_file():
        raise WeightsError(
            f"thinker model: {path} is a file, and vLLM takes a folder: config.json, *.safetensors, a tokenizer{hint}"
        )
    wanted = ["config.json", *(["*.safetensors"] if weights and not any(path.glob("*.bin")) else [])]
    for pattern in wanted:
        if not any(path.glob(pattern)):
            raise WeightsError(
                f"thinker model: {path} holds no {pattern} file (it holds {_held(path)}){hint}"
            )
    return path


def main_file(path: Path, role: Role) -> Path:
    """Return the file that holds the weights, of a folder or named itself; WeightsError if unclear."""
    pattern = _MAIN_PATTERN[role]
    if not path.exists():
        raise WeightsError(f"{role} model: {path} does not exist")
    if path.is_file():
        if not path.match(pattern):
            raise WeightsError(f"{role} model: {path.name} in {path.parent} is not a {pattern} file")
        return path
    found = sorted(file for file in path.glob(pattern) if file.is_file())
    if not found:
        raise WeightsError(f"{role} model: {path} holds no {pattern} file (it holds {_held(path)})")
    return found[0] if len(found) == 1 else _first_of_several(path, role, found)


def _held(path: Path) -> str:
    return ", ".join(sorted(file.name for file in path.iterdir())[:8]) or "nothing"


def _first_of_several(path: Path, role: Role, found: list[Path]) -> Path:
    """Pick the first of one split GGUF (name-00001-of-00003.gguf); anything else is ambiguous."""
    stems = {file.name.rsplit("-", 3)[0] for file in found}
    first = [file for file in found if "-00001-of-" in file.name]
    if len(stems) == 1 and len(first) == 1:
        return first[0]
    names = ", ".join(file.name for file in found)
    raise WeightsError(f"{role} model: {path} holds several ({names}); name the file itself")


def _companions(main: Path, role: Role) -> list[Path]:
    if role == "talker":
        return [main.with_name(main.name + ".json")]
    if role != "recognizer":
        return []
    vocabularies = [main.with_name(f"vocabulary.{ending}") for ending in ("txt", "json")]
    vocabulary = next((file for file in vocabularies if file.is_file()), vocabularies[0])
    return [main.with_name("config.json"), vocabulary]


def _check_not_empty(file: Path, role: Role) -> None:
    if not file.is_file():
        raise WeightsError(f"{role} model: {file.name} is missing in {file.parent}")
    if file.stat().st_size == 0:
        raise WeightsError(f"{role} model: {file.name} in {file.parent} is empty")


def _check_header(file: Path, role: Role) -> None:
    _check_not_empty(file, role)
    with file.open("rb") as opened:
        header = opened.read(GGUF_HEADER_BYTES)
    if file.suffix == ".gguf" and (header[: len(MAGIC)] != MAGIC or len(header) < GGUF_HEADER_BYTES):
        raise WeightsError(f"{role} model: {file} is not a GGUF file, or is cut short")
    if file.suffix == ".onnx":
        _check_onnx(file, role)
    if file.name == "model.bin" and file.stat().st_size < CTRANSLATE2_MIN_BYTES:
        raise WeightsError(f"{role} model: {file} is too small for a CTranslate2 model, or is cut short")


def _check_onnx(file: Path, role: Role) -> None:
    """Walk the top-level protobuf fields: graph and opset are there, and the last ends with the file."""
    size, position, fields = file.stat().st_size, 0, set[int]()
    with file.open("rb") as opened:
        while 0 <= position < size:
            opened.seek(position)
            field, length = _field(opened.read(FIELD_HEAD_BYTES))
            fields.add(field)
            position = position + length if length else -1
    if position != size or not fields >= ONNX_FIELDS:
        raise WeightsError(f"{role} model: {file} is not an ONNX model, or is cut short")


def _field(head: bytes) -> tuple[int, int]:
    """Return (number, bytes with its head) of the protobuf field that starts here; (0, 0) if none does."""
    tag, tag_bytes = _varint(head)
    value, value_bytes = _varint(head[tag_bytes:])
    number, kind = tag >> 3, tag & 7
    if not number or (kind in (0, 2) and not value_bytes):
        return 0, 0
    lengths = {0: value_bytes, 1: 8, 2: value_bytes + value, 5: 4}
    return (number, tag_bytes + lengths[kind]) if kind in lengths else (0, 0)


def _varint(head: bytes) -> tuple[int, int]:
    """Return (value, bytes used); bytes used is 0 if there is no whole varint."""
    value = 0
    for index, byte in enumerate(head[:10]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, index + 1
    return 0, 0
