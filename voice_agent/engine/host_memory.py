"""Whether the kernel killed a process for want of memory, by its own count; and whom it is to choose first.

A process that the kernel kills says nothing itself, and SIGKILL may come from anybody. The count is the whole kernel's
(proc(5), vmstat), so a container next door may have moved it: what is said from it names the likely cause, no more.
"""

import contextlib
import signal
from pathlib import Path

VMSTAT = Path("/proc/vmstat")
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


def be_killed_first() -> None:
    """Let the kernel choose this process, and what it starts, before the server. Does nothing where it may not."""
    with contextlib.suppress(OSError):
        OOM_SCORE_ADJ.write_text(str(ENGINE_SCORE))
