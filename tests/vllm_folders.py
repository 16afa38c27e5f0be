"""Small random-weight models of each Thinker family, as folders that transformers and vLLM both read."""
# pyright: reportMissingImports=false

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

from voice_agent.bench.thinker_models import CONTROL, Chat, write_tokenizer

VOCABULARY = 8192
HEAD_SCALE = 40.0  # logits of a trained model's size
HEARD, SEEN = "<|AUDIO|>", "<image>"  # the tokens that a sound and a picture stand for
MEDIA_CONTROL = (HEARD, "<|audio_bos|>", "<|audio_eos|>", SEEN, *CONTROL)
MEDIA_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>{% elif part.type == 'image' %}<image>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# Qwen2.5-Omni's, by the names that its processor asks its tokenizer for
OMNI_TOKENS = {
    "audio_token": HEARD,
    "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
    "image_token": "<|IMAGE|>",
    "video_token": "<|VIDEO|>",
    "vision_bos_token": "<|vision_bos|>",
    "vision_eos_token": "<|vision_eos|>",
}
OMNI_CONTROL = (*OMNI_TOKENS.values(), *CONTROL)
OMNI_TEMPLATE = MEDIA_TEMPLATE.replace(SEEN, "<|vision_bos|><|IMAGE|><|vision_eos|>")

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
    """Write a text model of the family; returns transformers' own, in float32, with `model` inside."""
    model = _scaled({"qwen2": _qwen2, "qwen3": _qwen3, "llama": _llama, "qwen2.5-omni": _omni}[family])
    if family == "qwen2.5-omni":
        _save_omni(model, folder)
    else:
        model.save_pretrained(folder)
    write_tokenizer(folder, VOCABULARY)
    return model


def nearest_choice(logits: Any) -> float:
    """The least by which a greedy answer's tokens were chosen; `logits` of `generate`, [1, vocabulary] a token."""
    best = torch.stack([each[0].float().topk(2).values for each in logits])  # [tokens, 2]
    return float((best[:, 0] - best[:, 1]).min())


def write_media_model(folder: Path, family: str) -> tuple[Any, Any]:
    """Write a model that hears (qwen2-audio), sees (llava) or both (qwen2.5-omni).

    Returns transformers' own and its processor. Omni's processor needs torchvision, for films.
    """
    if family == "qwen2.5-omni":
        return _write_omni_media(folder)
    model = _scaled({"qwen2-audio": _qwen2_audio, "llava": _llava}[family])
    model.save_pretrained(folder)
    _with_published_names(folder / "model.safetensors")
    write_tokenizer(folder, VOCABULARY, Chat(MEDIA_CONTROL, MEDIA_TEMPLATE))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    make = {"qwen2-audio": _hearing, "llava": _seeing}[family]
    processor = make(tokenizer)
    processor.save_pretrained(folder)
    return model, processor


def _with_published_names(file: Path) -> None:
    """transformers 5.19 writes and reads two prefixes otherwise: Qwen2-Audio's language model's, Llava's eyes'."""
    weights = {_published(name): value for name, value in load_file(file).items()}
    save_file(weights, file, {"format": "pt"})


def _published(name: str) -> str:
    name = name.replace("language_model.model.model.", "language_model.model.")
    eyes = "vision_tower.vision_model."
    return name if name.startswith(eyes) else name.replace("vision_tower.", eyes)


def _write_omni_media(folder: Path) -> tuple[Any, Any]:
    model = _scaled(lambda: _omni(VOCABULARY - len(OMNI_CONTROL)))
    _save_omni(model, folder)
    write_tokenizer(folder, VOCABULARY, Chat(OMNI_CONTROL, OMNI_TEMPLATE))
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"extra_special_tokens": OMNI_TOKENS}))
    edges = {"shortest_edge": 56 * 56, "longest_edge": 112 * 112}
    processor = transformers.Qwen2_5OmniProcessor(
        transformers.Qwen2VLImageProcessor(size=edges),
        transformers.Qwen2VLVideoProcessor(size=edges),
        transformers.WhisperFeatureExtractor(feature_size=128),
        transformers.AutoTokenizer.from_pretrained(folder),
        chat_template=OMNI_TEMPLATE,
    )
    processor.save_pretrained(folder)
    file = folder / "preprocessor_config.json"
    if file.exists():  # transformers 4 wrote its eyes over with its ears; as published, one file has both
        eyes = transformers.Qwen2VLImageProcessor(size=edges, min_pixels=56 * 56, max_pixels=112 * 112)
        file.write_text(json.dumps(eyes.to_dict() | json.loads(file.read_text())))
    return model, transformers.Qwen2_5OmniProcessor.from_pretrained(folder)


