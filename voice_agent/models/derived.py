"""Files made once from a model's weights, and kept for the next start: beside them, or in the cache.

A folder of derived files is named after its source's size and time, so a replaced source is derived anew. It appears
whole or not at all: two processes may derive at once, and a killed one leaves nothing that is taken for done.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from voice_agent.errors import WeightsError


@dataclass(frozen=True)
class Recipe:
    """How to derive: `name` changes with the result, `parts` are the files that `write(source, folder)` leaves."""

    name: str
    parts: tuple[str, ...]
    write: Callable[[Path, Path], None]


def derive(source: Path, recipe: Recipe) -> Path:
    """The folder with the recipe's parts, writing them the first time; later starts only look. Raises WeightsError."""
    stat = source.stat()
    name = f"{source.stem}-{recipe.name}-{stat.st_size:x}-{stat.st_mtime_ns:x}"
    homes = [source.parent / "derived", _cache() / "derived"]
    for home in homes:
        if all((home / name / part).is_file() for part in recipe.parts):
            return home / name
    for home in homes:
        try:
            home.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=home))
        except OSError:
            continue
        try:
            return _write(source, recipe, scratch, home / name)
        except OSError as error:
            raise WeightsError(
                f"cannot keep what is made of {source.name} under {home}: {error.strerror}"
            ) from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    raise WeightsError(
        f"neither {homes[0]} nor {homes[1]} can be written to keep what is made of {source.name}"
    )


def _write(source: Path, recipe: Recipe, scratch: Path, target: Path) -> Path:
    """Write in a scratch folder, then rename it whole."""
    recipe.write(source, scratch)
    try:
        scratch.rename(target)
    except OSError:
        if not all((target / part).is_file() for part in recipe.parts):
            raise  # else another process was faster, which is as good
    kind = recipe.name.rstrip("0123456789")
    for stale in target.parent.glob(f"{source.stem}-{kind}*"):
        if stale != target:
            shutil.rmtree(stale, ignore_errors=True)
    return target


def _cache() -> Path:
    return Path(os.environ.get("VOICE_AGENT_CACHE") or Path.home() / ".cache" / "voice-agent")
