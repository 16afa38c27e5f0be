"""Whether the kernel killed a process for want of memory, by its own count; whom it is to choose first; what is left.

A process that the kernel kills says nothing itself, and SIGKILL may come from anybody. The count is the whole kernel's
(proc(5), vmstat), so a container next door may have moved it: what is said from it names the likely cause, no more.
"""

import contextlib
import resource
import signal
from dataclasses import dataclass
from pathlib import Path

VMSTAT = Path("/proc/vmstat")
MEMINFO = Path("/proc/meminfo")
STATM = Path("/proc/self/statm")
OOM_SCORE_ADJ = Path("/proc/self/oom_score_adj")
ENGINE_SCORE = 500  # of 1000: an engine is started again, a server takes every call with it


def oom_kills(vmstat: Path = VMSTAT) -> int | None:
    """How many processes the kernel has killed for want of memory since it started; None if it does not tell."""
    with contextlib.suppress(OSError, ValueError):
        for line in vmstat.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


def how_killed(number: int, kills_before: int | None, kills_now: int | None) -> str:
    """A death by signal in words; the counts are those of its start and of now."""
    text = f"was killed by {signal.Signals(number).name}"
    if number != signal.SIGKILL:
        return text
    if kills_before is None or kills_now is None:
        return f"{text}, perhaps for want of host memory"
    return f"{text}, by the kernel for want of host memory" if kills_now > kills_before else text


@dataclass(frozen=True)
class MemoryLeft:
    """Bytes that this process may still take, and in words what sets the bound."""

    size: int
    where: str


def available_bytes(meminfo: str | None = None, group: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory that can still be had: what the system says (text of /proc/meminfo), within the container's limit."""
    text = MEMINFO.read_text(encoding="ascii") if meminfo is None else meminfo
    free = 1024 * next(int(line.split()[1]) for line in text.splitlines() if line.startswith("MemAvailable:"))
    try:
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        used = int((group / "memory.current").read_text(encoding="ascii"))
        stat = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
    except OSError:
        return free  # no limit, or none that can be read
    if limit == "max":
        return free
    return max(0, min(free, int(limit) - used + int(stat.get("inactive_file", "0"))))


def memory_left(meminfo: Path = MEMINFO, statm: Path = STATM) -> MemoryLeft | None:
    """The tighter of the machine's free memory and this process's own limit; None if the system tells neither."""
    found = list[MemoryLeft]()
    with contextlib.suppress(OSError, ValueError, IndexError):
        limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit_bytes != resource.RLIM_INFINITY:
            used_bytes = int(statm.read_text().split()[0]) * resource.getpagesize()
            found.append(MemoryLeft(max(0, limit_bytes - used_bytes), "of this process's limit (ulimit -v)"))
    with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
        found.append(MemoryLeft(available_bytes(meminfo.read_text()), "of the machine's"))
    return min(found, key=lambda left: left.size, default=None)


def be_killed_first() -> None:
    """Let the kernel choose this process, and what it starts, before the server. Does nothing where it may not."""
    with contextlib.suppress(OSError):
        OOM_SCORE_ADJ.write_text(str(ENGINE_SCORE))
