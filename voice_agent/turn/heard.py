"""What the user really heard of a reply, from how much of its sound was played.

A word counts as heard when at least half of its samples were played: a word cut in its second half is understood,
one cut in its first half is not. With a word goes the punctuation written directly after it. Text that has no sound
(captions only, or not spoken yet) was not heard.

Pure bookkeeping: knows nothing of players, clocks or history.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from voice_agent.audio import WordTime


class HeardText:
    """One reply's written text and the places of its words in the sound; grows as the reply does."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._starts: list[int] = []  # of the words, in the written text: ascending
        self._ends: list[int] = []
        self._heard_from: list[int] = []  # played samples from which on the word is heard: ascending
        self._silent: list[tuple[int, int]] = []  # written ranges that will never sound: ascending, apart

    @property
    def text(self) -> str:
        """All that was written so far, heard or not."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def add_text(self, delta: str) -> None:
        """Take the next piece of the written text."""
        self._pieces.append(delta)

    def add_words(self, words: Iterable[WordTime]) -> None:
        """Take the words of the next chunk; all samples of a reply count at one rate.

        Times may be exact or spread in proportion, the rule is the same. A word that does not come after the ones
        before it in the text (a late repeat) is left out.
        """
        for word in words:
            if word.end_char <= word.start_char or (self._ends and word.start_char < self._ends[-1]):
                continue
            length = max(0, word.end_sample - word.first_sample)
            needed = word.first_sample + max(1, (length + 1) // 2)
            self._starts.append(word.start_char)
            self._ends.append(word.end_char)
            self._heard_from.append(max(needed, self._heard_from[-1] if self._heard_from else needed))

    def skip(self, start_char: int, end_char: int) -> None:
        """Mark a clause that is shown but never spoken: it is left out of what was heard. Ranges come in order."""
        if end_char > start_char and (not self._silent or start_char >= self._silent[-1][1]):
            self._silent.append((start_char, end_char))

    def at(self, played_samples: int) -> str:
        """Return what was heard once so many samples of the reply were played; empty if no word was."""
        heard = bisect_right(self._heard_from, played_samples)
        if not heard:
            return ""
        return self._without_silent(self._end_of_heard(heard))

    def chars_at(self, played_samples: int) -> int:
        """Return how far into the written text the hearing went (silent ranges before it included)."""
        heard = bisect_right(self._heard_from, played_samples)
        return self._end_of_heard(heard) if heard else 0

    def _end_of_heard(self, heard: int) -> int:
        """Find the end of the last heard word and of the punctuation that is written on to it."""
        text = self.text
        limit = self._starts[heard] if heard < len(self._starts) else len(text)
        following = bisect_left(self._silent, (self._ends[heard - 1], 0))
        if following < len(self._silent):
            limit = min(limit, self._silent[following][0])
        end = min(self._ends[heard - 1], len(text))
        while end < limit and not text[end].isspace() and not text[end].isalnum():
            end += 1
        return end

    def _without_silent(self, end: int) -> str:
        text, pieces, at = self.text, list[str](), 0
        for silent_start, silent_end in self._silent:
            if silent_start >= end:
                break
            pieces.append(text[at:silent_start])
            at = silent_end
        return "".join(pieces) + text[at:end]
