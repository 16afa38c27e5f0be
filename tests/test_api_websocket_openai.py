"""The stock openai client over `client.realtime.connect` against the running server."""

import asyncio
import json
import time
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI, PermissionDeniedError
from openai.resources.realtime.realtime import AsyncRealtimeConnection

from tests.live_server import LiveServer
from tests.realtime_server import HEARD, question, realtime_server
from voice_agent.audio import Samples
from voice_agent.media import g711
from voice_agent.models.tones import words_heard

pytestmark = [pytest.mark.process, pytest.mark.weights]

STORY = "Once upon a time an old sailor lived alone near the harbour and painted little wooden boats every evening."
APPEND_MS = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    with realtime_server(tmp_path_factory.mktemp("openai")) as running:
        yield running


@pytest.fixture(scope="module")
def speech() -> Samples:
    return question()


@pytest.fixture(scope="module")
def interruption() -> Samples:
    return question("Stop it, please, I have heard enough of this.")


class Talk:
    """A connection whose events are all kept; `until` waits for one."""

    def __init__(self, connection: AsyncRealtimeConnection) -> None:
        self.connection = connection
        self.events: list[Any] = []
        self._came = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.connection:
            self.events.append(event)
            self._came.set()

    async def until(self, kind: str, count: int = 1, timeout_s: float = 20) -> Any:
        """The n-th event of a type."""
        try:
            async with asyncio.timeout(timeout_s):
                while len(found := self.of(kind)) < count:
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            pytest.fail(f"no {kind}: {self.types()}")
        return found[count - 1]

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.type == kind]

    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def errors(self) -> list[Any]:
        return [event.error for event in self.of("error")]

    async def append(self, sound: Samples, *, paced: bool = True, encoding: str = "audio/pcm") -> None:
        """Send sound as a microphone does."""
        rate_hz = 24_000 if encoding == "audio/pcm" else 8_000
        step = rate_hz * APPEND_MS // 1000
        start = asyncio.get_running_loop().time()
        for n, at in enumerate(range(0, len(sound), step)):
            piece = sound[at : at + step]
            pcm = encoding == "audio/pcm"
            payload = piece.astype("<i2").tobytes() if pcm else g711.encode(piece, encoding)
            await self.connection.input_audio_buffer.append(audio=b64encode(payload).decode())
            if paced:
                await asyncio.sleep(max(0, start + n * APPEND_MS / 1000 - asyncio.get_running_loop().time()))

    def sound(self, response_id: str | None = None) -> bytes:
        deltas = self.of("response.output_audio.delta")
        return b"".join(b64decode(e.delta) for e in deltas if response_id in {None, e.response_id})

    async def recite(self, **response: Any) -> list[dict[str, Any]]:
        """The conversation as the Thinker is told it."""
        asked = {"conversation": "none", "instructions": "recite", "output_modalities": ["text"]}
        before = len(self.of("response.done"))
        await self.connection.response.create(response=asked | response)  # pyright: ignore[reportArgumentType]
        done = (await self.until("response.done", before + 1)).response
        assert done.status == "completed" and done.conversation_id is None
        return json.loads(done.output[0].content[0].text)

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


@asynccontextmanager
async def talking(server: LiveServer, **session: Any) -> AsyncGenerator[Talk]:
    """A connection that has been told its session; ends with no error that the test did not look at."""
    async with (
        AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client,
        client.realtime.connect(model="voice-agent") as connection,
    ):
        talk = Talk(connection)
        try:
            await talk.until("session.created")
            await connection.session.update(session={"type": "realtime"} | session)  # pyright: ignore[reportArgumentType]
            await talk.until("session.updated")
            yield talk
        finally:
            await talk.close()


def listening(**detection: Any) -> dict[str, Any]:
    """The session's audio part with a turn detection."""
    return {"input": {"turn_detection": detection or None, "transcription": {"model": "whisper-1"}}}


def words_in(sound: bytes, text: str, rate_hz: int = 24_000) -> list[str]:
    vocabulary = list(dict.fromkeys(word.strip(".,") for word in text.split()))
    return [word for word, _ in words_heard(np.frombuffer(sound, dtype="<i2"), rate_hz, vocabulary)]


