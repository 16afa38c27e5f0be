"""Digests of files, remembered so that a start does not read half a gigabyte again.

A remembered file counts as verified while its size and modification time stand. Whoever can write
the cache can forge this record too: it saves time and is no defence against the machine's owner.
"""

import contextlib
import hashlib
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

READ_BYTES = 1 << 20


def sha256_of(path: Path) -> str:
    """Digest a file piece by piece."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def sync_file(path: Path) -> None:
    """Put a file's bytes on the disk; for a folder, the renames in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file so that readers see the old one or the new one, never half."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


class VerifiedRecord:
    """A JSON file of (size, mtime_ns, sha256) per path; a lost or broken record only costs time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def sha256(self, file: Path) -> str:
        """Return the file's digest, read anew only if size or time changed; OSError passes through."""
        status = file.stat()
        stamp = [status.st_size, status.st_mtime_ns]
        known = self._read().get(str(file.absolute()))
        if isinstance(known, list) and known[:2] == stamp and isinstance(known[-1], str):
            return known[-1]
        digest = sha256_of(file)
        self._keep(file, [*stamp, digest])
        return digest

    def remember(self, file: Path, sha256: str) -> None:
        """Note the digest of a file that was read just now."""
        status = file.stat()
        self._keep(file, [status.st_size, status.st_mtime_ns, sha256])

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def _keep(self, file: Path, entry: list[Any]) -> None:
        entries = {path: known for path, known in self._read().items() if os.path.exists(path)}
        entries[str(file.absolute())] = entry
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, json.dumps(entries, indent=1).encode())
        except OSError as error:  # a cache that is read-only or full still serves
            logger.debug("verified record not kept: %s", error)
