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
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voice_agent.bench.machine import commit, machine
from voice_agent.bench.plugin_metadata import with_plugin
from voice_agent.bench.statistics import nearest_rank
from voice_agent.bench.thinker_models import SHAPES, hidden_size, prompt, write_folder
from voice_agent.clock import NS_PER_S, MonotonicClock, ms_between
from voice_agent.engine.cuda_ipc import device_pool
from voice_agent.engine.messages import Failed, Finished, TextDelta, Think
from voice_agent.engine.runtime import EngineLimits, EngineSpec, ThinkerOptions
from voice_agent.engine.slots import Shape
from voice_agent.engine.supervisor import EngineProcess
from voice_agent.errors import EngineError, VoiceAgentError
from voice_agent.models.vllm_rows import row_bytes

CHILD = (sys.executable, "-m", "voice_agent.bench.thinker_child")
TEMPLATE_TOKENS = 9
START_S = 590.0
POOL_SLOTS, POOL_ROWS, VALUE_BYTES = 32, 64, 2  # a decode step of 64 sessions is one block of bfloat16
KILL_SESSIONS, KILL_AFTER_S = 32, 0.3
QUICK = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}


@dataclass
class Waves:
    """All waves of one kind at one number of sessions."""

    first_ms: list[float] = field(default_factory=list[float])
    tokens: int = 0
    seconds: float = 0.0

    def add(self, first_ms: Sequence[float], tokens: int, seconds: float) -> None:
        """One wave."""
        self.first_ms += first_ms
        self.tokens += tokens
        self.seconds += seconds

    def summed_up(self) -> dict[str, float]:
        """First token in ms, and tokens a second."""
        return {
            "first_ms_p50": round(nearest_rank(self.first_ms, 50), 2),
            "first_ms_p95": round(nearest_rank(self.first_ms, 95), 2),
            "tokens_per_s": round(self.tokens / self.seconds, 1),
            "n": len(self.first_ms),
        }


