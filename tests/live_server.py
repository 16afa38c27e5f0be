"""A real server as a user starts it: its own process, a free port, ready once it says so."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

START_S = 120


@dataclass
class LiveServer:
    """`url` to call, `process` to kill, `lines` that it printed and logged so far."""

    url: str
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list[str], repr=False)


@contextmanager
def live_server(
    *arguments: str, environment: dict[str, str] | None = None, prefix: Sequence[str] = ()
) -> Generator[LiveServer]:
    """Start `voice-agent serve` on a free port, wait for its URL, end it and its engines afterwards."""
    command = [*prefix, sys.executable, "-m", "voice_agent", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(
        command,
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    lines: list[str] = []
    ready = threading.Event()
    found: list[str] = []

    def read() -> None:
        assert process.stdout
        for line in process.stdout:
            lines.append(line)
            if url := re.match(r"ready: (\S+)", line):
                found.append(url[1].replace("localhost", "127.0.0.1"))
                ready.set()
        ready.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        ready.wait(START_S)
        assert found, "the server did not start:\n" + "".join(lines)
        yield LiveServer(found[0], process, lines)
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)
        reader.join(10)
        if process.stdout:
            process.stdout.close()


def in_hand(server: LiveServer) -> tuple[int, int, int]:
    """What a server without operator keys has in hand: calls, requests in its engines, tasks of its loop."""
    engines = httpx.get(f"{server.url}/operator/engines").json()["engines"]
    load = httpx.get(f"{server.url}/operator/load").json()
    return load["calls"], sum(engine["held"] for engine in engines), load["tasks"]


def at_most(now: tuple[int, ...], before: tuple[int, ...]) -> bool:
    """Whether no figure has grown."""
    return all(one <= other for one, other in zip(now, before, strict=True))


def config_file(folder: Path, text: str) -> Path:
    """A configuration file for `--config`."""
    file = folder / "agent.toml"
    file.write_text(text, encoding="utf-8")
    return file
