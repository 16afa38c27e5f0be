"""Make written text speakable: numbers, dates, money, addresses and symbols as words, markup and emoji silent.

Out come SpokenWords: what to say, and the range of the reply's written text it stands for. A range covers what was
written as one ("$5.50" is one SpokenWord of five spoken words); ranges ascend, never overlap, and leave out
punctuation, which is kept at the end of `text` (one of , . ! ?) because the Talker's melody needs it. Choices:

- a fenced code block is said as "code example", a code span as the words in it; of a URL only the domain is said
- the number of a numbered list is said ("one,"), bullets and headings' marks are not; a heading ends like a sentence
- `:)` and emoji are silent, `<3` after a word is "love"; an unknown tag is text: "a less than b greater than c"
- other languages than English and Korean keep their digits; only the markup goes

Acronyms and names are left to the Talker's own pronunciation.
"""

import re
import unicodedata
from dataclasses import dataclass

from voice_agent.engine.messages import SpokenWord
from voice_agent.speech import spoken_en, spoken_ko
from voice_agent.speech.clauses import Clause
from voice_agent.speech.forms import Language, address_at
from voice_agent.speech.languages import language_of
from voice_agent.speech.markup import CODE_BLOCK, HIDDEN, Markup

_READINGS: dict[str, Language] = {"en": spoken_en, "ko": spoken_ko}
_LONGEST_WORD_CHARS = 60  # longer runs of Latin letters are data, not words

_MARKS = "".join(
    chr(code) for code in range(0x300, 0x1E00) if unicodedata.category(chr(code)).startswith("M")
)  # what combines with letters in the living scripts
_LETTER = rf"[^\W\d_²³¹½¼¾ªº{_MARKS}]"
_WORD = re.compile(rf"{_LETTER}(?:[{_MARKS}\u200c\u200d]|{_LETTER}|(?:['’-]|\0+)(?={_LETTER}))*")
_INITIALS = re.compile(r"(?:[A-Za-z]\.){2,8}|Ph\.D\.")
_INITIAL = re.compile(r"[A-Z]\.(?= [A-Z])")
_OTHER_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_FORM_STARTS = frozenset(".+-−#~$€£₩¥(vV'’")
_OPERATORS = re.compile(r"->|=>|<->|[-=]{2,}>|→|⇒|!=|==+|<=|>=|\.{2,}|…")
_PAUSES = {
    **dict.fromkeys(",;:—–…、，；：", ","),
    **dict.fromkeys(".。", "."),
    **dict.fromkeys("!！", "!"),
    **dict.fromkeys("?？؟", "?"),
}
_RANK = {"": 0, ",": 1, ".": 2, "!": 3, "?": 4}


_OPERATOR_WORDS = {"!=": "not_equal", "<=": "≤", ">=": "≥"}
_ABBREVIATION = re.compile(r"[A-Za-z]{1,6}(?=(\.?))")
_BARE_ABBREVIATIONS = frozenset(("Dr", "Mr", "Mrs", "vs"))  # common without their full stop, too


class Speakable:
    """Follows one reply clause by clause; `language` is the last clause's, at first the hint."""

    def __init__(self, language_hint: str = "en") -> None:
        self.language = language_hint
        self._markup = Markup()

    def words(self, clause: Clause) -> list[SpokenWord]:
        """Say a clause; empty if there is nothing in it to say. Clauses must come in order, none left out."""
        shown = self._markup.hide(clause.text)
        self.language = language_of(shown, self.language)
        return _Scan(shown, clause.start_char, _READINGS.get(self.language)).words()


def speakable(clause: Clause, language: str) -> list[SpokenWord]:
    """Say a single text that no other clause belongs to (a greeting, a test) in a given language."""
    shown = Markup().hide(clause.text)
    return _Scan(shown, clause.start_char, _READINGS.get(language)).words()


@dataclass(slots=True)
class _Said:
    text: str
    pause: str
    start: int
    end: int


