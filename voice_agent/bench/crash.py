"""`voice-agent bench crash`: what a killed engine costs a profile's own replies and the engine beside it.

Starts a profile's engines with their real models, without a server, and gives each so many requests: answers to the
Thinker, replies that are already fed to the Talker. Then kill -9 of one, as the kernel does for want of memory, and
what each side notices: how soon the requests ended and why, whether the other's went on to their end, and when a new
turn (an answer's first piece, a reply's first sound) was served again.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from voice_agent.bench import arguments
from voice_agent.bench.machine import commit, machine
from voice_agent.clock import MonotonicClock
from voice_agent.config import PROFILES, Config
from voice_agent.config_sources import load_config
from voice_agent.engine.client import EngineClient, EngineStream
from voice_agent.engine.messages import (
    Failed,
    Finished,
    Speak,
    SpeakEnd,
    SpeakText,
    SpeechChunk,
    SpokenWord,
    TextDelta,
    Think,
)
from voice_agent.engines import Engines, running_engines, start_engines, store_of
from voice_agent.errors import EngineError, VoiceAgentError

ENGINES = ("thinker", "speech")
CLAUSE = "The harbour opens early and closes late in summer."
AFTER_S = 1.0  # of load before the kill
PATIENCE_S = 180.0


def main(argv: Sequence[str]) -> int:
    """Measure and print; 0 when all held, 1 when something did not, 2 if nothing could be measured."""
    options = _parsed(argv)
    flags: dict[str, Any] = {
        "profile": options.profile,
        "engines": {name: {"warm_spare": options.spare} for name in ENGINES},
        "talker": {"job_wait_s": PATIENCE_S},
    }
    try:
        rows = asyncio.run(_measured(load_config(flags=flags), options))
    except VoiceAgentError as error:
        print(f"voice-agent: {error}", file=sys.stderr)
        return 2
    report = {"machine": machine(), "commit": commit(), "command": ["bench", "crash", *argv], "rounds": rows}
    if options.json:
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    print(json.dumps(report, indent=1))
    return 0 if all(row["held"] for row in rows) else 1


async def _measured(config: Config, options: argparse.Namespace) -> list[dict[str, Any]]:
    clock = MonotonicClock()
    async with running_engines(config, store_of(config), clock, lambda line: None) as engines:
        await start_engines(engines, config)
        return [
            await _round(engines, victim, options) for _ in range(options.rounds) for victim in options.victim
        ]


async def _round(engines: Engines, victim: str, options: argparse.Namespace) -> dict[str, Any]:
    process = engines.thinker_process if victim == "thinker" else engines.speech_process
    async with asyncio.timeout(PATIENCE_S):
        while options.spare and not process.spare_ready:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.1)
    tasks = {
        "thinker": [_task(_thought(engines, f"t{number}")) for number in range(options.sessions)],
        "speech": [_task(_spoken(engines, f"s{number}")) for number in range(options.sessions)],
    }
    await asyncio.sleep(AFTER_S)
    ended_before = sum(task.done() for task in tasks[victim])
    begin_s = time.monotonic()
    os.kill(process.pid or 0, signal.SIGKILL)
    hurt = await asyncio.gather(*tasks[victim])
    failed_s = time.monotonic() - begin_s
    served_s = await _served_again(engines, victim, begin_s)
    beside = await asyncio.gather(*tasks["speech" if victim == "thinker" else "thinker"])
    errors = sorted({error for error in hurt if error})
    limit_s = 2.0 if options.spare else 10.0
    missed = [
        why
        for why, so in {
            "every request had ended before the kill: ask for more --sessions": not errors,
            f"the last failure came after {failed_s:.2f} s (1)": failed_s >= 1.0,
            f"served again after {served_s:.2f} s ({limit_s:g})": served_s >= limit_s,
            "requests of the other engine failed": any(beside),
        }.items()
        if so
    ]
    return {
        "victim": victim,
        "spare": options.spare,
        "sessions_each": options.sessions,
        "ended_before_the_kill": ended_before,
        "failed": sum(bool(error) for error in hurt),
        "last_failure_ms": round(1000 * failed_s),
        "errors": errors,
        "served_again_s": round(served_s, 2),
        "beside_finished": sum(not error for error in beside),
        "beside_errors": sorted({error for error in beside if error}),
        "missed": missed,
        "held": not missed,
    }


def _task(work: Any) -> asyncio.Task[str]:
    return asyncio.get_running_loop().create_task(work)


async def _served_again(engines: Engines, victim: str, begin_s: float) -> float:
    """Seconds to the first piece of a new turn, asked for again and again as a caller would."""
    number = 0
    while time.monotonic() - begin_s < PATIENCE_S:
        number += 1
        work = (
            _first_piece(engines, f"n{number}")
            if victim == "thinker"
            else _first_sound(engines, f"n{number}")
        )
        with contextlib.suppress(EngineError):
            await work
            return time.monotonic() - begin_s
        await asyncio.sleep(0.02)
    raise EngineError(f"the {victim} engine served nobody within {PATIENCE_S:g} s")


async def _thought(engines: Engines, name: str) -> str:
    """An answer to its end; the error if it had another one."""
    return await _outcome(engines.thinker_process, _think(engines, name))


async def _spoken(engines: Engines, name: str) -> str:
    """A reply that is fed whole; the error if its sound did not come to its end."""
    return await _outcome(engines.talker, Speak(name, engines.speech_process.next_epoch(), ""))


async def _outcome(client: EngineClient, request: Think | Speak) -> str:
    try:
        async with client.submit(request) as stream:
            _feed(stream, request)
            async for result in stream:
                if isinstance(result, Failed):
                    return result.message
                if isinstance(result, Finished):
                    return "" if result.reason != "aborted" else "aborted"
    except EngineError as error:
        return str(error)
    return "no ending"


async def _first_piece(engines: Engines, name: str) -> None:
    async with engines.thinker_process.submit(_think(engines, name)) as stream:
        async for result in stream:
            if isinstance(result, TextDelta):
                return
            if isinstance(result, Failed):
                raise EngineError(result.message)


async def _first_sound(engines: Engines, name: str) -> None:
    request = Speak(name, engines.speech_process.next_epoch(), "")
    async with engines.speech_process.submit(request) as stream:
        _feed(stream, request)
        async for result in stream:
            if isinstance(result, SpeechChunk):
                return
            if isinstance(result, Failed):
                raise EngineError(result.message)


def _think(engines: Engines, name: str) -> Think:
    messages = [{"role": "user", "content": f"Say something short about the harbour ({name})."}]
    return Think(name, engines.thinker_process.next_epoch(), messages, max_output_tokens=8)


def _feed(stream: EngineStream, request: Think | Speak) -> None:
    """A reply's whole text, at once."""
    if not isinstance(request, Speak):
        return
    words, at = list[SpokenWord](), 0
    for word in CLAUSE.split():
        words.append(SpokenWord(word, at, at + len(word)))
        at += len(word) + 1
    stream.push(SpeakText(request.request_id, request.epoch, words, "en"))
    stream.push(SpeakEnd(request.request_id, request.epoch))


def _parsed(argv: Sequence[str]) -> argparse.Namespace:
    parser = arguments.parser("voice-agent bench crash", (__doc__ or "").split("\n")[0])
    profiles = [name for name in PROFILES if name != "scripted"]  # whose requests end before the kill
    parser.add_argument("--profile", choices=profiles, default="cpu", help="whose engines")
    victims = arguments.several(arguments.one_of(*ENGINES))
    parser.add_argument(
        "--victim", type=victims, default=list(ENGINES), help="thinker, speech, or both in turn (by comma)"
    )
    parser.add_argument("--sessions", type=arguments.whole(1), default=32, help="requests on each engine")
    parser.add_argument("--rounds", type=arguments.whole(1), default=1, help="how often each is killed")
    parser.add_argument("--spare", action="store_true", help="with a warm spare beside each engine")
    parser.add_argument("--json", type=arguments.file_to_write, help="write the report here")
    return parser.parse_args(argv)
