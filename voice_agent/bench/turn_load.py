"""Many callers at once: each in a call of its own that goes on, turn after turn, with barge-ins between.

Callers are shared out to processes, since one Python cannot pace them all; each begins at an instant of its own, and
questions and barge-ins come in an order drawn by its number. Afterwards the server's engines are asked what they hold:
nothing may be left. How late the callers' own loops were is kept, so that a starved caller is not taken for a slow
server. Does not know what a turn is (`measure`), nor how it is told (`report`).
"""

import asyncio
import contextlib
import logging
import multiprocessing
import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import httpx

from voice_agent.bench import measure
from voice_agent.bench.caller import Caller
from voice_agent.bench.measure import Barge, Call, Turn
from voice_agent.bench.socket_caller import SocketCaller
from voice_agent.bench.spoken import Sentence
from voice_agent.clock import NS_PER_S, Clock, MonotonicClock
from voice_agent.errors import VoiceAgentError
from voice_agent.loop_lag import LoopLag

CALLERS_A_PROCESS = 2  # over WebRTC each takes 10-15 % of a core
SPREAD_S = 6.0  # the callers' first questions come within this
GRACE_S = 30.0  # for what has begun when the time is over
LEFT_S, LEFT_POLL_S = 5.0, 0.5  # an engine's sign of life comes every second
Transport = Literal["webrtc", "websocket"]
Act = Literal["ask", "barge"]


@dataclass(frozen=True)
class Load:
    """What is asked of a server, and with which sounds."""

    url: str
    sessions: int
    turns: int  # of each caller
    barges: int  # of each caller
    transport: Transport
    questions: list[Sentence]
    long_questions: list[Sentence]
    barge_sounds: list[Sentence]
    api_key: str | None = None
    seconds: float = 0.0  # no new turn begins behind this; 0: no limit


@dataclass
class Found:
    """What came of it; `left` is what an engine still held at the end, by its name, None if it is not told.

    `late_ms` is the p99 of how late each process's loop was in its last minute.
    """

    turns: list[Turn] = field(default_factory=list[Turn])
    barges: list[Barge] = field(default_factory=list[Barge])
    left: dict[str, int] | None = None
    late_ms: list[float] = field(default_factory=list[float])

    def add(self, other: "Found") -> None:
        """Take in what another process found."""
        self.turns += other.turns
        self.barges += other.barges
        self.late_ms += other.late_ms


def run(load: Load) -> Found:
    """All callers at once, to their last turn."""
    found, ways = Found(), shares(load.sessions, CALLERS_A_PROCESS)
    start_s = time.time() + 4.0 + 0.1 * len(ways)  # by then every process is up
    with ProcessPoolExecutor(len(ways), multiprocessing.get_context("spawn")) as pool:
        for part in pool.map(_share, [load] * len(ways), ways, [start_s] * len(ways)):
            found.add(part)
    found.left = asyncio.run(_left(load))
    return found


def shares(callers: int, most: int) -> list[list[int]]:
    """Numbers of callers, `most` to a process at the most, as even as can be."""
    processes = -(-callers // most)
    return [list(range(first, callers, processes)) for first in range(processes)]


def acts(turns: int, barges: int, number: int) -> list[Act]:
    """What a caller does, in order; the first is a question."""
    draw = random.Random(f"caller {number}")
    ask, barge = cast(list[Act], ["ask"]), cast(list[Act], ["barge"])
    rest = ask * (turns - 1) + barge * barges
    draw.shuffle(rest)
    return ask + rest if turns else rest


def _share(load: Load, numbers: list[int], start_s: float) -> Found:
    """One process's callers."""
    logging.basicConfig(level=logging.WARNING)
    return asyncio.run(_callers(load, numbers, start_s))


async def _callers(load: Load, numbers: list[int], start_s: float) -> Found:
    found, clock = Found(), MonotonicClock()
    lag = LoopLag(clock)
    probe = asyncio.create_task(lag.run())
    try:
        await asyncio.gather(*(_caller(load, number, start_s, found, clock) for number in numbers))
    finally:
        probe.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await probe
    if late_ms := lag.summary().get("p99_ms"):
        found.late_ms.append(late_ms)
    return found


async def _caller(load: Load, number: int, start_s: float, found: Found, clock: Clock) -> None:
    offset_s = SPREAD_S * number / load.sessions
    await asyncio.sleep(max(0.0, start_s + offset_s - time.time()))
    until_ns = clock.now_ns() + round(load.seconds * NS_PER_S) if load.seconds else None
    try:
        async with (
            asyncio.timeout(load.seconds + GRACE_S if load.seconds else None),
            _call(load, clock) as call,
        ):
            await measure.settle(call)
            await _converse(load, number, call, found, until_ns)
    except TimeoutError:
        found.turns.append(Turn(f"caller {number}", failure=f"not through {GRACE_S:g} s after the end"))
    except (VoiceAgentError, httpx.HTTPError, OSError) as error:
        found.turns.append(Turn(f"caller {number}", failure=f"{type(error).__name__}: {error}"))


def _call(load: Load, clock: Clock) -> "AbstractAsyncContextManager[Call]":
    kind = SocketCaller if load.transport == "websocket" else Caller
    return cast("AbstractAsyncContextManager[Call]", kind(load.url, clock, load.api_key))


async def _converse(load: Load, number: int, call: Call, found: Found, until_ns: int | None) -> None:
    clock, underruns = MonotonicClock(), 0
    for place, act in enumerate(acts(load.turns, load.barges, number)):
        if until_ns is not None and clock.now_ns() >= until_ns:
            return
        if act == "ask":
            sentence = _drawn(load.questions, number, place)
            turn = await measure.ask(call, clock, sentence.text, sentence.samples)
            so_far = turn.server_underruns
            found.turns.append(replace(turn, reply=None, server_underruns=max(0, so_far - underruns)))
            underruns = max(underruns, so_far)
        else:
            question = _drawn(load.long_questions, number, place)
            barge = _drawn(load.barge_sounds, number, place)
            begin_ns = clock.now_ns()
            found.barges.append(await measure.interrupt(call, clock, question.samples, barge.samples))
            await measure.hear_out(call, begin_ns)


def _drawn(sentences: Sequence[Sentence], number: int, place: int) -> Sentence:
    return sentences[(7 * number + place) % len(sentences)]


async def _left(load: Load) -> dict[str, int] | None:
    """What each engine holds once all calls are over, by its own word; None if the server does not tell."""
    headers = {"authorization": f"Bearer {load.api_key}"} if load.api_key else {}
    until_s = time.monotonic() + LEFT_S
    async with httpx.AsyncClient(base_url=load.url, headers=headers, trust_env=False, timeout=10) as http:
        while True:
            await asyncio.sleep(LEFT_POLL_S)
            response = await http.get("/operator/engines")
            if response.status_code != 200:
                return None
            engines = cast(list[dict[str, Any]], response.json()["engines"])
            left = {str(engine["name"]): int(engine.get("held", 0)) for engine in engines}
            if not any(left.values()) or time.monotonic() > until_s:
                return left
