"""`voice-agent bench thinker`: what our engine path adds to vLLM, on a model's exact shape without its weights.

A wave is N sessions that ask at the same moment. Each wave is run twice, back to back on the same engine process: bare
(prompts that are tokens already go straight into vLLM, inside the child) and ours (conversations through the client,
the socket, the child, the template, the tokenizer and back). The order changes from wave to wave. Needs numpy and vLLM
with what it brings, nothing else: `python -m voice_agent.bench.thinker`.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voice_agent.bench import arguments as words
from voice_agent.bench.machine import commit, machine
from voice_agent.bench.memory_lid import MemoryLid
from voice_agent.bench.plugin_metadata import with_plugin
from voice_agent.bench.thinker_crash import ENDS, SESSIONS, crashed
from voice_agent.bench.thinker_models import SHAPES, hidden_size, write_folder
from voice_agent.bench.thinker_waves import Bench
from voice_agent.clock import MonotonicClock
from voice_agent.engine.cuda_ipc import device_pool
from voice_agent.engine.runtime import EngineLimits, EngineSpec, ThinkerOptions
from voice_agent.engine.supervisor import EngineProcess
from voice_agent.errors import ConfigError, VoiceAgentError
from voice_agent.models.vllm_rows import pool_shape

CHILD = (sys.executable, "-m", "voice_agent.bench.thinker_child")
LEAST_PROMPT = 16  # more than the template takes
START_S = 590.0
POOL_SLOTS, POOL_ROWS, VALUE_BYTES = 32, 64, 2  # a decode step of 64 sessions is one block of bfloat16
READERS = ("device", "steps", "host", "nobody")
HOARDING = "voice_agent.bench.thinker_hoard.HoardingWorker"
QUICK = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}


@dataclass(frozen=True)
class Subject:
    """What is measured: a shape or a folder, what its hidden rows hold ("" for none), and who reads them.

    `waves`: of each kind at a level, at least; 0 for as many as the others. `engine_args`: numbers for vLLM itself.
    """

    name: str
    hidden: str = ""
    reader: str = "device"
    waves: int = 0
    engine_args: tuple[tuple[str, int], ...] = ()

    @classmethod
    def parsed(cls, text: str, reader: str) -> "Subject":
        """From NAME or NAME:HIDDEN, and behind commas reader=WAY, waves=N and numbers of vLLM's AsyncEngineArgs."""
        head, *more = text.split(",")
        name, _, hidden = head.partition(":")
        if unequal := [part for part in more if "=" not in part]:
            raise ConfigError(f"--model: {unequal[0]!r} should be NAME=NUMBER")
        given = dict(part.split("=", 1) for part in more)
        reader = given.pop("reader", reader)
        if reader not in READERS:
            raise ConfigError(f"--model: reader={reader} is none of {', '.join(READERS)}")
        if name not in SHAPES and not Path(name).is_dir():
            raise ConfigError(
                f"--model: {name!r} is no folder here and none of the shapes {', '.join(SHAPES)}"
            )
        for key, value in given.items():
            if not value.removeprefix("-").isdecimal():
                raise ConfigError(f"--model: {key}={value!r} should be a whole number")
        numbers = {key: int(value) for key, value in given.items()}
        return cls(name, hidden, reader, numbers.pop("waves", 0), tuple(numbers.items()))

    def __str__(self) -> str:
        rows = [f"with hidden rows ({self.hidden}, read by {self.reader})"] if self.hidden else []
        return " ".join([self.name, *rows, *(f"{key}={value}" for key, value in self.engine_args)])


async def measured(arguments: argparse.Namespace, report: dict[str, Any]) -> None:
    """Start every engine (all at once with `together`), measure one after the other, then crash one if asked to."""
    subjects: list[Subject] = arguments.model
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lid = MemoryLid("voice-agent-bench") if arguments.crash else None
        if lid:
            stack.callback(lid.remove)
        engines = [
            stack.enter_context(_engine(subject, home, arguments, lid if number == 0 else None))
            for number, subject in enumerate(subjects)
        ]
        starts = await asyncio.gather(*(_started(engine, stack) for engine in engines if arguments.together))
        for number, (subject, engine) in enumerate(zip(subjects, engines, strict=True)):
            start_s = starts[number] if starts else await _started(engine, stack)
            tell(f"{subject}: up after {start_s} s")
            levels: dict[str, Any] = {}
            report["models"][str(subject)] = {"start_s": start_s, "levels": levels}
            bench = Bench(engine, arguments, subject.hidden, subject.waves or arguments.waves)
            for sessions in arguments.sessions:
                levels[str(sessions)] = await bench.level(sessions)
                tell(f"{subject}: {sessions} sessions: {json.dumps(levels[str(sessions)])}")
            if not arguments.together:
                await engine.close()
        for end in arguments.crash:
            assert lid is not None, "there is one where something crashes"
            found = await crashed(end, engines[0], engines[1], arguments, lid)
            report.setdefault("crashes", []).append(found)
            tell(f"{end}: {json.dumps(found)}")


