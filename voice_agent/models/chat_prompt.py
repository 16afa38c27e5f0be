"""A conversation in OpenAI's chat form as the prompt of a Hugging Face model: its own template, its own tokens.

Sound and pictures in a message's content become what the template knows them as, and travel beside the tokens. Pure
but for the tokenizer it is handed; knows no engine. A template may lie with the model's processor: the tokenizer
renders that too, for some processors look into the messages first and take no text for a content. Source: OpenAI's
chat completions (input_audio, image_url), transformers' chat templates.
"""
# pyright: reportMissingImports=false

import base64
import binascii
import contextlib
import io
import json
import wave
from typing import Any, cast

import numpy as np

from voice_agent.errors import EngineError
from voice_agent.models.text_tokens import TextTokens

Message = dict[str, Any]
_DATA_URL = "data:"
MAX_PARTS = 64
PROBE = "Good morning."


class ChatPrompt:
    """One model's way from messages to tokens; any thread."""

    def __init__(self, tokenizer: Any, processor: Any = None) -> None:
        self._tokenizer = tokenizer
        fast = getattr(tokenizer, "backend_tokenizer", None)  # a tokenizers.Tokenizer, if the model has one
        self.fast = TextTokens(fast) if fast is not None else None
        self._reads_only = processor is None
        template = _template_of(processor)
        self._rendering: dict[str, Any] = {"chat_template": template} if template else {}
        self._reads_texts = self._shows_a_text()

    @property
    def can_be_guided(self) -> bool:
        """Whether an answer can be held to a schema: what does it must know the tokens' bytes."""
        return self.fast is not None

    def of(self, messages: list[Message], tools: list[dict[str, Any]]) -> dict[str, Any]:
        """`prompt_token_ids`, and `multi_modal_data` if there is any. Raises EngineError (invalid_request)."""
        text, media = self.text(messages, tools)
        self.take(media)
        prompt: dict[str, Any] = {"prompt_token_ids": self.encode(text)}
        if media:
            prompt["multi_modal_data"] = media
        return prompt

    def tokens(self, messages: list[Message], tools: list[dict[str, Any]]) -> list[int]:
        """The tokens alone; a sound or a picture counts as its placeholder, before the model widens it."""
        return self.encode(self.text(messages, tools)[0])

    def text(self, messages: list[Message], tools: list[dict[str, Any]]) -> tuple[str, dict[str, list[Any]]]:
        """What the template makes of it, and the media in order. Raises EngineError (invalid_request)."""
        media: dict[str, list[Any]] = {}
        told = [_told(message, media) for message in messages]
        try:
            text = self._rendered(
                told if self._reads_texts else [_in_parts(message) for message in told], tools
            )
        except Exception as error:  # noqa: BLE001 - a template is foreign code: jinja's errors and any other
            raise _refused(f"the model's chat template refuses the conversation: {error}") from error
        return text, media

    def _rendered(self, told: list[Message], tools: list[dict[str, Any]]) -> str:
        return self._tokenizer.apply_chat_template(
            told, tools=tools or None, tokenize=False, add_generation_prompt=True, **self._rendering
        )

    def _shows_a_text(self) -> bool:
        """Whether the template shows a content that is a bare text; some see parts alone and drop it without a word."""
        try:
            return PROBE in self._rendered([{"role": "user", "content": PROBE}], [])
        except Exception:  # noqa: BLE001 - as above; one that refuses parts too says so at the first request
            return False

    def take(self, media: dict[str, list[Any]]) -> None:
        """Raises EngineError (invalid_request) if the model has no use for such media."""
        if media and self._reads_only:
            raise _refused(f"this model takes text alone: it has no use for {' and '.join(sorted(media))}")

    def encode(self, text: str) -> list[int]:
        """A text's tokens, nothing added."""
        if self.fast is not None:  # twice as fast as the wrapper around it, and the same tokens
            return self.fast.of([text])[0]
        return self._tokenizer.encode(text, add_special_tokens=False)


