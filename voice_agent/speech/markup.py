"""Hide what is written but never said: Markdown, tags, emoji, control characters, fenced code.

`Markup.hide` returns a text of the same length, so every character keeps its place in the reply: hidden characters
become HIDDEN, a fenced code block becomes one CODE_BLOCK mark, tables' bars become commas. Only constructs that are
surely markup are hidden: `2*3`, `5 < 10` and `a<b>c` stay. Markdown as in CommonMark 0.31, as far as models write it.

Fences and line starts reach over clauses, so one Markup follows one reply.
"""

import re

HIDDEN = "\0"
CODE_BLOCK = "\1"

_FENCE = re.compile(r"[ \t]*(?:```[^`\n]*|~~~[^\n]*)\n?")
_TAG_NAMES = (
    "b|i|u|s|p|a|em|strong|br|hr|code|pre|sub|sup|span|div|ul|ol|li|h[1-6]|img|table|tr|td|th|del|small"
)
# A line's start is a lookbehind for the line's end: the text before is there as one character of context.
_LINE = r"(?<=\n)[ \t]*"
_RULES = [
    re.compile(pattern)
    for pattern in (
        _LINE + r"(?:[-*_=][ \t]*){3,}(?=\n|$)",  # a rule, or a heading's underline
        _LINE + r"(?:\|[ \t]*)?:?-{2,}[-:| \t]*(?=\n|$)",  # between a table's head and body
        _LINE + r"(?:>[ \t]?){1,5}",
        _LINE + r"#{1,6}(?=[ \t])",
        _LINE + r"[-*+•·‣▪](?=[ \t])(?:[ \t]+\[[ xX]\])?",
        r"!?\[\^[^\]\n]{1,20}\]:?",  # a footnote
        r"!(?=\[)",
        r"\]\((?:[^()\n]|\([^()\n]*\)){0,2000}\)?",  # a link's target; cut short, it is still no speech
        r"(?<=\])\[[^\]\n]{0,100}\]",
        rf"</(?:{_TAG_NAMES})\s*>",
        rf"(?<!\w)<(?:{_TAG_NAMES})(?:\s[^<>\n]{{0,500}})?/?>",
        r"<!--[^\n]{0,500}?-->",
        r"\\(?=[\\`*_{}\[\]()#+\-.!|~<>$])",
        r"\$\$|~~",
        r"(?<![\w*])\*{1,3}(?=[^\s*])",  # emphasis opens
        r"(?<=[^\s*])\*{1,3}(?![\w*])",  # and closes
        r"(?<=[^\W\d])\*{1,3}(?=[^\W\d]{2})|(?<=[^\W\d]{2})\*{1,3}(?=[^\W\d])",  # inside a word, but not a*b
        r"(?<!\w)_{1,3}(?=\w)|(?<=[^\W_])_{1,3}(?!\w)|(?<=\s)_{1,3}(?=[^\s\w])|_{2,}",
        r"(?<!\S)[:;=8xX][-']?[()DPpOo/|3*\]\[](?=[\s.,!?]|$)",  # :) and its kin
        r"`+",
    )
]
_JOINING = re.compile("[\u00ad\u200b\u2060\ufe0e\ufe0f\ufeff]+")  # stands inside words without parting them
_SILENT = re.compile(
    "[\\x02-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\u200e\u200f\u2028-\u202e\u2061-\u206f\ufff9-\uffff"
    "\u20e3\u2300-\u23ff\u2460-\u27bf\u2b00-\u2bff\u3030\u303d\u3297\u3299\ue000-\uf8ff\ud800-\udfff"
    "\u00a9\u00ae\u2122\U0001f000-\U0001faff\U000e0000-\U0010ffff]+|(?<!\\w)[\u200c\u200d]|[\u200c\u200d](?!\\w)"
)
_BREAK_TAG = re.compile(r"<(?:br|hr)\s{0,3}/?>")
_AUTOLINK = re.compile(r"<(https?://[^\s<>]{1,2000}|[^\s<>@]{1,64}@[^\s<>@]{1,255})>")
_ENTITY = re.compile(r"&(amp|lt|gt|quot|apos|nbsp|#39);")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "nbsp": " ", "#39": "'"}
_NUMBERED = re.compile(_LINE + r"\(?\d{1,3}([.)])(?=[ \t])")
_SNAKE = re.compile(r"(?<=\w)_(?=\w)")


class Markup:
    """Follows one reply clause by clause."""

    def __init__(self) -> None:
        self._in_fence = False
        self._previous = "\n"  # the character before the clause; a reply begins like a line

    def hide(self, text: str) -> str:
        """Return the clause with everything unspoken hidden; as long as `text`."""
        text = text.replace(HIDDEN, " ").replace(CODE_BLOCK, " ")
        shown = self._hide_fences(text)
        shown = self._previous + shown
        shown = _BREAK_TAG.sub(lambda m: ",".ljust(len(m[0]), HIDDEN), shown)
        shown = _AUTOLINK.sub(lambda m: f"{HIDDEN}{m[1]} ", shown)
        for rule in _RULES:
            shown = rule.sub(_hidden, shown)
        shown = _NUMBERED.sub(_pause_after_number, shown)
        shown = _ENTITY.sub(lambda m: _ENTITIES[m[1]].ljust(len(m[0]), HIDDEN), shown)
        shown = _SNAKE.sub(" ", shown)[1:].replace("|", ",")
        self._previous = text[-1:] or self._previous
        shown = _JOINING.sub(_hidden, shown)
        return _SILENT.sub(lambda m: " " * len(m[0]), shown)

    def _hide_fences(self, text: str) -> str:
        lines: list[str] = []
        at_start = self._previous == "\n"
        for line in text.splitlines(keepends=True) if "\n" in text else [text]:
            is_fence = at_start and _FENCE.fullmatch(line) is not None
            if is_fence and not self._in_fence:
                lines.append(CODE_BLOCK + HIDDEN * (len(line) - 1))
            else:
                lines.append(HIDDEN * len(line) if is_fence or self._in_fence else line)
            self._in_fence = self._in_fence != is_fence
            at_start = line.endswith("\n")
        return "".join(lines)


def _hidden(found: re.Match[str]) -> str:
    return HIDDEN * len(found[0])


def _pause_after_number(found: re.Match[str]) -> str:
    """A list's number is said ("one,"), its full stop is not the end of a sentence."""
    return found[0][:-1] + ","
