"""What a model without weights writes through the spoken vocabulary: everyday words in their own proportion."""

import random
from collections import Counter
from pathlib import Path

import pytest

from voice_agent.bench.sentences import SENTENCES
from voice_agent.bench.spoken_vocabulary import LONGEST_PIECE, english_pieces, spoken_tokens
from voice_agent.bench.thinker_models import CONTROL, main
from voice_agent.speech.clauses import ClauseSplitter

tokenizers = pytest.importorskip("tokenizers")


def test_no_piece_is_named_twice_and_each_stands_as_often_as_in_english() -> None:
    tokens = spoken_tokens(50_000)
    assert len(set(tokens)) == len(tokens)
    words = Counter(word.strip(".,?!") for sentence in SENTENCES for word in sentence.split())
    shown = Counter(token.rstrip("".join(map(chr, range(0xE000, 0xF000)))) for token in tokens)
    share = shown[" the"] / len(tokens)
    assert share == pytest.approx(words["the"] / len(english_pieces()), rel=0.05)


def test_what_is_drawn_reads_as_words_and_sentences(tmp_path: Path) -> None:
    assert main([str(tmp_path), "--shape", "tiny", "--spoken"]) == 0
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    draw = random.Random(7)
    text = tokenizer.decode([draw.randrange(1000, size - len(CONTROL)) for _ in range(2_000)])
    assert text.isascii() and 6 < len(text.split()) / text.count(".") < 25
    words = [word.strip(".,?!") for word in text.split()]
    assert sum(len(word) <= 2 * LONGEST_PIECE for word in words) > 0.95 * len(words)
    splitter = ClauseSplitter()
    clauses = [clause for word in text.split() for clause in splitter.push(f"{word} ")]
    assert len(clauses) > 50


def test_its_prompts_are_encoded_and_come_back(tmp_path: Path) -> None:
    main([str(tmp_path), "--shape", "tiny", "--spoken"])
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    said = "How many days are there in a week? \u00fc"
    assert tokenizer.decode(tokenizer.encode(said).ids) == said
