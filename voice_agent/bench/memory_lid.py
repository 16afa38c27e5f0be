"""A control group (v1 or v2) whose memory can be closed while it runs, so that the kernel kills in earnest.

The bench makes it; a process is taken in, or joins by the environment, with all that it starts from then on. Linux, and
usually root.
"""

import contextlib
import os
from pathlib import Path

ENVIRONMENT = "VOICE_AGENT_BENCH_GROUP"
TREE = Path("/sys/fs/cgroup")
ROOM_BYTES = 512 << 20  # what is left under a closed lid


class MemoryLid:
    """One group; `path` is None where none can be made."""

    def __init__(self, name: str) -> None:
        self.path = _made(TREE / "memory" / name) or _made(TREE / name)
        version_1 = self.path is not None and (self.path / "memory.limit_in_bytes").exists()
        self._limit, self._usage, self._free = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "-1")
            if version_1
            else ("memory.max", "memory.current", "max")
        )

    @property
    def environment(self) -> dict[str, str]:
        """Under which a process joins."""
        return {ENVIRONMENT: str(self.path)} if self.path else {}

    def take(self, pid: int) -> None:
        """Put a process in that runs already; what it has so far stays where it is counted."""
        assert self.path is not None, "there is no group"
        (self.path / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        """From here on the group may have little more than it has now."""
        assert self.path is not None, "there is no group"
        used = int((self.path / self._usage).read_text())
        (self.path / self._limit).write_text(str(used + ROOM_BYTES))

    def open(self) -> None:
        """No limit any more."""
        assert self.path is not None, "there is no group"
        (self.path / self._limit).write_text(self._free)

    def remove(self) -> None:
        """Once its processes have ended; one that is left keeps the empty group."""
        if self.path:
            with contextlib.suppress(OSError):
                self.path.rmdir()


def join() -> None:
    """Into the group that the environment names, if it names one."""
    if group := os.environ.get(ENVIRONMENT):
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))


def _made(group: Path) -> Path | None:
    """The group, if it can be made and has a lid."""
    if not (group.parent / "cgroup.procs").exists():
        return None
    with contextlib.suppress(OSError):
        (group.parent / "cgroup.subtree_control").write_text("+memory")  # version 2 asks for it
    try:
        group.mkdir(exist_ok=True)
    except OSError:
        return None
    if any((group / name).exists() for name in ("memory.limit_in_bytes", "memory.max")):
        return group
    group.rmdir()
    return None
