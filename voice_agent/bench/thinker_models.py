"""Model folders for measuring a Thinker without any weights: exact shapes, and a tokenizer that works as real ones do.

A folder holds config.json and a byte-level BPE with the shape's vocabulary: all two-letter and many four-letter words
are tokens, so an encode does real merges and (almost) every id is readable ASCII, whatever a random model picks. The
weights are vLLM's dummies (load_format "dummy"). Source of the shapes: the models' config.json as published.

`python -m voice_agent.bench.thinker_models FOLDER --shape qwen3-8b --spoken` writes one for a server whose answers are
spoken: see spoken_vocabulary.
"""

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voice_agent.bench import arguments
from voice_agent.bench.spoken_vocabulary import CUT, spoken_tokens

LETTERS = "abcdefghijklmnopqrstuvwxyz"
CONTROL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
)  # the vocabulary's last ones; every id before is text
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "head_dim": 128,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 40960,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000,
    "dtype": "bfloat16",
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 151936,
}
_OMNI_TEXT: dict[str, Any] = {
    "model_type": "qwen2_5_omni_text",
    "hidden_act": "silu",
    "hidden_size": 3584,
    "initializer_range": 0.02,
    "intermediate_size": 18944,
    "max_position_embeddings": 32768,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {"mrope_section": [16, 24, 24], "rope_type": "default", "type": "default"},
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "vocab_size": 152064,
}
_OMNI_AUDIO: dict[str, Any] = {
    "model_type": "qwen2_5_omni_audio_encoder",
    "d_model": 1280,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "encoder_layers": 32,
    "num_mel_bins": 128,
    "max_source_positions": 1500,
    "n_window": 100,
    "output_dim": 3584,
}
_OMNI_VISION: dict[str, Any] = {
    "model_type": "qwen2_5_omni_vision_encoder",
    "depth": 32,
    "embed_dim": 1280,
    "fullatt_block_indexes": [7, 15, 23, 31],
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "out_hidden_size": 3584,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "spatial_patch_size": 14,
    "temporal_patch_size": 2,
    "tokens_per_second": 25,
    "window_size": 112,
}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-1.7b": _QWEN3
    | {
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "tie_word_embeddings": True,
    },
    "qwen3-8b": _QWEN3
    | {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_hidden_layers": 36,
        "tie_word_embeddings": False,
    },
    "qwen2.5-omni-7b": {
        "architectures": ["Qwen2_5OmniModel"],
        "model_type": "qwen2_5_omni",
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "enable_audio_output": False,
        "thinker_config": {
            "model_type": "qwen2_5_omni_thinker",
            "audio_token_index": 151646,
            "audio_start_token_id": 151647,
            "audio_end_token_id": 151648,
            "image_token_index": 151655,
            "video_token_index": 151656,
            "vision_start_token_id": 151652,
            "vision_end_token_id": 151653,
            "position_id_per_seconds": 25,
            "seconds_per_chunk": 2,
            "text_config": _OMNI_TEXT,
            "audio_config": _OMNI_AUDIO,
            "vision_config": _OMNI_VISION,
        },
    },
    "tiny": _QWEN3
    | {
        "hidden_size": 64,
        "intermediate_size": 128,
        "head_dim": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_hidden_layers": 2,
        "tie_word_embeddings": True,
        "vocab_size": 8192,
    },
}


@dataclass(frozen=True)
class Chat:
    """How a folder's conversations read: the last tokens of its vocabulary, which are no text, and the template."""

    control: Sequence[str] = CONTROL
    template: str = TEMPLATE


PLAIN = Chat()


def main(argv: Sequence[str]) -> int:
    """Write one folder."""
    parser = arguments.parser("python -m voice_agent.bench.thinker_models", (__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="where it is written; made if it is not there")
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-8b")
    parser.add_argument(
        "--layers", type=arguments.whole(0), default=0, help="so many, instead of the shape's own"
    )
    parser.add_argument("--spoken", action="store_true", help="whatever is drawn reads like everyday English")
    options = parser.parse_args(argv)
    try:
        print(write_folder(options.folder, options.shape, options.layers, spoken=options.spoken))
    except OSError as error:
        parser.error(f"FOLDER: {options.folder} cannot be written: {error.strerror}")
    return 0


def write_folder(folder: Path, shape: str, layers: int = 0, *, spoken: bool = False) -> Path:
    """Write the shape's folder; `layers` above 0 makes it so many layers deep. Raises KeyError for an unknown shape."""
    config = json.loads(json.dumps(SHAPES[shape]))
    text = config["thinker_config"]["text_config"] if "thinker_config" in config else config
    text["num_hidden_layers"] = layers or text["num_hidden_layers"]
    folder.mkdir(parents=True, exist_ok=True)
    config["transformers_version"] = "4.57.6"
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, text["vocab_size"], spoken=spoken)
    return folder


def hidden_size(folder: Path) -> int:
    """Of the Thinker that a folder's config.json describes."""
    config = json.loads((folder / "config.json").read_text())
    config = config.get("thinker_config", config)
    return int(config.get("text_config", config)["hidden_size"])


def write_tokenizer(folder: Path, vocabulary: int, chat: Chat = PLAIN, *, spoken: bool = False) -> None:
    """A byte-level BPE of so many tokens, the last of them the control tokens, and a chat template.

    `spoken`: only letters and pairs of them merge, and all ids behind them are words (spoken_vocabulary).
    """
    tokens = [*_byte_letters().values()]
    merges: list[tuple[str, str]] = []
    first_special = vocabulary - len(chat.control)
    pairs = [left + right for left in LETTERS for right in LETTERS]
    parts = [(pair[0], pair[1]) for pair in pairs]
    parts += [] if spoken else [(left, right) for left in pairs for right in pairs]
    for left, right in parts[: first_special - len(tokens)]:
        merges.append((left, right))
        tokens.append(left + right)
    letters = _byte_letters()
    for text in spoken_tokens(first_special - len(tokens) if spoken else 0):
        tokens.append("".join(letters.get(ord(char), char) for char in text))
    added = [
        {"id": first_special + n, "content": text, "special": True} for n, text in enumerate(chat.control)
    ]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    whole = {
        "version": "1.0",
        "added_tokens": [token | flags for token in added],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False},
                byte_level,
            ],
        },
        "post_processor": byte_level,
        "decoder": {"type": "Sequence", "decoders": [CUT, byte_level]} if spoken else byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: n for n, token in enumerate(tokens)},
            "merges": [f"{left} {right}" for left, right in merges],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(whole, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "Qwen2TokenizerFast",
                "chat_template": chat.template,
                "eos_token": "<|im_end|>",
                "pad_token": "<|endoftext|>",
                "model_max_length": 131072,
            }
        )
    )


def prompt(tokens: int, seed: int) -> str:
    """Text of so many tokens, two a word (its space, and four letters); no two seeds' begin alike."""
    chance = random.Random(seed)
    return "".join(f" a{''.join(chance.choices(LETTERS, k=3))}" for _ in range(tokens // 2))


def _byte_letters() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {byte: chr(256 + n) for n, byte in enumerate(rest)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
