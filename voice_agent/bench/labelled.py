"""The labelled set as sound: every item with what a good listener does about it, and where its turn truly ends.

Words are said by one packaged voice in several shapes, everything else is synthesised; sound is made when it is first
needed and words are kept in the cache. Knows nothing of servers: `overlap` and `patience` put items to one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from voice_agent.audio import OPUS_RATE_HZ, Samples, dbfs, ms_to_samples, samples_to_ms, silence
from voice_agent.bench import turn_set
from voice_agent.bench.sound import WINDOW_SAMPLES, first_voiced, last_voiced, levels
from voice_agent.bench.spoken import PLAIN, Shape
from voice_agent.bench.synthesis import across_the_room, burst, gained, mixed, steady

SHAPES = (
    PLAIN,
    Shape(0.9, 0.86),
    Shape(1.0, 1.25),
    Shape(1.15, 1.1),
    Shape(0.85, 1.0),
    Shape(1.05, 1.42),
    Shape(1.2, 0.93),
)
OTHER_VOICES = (Shape(1.05, 1.4), Shape(0.95, 0.8))  # of those who are not the user
ROOM_DBFS = -62.0  # a quiet room's noise, everywhere: no microphone gives digital silence
SNR_DB = 10.0
NOISE_BEFORE_MS, NOISE_BEHIND_MS = 1000, 7000


class Right(Enum):
    """What the session should do about an item."""

    INTERRUPT = "interrupt"
    IGNORE = "ignore"
    WAIT = "wait until it ends"


@dataclass(frozen=True, slots=True)
class Item:
    """One line of the set. `level_db` against the user's voice, or dBFS for a burst; `length_ms` a burst's own.

    An echo has `level_db` as the gain and `delay_ms` as the way of the reply back into the microphone.
    """

    name: str
    kind: str
    right: Right
    text: str = ""
    shape: Shape = PLAIN
    recipe: str = ""
    level_db: float = 0.0
    length_ms: float = 0.0
    delay_ms: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ItemSound:
    """48 kHz mono, and where in it the user begins and truly ends."""

    item: Item
    samples: Samples
    first_sample: int
    end_sample: int

    @property
    def end_ms(self) -> float:
        """The true end of what is said."""
        return samples_to_ms(self.end_sample, OPUS_RATE_HZ)


class Speaker(Protocol):
    """Says words in a shape (spoken.Voice)."""

    def sound(self, text: str, shape: Shape = PLAIN) -> Samples:
        """48 kHz mono; "[700]" in the text is a pause of 700 ms."""
        ...


KINDS = ("barge", "backchannel", "cough", "side", "pause", "noise", "echo")
OVER_A_REPLY = ("barge", "backchannel", "cough", "side", "echo")


def items(kinds: Iterable[str] = KINDS, most: int | None = None) -> list[Item]:
    """The set, or at most `most` of each of some kinds, spread over the whole. Raises KeyError for no kind."""
    chosen = [kind for kind in KINDS if kind in set(kinds)]
    return [item for kind in chosen for item in spread(_MAKERS[kind](), most)]


def spread(row: Sequence[Item], most: int | None) -> list[Item]:
    """At most `most`, evenly from first to last."""
    if most is None or len(row) <= most:
        return list(row)
    return [row[number * len(row) // most] for number in range(most)]


def sound_of(item: Item, voice: Speaker) -> ItemSound:
    """Make an item's sound; an echo without words is silence to be said."""
    if item.kind == "cough":
        sound = burst(item.recipe, item.length_ms, item.level_db, item.seed)
        return _placed(item, sound)
    if not item.text:
        return ItemSound(item, silence(WINDOW_SAMPLES), 0, WINDOW_SAMPLES)
    said = voice.sound(item.text, item.shape)
    if item.kind == "side":
        return _placed(item, across_the_room(said, item.level_db, item.seed))
    if item.kind == "noise":
        return _in_noise(item, said)
    return _placed(item, said)


def _placed(item: Item, sound: Samples) -> ItemSound:
    """In a quiet room, with the place of its voice."""
    peak = max(levels(sound))
    row = levels(sound if peak > -40 else gained(sound, -20 - peak))  # soft sounds have an end as well
    first, last = first_voiced(row), last_voiced(row)
    span = (0, len(sound)) if first is None or last is None else _samples(first, last)
    room = steady("pink", len(sound), ROOM_DBFS, item.seed)
    return ItemSound(item, mixed(sound, room), span[0], min(len(sound), span[1]))


def _in_noise(item: Item, said: Samples) -> ItemSound:
    row = levels(said)
    first, last = first_voiced(row), last_voiced(row)
    assert first is not None
    assert last is not None
    begin, end = _samples(first, last)
    before = ms_to_samples(NOISE_BEFORE_MS, OPUS_RATE_HZ)
    whole = np.concatenate([silence(before), said, silence(ms_to_samples(NOISE_BEHIND_MS, OPUS_RATE_HZ))])
    noise = steady(item.recipe, len(whole), dbfs(said[begin:end]) - SNR_DB, item.seed)
    return ItemSound(item, mixed(whole, noise), before + begin, before + end)


def _samples(first: int, last: int) -> tuple[int, int]:
    return first * WINDOW_SAMPLES, (last + 1) * WINDOW_SAMPLES


def _said(kind: str, right: Right, texts: Sequence[str], shapes: Sequence[Shape] = SHAPES) -> list[Item]:
    return [
        Item(f"{kind}-{n:02}", kind, right, text, shapes[n % len(shapes)], seed=n)
        for n, text in enumerate(texts)
    ]


def _side() -> list[Item]:
    return [
        Item(f"side-{n:02}", "side", Right.IGNORE, text, OTHER_VOICES[n % 2], level_db=level_db, seed=n)
        for n, (level_db, text) in enumerate(turn_set.SIDE_TALK)
    ]


def _coughs() -> list[Item]:
    return [
        Item(f"cough-{n:02}", "cough", Right.IGNORE, recipe=recipe, length_ms=ms, level_db=dbfs_, seed=n)
        for n, (recipe, ms, dbfs_) in enumerate(turn_set.COUGHS)
    ]


def _noises() -> list[Item]:
    return [
        Item(f"noise-{n:02}", "noise", Right.WAIT, text, SHAPES[n % len(SHAPES)], recipe=recipe, seed=n)
        for n, (recipe, text) in enumerate(turn_set.NOISES)
    ]


def _echoes() -> list[Item]:
    return [
        Item(
            f"echo-{n:02}",
            "echo",
            Right.INTERRUPT if text else Right.IGNORE,
            text,
            level_db=gain_db,
            delay_ms=delay_ms,
            seed=n,
        )
        for n, (gain_db, delay_ms, text) in enumerate(turn_set.ECHOES)
    ]


_MAKERS = {
    "barge": lambda: _said("barge", Right.INTERRUPT, turn_set.BARGES),
    "backchannel": lambda: _said("backchannel", Right.IGNORE, turn_set.BACKCHANNELS),
    "cough": _coughs,
    "side": _side,
    "pause": lambda: _said("pause", Right.WAIT, turn_set.PAUSES),
    "noise": _noises,
    "echo": _echoes,
}
