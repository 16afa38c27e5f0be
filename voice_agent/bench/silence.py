"""`voice-agent bench silence`: what cutting the silence before a reply's first word gains, in ms for each voice.

Each voice says the same sentences with its silence left in; the rule of engine/leading_silence is applied to what it
said. Also told: how long after the cut the sound is audible by the listener's rule. Needs the weights of the voices
asked for, no server.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any

from voice_agent.audio import Samples
from voice_agent.bench import arguments
from voice_agent.bench.listener import onset_sample
from voice_agent.bench.machine import commit
from voice_agent.bench.sentences import texts
from voice_agent.bench.spoken import cache_folder
from voice_agent.engine.families import load_talker
from voice_agent.engine.leading_silence import LeadingSilence
from voice_agent.engine.messages import SpokenWord
from voice_agent.engine.runtime import TalkerModel, TalkerOptions
from voice_agent.errors import WeightsError
from voice_agent.models.catalog import MODELS
from voice_agent.models.store import Store

CLAUSE_WORDS = 6  # a first clause


@dataclass
class Gains:
    """One voice: ms cut before each sentence, and where the rest becomes audible."""

    cut_ms: list[float] = field(default_factory=list[float])
    audible_ms: list[float] = field(default_factory=list[float])

    def hear(self, sound: Samples, rate_hz: int) -> None:
        """One sentence with its silence."""
        silence = LeadingSilence(rate_hz)
        heard = silence.push(sound)
        self.cut_ms.append(1000 * silence.cut_samples / rate_hz)
        self.audible_ms.append(1000 * (onset_sample(heard, rate_hz) or 0) / rate_hz)

    def report(self) -> dict[str, float]:
        """Mean, median and range of the gain; median of the audible instant."""
        return {
            "mean_ms": round(mean(self.cut_ms), 1),
            "median_ms": round(median(self.cut_ms), 1),
            "least_ms": round(min(self.cut_ms), 1),
            "most_ms": round(max(self.cut_ms), 1),
            "audible_after_ms": round(median(self.audible_ms), 1),
        }


def main(argv: Sequence[str]) -> int:
    """Run; prints a line a voice. Exit status 0, 2 where weights are missing."""
    options = _parser().parse_args(argv)
    store, found = Store(cache_folder(), offline=True), dict[str, dict[str, float]]()
    try:
        for name in options.model or _there(store):
            found |= _voices(name, load(store, name), options.sentences)
    except (WeightsError, KeyError) as error:
        print(f"bench silence: {error}", file=sys.stderr)
        return 2
    print(f"{'voice':28}{'gain, mean':>12}{'median':>9}{'least':>8}{'most':>8}{'audible after':>15}   (ms)")
    for voice, told in found.items():
        print(
            f"{voice:28}{told['mean_ms']:12.1f}{told['median_ms']:9.1f}{told['least_ms']:8.1f}{told['most_ms']:8.1f}"
            f"{told['audible_after_ms']:15.1f}"
        )
    print(f"{options.sentences} sentences each, commit {commit() or 'unknown'}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


def load(store: Store, name: str) -> TalkerModel:
    """A packaged voice model that keeps its silence; raises WeightsError, KeyError for a name that is none."""
    extra: dict[str, Any] = {"keep_silence": True}
    return load_talker(TalkerOptions(name.partition("-")[0], str(store.folder_of(name)), extra=extra))


def _there(store: Store) -> list[str]:
    """The packaged voice models whose weights lie here."""
    return [
        model.name
        for model in MODELS.values()
        if model.role == "talker" and (store.folder / model.name).is_dir()
    ]


def _voices(name: str, model: TalkerModel, sentences: int) -> dict[str, dict[str, float]]:
    told: dict[str, dict[str, float]] = {}
    for voice in model.voices:
        gains = Gains()
        for seed, clause in enumerate(_clauses(sentences)):
            latents = model.encode(clause, voice, 1.0, seed)
            gains.hear(model.decode(latents, 0, latents.frames), model.rate_hz)
        told[f"{name} {voice}"] = gains.report()
    return told


def _clauses(count: int) -> Iterator[list[SpokenWord]]:
    for text, _ in zip(texts(0), range(count), strict=False):
        words, at = list[SpokenWord](), 0
        for word in text.split()[:CLAUSE_WORDS]:
            words.append(SpokenWord(word, at, at + len(word)))
            at += len(word) + 1
        yield words


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser("voice-agent bench silence", "what cutting leading silence gains, by voice")
    voices = [model.name for model in MODELS.values() if model.role == "talker"]
    parser.add_argument(
        "--model", nargs="+", choices=voices, help="voice models (default: all whose weights are there)"
    )
    parser.add_argument("--sentences", type=arguments.whole(1), default=10, help="said by each voice")
    parser.add_argument("--json", type=arguments.file_to_write, help="write the figures to this file")
    return parser