@contextmanager
def _engine(
    subject: Subject, home: Path, arguments: argparse.Namespace, lid: MemoryLid | None
) -> Generator[EngineProcess]:
    """An engine, not yet started; one with a lid is made to crash later."""
    folder = Path(subject.name)
    if not folder.is_dir():
        folder = write_folder(home / subject.name, subject.name, arguments.layers)
    with _pool(folder, subject) as address:
        chosen = spec(folder, subject, arguments, address)
        if lid and chosen.thinker:
            chosen.thinker.extra["engine_args"]["worker_cls"] = HOARDING
            chosen.env.update(lid.environment)
        yield EngineProcess(subject.name, chosen, MonotonicClock(), command=CHILD)


@contextmanager
def _pool(folder: Path, subject: Subject) -> Generator[str]:
    """The address of a pool for the subject's hidden rows, with a process that reads it; "" if it wants none."""
    if not subject.hidden:
        yield ""
        return
    shape = pool_shape(subject.hidden, hidden_size(folder), VALUE_BYTES, slots=POOL_SLOTS, rows=POOL_ROWS)
    pool = device_pool(shape)
    command = (sys.executable, "-m", "voice_agent.bench.thinker_reader", pool.address, subject.reader)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        try:
            yield pool.address
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                tell(f"{subject}: the reader had {reader.communicate(timeout=10)[0].strip() or 'nothing'}")
            reader.kill()
            pool.close()


async def _started(engine: EngineProcess, stack: AsyncExitStack) -> float:
    """Seconds that the start took; the engine is closed with the stack."""
    stack.push_async_callback(engine.close)
    begin = time.monotonic()
    await engine.start()
    return round(time.monotonic() - begin, 1)


def spec(folder: Path, subject: Subject, arguments: argparse.Namespace, pool: str) -> EngineSpec:
    """The Thinker engine on vLLM, as a configuration would ask for it."""
    engine_args = {"language_model_only": True} if "omni" in subject.name else {}
    engine_args |= arguments.engine_args | dict(subject.engine_args)
    if arguments.quick:
        engine_args["compilation_config"] = QUICK
    options: dict[str, Any] = {
        "load_format": "dummy" if subject.name in SHAPES else "auto",
        "max_num_seqs": max([*arguments.sessions, SESSIONS if arguments.crash else 1]),
        "ignore_eos": True,
        "enforce_eager": arguments.eager,
        "hidden": subject.hidden,
        "hidden_pool": pool,
        "hidden_via": "host" if subject.reader == "host" else "device",
        "gpu_memory_utilization": arguments.memory,
        "engine_args": engine_args,
    }
    return EngineSpec(
        kind="thinker",
        thinker=ThinkerOptions("vllm", str(folder), context_tokens=arguments.context, extra=options),
        has_children=True,
        limits=EngineLimits(start_s=START_S, queued_results=arguments.context + 100),
        env=with_plugin() | {"VLLM_LOGGING_LEVEL": "INFO" if arguments.verbose else "WARNING"},
    )


def compared(levels: dict[str, Any]) -> list[str]:
    """Rows for people: each kind, and what it has over bare, with the range of 95 draws in 100."""
    rows: list[str] = []
    for sessions, kinds in levels.items():
        for kind, found in kinds.items():
            rows.append(
                f"{sessions:>8} {kind:7}{found['first_ms_p50']:10.2f}{found['first_ms_p95']:10.2f}"
                f"{found['first_ms_mean']:10.2f}{found['own_clock_ms_p50']:10.2f}"
                f"{found['tokens_per_s']:12.1f}{found['n']:7}"
            )
            if between := found.get("over_bare"):
                rows.append(f"{'':17}over bare: " + ", ".join(f"{k} {v}" for k, v in between.items()))
    return rows


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    heads = ("first p50", "p95 ms", "mean", "own p50")
    head = f"{'sessions':>8} {'':7}" + "".join(f"{each:>10}" for each in heads) + f"{'tokens/s':>12}{'n':>7}"
    lines: list[str] = []
    for shape, found in report["models"].items():
        lines += [f"{shape} (start {found['start_s']} s)", head, *compared(found["levels"]), ""]
    for crash in report.get("crashes", []):
        lines += [
            f"end of the first one's vLLM core by {crash['end']}, both under load",
            json.dumps(crash, indent=1),
            "",
        ]
    return "\n".join(
        [
            *lines,
            f"machine  {json.dumps(report['machine'])}",
            f"command  {report['command']}",
            f"commit   {report['commit']}",
        ]
    )