@pytest.mark.parametrize("kind", ["server_vad", "semantic_vad"])
async def test_a_spoken_question_is_answered_in_speech(
    server: LiveServer, speech: Samples, kind: str
) -> None:
    text = "The harbour opens early and closes late."
    async with talking(server, instructions=f"say {text}", audio=listening(type=kind)) as talk:
        await talk.append(speech)
        done = (await talk.until("response.done")).response
        assert done.status == "completed" and done.output[0].content[0].transcript == text
        assert words_in(talk.sound(), text) == [word.strip(".") for word in text.split()]
        assert (await talk.until("conversation.item.input_audio_transcription.completed")).transcript == HEARD
        started, stopped = (
            talk.of("input_audio_buffer.speech_started"),
            talk.of("input_audio_buffer.speech_stopped"),
        )
        assert len(started) == len(stopped) == 1 and started[0].audio_start_ms < stopped[0].audio_end_ms
        assert [m["role"] for m in await talk.recite()] == ["user", "assistant"]
        assert talk.errors() == []


async def test_speaking_over_a_reply_stops_it_and_a_truncate_says_what_was_heard(
    server: LiveServer, speech: Samples, interruption: Samples
) -> None:
    async with talking(server, instructions=f"say {STORY}", audio=listening(type="server_vad")) as talk:
        await talk.append(speech)
        done = await talk.until("response.done")
        assert done.response.status == "completed"  # it was made long before it is heard
        item_id = done.response.output[0].id
        await talk.append(interruption)
        await talk.until("input_audio_buffer.speech_started", 2)
        await talk.connection.conversation.item.truncate(item_id=item_id, content_index=0, audio_end_ms=1200)
        truncated = await talk.until("conversation.item.truncated")
        assert (truncated.item_id, truncated.audio_end_ms) == (item_id, 1200)
        await talk.until("response.done", 2)
        history = await talk.recite()
        assert [message["role"] for message in history] == ["user", "assistant", "user", "assistant"]
        assert STORY.startswith(history[1]["content"]) and len(history[1]["content"].split()) in range(2, 9)
        await talk.connection.conversation.item.retrieve(item_id=item_id)
        retrieved = (await talk.until("conversation.item.retrieved")).item
        assert retrieved.content[0].transcript == history[1]["content"]
        assert talk.errors() == []


async def test_a_reply_that_is_being_made_is_cancelled_by_speech(
    server: LiveServer, speech: Samples, interruption: Samples
) -> None:
    async with talking(server, instructions=f"slowly {STORY}", audio=listening(type="server_vad")) as talk:
        await talk.append(speech)
        await talk.until("response.output_audio.delta")
        await talk.append(interruption)
        done = (await talk.until("response.done")).response
        assert (done.status, done.status_details.reason) == ("cancelled", "turn_detected")
        types = talk.types()
        at = types.index("response.done")
        assert types[:at].count("input_audio_buffer.speech_started") == 2
        late = [e for e in talk.events[at:] if getattr(e, "response_id", "") == done.id]
        assert late == [] and types.count("conversation.item.truncated") == 0


@pytest.mark.parametrize("encoding", ["audio/pcmu", "audio/pcma"])
async def test_telephone_sound_both_ways(server: LiveServer, speech: Samples, encoding: str) -> None:
    text = "The harbour opens early."
    audio = listening(type="server_vad")
    audio["input"]["format"] = {"type": encoding}
    audio["output"] = {"format": {"type": encoding}}
    async with talking(server, instructions=f"say {text}", audio=audio) as talk:
        await talk.append(speech[::3].copy(), encoding=encoding)
        done = (await talk.until("response.done")).response
        assert done.audio.output.format.type == encoding
        sound = g711.decode(talk.sound(), encoding).astype("<i2").tobytes()
        assert words_in(sound, text, 8_000) == [word.strip(".") for word in text.split()]
        assert talk.errors() == []


