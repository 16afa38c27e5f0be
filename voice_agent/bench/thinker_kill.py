"""What a killed vLLM core costs its own engine and the one beside it, both under load."""

import argparse
import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

from voice_agent.bench.thinker_waves import Bench
from voice_agent.clock import MonotonicClock, ms_between
from voice_agent.engine.supervisor import EngineProcess
from voice_agent.errors import EngineError

KILL_SESSIONS, KILL_AFTER_S = 32, 0.3


async def killed_beside(
    victim: EngineProcess, other: EngineProcess, arguments: argparse.Namespace
) -> dict[str, Any]:
    """kill -9 of one engine's vLLM core while both have 32 sessions: what each of them notices."""
    clock = MonotonicClock()
    benches = [Bench(engine, arguments, "") for engine in (victim, other)]
    loads = [
        [asyncio.create_task(bench.one_more(f"kill-{n}", n)) for n in range(KILL_SESSIONS)]
        for bench in benches
    ]
    await asyncio.sleep(KILL_AFTER_S)
    core = _core_of(victim.pid or 0)
    killed_ns = clock.now_ns()
    os.kill(core, signal.SIGKILL)
    ended = await asyncio.gather(*loads[0], return_exceptions=True)
    failed_ms = ms_between(killed_ns, clock.now_ns())
    whole = await asyncio.gather(*loads[1], return_exceptions=True)
    while victim.state != "ready":  # noqa: ASYNC110 - the engine tells nobody when it is up again
        await asyncio.sleep(0.05)
    await benches[0].one_more("kill-after", 1)
    return {
        "sessions_each": KILL_SESSIONS,
        "victim_failed": sum(isinstance(end, EngineError) for end in ended),
        "victim_finished_before": sum(not isinstance(end, BaseException) for end in ended),
        "last_failure_ms": round(failed_ms, 1),
        "error": next((repr(end) for end in ended if isinstance(end, BaseException)), None),
        "other_finished": sum(not isinstance(end, BaseException) for end in whole),
        "served_again_s": round(ms_between(killed_ns, clock.now_ns()) / 1000, 1),
    }


def _core_of(engine_pid: int) -> int:
    """The process of vLLM's engine core: the child of the engine that has the most memory."""
    children: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == engine_pid:  # proc(5): state, ppid, ..., rss as the 22nd behind the name
                children[int(path.parent.name)] = int(fields[21])
    return max(children, key=lambda pid: children[pid])
