"""The stock openai client: sound in items, sessions for transcription alone, what sound costs; on a running server."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.live_server import LiveServer
from tests.realtime_server import HEARD, question, realtime_server
from tests.test_api_websocket_openai import Talk, listening, talking
from voice_agent.audio import Samples

pytestmark = [pytest.mark.process, pytest.mark.weights]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    with realtime_server(tmp_path_factory.mktemp("sounds")) as running:
        yield running


@pytest.fixture(scope="module")
def speech() -> Samples:
    return question()


def spoken(speech: Samples) -> dict[str, Any]:
    return {"type": "input_audio", "audio": b64encode(speech.astype("<i2").tobytes()).decode()}


def message(*content: dict[str, Any]) -> Any:
    return {"type": "message", "role": "user", "content": list(content)}


async def test_sound_in_an_item_is_recognized_before_the_reply(server: LiveServer, speech: Samples) -> None:
    seconds = len(speech) / 24_000
    async with talking(server, instructions="say Fine.", audio=listening()) as talk:
        text = {"type": "input_text", "text": "Listen:"}
        await talk.connection.conversation.item.create(item=message(text, spoken(speech)))
        await talk.connection.response.create()
        done = (await talk.until("response.done")).response
        kinds = talk.types()
        completed = "conversation.item.input_audio_transcription.completed"
        assert (
            kinds.index("conversation.item.done") < kinds.index(completed) < kinds.index("response.created")
        )
        told = talk.of(completed)[0]
        assert (told.transcript, told.content_index) == (HEARD, 1)
        assert told.usage.seconds == pytest.approx(seconds, abs=0.05)
        heard = done.usage.input_token_details.audio_tokens
        assert heard == pytest.approx(10 * seconds, abs=1)
        said = len(talk.sound()) / 48_000
        assert done.usage.output_token_details.audio_tokens == pytest.approx(20 * said, abs=2)
        history = await talk.recite()
        assert history[0] == {"role": "user", "content": f"Listen:\n{HEARD}"}
        assert talk.errors() == []


async def test_sound_in_the_input_of_a_response_aside(server: LiveServer, speech: Samples) -> None:
    async with talking(server, audio=listening()) as talk:
        history = await talk.recite(input=[message({"type": "input_text", "text": "One:"}, spoken(speech))])
        assert history == [{"role": "user", "content": f"One:\n{HEARD}"}]
        assert talk.of("conversation.item.added") == [] and talk.errors() == []


@asynccontextmanager
async def transcribing(server: LiveServer, key: str = "x", **extra: Any) -> AsyncGenerator[Talk]:
    async with (
        AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key) as client,
        client.realtime.connect(**extra) as connection,
    ):
        talk = Talk(connection)
        try:
            await talk.until("session.created")
            yield talk
        finally:
            await talk.close()


INPUT: Any = {
    "format": {"type": "audio/pcm", "rate": 24_000},
    "transcription": {"model": "gpt-4o-transcribe", "language": "en"},
    "noise_reduction": {"type": "near_field"},
    "turn_detection": {"type": "server_vad", "silence_duration_ms": 300},
}


async def test_a_session_for_transcription_writes_down_and_answers_nothing(
    server: LiveServer, speech: Samples
) -> None:
    intent: Any = {"extra_query": {"intent": "transcription", "model": "gpt-4o-transcribe"}}
    async with transcribing(server, **intent) as talk:
        assert talk.events[0].session.type == "transcription"
        await talk.connection.session.update(session={"type": "transcription", "audio": {"input": INPUT}})
        updated = (await talk.until("session.updated")).session
        assert updated.audio.input.turn_detection.silence_duration_ms == 300
        await talk.append(speech)
        told = await talk.until("conversation.item.input_audio_transcription.completed")
        assert told.transcript == HEARD and told.usage.type == "tokens"
        assert told.usage.input_token_details.audio_tokens > 10 and told.usage.output_tokens == 3
        await talk.connection.response.create()
        refused = await talk.until("error")
        assert "transcription" in refused.error.message
        await asyncio.sleep(1)
        assert not [kind for kind in talk.types() if kind.startswith("response.")]
        assert talk.types().count("input_audio_buffer.speech_started") == 1


async def test_a_client_secret_for_such_a_session(server: LiveServer, speech: Samples) -> None:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        wish: Any = {"type": "transcription", "audio": {"input": INPUT | {"turn_detection": None}}}
        secret = await client.realtime.client_secrets.create(session=wish)
        assert secret.session.type == "transcription" and secret.value.startswith("ek_")
    async with transcribing(server, secret.value, model="gpt-realtime") as talk:
        assert talk.events[0].session.type == "transcription"
        await talk.append(speech, paced=False)
        await talk.connection.input_audio_buffer.commit()
        told = await talk.until("conversation.item.input_audio_transcription.completed")
        assert told.transcript == HEARD and talk.errors() == []
