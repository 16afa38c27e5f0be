"""The weights on this machine: pinned by SHA-256, whatever way they came.

    store = Store(cache_folder)
    store.pull(["whisper-base"], report)      # fetches what is missing
    folder = store.folder_of("whisper-base")  # verified files, or WeightsError

A model lies in `<cache>/<name>/`, complete or not at all per file. A folder of the user's own that holds
the pinned files is used where it is. A model that is not pinned goes by its path and through
`check_folder`. The store knows no network: `pull.py` fetches.
"""

import fcntl
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from voice_agent.errors import WeightsError
from voice_agent.models.catalog import model_named
from voice_agent.models.download import Note, Report
from voice_agent.models.own_folder import check_folder, check_hugging_face, main_file
from voice_agent.models.pinned import Model, ModelFile
from voice_agent.models.pull import NOTICE_FILES, Outside, Pull, disk_errors, write_notices
from voice_agent.models.verified import VerifiedRecord

__all__ = ["Missing", "Store", "check_folder", "check_hugging_face", "main_file"]

PULL_COMMAND = "voice-agent models pull"


@dataclass(frozen=True)
class Missing:
    """A file that is not there as pinned; `why` completes the sentence "the file ..."."""

    model: Model
    file: ModelFile
    why: str


class Store:
    """The cache folder and the user's own folders; every answer is checked against the pinned digests."""

    def __init__(
        self,
        folder: Path,
        *,
        offline: bool = False,
        overrides: Mapping[str, Path] | None = None,
        outside: Outside | None = None,
    ) -> None:
        """Take the cache folder (made when first needed) and the user's own folder or file per model name."""
        self.folder = folder
        self.offline = offline
        self._own = {model_named(name).name: path.expanduser() for name, path in (overrides or {}).items()}
        self._outside = outside or Outside()
        self._record = VerifiedRecord(folder / "verified.json")

    def folder_of(self, name: str) -> Path:
        """Return the folder that holds the model's verified files; WeightsError says what to do."""
        model = model_named(name)
        own = self._own_folder(model)
        if own is not None:
            return own
        for missing in self._missing_in_cache(model):
            todo = "fetch it once with network" if self.offline else "fetch it"
            raise WeightsError(
                f"{name}: {missing.file.name} {missing.why} ({self.folder / name}); {todo}: {PULL_COMMAND} {name}"
            )
        return self.folder / name

    def missing(self, names: Iterable[str]) -> list[Missing]:
        """Return the files that would have to be fetched; WeightsError if a user's own file is wrong."""
        models = [model_named(name) for name in names]
        wanted = [model for model in models if self._own_folder(model) is None]
        return [missing for model in wanted for missing in self._missing_in_cache(model)]

    def pull(self, names: Iterable[str], report: Report) -> None:
        """Fetch what is missing; WeightsError leaves no half file, and what is whole stays for next time.

        Two processes that pull at once take turns; the second finds the work done.
        """
        models = [model_named(name) for name in dict.fromkeys(names)]
        in_cache = [model for model in models if self._own_folder(model) is None]
        if not any(self._missing_in_cache(model) or not self._noticed(model) for model in in_cache):
            return  # a cache that is complete may be read-only
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with _locked(self.folder / ".lock", report):
                wanted = [(m.model, m.file) for model in in_cache for m in self._missing_in_cache(model)]
                own_file = self._own_file
                Pull(self.folder, self._record, self._outside, report, own_file, self.offline).run(wanted)
                for model in in_cache:
                    write_notices(model, self.folder / model.name)

    def own_path(self, name: str) -> Path | None:
        """Return the folder or file that the user named for a model."""
        return self._own.get(name)

    def _noticed(self, model: Model) -> bool:
        return all((self.folder / model.name / name).exists() for name in NOTICE_FILES)

    def _missing_in_cache(self, model: Model) -> list[Missing]:
        folder = self.folder / model.name
        faults = [(file, self._fault(folder / file.name, file)) for file in model.files]
        return [Missing(model, file, fault) for file, fault in faults if fault]

    def _own_folder(self, model: Model) -> Path | None:
        """Return the user's folder if every file is in it; WeightsError if one of them is not as pinned."""
        own = self._own.get(model.name)
        if own is None:
            return None
        if not own.exists():
            raise WeightsError(f"{model.name}: your own copy {own} does not exist")
        found = [(file, self._own_file(model, file)) for file in model.files]
        for file, path in found:
            fault = self._fault(path, file) if path else ""
            if fault:
                raise WeightsError(
                    f"{model.name}: your own copy {path} {fault}. To use a model that is not the pinned one, "
                    f"write its folder in place of the name {model.name!r}"
                )
        complete = own.is_dir() and all(path for _, path in found)
        return own if complete else None

    def _own_file(self, model: Model, file: ModelFile) -> Path | None:
        own = self._own.get(model.name)
        if own is None:
            return None
        if own.is_file():
            return own if len(model.files) == 1 or own.name == file.name else None
        return own / file.name if (own / file.name).is_file() else None

    def _fault(self, path: Path, file: ModelFile) -> str:
        """Say what is wrong with a file, or nothing. Size first: it needs no reading."""
        try:
            size = path.stat().st_size
            if size != file.bytes:
                return f"has {size:,} bytes where {file.bytes:,} are pinned"
            digest = self._record.sha256(path)
        except (FileNotFoundError, NotADirectoryError):
            return "is missing"
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        return "" if digest == file.sha256 else f"has SHA-256 {digest} where {file.sha256} is pinned"


@contextmanager
def _locked(path: Path, report: Report) -> Generator[None]:
    """Hold the cache's lock; the kernel frees it however the process ends."""
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(Note(f"another process is fetching weights into {path.parent}: waiting for it"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
