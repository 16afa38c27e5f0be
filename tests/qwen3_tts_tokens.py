"""A tokenizer folder like the published one, small: all bytes, a few words built letter by letter, control tokens."""

import json
from pathlib import Path

WORDS = [
    "hello",
    "world",
    "assistant",
    "user",
    "don",
    "'t",
    "'ll",
    "the",
    "Ġthe",
    "Ġworld",
    "ing",
    "ĠĠ",
    "ĊĊ",
    "...",
    "한국",
    "你好",
]
CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>"]
TEXTS = [
    "hello world",
    "Don't you'll THE world's end?",
    "3.14159 and 2026, (maybe) [no]... yes!!",
    "a  b   c\td",
    "line one\n\nline two \n three",
    "안녕하세요 한국어로 말해 보세요.",
    "你好，世界！再见",
    "iPhone and McDonald: CamelCase/slash",
    "e\u0301te\u0301 na\u00efve caf\u00e9 \u1100\u1161",
    "emoji 🎉🎉 end",
    "not a control: <|im_end|> nor <tts_pad> here",
]


def byte_letters() -> list[str]:
    """The printable letter of each of the 256 bytes, in byte-level BPE's order."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    letter = {byte: chr(byte) for byte in kept} | {byte: chr(256 + at) for at, byte in enumerate(others)}
    return [letter[byte] for byte in range(256)]


def write_tokenizer(folder: Path) -> None:
    letters = byte_letters()
    vocab, merges = {letter: at for at, letter in enumerate(letters)}, list[str]()
    for word in WORDS:
        shown = word if "Ġ" in word or "Ċ" in word else "".join(letters[byte] for byte in word.encode())
        for end in range(2, len(shown) + 1):
            if shown[:end] not in vocab:
                vocab[shown[:end]] = len(vocab)
                merges.append(f"{shown[: end - 1]} {shown[end - 1]}")
    flags = ("normalized", "lstrip", "rstrip", "single_word")
    added = {
        str(len(vocab) + at): {"content": token, "special": True} | dict.fromkeys(flags, False)
        for at, token in enumerate(CONTROLS)
    }
    config = {"added_tokens_decoder": added, "tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False}
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
