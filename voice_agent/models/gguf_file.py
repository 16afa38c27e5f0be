"""Where the tensors of a GGUF file lie, and how to write the file again with other tensors.

Metadata is walked over and copied byte for byte, never understood, but for its numbers. Knows no model.

Source: the GGUF specification, versions 2 and 3 (ggml's docs/gguf.md).
"""

import mmap
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from voice_agent.errors import WeightsError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_VALUE_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_FILE_TYPE, _ALIGNMENT = b"general.file_type", b"general.alignment"


@dataclass(frozen=True)
class Tensor:
    """One tensor: `lengths` with the row's first, ggml's number of its type, and where its bytes are in the file."""

    name: str
    lengths: tuple[int, ...]
    type_number: int
    start: int
    size: int


@dataclass(frozen=True)
class Gguf:
    """A file's head: the version, the metadata's number of entries and bytes, what they say, and the tensors."""

    version: int
    entries: int
    metadata: bytes
    file_type: int | None
    alignment: int
    tensors: tuple[Tensor, ...]
    numbers: dict[bytes, int]  # the metadata's 32-bit entries, by key


def map_file(path: Path) -> memoryview:
    """A file's bytes, read when looked at; raises WeightsError if it is empty, OSError if it cannot be read."""
    with path.open("rb") as file:
        try:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError as error:
            raise WeightsError(f"{path.name} is empty") from error


def read_head(content: memoryview) -> Gguf:
    """Read the head of a mapped file; raises WeightsError if it is none, or cut short."""
    try:
        return _Head(content).read()
    except (struct.error, KeyError, OverflowError, UnicodeDecodeError) as error:
        raise WeightsError(f"not a GGUF file, or cut short in its head: {error!r}") from error


class _Head:
    """Walks over the head. State: the position."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._position = 0

    def read(self) -> Gguf:
        """The whole head."""
        if bytes(self._content[:4]) != MAGIC:
            raise WeightsError("not a GGUF file")
        self._position = 4
        version, tensors, entries = self._take("<IQQ")
        if version not in VERSIONS:
            raise WeightsError(f"GGUF version {version}: {VERSIONS[0]} and {VERSIONS[1]} are known")
        first = self._position
        told = (self._entry() for _ in range(entries))
        numbers = {key: value for key, value in told if value is not None}
        metadata = bytes(self._content[first : self._position])
        file_type, alignment = numbers.get(_FILE_TYPE), numbers.get(_ALIGNMENT) or 32
        found = self._tensors(tensors, alignment)
        return Gguf(version, entries, metadata, file_type, alignment, found, numbers)

    def _take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(form, self._content, self._position)
        self._skip(struct.calcsize(form))
        return values

    def _string(self) -> bytes:
        (length,) = self._take("<Q")
        self._skip(length)
        return bytes(self._content[self._position - length : self._position])

    def _skip(self, count: int) -> None:
        self._position += count
        if self._position > len(self._content):
            raise WeightsError("the GGUF file is cut short in its head")

    def _entry(self) -> tuple[bytes, int | None]:
        """An entry's key, and its value if it is a number of 32 bits."""
        key = self._string()
        (kind,) = self._take("<I")
        if kind == 4:
            return key, self._take("<I")[0]
        self._pass_over(kind)
        return key, None

    def _pass_over(self, kind: int) -> None:
        if kind != _ARRAY:
            self._pass_over_many(kind, 1)
            return
        inner, count = self._take("<IQ")
        self._pass_over_many(inner, count)

    def _pass_over_many(self, kind: int, count: int) -> None:
        if kind != _STRING:
            self._skip(_VALUE_BYTES[kind] * count)
            return
        for _ in range(count):  # half a million in a file: no calls in here
            (length,) = struct.unpack_from("<Q", self._content, self._position)
            self._position += 8 + length

    def _tensors(self, count: int, alignment: int) -> tuple[Tensor, ...]:
        found: list[tuple[str, tuple[int, ...], int, int]] = []
        for _ in range(count):
            name = self._string().decode()
            (dimensions,) = self._take("<I")
            lengths = self._take(f"<{dimensions}Q")
            number, offset = self._take("<IQ")
            found.append((name, lengths, number, offset))
        data = _aligned(self._position, alignment)
        size = len(self._content) - data
        if any(offset >= size for *_, offset in found):
            raise WeightsError("the GGUF file is cut short: a tensor lies behind its end")
        ends = sorted([*(offset for *_, offset in found), size])
        after = {offset: ends[ends.index(offset) + 1] for *_, offset in found}
        tensors = [
            Tensor(name, lengths, number, data + offset, after[offset] - offset)
            for name, lengths, number, offset in found
        ]
        if any(tensor.size <= 0 for tensor in tensors):
            raise WeightsError("not a GGUF file: two tensors lie at one place")
        return tuple(tensors)


@dataclass(frozen=True)
class NewTensor:
    """What a tensor is to become; its `content` is asked for when its turn comes."""

    tensor: Tensor
    type_number: int
    size: int
    content: Iterable[bytes | memoryview]


def write(file: BinaryIO, head: Gguf, tensors: list[NewTensor]) -> None:
    """Write a file with this metadata and these tensors, in their order; OSError passes through."""
    infos, offset = bytearray(), 0
    for new in tensors:
        name, lengths = new.tensor.name.encode(), new.tensor.lengths
        infos += struct.pack("<Q", len(name)) + name
        infos += struct.pack(f"<I{len(lengths)}QIQ", len(lengths), *lengths, new.type_number, offset)
        offset += _aligned(new.size, head.alignment)
    file.write(MAGIC + struct.pack("<IQQ", head.version, len(tensors), head.entries))
    file.write(head.metadata)
    file.write(infos)
    for new in tensors:
        _fill(file, head.alignment)
        for piece in new.content:
            file.write(piece)
    _fill(file, head.alignment)


def _fill(file: BinaryIO, alignment: int) -> None:
    position = file.tell()
    file.write(bytes(_aligned(position, alignment) - position))


def _aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment
