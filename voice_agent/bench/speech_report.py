"""What a run of `bench speech` found: one load point summed up, its verdict, the cost, and the table. Pure.

Percentiles are over every request that was due: one that was lost counts as later than any other. A point passes only
with all four: audible first sound in time, no underrun, capacity, intelligible; what cannot be measured is said.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from voice_agent.bench.speech_load import Reply, in_flight
from voice_agent.bench.statistics import PERCENTS, nearest_rank
from voice_agent.clock import NS_PER_S
from voice_agent.errors import ConfigError

Report = dict[str, Any]
MOST_LATE_MS = 5.0  # of the client itself, p99: beyond, it measured itself
MOST_DOLLARS = 2.0  # for a million characters
BACKLOG_GROWTH, BACKLOG_SLACK = 1.3, 3.0  # in flight, last third against the middle one
NOT_MEASURABLE = "not measurable: random weights; what stands for it is tests/test_models_qwen3_tts_parity.py"
NOT_MEASURED = "not measured: no reply was recognized (--transcribe N)"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a point must keep: p95 of audible first sound, share of replies with any underrun, word error rate."""

    audible_ms: float = 50.0
    underruns: float = 0.0
    word_errors: float = 0.05


@dataclass
class PointRun:
    """One load point as it was measured, all seeds: replies per seed, and what was seen beside."""

    load: float  # requests a second, or streams of a closed loop
    closed: bool
    seconds: float
    warm_up_s: float
    replies: list[list[Reply]] = field(default_factory=list[list[Reply]])
    gpu_busy: list[float] = field(default_factory=list[float])
    gpu_memory_mib: list[float] = field(default_factory=list[float])
    client_cpu: list[float] = field(default_factory=list[float])
    heard: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    word_error_rate: float | None = None
    random_weights: bool = False  # nothing to understand
    quality: list[Reply] = field(default_factory=list[Reply])
    work: list[dict[str, float]] = field(default_factory=list[dict[str, float]])  # of the engine, each seed

    @property
    def counted(self) -> list[Reply]:
        """The replies that count: those after the warm-up."""
        return [reply for seed in self.replies for reply in seed if reply.job.counts]


def point(run: PointRun, limits: Limits) -> Report:
    """Everything about one point. A run without any reply that counts raises ConfigError."""
    counted = run.counted
    if not counted:
        raise ConfigError("no request was due after the warm-up")
    good = [reply for reply in counted if reply.failure is None]
    dry = [reply for reply in counted if reply.heard.stalls_ms]
    total_s = run.seconds * len(run.replies)
    report: Report = {
        "load": run.load,
        "loop": "closed" if run.closed else "open",
        "seeds": len(run.replies),
        "seconds": run.seconds,
        "due": len(counted),
        "answered": len(good),
        "failures": dict(Counter(reply.failure for reply in counted if reply.failure)),
        "offered_rps": round(len(counted) / total_s, 2),
        "playable_ms": ranks([_time(r, r.heard.first_ms) for r in counted]),
        "audible_ms": ranks([_time(r, r.heard.audible_ms) for r in counted]),
        "quiet_ms": ranks([r.heard.quiet_ms for r in good if r.heard.quiet_ms is not None]),
        "end_to_end_ms": ranks([_time(r, r.heard.last_ms) for r in counted]),
        "underrun_share": len(dry) / len(counted),
        "underrun_share_over_20_ms": sum(max(r.heard.stalls_ms) > 20 for r in dry) / len(counted),
        "longest_stall_ms": round(max((max(r.heard.stalls_ms) for r in dry), default=0.0), 1),
        "audio_s_per_s": round(sum(r.heard.sound_ms for r in good) / 1000 / total_s, 1),
        "mean_characters": round(sum(len(r.job.text) for r in counted) / len(counted), 1),
        "in_flight": _in_flight(run),
        "gpu_busy_percent": _mean(run.gpu_busy),
        "gpu_memory_mib": max(run.gpu_memory_mib, default=None),
        "client": {"late_ms": ranks([r.late_ms for r in counted]), "cpu_share": _mean(run.client_cpu)},
        "word_error_rate": None if run.word_error_rate is None else round(run.word_error_rate, 4),
        "replies_recognized": len(run.heard),
        "random_weights": run.random_weights,
        "stages": stages(run.work),
    }
    if run.quality:
        report["quality_first"] = {
            "answered": sum(r.failure is None for r in run.quality),
            "failed": sum(r.failure is not None for r in run.quality),
            "underrun_share": sum(bool(r.heard.stalls_ms) for r in run.quality) / len(run.quality),
        }
    return report | {"verdict": verdict(report, limits)}


def stages(work: Sequence[dict[str, float]]) -> Report | None:
    """Mean times of the engine's stages, of what it did during each seed; None where it told nothing."""
    total: Counter[str] = Counter()
    for part in work:
        total.update(part)
    if not total["frames"]:
        return None
    found = {
        "frame_ms": total["frame_ms"] / total["frames"],
        "frame_rows": total["frame_rows"] / total["frames"],
    }
    if total["renders"]:
        found["render_ms"] = total["render_ms"] / total["renders"]
        found["render_frames"] = total["render_frames"] / total["renders"]
    if total["prefills"]:
        found["prefill_ms"] = total["prefill_ms"] / total["prefills"]
    return {name: round(value, 2) for name, value in found.items()}


