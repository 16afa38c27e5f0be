"""Words that reached the client against words that the server keeps: how far history is from what was heard.

What reached the client is recognized from its sound; where the server runs the tone Talker every word is its own tones
and is heard exactly. Results are words wrong (substituted, left out, too many) for each reply.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from voice_agent.audio import OPUS_RATE_HZ, Samples
from voice_agent.bench.overlap import Heard, Outcome
from voice_agent.bench.wer import word_errors
from voice_agent.models.tones import plain, tone_of, words_heard


class Ears(Protocol):
    """Hears the words of a reply again."""

    def words(self, heard: Heard) -> str:
        """What is said in the reply's sound."""
        ...


class Recognizing(Protocol):
    """A recognizer of 48 kHz sound (spoken.Hearing)."""

    def text(self, samples: Samples) -> str:
        """What is said."""
        ...


class RecognizingEars:
    """By a recognizer, which makes mistakes of its own."""

    def __init__(self, recognizer: Recognizing) -> None:
        self._recognizer = recognizer

    def words(self, heard: Heard) -> str:
        """What the recognizer makes of it."""
        return self._recognizer.text(heard.samples)


class ToneEars:
    """By the words' own tones. Of words that sound alike the first one written is taken."""

    def words(self, heard: Heard) -> str:
        """The words of the written text that sound."""
        by_tone = {
            tone_of(word): plain(word) for word in reversed(heard.written.split()) if tone_of(word).frames
        }
        found = words_heard(heard.samples, OPUS_RATE_HZ, sorted(by_tone.values()))
        return " ".join(word for word, _ in found)


@dataclass(frozen=True, slots=True)
class Exactness:
    """Words wrong for each reply: `stored` history against the client, of all; of the ignored, the whole text."""

    stored_errors: list[int]
    whole_errors: list[
        tuple[int, int]
    ]  # (words wrong, words written) of each reply that was to be heard whole


def exactness(outcomes: Sequence[Outcome], ears: Ears) -> Exactness:
    """Hear every reply again; blocks for about a second each with a recognizer."""
    stored: list[int] = []
    whole: list[tuple[int, int]] = []
    for outcome in outcomes:
        if outcome.heard is None:
            continue
        words = ears.words(outcome.heard)
        kept = outcome.heard.stored
        errors, _ = word_errors(kept, words)
        stored.append(errors)
        if outcome.did == "ignored":
            whole.append(word_errors(outcome.heard.written, words))
    return Exactness(stored, whole)
