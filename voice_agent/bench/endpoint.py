"""`voice-agent bench endpoint`: how knobs of the end of turn trade false cut-offs against waiting, without a server.

The pause items of the labelled set are heard once by the real models (minutes the first time, then from the cache) and
the real endpointer is run over them under every setting of a grid. It prints the settings that none beats, the default
and the nearest setting within the goal, and draws the curve. Exit status: 0, 2 if weights are missing.
"""

import argparse
import itertools
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from voice_agent.audio import MODEL_RATE_HZ, OPUS_RATE_HZ
from voice_agent.bench import arguments, offline
from voice_agent.bench.curve import Goal, Point, best, picture
from voice_agent.bench.labelled import ItemSound, items, sound_of
from voice_agent.bench.machine import commit, machine
from voice_agent.bench.offline import Ending, Hearing, Latency, OfflineEars
from voice_agent.bench.spoken import Voice, cache_folder, to_rate
from voice_agent.bench.statistics import nearest_rank
from voice_agent.config import TurnConfig
from voice_agent.errors import WeightsError
from voice_agent.models.store import Store
from voice_agent.turn.endpoint import EndpointRules

GOAL = Goal(delay_ms=500, cut_offs=0.10)
GRID: dict[str, tuple[float, ...]] = {
    "sure_ms": (160, 240, 320, 400, 480, 560, 640, 720, 800, 960),
    "unsure_ms": (800, 1100, 1400, 1800),
    "end_probability": (0.5, 0.8, 0.95),
    "open_ms": (1200, 1600, 2200),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """Knobs, and what they came to: share of cut-offs and median delay of the items that were not."""

    knobs: dict[str, float]
    cut_offs: float
    delay_ms: float
    endings: tuple[Ending, ...]

    @property
    def point(self) -> Point:
        """For the picture."""
        name = ", ".join(f"{name} {value:g}" for name, value in self.knobs.items())
        return Point(self.delay_ms, self.cut_offs, name)


def main(argv: Sequence[str]) -> int:
    """Run with the command line behind `bench endpoint`; prints the table, returns the exit status."""
    options = _parser().parse_args(argv)
    rules = offline.default_rules()
    try:
        sounds, hearings = _heard(options, rules)
    except (WeightsError, ModuleNotFoundError) as error:
        print(f"bench endpoint: {error}", file=sys.stderr)
        return 2
    latency = Latency(options.judge_ms, options.words_ms)
    default = setting(hearings, rules, latency, {name: getattr(rules, name) for name in GRID})
    found = sweep(hearings, rules, latency)
    if options.svg:
        title = f"End of turn over {len(hearings)} questions with pauses"
        points = [one.point for one in found]
        options.svg.write_text(picture(points, replace(default.point, name=""), GOAL, title))
    if options.json:
        print(json.dumps(_report(found, default, sounds, argv), indent=1))
    else:
        print(table(found, default, sounds))
    return 0


def setting(
    hearings: Sequence[Hearing], rules: EndpointRules, latency: Latency, knobs: dict[str, float]
) -> Setting:
    """What one setting of the knobs comes to."""
    changed = replace(rules, **knobs)
    endings = tuple(offline.ending(hearing, changed, latency) for hearing in hearings)
    kept = [ending.delay_ms for ending in endings if not ending.cut_off]
    share = sum(ending.cut_off for ending in endings) / len(endings)
    return Setting(knobs, share, nearest_rank(kept, 50) if kept else 0.0, endings)


def sweep(hearings: Sequence[Hearing], rules: EndpointRules, latency: Latency) -> list[Setting]:
    """Every setting of the grid in which patience grows: sure, unsure, open."""
    rows = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    ordered = [row for row in rows if row["sure_ms"] <= row["unsure_ms"] <= row["open_ms"]]
    return [setting(hearings, rules, latency, row) for row in ordered]


def nearest_to_goal(found: Sequence[Setting], goal: Goal = GOAL) -> Setting:
    """Within the goal the quickest of those that cut off least; else the one that misses it by least."""

    def missed(one: Setting) -> tuple[float, float, float]:
        by = max(0.0, one.cut_offs / goal.cut_offs - 1) + max(0.0, one.delay_ms / goal.delay_ms - 1)
        return by, one.cut_offs, one.delay_ms

    return min(found, key=missed)


def table(found: Sequence[Setting], default: Setting, sounds: Sequence[ItemSound]) -> str:
    """The settings that none beats, the default, the one to take, and which items the default fails."""
    lines = ["".join(f"{name:>17}" for name in GRID) + f"{'cut off':>10}{'median ms':>11}"]
    unbeaten = {(point.delay_ms, point.cut_offs, point.name) for point in best([one.point for one in found])}
    for one in sorted(found, key=lambda one: one.delay_ms):
        if (one.delay_ms, one.cut_offs, one.point.name) in unbeaten:
            lines.append(_row(one))
    lines += ["default", _row(default), "nearest to the goal", _row(nearest_to_goal(found)), ""]
    for sound, ending in zip(sounds, default.endings, strict=True):
        if ending.cut_off or ending.delay_ms > 1000:
            lines.append(f"{sound.item.name} {ending.why:9}{ending.delay_ms:7.0f} ms  {sound.item.text}")
    return "\n".join(lines)


def _row(one: Setting) -> str:
    knobs = "".join(f"{value:17g}" for value in one.knobs.values())
    return f"{knobs}{100 * one.cut_offs:8.1f} %{one.delay_ms:11.0f}"


def _report(
    found: Sequence[Setting], default: Setting, sounds: Sequence[ItemSound], argv: Sequence[str]
) -> dict[str, Any]:
    def as_json(one: Setting) -> dict[str, Any]:
        return {**one.knobs, "false_cut_offs": round(one.cut_offs, 4), "delay_ms": round(one.delay_ms, 1)}

    return {
        "items": len(sounds),
        "default": as_json(default),
        "nearest_to_goal": as_json(nearest_to_goal(found)),
        "settings": [as_json(one) for one in found],
        "default_items": {
            sound.item.name: {"why": ending.why, "delay_ms": round(ending.delay_ms, 1)}
            for sound, ending in zip(sounds, default.endings, strict=True)
        },
        "machine": machine(),
        "commit": commit(),
        "command": shlex.join(["voice-agent", "bench", "endpoint", *argv]),
    }


def _heard(options: argparse.Namespace, rules: EndpointRules) -> tuple[list[ItemSound], list[Hearing]]:
    store = Store(cache_folder())
    voice = Voice(store)
    ears = OfflineEars(store, options.recognizer, rules, TurnConfig().prefix_ms)
    sounds = [sound_of(item, voice) for item in items(["pause"], options.items)]
    hearings: list[Hearing] = []
    for number, sound in enumerate(sounds):
        samples = to_rate(sound.samples, OPUS_RATE_HZ, MODEL_RATE_HZ)
        hearings.append(ears.hear(samples, sound.end_sample * MODEL_RATE_HZ // OPUS_RATE_HZ))
        print(f"heard {number + 1} of {len(sounds)}", file=sys.stderr, flush=True)
    return sounds, hearings


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser("voice-agent bench endpoint", "Sweep the end of turn's knobs.")
    ms = arguments.number(0)
    parser.add_argument("--svg", type=arguments.file_to_write, metavar="FILE", help="draw the curve")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--items", type=arguments.whole(1), metavar="N", help="at most N items")
    parser.add_argument(
        "--recognizer", default="whisper-base", help="the packaged recognizer that hears words"
    )
    parser.add_argument("--judge-ms", type=ms, default=130, help="a pause's judgement is there after this")
    parser.add_argument("--words-ms", type=ms, default=400, help="and its words after this")
    return parser
