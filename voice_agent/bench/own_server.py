"""A server of the bench's own, and what it costs: CPU time of its process and of its engines, which core it may use.

CPU time is read from /proc, so this is for Linux. A tick is 10 ms: measure for seconds. Knows not what is measured.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from voice_agent.errors import VoiceAgentError

START_S = 120.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of CPU time so far, user and system: the server's own process, and all that it started."""

    server_s: float
    engines_s: float

    def since(self, before: "Spent") -> "Spent":
        """What was spent from `before` until this."""
        return Spent(self.server_s - before.server_s, self.engines_s - before.engines_s)


@dataclass(frozen=True, slots=True)
class OwnServer:
    """Where it listens, and its process."""

    url: str
    pid: int

    def spent(self) -> Spent:
        """CPU time until now."""
        return Spent(cpu_s(self.pid), sum(cpu_s(pid) for pid in descendants(self.pid)))

    def apart(self) -> int | None:
        """Give the server's process the last core and its engines the others; returns that core, None with only one.

        The cores are those that this process may use; it keeps off the server's from now on.
        """
        *others, core = sorted(os.sched_getaffinity(0))
        if not others:
            return None
        _pin(self.pid, {core})
        for pid in (os.getpid(), *descendants(self.pid)):
            _pin(pid, set(others))
        return core


@contextmanager
def own_server(toml: str) -> Generator[OwnServer]:
    """Start one with this configuration on a free port; it is ended with the context. Raises VoiceAgentError."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench.toml"
        file.write_text(toml, encoding="utf-8")
        command = [sys.executable, "-m", "voice_agent", "serve", "--config", str(file), "--port", "0"]
        process = subprocess.Popen(
            [*command, "--log-level", "error"], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            yield OwnServer(_url_of(process), process.pid)
        finally:
            _end(process)
            if process.stdout:
                process.stdout.close()


def _end(process: subprocess.Popen[str]) -> None:
    """Ask; calls that still run are waited for only so long, and then cut."""
    for patience_s in (3, 20):
        process.send_signal(signal.SIGINT)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue
        return
    process.kill()
    process.wait()


def cpu_s(pid: int) -> float:
    """User and system time of a process with all its threads; 0 for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    try:
        files = list(Path(f"/proc/{pid}/task").glob("*/children"))
        children = [int(child) for file in files for child in file.read_text().split()]
    except OSError:
        return []
    return [found for child in children for found in (child, *descendants(child))]


def _pin(pid: int, cores: set[int]) -> None:
    """All threads there are; later ones inherit it."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def _url_of(process: subprocess.Popen[str]) -> str:
    started_s = time.monotonic()
    assert process.stdout
    for line in process.stdout:
        if found := re.match(r"ready: (\S+)", line):
            return found[1].replace("localhost", "127.0.0.1")
        if time.monotonic() - started_s > START_S:
            break
    raise VoiceAgentError("the server did not start; its error is above")
