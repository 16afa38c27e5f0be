"""`voice-agent bench lag`: how late the server's event loop is while people talk, against a bare loop in the same run.

Starts a server of its own (scripted engines, so that no model takes the machine), calls it over WebRTC with as many
callers as asked for, who question it and hear its answers, and in another process runs a loop that does nothing but
probe. Both probes are `loop_lag.LoopLag`; what they differ by is the server's own doing.
"""

import argparse
import asyncio
import json
import multiprocessing
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx

from voice_agent.audio import Samples
from voice_agent.bench.caller import Caller, Stamped
from voice_agent.bench.questions import QUESTIONS
from voice_agent.bench.spoken import Voice, cache_folder
from voice_agent.clock import MonotonicClock
from voice_agent.errors import VoiceAgentError
from voice_agent.loop_lag import LoopLag
from voice_agent.models.store import Store

GOAL_MS = 10.0
START_S = 120.0
ANSWER_S = 30.0
TOML = """
profile = "scripted"
[session]
max_sessions = {sessions}
[thinker.options]
texts = ["Once upon a time an old sailor lived near the harbour. Every evening he painted little wooden boats there."]
first_ms = 100
piece_ms = 20
[talker]
max_jobs = 64
"""


def main(argv: Sequence[str]) -> int:
    """Measure and print; 0 within the goal, 1 above it, 2 if nothing could be measured."""
    parser = argparse.ArgumentParser(prog="voice-agent bench lag", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sessions", type=int, default=8, help="callers at once")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long is measured, 60 at most")
    parser.add_argument("--json", type=Path, help="write the results here")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # our server ends with us
    try:
        asking = [Voice(Store(cache_folder())).sound(text) for text in QUESTIONS[:4]]
        with _server(options.sessions) as url, _bare_loop(options.seconds) as bare:
            found = asyncio.run(_measure(url, asking, bare, options))
    except (VoiceAgentError, httpx.HTTPError) as error:
        print(f"voice-agent: {error}", file=sys.stderr)
        return 2
    above_ms = found["server"]["p99_ms"] - found["bare"]["p99_ms"]
    print(
        f"{options.sessions} sessions, {options.seconds:g} s, {found['replies']} replies heard to their end"
    )
    for name in ("server", "bare"):
        row = found[name]
        print(
            f"{name:8} p50 {row['p50_ms']:8.2f}   p99 {row['p99_ms']:8.2f}   max {row['max_ms']:8.2f} ms late"
        )
    print(f"p99 above the bare loop's: {above_ms:.2f} ms (goal {GOAL_MS:g})")
    if options.json:
        options.json.write_text(json.dumps({"command": sys.argv, **found}, indent=1), encoding="utf-8")
    return 0 if above_ms <= GOAL_MS else 1


async def _measure(url: str, asking: list[Samples], bare: Any, options: argparse.Namespace) -> dict[str, Any]:
    """All callers connected and talking, then both probes over the same seconds."""
    clock = MonotonicClock()
    replies: list[str] = []
    async with _calls(url, options.sessions, clock) as callers:
        talking = [
            asyncio.create_task(_talk(caller, asking[number % len(asking)], replies))
            for number, caller in enumerate(callers)
        ]
        try:
            await asyncio.sleep(5)  # everybody's first question is on its way
            replies.clear()
            bare.send("begin")
            await asyncio.sleep(options.seconds)
            async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
                server = (await http.get(f"/operator/loop_lag?seconds={options.seconds}")).json()
            bare.send("end")
            found = await asyncio.to_thread(bare.recv)
        finally:
            for task in talking:
                task.cancel()
            ended = await asyncio.gather(*talking, return_exceptions=True)
    failed = [error for error in ended if isinstance(error, Exception)]
    return {"server": server, "bare": found, "replies": len(replies), "failed_callers": len(failed)}


async def _talk(caller: Caller, question: Samples, replies: list[str]) -> None:
    """Ask, hear the answer to its end, and again."""
    while True:
        known = len(caller.events)
        await caller.say(question)

        def stopped(_: Stamped, known: int = known) -> bool:
            return any(stamped.kind == "output_audio_buffer.stopped" for stamped in caller.events[known:])

        if await caller.event(stopped, ANSWER_S):
            replies.append("heard")


@asynccontextmanager
async def _calls(url: str, count: int, clock: MonotonicClock) -> AsyncGenerator[list[Caller]]:
    callers = [Caller(url, clock) for _ in range(count)]
    connected: list[Caller] = []
    try:
        for caller in callers:
            connected.append(await caller.__aenter__())
        yield connected
    finally:
        for caller in connected:
            await caller.__aexit__(None, None, None)


@contextmanager
def _server(sessions: int) -> Generator[str]:
    """A server of our own on a free port; gives its URL."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lag.toml"
        file.write_text(TOML.format(sessions=sessions), encoding="utf-8")
        command = [sys.executable, "-m", "voice_agent", "serve", "--config", str(file), "--port", "0"]
        process = subprocess.Popen(
            [*command, "--log-level", "error"], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            yield _url_of(process)
        finally:
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()


def _url_of(process: subprocess.Popen[str]) -> str:
    started_s = time.monotonic()
    assert process.stdout
    for line in process.stdout:
        if found := re.match(r"ready: (\S+)", line):
            return found[1].replace("localhost", "127.0.0.1")
        if time.monotonic() - started_s > START_S:
            break
    raise VoiceAgentError("the server did not start; its error is above")


@contextmanager
def _bare_loop(seconds: float) -> Generator[Any]:
    """A process whose loop does nothing but probe."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_probe, args=(theirs, seconds), daemon=True)
    child.start()
    theirs.close()
    try:
        yield ours
    finally:
        child.kill()
        child.join()


def _probe(channel: Any, seconds: float) -> None:
    asyncio.run(_probe_until_told(channel, seconds))


async def _probe_until_told(channel: Any, seconds: float) -> None:
    lag = LoopLag(MonotonicClock())
    probe = asyncio.create_task(lag.run())
    for _ in ("begin", "end"):
        await asyncio.to_thread(channel.recv)
    channel.send(lag.summary(seconds))
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
