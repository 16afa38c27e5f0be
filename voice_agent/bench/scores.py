"""What the labelled items add to the report: shares of right and wrong, by kind, and how long it took.

Void items are counted and left out of every share. Pure.
"""

from collections.abc import Sequence
from typing import Any

from voice_agent.bench.exactness import Exactness
from voice_agent.bench.labelled import KINDS
from voice_agent.bench.overlap import Outcome
from voice_agent.bench.statistics import summary

IGNORABLE = ("backchannel", "cough", "side", "echo")


def scores(outcomes: Sequence[Outcome], exact: Exactness | None) -> dict[str, Any]:
    """The keys of the report that come from the labelled set; None where nothing was measured."""
    pauses = [one for one in outcomes if one.kind == "pause"]
    return {
        "labelled": {
            kind: _of_kind([one for one in outcomes if one.kind == kind])
            for kind in KINDS
            if any(one.kind == kind for one in outcomes)
        },
        "barge_ins_obeyed": _share(outcomes, "barge", correct=True),
        "false_stops": {
            kind: _share(outcomes, kind, correct=False)
            for kind in IGNORABLE
            if any(one.kind == kind for one in outcomes)
        },
        "false_cut_offs": _cut_offs(pauses),
        "end_of_turn_delay_ms": summary(
            [ms for one in pauses if (ms := one.delay_ms) is not None and ms >= 0]
        ),
        "added_ms": summary([ms for one in outcomes if (ms := one.added_ms) is not None]),
        "heard_error_words": None if exact is None else summary(exact.stored_errors) | _worst(exact),
        "ignored_word_error_rate": None if exact is None else _whole(exact),
    }


def score_rows(report: dict[str, Any]) -> list[str]:
    """Lines of the table; none if no labelled item was put."""
    if "labelled" not in report:
        return []
    lines = [f"{name:21}{_row(report[name])}" for name in ("end_of_turn_delay_ms", "added_ms")]
    if report["heard_error_words"]:
        lines.append(f"{'heard_error_words':21}{_row(report['heard_error_words'])}")
    lines.append(f"false cut-offs    {_percent(report['false_cut_offs'])}")
    lines.append(f"words lost after an ignored sound {_percent(report['ignored_word_error_rate'])}")
    for kind, found in report["labelled"].items():
        lines.append(f"{kind:12}right {_percent(found['right'])}  of {found['n']}, void {found['void']}")
        lines += [f"    {name}: {did}" for name, did in found["wrong"].items()]
    return lines


def _of_kind(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    judged = [one for one in outcomes if one.correct is not None]
    return {
        "n": len(judged),
        "right": round(sum(bool(one.correct) for one in judged) / len(judged), 4) if judged else None,
        "void": len(outcomes) - len(judged),
        "wrong": {one.name: one.did for one in judged if not one.correct},
    }


def _share(outcomes: Sequence[Outcome], kind: str, *, correct: bool) -> float | None:
    judged = [one for one in outcomes if one.kind == kind and one.correct is not None]
    return round(sum(one.correct is correct for one in judged) / len(judged), 4) if judged else None


def _cut_offs(pauses: Sequence[Outcome]) -> float | None:
    timed = [one for one in pauses if one.delay_ms is not None]
    return round(sum((one.delay_ms or 0) < 0 for one in timed) / len(timed), 4) if timed else None


def _worst(exact: Exactness) -> dict[str, int | None]:
    return {"max": max(exact.stored_errors, default=None)}


def _whole(exact: Exactness) -> float | None:
    words = sum(count for _, count in exact.whole_errors)
    return round(sum(errors for errors, _ in exact.whole_errors) / words, 4) if words else None


def _row(ranks: dict[str, Any]) -> str:
    shown = (f"{'-':>9}" if ranks[p] is None else f"{ranks[p]:9.1f}" for p in ("p50", "p95", "p99"))
    return "".join(shown) + f"{ranks['n']:6}"


def _percent(share: float | None) -> str:
    return f"{'-':>7}" if share is None else f"{100 * share:5.1f} %"
