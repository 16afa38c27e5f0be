"""What every language's table of written forms is made of: patterns with a reading, numbers, addresses.

Patterns are tried at one place of a clause; all their repeats are bounded or cannot overlap, so a text made to be
slow is not.
"""

import re
from collections.abc import Callable, Mapping
from typing import Protocol

Reading = Callable[[re.Match[str]], str | None]
Form = tuple[re.Pattern[str], Reading]


class Language(Protocol):
    """What a language's module (`spoken_en`, `spoken_ko`) brings."""

    FORMS: list[Form]  # tried in order
    SYMBOLS: dict[str, str]  # one character each
    WORDS: dict[str, str]  # what the scanner says by itself: code_block, heart, minus, ...
    ABBREVIATIONS: dict[str, str]  # lower case, without the last full stop
    TAIL: re.Pattern[str]  # what belongs to a form's word though it is written after it

    def equals_after(self, word: str, /) -> str:
        """Say "=" after a word."""
        ...

    def address(self, written: str, /) -> str:
        """Say a URL's domain or an e-mail address."""
        ...


# "1,000,000", "1000", "3.14"; not the full stop after a sentence's last number.
NUMBER = r"(?:\d{1,3}(?:,\d{3}){1,6}(?![\d])|\d+)(?:\.\d+)?"

_URL_CHAR = r"[^\s\0\1<>\"'`{}|\\^\[\]()\u0080-\uffff]"
_HOST = r"(?:[A-Za-z0-9-]{1,63}\.){1,6}"
_TOP_LEVEL = (
    "com|org|net|edu|gov|io|ai|dev|app|co|uk|us|de|fr|eu|kr|jp|cn|me|tv|info|biz|xyz|gg|ly|ca|au|in|ch|nl"
)
EMAIL = re.compile(rf"[A-Za-z0-9._%+-]{{1,64}}@{_HOST}[A-Za-z]{{2,24}}")
URL = re.compile(rf"(?:https?://|ftp://|www\.){_URL_CHAR}+", re.I)
DOMAIN = re.compile(rf"{_HOST}(?:{_TOP_LEVEL})(?![\w-])(?:[/?#]{_URL_CHAR}*)?")
_TRAILING = ".,;:!?*_~"


def form(pattern: str, reading: Reading, flags: int = 0) -> Form:
    """Make a row of a table."""
    return re.compile(pattern, flags), reading


def address_at(text: str, start: int) -> int:
    """Find where the URL, domain or e-mail address that begins at `start` ends; `start` if there is none."""
    for pattern in (EMAIL, URL, DOMAIN):
        found = pattern.match(text, start)
        if found:
            return start + len(found[0].rstrip(_TRAILING))
    return start


def name_of_address(written: str, names: Mapping[str, str], digits: Callable[[str], str]) -> str:
    """Say an e-mail address whole, of a URL only the host: nobody wants to hear the path."""
    host = re.sub(r"^[a-z]{3,5}://", "", written, flags=re.I)
    if "@" not in written or "/" in host.partition("@")[0]:
        host = re.split(r"[/?#:]", host, maxsplit=1)[0].removeprefix("www.")
    parts = re.findall(r"[A-Za-z]+|\d+|[.@_+-]", host)
    return " ".join(names.get(part) or (digits(part) if part.isdecimal() else part) for part in parts)
