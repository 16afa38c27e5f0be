"""What the Talker is told before it speaks: rows of text tokens and codes, as the published models were trained.

Every row is a text token's embedding plus a code's; a prompt is a list of such pairs and the text that follows, one
token a frame. Pure: ids in, ids out; `embed` alone touches weights. Knows no tokenizer (see text).
    role (3) | think, language | voice | begin | first text token over codec_bos     then a text token each frame
Source: the published generate() of Qwen3-TTS (CustomVoice, VoiceDesign and Base).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from voice_agent.errors import EngineError, UnsupportedLanguage
from voice_agent.models.qwen3_tts.code_predictor import CodePredictor
from voice_agent.models.qwen3_tts.config import ModelConfig, TalkerConfig
from voice_agent.models.qwen3_tts.talker import Talker

AUTO = "auto"
ISO_639 = {
    "zh": "chinese",
    "en": "english",
    "de": "german",
    "it": "italian",
    "pt": "portuguese",
    "es": "spanish",
    "ja": "japanese",
    "ko": "korean",
    "fr": "french",
    "ru": "russian",
}


class Row(NamedTuple):
    """A prompt's row: a text token, a code of the Talker's table, or both."""

    text: int | None
    code: int | None


@dataclass(frozen=True)
class Spoken:
    """Token ids of what is to be said, cut out of the chat template."""

    role: list[int]  # of "<|im_start|>assistant\n"
    text: list[int]  # at least one


@dataclass(frozen=True)
class Clone:
    """A voice taken from a clip: its speaker vector, and for in-context cloning its codes and its text."""

    speaker: Tensor  # [H]
    codes: Tensor | None = None  # [n, 16]
    text: list[int] = field(default_factory=list[int])


@dataclass(frozen=True)
class Prompt:
    """Rows to prefill and the text tokens that follow, one a frame; after them comes tts_pad for ever.

    The first `shared` rows depend on voice and language alone: their keys and values can be kept and copied.
    """

    rows: list[Row]
    following: list[int]
    shared: int = 0
    speaker_row: int | None = None  # the row that `clone.speaker` is added to
    reference_row: int | None = None  # the first row that `clone.codes` are added to
    clone: Clone | None = None


@dataclass(frozen=True)
class Manner:
    """How a text is spoken. `voice` is a preset's name; None with a clone or a designed voice.

    `whole_text` puts all text before the first frame, which the published wrapper does by default; without it text
    may still be coming while the Talker speaks.
    """

    voice: str | None = None
    language: str = AUTO
    instruction: list[int] = field(default_factory=list[int])  # token ids of the user turn
    clone: Clone | None = None
    whole_text: bool = False


def build_prompt(config: ModelConfig, spoken: Spoken, manner: Manner) -> Prompt:
    """The prompt of one reply; raises EngineError (unknown_voice, unsupported_instruction, no_text) or
    UnsupportedLanguage."""
    if not spoken.text:
        raise EngineError("there is no text to speak", code="no_text")
    if manner.instruction and config.tts_model_size == "0b6":
        raise EngineError("the 0.6B model takes no instruction", code="unsupported_instruction")
    talker, pad = config.talker_config, config.tts_pad_token_id
    control = [*_language_codes(talker, manner), *_voice_codes(talker, manner), talker.codec_pad_id]
    texts = [pad] * (len(control) - 1) + [config.tts_bos_token_id]
    head = [Row(token, None) for token in (*manner.instruction, *spoken.role)]
    speaker_row = len(head) + len(control) - 2 if manner.clone else None
    head += [Row(text, code) for text, code in zip(texts, control, strict=True)]
    shared = 0 if manner.clone or manner.instruction else len(head)
    clone = manner.clone
    if clone and clone.codes is not None:
        body, following = _in_context(config, spoken, clone, manner.whole_text)
        reference_row = len(head) + len(body) - len(clone.codes) if manner.whole_text else len(head) + 1
    else:
        (body, following), reference_row = _plain(config, spoken, manner.whole_text), None
    return Prompt(head + body, following, shared, speaker_row, reference_row, clone)


def language_id(config: TalkerConfig, language: str, voice: str | None) -> int | None:
    """The language's code, None for auto; a dialect speaker's own where the text is Chinese or unsaid.

    `language` is a name as in the configuration, an ISO 639-1 code or auto.
    """
    language = ISO_639.get(language.lower(), language.lower())
    dialect = config.spk_is_dialect.get(voice.lower()) if voice else None
    if isinstance(dialect, str) and language in ("chinese", AUTO):
        return config.codec_language_id[dialect]
    if language == AUTO:
        return None
    if language not in config.codec_language_id:
        known = ", ".join(name for name in config.codec_language_id if "dialect" not in name)
        raise UnsupportedLanguage(f"no language {language!r} here: auto, {known}")
    return config.codec_language_id[language]


def _language_codes(config: TalkerConfig, manner: Manner) -> list[int]:
    language = language_id(config, manner.language, manner.voice)
    if language is None:
        return [config.codec_nothink_id, config.codec_think_bos_id, config.codec_think_eos_id]
    return [config.codec_think_id, config.codec_think_bos_id, language, config.codec_think_eos_id]


def _voice_codes(config: TalkerConfig, manner: Manner) -> list[int | None]:
    """The code of the voice's row; None stands for a row that gets a speaker vector."""
    if manner.clone:
        return [None]
    if not manner.voice:
        return []
    if manner.voice.lower() not in config.spk_id:
        raise EngineError(f"no voice {manner.voice!r} here: {', '.join(config.spk_id)}", code="unknown_voice")
    return [config.spk_id[manner.voice.lower()]]


