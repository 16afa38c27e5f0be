"""Cut the Thinker's stream of text into pieces to speak, each at the first natural break.

Every decision is made at one character from what came before it, so how the stream was cut into deltas never
matters. Where a character leaves it open what the text is ("3." may become "3.14", "no." may become "No. 5"), the
decision waits for the next one. Clauses tile the written text: white space, Markdown and emoji between words are
part of the clause they stand in, and what holds nothing to say waits for the next word (at the end it is dropped).

Knows nothing of how text is spoken; code fences are kept out of the counting because they are not read aloud.
"""

import re
from dataclasses import dataclass
from typing import Literal

from voice_agent.speech.breaks import (
    Strength,
    after_korean,
    before_word,
    is_hangul,
    is_plain,
    is_unspaced,
    joins_previous,
    leans_on_next,
    starts_plain,
    strength_of,
    waits_for_next,
)

_LONGEST_CLAUSE_CHARS = 600  # a text without any break is cut here, at white space
_LONGEST_CLAUSE_WORDS = 40  # about 15 s of speech
_LONGEST_RUN_CHARS = 300  # a text without white space is cut here
_LONGEST_URL_CHARS = 2000  # but an address stays whole
_LONGEST_SPAN_CHARS = 300  # a backtick or bracket that nobody closes protects no longer than this
_LEAST_HURRIED_WORDS = 3  # fewer do not buy the time that the next piece needs
_LOOK_BACK_CHARS = 40  # no word that matters for a break is longer

_FULL_WIDTH_STOPS = "。！？"
_FULL_WIDTH_COMMAS = "，、；：—"  # the em dash, too, ends where it stands: no space need follow
_LIST_MARKER = re.compile(r"[(]?\d{1,3}[.)]|[-*+•#>]+")


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece to speak: `text` is the reply's written text from `start_char` up to `end_char`."""

    text: str
    start_char: int
    end_char: int


# How many words must stand before a break of each strength is taken; strengths that are missing never cut.
_Needs = dict[Strength, int]

# The first piece is short because the user waits for it; the second must be there while the first is heard; from
# the third on there is sound in hand, and longer pieces have the better melody.
_LATENCY_FIRST: tuple[_Needs, ...] = (
    {"sentence": 2, "phrase": 3, "conjunction": 4, "function_word": 4, "predicate": 3},
    {"sentence": 3, "phrase": 5, "conjunction": 7, "function_word": 9},
    {"sentence": 4, "phrase": 12, "conjunction": 14, "function_word": 18},
)
_QUALITY_FIRST: tuple[_Needs, ...] = ({"sentence": 1},)
_BY_WORD: tuple[_Needs, ...] = ({"sentence": 1, "phrase": 3},)