class _Scan:
    """One clause, left to right; every method says what stands at a place and returns where to go on."""

    def __init__(self, shown: str, start_char: int, language: Language | None) -> None:
        self._text = shown
        self._start_char = start_char
        self._language = language
        self._said: list[_Said] = []
        self._has_address = "." in shown or "@" in shown

    def words(self) -> list[SpokenWord]:
        """Read the whole clause."""
        at = 0
        while at < len(self._text):
            at = self._step(at)
        offset = self._start_char
        return [
            SpokenWord(said.text + said.pause, offset + said.start, offset + said.end) for said in self._said
        ]

    def _step(self, at: int) -> int:
        char = self._text[at]
        if char in (HIDDEN, " "):
            return at + 1
        if char == "\n":
            return self._line_end(at)
        starts_word = char.isalnum() and not self._text[at - 1 : at].isalnum() if at else char.isalnum()
        for read in (
            self._form,
            self._address if starts_word else self._operator,
            self._abbreviation,
            self._word,
        ):
            end = read(at)
            if end > at:
                return end
        return self._mark(at)

    def _say(self, text: str, start: int, end: int) -> int:
        """Take up a word; none for a text that would be silent."""
        text = unicodedata.normalize("NFC", text.replace(HIDDEN, "")).strip()
        if text:
            self._said.append(_Said(text, "", start, end))
        return end

    def _pause(self, mark: str) -> None:
        """Let the last word end in a mark, unless it has a stronger one."""
        if self._said and _RANK[mark] > _RANK[self._said[-1].pause]:
            self._said[-1].pause = mark

    # --- what may stand at a place: each returns the end of what it read, or `at` ------------------------------

    def _form(self, at: int) -> int:
        """A number, date, time, price, ... by the language's table."""
        char = self._text[at]
        if not (char.isdecimal() or char in _FORM_STARTS):
            return at
        if char.isalpha() and self._text[at - 1 : at].isalnum() and at:
            return at  # the v of a version begins a word
        if self._language is None:
            found = _OTHER_NUMBER.match(self._text, at)
            return self._say(found[0], at, found.end()) if found else at
        for pattern, reading in self._language.FORMS:
            found = pattern.match(self._text, at)
            said = reading(found) if found and found.end() > at else None
            if found and said:
                tail = self._language.TAIL.match(self._text, found.end())
                end = self._say(said + (tail[0] if tail else ""), at, tail.end() if tail else found.end())
                return self._full_stop_at_end(end) if found[0].endswith(".") else end
        return at

    def _address(self, at: int) -> int:
        end = address_at(self._text, at) if self._has_address else at
        if end == at:
            return at
        written = self._text[at:end]
        return self._say(self._language.address(written) if self._language else written, at, end)

    def _operator(self, at: int) -> int:
        """Signs of several characters, and those that are words only in arithmetic."""
        found = _OPERATORS.match(self._text, at)
        if found is None:
            return self._heart(at) if self._text[at] == "<" else at
        sign = found[0]
        if sign.startswith("==") and ">" not in sign:
            return self._say(self._equals(), at, found.end())
        named = self._name(_OPERATOR_WORDS.get(sign, ""))
        if named:
            return self._say(named, at, found.end())
        self._pause(",")  # arrows, dots, dashes
        return found.end()

    def _heart(self, at: int) -> int:
        """Read `<3` as a heart where a word stands before it, not a number or a variable."""
        before = self._said[-1].text if self._said else ""
        is_heart = re.match(r"<3(?!\w|[.,]\d)", self._text[at:]) and (len(before) > 1 or before == "I")
        if is_heart and before.isalpha() and self._text[at - 1] == " ":
            return self._say(self._name("heart"), at, at + 2)
        return at

    def _abbreviation(self, at: int) -> int:
        text, language = self._text, self._language
        if language is None or not text[at].isalpha() or (at and text[at - 1].isalnum()):
            return at
        initials = _INITIALS.match(text, at)
        if initials and not text[initials.end() : initials.end() + 1].isalpha():
            letters = initials[0][:-1]
            said = language.ABBREVIATIONS.get(letters.lower()) or letters.replace(".", " ")
            return self._full_stop_at_end(self._say(said, at, initials.end()))
        if _INITIAL.match(text, at):
            return self._say(text[at], at, at + 2)
        found = _ABBREVIATION.match(text, at)
        if found is None or text[found.end() : found.end() + 1].isalnum():
            return at
        if found[0] == "No" and found[1] and text[found.end() + 1 :].lstrip(" ")[:1].isdecimal():
            return self._say(self._name("number"), at, found.end() + 1)
        said = language.ABBREVIATIONS.get(found[0].lower(), "")
        if not said or not (found[1] or found[0] in _BARE_ABBREVIATIONS):
            return at
        return self._full_stop_at_end(self._say(said, at, found.end() + len(found[1])))

    def _full_stop_at_end(self, at: int) -> int:
        """An abbreviation's full stop is the sentence's, too, where the clause ends."""
        if not self._text[at:].strip(HIDDEN + " \n\"')"):
            self._pause(".")
        return at

    def _word(self, at: int) -> int:
        found = _WORD.match(self._text, at)
        if found is None:
            return at
        if len(found[0]) > _LONGEST_WORD_CHARS and found[0].isascii():
            return found.end()
        end = found.end()
        if found[0] in ("C", "F", "A", "D", "G") and self._text[end : end + 1] == "#":
            return self._say(f"{found[0]} {self._name('sharp')}", at, end + 1)
        return self._say(found[0], at, end)

    def _mark(self, at: int) -> int:
        """A single character that is no word: a pause, a symbol with a name, or silence."""
        char = self._text[at]
        if char == CODE_BLOCK:
            end = at + 1
            while end < len(self._text) and self._text[end] == HIDDEN:
                end += 1
            self._say(self._name("code_block"), at, end)
            self._pause(".")
        elif char == "." and self._is_inside_name(at):
            self._say(self._name("dot"), at, at + 1)
        elif char in _PAUSES and not (char in ":" and self._is_inside_name(at)):
            self._pause(_PAUSES[char])
        elif char in "-/*":
            self._arithmetic(at)
        elif char == "=":
            self._say(self._equals(), at, at + 1)
        else:
            self._say(self._name(char), at, at + 1)
        return at + 1

    def _arithmetic(self, at: int) -> None:
        """Name a sign that is a word only between numbers or single letters; a spaced dash is a pause."""
        char = self._text[at]
        before, after = self._text[:at].rstrip(" ")[-1:], self._text[at + 1 :].lstrip(" ")[:1]
        is_spaced = self._text[at - 1 : at] == " " or self._text[at + 1 : at + 2] == " "
        if char == "*" and before.isalnum() and after.isalnum():
            self._say(self._name("*"), at, at + 1)
        elif char == "/" and before.isdecimal() and after.isdecimal():
            self._say(self._name("divided"), at, at + 1)
        elif char == "-" and is_spaced:
            self._pause(",")

    def _is_inside_name(self, at: int) -> bool:
        """Tell the full stop of `main.py` from the one of a sentence that lost its space ("end.Next")."""
        before, after = self._text[at - 1 : at] if at else "", self._text[at + 1 : at + 2]
        return (
            before.isalnum()
            and after.isalnum()
            and not after.isupper()
            and before.isascii()
            and after.isascii()
        )

    def _line_end(self, at: int) -> int:
        """A line that ends without a mark ends like a sentence, unless the next goes on in lower case."""
        following = self._text[at + 1 :].lstrip(" ")[:1]  # HIDDEN where a list or a heading begins
        if self._said and not self._said[-1].pause and not following.islower():
            self._pause(".")
        return at + 1

    def _equals(self) -> str:
        last = self._said[-1].text if self._said else ""
        return self._language.equals_after(last) if self._language else ""

    def _name(self, sign: str) -> str:
        if self._language is None:
            return ""
        return self._language.WORDS.get(sign) or self._language.SYMBOLS.get(sign, "")
