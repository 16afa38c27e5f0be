"""Where words lie in speech whose model does not say: spread in proportion to how long they are written.

A letter (or a phoneme, where the model knows them) stands for a slice of time and the space behind a word for two more.
`spread` is for a clause that is whole; `GrowingTimes` for one that is still being spoken, whose length is first guessed
and then corrected: what it has said of a word it never takes back. Pure; frames are whatever unit the model counts in.
"""

from collections.abc import Sequence

from voice_agent.engine.messages import SpokenWord
from voice_agent.engine.runtime import FrameWord

SPACE_LETTERS = 2  # the gap behind a word, in letters


def spread(
    words: Sequence[SpokenWord], frames: int, first_frame: int = 0, sizes: Sequence[int] | None = None
) -> list[FrameWord]:
    """Give each word its share of `frames`, in order and without overlap; words without letters get nothing.

    `sizes` counts each word in other symbols than letters.
    """
    weights = [_weight(size) for size in (sizes or [_letters(word) for word in words])]
    whole = max(1, sum(weights))
    placed: list[FrameWord] = []
    before = 0
    for word, weight in zip(words, weights, strict=True):
        gap = SPACE_LETTERS if weight else 0
        begin = first_frame + frames * before // whole
        end = first_frame + frames * (before + weight - gap) // whole
        placed.append(FrameWord(word.start_char, word.end_char, begin, end, exact=False))
        before += weight
    return placed


class GrowingTimes:
    """The words of one clause, given out as soon as the frames made so far should hold their ends.

    `frames_per_letter` is the guess to begin with; a voice's own average, kept from clause to clause, is better.
    """

    def __init__(self, words: Sequence[SpokenWord], frames_per_letter: float) -> None:
        self._words = list(words)
        self._frames_per_letter = frames_per_letter
        self._given = 0  # words that were given out
        self._at = 0  # frame behind the last of them

    def add(self, words: Sequence[SpokenWord]) -> None:
        """More words of it came."""
        self._words.extend(words)

    def grown(self, frames: int) -> list[FrameWord]:
        """The words that newly lie within the clause's first `frames`."""
        found: list[FrameWord] = []
        while self._given < len(self._words):
            word = self._words[self._given]
            letters = _letters(word)
            end = self._at + round(letters * self._frames_per_letter)
            if end > frames:
                break
            found.append(FrameWord(word.start_char, word.end_char, self._at, end, exact=False))
            self._at = min(frames, end + (round(SPACE_LETTERS * self._frames_per_letter) if letters else 0))
            self._given += 1
        return found

    def ended(self, frames: int) -> list[FrameWord]:
        """The rest, spread over what the clause turned out to have behind the words given out."""
        rest, self._words = self._words[self._given :], []
        return spread(rest, max(0, frames - self._at), min(self._at, frames))

    @property
    def letters(self) -> int:
        """Weight of the whole clause: divide its frames by this for the next clause's guess."""
        return sum(_weight(_letters(word)) for word in self._words)


def _letters(word: SpokenWord) -> int:
    return sum(char.isalnum() for char in word.text)


def _weight(letters: int) -> int:
    return letters + SPACE_LETTERS if letters else 0