async def test_push_to_talk_answers_when_told_and_knows_all_that_was_appended(server: LiveServer) -> None:
    tone = (np.sin(np.arange(24_000) / 10) * 8000).astype(np.int16)
    async with talking(server, instructions="say Fine.", audio=listening()) as talk:
        await talk.connection.input_audio_buffer.commit(event_id="empty")
        assert (await talk.until("error")).error.code == "input_audio_buffer_commit_empty"
        await talk.append(tone[:2400], paced=False)  # 100 ms exactly is enough
        await talk.connection.input_audio_buffer.commit()
        await talk.until("conversation.item.input_audio_transcription.completed")
        for _ in range(3):
            await talk.append(tone, paced=False)
        await talk.connection.input_audio_buffer.commit()
        completed = await talk.until("conversation.item.input_audio_transcription.completed", 2)
        assert completed.usage.seconds == pytest.approx(3, abs=0.01)
        await talk.append(tone, paced=False)
        await talk.connection.input_audio_buffer.clear()
        await talk.until("input_audio_buffer.cleared")
        await talk.connection.input_audio_buffer.commit()
        await talk.until("error", 2)
        assert "response.created" not in talk.types()
        await talk.connection.response.create()
        assert (await talk.until("response.done")).response.status == "completed"


async def test_a_function_is_called_once_and_its_result_is_told(server: LiveServer) -> None:
    tool = {"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {}}}
    session = {"instructions": 'call clock {"zone": "KST"}', "tools": [tool], "audio": listening()}
    async with talking(server, **session) as talk:
        item = {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "What time is it?"}],
        }
        await talk.connection.conversation.item.create(item=item)  # pyright: ignore[reportArgumentType]
        await talk.connection.response.create()
        first = (await talk.until("response.done")).response
        said, call = first.output
        assert said.content[0].transcript == "Let me look." and call.type == "function_call"
        assert (call.name, json.loads(call.arguments), call.status) == ("clock", {"zone": "KST"}, "completed")
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "noon"}
        await talk.connection.conversation.item.create(item=result)  # pyright: ignore[reportArgumentType]
        await talk.connection.response.create()
        second = (await talk.until("response.done", 2)).response
        assert second.output[0].content[0].transcript == "It is noon."
        history = await talk.recite()
        assert [message["role"] for message in history] == ["user", "assistant", "tool", "assistant"]
        assert history[1]["content"] == "Let me look."  # what was said before goes on while the next is made
        assert talk.errors() == []


async def test_replies_aside_have_their_own_context_and_leave_no_trace(server: LiveServer) -> None:
    async with talking(server, instructions=f"slowly {STORY}", audio=listening()) as talk:
        content = [{"type": "input_text", "text": "Hello"}]
        item = {"id": "mine", "type": "message", "role": "user", "content": content}
        await talk.connection.conversation.item.create(item=item)  # pyright: ignore[reportArgumentType]
        await talk.connection.response.create()
        await talk.until("response.output_audio.delta")
        given = [{"type": "item_reference", "id": "mine"}, item | {"id": "other"}]
        assert await talk.recite(input=given) == [{"role": "user", "content": "Hello\nHello"}]
        assert await talk.recite(input=[]) == []
        spoken_aside = {"conversation": "none", "instructions": "say Aside.", "metadata": {"topic": "x"}}
        await talk.connection.response.create(response=spoken_aside)  # pyright: ignore[reportArgumentType]
        done = (await talk.until("response.done", 3)).response
        assert done.metadata == {"topic": "x"} and words_in(talk.sound(done.id), "Aside.") == ["Aside"]
        main = (await talk.until("response.done", 4)).response
        assert main.status == "completed" and main.conversation_id
        assert len(talk.of("conversation.item.added")) == 2 and talk.errors() == []


