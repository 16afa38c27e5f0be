"""`voice-agent bench speech`: first sound, gaps and capacity of a speech route under load, ours or another server's.

Open loop by default (`--rps`), one point after the other on one running server, several seeds each; `--streams` asks
in a closed loop instead. Needs numpy and nothing else, so that it runs beside any server; only `--transcribe` loads a
recognizer, when nothing is measured any more. Exit status: 0, 1 if a request was lost, 2 if the command is wrong or
the server cannot be reached.
"""

import argparse
import asyncio
import json
import shlex
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from voice_agent.bench import arguments, load, speech_load
from voice_agent.bench.http_stream import ConnectionPool
from voice_agent.bench.machine import commit, machine
from voice_agent.bench.speech_load import Caller, Gpu, Reply
from voice_agent.bench.speech_picture import picture
from voice_agent.bench.speech_report import (
    NOT_MEASURABLE,
    Limits,
    PointRun,
    Report,
    cost,
    point,
    price_told,
    table,
)
from voice_agent.bench.speech_servers import SERVERS, Asking
from voice_agent.clock import NS_PER_MS, MonotonicClock
from voice_agent.errors import ConfigError, WeightsError

# of this bench's sentences: 2 and 4 words in a hundred wrong
RECOGNIZERS = ("whisper-base", "whisper-tiny.en")
LEAD_NS = 200 * NS_PER_MS  # between making a point's jobs and its first instant


@dataclass
class Bench:
    """A caller, what to watch, and what the command line asked for."""

    caller: Caller
    options: argparse.Namespace
    gpu: Gpu


