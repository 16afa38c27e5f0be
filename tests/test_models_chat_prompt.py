"""A conversation as a model's prompt: its template, its tokens, and what travels beside them."""

import base64
import io
import json
import wave
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from voice_agent.bench.thinker_models import CONTROL, LETTERS, prompt, write_tokenizer
from voice_agent.errors import EngineError
from voice_agent.models.chat_prompt import ChatPrompt


class Template:
    """A tokenizer of Hugging Face's kind that shows what it was handed."""

    chat_template = "yes"

    def __init__(self, text_only: bool = False) -> None:
        self.told: list[dict[str, Any]] = []
        self.tools: Any = None
        self._text_only = text_only

    def apply_chat_template(self, messages: list[dict[str, Any]], **how: Any) -> str:
        self.told, self.tools = messages, how["tools"]
        if self._text_only and not all(isinstance(message["content"], str) for message in messages):
            raise TypeError("this template knows text alone")
        assert how["tokenize"] is False
        assert how["add_generation_prompt"] is True
        return json.dumps(messages)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return list(text.encode())


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def wav(samples: np.ndarray, rate_hz: int = 16_000, channels: int = 1, width: int = 2) -> str:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(width)
        writer.setframerate(rate_hz)
        writer.writeframes(samples.tobytes())
    return base64.b64encode(file.getvalue()).decode()


def sound(data: str, form: str = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": data, "format": form}}


def test_text_goes_through_the_template_as_it_is() -> None:
    template = Template(text_only=True)
    found = ChatPrompt(template).of([{"role": "developer", "content": "Be brief."}, user("Hello.")], [])
    assert template.told == [{"role": "system", "content": "Be brief."}, user("Hello.")]
    assert template.tools is None
    assert found == {"prompt_token_ids": list(json.dumps(template.told).encode())}


def test_parts_that_are_all_text_become_one_text() -> None:
    template = Template(text_only=True)
    ChatPrompt(template).of(
        [user([{"type": "text", "text": "Hel"}, {"type": "input_text", "text": "lo."}])], []
    )
    assert template.told == [user("Hello.")]


def test_a_template_that_sees_parts_alone_is_given_every_text_as_one() -> None:
    class OfParts(Template):
        def apply_chat_template(self, messages: list[dict[str, Any]], **how: Any) -> str:
            self.told = messages
            parts = [part for message in messages for part in message["content"]]
            return "".join(part["text"] for part in parts if isinstance(part, dict))

    template = OfParts()
    messages = [{"role": "system", "content": "Be brief."}, user("Hello."), {"role": "assistant"}]
    assert ChatPrompt(template).text(messages, [])[0] == "Be brief.Hello."
    assert [message["content"] for message in template.told] == [
        [{"type": "text", "text": "Be brief."}],
        [{"type": "text", "text": "Hello."}],
        [],
    ]


@pytest.mark.parametrize("kept", ["theirs", {"default": "theirs", "tool_use": "other"}])
def test_a_processors_template_is_rendered_without_its_processor(kept: Any) -> None:
    class Processor:
        """As Qwen2.5-Omni's is in transformers 4: it looks into the first message's parts."""

        chat_template = kept

        def apply_chat_template(self, messages: list[dict[str, Any]], **how: Any) -> str:
            return messages[0]["content"][0]["text"]

    class Rendering(Template):
        def apply_chat_template(self, messages: list[dict[str, Any]], **how: Any) -> str:
            return f"{how.pop('chat_template')}: {super().apply_chat_template(messages, **how)}"

    messages = [{"role": "system", "content": "Be brief."}, user("Hello.")]
    text, _ = ChatPrompt(Rendering(), Processor()).text(messages, [])
    assert text == f"theirs: {json.dumps(messages)}"


def test_calls_reach_the_template_as_objects_and_bad_ones_as_they_were() -> None:
    template = Template()
    calls: list[Any] = [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}
        for text in ('{"a": 1}', "{")
    ]
    tools = [{"type": "function", "function": {"name": "f"}}]
    ChatPrompt(template).of([{"role": "assistant", "content": None, "tool_calls": calls}], tools)
    told = template.told[0]
    assert [call["function"]["arguments"] for call in told["tool_calls"]] == [{"a": 1}, "{"]
    assert told["content"] == ""
    assert template.tools == tools
    assert calls[0]["function"]["arguments"] == '{"a": 1}'  # the caller's own stays


