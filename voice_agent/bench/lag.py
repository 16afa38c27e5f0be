"""`voice-agent bench lag`: how late the server's event loop is while people talk, against a bare loop in the same run.

Starts a server of its own (scripted engines, so that no model takes the machine), calls it over WebRTC with as many
callers as asked for, who question it and hear its answers (plain_caller, in a process of their own), and in a third
process runs a loop that does nothing but probe. Both probes are `loop_lag.LoopLag`; what they differ by is the server's
own doing. Measured is from when all have begun to talk; what the loop was late by while they connected is a row apart.
"""

import argparse
import asyncio
import json
import multiprocessing
import signal
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx

from voice_agent.bench import arguments
from voice_agent.bench.callers_process import CallersProcess, Calls, Count, callers_process
from voice_agent.bench.machine import commit, machine
from voice_agent.bench.own_server import own_server
from voice_agent.bench.questions import QUESTIONS
from voice_agent.bench.spoken import Voice, cache_folder
from voice_agent.clock import MonotonicClock
from voice_agent.errors import VoiceAgentError
from voice_agent.loop_lag import LoopLag
from voice_agent.models.store import Store

GOAL_MS = 10.0
LONGEST_S = 60.0  # what a probe remembers
SETTLE_S = 8.0  # until all have begun to talk
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
    parser = arguments.parser("voice-agent bench lag", (__doc__ or "").split("\n")[0])
    parser.add_argument("--sessions", type=arguments.whole(1, 10_000), default=8, help="callers at once")
    seconds = arguments.number(1, LONGEST_S)
    parser.add_argument("--seconds", type=seconds, default=30.0, help="how long is measured, 60 at most")
    parser.add_argument("--json", type=arguments.file_to_write, help="write the results here")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # our server ends with us
    try:
        questions = [Voice(Store(cache_folder())).sound(text) for text in QUESTIONS[:4]]
        with (
            own_server(TOML.format(sessions=options.sessions)) as server,
            callers_process(server.url, questions) as callers,
            _bare_loop(options.seconds) as bare,
        ):
            found = _measure(server.url, callers, bare, options)
    except (VoiceAgentError, httpx.HTTPError) as error:
        print(f"voice-agent: {error}", file=sys.stderr)
        return 2
    above_ms = found["server"]["p99_ms"] - found["bare"]["p99_ms"]
    print(
        f"{options.sessions} sessions, {options.seconds:g} s, {found['replies']} replies heard to their end"
    )
    for name in ("connecting", "server", "bare"):
        row = found[name]
        print(
            f"{name:10} p50 {row['p50_ms']:8.2f}   p99 {row['p99_ms']:8.2f}   max {row['max_ms']:8.2f} ms late"
        )
    print(f"p99 above the bare loop's: {above_ms:.2f} ms (goal {GOAL_MS:g})")
    if options.json:
        about = {"command": sys.argv, "commit": commit(), "machine": machine()}
        options.json.write_text(json.dumps({**about, **found}, indent=1), encoding="utf-8")
    if 20 * found["sent"] < 950 * options.sessions * options.seconds or not found["replies"]:
        print(
            "voice-agent: the callers sent too little, or nobody was answered: no measurement",
            file=sys.stderr,
        )
        return 2
    return 0 if above_ms <= GOAL_MS else 1


def _measure(url: str, callers: CallersProcess, bare: Any, options: argparse.Namespace) -> dict[str, Any]:
    """All callers connected and talking, then both probes over the same seconds; call set-up is told apart."""
    began_s = time.monotonic()
    callers.tell(Calls(options.sessions, "webrtc", talks=True))
    connecting = _lag_of(url, time.monotonic() - began_s)
    time.sleep(SETTLE_S)
    callers.tell(Count())
    bare.send("begin")
    time.sleep(options.seconds)
    server = _lag_of(url, options.seconds)
    bare.send("end")
    found = bare.recv()
    counts = callers.tell(Count())
    callers.tell(Calls(0))
    about = {"replies": counts.answers, "given_up": counts.given_up, "sent": counts.sent}
    return {"server": server, "bare": found, "connecting": connecting, **about}


def _lag_of(url: str, seconds: float) -> dict[str, float]:
    """What the server's own probe saw in the last seconds."""
    return httpx.get(f"{url}/operator/loop_lag?seconds={seconds}", trust_env=False, timeout=30).json()


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