def main(argv: Sequence[str]) -> int:
    """Run with the command line behind `bench speech`; prints the table and returns the exit status."""
    if "--quality" in argv:
        from voice_agent.bench.speech_quality_options import main as quality

        return quality([word for word in argv if word != "--quality"])
    parser = _parser()
    options = parser.parse_args(argv)
    if options.draw and not options.picture:
        parser.error("--draw: it needs --picture FILE to write to")
    if options.draw:
        return _draw(options)
    if not options.rps and not options.streams:
        options.rps = [1.0, 10.0, 20.0, 30.0]
    try:
        asking, recognizer = _asking(options), _recognizer(options)
        runs, gpu_name = asyncio.run(_run(options, asking))
    except (ConfigError, WeightsError) as error:
        print(f"bench speech: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"bench speech: no server at {options.url} ({error})", file=sys.stderr)
        return 2
    if options.transcribe and any(run.random_weights for run in runs):
        print(f"word errors: {NOT_MEASURABLE}", file=sys.stderr)
    elif recognizer:
        _recognize(runs, recognizer)
    limits = Limits(options.limit_ms, options.most_underruns, options.most_word_errors)
    report = _report([point(run, limits) for run in runs if run.counted], options, argv)
    report["gpu"], report["recognizer"] = gpu_name, recognizer or None
    _write(report, options)
    return 0 if all(p["due"] == p["answered"] for p in report["points"]) else 1


async def _run(options: argparse.Namespace, asking: Asking) -> tuple[list[PointRun], str | None]:
    clock = MonotonicClock()
    pool = ConnectionPool(options.url, clock.now_ns)
    kept = 0 if options.force_lengths else options.transcribe
    caller = Caller(asking, pool, clock, options.timeout, options.api_key, kept)
    bench = Bench(caller, options, Gpu(options.gpu))
    pool.give(await pool.take())  # a server that is not there is told at once
    try:
        runs = [await _point(bench, rps, closed=False) for rps in options.rps or []]
        runs += [await _point(bench, streams, closed=True) for streams in options.streams or []]
    finally:
        pool.close()
    return runs, bench.gpu.name


async def _point(bench: Bench, amount: float, *, closed: bool) -> PointRun:
    """One load, all seeds; a pause after each lets the server come to rest."""
    options = bench.options
    run = PointRun(amount, closed, options.seconds, options.warm_up, random_weights=options.force_lengths)
    for seed in options.seeds:
        print(f"{amount:g} {'streams' if closed else 'a second'}, seed {seed}", file=sys.stderr, flush=True)
        bench.gpu.busy, bench.gpu.memory_mib = [], []
        before = await asyncio.to_thread(_work, options)
        began_s, cpu_s = time.monotonic(), time.process_time()
        async with AsyncExitStack() as beside:
            await beside.enter_async_context(bench.gpu.watched())
            jobs = speech_load.quality_jobs(bench.caller, options.quality_jobs)
            quality = await beside.enter_async_context(jobs)
            run.replies.append(await _seed(bench, amount, seed, closed=closed))
            run.quality += quality
        run.random_weights |= any(reply.random_weights for reply in run.replies[-1])
        run.client_cpu.append((time.process_time() - cpu_s) / (time.monotonic() - began_s))
        skipped = int(2 * options.warm_up)  # the GPU is read twice a second
        run.gpu_busy += bench.gpu.busy[skipped:]
        run.gpu_memory_mib += bench.gpu.memory_mib
        await asyncio.sleep(options.pause)
        after = await asyncio.to_thread(_work, options)
        run.work.append({name: value - before.get(name, 0.0) for name, value in after.items()})
    return run


def _work(options: argparse.Namespace) -> dict[str, float]:
    """Running totals of our speech engine, up to a second old; nothing of another's, or where operators need a key."""
    if options.server != "ours":
        return {}
    request = urllib.request.Request(f"{options.url.rstrip('/')}/operator/engines")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            engines = json.load(answer)["engines"]
    except (OSError, ValueError, KeyError, HTTPException):
        return {}
    return next((engine["work"] for engine in engines if engine["name"] == "speech"), {})


async def _seed(bench: Bench, amount: float, seed: int, *, closed: bool) -> list[Reply]:
    options, caller = bench.options, bench.caller
    if closed:
        return await speech_load.closed_loop(caller, int(amount), options.warm_up, options.seconds, seed)
    jobs = load.open_loop(amount, options.warm_up, options.seconds, seed)
    return await speech_load.open_loop(caller, jobs, caller.clock.now_ns() + LEAD_NS)


def _recognizer(options: argparse.Namespace) -> str:
    """The packaged recognizer that is to hear replies: the one asked for, else the best that is there; "" for none.

    Raises WeightsError before anything is measured.
    """
    if not options.transcribe or options.force_lengths:
        return ""
    from voice_agent.bench.spoken import cache_folder
    from voice_agent.models.store import Store

    store = Store(cache_folder())
    names = [options.recognizer] if options.recognizer else RECOGNIZERS
    there = [name for name in names if not store.missing([name])]
    store.folder_of(there[0] if there else names[-1])
    return there[0]


def _recognize(runs: Sequence[PointRun], recognizer: str) -> None:
    """Hear the kept replies again."""
    import numpy as np

    from voice_agent.audio import OPUS_RATE_HZ
    from voice_agent.bench.speech_servers import RATE_HZ
    from voice_agent.bench.spoken import Hearing, cache_folder, to_rate
    from voice_agent.bench.wer import word_error_rate
    from voice_agent.models.store import Store

    hearing = Hearing(Store(cache_folder()), recognizer)
    for run in runs:
        for reply in run.counted:
            if reply.sound and reply.failure is None:
                samples = np.frombuffer(reply.sound, "<i2", len(reply.sound) // 2)
                run.heard.append((reply.job.text, hearing.text(to_rate(samples, RATE_HZ, OPUS_RATE_HZ))))
        run.word_error_rate = word_error_rate(run.heard)


def _report(points: list[Report], options: argparse.Namespace, argv: Sequence[str]) -> Report:
    return {
        "server": options.server,
        "forced_lengths": options.force_lengths,
        "points": points,
        "cost": cost(points, options.gpu_price),
        "machine": machine(),
        "commit": commit(),
        "command": shlex.join(["voice-agent", "bench", "speech", *_without_key(argv)]),
        "note": options.note,
    }


def _without_key(argv: Sequence[str]) -> list[str]:
    """The command line as it may be printed."""
    after_key = [False, *(word == "--api-key" for word in argv)]
    hidden = ["***" if after else word for word, after in zip(argv, after_key, strict=False)]
    return ["--api-key=***" if word.startswith("--api-key=") else word for word in hidden]


def _write(report: Report, options: argparse.Namespace) -> None:
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    if options.picture and any(p["loop"] == "open" for p in report["points"]):
        title = f"{options.server}: {options.note}" if options.note else options.server
        options.picture.write_text(picture(report["points"], options.limit_ms, title), "utf-8")
    print(table(report["points"]))
    for p in report["points"]:
        if p["word_error_rate"] is not None:
            heard = f"({p['replies_recognized']} replies, by {report['recognizer']})"
            print(f"word errors at {p['load']:g}: {p['word_error_rate']} {heard}")
        if p["stages"]:
            print(f"stages at {p['load']:g}: {', '.join(f'{k} {v:g}' for k, v in p['stages'].items())}")
    found = report["cost"]
    print(f"\ncost of 1M characters at ${options.gpu_price:g}/h: {price_told(found)}")
    print(
        f"machine {report['machine']['cpu']}, {report['machine']['cores']} cores, GPU {report['gpu'] or 'none seen'}"
    )
    print(f"commit  {report['commit'] or 'unknown'}\ncommand {report['command']}")


def _draw(options: argparse.Namespace) -> int:
    """The picture of a report that was written before."""
    try:
        report = json.loads(Path(options.draw).read_text("utf-8"))
        drawn = picture(report["points"], options.limit_ms, options.note or report["note"])
    except (OSError, ValueError, KeyError) as error:
        print(f"bench speech: {options.draw} is no report of an open loop ({error})", file=sys.stderr)
        return 2
    options.picture.write_text(drawn, "utf-8")
    return 0


def _asking(options: argparse.Namespace) -> Asking:
    extra: dict[str, Any] = {}
    for item in options.extra:
        name, equals, value = item.partition("=")
        if not equals:
            raise ConfigError(f"--extra {item}: NAME=JSON is wanted")
        try:
            extra[name] = json.loads(value)
        except ValueError as error:
            raise ConfigError(f"--extra {name}: {value!r} is not JSON") from error
    asking = Asking(
        SERVERS[options.server],
        options.model,
        options.voice,
        options.language,
        options.force_lengths,
        options.length_field,
        extra,
    )
    asking.body(load.Job(0, "?", 1))  # what cannot be asked is told before anything starts
    return asking


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser(
        "voice-agent bench speech", "first sound, gaps and capacity of a speech route under load"
    )
    add, count = parser.add_argument, arguments.whole(0)
    seconds, some_seconds = arguments.number(0), arguments.number(0.1)
    rps, streams = arguments.number(0.01), arguments.whole(1)
    add("--url", type=arguments.address, default="http://127.0.0.1:8000", help="the server's address")
    add("--server", choices=sorted(SERVERS), default="ours", help="whose dialect the route speaks")
    add("--api-key", type=arguments.api_key, default="", help="sent as a bearer token")
    add("--rps", type=rps, nargs="+", help="loads of the open loop, requests a second (default 1 10 20 30)")
    add("--streams", type=streams, nargs="+", help="closed loop: so many requests at once")
    add("--seconds", type=some_seconds, default=60, help="measured time of a point and seed")
    add("--warm-up", type=seconds, default=10, help="seconds before, at the same load")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of arrivals, order of texts, lengths")
    add("--pause", type=seconds, default=2, help="seconds between two measurements")
    add("--timeout", type=some_seconds, default=120, help="seconds for a whole answer")
    add("--model", help="instead of the dialect's usual one")
    add("--voice", help="instead of the dialect's usual one")
    add("--language", help="instead of the dialect's usual one")
    add(
        "--force-lengths",
        action="store_true",
        help="limit each reply to a drawn length (random weights; no word errors then)",
    )
    add("--length-field", help="the request's field for it, in frames")
    add("--extra", action="append", default=[], metavar="NAME=JSON", help="one more field of every request")
    add("--quality-jobs", type=count, default=0, help="quality-first requests that always run beside")
    add("--transcribe", type=count, default=0, metavar="N", help="recognize every Nth reply: word errors")
    add(
        "--recognizer", choices=RECOGNIZERS, help="who hears them (default: the first of these that is there)"
    )
    add("--limit-ms", type=seconds, default=50, help="p95 of audible first sound that a point must keep")
    add("--most-underruns", type=seconds, default=0, help="share of replies that may run dry")
    add("--most-word-errors", type=seconds, default=0.05, help="word error rate that a point must keep")
    add("--gpu-price", type=seconds, default=3, help="dollars an hour")
    add("--gpu", type=count, default=0, help="which one nvidia-smi watches")
    add("--json", type=arguments.file_to_write, help="write the report to this file")
    add("--picture", type=arguments.file_to_write, help="write an SVG of the open-loop points to this file")
    add("--draw", metavar="REPORT", help="ask nobody: draw the --picture of a report that --json wrote")
    add(
        "--quality",
        action="store_true",
        help="latency first against quality first; options of its own (--quality -h)",
    )
    add("--note", default="", help="told in the report: machine, weights, configuration of the server")
    return parser
