"""Remembered pieces give exactly the tokens of the whole text, whatever the tokenizer."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from voice_agent.bench.thinker_models import CONTROL, prompt, write_tokenizer
from voice_agent.models.text_tokens import TextTokens

LETTERS = " \nabcdefghijklmnopqrstuvwxyz"


class Counted:
    """A real tokenizer that writes down what it was given to encode."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def encode(self, text: str, **how: Any) -> Any:
        self.asked.append(text)
        return self.tokenizer.encode(text, **how)

    def encode_batch_fast(self, texts: list[str], **how: Any) -> Any:
        self.asked += texts
        return self.tokenizer.encode_batch_fast(texts, **how)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder, 2_000)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture
def counted(tokenizer: Tokenizer) -> Counted:
    return Counted(tokenizer)


def by_letter() -> Tokenizer:
    """One token a character."""
    vocabulary = {letter: number for number, letter in enumerate(f"{LETTERS}▁?.,çÇGA")}
    return Tokenizer(models.BPE(vocabulary, [], unk_token="?"))


def with_marks(tokenizer: Tokenizer, **how: Any) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken("<s>", special=True, normalized=False, **how)])
    return tokenizer


def changed(change: Callable[[Tokenizer], object], **how: Any) -> Tokenizer:
    tokenizer = with_marks(by_letter(), **how)
    change(tokenizer)
    return tokenizer


def plainly(tokenizer: Any, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


TEXTS = st.lists(
    st.one_of(st.sampled_from(CONTROL), st.text(max_size=12), st.sampled_from([" ", "<|im_", "end|>", "\n"])),
    max_size=12,
).map("".join)


@settings(max_examples=300)
@given(texts=st.lists(TEXTS, max_size=5))
def test_pieces_give_the_tokens_of_the_whole(tokenizer: Tokenizer, texts: list[str]) -> None:
    tokens = TextTokens(tokenizer, most_chars=40)  # with much to forget
    for _ in range(2):
        assert tokens.of(texts) == [plainly(tokenizer, text) for text in texts]


ODD = {
    "a mark at each text's begin": changed(
        lambda t: setattr(t, "pre_tokenizer", pre_tokenizers.Metaspace(prepend_scheme="first"))
    ),
    "a space before each piece": changed(lambda t: setattr(t, "normalizer", normalizers.Prepend("▁"))),
    "a special token that takes the space before it": changed(lambda _: None, lstrip=True),
    "a special token that takes the space after it": changed(lambda _: None, rstrip=True),
    "a special token that stands alone": changed(lambda _: None, single_word=True),
    "special tokens that are read as text": changed(lambda t: setattr(t, "encode_special_tokens", True)),
    "texts that are cut off": changed(lambda t: t.enable_truncation(5)),
    "no special token": by_letter(),
}


@pytest.mark.parametrize("name", ODD)
def test_so_it_is_with_any_tokenizer(name: str) -> None:
    tokenizer = ODD[name]
    tokens = TextTokens(tokenizer)
    texts = ["good <s> day <s>now", "good <s>", "<s><s> a", "a<s>b", "", "ab", " ab"]
    for _ in range(2):
        assert tokens.of(texts) == [plainly(tokenizer, text) for text in texts]


def chat(*turns: str) -> str:
    return "".join(f"<|im_start|>user\n{turn}<|im_end|>\n" for turn in turns)


def test_of_a_conversation_that_goes_on_only_its_end_is_encoded(counted: Counted) -> None:
    tokens = TextTokens(counted)
    tokens.of([chat("Good morning.", "How are you?")])
    counted.asked.clear()
    longer = chat("Good morning.", "How are you?", "And now?")
    assert tokens.unknown_chars(longer) == len("user\nAnd now?")
    assert tokens.of([longer]) == [plainly(counted.tokenizer, longer)]
    assert counted.asked == ["user\nAnd now?"]
    assert tokens.unknown_chars(longer) == 0


def test_what_several_have_in_common_is_encoded_once(counted: Counted) -> None:
    tokens = TextTokens(counted)
    counted.asked.clear()
    tokens.of([chat("Be brief.", prompt(20, number)) for number in range(3)])
    assert len(counted.asked) == len(set(counted.asked)) == 5  # three, theirs in common, the line's end


def test_what_was_not_used_longest_is_forgotten(counted: Counted) -> None:
    tokens = TextTokens(counted, most_chars=30)
    for piece in ("first one", "second one", "third one"):
        tokens.of([f"<|im_start|>{piece}"])
    tokens.of(["<|im_start|>first one"])  # used again
    tokens.of(["<|im_start|>fourth one"])
    assert [tokens.unknown_chars(piece) for piece in ("first one", "second one", "third one")] == [0, 10, 0]


def test_one_that_is_longer_than_all_that_is_kept_is_encoded_all_the_same(counted: Counted) -> None:
    tokens, text = TextTokens(counted, most_chars=10), prompt(40, 1)
    for _ in range(2):
        assert tokens.of([text]) == [plainly(counted, text)]


def test_any_thread_may_ask(tokenizer: Tokenizer) -> None:
    tokens, wrong = TextTokens(tokenizer, most_chars=500), list[str]()
    texts = [chat(*(prompt(20, seed % 7 + n) for n in range(5))) for seed in range(40)]
    right = [plainly(tokenizer, text) for text in texts]

    def ask(start: int) -> None:
        for number in range(start, start + len(texts)):
            at = number % len(texts)
            if tokens.of([texts[at]]) != [right[at]]:
                wrong.append(texts[at])

    threads = [threading.Thread(target=ask, args=[start]) for start in (0, 10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
