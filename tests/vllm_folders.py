"""Small random-weight models of each Thinker family, as folders that transformers and vLLM both read."""
# pyright: reportMissingImports=false

from pathlib import Path
from typing import Any

import torch
import transformers

from voice_agent.bench.thinker_models import write_tokenizer

VOCABULARY = 8192
HEAD_SCALE = 40.0  # logits so far apart that rounding never changes the greedy choice

_TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": VOCABULARY - 1,  # <|im_end|>
}


def write_model(folder: Path, family: str) -> Any:
    """Write a model of the family; returns transformers' own, in float32."""
    torch.manual_seed(7)
    make = {"qwen2": _qwen2, "qwen3": _qwen3, "llama": _llama}[family]
    model = make().eval().float()
    with torch.no_grad():
        model.lm_head.weight.mul_(HEAD_SCALE)
    model.generation_config = transformers.GenerationConfig(eos_token_id=_TEXT["eos_token_id"])
    model.save_pretrained(folder)
    write_tokenizer(folder, VOCABULARY)
    return model


def _qwen2() -> Any:
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**_TEXT))


def _qwen3() -> Any:
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**_TEXT, head_dim=32))


def _llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**_TEXT))
