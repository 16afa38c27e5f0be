"""Where the tests find real weights, and ways to speak and compare words."""

import os
import re
from pathlib import Path

import pytest

from voice_agent.audio import MODEL_RATE_HZ, Samples
from voice_agent.bench.spoken import to_rate
from voice_agent.engine.messages import SpokenWord


def weights(name: str) -> Path:
    """The folder of a model; the test fails, not skips, where it is missing."""
    cache = Path(os.environ.get("VOICE_AGENT_CACHE") or Path.home() / ".cache" / "voice-agent")
    if not (cache / name).is_dir():
        pytest.fail(f"no weights in {cache / name}: run `voice-agent models pull --profile cpu-small`")
    return cache / name


def words_of(text: str) -> list[SpokenWord]:
    """The words of a text with their ranges in it."""
    return [SpokenWord(match.group(), *match.span()) for match in re.finditer(r"\S+", text)]


def to_model_rate(sound: Samples, rate_hz: int) -> Samples:
    """Resample to what recognizers hear."""
    return to_rate(sound, rate_hz, MODEL_RATE_HZ)


def words_wrong(wanted: str, heard: str) -> tuple[int, int]:
    """Edit distance in words, and how many were wanted; case and punctuation do not count."""
    left, right = (re.findall(r"[\w']+", text.lower()) for text in (wanted, heard))
    row = list(range(len(right) + 1))
    for i, word in enumerate(left):
        above, row = row, [i + 1]
        for j, other in enumerate(right):
            row.append(min(above[j] + (word != other), above[j + 1] + 1, row[j] + 1))
    return row[-1], len(left)
