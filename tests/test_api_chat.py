"""Chat completions without I/O: bodies to requests, every refusal with its parameter, pieces to what SDKs read."""

import base64
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from voice_agent.api.chat_messages import chat_request
from voice_agent.api.chat_schema import ChatBody
from voice_agent.api.chat_wire import Chunks, Reply, Whole
from voice_agent.api.parse import validated
from voice_agent.api.spoken_replies import SpokenReplies
from voice_agent.errors import RemoteProtocolError
from voice_agent.requests import (
    CallPiece,
    ChatRequest,
    Ended,
    ImagePart,
    Message,
    ReplyPiece,
    SoundPart,
    SoundPiece,
    TextPart,
    TextPiece,
    Usage,
)
from voice_agent.voices import Voices

Json = dict[str, Any]
B64 = base64.b64encode(b"sound").decode()
SOUND = {"type": "input_audio", "input_audio": {"data": B64, "format": "wav"}}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "Sunny."}
VOICES = Voices(lambda: ("joe", "amy"), lambda: ("en",), "MIT", {"boss": "amy", "plain": ""})


def request_of(body: Json) -> ChatRequest:
    whole = {"model": "m", "messages": [{"role": "user", "content": "Hi."}]} | body
    spoken = SpokenReplies(lambda: 100.0)
    spoken.keep("audio_1", "What I said.", 200.0)
    spoken.keep("audio_old", "What I said.", 50.0)
    return chat_request(validated(ChatBody, whole), spoken.text, VOICES.named)


def told(*content: Any, role: str = "user", **keys: Any) -> Json:
    return {"messages": [{"role": role, "content": list(content)} | keys]}


def test_several_sounds_and_images_keep_their_order():
    request = request_of(told(SOUND, {"type": "text", "text": "a"}, IMAGE, SOUND))
    assert request.messages[0].parts == (
        SoundPart(b"sound", "messages[0].content[0].input_audio.data"),
        TextPart("a"),
        ImagePart("https://example.org/a.png", "low", "messages[0].content[2]"),
        SoundPart(b"sound", "messages[0].content[3].input_audio.data"),
    )


