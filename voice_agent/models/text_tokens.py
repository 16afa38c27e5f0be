"""Texts to tokens, each piece between two special tokens once: a conversation that goes on is the same but for its end.

A tokenizer cuts a text at its special tokens before it does anything else, so what lies between two of them gives the
same tokens wherever it stands. Where that does not hold (a tokenizer that marks a text's begin) nothing is remembered.
Any thread. Source: the pipeline of Hugging Face's tokenizers (added tokens, normalizer, pre-tokenizer, model).
"""

import re
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

MOST_CHARS = 4_000_000  # of the pieces that are remembered, those used last: about 10 MB
_PROBES = ("Good morning.", " and  now", "\n\n", "Ça va ? ", "assistant\n")


class TextTokens:
    """A tokenizers.Tokenizer that remembers; what was not used longest goes once the pieces take MOST_CHARS."""

    def __init__(self, tokenizer: Any, most_chars: int = MOST_CHARS) -> None:
        self._tokenizer = tokenizer
        self._most_chars = most_chars
        self._known: OrderedDict[str, array[int]] = OrderedDict()
        self._known_chars = 0
        self._lock = threading.Lock()
        marks: dict[int, Any] = tokenizer.get_added_tokens_decoder()
        self._marks = {mark.content: number for number, mark in marks.items()}
        longest_first = sorted(self._marks, key=len, reverse=True)
        self._cut = re.compile("|".join(re.escape(mark) for mark in longest_first))
        plain = (
            tokenizer.truncation is None and tokenizer.padding is None and not tokenizer.encode_special_tokens
        )
        apart = bool(marks) and not any(_reaches_out(mark) for mark in marks.values())
        self._cuts = plain and apart and self._agrees()

    def unknown_chars(self, text: str) -> int:
        """How much of the text is still to be encoded."""
        with self._lock:
            return sum(len(piece) for piece in self._pieces(text) if not self._is_known(piece))

    def of(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, nothing added; lets go of the interpreter while it encodes."""
        cut = [self._pieces(text) for text in texts]
        if not self._cuts:
            found = self._encoded([piece for pieces in cut for piece in pieces])
            return [found[text] if text else [] for text in texts]
        with self._lock:
            missing = {piece: None for pieces in cut for piece in pieces if not self._is_known(piece)}
            known = {piece: self._used(piece) for pieces in cut for piece in pieces if piece in self._known}
        new = {piece: array("I", tokens) for piece, tokens in self._encoded(list(missing)).items()}
        with self._lock:
            self._remember(new)
        known |= new
        return [self._joined(pieces, known) for pieces in cut]

    def _pieces(self, text: str) -> list[str]:
        """The special tokens and what is between them, in order."""
        if not self._cuts:
            return [text] if text else []
        pieces: list[str] = []
        end = 0
        for mark in self._cut.finditer(text):
            pieces += [text[end : mark.start()], mark.group()]
            end = mark.end()
        return [piece for piece in [*pieces, text[end:]] if piece]

    def _encoded(self, pieces: list[str]) -> dict[str, list[int]]:
        if len(pieces) == 1:  # no thread of the tokenizer's own for one
            return {pieces[0]: self._tokenizer.encode(pieces[0], add_special_tokens=False).ids}
        found = self._tokenizer.encode_batch_fast(pieces, add_special_tokens=False) if pieces else []
        return {piece: encoding.ids for piece, encoding in zip(pieces, found, strict=True)}

    def _joined(self, pieces: Iterable[str], known: dict[str, "array[int]"]) -> list[int]:
        tokens: list[int] = []
        for piece in pieces:
            if piece in known:
                tokens += known[piece]
            else:
                tokens.append(self._marks[piece])
        return tokens

    def _is_known(self, piece: str) -> bool:
        return piece in self._known or (self._cuts and piece in self._marks)

    def _used(self, piece: str) -> "array[int]":
        self._known.move_to_end(piece)
        return self._known[piece]

    def _remember(self, new: dict[str, "array[int]"]) -> None:
        for piece, tokens in new.items():
            if piece not in self._known:
                self._known_chars += len(piece)
            self._known[piece] = tokens
        while self._known_chars > self._most_chars:
            piece, _ = self._known.popitem(last=False)
            self._known_chars -= len(piece)

    def _agrees(self) -> bool:
        """Whether pieces by themselves give what the tokenizer makes of the whole."""
        mark = next(iter(self._marks))
        text = mark.join(_PROBES)
        whole = self._tokenizer.encode(text, add_special_tokens=False).ids
        alone = [self._tokenizer.encode(probe, add_special_tokens=False).ids for probe in _PROBES]
        joined = [*alone[0]]
        for tokens in alone[1:]:
            joined += [self._marks[mark], *tokens]
        return whole == joined


def _reaches_out(mark: Any) -> bool:
    """A special token that swallows what is around it, or is looked for in a text that was changed already."""
    return mark.lstrip or mark.rstrip or mark.single_word or mark.normalized
