"""OpenAI's own Python SDK, unchanged, against a running server: a scripted Thinker at a URL, the tone Talker behind it.

What was said is told by tones. Only the base URL is ours.
"""

import asyncio
import base64
import io
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import openai
import pytest
from openai import AsyncOpenAI

from tests.live_server import LiveServer, config_file, live_server
from tests.scripted_thinker import Answer, Call, ScriptedThinker, Stall, Text, answer
from voice_agent.audio import Samples
from voice_agent.media.containers import decode, encode
from voice_agent.models.tones import sequence, words_heard

pytestmark = pytest.mark.process

MODEL = "kanana-o"
SENTENCE = "The harbour opens early. It closes late in summer."
WORDS = [word.strip(".") for word in SENTENCE.split()]
TOML = """
profile = "scripted"
[thinker]
url = "{url}"
model = "scripted"
stall_s = 5
[recognizer.options]
text = "Tell me something."
"""
PATIENCE_S = 20  # for cores that are busy with something else: on idle ones it takes 60 ms
HI: Any = [{"role": "user", "content": "Hi."}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
WAV = encode(sequence(["tell", "me", "something"]), "wav", 24_000)


class Stage:
    """One server for all tests, and the Thinker behind it, which each test gives its script."""

    def __init__(self, thinker: ScriptedThinker, server: LiveServer) -> None:
        self.thinker = thinker
        self.server = server
        self.client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)

    def answers(self, *script: Answer) -> None:
        self.thinker.script = script
        self.thinker.requests.clear()

    def asked(self) -> list[dict[str, Any]]:
        """The conversation as the Thinker last got it."""
        return self.thinker.requests[-1]["messages"]


@asynccontextmanager
async def staged(tmp_path: Path) -> AsyncGenerator[Stage]:
    async with ScriptedThinker([answer(SENTENCE)]) as thinker:
        config = config_file(tmp_path, TOML.format(url=thinker.url))
        context = live_server("--config", str(config), "--served-model-name", MODEL)
        server = await asyncio.to_thread(context.__enter__)
        try:
            stage = Stage(thinker, server)
            yield stage
            await stage.client.close()
            assert not thinker.problems
        finally:
            await asyncio.to_thread(context.__exit__, None, None, None)


def heard_in(file: bytes, words: list[str] = WORDS) -> list[str]:
    return [word for word, _ in words_heard(decode(file, 24_000, 60), 24_000, words)]


def heard_in_pcm(pcm: bytes) -> list[str]:
    samples: Samples = np.frombuffer(pcm, "<i2")
    return [word for word, _ in words_heard(samples, 24_000, WORDS)]


async def test_chat_completions(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await the_documented_call(stage)
        await every_format_and_a_reply_by_its_id(stage)
        await a_stream_with_sound(stage)
        await the_first_sound_comes_before_the_second_sentence_is_written(stage)
        await written_replies(stage)
        await tools_whole_and_streamed(stage)
        await refusals(stage)
        await a_client_that_leaves(stage)


async def the_documented_call(stage: Stage) -> None:
    """Letter for letter as kanana-o's users write it."""
    stage.answers(answer(SENTENCE))
    client: Any = stage.client
    b64 = base64.b64encode(WAV).decode()
    completion = await client.chat.completions.create(
        model="kanana-o",
        modalities=["text", "audio"],
        audio={"voice": "preset_spk_1"},
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "input_audio", "input_audio": {"data": b64}},
                    {"type": "text", "text": "..."},
                ],
            }
        ],
    )
    message = completion.choices[0].message
    assert message.content is None and message.audio.transcript == SENTENCE
    file = base64.b64decode(message.audio.data)
    assert file[:4] == b"RIFF" and heard_in(file) == WORDS
    assert stage.asked() == [{"role": "user", "content": "Tell me something.\n..."}]
    assert completion.usage.prompt_tokens_details.audio_tokens > 0
    assert completion.usage.completion_tokens_details.audio_tokens > 20
    assert completion.choices[0].finish_reason == "stop" and len(completion.choices) == 1


async def every_format_and_a_reply_by_its_id(stage: Stage) -> None:
    stage.answers(answer(SENTENCE))
    audio_id = ""
    for audio_format in ("mp3", "flac", "opus", "aac", "pcm16"):
        chosen: Any = {"voice": "alloy", "format": audio_format}
        completion = await stage.client.chat.completions.create(
            model=MODEL, modalities=["text", "audio"], audio=chosen, messages=HI
        )
        audio = completion.choices[0].message.audio
        assert audio
        sound, audio_id = base64.b64decode(audio.data), audio.id
        assert (heard_in_pcm(sound) if audio_format == "pcm16" else heard_in(sound)) == WORDS, audio_format
    again: Any = [*HI, {"role": "assistant", "audio": {"id": audio_id}}, {"role": "user", "content": "And?"}]
    await stage.client.chat.completions.create(model=MODEL, messages=again)
    assert [message["content"] for message in stage.asked()] == ["Hi.", SENTENCE, "And?"]


