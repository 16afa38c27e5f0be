"""What a run of `bench turn` found, as one JSON object or as a table, with the machine, the commit and the command.

Every turn that was asked for is in it: as a number, or as a failure with its reason. Parts are means, since only means
of parts and of the total add up; `network` is what the client saw beyond the server's own total.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from voice_agent.bench.exactness import Exactness
from voice_agent.bench.machine import commit, machine
from voice_agent.bench.measure import Barge, Turn
from voice_agent.bench.overlap import Outcome
from voice_agent.bench.scores import score_rows, scores
from voice_agent.bench.statistics import summary

Report = dict[str, Any]
MOST_SUM_ERROR_MS = 5.0


@dataclass(frozen=True)
class LoadShape:
    """How many callers there were at once, over what, and what each engine held after the last had hung up.

    `late_ms`: how late (p99) the loop of the worst process of callers was; a caller that starves measures itself.
    """

    sessions: int
    transport: str
    left: dict[str, int] | None
    late_ms: float | None = None


@dataclass
class Run:
    """Everything that was measured, before it is summed up."""

    turns: list[Turn] = field(default_factory=list[Turn])
    barges: list[Barge] = field(default_factory=list[Barge])
    heard: list[tuple[str, str]] = field(
        default_factory=list[tuple[str, str]]
    )  # (Thinker's text, recognized)
    word_error_rate: float | None = None
    sequential: dict[str, dict[str, list[float]]] = field(default_factory=dict[str, dict[str, list[float]]])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    exactness: Exactness | None = None
    models: list[str] = field(default_factory=list[str])
    load: LoadShape | None = None


def summed_up(run: Run, argv: Sequence[str]) -> Report:
    """The report; its keys are what `--json` prints."""
    answered = [turn for turn in run.turns if turn.voice_to_voice_ms is not None]
    all_holes = [hole.duration_ms for turn in answered for hole in turn.holes]
    report: Report = {
        "voice_to_voice_ms": summary(
            [ms for turn in run.turns if (ms := turn.voice_to_voice_ms) is not None]
        ),
        "stop_ms": summary(
            [ms for stopped in (*run.barges, *run.outcomes) if (ms := stopped.stop_ms) is not None]
        ),
        "cancel_ms": summary([ms for barge in run.barges if (ms := barge.cancel_ms) is not None]),
        "let_go_ms": summary([ms for barge in run.barges if (ms := barge.let_go_ms) is not None]),
        "parts_ms": _parts(answered),
        "parts_p95_ms": _parts_p95(answered),
        "parts_sum_error_ms": max(
            (abs(e) for t in answered if (e := t.sum_error_ms) is not None), default=None
        ),
        "underruns": len(all_holes),
        "underrun_ms": round(sum(all_holes), 1),
        "server_underruns": sum(turn.server_underruns for turn in answered),
        "word_error_rate": None if run.word_error_rate is None else round(run.word_error_rate, 4),
        "replies_recognized": len(run.heard),
        "failures": [{"question": turn.question, "why": turn.failure} for turn in run.turns if turn.failure]
        + [{"question": "barge-in", "why": barge.failure} for barge in run.barges if barge.failure],
        "void_barges": sum(barge.void is not None for barge in run.barges),
    }
    if run.outcomes:
        report |= scores(run.outcomes, run.exactness)
    if run.sequential:
        report["sequential"] = {length: _gain(modes) for length, modes in run.sequential.items()}
    if run.load:
        load = run.load
        report |= {"sessions": load.sessions, "transport": load.transport, "left": load.left}
        report["callers_late_ms"] = load.late_ms
    return report | {
        "models": run.models,
        "machine": machine(),
        "commit": commit(),
        "command": shlex.join(["voice-agent", "bench", "turn", *argv]),
    }


def problems(report: Report) -> list[str]:
    """What makes the run a failure, in words."""
    found = [f"{failure['question']}: {failure['why']}" for failure in report["failures"]]
    error_ms = report["parts_sum_error_ms"]
    if error_ms is not None and error_ms > MOST_SUM_ERROR_MS:
        found.append(f"the server's parts miss its own total by up to {error_ms:.1f} ms")
    left = {name: held for name, held in (report.get("left") or {}).items() if held}
    found += [f"the {name} engine still held {held} requests at the end" for name, held in left.items()]
    if not report["voice_to_voice_ms"]["n"] and "labelled" not in report:
        found.append("no turn was answered")
    return found


def table(report: Report) -> str:
    """The report for people."""
    lines = [f"{'':18}{'p50':>9}{'p95':>9}{'p99':>9}{'n':>6}"]
    for name in ("voice_to_voice_ms", "stop_ms", "cancel_ms", "let_go_ms"):
        lines.append(f"{name:18}" + _row(report[name]))
    for length, modes in report.get("sequential", {}).items():
        for mode in ("overlapped", "sequential"):
            lines.append(f"{f'{length} {mode}':18}" + _row(modes[mode]))
        lines.append(f"{f'{length} gain at p50':18}{_number(modes['gain_ms'])}")
    lines += score_rows(report)
    lines.append("")
    lines += [f"part {name:13}{ms:9.1f} mean ms" for name, ms in report["parts_ms"].items()]
    rate = report["word_error_rate"]
    lines += [
        f"underruns         {report['underruns']:9} ({report['underrun_ms']} ms; "
        f"the server counted {report['server_underruns']})",
        f"word error rate   {'not measured' if rate is None else f'{rate:9.3f}'} "
        f"({report['replies_recognized']} replies)",
        f"void barge-ins    {report['void_barges']:9}",
        *_load_rows(report),
        f"models            {', '.join(report['models']) or 'unknown'}",
        f"machine           {report['machine']['cpu']}, {report['machine']['cores']} cores",
        f"commit            {report['commit'] or 'unknown'}",
        f"command           {report['command']}",
    ]
    return "\n".join(lines)


def _load_rows(report: Report) -> list[str]:
    if "sessions" not in report:
        return []
    left = report["left"]
    told = "not told" if left is None else ", ".join(f"{name} {held}" for name, held in left.items())
    return [
        f"callers at once   {report['sessions']:9} over {report['transport']}",
        f"left in engines   {told}",
        f"callers' own lag  {_number(report['callers_late_ms'])} ms (p99 of the worst process)",
    ]


def _parts(turns: Sequence[Turn]) -> dict[str, float]:
    """Mean of each part over the turns that the server told about; they sum to `total`."""
    told = [turn for turn in turns if turn.parts_ms and turn.network_ms is not None]
    if not told:
        return {}
    sums: dict[str, float] = {}
    for turn in told:
        for name, ms in {
            **turn.parts_ms,
            "network": turn.network_ms or 0,
            "total": turn.voice_to_voice_ms,
        }.items():
            sums[name] = sums.get(name, 0) + (ms or 0)
    return {name: round(total / len(told), 1) for name, total in sums.items()}


def _parts_p95(turns: Sequence[Turn]) -> dict[str, float | int | None]:
    """Of each part by itself: where the slow turns lose their time. These do not sum to anything."""
    names = dict.fromkeys(name for turn in turns for name in turn.parts_ms)
    found = {name: [ms for turn in turns if (ms := turn.parts_ms.get(name)) is not None] for name in names}
    found["network"] = [ms for turn in turns if (ms := turn.network_ms) is not None]
    return {name: summary(values)["p95"] for name, values in found.items() if values}


def _gain(modes: dict[str, list[float]]) -> dict[str, Any]:
    overlapped, sequential = summary(modes["overlapped"]), summary(modes["sequential"])
    fast, slow = overlapped["p50"], sequential["p50"]
    gain = None if fast is None or slow is None else round(slow - fast, 1)
    return {"overlapped": overlapped, "sequential": sequential, "gain_ms": gain}


def _row(ranks: dict[str, Any]) -> str:
    return "".join(_number(ranks[p]) for p in ("p50", "p95", "p99")) + f"{ranks['n']:6}"


def _number(value: float | None) -> str:
    return f"{'-':>9}" if value is None else f"{value:9.1f}"