class ClauseSplitter:
    """Text deltas of one reply in, clauses out; holds at most one clause and one code block of text.

    `by_word`, for a Talker that takes text as it comes: besides, a piece ends after every plain word that a plain word
    follows. What is read together with its neighbours (numbers, units, abbreviations) still leaves with them.
    """

    def __init__(self, latency_first: bool = True, *, by_word: bool = False) -> None:
        self._needs = _LATENCY_FIRST if latency_first else _QUALITY_FIRST
        self._by_word = by_word and latency_first
        if self._by_word:
            self._needs = _BY_WORD
        self._sent = 0  # clauses so far
        self._start_char = 0  # where the held text stands in the reply
        self._held: list[str] = []  # characters that did not leave yet
        self._words = _WordCount()  # words in them
        self._token_start = 0  # index in `_held` of the token that is being written
        self._previous_token = ""  # the end of the one before it in this line; "" at the line's start
        self._lines = _Lines()
        self._waiting: tuple[int, bool] | None = (
            None  # a break the next character decides: cut, at a line's end
        )
        self._fallback = 0  # the latest break that came too early to be taken
        self._soft = 0  # the latest place between words that do not lean on each other

    def push(self, delta: str) -> list[Clause]:
        """Take the next piece of text; returns the clauses that it completes, often none."""
        done: list[Clause] = []
        for char in delta:
            self._cut_at(self._decided_by(char), done)
            self._held.append(char)
            if not self._lines.in_fence:
                self._words.add(char)
            self._lines.add(char)
            self._cut_at(self._break_after(char), done)
        return done

    def hurry(self) -> list[Clause]:
        """The sound is about to run out: cut what is held at its latest tolerable place, if there is one."""
        done: list[Clause] = []
        if not self._lines.protects and not self._lines.in_fence:
            self._cut_at(max(self._fallback, self._soft), done)
        return done

    def end(self) -> list[Clause]:
        """The reply is written: returns what is left if there is anything to say in it. Nothing may follow."""
        done: list[Clause] = []
        if self._words.count:
            self._cut_at(len(self._held), done)
        self._held.clear()
        return done

    def _cut_at(self, cut: int, done: list[Clause]) -> None:
        """Let the first `cut` held characters leave as a clause; 0 means no cut."""
        if not cut:
            return
        text = "".join(self._held[:cut])
        done.append(Clause(text, self._start_char, self._start_char + cut))
        del self._held[:cut]
        self._sent += 1
        self._start_char += cut
        self._token_start = max(0, self._token_start - cut)
        self._waiting, self._fallback, self._soft = None, 0, 0
        self._words = _WordCount()
        for char in self._held:
            self._words.add(char)

    # --- where to cut: the index in `_held`, 0 for nowhere ----------------------------------------------------

    def _offer(self, strength: Strength, cut: int, words: int) -> int:
        """Take a break if enough words stand before it, else remember it for a text that never pauses."""
        if not strength or not words:
            return 0
        needs = self._needs[min(self._sent, len(self._needs) - 1)]
        if words >= needs.get(strength, words + 1):
            return cut
        if strength in ("sentence", "phrase"):
            self._fallback = cut
        return 0

    def _decided_by(self, char: str) -> int:
        """Decide the break that waited for this character."""
        if self._waiting is None or (char.isspace() and char != "\n"):
            return 0
        cut, at_line_end = self._waiting
        self._waiting = None
        goes_on = char.islower() or (not at_line_end and (char.isdigit() or char in ",;:.)"))
        return 0 if goes_on else self._offer("sentence", cut, self._words.count)

    def _break_after(self, char: str) -> int:
        if char == "\n":
            return self._end_of_line()
        if self._lines.in_fence:
            return 0
        if char.isspace():
            return self._end_of_token()
        return self._inside_token(char)

    def _inside_token(self, char: str) -> int:
        here = len(self._held)
        if not self._lines.protects:
            begins = self._by_word and here - 1 == self._token_start > 0
            if begins and is_plain(self._previous_token) and starts_plain(char, self._previous_token):
                return here - 1
            if char in _FULL_WIDTH_STOPS:
                return self._offer("sentence", here, self._words.count)
            ends_phrase = char == "," and here > 1 and self._held[-2].isalpha()
            if ends_phrase or char in _FULL_WIDTH_COMMAS:
                return self._offer("phrase", here, self._words.count)
        longest = _LONGEST_URL_CHARS if self._lines.is_address else _LONGEST_RUN_CHARS
        run = here - self._token_start
        if run <= longest or not self._words.count:
            return 0
        joined = joins_previous(char) or self._held[-2] == "\u200d"
        return 0 if joined and run < longest + 64 else here - 1

    def _end_of_token(self) -> int:
        before_space = len(self._held) - 1
        start, self._token_start = self._token_start, len(self._held)
        if start == before_space:
            return 0
        token = "".join(self._held[max(start, before_space - _LOOK_BACK_CHARS) : before_space])
        previous, self._previous_token = self._previous_token, token
        if not self._lines.protects:
            cut = self._break_at(token, previous, start)
            if cut or self._waiting:
                return cut
        return self._too_long(before_space)

    def _break_at(self, token: str, previous: str, start: int) -> int:
        """Weigh the token that just ended at white space: a break may stand after it or before it."""
        after, words = len(self._held) - 1, self._words.count
        if not previous and _LIST_MARKER.fullmatch(token):
            return 0
        if not token.strip("-–"):
            return 0 if previous[-1:].isdigit() else self._offer("phrase", after, words)
        strength = strength_of(token)
        if strength == "sentence" and waits_for_next(token):
            self._waiting = (after, False)
            return 0
        if strength:
            return self._offer(strength, after, words)
        if previous and not leans_on_next(previous):
            self._soft = start if words > _LEAST_HURRIED_WORDS else 0
            cut = self._offer(before_word(token), start, words - 1)
            if cut:
                return cut
        return self._offer(after_korean(token), after, words)

    def _end_of_line(self) -> int:
        """A line that ends pauses, unless the next goes on in lower case (a wrapped line, which waits to be seen)."""
        here, start = len(self._held), self._token_start
        token = "".join(self._held[max(start, here - 1 - _LOOK_BACK_CHARS) : here - 1])
        self._token_start, self._previous_token = here, ""
        if self._lines.opened_fence:
            return here  # the fence is spoken as two words; what is in it is not
        if self._lines.in_fence or not self._words.count:
            return 0
        if strength_of(token) and not waits_for_next(token):
            return self._offer("sentence", here, self._words.count)
        self._waiting = (here, True)
        return self._too_long(here)

    def _too_long(self, cut: int) -> int:
        """Cut a text that never pauses at the latest break there was, else here."""
        if not self._words.count:
            return 0
        if len(self._held) < _LONGEST_CLAUSE_CHARS and self._words.count < _LONGEST_CLAUSE_WORDS:
            return 0
        return self._fallback or cut