async def a_stream_with_sound(stage: Stage) -> None:
    stage.answers(answer(SENTENCE))
    pcm, transcript, last = b"", "", None
    stream = await stage.client.chat.completions.create(
        model=MODEL,
        stream=True,
        stream_options={"include_usage": True},
        modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "pcm16"},
        messages=HI,
    )
    async for chunk in stream:
        last = chunk
        audio: Any = getattr(chunk.choices[0].delta, "audio", None) if chunk.choices else None
        if audio and audio.data:
            pcm += base64.b64decode(audio.data)
        if audio and audio.transcript:
            transcript += audio.transcript
    assert transcript == SENTENCE and heard_in_pcm(pcm) == WORDS
    assert last and last.usage and last.usage.completion_tokens_details
    assert last.usage.completion_tokens_details.audio_tokens


async def the_first_sound_comes_before_the_second_sentence_is_written(stage: Stage) -> None:
    """The Thinker never writes the second sentence to its end, so only order can let a sound through."""
    stage.answers(Answer([Text("The harbour opens early. "), Text("It closes"), Stall()]))
    stream = await stage.client.chat.completions.create(
        model=MODEL,
        stream=True,
        modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "pcm16"},
        messages=HI,
    )
    pcm = b""
    async with asyncio.timeout(4):  # below the Thinker's stall limit
        async for chunk in stream:
            audio: Any = getattr(chunk.choices[0].delta, "audio", None)
            pcm += base64.b64decode(audio.data) if audio and audio.data else b""
            if len(heard_in_pcm(pcm)) >= 3:
                break
    await stream.close()
    assert heard_in_pcm(pcm)[:3] == ["The", "harbour", "opens"]
    await stage.thinker.idle()


async def written_replies(stage: Stage) -> None:
    stage.answers(answer(SENTENCE))
    completion = await stage.client.chat.completions.create(
        model=MODEL, messages=HI, stop=["late"], seed=3, top_p=0.5, temperature=0.2, max_completion_tokens=50
    )
    assert completion.choices[0].message.content == SENTENCE.partition("late")[0]
    request = stage.thinker.requests[-1]
    assert (request["seed"], request["top_p"], request["temperature"], request["max_tokens"]) == (
        3,
        0.5,
        0.2,
        50,
    )
    async with stage.client.chat.completions.stream(model=MODEL, messages=HI) as stream:
        deltas = [event.delta async for event in stream if event.type == "content.delta"]
        final = await stream.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content == SENTENCE
    assert final.choices[0].finish_reason == "stop"


async def tools_whole_and_streamed(stage: Stage) -> None:
    arguments = '{"city": "Paris"}'
    stage.answers(Answer([Call("weather", arguments)], finish="tool_calls"), answer("Sunny."))
    completion = await stage.client.chat.completions.create(model=MODEL, messages=HI, tools=TOOLS)
    assert completion.choices[0].finish_reason == "tool_calls"
    message = completion.choices[0].message
    call: Any = (message.tool_calls or [])[0]
    assert (call.function.name, call.function.arguments) == ("weather", arguments)
    history: Any = [
        *HI,
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "21 degrees"},
    ]
    spoken = await stage.client.chat.completions.create(
        model=MODEL,
        messages=history,
        tools=TOOLS,
        modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "wav"},
    )
    audio = spoken.choices[0].message.audio
    assert (
        audio
        and audio.transcript == "Sunny."
        and heard_in(base64.b64decode(audio.data), ["Sunny"]) == ["Sunny"]
    )
    assert [message["role"] for message in stage.asked()] == ["user", "assistant", "tool"]

    stage.answers(Answer([Text("Wait."), Call("weather", arguments)], finish="tool_calls"))
    helper = stage.client.chat.completions.stream(
        model=MODEL, messages=HI, tools=TOOLS, tool_choice="required"
    )
    async with helper as stream:
        final = (await stream.get_final_completion()).choices[0]
    assert final.finish_reason == "tool_calls" and final.message.content == "Wait."
    assert final.message.tool_calls and final.message.tool_calls[0].function.arguments == arguments
    assert stage.thinker.requests[-1]["tool_choice"] == "required"