class Bench:
    """One engine process, measured."""

    def __init__(self, engine: EngineProcess, arguments: argparse.Namespace, hidden: str) -> None:
        self._hidden = hidden
        self._engine = engine
        self._arguments = arguments
        self._clock = MonotonicClock()
        self._seed = 0  # a prompt is never asked twice: the prefix cache must not help one side

    async def level(self, sessions: int) -> dict[str, Any]:
        """Both kinds of waves at one number of sessions; the first of each is not counted."""
        kinds = {"bare": Waves(), "ours": Waves()}
        if self._hidden:
            kinds["hidden"] = Waves()
        for number in range(self._waves(sessions) + 1):
            order = list(kinds) if number % 2 else list(reversed(kinds))
            for kind in order:
                measured = await (self._bare(sessions) if kind == "bare" else self._ours(sessions, kind))
                if number:
                    kinds[kind].add(*measured)
        return {kind: waves.summed_up() for kind, waves in kinds.items()}

    def _waves(self, sessions: int) -> int:
        return max(self._arguments.waves, min(self._arguments.least_answers // sessions, 40))

    def _prompts(self, sessions: int) -> list[dict[str, Any]]:
        self._seed += sessions
        length = self._arguments.prompt_tokens - TEMPLATE_TOKENS
        return [{"role": "user", "content": prompt(length, self._seed + n)} for n in range(sessions)]

    def _think(self, request_id: str, messages: list[dict[str, Any]], hidden: str = "") -> Think:
        tokens = self._arguments.answer_tokens
        return Think(request_id, self._engine.next_epoch(), messages, max_output_tokens=tokens, hidden=hidden)

    async def _bare(self, sessions: int) -> tuple[list[float], int, float]:
        request, found = self._think(f"bare-{self._seed}", self._prompts(sessions)), ""
        async with self._engine.submit(request) as results:
            async for result in results:
                found += result.text if isinstance(result, TextDelta) else ""
        measured = json.loads(found)
        return measured["first_ms"], measured["tokens"], measured["seconds"]

    async def _ours(self, sessions: int, kind: str) -> tuple[list[float], int, float]:
        hidden = "reply" if kind == "hidden" else ""
        messages = self._prompts(sessions)
        begin_ns = self._clock.now_ns()
        measured = await asyncio.gather(
            *(
                self._one(self._think(f"{kind}-{self._seed}-{n}", [message], hidden))
                for n, message in enumerate(messages)
            )
        )
        seconds = (self._clock.now_ns() - begin_ns) / NS_PER_S
        return [first for first, _ in measured], sum(count for _, count in measured), seconds

    async def one_more(self, request_id: str, seed: int) -> tuple[float, int]:
        """One answer of the longest kind, outside of any wave."""
        message = {"role": "user", "content": prompt(self._arguments.prompt_tokens, -1 - seed)}
        tokens = self._arguments.context - self._arguments.prompt_tokens - 100
        request = Think(request_id, self._engine.next_epoch(), [message], max_output_tokens=tokens)
        return await self._one(request)

    async def _one(self, request: Think) -> tuple[float, int]:
        """One answer through our whole path: ms to its first piece, and its tokens."""
        begin_ns, first_ms, tokens = self._clock.now_ns(), 0.0, 0
        async with self._engine.submit(request) as results:
            async for result in results:
                match result:
                    case TextDelta():
                        first_ms = first_ms or ms_between(begin_ns, self._clock.now_ns())
                    case Finished(usage=usage):
                        tokens = usage["completion_tokens"]
                    case Failed(message=message):
                        raise EngineError(message)
                    case _:
                        pass
        if not first_ms:
            raise EngineError("an answer without a piece of text")
        return first_ms, tokens


@dataclass(frozen=True)
class Subject:
    """What is measured: a shape or a folder, and what its hidden rows hold ("" for none)."""

    name: str
    hidden: str = ""

    @classmethod
    def parsed(cls, text: str) -> "Subject":
        """From NAME or NAME:HIDDEN."""
        name, _, hidden = text.partition(":")
        return cls(name, hidden)

    def __str__(self) -> str:
        return f"{self.name} with hidden rows ({self.hidden})" if self.hidden else self.name


async def measured(arguments: argparse.Namespace, report: dict[str, Any]) -> None:
    """Start every engine (all at once with `together`), measure one after the other, then kill one if asked to."""
    subjects = [Subject.parsed(text) for text in arguments.model]
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engines = [stack.enter_context(_engine(subject, home, arguments)) for subject in subjects]
        starts = await asyncio.gather(*(_started(engine, stack) for engine in engines if arguments.together))
        for number, (subject, engine) in enumerate(zip(subjects, engines, strict=True)):
            start_s = starts[number] if starts else await _started(engine, stack)
            tell(f"{subject}: up after {start_s} s")
            levels: dict[str, Any] = {}
            report["models"][str(subject)] = {"start_s": start_s, "levels": levels}
            bench = Bench(engine, arguments, subject.hidden)
            for sessions in arguments.sessions:
                levels[str(sessions)] = await bench.level(sessions)
                tell(f"{subject}: {sessions} sessions: {json.dumps(levels[str(sessions)])}")
            if not arguments.together:
                await engine.close()
        if arguments.kill:
            report["kill"] = await killed_beside(engines[0], engines[1], arguments)


@contextmanager
def _engine(subject: Subject, home: Path, arguments: argparse.Namespace) -> Generator[EngineProcess]:
    folder = Path(subject.name)
    if not folder.is_dir():
        folder = write_folder(home / subject.name, subject.name, arguments.layers)
    with _pool(folder, subject, arguments) as address:
        chosen = spec(folder, subject, arguments, address)
        yield EngineProcess(subject.name, chosen, MonotonicClock(), command=CHILD)


@contextmanager
def _pool(folder: Path, subject: Subject, arguments: argparse.Namespace) -> Generator[str]:
    """The address of a pool for the subject's hidden rows, with a process that reads it; "" if it wants none."""
    if not subject.hidden:
        yield ""
        return
    size = row_bytes(subject.hidden, hidden_size(folder), VALUE_BYTES)
    pool = device_pool(Shape(POOL_SLOTS, POOL_ROWS, size))
    command = (sys.executable, "-m", "voice_agent.bench.thinker_reader", pool.address, arguments.reader)
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
    engine_args |= json.loads(arguments.engine_args)
    if arguments.quick:
        engine_args["compilation_config"] = QUICK
    options: dict[str, Any] = {
        "load_format": "dummy" if subject.name in SHAPES else "auto",
        "max_num_seqs": max(*arguments.sessions, KILL_SESSIONS if arguments.kill else 1),
        "ignore_eos": True,
        "enforce_eager": arguments.eager,
        "hidden": subject.hidden,
        "hidden_pool": pool,
        "hidden_via": "device" if arguments.reader == "device" else "host",
        "gpu_memory_utilization": arguments.memory,
        "engine_args": engine_args,
    }
    return EngineSpec(
        kind="thinker",
        thinker=ThinkerOptions("vllm", str(folder), context_tokens=arguments.context, extra=options),
        has_children=True,
        limits=EngineLimits(start_s=START_S, queued_results=arguments.answer_tokens + 100),
        env=with_plugin() | {"VLLM_LOGGING_LEVEL": "INFO" if arguments.verbose else "WARNING"},
    )


def compared(levels: dict[str, Any]) -> list[str]:
    """Rows for people: both kinds, and what is between them."""
    rows: list[str] = []
    for sessions, kinds in levels.items():
        bare = kinds["bare"]
        for kind, found in kinds.items():
            rows.append(
                f"{sessions:>8} {kind:7}{found['first_ms_p50']:10.2f}{found['first_ms_p95']:10.2f}"
                f"{found['tokens_per_s']:12.1f}{found['n']:7}"
                + (
                    f"{found['first_ms_p50'] - bare['first_ms_p50']:+10.2f}"
                    f"{found['first_ms_p95'] - bare['first_ms_p95']:+10.2f}"
                    f"{100 * (found['tokens_per_s'] / bare['tokens_per_s'] - 1):+9.1f} %"
                    if kind != "bare"
                    else ""
                )
            )
    return rows


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


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    head = (
        f"{'sessions':>8} {'':7}{'first p50':>10}{'p95 ms':>10}{'tokens/s':>12}{'n':>7}{'over bare: p50':>10}"
    )
    lines: list[str] = []
    for shape, found in report["models"].items():
        lines += [f"{shape} (start {found['start_s']} s)", head, *compared(found["levels"]), ""]
    if kill := report.get("kill"):
        lines += ["kill -9 of the first one's vLLM core, both under load", json.dumps(kill, indent=1), ""]
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
    parser = argparse.ArgumentParser(prog="voice-agent bench thinker", description=__doc__)
    add = parser.add_argument
    shapes = ", ".join(SHAPES)
    add(
        "--model",
        action="append",
        help=f"a folder, or a shape without weights ({shapes}); NAME:HIDDEN with rows",
    )
    add("--sessions", default="1,8,32,64", help="how many ask at once, level by level")
    add("--prompt-tokens", type=int, default=300)
    add("--answer-tokens", type=int, default=128)
    add("--waves", type=int, default=5, help="waves of each kind at a level, at least")
    add(
        "--least-answers",
        type=int,
        default=40,
        help="answers of each kind at a level, at least (40 waves at most)",
    )
    add(
        "--together",
        action="store_true",
        help="start all models at once; each is measured while the others idle",
    )
    add(
        "--kill", action="store_true", help="with two models together: kill one's core under load, watch both"
    )
    add("--context", type=int, default=1024, help="tokens of context")
    add("--reader", choices=("device", "host"), default="device", help="where hidden rows are handed over")
    add("--layers", type=int, default=0, help="cut the shape to so many layers")
    add("--eager", action="store_true", help="no compilation, no CUDA graphs: starts sooner, says less")
    add("--quick", action="store_true", help="graphs for decode steps only, no compilation: starts sooner")
    add("--verbose", action="store_true", help="what the engines print")
    add("--memory", type=float, default=0.0, help="part of the GPU's memory that vLLM may take")
    add("--engine-args", default="{}", help="more of vLLM's AsyncEngineArgs, as JSON")
    add("--json", default="", help="write the report there")
    arguments = parser.parse_args(argv)
    arguments.model = arguments.model or ["qwen3-1.7b"]
    arguments.sessions = [int(text) for text in arguments.sessions.split(",")]
    return arguments


def main(argv: Sequence[str]) -> int:
    """Measure, print; 1 if an engine could not do it."""
    arguments = parsed(argv)
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
        Path(arguments.json).write_text(json.dumps(report, indent=1))
    print(table(report))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