class _WordCount:
    """Words as a listener counts them: a Korean word weighs two, two signs of an unspaced script weigh one."""

    def __init__(self) -> None:
        self.count = 0
        self._unspaced = 0
        self._syllables = 0
        self._in_word = False

    def add(self, char: str) -> None:
        """Count one more character."""
        if is_unspaced(char):
            self._unspaced += 1
            self.count += self._unspaced % 2
            return
        if not char.isalnum():
            self._in_word = self._in_word and not char.isspace() and char not in "—/"
            self._syllables = self._syllables if self._in_word else 0
            return
        self._syllables += is_hangul(char)
        self.count += (not self._in_word) + (is_hangul(char) and self._syllables == 2)
        self._in_word = True


class _Lines:
    """What the line says about cutting: code spans, links and addresses stay whole, fenced code is not spoken."""

    def __init__(self) -> None:
        self.in_fence = False
        self.opened_fence = False  # by the line that just ended
        self.is_address = False  # the token being written is one
        self._head = ""  # the line's first three visible characters
        self._ticks = 0  # backticks in it
        self._span: Literal["", "code", "label", "labelled", "target"] = ""
        self._span_chars = 0
        self._recent = ""  # the last three characters

    @property
    def protects(self) -> bool:
        """Whether nothing may be cut here."""
        return self._span in ("code", "label", "target") or self.is_address

    def add(self, char: str) -> None:
        """Follow one more character."""
        if char == "\n":
            self._end_line()
            return
        self._recent = (self._recent + char)[-4:]
        self._ticks += char == "`"
        if len(self._head) < 3 and not char.isspace():
            self._head += char
        if char.isspace() and self._span != "target":
            self.is_address = False
        elif self._recent.endswith("://") or self._recent == "www.":
            self.is_address = True
        self._follow_span(char)

    def _end_line(self) -> None:
        # A fence's first line holds no other backtick (CommonMark 4.5), else it is a code span.
        opens = self._head == "~~~" or (self._head == "```" and self._ticks == 3)
        closes = self._head in ("```", "~~~")
        self.opened_fence = opens and not self.in_fence
        self.in_fence = not closes if self.in_fence else opens
        self._head, self._ticks, self._span, self._recent, self.is_address = "", 0, "", "", False

    def _follow_span(self, char: str) -> None:
        self._span_chars += 1
        limit = _LONGEST_URL_CHARS if self._span == "target" else _LONGEST_SPAN_CHARS
        if self._span == "labelled":  # "[label]" is a link only if "(" follows at once
            self._start_span("target" if char == "(" else "")
        elif self._span and self._span_chars > limit:
            self._start_span("")
        elif char == "`" and self._span in ("", "code"):
            self._start_span("" if self._span else "code")
        elif char == "[" and not self._span:
            self._start_span("label")
        elif char == "]" and self._span == "label":
            self._start_span("labelled")
        elif char == ")" and self._span == "target":
            self._start_span("")

    def _start_span(self, span: Literal["", "code", "label", "labelled", "target"]) -> None:
        self._span, self._span_chars = span, 0
        self.is_address = span == "target"