def tell(text: str) -> None:
    """Progress, beside the report."""
    print(text, file=sys.stderr, flush=True)


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The command line; raises SystemExit."""
    parser = words.parser("voice-agent bench thinker", __doc__ or "")
    add, count = parser.add_argument, words.whole(1)
    shapes = ", ".join(SHAPES)
    add(
        "--model",
        action="append",
        help=f"a folder, or a shape without weights ({shapes}); NAME:HIDDEN with rows; behind commas reader=WAY, "
        "waves=N and numbers of vLLM's AsyncEngineArgs, such as max_num_batched_tokens=2048",
    )
    levels = words.several(count)
    add(
        "--sessions",
        type=levels,
        default=[1, 8, 32, 64],
        help="how many ask at once, level by level; empty: no waves",
    )
    add("--prompt-tokens", type=words.whole(LEAST_PROMPT), default=300, help="of each question")
    add("--answer-tokens", type=count, default=128, help="of each answer")
    add("--waves", type=count, default=5, help="waves of each kind at a level, at least")
    add(
        "--least-answers",
        type=count,
        default=40,
        help="answers of each kind at a level, at least (40 waves at most)",
    )
    add("--texts", action="store_true", help="bare too with texts that vLLM itself makes tokens of")
    add(
        "--together",
        action="store_true",
        help="start all models at once; each is measured while the others idle",
    )
    add(
        "--crash",
        default="",
        help=f"with two models together: end one's core under load, watch both ({', '.join(ENDS)}; several by comma)",
    )
    add("--context", type=words.whole(256), default=1024, help="tokens of context")
    add(
        "--reader",
        choices=READERS,
        default="device",
        help="where hidden rows are handed over, and how they are read; steps: device memory, read step by step; "
        "nobody: device memory whose blocks are given back unread",
    )
    add("--layers", type=words.whole(0), default=0, help="cut the shape to so many layers")
    add("--eager", action="store_true", help="no compilation, no CUDA graphs: starts sooner, says less")
    add("--quick", action="store_true", help="graphs for decode steps only, no compilation: starts sooner")
    add("--verbose", action="store_true", help="what the engines print")
    add("--memory", type=words.number(0, 1), default=0.0, help="part of the GPU's memory that vLLM may take")
    add("--engine-args", type=words.json_object, default={}, help="more of vLLM's AsyncEngineArgs, as JSON")
    add("--json", type=words.file_to_write, help="write the report there")
    arguments = parser.parse_args(argv)
    try:
        arguments.model = [
            Subject.parsed(text, arguments.reader) for text in arguments.model or ["qwen3-1.7b"]
        ]
    except ConfigError as error:
        parser.error(str(error))
    asked = arguments.prompt_tokens + arguments.answer_tokens
    if asked > arguments.context:
        parts = f"{arguments.prompt_tokens} + {arguments.answer_tokens} tokens"
        parser.error(f"--context: {parts} do not fit into {arguments.context}; lower them or raise it")
    arguments.crash = [end for end in arguments.crash.split(",") if end]
    if unknown := set(arguments.crash) - set(ENDS):
        parser.error(f"--crash: {', '.join(sorted(unknown))} is none of {', '.join(ENDS)}")
    if arguments.crash and not (arguments.together and len(arguments.model) > 1):
        parser.error("--crash needs two models --together")
    return arguments


def main(argv: Sequence[str]) -> int:
    """Measure, print; 1 if an engine could not do it."""
    arguments = parsed(argv)
    if words.lacks("bench thinker", "vllm"):
        return 2
    logging.basicConfig(level=logging.DEBUG if arguments.verbose else logging.WARNING)
    report: dict[str, Any] = {"models": {}}
    failed = False
    try:
        asyncio.run(measured(arguments, report))
    except VoiceAgentError as error:
        tell(f"{type(error).__name__}: {error}")
        failed = True
    report |= {
        "machine": machine(),
        "commit": commit(),
        "command": shlex.join(["voice-agent", "bench", "thinker", *argv]),
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))
    print(table(report))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