async def refusals(stage: Stage) -> None:
    client = stage.client
    image: Any = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png,"}}]}
    ]
    bad: list[tuple[dict[str, Any], str]] = [
        ({"extra_body": {"latency_first": "yes"}}, "latency_first"),
        ({"messages": image}, "messages[0].content[0]"),
        ({"n": 2, "modalities": ["text", "audio"]}, "n"),
        ({"modalities": ["audio"], "audio": {"voice": "nobody", "format": "wav"}}, "audio.voice"),
        (
            {"modalities": ["audio"], "audio": {"voice": "alloy", "format": "wav"}, "stream": True},
            "audio.format",
        ),
    ]
    for changes, param in bad:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(**cast(Any, {"model": MODEL, "messages": HI} | changes))
        assert caught.value.param == param and caught.value.code
    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(model="gpt-9", messages=HI)
    assert missing.value.code == "model_not_found"
    stage.answers(Answer(status=500, body={"error": {"message": "no"}}))
    with pytest.raises(openai.InternalServerError):
        await client.chat.completions.create(model=MODEL, messages=HI)
    stage.answers(Answer([Text("Well, "), Stall()]))
    with pytest.raises(openai.APIError, match="gave nothing"):
        async for _ in await client.chat.completions.create(model=MODEL, messages=HI, stream=True):
            pass


async def a_client_that_leaves(stage: Stage) -> None:
    for stream in (True, False):
        stage.answers(Answer([Text("Well, "), Stall()]))
        asking = asyncio.create_task(whole(stage, stream))
        await stage.thinker.streaming(PATIENCE_S)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await stage.thinker.idle(PATIENCE_S)


async def whole(stage: Stage, stream: bool) -> None:
    wanted: Any = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "pcm16"}}
    got: Any = await stage.client.chat.completions.create(
        model=MODEL, messages=HI, stream=cast(Any, stream), **wanted
    )
    if stream:
        async for _ in got:
            pass


async def test_speech_transcriptions_and_lists(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await speech_in_every_format(stage)
        await speech_streamed(stage)
        await transcriptions_in_every_form(stage)
        client = stage.client
        assert [model.id async for model in client.models.list()] == [MODEL]
        assert (await client.models.retrieve(MODEL)).object == "model"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("gpt-9")


async def speech_in_every_format(stage: Stage) -> None:
    for response_format in ("mp3", "opus", "aac", "flac", "wav", "pcm"):
        file = await stage.client.audio.speech.create(
            model="tts-1", voice="alloy", input=SENTENCE, response_format=cast(Any, response_format)
        )
        sound = await file.aread()
        assert (heard_in_pcm(sound) if response_format == "pcm" else heard_in(sound)) == WORDS, (
            response_format
        )
    slow = await stage.client.audio.speech.create(
        model="tts-1", voice="preset_spk_1", input=SENTENCE, response_format="pcm", speed=0.5
    )
    assert len(await slow.aread()) > 80_000
    with pytest.raises(openai.BadRequestError) as caught:
        await stage.client.audio.speech.create(model="tts-1", voice="nobody", input="Hi.")
    assert caught.value.param == "voice"


async def speech_streamed(stage: Stage) -> None:
    text = " ".join([SENTENCE] * 8)
    request = stage.client.audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=text, response_format="pcm", extra_body={"latency_first": True}
    )
    pieces = list[bytes]()
    async with request as response:
        assert response.headers["content-type"] == "audio/pcm"
        async for piece in response.iter_bytes():
            pieces.append(piece)
    assert len(pieces) > 5 and heard_in_pcm(b"".join(pieces)) == WORDS * 8


async def transcriptions_in_every_form(stage: Stage) -> None:
    transcriptions: Any = stage.client.audio.transcriptions
    text = "Tell me something."

    async def create(**options: Any) -> Any:
        return await transcriptions.create(model="whisper-1", file=("a.wav", io.BytesIO(WAV)), **options)

    assert (await create()).text == text
    assert (await create(response_format="text")).strip() == text
    assert "00:00:00,000 --> " in await create(response_format="srt")
    assert (await create(response_format="vtt")).startswith("WEBVTT")
    verbose = await create(response_format="verbose_json", timestamp_granularities=["word", "segment"])
    assert [word.word for word in verbose.words] == text.split() and verbose.segments[0].text == text
    assert verbose.duration == pytest.approx((len(WAV) - 44) / 48_000, abs=0.01)
    events = [event async for event in await create(stream=True)]
    assert [event.type for event in events] == ["transcript.text.delta", "transcript.text.done"]
    assert events[-1].text == text
    for bad in (b"", b"no sound", WAV[: len(WAV) // 2]):
        with pytest.raises(openai.BadRequestError) as caught:
            await transcriptions.create(model="whisper-1", file=("a.wav", bad))
        assert caught.value.param == "file"
