"""Where a written token lets a speaker pause: sentence ends, phrases, before small words, after Korean endings.

Pure questions about one token (a run without white space); `clauses` decides with them. English and Korean have
word lists here, other languages are cut at their punctuation.
"""

import re
import unicodedata
from typing import Literal

Strength = Literal["", "sentence", "phrase", "conjunction", "function_word", "predicate"]

_list = str.split

_CLOSERS = "\"'”’»)]}*_`~"
_CONJUNCTIONS = frozenset(
    _list("and but or so because while although though which who when where if unless since")
)
_FUNCTION_WORDS = frozenset(
    _list("in on at for with from by to into about after before between through during without that")
)
# A subject may be followed by a breath: "The capital of France | is Paris".
_AUXILIARIES = frozenset(
    _list("is are was were can could will would should may might must has have had does do did")
)
# Small words that lean on the next one: nothing may be cut between them and it.
_LEANING = (
    _CONJUNCTIONS
    | _FUNCTION_WORDS
    | _AUXILIARIES
    | frozenset(
        _list("of than as a an the my your his her its our their this these i he she we they not very")
    )
)

_TITLES = frozenset(
    _list(
        "dr mr mrs ms prof st vs gen sen rep lt col capt sgt mt ft fig eq vol pp cf approx dept est rev hon "
        "jan feb mar apr jun jul aug sep sept oct nov dec"
    )
)
_DOUBTFUL = frozenset(
    _list("no etc inc ltd co corp jr sr a.m p.m ph.d mon tue wed thu fri sat sun")
)  # end or not
_MONTHS = frozenset(  # a number behind them is a day
    _list("january february march april may june july august september october november december v version")
)
_NOT_ALONE = _MONTHS | _TITLES | _DOUBTFUL
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]?")  # "J.", "U.S.", "e.g."

_KOREAN_ENDINGS = tuple(
    _list("고 며 면서 지만 는데 은데 인데 아서 어서 여서 해서 라서 면 니까 려고 거나 도록 므로 때문에 다가")
)
_KOREAN_NOUNS = frozenset(_list("최고 광고 사고 창고 보고 재고 참고 라면 화면 측면 장면 국면"))
_KOREAN_PARTICLES = tuple(_list("에서 에는 에게 으로 까지 부터"))


def strength_of(token: str) -> Strength:
    """Tell what kind of break stands after a token that white space follows."""
    bare = token.rstrip(_CLOSERS)
    last = bare[-1:]
    if last in ("!", "?") and bare:
        return "sentence"
    if last == ".":
        return _after_full_stop(bare)
    if bare and (last in ",;:…" or last in "。，、！？；："):
        return "phrase"
    return ""


def waits_for_next(token: str) -> bool:
    """Tell whether only the next character shows if the token's full stop ends a sentence ("No. 5", "no. Then")."""
    return token.rstrip(_CLOSERS).rstrip(".").lower().lstrip("(\"'“‘*_") in _DOUBTFUL


def before_word(token: str) -> Strength:
    """Tell what kind of break stands before a word ("and", "with"), "" for most words."""
    word = token.lower().strip(_CLOSERS)
    if word in _CONJUNCTIONS:
        return "conjunction"
    if word in _AUXILIARIES:
        return "predicate"
    return "function_word" if word in _FUNCTION_WORDS else ""


def leans_on_next(token: str) -> bool:
    """Tell whether a pause after this word would sound wrong ("the", "of")."""
    return token.lower().strip(_CLOSERS) in _LEANING


def after_korean(token: str) -> Strength:
    """Tell what kind of break stands after a Korean word by its ending; "" for other words."""
    word = token.rstrip(_CLOSERS)
    if len(word) < 2 or not is_hangul(word[-1]) or word in _KOREAN_NOUNS:
        return ""
    if word.endswith(_KOREAN_ENDINGS):
        return "conjunction"
    return "function_word" if word.endswith(_KOREAN_PARTICLES) else ""


def is_hangul(char: str) -> bool:
    """Tell a Hangul syllable."""
    return "가" <= char <= "힣"


def is_unspaced(char: str) -> bool:
    """Tell letters of scripts that write no spaces between words: kana, ideographs, Thai."""
    return "\u3041" <= char <= "\u30ff" or "\u3400" <= char <= "\u9fff" or "\u0e00" <= char <= "\u0e7f"


def joins_previous(char: str) -> bool:
    """Tell characters that belong to the one before: combining marks, joiners, variation selectors, skin tones."""
    return (
        char in "\u200c\u200d" or unicodedata.category(char)[0] == "M" or "\U0001f3fb" <= char <= "\U0001f3ff"
    )


def _after_full_stop(bare: str) -> Strength:
    if bare.endswith(".."):
        return "phrase"  # an ellipsis hesitates; it need not end anything
    word = bare.rstrip(".").lower().lstrip("(\"'“‘*_")
    if word in _DOUBTFUL:
        return "sentence"
    if word in _TITLES or _INITIALS.fullmatch(bare.lstrip("(\"'“‘*_")):
        return ""
    return "sentence" if word else ""


def is_plain(token: str) -> bool:
    """Whether a token is a word that is read alike whatever stands around it, and needs nothing that follows."""
    word = token.rstrip(",;:!?").casefold()
    return word.isalpha() and word not in _NOT_ALONE


def starts_plain(char: str, previous: str) -> bool:
    """Whether a token may begin a piece of its own: with a letter, of the script of the one before it."""
    return char.isalpha() and char.isascii() == previous.isascii() and not is_unspaced(char)
