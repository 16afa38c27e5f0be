"""A vocabulary from which even a model without weights writes something that can be spoken, at its true speed.

A random model draws every id alike. So each id stands for a piece of text as often as everyday English has that piece:
words, a long one in two pieces as real tokenizers have it, commas and full stops. What comes out has no meaning, but
the words, sentences and tokens a second of a real answer, so clauses are cut and spoken as they would be. Nothing of
the serving differs: these are the model's own tokens, detokenized by the tokenizer's own rules.

A vocabulary names no piece twice; equal pieces are told apart by two private characters, which decoding cuts off.
"""

import re
from typing import Any

from voice_agent.bench.sentences import SENTENCES

LONGEST_PIECE = 7  # letters; a longer word is two tokens
FIRST_MARK, MARKS = 0xE000, 4096  # Unicode's private use area
_PIECE = re.compile(r" ?[A-Za-z'-]+|[.,?!]")
# a decoder of the tokenizers package, before the one that makes bytes of letters
CUT: dict[str, Any] = {"type": "Replace", "pattern": {"Regex": "[\ue000-\uf8ff]"}, "content": ""}


def spoken_tokens(count: int) -> list[str]:
    """So many tokens, every piece of everyday English in its proportion, each with its mark."""
    pieces = english_pieces()
    return [pieces[number % len(pieces)] + _mark(number // len(pieces)) for number in range(count)]


def english_pieces() -> list[str]:
    """The bench's sentences as tokens, a space before each word; the n-th of a piece has the n-th mark."""
    seen: dict[str, int] = {}
    marked: list[str] = []
    for sentence in SENTENCES:
        for piece in _PIECE.findall(f" {sentence}"):
            for part in _halves(piece):
                seen[part] = seen.get(part, 0) + 1
                marked.append(part + chr(FIRST_MARK + seen[part]))
    return marked


def _halves(piece: str) -> list[str]:
    if len(piece) <= LONGEST_PIECE + 1:
        return [piece]
    middle = (len(piece) + 1) // 2
    return [piece[:middle], piece[middle:]]


def _mark(number: int) -> str:
    return chr(FIRST_MARK + number % MARKS)