@pytest.mark.parametrize(
    ("message", "read"),
    [
        ({"role": "developer", "content": "Be short."}, Message("system", (TextPart("Be short."),))),
        ({"role": "user", "content": "Hi.", "name": "Ann"}, Message("user", (TextPart("Hi."),))),
        (
            {"role": "assistant", "audio": {"id": "audio_1"}},
            Message("assistant", (TextPart("What I said."),)),
        ),
        (
            {"role": "assistant", "content": "In writing.", "audio": {"id": "audio_unknown"}},
            Message("assistant", (TextPart("In writing."),)),
        ),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            Message("assistant", (TextPart("No."),)),
        ),
        ({"role": "user", "content": ""}, Message("user", (TextPart(""),))),
    ],
)
def test_messages_are_read_as_clients_write_them(message: Json, read: Message):
    assert request_of({"messages": [message]}).messages == (read,)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, None),
        ({"modalities": ["text"], "audio": {"voice": "joe", "format": "mp3"}}, None),
        ({"modalities": ["text", "audio"]}, ("joe", "wav", False, False)),
        ({"modalities": ["audio"], "audio": {"voice": "preset_spk_1"}}, ("joe", "wav", False, False)),
        (
            {"modalities": ["audio"], "audio": {"voice": {"id": "amy"}, "format": "opus"}},
            ("amy", "opus", False, False),
        ),
        ({"modalities": ["audio"], "audio": {"voice": "boss"}, "stream": True}, ("amy", "pcm16", True, True)),
        (
            {"modalities": ["audio"], "audio": {"voice": "plain"}, "latency_first": True},
            ("joe", "wav", True, False),
        ),
        ({"modalities": ["audio"], "stream": True, "latency_first": False}, ("joe", "pcm16", False, True)),
    ],
)
def test_how_a_reply_is_said(body: Json, expected: tuple[str, str, bool, bool] | None):
    wish = request_of(body).speech
    said = (wish.voice, wish.audio_format, wish.latency_first, wish.streamed) if wish else None
    assert said == expected


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": "Hi."}, "messages", "invalid_type"),
        ({"model": ""}, "model", "invalid_value"),
        ({"messages": [{"content": "Hi."}]}, "messages[0].role", "missing_required_parameter"),
        ({"messages": [{"role": "robot", "content": "Hi."}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content", "invalid_type"),
        (told({"type": "video_url"}), "messages[0].content[0]", "invalid_value"),
        (told({"text": "a"}), "messages[0].content[0]", "invalid_value"),
        (told("a"), "messages[0].content[0]", "invalid_value"),
        (told({"type": "text"}), "messages[0].content[0].text", "missing_required_parameter"),
        (
            told({"type": "text", "text": "a"}, {"type": "input_audio"}),
            "messages[0].content[1].input_audio",
            "missing_required_parameter",
        ),
        (
            told({"type": "input_audio", "input_audio": {"data": "%%%"}}),
            "messages[0].content[0].input_audio.data",
            "invalid_value",
        ),
        (
            told({"type": "input_audio", "input_audio": {"data": ""}}),
            "messages[0].content[0].input_audio.data",
            "invalid_value",
        ),
        (
            told({"type": "input_audio", "input_audio": {"data": B64, "format": "midi"}}),
            "messages[0].content[0].input_audio.format",
            "invalid_value",
        ),
        (told(SOUND, role="system"), "messages[0].content", "invalid_value"),
        (told(IMAGE, role="assistant"), "messages[0].content", "invalid_value"),
        (
            {"messages": [{"role": "assistant", "audio": {"id": "audio_9"}}]},
            "messages[0].audio.id",
            "invalid_value",
        ),
        (
            {"messages": [{"role": "assistant", "audio": {"id": "audio_old"}}]},
            "messages[0].audio.id",
            "invalid_value",
        ),
        ({"messages": [RESULT]}, "messages[0].tool_call_id", "invalid_value"),
        (
            {"messages": [{"role": "tool", "content": "x"}]},
            "messages[0].tool_call_id",
            "missing_required_parameter",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [CALL]}]}, "messages[0]", "invalid_value"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [CALL]}, {"role": "user", "content": "?"}]},
            "messages[0]",
            "invalid_value",
        ),
        ({"modalities": ["video"]}, "modalities[0]", "invalid_value"),
        ({"modalities": ["audio"], "audio": {"voice": "joo"}}, "audio.voice", "invalid_value"),
        ({"modalities": ["audio"], "audio": {"format": "mid"}}, "audio.format", "invalid_value"),
        (
            {"modalities": ["audio"], "audio": {"format": "wav"}, "stream": True},
            "audio.format",
            "unsupported_value",
        ),
        ({"n": 2, "modalities": ["audio"]}, "n", "unsupported_value"),
        ({"n": 0}, "n", "invalid_value"),
        ({"logprobs": True}, "logprobs", "unsupported_value"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "unsupported_value"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({"latency_first": "true"}, "latency_first", "invalid_type"),
        ({"latency_first": 1}, "latency_first", "invalid_type"),
        ({"latency_first": None}, "latency_first", "invalid_type"),
        ({"temperature": 2.5}, "temperature", "invalid_value"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"top_p": 0}, "top_p", "invalid_value"),
        ({"max_completion_tokens": 0}, "max_completion_tokens", "invalid_value"),
        ({"stop": ["a"] * 5}, "stop", "invalid_value"),
        ({"stop": [""]}, "stop[0]", "invalid_value"),
        ({"seed": 1.5}, "seed", "invalid_type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "missing_required_parameter"),
        (
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            "tools[0].function.name",
            "invalid_value",
        ),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "other"}}},
            "tool_choice",
            "invalid_value",
        ),
    ],
)
def test_every_refusal_names_its_parameter(body: Json, param: str, code: str):
    with pytest.raises(RemoteProtocolError) as caught:
        request_of(body)
    assert (caught.value.param, caught.value.code) == (param, code)
    assert str(caught.value).endswith((".", "?"))


def test_nulls_and_what_is_not_about_the_answer_are_taken():
    nulls = dict.fromkeys(
        [
            "audio",
            "tools",
            "tool_choice",
            "stop",
            "seed",
            "n",
            "stream",
            "temperature",
            "modalities",
            "logprobs",
        ]
    )
    odd = {"user": "ann", "store": False, "metadata": {"a": "b"}, "frequency_penalty": 0.1, "top_k": 5}
    assert request_of(nulls | odd) == request_of({})


def test_options_are_read():
    request = request_of(
        {
            "tools": [TOOL],
            "tool_choice": {"type": "function", "function": {"name": "weather"}},
            "stop": "x",
            "max_tokens": 5,
            "max_completion_tokens": 6,
            "temperature": 1,
            "top_p": 0.5,
            "seed": -1,
            "messages": [
                {"role": "user", "content": "Weather?"},
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                RESULT,
            ],
        }
    )
    assert (request.tools, request.tool_choice, request.stop) == ((TOOL,), "weather", ("x",))
    assert (request.max_output_tokens, request.temperature, request.top_p, request.seed) == (6, 1, 0.5, -1)
    assert request.messages[1].tool_calls == (CALL,) and request.messages[2].tool_call_id == "call_1"