def _plain(config: ModelConfig, spoken: Spoken, whole_text: bool) -> tuple[list[Row], list[int]]:
    talker, text = config.talker_config, [*spoken.text, config.tts_eos_token_id]
    if not whole_text:
        return [Row(text[0], talker.codec_bos_id)], text[1:]
    rows = [Row(token, talker.codec_pad_id) for token in text]
    return [*rows, Row(config.tts_pad_token_id, talker.codec_bos_id)], []


def _in_context(
    config: ModelConfig, spoken: Spoken, clone: Clone, whole_text: bool
) -> tuple[list[Row], list[int]]:
    """Reference text and new text over the reference's codes, whose embeddings `embed` adds later."""
    talker, pad = config.talker_config, config.tts_pad_token_id
    text = [*clone.text, *spoken.text, config.tts_eos_token_id]
    count = 0 if clone.codes is None else len(clone.codes)
    codes: list[int | None] = [talker.codec_bos_id, *[None] * count]
    if whole_text:
        rows = [Row(token, talker.codec_pad_id) for token in text]
        return rows + [Row(pad, code) for code in codes], []
    under = text[: len(codes)] + [pad] * (len(codes) - len(text))
    return [Row(*pair) for pair in zip(under, codes, strict=True)], text[len(codes) :]


def embed(talker: Talker, code_predictor: CodePredictor, prompt: Prompt) -> Tensor:
    """A prompt's rows [n, H]."""
    device, clone = talker.norm.device, prompt.clone
    texts = torch.tensor([-1 if row.text is None else row.text for row in prompt.rows], device=device)
    codes = torch.tensor([-1 if row.code is None else row.code for row in prompt.rows], device=device)
    rows = talker.text(texts.clamp(min=0)) * (texts >= 0)[:, None]
    rows = rows + talker.codec_embedding[codes.clamp(min=0)] * (codes >= 0)[:, None]
    if clone and prompt.speaker_row is not None:
        rows[prompt.speaker_row] += clone.speaker.to(rows)
    if clone and clone.codes is not None and prompt.reference_row is not None:
        reference, begin = clone.codes.to(device), prompt.reference_row
        frames = talker.codec_embedding[reference[:, 0]] + code_predictor.sum_rows(reference)
        rows[begin : begin + len(reference)] += frames
    return rows
