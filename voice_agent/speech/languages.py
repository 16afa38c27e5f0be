"""Which language a piece of text is in, told by its script.

Good enough to choose a voice and a way to read numbers; does not tell English from French (both come out as the
hint's language if that one is written in Latin letters, else as English).
"""

from bisect import bisect_right

# First code point of a block, its script; a block ends where the next begins. "" is nobody's.
_BLOCKS: list[tuple[int, str]] = [
    (0x0000, ""),
    (0x0041, "latin"),
    (0x005B, ""),
    (0x0061, "latin"),
    (0x007B, ""),
    (0x00C0, "latin"),
    (0x0250, ""),
    (0x0370, "el"),
    (0x0400, "ru"),
    (0x0530, "hy"),
    (0x0590, "he"),
    (0x0600, "ar"),
    (0x0700, ""),
    (0x0750, "ar"),
    (0x0780, ""),
    (0x0900, "hi"),
    (0x0980, "bn"),
    (0x0A00, ""),
    (0x0B80, "ta"),
    (0x0C00, "te"),
    (0x0C80, ""),
    (0x0E00, "th"),
    (0x0E80, ""),
    (0x10A0, "ka"),
    (0x1100, "ko"),
    (0x1200, ""),
    (0x1E00, "latin"),
    (0x1F00, "el"),
    (0x2000, ""),
    (0x3040, "ja"),
    (0x3100, ""),
    (0x3130, "ko"),
    (0x3190, ""),
    (0x31F0, "ja"),
    (0x3200, ""),
    (0x3400, "han"),
    (0x4DC0, ""),
    (0x4E00, "han"),
    (0xA000, ""),
    (0xAC00, "ko"),
    (0xD7B0, ""),
    (0xF900, "han"),
    (0xFB00, ""),
    (0xFF21, "latin"),
    (0xFF3B, ""),
    (0xFF41, "latin"),
    (0xFF5B, ""),
    (0xFF66, "ja"),
    (0xFFA0, ""),
    (0x20000, "han"),
    (0x32000, ""),
]
_STARTS = [start for start, _ in _BLOCKS]
_LATIN_LANGUAGES = frozenset(
    (
        "en",
        "fr",
        "de",
        "es",
        "it",
        "pt",
        "nl",
        "sv",
        "da",
        "no",
        "fi",
        "pl",
        "cs",
        "tr",
        "vi",
        "id",
        "ro",
        "hu",
    )
)
# A syllable or an ideograph says as much as two or three letters: an English name inside a Korean sentence does
# not make it English, one Korean word quoted in an English sentence does not make it Korean.
_WEIGHT = {"ko": 2.5, "ja": 2.5, "han": 2.5}
_SHARE_THAT_KEEPS = 0.2


def language_of(text: str, hint: str = "en") -> str:
    """Name the language (BCP 47 primary tag) that most of the text's letters belong to.

    `hint` is the answer where there are no letters (digits, punctuation, emoji), and the choice among the
    languages of the Latin alphabet. A hint with a script of its own keeps a text that holds some of it: names and
    addresses in a Korean sentence do not make it English.
    """
    weights: dict[str, float] = {}
    for char in text:
        script = _BLOCKS[bisect_right(_STARTS, ord(char)) - 1][1]
        if script:
            weights[script] = weights.get(script, 0.0) + _WEIGHT.get(script, 1.0)
    if not weights:
        return hint
    if "han" in weights:  # ideographs beside kana are Japanese, beside hangul Korean, else Chinese
        partner = max(("ja", "ko"), key=lambda script: weights.get(script, 0.0))
        owner = partner if partner in weights else "zh"
        weights[owner] = weights.get(owner, 0.0) + weights.pop("han")
    if weights.get(hint, 0.0) >= _SHARE_THAT_KEEPS * sum(weights.values()):
        return hint
    script = max(weights, key=lambda name: weights[name])
    if script != "latin":
        return script
    return hint if hint in _LATIN_LANGUAGES else "en"