def test_an_unknown_voice_is_answered_with_those_there_are_and_the_nearest():
    with pytest.raises(RemoteProtocolError, match=r"joe, amy; did you mean 'joe'\?"):
        VOICES.named("joey", "voice")
    assert [voice.aliases[-1] for voice in VOICES.all()] == ["plain", "boss"]
    assert [voice.default for voice in VOICES.all()] == [True, False]
    own = Voices(lambda: ("echo", "joe"), lambda: ("en",), "MIT", {})
    assert own.named("echo", "v") == "echo" and "echo" not in own.all()[0].aliases
    assert own.named("alloy", "v") == own.named("", "v") == "echo"


# --- what goes out ------------------------------------------------------------------------------------------------

USAGE = Usage(text_in=7, audio_in=5, text_out=3, audio_out=40)
SPOKEN = Reply("chatcmpl-1", "m", 100, "audio_1", 3_700, include_usage=True)
WRITTEN = Reply("chatcmpl-1", "m", 100)
PIECES: list[ReplyPiece] = [
    TextPiece("Hello "),
    SoundPiece(b"\x01\x02" * 5),
    TextPiece("there."),
    SoundPiece(b"\x03\x04" * 9),
    SoundPiece(b"\x05\x06" * 2),
    Ended("stop", USAGE),
]
SOUND_BYTES = b"".join(piece.data for piece in PIECES if isinstance(piece, SoundPiece))


def whole(reply: Reply, *pieces: ReplyPiece) -> Json:
    collected = Whole(reply)
    for piece in pieces:
        collected.add(piece)
    body = collected.completion()
    ChatCompletion.model_validate(body, strict=True)
    return body


def chunks(reply: Reply, *pieces: ReplyPiece) -> list[Json]:
    writer = Chunks(reply)
    found = [writer.begin(), *(chunk for piece in pieces for chunk in writer.of(piece))]
    for chunk in found:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    return found


def test_a_whole_spoken_reply_is_one_choice_with_text_and_sound_together():
    body = whole(SPOKEN, *PIECES)
    message = body["choices"][0]["message"]
    assert len(body["choices"]) == 1 and message["content"] is None
    assert message["audio"] == {
        "id": "audio_1",
        "data": base64.b64encode(SOUND_BYTES).decode(),
        "expires_at": 3_700,
        "transcript": "Hello there.",
    }
    assert body["usage"]["prompt_tokens"] == 12 and body["usage"]["total_tokens"] == 55
    assert body["usage"]["completion_tokens_details"]["audio_tokens"] == 40


def test_a_whole_written_reply_and_one_that_only_calls():
    assert whole(WRITTEN, TextPiece("Hi."), Ended("length"))["choices"][0]["finish_reason"] == "length"
    message = whole(SPOKEN, CallPiece("call_1", "weather", "{}"), Ended("tool_calls"))["choices"][0][
        "message"
    ]
    assert message["content"] is None and "audio" not in message and message["tool_calls"] == [CALL]
    both = whole(SPOKEN, TextPiece("Wait."), CallPiece("call_1", "weather", "{}"), Ended("tool_calls"))
    assert both["choices"][0]["message"]["audio"]["transcript"] == "Wait."


def test_chunks_of_a_spoken_reply_decode_alone_and_joined():
    found = chunks(SPOKEN, *PIECES)
    deltas = [chunk["choices"][0]["delta"] for chunk in found if chunk["choices"]]
    data = [delta["audio"]["data"] for delta in deltas if "data" in delta.get("audio", {})]
    assert b"".join(base64.b64decode(piece) for piece in data) == SOUND_BYTES
    assert base64.b64decode("".join(data)) == SOUND_BYTES
    assert "".join(delta.get("audio", {}).get("transcript", "") for delta in deltas) == "Hello there."
    assert deltas[0] == {"role": "assistant", "content": None, "refusal": None, "audio": {"id": "audio_1"}}
    assert deltas[-2] == {"audio": {"expires_at": 3_700}} and deltas[-1] == {}
    assert [chunk["choices"][0]["finish_reason"] for chunk in found[:-1]] == [None] * (len(found) - 2) + [
        "stop"
    ]
    assert found[-1]["choices"] == [] and found[-1]["usage"]["completion_tokens"] == 43
    assert all(chunk["usage"] is None for chunk in found[:-1])


def test_chunks_of_a_written_reply_with_calls():
    pieces = (TextPiece("Wait."), CallPiece("a", "f", "{}"), CallPiece("b", "g", "[]"), Ended("tool_calls"))
    found = chunks(WRITTEN, *pieces)
    calls = [call for chunk in found for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert [(call["index"], call["id"], call["function"]["name"]) for call in calls] == [
        (0, "a", "f"),
        (1, "b", "g"),
    ]
    assert found[0]["choices"][0]["delta"]["content"] == "" and "usage" not in found[-1]
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_only_so_many_replies_are_remembered():
    spoken = SpokenReplies(lambda: 0.0, most=2)
    for name in ("a", "b", "c"):
        spoken.keep(name, name.upper(), 10)
    assert [spoken.text(name) for name in ("a", "b", "c")] == [None, "B", "C"]
