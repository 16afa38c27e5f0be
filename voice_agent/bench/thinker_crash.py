"""What the end of a vLLM core costs its own engine and the one beside it, both under load; and whether it is named.

The ends: `kill` (-9 from outside), `gpu-memory` (its worker takes all that the GPU has left, and the next step finds
none), `host-kill` (it takes the host's until the kernel kills it, under a lid of its own) and `host-limit` (it takes
all that an address space like that of `ulimit -v` has left). A calm run of the same load goes before, to compare the
one beside with.
"""

import argparse
import asyncio
import contextlib
import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voice_agent.bench.memory_lid import MemoryLid
from voice_agent.bench.statistics import nearest_rank
from voice_agent.bench.thinker_models import prompt
from voice_agent.clock import MonotonicClock, ms_between
from voice_agent.engine.messages import Failed, Finished, TextDelta, Think
from voice_agent.engine.supervisor import EngineProcess
from voice_agent.errors import EngineError

SESSIONS, AFTER_S = 32, 0.5
ENDS = ("kill", "gpu-memory", "host-kill", "host-limit")
HOARD = "hoard"  # a request for the bench's child, not for the model
WANTED = {
    "kill": "SIGKILL",
    "gpu-memory": "out of GPU memory",
    "host-kill": "want of host memory",
    "host-limit": "out of host memory",
}

_clock = MonotonicClock()


@dataclass
class Session:
    """One answer as its reader saw it: the longest wait between two pieces, and the error if it did not end well."""

    longest_gap_ms: float = 0.0
    error: str = ""


async def crashed(
    end: str, victim: EngineProcess, other: EngineProcess, arguments: argparse.Namespace, lid: MemoryLid
) -> dict[str, Any]:
    """Bring one engine's core to an end while both have 32 sessions: what each of them notices."""
    both, seed, pid = (victim, other), 1000 * ENDS.index(end), victim.pid
    calm = (await asyncio.gather(*(_load(one, arguments, f"calm-{end}", seed) for one in both)))[1]
    loads = [asyncio.create_task(_load(one, arguments, end, seed + SESSIONS)) for one in both]
    await asyncio.sleep(AFTER_S)
    begin_ns = _clock.now_ns()
    done = await _bring_about(end, victim, lid)
    hurt = await loads[0]
    failed_ms = ms_between(begin_ns, _clock.now_ns())
    if done == "host-kill":
        lid.open()
    while victim.pid in {pid, None}:  # noqa: ASYNC110 - the engine tells nobody when it is up again
        if victim.state == "crash_loop":
            raise EngineError("; ".join(victim.reasons()))
        await asyncio.sleep(0.05)
    again = await _answered(victim, _think(victim, arguments, f"after-{end}", seed + 999, tokens=1))
    served_s = ms_between(begin_ns, _clock.now_ns()) / 1000
    return summed_up(done, hurt, await loads[1]) | {
        "last_failure_ms": round(failed_ms, 1),
        "served_again_s": round(served_s, 1),
        "served_error": again.error,
        "beside_longest_gap_ms_when_calm": _gaps(calm),
    }


def summed_up(end: str, hurt: list[Session], beside: list[Session]) -> dict[str, Any]:
    """What both sides noticed; `named` when every error says what brought the end about."""
    errors = sorted({session.error for session in hurt if session.error})
    return {
        "end": end,
        "sessions_each": len(hurt),
        "victim_failed": sum(bool(session.error) for session in hurt),
        "errors": errors,
        "named": bool(errors) and all(WANTED[end] in error for error in errors),
        "beside_finished": sum(not session.error for session in beside),
        "beside_errors": sorted({session.error for session in beside if session.error}),
        "beside_longest_gap_ms": _gaps(beside),
    }


async def _bring_about(end: str, victim: EngineProcess, lid: MemoryLid) -> str:
    """Do it; returns what was done, which is `kill` where the kernel cannot be made to."""
    core = _core_of(victim.pid or 0)
    if end == "gpu-memory":
        await _answered(victim, Think(f"{HOARD}-gpu", victim.next_epoch(), []))
    elif end == "host-kill" and lid.path:
        lid.close()
        await _answered(victim, Think(f"{HOARD}-host", victim.next_epoch(), []))
    elif end == "host-limit":
        await no_more_memory(victim)
    else:
        os.kill(core, signal.SIGKILL)
        return "kill"
    return end


async def no_more_memory(engine: EngineProcess) -> None:
    """No address space beyond what its worker has, and of that nothing left: its next step finds none."""
    _no_more_pages(_largest(_core_of(engine.pid or 0)))
    await _answered(engine, Think(f"{HOARD}-limit", engine.next_epoch(), []))


def _no_more_pages(pid: int) -> None:
    now = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (now, now))


async def _load(engine: EngineProcess, arguments: argparse.Namespace, name: str, seed: int) -> list[Session]:
    """All sessions at once, each with an answer of the longest kind."""
    tokens = arguments.context - arguments.prompt_tokens - 100
    thinks = [_think(engine, arguments, f"{name}-{n}", seed + n, tokens) for n in range(SESSIONS)]
    return await asyncio.gather(*(_answered(engine, think) for think in thinks))


def _think(
    engine: EngineProcess, arguments: argparse.Namespace, request_id: str, seed: int, tokens: int
) -> Think:
    message = {"role": "user", "content": prompt(arguments.prompt_tokens, seed)}
    return Think(request_id, engine.next_epoch(), [message], max_output_tokens=tokens)


async def _answered(engine: EngineProcess, request: Think) -> Session:
    session, last_ns = Session(), 0
    try:
        async with engine.submit(request) as results:
            async for result in results:
                if isinstance(result, Failed):
                    session.error = result.message
                elif isinstance(result, TextDelta | Finished):
                    now_ns = _clock.now_ns()
                    gap_ms = ms_between(last_ns, now_ns) if last_ns else 0.0
                    session.longest_gap_ms, last_ns = max(session.longest_gap_ms, gap_ms), now_ns
    except EngineError as error:
        session.error = str(error)
    return session


def _gaps(sessions: list[Session]) -> dict[str, float]:
    found = [session.longest_gap_ms for session in sessions]
    return {"p50": round(nearest_rank(found, 50), 1), "max": round(max(found), 1)}


def _core_of(engine_pid: int) -> int:
    """The process of vLLM's engine core: the child of the engine that has the most memory."""
    return max(_children(engine_pid).items(), key=lambda child: child[1])[0]


def _largest(pid: int) -> int:
    """Of a process and all that came from it: on a CPU vLLM's worker is a process of its own, below the core."""
    family, known = {pid: 0}, [pid]
    while known:
        found = _children(known.pop())
        family |= found
        known += found
    return max(family, key=lambda member: family[member])


def _children(parent: int) -> dict[int, int]:
    """Their resident pages by process."""
    children: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:  # proc(5): state, ppid, ..., rss as the 22nd behind the name
                children[int(path.parent.name)] = int(fields[21])
    return children