def _scaled(make: Any) -> Any:
    torch.manual_seed(7)
    model = make().eval().float()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(HEAD_SCALE)
    model.generation_config = transformers.GenerationConfig(eos_token_id=_TEXT["eos_token_id"])
    return model


def _qwen2() -> Any:
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**_TEXT))


def _qwen3() -> Any:
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**_TEXT, head_dim=32))


def _llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**_TEXT))


def _omni(first_id: int = VOCABULARY + 1) -> Any:
    """The Thinker alone; its ears and eyes are as small as they can be.

    `first_id`: of OMNI_TOKENS; by default they are such as no text has.
    """
    ids = {name: first_id + n for n, name in enumerate(OMNI_TOKENS)}
    rope = {"rope_type": "default", "type": "default", "mrope_section": [4, 6, 6]}
    config = transformers.Qwen2_5OmniThinkerConfig(
        text_config=_TEXT
        | {"rope_theta": 1e6, "rope_scaling": rope},  # as published; transformers 5 reads it too
        audio_config={
            "d_model": 32,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "encoder_layers": 1,
            "output_dim": 128,
        },
        vision_config={
            "depth": 1,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 128,
            "fullatt_block_indexes": [0],
        },
        audio_token_index=ids["audio_token"],
        image_token_index=ids["image_token"],
        video_token_index=ids["video_token"],
        audio_start_token_id=ids["audio_bos_token"],
        audio_end_token_id=ids["audio_eos_token"],
        vision_start_token_id=ids["vision_bos_token"],
        vision_end_token_id=ids["vision_eos_token"],
    )
    return transformers.Qwen2_5OmniThinkerForConditionalGeneration(config)


def _save_omni(model: Any, folder: Path) -> None:
    """As the published folders are: the Thinker under its own prefix, with Talker and vocoder left out."""
    config = transformers.Qwen2_5OmniConfig(
        thinker_config=model.config.to_dict(),
        enable_audio_output=False,
        architectures=["Qwen2_5OmniModel"],
        dtype="float32",
    )
    config.save_pretrained(folder)
    weights = {f"thinker.{name}": value.contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def _qwen2_audio() -> Any:
    config = transformers.Qwen2AudioConfig(
        audio_config={
            "d_model": 32,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "encoder_layers": 2,
        },
        text_config=_TEXT,
        audio_token_index=VOCABULARY - len(MEDIA_CONTROL),
    )
    return transformers.Qwen2AudioForConditionalGeneration(config)


def _llava() -> Any:
    config = transformers.LlavaConfig(
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
        },
        text_config=_TEXT,
        image_token_index=VOCABULARY - len(MEDIA_CONTROL) + MEDIA_CONTROL.index(SEEN),
        image_seq_length=16,
    )
    return transformers.LlavaForConditionalGeneration(config)


def _hearing(tokenizer: Any) -> Any:
    ears = transformers.WhisperFeatureExtractor(feature_size=128)
    return transformers.Qwen2AudioProcessor(ears, tokenizer, chat_template=MEDIA_TEMPLATE)


def _seeing(tokenizer: Any) -> Any:
    square = {"height": 32, "width": 32}
    # transformers 5 has two, and the other wants torchvision
    eyes_of = getattr(transformers, "CLIPImageProcessorPil", None) or transformers.CLIPImageProcessor
    eyes = eyes_of(size={"shortest_edge": 32}, crop_size=square)
    return transformers.LlavaProcessor(
        eyes,
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=MEDIA_TEMPLATE,
        image_token=SEEN,
    )
