"""The checkpoint's tokenizer (Qwen2's byte-level BPE), whole texts and texts that are still being written.

What is spoken is never read for control tokens: "<|im_end|>" in a text is six ordinary tokens, so nobody can end or
instruct a reply from inside it. Only the template around it, which is ours, has them.
"""

from pathlib import Path

import msgspec
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from voice_agent.errors import WeightsError
from voice_agent.models.qwen3_tts.prompt import Spoken

# how Qwen2 cuts text before merging: contractions, words with a leading mark, single digits, punctuation, white space
_PIECES = "|".join(
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
_ROLE = "<|im_start|>assistant\n"


class _Added(msgspec.Struct):
    content: str
    special: bool = False


class _TokenizerConfig(msgspec.Struct):
    added_tokens_decoder: dict[str, _Added]


class TextTokenizer:
    """Text to token ids; stateless, may be shared between threads."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = _read(folder)
        self._cutting = _cutting()
        self.role = self.ids(_ROLE)
        self._tokenizer.encode_special_tokens = True  # from here on: text, not templates

    def spoken(self, text: str) -> Spoken:
        """A whole text to say, white space around it removed; may have no token at all."""
        return Spoken(self.role, self.ids(text.strip()))

    def ids(self, text: str) -> list[int]:
        """Token ids of plain text."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def instruction(self, text: str) -> list[int]:
        """Token ids of a user turn that tells how to speak; none for an empty text."""
        if not text.strip():
            return []
        start, end = (self._control(name) for name in ("<|im_start|>", "<|im_end|>"))
        return [start, *self.ids(f"user\n{text}"), end, *self.ids("\n")]

    def settled(self, text: str) -> int:
        """How many leading characters of a normalized text keep their tokens whatever follows.

        A piece is settled once another has begun: cutting looks ahead, but never back.
        """
        pieces = self._cutting.pre_tokenize_str(text)
        return pieces[-1][1][0] if pieces else 0

    def normalized(self, text: str) -> str:
        """The text in the form that is tokenized (NFC)."""
        return NFC().normalize_str(text)

    def _control(self, token: str) -> int:
        found = self._tokenizer.token_to_id(token)
        if found is None:
            raise WeightsError(f"the tokenizer has no token {token}")
        return found


class TextStream:
    """A text that comes in pieces; gives the same ids as the whole text at once."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._pending = ""
        self._begun = False

    def add(self, piece: str) -> list[int]:
        """Ids that no later piece can change."""
        text = self._tokenizer.normalized(self._pending + piece)
        if not self._begun:
            text = text.lstrip()
        # white space at the end may be the text's end, which is not spoken
        cut = min(self._tokenizer.settled(text), len(text.rstrip()))
        self._pending, self._begun = text[cut:], self._begun or bool(text)
        return self._tokenizer.ids(text[:cut])

    def close(self) -> list[int]:
        """The ids of what is left."""
        rest, self._pending = self._pending.rstrip(), ""
        return self._tokenizer.ids(rest)


def _cutting() -> Sequence:
    pieces = Split(Regex(_PIECES), behavior="isolated")
    return Sequence([pieces, ByteLevel(add_prefix_space=False, use_regex=False)])


def _read(folder: Path) -> Tokenizer:
    """The tokenizer of vocab.json, merges.txt and tokenizer_config.json; raises WeightsError."""
    paths = [folder / name for name in ("vocab.json", "merges.txt", "tokenizer_config.json")]
    for path in paths:
        if not path.is_file():
            raise WeightsError(f"{path} is missing: a Qwen3-TTS folder has {path.name}")
    try:
        config = msgspec.json.decode(paths[2].read_bytes(), type=_TokenizerConfig)
    except msgspec.MsgspecError as error:
        raise WeightsError(f"{paths[2]}: {error}") from error
    tokenizer = Tokenizer(BPE.from_file(str(paths[0]), str(paths[1])))
    tokenizer.normalizer = NFC()
    tokenizer.pre_tokenizer = _cutting()
    _add_controls(tokenizer, config.added_tokens_decoder, paths[2])
    return tokenizer


def _add_controls(tokenizer: Tokenizer, added: dict[str, _Added], path: Path) -> None:
    for number, token in sorted(added.items(), key=lambda item: int(item[0])):
        tokenizer.add_special_tokens([AddedToken(token.content, special=True, normalized=False)])
        if tokenizer.token_to_id(token.content) != int(number):
            raise WeightsError(f"{path}: {token.content} should be token {number}; vocab.json does not fit")