def _template_of(processor: Any) -> str | None:
    """A model with ears and eyes may keep its template with them; of several, the one for talking."""
    template = getattr(processor, "chat_template", None)
    return template.get("default") if isinstance(template, dict) else template


def _in_parts(told: Message) -> Message:
    """The same message, its text as a part."""
    content = told["content"]
    if isinstance(content, list):
        return told
    return told | {"content": [{"type": "text", "text": content}] if content else []}


def _told(message: Message, media: dict[str, list[Any]]) -> Message:
    """A message in the form templates read; sound and pictures are put into `media` in order."""
    told = {key: value for key, value in message.items() if value is not None}
    told["role"] = "system" if message.get("role") == "developer" else message.get("role")
    content = message.get("content")
    told["content"] = _content(content, media) if isinstance(content, list) else content or ""
    if calls := message.get("tool_calls"):
        told["tool_calls"] = [_call(call) for call in calls]
    return told


def _content(parts: list[Any], media: dict[str, list[Any]]) -> str | list[dict[str, Any]]:
    if len(parts) > MAX_PARTS:
        raise _refused(f"a message has {len(parts)} parts, {MAX_PARTS} at most")
    read = [_part(part, media) for part in parts]
    if all(part["type"] == "text" for part in read):  # some templates know nothing but text
        return "".join(part["text"] for part in read)
    return read


def _part(part: Any, media: dict[str, list[Any]]) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    match kind:
        case "text" | "input_text":
            return {"type": "text", "text": str(part.get("text", ""))}
        case "input_audio":
            media.setdefault("audio", []).append(_sound(part.get("input_audio")))
            return {"type": "audio", "audio": ""}
        case "image_url":
            media.setdefault("image", []).append(_picture(part.get("image_url")))
            return {"type": "image", "image": ""}
        case _:
            pass
    raise _refused(f"content part {kind!r} is none of text, input_audio, image_url")


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """Templates print the arguments as JSON themselves."""
    function = cast(dict[str, Any], call.get("function", call))
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):  # what a model once wrote badly is shown to it as it was
            arguments = json.loads(arguments or "{}")
    return {**call, "function": {**function, "arguments": arguments}}


def _sound(value: Any) -> tuple[Any, int]:
    """float32 [T] in -1..1 and its rate, from base64 WAV (16 bit) or, with format pcm16, bare 24 kHz samples."""
    table = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    data = _decoded(table.get("data"), "input_audio.data")
    if table.get("format") == "pcm16":
        return _mono(data, 1), 24_000
    try:
        with wave.open(io.BytesIO(data)) as file:
            if file.getsampwidth() != 2:
                raise _refused("input_audio: a WAV must have 16 bits a sample")
            return _mono(file.readframes(file.getnframes()), file.getnchannels()), file.getframerate()
    except (wave.Error, EOFError) as error:
        raise _refused(f"input_audio.data is no WAV: {error}") from error


def _mono(data: bytes, channels: int) -> Any:
    samples = np.frombuffer(data[: len(data) // (2 * channels) * 2 * channels], dtype="<i2")
    return samples.reshape(-1, channels).mean(axis=1, dtype=np.float32) / 32768


def _picture(value: Any) -> Any:
    """A PIL image from a data: URL; nothing is fetched."""
    url = str(cast(dict[str, Any], value).get("url", "") if isinstance(value, dict) else value)
    head, _, data = url.partition(",")
    if not head.startswith(_DATA_URL) or not head.endswith(";base64"):
        raise _refused("image_url.url should be a base64 data: URL; the server fetches nothing")
    from PIL import Image, UnidentifiedImageError  # comes with the models that can see

    try:
        return Image.open(io.BytesIO(_decoded(data, "image_url.url"))).convert("RGB")
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise _refused(f"image_url.url is no picture: {error}") from error


def _decoded(data: Any, name: str) -> bytes:
    try:
        return base64.b64decode(data or "", validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise _refused(f"{name} is not base64: {error}") from error


def _refused(text: str) -> EngineError:
    return EngineError(text, code="invalid_request")
