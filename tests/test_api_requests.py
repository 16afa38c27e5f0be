"""The requests without a session over HTTP: every refusal in OpenAI's shape, streams, hang-ups; no model behind."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.engine_rig import until
from tests.scripted_thinker import serving
from voice_agent.api.app import AppParts, create_app
from voice_agent.api.chat_completions import ChatParts, create_chat_routes
from voice_agent.api.speech import SpeechParts, create_speech_routes
from voice_agent.api.transcriptions import create_transcription_routes
from voice_agent.api.voices import create_voice_routes
from voice_agent.errors import BusyError, EngineError, RemoteProtocolError, VoiceAgentError
from voice_agent.requests import (
    ChatRequest,
    Ended,
    ReplyPiece,
    Segment,
    SoundPiece,
    SpeechRequest,
    TextPiece,
    TimedWord,
    Transcribed,
    TranscriptionRequest,
    Usage,
)
from voice_agent.voices import Voices

CHAT, SPEECH, WRITE = "/v1/chat/completions", "/v1/audio/speech", "/v1/audio/transcriptions"
HI = {"model": "m", "messages": [{"role": "user", "content": "Hi."}]}
SAY = {"model": "tts-1", "input": "Hi.", "voice": "alloy"}
FORM = {"model": "whisper-1"}
FILE = {"file": ("a.wav", b"RIFF")}
WORDS = (TimedWord("Hello", 0.1, 0.5), TimedWord("there.", 0.5, 1.0))


@dataclass
class Scripted:
    """An Answerer and Transcriber that gives its pieces; an error among them is raised, None waits for ever."""

    pieces: list[Any] = field(default_factory=list[Any])
    asked: list[Any] = field(default_factory=list[Any])
    open: int = 0

    async def _run(self, request: Any) -> AsyncGenerator[Any]:
        self.asked.append(request)
        self.open += 1
        try:
            for piece in self.pieces:
                if isinstance(piece, VoiceAgentError):
                    raise piece
                if piece is None:
                    await asyncio.Event().wait()
                yield piece
        finally:
            self.open -= 1

    def answer(self, request: ChatRequest) -> AsyncGenerator[ReplyPiece]:
        return self._run(request)

    def say(self, request: SpeechRequest) -> AsyncGenerator[SoundPiece | Ended]:
        return self._run(request)

    def transcribe(self, request: TranscriptionRequest) -> AsyncGenerator[Segment | Transcribed]:
        return self._run(request)


def app_of(scripted: Scripted, random: bool = False) -> Any:
    voices = Voices(lambda: ("joe",), lambda: ("en",), "MIT", {}, lambda: ("joe",) if random else ())
    routes = [
        *create_chat_routes(ChatParts(scripted, voices, ("m", "other"))),
        *create_speech_routes(SpeechParts(scripted, voices, lambda: random)),
        *create_transcription_routes(scripted),
        *create_voice_routes(voices),
    ]
    return create_app(AppParts(routes, list, "m"))


@asynccontextmanager
async def client_of(*pieces: Any, random: bool = False) -> AsyncGenerator[tuple[httpx.AsyncClient, Scripted]]:
    scripted = Scripted(list(pieces))
    transport = httpx.ASGITransport(app_of(scripted, random), client=("127.0.0.1", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client, scripted
    assert scripted.open == 0


def events(response: httpx.Response) -> list[Any]:
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    data = [block.removeprefix("data: ") for block in response.text.split("\n\n") if block]
    return [json.loads(one) if one != "[DONE]" else one for one in data]


HUGE = b'{"model": "m", "messages": [' + b" " * 50_000_001


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (CHAT, b"", 400, "invalid_json"),
        (CHAT, b"{", 400, "invalid_json"),
        (CHAT, b"[]", 400, "invalid_json"),
        (CHAT, b"\xff\xfe", 400, "invalid_json"),
        (CHAT, b'{"model": "\\ud800"}', 400, "invalid_json"),
        (CHAT, b"[" * 100_000, 400, "invalid_json"),
        (CHAT, b'{"a":' * 5_000 + b"1" + b"}" * 5_000, 400, "invalid_json"),
        (CHAT, b'{"model": "m", "seed": 1e999}', 400, "invalid_json"),
        (CHAT, b'{"model": "m", "seed": 99999999999999999999999}', 400, "invalid_json"),
        (CHAT, b'{"model": "m", "seed": NaN}', 400, "invalid_json"),
        (CHAT, b'{"model": "m"}', 400, "missing_required_parameter"),
        (CHAT, HUGE, 413, "request_too_large"),
        (SPEECH, b"{}", 400, "missing_required_parameter"),
        (SPEECH, b" " * 1_000_001, 413, "request_too_large"),
        (WRITE, b"{}", 415, "unsupported_media_type"),
    ],
)
async def test_bodies_that_are_none_are_refused(path: str, body: bytes, status: int, code: str):
    async with client_of() as (client, scripted):
        response = await client.post(path, content=body)
        assert response.status_code == status, response.text
        error = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["code"] == code
        assert error["type"] == "invalid_request_error" and error["message"]
        assert scripted.asked == []


async def test_a_body_without_an_announced_length_is_counted_as_it_comes():
    sent = 0

    async def endless() -> AsyncGenerator[bytes]:
        nonlocal sent
        while True:
            sent += 100_000
            yield b" " * 100_000

    async with client_of() as (client, _):
        assert (await client.post(SPEECH, content=endless())).status_code == 413
        assert sent < 102_000_000


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize(("path", "size"), [(CHAT, 51_000_000), (SPEECH, 20_000_000), (WRITE, 40_000_000)])
async def test_who_sends_too_much_can_read_why_it_is_refused(path: str, size: int, announced: bool):
    """Over a real connection: it would be reset over what was not read, and the answer lost."""

    begin = (
        b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n' if path == WRITE else b""
    )

    async def pieces() -> AsyncGenerator[bytes]:
        yield begin
        for _ in range(size // 100_000):
            yield b" " * 100_000

    headers = {"content-type": "multipart/form-data; boundary=x"} if path == WRITE else {}
    content = begin + b" " * size if announced else pieces()
    async with serving(app_of(Scripted())) as url, httpx.AsyncClient(base_url=url) as client:
        response = await client.post(path, content=content, headers=headers)
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "request_too_large"


@pytest.mark.parametrize(
    ("changes", "param", "code"),
    [
        ({"input": ""}, "input", "invalid_value"),
        ({"input": "a" * 4_097}, "input", "invalid_value"),
        ({"voice": "nobody"}, "voice", "invalid_value"),
        ({"voice": 7}, "voice", "invalid_type"),
        ({"speed": 5}, "speed", "invalid_value"),
        ({"speed": 0.1}, "speed", "invalid_value"),
        ({"response_format": "midi"}, "response_format", "invalid_value"),
        ({"stream_format": "xml"}, "stream_format", "invalid_value"),
        ({"latency_first": "yes"}, "latency_first", "invalid_type"),
        ({"model": None}, "model", "invalid_type"),
    ],
)
async def test_speech_refusals_name_the_parameter(changes: dict[str, Any], param: str, code: str):
    async with client_of() as (client, scripted):
        error = (await client.post(SPEECH, json=SAY | changes)).json()["error"]
        assert (error["param"], error["code"]) == (param, code) and scripted.asked == []


@pytest.mark.parametrize(
    ("data", "files", "param", "code"),
    [
        (FORM, {}, "file", "missing_required_parameter"),
        (FORM | {"file": "text"}, {}, "file", "missing_required_parameter"),
        ({}, FILE, "model", "missing_required_parameter"),
        (FORM | {"response_format": "xml"}, FILE, "response_format", "invalid_value"),
        (FORM | {"response_format": "srt", "stream": "true"}, FILE, "response_format", "unsupported_value"),
        (FORM | {"stream": "perhaps"}, FILE, "stream", "invalid_value"),
        (FORM | {"timestamp_granularities[]": "word"}, FILE, "timestamp_granularities", "invalid_value"),
        (
            FORM | {"timestamp_granularities": "letter", "response_format": "verbose_json"},
            FILE,
            "timestamp_granularities",
            "invalid_value",
        ),
    ],
)
async def test_transcription_refusals_name_the_field(
    data: dict[str, str], files: dict[str, Any], param: str, code: str
):
    async with client_of() as (client, scripted):
        forced = files or {"other": ("b", b"x")}
        response = await client.post(WRITE, data=data, files=forced)
        assert response.status_code == 400, response.text
        error = response.json()["error"]
        assert (error["param"], error["code"]) == (param, code) and scripted.asked == []


@pytest.mark.parametrize("boundary", ["", "; boundary=", "; boundary=x"])
async def test_forms_that_are_none_are_refused(boundary: str):
    async with client_of() as (client, _):
        headers = {"content-type": f"multipart/form-data{boundary}"}
        response = await client.post(WRITE, content=b"--y\r\ngarbage", headers=headers)
        assert response.status_code == 400 and response.json()["error"]["message"]


async def test_a_file_over_25_mb_is_refused():
    async with client_of() as (client, scripted):
        response = await client.post(WRITE, data=FORM, files={"file": ("a.wav", bytes(25_000_001))})
        assert response.status_code == 400 and response.json()["error"]["param"] == "file"
        response = await client.post(WRITE, data=FORM, files={"file": ("a.wav", bytes(26_500_000))})
        assert response.status_code == 413 and scripted.asked == []


async def test_another_model_is_not_found_and_every_served_name_is():
    async with client_of(Ended("stop")) as (client, _):
        response = await client.post(CHAT, json=HI | {"model": "gpt-9"})
        assert response.status_code == 404
        assert response.json()["error"] == {
            "message": "The model 'gpt-9' does not exist; this server has 'm'.",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        assert (await client.post(CHAT, json=HI | {"model": "other"})).json()["model"] == "other"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RemoteProtocolError("invalid_audio", "No sound.", "messages[0]"), 400, "invalid_audio"),
        (BusyError("Full.", 3), 503, "server_busy"),
        (EngineError("It is long.", code="context_length_exceeded"), 400, "context_length_exceeded"),
        (EngineError("It is large.", code="request_too_large"), 413, "request_too_large"),
        (EngineError("It died.", retryable=True), 503, "engine_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_fails_before_the_first_piece_has_a_status(
    error: VoiceAgentError, status: int, code: str, stream: bool
):
    async with client_of(error) as (client, _):
        for path, body in ((CHAT, HI | {"stream": stream}), (SPEECH, SAY)):
            response = await client.post(path, json=body)
            assert response.status_code == status and response.json()["error"]["code"] == code
            assert ("retry-after" in response.headers) is (status == 503)
        response = await client.post(WRITE, data=FORM | {"stream": str(stream).lower()}, files=FILE)
        assert response.status_code == status and response.json()["error"]["code"] == code


async def test_what_fails_later_is_told_in_the_stream():
    async with client_of(TextPiece("Well"), EngineError("It died.", code="engine_died")) as (client, _):
        told = events(await client.post(CHAT, json=HI | {"stream": True}))
        assert told[-1]["error"]["code"] == "engine_died" and "[DONE]" not in told
        assert (await client.post(CHAT, json=HI)).status_code == 503
    async with client_of(SoundPiece(b"a"), EngineError("It died.")) as (client, _):
        told = events(await client.post(SPEECH, json=SAY | {"stream_format": "sse"}))
        assert [event.get("type") for event in told] == ["speech.audio.delta", None]


async def test_speech_as_bytes_and_as_events():
    pieces = (SoundPiece(b"ab"), SoundPiece(b"cd"), Ended("stop", Usage(audio_out=20)))
    async with client_of(*pieces) as (client, scripted):
        response = await client.post(SPEECH, json=SAY | {"response_format": "opus", "speed": 2})
        assert response.content == b"abcd" and response.headers["content-type"] == "audio/ogg"
        asked: SpeechRequest = scripted.asked[0]
        assert (asked.text, asked.speech.voice, asked.speech.speed) == ("Hi.", "joe", 2)
        assert not asked.speech.latency_first and asked.speech.audio_format == "opus"
        told = events(await client.post(SPEECH, json=SAY | {"stream_format": "sse", "latency_first": True}))
        assert told[0] == {"type": "speech.audio.delta", "audio": "YWI="}
        assert told[-1]["usage"]["output_tokens"] == 20 and scripted.asked[1].speech.latency_first


async def test_transcriptions_in_every_form():
    pieces = (Segment("Hello there.", 0.1, 1.0, "en", WORDS), Segment("Bye.", 2, 3, "en"), Transcribed(4.0))
    async with client_of(*pieces) as (client, scripted):

        async def post(**fields: str) -> httpx.Response:
            response = await client.post(WRITE, data=FORM | fields, files=FILE)
            assert response.status_code == 200, response.text
            return response

        assert (await post()).json() == {
            "text": "Hello there. Bye.",
            "usage": {"type": "duration", "seconds": 4.0},
        }
        assert (await post(response_format="text")).text == "Hello there. Bye.\n"
        assert (await post(response_format="srt")).text.startswith("1\n00:00:00,100 --> ")
        vtt = await post(response_format="vtt")
        assert vtt.text.startswith("WEBVTT\n\n") and vtt.headers["content-type"].startswith("text/vtt")
        verbose = (await post(response_format="verbose_json")).json()
        assert [segment["end"] for segment in verbose["segments"]] == [1.0, 3] and "words" not in verbose
        assert not scripted.asked[-1].timed and scripted.asked[1].language is None
        timed = await post(
            **{"response_format": "verbose_json", "timestamp_granularities[]": "word", "language": "ko"}
        )
        assert timed.json()["words"][1] == {"word": "there.", "start": 0.5, "end": 1.0}
        assert "segments" not in timed.json() and scripted.asked[-1].timed
        assert scripted.asked[-1].language == "ko" and scripted.asked[-1].data == b"RIFF"
        told = events(await post(stream="true"))
        assert [event["type"] for event in told] == ["transcript.text.delta"] * 2 + ["transcript.text.done"]
        assert "".join(event.get("delta", "") for event in told) == told[-1]["text"] == "Hello there. Bye."


async def test_the_voices_are_listed_with_their_terms():
    async with client_of() as (client, _):
        (voice,) = (await client.get("/v1/audio/voices")).json()["data"]
        assert (voice["id"], voice["languages"], voice["licence"], voice["default"]) == (
            "joe",
            ["en"],
            "MIT",
            True,
        )
        assert {"preset_spk_1", "alloy"} <= set(voice["aliases"]) and voice["instructions"] is False


async def test_instructions_are_handed_on_and_a_length_only_to_voices_of_random_weights():
    told = SAY | {"instructions": "Whisper.", "max_new_tokens": 30}
    async with client_of(SoundPiece(b"ab"), Ended("stop"), random=True) as (client, scripted):
        assert (await client.post(SPEECH, json=told)).status_code == 200
        speech = scripted.asked[0].speech
        assert (speech.instructions, speech.most_frames) == ("Whisper.", 30)
        assert (await client.get("/v1/audio/voices")).json()["data"][0]["instructions"] is True
        assert (await client.post(SPEECH, json=told | {"max_new_tokens": 0})).status_code == 400
    async with client_of() as (client, scripted):
        refused = await client.post(SPEECH, json=told)
        assert refused.status_code == 400 and scripted.asked == []
        assert refused.json()["error"]["param"] == "max_new_tokens"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, HI),
        (CHAT, HI | {"stream": True}),
        (SPEECH, SAY),
        (SPEECH, SAY | {"stream_format": "sse"}),
        (WRITE, None),
    ],
)
@pytest.mark.parametrize("before", [True, False])
async def test_a_client_that_hangs_up_ends_the_work_behind(path: str, body: Any, before: bool):
    """`before` anything came, and in the middle."""
    piece = {CHAT: TextPiece("Well"), SPEECH: SoundPiece(b"ab"), WRITE: Segment("a", 0, 1, "en")}[path]
    scripted = Scripted([None] if before else [piece, None])
    async with serving(app_of(scripted)) as url, httpx.AsyncClient(base_url=url) as client:
        sent: dict[str, Any] = {"json": body} if body else {"data": FORM, "files": FILE}

        async def ask() -> None:
            async with client.stream("POST", path, **sent) as response:
                async for _ in response.aiter_raw():
                    pass

        asking = asyncio.create_task(ask())
        await until(lambda: scripted.open == 1)
        await asyncio.sleep(0.02)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: scripted.open == 0)


@pytest.mark.parametrize(("path", "body"), [(CHAT, HI | {"stream": True}), (SPEECH, SAY)])
async def test_a_client_that_leaves_without_having_read_ends_the_work_behind(path: str, body: Any):
    """The server waits for room to send in when it goes."""
    scripted, given = Scripted(), 0

    async def endless(request: Any) -> AsyncGenerator[Any]:
        nonlocal given
        scripted.open += 1
        try:
            while given < 2_000:  # 20 MB
                given += 1
                yield TextPiece("word " * 2_000) if path == CHAT else SoundPiece(bytes(10_000))
        finally:
            scripted.open -= 1

    scripted.answer = scripted.say = endless
    async with serving(app_of(scripted)) as url, httpx.AsyncClient(base_url=url) as client:
        async with client.stream("POST", path, json=body):
            before = 0
            while given == 0 or before != given:
                before = given
                await asyncio.sleep(0.1)
            assert scripted.open == 1
        await until(lambda: scripted.open == 0)
        assert given - before < 3


@pytest.mark.parametrize("path", [CHAT, SPEECH, WRITE])
async def test_a_client_that_goes_in_the_middle_of_its_body_is_no_fault_of_the_servers(path: str):
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"--x\r\n", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"multipart/form-data; boundary=x")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scripted = Scripted()
    await app_of(scripted)(
        scope | {"headers": headers, "client": ("127.0.0.1", 1), "scheme": "http"}, receive, send
    )
    assert sent[0]["status"] == 499 and scripted.asked == []


async def test_sound_in_a_conversation_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch):
    goes_on = threading.Event()

    def read(text: str) -> bytes:
        return b"sound" if goes_on.wait(5) else b""

    monkeypatch.setattr("voice_agent.api.chat_messages.from_base64", read)
    part = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    body = HI | {"messages": [{"role": "user", "content": [part]}]}
    async with client_of(TextPiece("Hi."), Ended("stop")) as (client, scripted):
        asyncio.get_running_loop().call_later(0.05, goes_on.set)
        assert (await client.post(CHAT, json=body)).status_code == 200
        assert len(scripted.asked) == 1


DEATH = "the speech engine is down: /srv/voice holds no .onnx; `voice-agent engine restart speech` starts it again"


@pytest.mark.parametrize("code", ["engine_died", "thinker_unreachable", "engine_error", "out_of_memory"])
async def test_callers_are_told_no_path_and_no_command_and_the_log_is(
    code: str, caplog: pytest.LogCaptureFixture
):
    failure = EngineError(DEATH, code=code)
    async with client_of(failure) as (client, _):
        answers = [
            await client.post(CHAT, json=HI),
            await client.post(SPEECH, json=SAY),
            await client.post(WRITE, data=FORM, files=FILE),
        ]
    assert caplog.text.count(DEATH) == 3 and "Traceback" not in caplog.text
    async with client_of(SoundPiece(b"a"), failure) as (client, _):
        answers.append(await client.post(SPEECH, json=SAY | {"stream_format": "sse"}))
    for answer in answers:
        assert code in answer.text and "/srv" not in answer.text and "voice-agent engine" not in answer.text
    async with client_of(EngineError("8 replies are being spoken", code="busy")) as (client, _):
        assert "8 replies" in (await client.post(SPEECH, json=SAY)).text
