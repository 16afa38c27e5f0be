"""`voice-agent bench thinker`: what our engine path adds to vLLM, on a model's exact shape without its weights.

A wave is N sessions that ask at the same moment. Each wave is run twice, back to back on the same engine process: bare
(prompts that are tokens already go straight into vLLM, inside the child) and ours (conversations through the client,
the socket, the child, the template, the tokenizer and back). The order changes from wave to wave. Needs numpy and vLLM
with what it brings, nothing else: `python -m voice_agent.bench.thinker`.
"""

import argparse
import asyncio
import json
import logging
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voice_agent.bench.machine import commit, machine
from voice_agent.bench.plugin_metadata import with_plugin
from voice_agent.bench.statistics import nearest_rank
from voice_agent.bench.thinker_models import SHAPES, prompt, write_folder
from voice_agent.clock import NS_PER_S, MonotonicClock, ms_between
from voice_agent.engine.messages import Failed, Finished, TextDelta, Think
from voice_agent.engine.runtime import EngineLimits, EngineSpec, ThinkerOptions
from voice_agent.engine.supervisor import EngineProcess
from voice_agent.errors import EngineError, VoiceAgentError

CHILD = (sys.executable, "-m", "voice_agent.bench.thinker_child")
CONTEXT_TOKENS = 4096
TEMPLATE_TOKENS = 9
START_S = 590.0
COLUMNS = ("bare", "ours")


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

    def __init__(self, engine: EngineProcess, arguments: argparse.Namespace) -> None:
        self._engine = engine
        self._arguments = arguments
        self._clock = MonotonicClock()
        self._seed = 0  # a prompt is never asked twice: the prefix cache must not help one side

    async def level(self, sessions: int) -> dict[str, Any]:
        """Both kinds of waves at one number of sessions; the first of each is not counted."""
        kinds = {"bare": Waves(), "ours": Waves()}
        if self._arguments.hidden:
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
        return first_ms, tokens


async def measured_model(shape: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Start the engine on a shape (or folder), run every level, end it."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = Path(shape) if Path(shape).is_dir() else write_folder(Path(folder), shape, arguments.layers)
        engine = EngineProcess(shape, spec(chosen, arguments), MonotonicClock(), command=CHILD)
        begin = time.monotonic()
        await engine.start()
        try:
            start_s = round(time.monotonic() - begin, 1)
            tell(f"{shape}: up after {start_s} s")
            bench = Bench(engine, arguments)
            levels: dict[str, Any] = {}
            for sessions in arguments.sessions:
                levels[str(sessions)] = await bench.level(sessions)
                tell(f"{shape}: {sessions} sessions: {json.dumps(levels[str(sessions)])}")
        finally:
            await engine.close()
    return {"start_s": start_s, "levels": levels}


def spec(folder: Path, arguments: argparse.Namespace) -> EngineSpec:
    """The Thinker engine on vLLM, as a configuration would ask for it."""
    options: dict[str, Any] = {
        "load_format": "dummy" if arguments.dummy else "auto",
        "max_num_seqs": max(arguments.sessions),
        "ignore_eos": True,
        "enforce_eager": arguments.eager,
        "hidden": arguments.hidden,
        "gpu_memory_utilization": arguments.memory,
        "engine_args": json.loads(arguments.engine_args),
    }
    return EngineSpec(
        kind="thinker",
        thinker=ThinkerOptions("vllm", str(folder), context_tokens=CONTEXT_TOKENS, extra=options),
        limits=EngineLimits(start_s=START_S, queued_results=arguments.answer_tokens + 100),
        env=with_plugin() if arguments.hidden else {},
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


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    head = (
        f"{'sessions':>8} {'':7}{'first p50':>10}{'p95 ms':>10}{'tokens/s':>12}{'n':>7}{'over bare: p50':>10}"
    )
    lines: list[str] = []
    for shape, found in report["models"].items():
        lines += [f"{shape} (start {found['start_s']} s)", head, *compared(found["levels"]), ""]
    return "\n".join([*lines, f"command  {report['command']}", f"commit   {report['commit']}"])


def tell(text: str) -> None:
    """Progress, beside the report."""
    print(text, file=sys.stderr, flush=True)


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The command line; raises SystemExit."""
    parser = argparse.ArgumentParser(prog="voice-agent bench thinker", description=__doc__)
    add = parser.add_argument
    add("--model", action="append", help=f"a folder, or a shape without weights: {', '.join(SHAPES)}")
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
    add("--hidden", default="", help="also with hidden rows: last, last+embedding or layer:K")
    add("--layers", type=int, default=0, help="cut the shape to so many layers")
    add("--eager", action="store_true", help="no compilation, no CUDA graphs: starts sooner, says less")
    add("--memory", type=float, default=0.0, help="part of the GPU's memory that vLLM may take")
    add("--engine-args", default="{}", help="more of vLLM's AsyncEngineArgs, as JSON")
    add("--json", default="", help="write the report there")
    arguments = parser.parse_args(argv)
    arguments.model = arguments.model or ["qwen3-1.7b"]
    arguments.sessions = [int(text) for text in arguments.sessions.split(",")]
    arguments.dummy = all(shape in SHAPES for shape in arguments.model)
    return arguments


def main(argv: Sequence[str]) -> int:
    """Measure, print; 1 if an engine could not do it."""
    arguments = parsed(argv)
    logging.basicConfig(level=logging.INFO if os.environ.get("BENCH_LOG") else logging.WARNING)
    report: dict[str, Any] = {"models": {}}
    try:
        for shape in arguments.model:
            report["models"][shape] = asyncio.run(measured_model(shape, arguments))
    except VoiceAgentError as error:
        tell(f"{type(error).__name__}: {error}")
    report |= {
        "machine": machine(),
        "commit": commit(),
        "command": shlex.join(["voice-agent", "bench", "thinker", *argv]),
    }
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(report, indent=1))
    print(table(report))
    return 0 if len(report["models"]) == len(arguments.model) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