async def test_items_are_placed_deleted_and_looked_at(server: LiveServer) -> None:
    async with talking(server, audio=listening()) as talk:
        items = talk.connection.conversation.item

        async def create(item_id: str, role: str, text: str, previous: str | None = None) -> None:
            kind = "output_text" if role == "assistant" else "input_text"
            item: Any = {
                "id": item_id,
                "type": "message",
                "role": role,
                "content": [{"type": kind, "text": text}],
            }
            await items.create(item=item, **({"previous_item_id": previous} if previous else {}))

        await create("b", "user", "two")
        await create("a", "user", "one", "root")
        await create("c", "assistant", "three")
        await create("x", "assistant", "not this", "a")
        await items.delete(item_id="x")
        await talk.until("conversation.item.deleted")
        added = {e.item.id: e.previous_item_id for e in talk.of("conversation.item.added")}
        assert added == {"b": None, "a": None, "c": "b", "x": "a"}
        assert [m["content"] for m in await talk.recite()] == ["one\ntwo", "three"]
        await items.retrieve(item_id="x", event_id="gone")
        error = (await talk.until("error")).error
        assert (error.code, error.param, error.event_id) == (
            "item_retrieve_invalid_item_id",
            "item_id",
            "gone",
        )
        picture: Any = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
        await items.create(item={"type": "message", "role": "user", "content": [picture]})
        assert (await talk.until("error", 2)).error.param == "item.content[0].type"


async def test_bad_input_of_all_kinds_costs_an_error_and_not_the_session(server: LiveServer) -> None:
    async with talking(server, instructions="say Fine.", audio=listening()) as talk:
        raw = talk.connection._connection  # pyright: ignore[reportPrivateUsage]
        bad: list[str | bytes] = [
            "nonsense",
            '{"type":"input_audio_buffer.append","audio":"***"}',
            '{"type":"input_audio_buffer.append","audio":"AAAA"',
            "[" * 100_000,
            b"\xff\xfe\x00",
            json.dumps({"type": "response.create", "response": {"instructions": "A" * 20_000_000}}),
            json.dumps({"type": "input_audio_buffer.append", "audio": "A" * 22_500_000}),
        ]
        for n, frame in enumerate(bad, 1):
            await raw.send(frame)
            assert (await talk.until("error", n)).error.message
        await talk.connection.response.create()
        assert (await talk.until("response.done")).response.status == "completed"


async def test_a_beta_client_hears_beta_names_alone(server: LiveServer) -> None:
    async with (
        AsyncOpenAI(websocket_base_url=f"{server.url.replace('http', 'ws')}/v1", api_key="x") as client,
        client.beta.realtime.connect(model="voice-agent") as connection,
    ):
        flat: Any = {
            "instructions": "say Fine.",
            "modalities": ["text", "audio"],
            "turn_detection": None,
            "output_audio_format": "g711_ulaw",
            "temperature": 0.7,
        }
        await connection.session.update(session=flat)
        item: Any = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
        await connection.conversation.item.create(item=item)
        await connection.response.create()
        types: list[str] = []
        async with asyncio.timeout(20):
            async for event in connection:
                types.append(event.type)
                if event.type == "session.updated":
                    session: Any = event.session
                    assert session.output_audio_format == "g711_ulaw" and session.temperature == 0.7
                if event.type == "response.done":
                    break
        assert types[:3] == ["session.created", "conversation.created", "session.updated"]
        assert {
            "response.audio.delta",
            "response.audio_transcript.delta",
            "conversation.item.created",
        } <= set(types)
        assert not any("output_" in kind and "output_item" not in kind for kind in types), types


async def test_a_client_secret_opens_a_call_of_its_session_until_it_is_over(server: LiveServer) -> None:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        session: Any = {"type": "realtime", "instructions": "say Fine.", "audio": {"output": {"speed": 1.25}}}
        made = await client.realtime.client_secrets.create(
            expires_after={"anchor": "created_at", "seconds": 10}, session=session
        )
        assert made.value.startswith("ek_") and made.session.type == "realtime"
        async with (
            AsyncOpenAI(base_url=f"{server.url}/v1", api_key=made.value) as holder,
            holder.realtime.connect(model="voice-agent") as connection,
        ):
            created: Any = await connection.recv()
            assert created.session.instructions == "say Fine." and created.session.audio.output.speed == 1.25
            with pytest.raises(PermissionDeniedError):
                await holder.realtime.client_secrets.create()
            await asyncio.sleep(max(0, made.expires_at - time.time()) + 0.1)
            with pytest.raises(Exception, match="401"):
                async with holder.realtime.connect(model="voice-agent"):
                    pass
            await connection.response.create()  # a running session outlives its key
            async with asyncio.timeout(10):
                async for event in connection:
                    if event.type == "response.done":
                        break
