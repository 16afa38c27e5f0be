"""The known name that somebody meant who wrote one that is not known, and the words in which an error asks for it.

One measure for settings, options, voices, models and parameters: the share of letters in the same order, whatever
their case. Pure; it knows no names of its own. Source: difflib, ratio().
"""

import difflib
from collections.abc import Iterable

# slips of the finger are above 0.7 and names half remembered (origins, timeout) above 0.6; other words for the same
# thing (max_calls, prompt) and other names (josh) are below
LIKENESS = 0.6


def near_name(name: str, known: Iterable[str], likeness: float = LIKENESS) -> str | None:
    """Give the known name most like it; None if none is."""
    lowered = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=likeness)
    return lowered[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Phrase the end of a sentence that asks for the nearest name; empty if none is near."""
    return asked(near_name(name, known))


def did_you_mean_or_known(name: str, known: Iterable[str]) -> str:
    """Phrase the end of a sentence that asks for the nearest name, or tells all of them if none is near."""
    names = list(known)
    return did_you_mean(name, names) or f"; known are {', '.join(names)}"


def none_of(value: object, known: Iterable[str]) -> str:
    """Phrase that a value is not among the known ones, with all of them and the nearest."""
    names = list(known)
    return f"{value!r} is none of {', '.join(names)}{did_you_mean(str(value), names)}"


def asked(found: str | None) -> str:
    """Phrase the question after a name that was found; empty without one."""
    return f"; did you mean {found!r}?" if found else ""
