"""Which of a few one-word commands a very short sound is, from the recognizer's opinion of its first word.

Small recognizers give up on "No." said alone: its best text is then no better than what they write for a cough, and is
thrown away. Their odds between a command and a sound of listening still tell the two apart (on the labelled set:
commands above +0.8, sounds of listening and coughs below -0.8). Knows no model: tokens and logits come in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# what is meant: the ways the recognizer begins to write it
COMMANDS: Mapping[str, Sequence[str]] = {
    "No.": ("No", "Now"),
    "Stop.": ("Stop",),
    "Wait.": ("Wait",),
    "Hang on.": ("Hang", "And"),
    "Hold on.": ("Hold",),
    "Cancel.": ("Cancel",),
    "What?": ("What",),
    "Why?": ("Why",),
    "Please.": ("Please",),
    "Sorry?": ("Sorry",),
    "Don't.": ("Don",),
    "Not.": ("Not",),
}
LISTENING: Sequence[
    str
] = """Yeah Yes Yep Okay Ok O Right Sure Oh Ah Uh Mm Hmm H Got Great Cool Wow Really I Good Well
Nice""".split()  # "I see", "O.K."; "I" is also what coughs are written as
LEAST_ODDS = 0.4  # natural logarithm


@dataclass(frozen=True, slots=True)
class FirstWords:
    """Token ids of the first words above, for one tokenizer."""

    commands: dict[str, list[int]]
    listening: list[int]


def first_words(token_of: Callable[[str], int]) -> FirstWords:
    """Look the words up; `token_of` gives the first token of a text."""
    return FirstWords(
        {command: _forms(words, token_of) for command, words in COMMANDS.items()}, _forms(LISTENING, token_of)
    )


def command_in(logits: NDArray[np.float32], words: FirstWords) -> str | None:
    """The command that the first word's logits [V] speak for, or None if it is as well a sound of listening."""
    scores = logits.astype(np.float64) - float(logits.max())
    commands = {name: _summed(scores, ids) for name, ids in words.commands.items()}
    together = float(np.logaddexp.reduce(list(commands.values())))
    if together - _summed(scores, words.listening) < LEAST_ODDS:
        return None
    return max(commands, key=lambda name: commands[name])


def _summed(scores: NDArray[np.float64], ids: Sequence[int]) -> float:
    return float(np.logaddexp.reduce(scores[list(ids)]))


def _forms(words: Sequence[str], token_of: Callable[[str], int]) -> list[int]:
    return sorted({token_of(form) for word in words for form in (f" {word}", f" {word.lower()}")})