def test_sound_travels_beside_the_tokens_in_order() -> None:
    template = Template()
    first = np.array([0, 16384, -32768], np.int16)
    stereo = np.array([[100, 300], [-200, -400]], np.int16)
    bare = base64.b64encode(np.array([8192], np.int16).tobytes()).decode()
    found = ChatPrompt(template, template).of(
        [
            user([sound(wav(first)), {"type": "text", "text": "and"}, sound(wav(stereo, 8000, 2))]),
            user([sound(bare, "pcm16")]),
        ],
        [],
    )
    assert [part["type"] for part in template.told[0]["content"]] == ["audio", "text", "audio"]
    (one, one_hz), (two, two_hz), (three, three_hz) = found["multi_modal_data"]["audio"]
    assert (one_hz, two_hz, three_hz) == (16_000, 8_000, 24_000)
    np.testing.assert_allclose(one, [0, 0.5, -1])
    np.testing.assert_allclose(two, [200 / 32768, -300 / 32768])
    np.testing.assert_allclose(three, [0.25])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([{"type": "video"}], "content part 'video' is none of text, input_audio, image_url"),
        (["hello"], "content part None"),
        ([sound("%%%")], "input_audio.data is not base64"),
        ([sound(base64.b64encode(b"no wav at all").decode())], "input_audio.data is no WAV"),
        ([sound(wav(np.zeros(4, np.uint8), width=1))], "16 bits"),
        ([{"type": "image_url", "image_url": {"url": "http://host/cat.png"}}], "fetches nothing"),
        ([{"type": "text", "text": "x"}] * 65, "65 parts, 64 at most"),
    ],
)
def test_what_no_model_could_take_is_refused_with_its_reason(content: Any, says: str) -> None:
    with pytest.raises(EngineError, match="^.*" + says.replace("(", r"\(")) as refused:
        ChatPrompt(Template()).of([user(content)], [])
    assert refused.value.code == "invalid_request"


def test_a_model_that_reads_only_says_so_whatever_its_template_would_do() -> None:
    parts = [{"type": "text", "text": "What is this?"}, sound(wav(np.zeros(4, np.int16)))]
    with pytest.raises(EngineError, match="takes text alone: it has no use for audio") as refused:
        ChatPrompt(Template()).of([user(parts)], [])
    assert refused.value.code == "invalid_request"
    assert ChatPrompt(Template()).tokens([user(parts)], [])  # a count refuses nothing


def test_a_template_that_refuses_is_the_requests_error() -> None:
    class Broken(Template):
        def apply_chat_template(self, messages: list[dict[str, Any]], **how: Any) -> str:
            raise ValueError("roles must alternate")

    with pytest.raises(EngineError, match="roles must alternate"):
        ChatPrompt(Broken()).tokens([user("Hello.")], [])


def test_the_benchs_tokenizer_merges_words_and_writes_readable_text(tmp_path: Any) -> None:
    write_tokenizer(tmp_path, 30_000)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 30_000
    tokens = tokenizer.encode(prompt(40, 1), add_special_tokens=False).ids
    assert len(tokens) == 40
    assert tokenizer.decode(tokens) == prompt(40, 1)
    assert tokenizer.encode("<|im_start|>user", add_special_tokens=False).tokens[0] == CONTROL[1]
    plain = [tokenizer.decode([token]) for token in range(256, 30_000 - len(CONTROL))]
    assert all(text and set(text) <= set(LETTERS) for text in plain)


def test_prompts_of_different_seeds_begin_differently() -> None:
    assert len({prompt(300, seed)[:25] for seed in range(2_000)}) == 2_000