def verdict(report: Report, limits: Limits) -> Report:
    """The four, each true, false or None (with a note why), and whether the point passes.

    Only one of the four may be open, and only for one reason: random weights say nothing that could be understood.
    """
    audible_ms = report["audible_ms"]["p95"]
    whole = report["answered"] == report["due"]
    kept_up = (report["client"]["late_ms"]["p99"] or 0) <= MOST_LATE_MS
    rate = report["word_error_rate"]
    four = {
        "audible": audible_ms is not None and audible_ms <= limits.audible_ms,
        "no_underrun": report["underrun_share"] <= limits.underruns,
        "capacity": whole and not report["in_flight"]["grows"] and kept_up,
        "intelligible": None if rate is None else rate <= limits.word_errors,
    }
    open_ = rate is None and not report["random_weights"]
    note = {"intelligible_note": NOT_MEASURED if open_ else NOT_MEASURABLE} if rate is None else {}
    passes = not open_ and all(value is not False for value in four.values())
    return {**four, **note, "client_kept_up": kept_up, "passes": passes}


def cost(points: Sequence[Report], dollars_per_hour: float) -> Report | None:
    """Dollars per million characters at the highest open-loop load that passes; None if none does."""
    passing = [p for p in points if p["loop"] == "open" and p["verdict"]["passes"]]
    if not passing:
        return None
    best = max(passing, key=lambda p: p["load"])
    per_hour = best["load"] * 3600 * best["mean_characters"]
    return {
        "load": best["load"],
        "dollars_per_hour": dollars_per_hour,
        "dollars_per_million_characters": round(dollars_per_hour * 1e6 / per_hour, 4),
    }


def price_told(found: Report | None) -> str:
    """A cost in words, against what it should stay below."""
    if found is None:
        return "no point passes"
    dollars = found["dollars_per_million_characters"]
    share = MOST_DOLLARS / dollars
    against = f"{share:.1f} times below" if share >= 1 else f"{1 / share:.1f} times above"
    return f"${dollars} at {found['load']:g}/s, {against} ${MOST_DOLLARS:g}"


def table(points: Sequence[Report]) -> str:
    """The points for people."""
    lines = [
        f"{'load':>9}{'n':>7}{'lost':>6}{'audible p50':>13}{'p95':>8}{'p99':>8}{'playable p95':>14}"
        f"{'dry %':>8}{'stall':>8}{'e2e p95':>9}{'flight':>8}{'peak':>6}{'x real':>8}{'GPU %':>7}  verdict"
    ]
    for p in points:
        load = f"{p['load']:g}{' str' if p['loop'] == 'closed' else ' rps'}"
        audible, flight = p["audible_ms"], p["in_flight"]
        lines.append(
            f"{load:>9}{p['due']:7}{p['due'] - p['answered']:6}{_cell(audible['p50'], 13)}{_cell(audible['p95'], 8)}"
            f"{_cell(audible['p99'], 8)}{_cell(p['playable_ms']['p95'], 14)}{100 * p['underrun_share']:8.2f}"
            f"{p['longest_stall_ms']:8.1f}{_cell(p['end_to_end_ms']['p95'], 9)}{flight['mean']:8.1f}{flight['peak']:6}"
            f"{p['audio_s_per_s']:8.1f}{_cell(p['gpu_busy_percent'], 7)}  {told(p['verdict'])}"
        )
    return "\n".join(lines)


def told(found: Report) -> str:
    """A verdict in words."""
    names = ("audible", "no_underrun", "capacity", "intelligible")
    missed = [name.replace("_", " ") for name in names if found[name] is False]
    if missed:
        return f"fails: {', '.join(missed)}"
    if found["intelligible"] is not None:
        return "passes"
    return "passes (intelligible: not measurable)" if found["passes"] else "open (intelligible: not measured)"


def ranks(values: Sequence[float]) -> dict[str, float | int | None]:
    """Percentiles by nearest rank; None where the rank fell on a lost request, or without values."""
    found = {f"p{p}": nearest_rank(values, p) if values else math.inf for p in PERCENTS}
    return {
        **{name: None if math.isinf(ms) else round(ms, 2) for name, ms in found.items()},
        "n": len(values),
    }


def _time(reply: Reply, ms: float | None) -> float:
    return math.inf if reply.failure is not None or ms is None else ms


def _in_flight(run: PointRun) -> Report:
    means: list[float] = []
    peaks: list[int] = []
    grows = False
    for replies in run.replies:
        counted = [reply for reply in replies if reply.job.counts]
        if not counted:
            continue
        begin_ns = min(reply.sent_ns for reply in counted)
        third_ns = int(run.seconds * NS_PER_S / 3)
        mean, peak = in_flight(replies, begin_ns, begin_ns + 3 * third_ns)
        middle, _ = in_flight(replies, begin_ns + third_ns, begin_ns + 2 * third_ns)
        last, _ = in_flight(replies, begin_ns + 2 * third_ns, begin_ns + 3 * third_ns)
        grows = grows or (not run.closed and last > BACKLOG_GROWTH * middle + BACKLOG_SLACK)
        means.append(mean)
        peaks.append(peak)
    return {"mean": round(sum(means) / len(means), 1), "peak": max(peaks), "grows": grows}


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 3) if values else None


def _cell(value: float | None, width: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:{width}.1f}"
