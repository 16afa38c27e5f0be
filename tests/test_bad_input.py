"""What a running server says to input that is wrong: a refusal that names it, and session and server go on.

Rows of the tables are what clients get wrong, over raw connections, HTTP, WebSockets and data channels.
"""

import asyncio
import base64
import json
import struct
from collections.abc import Generator
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

from tests.live_server import LiveServer, config_file, live_server
from voice_agent.bench.caller import Caller
from voice_agent.clock import MonotonicClock
from voice_agent.media.containers import encode
from voice_agent.models.tones import sequence

pytestmark = pytest.mark.process

TOML = """
profile = "scripted"
[thinker.options]
texts = ["Yes."]
[recognizer.options]
text = "Tell me something."
"""
SOUND = sequence(["tell", "me", "something"])
WAV = encode(SOUND, "wav", 24_000)
FORMATS: list[Any] = ["wav", "mp3", "flac", "opus", "aac"]
CHAT, SPEECH, WRITE = "/v1/chat/completions", "/v1/audio/speech", "/v1/audio/transcriptions"
HI: Any = {"model": "m", "messages": [{"role": "user", "content": "Hi."}]}
SAY: Any = {"model": "tts-1", "input": "The harbour opens.", "voice": "alloy"}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    """One for all, without a fault in its log in the end."""
    config = config_file(tmp_path_factory.mktemp("bad"), TOML)
    with live_server("--config", str(config), "--served-model-name", "m") as running:
        yield running
        assert httpx.post(f"{running.url}{CHAT}", json=HI).json()["choices"]
        log = "".join(running.lines)
        assert "Traceback" not in log and " ERROR " not in log, log


def error_of(response: httpx.Response) -> Json:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"] and error["code"]
    assert response.headers["x-request-id"].startswith("req_")
    return error


# --- connections ------------------------------------------------------------------------------------------------

UPGRADE = "Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
KEYED = UPGRADE + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
SOCKET = KEYED + "Sec-WebSocket-Version: 13\r\n"
POST = f"POST {SPEECH} HTTP/1.1\r\nHost: localhost\r\n"
REALTIME = "/v1/realtime HTTP/1.1\r\n"


@pytest.mark.parametrize(
    ("raw", "status", "says"),
    [
        ("\0\1\2\r\n\r\n", 400, "illegal request line"),
        ("GET /v1/models HTTP/1.1\r\nhost x\r\n\r\n", 400, "illegal header line"),
        ("GET /v1/models HTTP/1.1\r\n\r\n", 400, "Host"),
        (f"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nx: {'a' * 70_000}", 431, "Receive buffer too long"),
        (f"{POST}Content-Length: -5\r\n\r\n", 400, "bad Content-Length"),
        (f"{POST}Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "illegal chunk header"),
        (f"{POST}Transfer-Encoding: gzip\r\n\r\n", 501, "Only Transfer-Encoding: chunked"),
        (f"GET {REALTIME}{KEYED}\r\n", 400, "missing Sec-WebSocket-Version"),
        (
            f"GET {REALTIME}{KEYED}Sec-WebSocket-Version: 8\r\n\r\n",
            400,
            "invalid Sec-WebSocket-Version header: 8",
        ),
        (f"GET {REALTIME}{SOCKET.replace('dGhl', '!!!!')}\r\n", 400, "invalid Sec-WebSocket-Key"),
        (f"POST {REALTIME}{SOCKET}\r\n", 400, "unsupported HTTP method"),
        (f"GET {REALTIME}{SOCKET}x: {'y' * 20_000}\r\n\r\n", 400, "line too long"),
        (
            f"GET {REALTIME}{SOCKET}{''.join(f'x-{n}: 1' + chr(13) + chr(10) for n in range(300))}\r\n",
            400,
            "too many",
        ),
        (f"GET /v1/nothing HTTP/1.1\r\n{SOCKET}\r\n", 404, "There is no WebSocket at this path"),
        (f"GET {REALTIME}{SOCKET}Origin: https://evil.example\r\n\r\n", 403, "Pages of other origins"),
    ],
)
async def test_what_is_no_request_and_no_handshake_gets_the_error_body(
    server: LiveServer, raw: str, status: int, says: str
) -> None:
    answer = (await exchanged(server, raw.encode())).decode()
    head, _, body = answer.partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ") and "content-type: application/json" in head.lower()
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"} and says in error["message"]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        pytest.param("GET /v1/models HTTP/1.1\r\nhost: localhost\r\nx: ", 431, id="request"),
        pytest.param(f"GET {REALTIME}{SOCKET}x: {'y' * 20_000}\r\n\r\n", 400, id="handshake"),
    ],
)
async def test_who_is_refused_in_mid_sending_still_sees_the_answer(
    server: LiveServer, head: str, status: int
) -> None:
    answer = await exchanged(server, head.encode() + b"a" * 4_000_000)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


async def test_garbage_behind_a_good_request_is_answered_behind_its_answer(server: LiveServer) -> None:
    good = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = (await exchanged(server, good + b"nonsense\r\n\r\n")).decode()
    assert answer.startswith("HTTP/1.1 200 OK") and answer.count("HTTP/1.1") == 2
    assert json.loads(answer.rpartition("\r\n\r\n")[2])["error"]["code"] == "invalid_request"


async def exchanged(server: LiveServer, raw: bytes) -> bytes:
    """All that comes back for these bytes, until the server ends the connection."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(raw)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.transport.abort()  # what was not sent is not wanted any more


# --- HTTP -------------------------------------------------------------------------------------------------------


def heard(data: bytes | str) -> Json:
    """A chat with a sound file in its second part."""
    text = data if isinstance(data, str) else base64.b64encode(data).decode()
    parts: list[Json] = [
        {"type": "text", "text": "x"},
        {"type": "input_audio", "input_audio": {"data": text}},
    ]
    return {"messages": [{"role": "user", "content": parts}]}


def with_rate(rate_hz: int) -> bytes:
    return WAV[:24] + struct.pack("<I", rate_hz) + WAV[28:]


DATA = "messages[0].content[1].input_audio.data"
IMAGE = [{"type": "image_url", "image_url": {"url": "https://example.com/b.png"}}]
SPOKEN: Json = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}
NAMED = {"type": "function", "function": {"name": "nothing"}}
CHATS: list[tuple[Json, str | None]] = [
    (heard("!!!"), DATA),
    (heard(""), DATA),
    (heard("AAAA"), DATA),
    (heard(WAV[:44]), DATA),
    (heard(WAV[:44] + bytes(25_100_000)), DATA),
    *((heard(with_rate(rate)), DATA) for rate in (0, 1, 3_999, 400_000, 0xFFFFFFFF)),
    *((heard(encode(SOUND, kind, 24_000)[:part]), DATA) for kind in FORMATS for part in (10, 60, 2_001, -50)),
    ({"messages": [{"role": "user", "content": IMAGE}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": []}, "messages"),
    ({"messages": "x"}, "messages"),
    (SPOKEN | {"n": 2}, "n"),
    (SPOKEN | {"audio": {"voice": "nobody", "format": "wav"}}, "audio.voice"),
    (SPOKEN | {"audio": {"voice": "alloy", "format": "midi"}}, "audio.format"),
    ({"modalities": ["video"]}, "modalities[0]"),
    *(({"latency_first": value}, "latency_first") for value in ("yes", "true", 1, 0, None, [], {})),
    ({"temperature": 3}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"seed": 1.5}, "seed"),
    ({"stop": ["a"] * 5}, "stop"),
    ({"tools": [{"type": "x"}]}, None),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": NAMED}, "tool_choice"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
]


@pytest.mark.parametrize(("changes", "param"), CHATS, ids=lambda value: str(value)[:60])
def test_a_chat_that_cannot_be_is_a_400_that_names_it(
    server: LiveServer, changes: Json, param: str | None
) -> None:
    response = httpx.post(f"{server.url}{CHAT}", json=HI | changes, timeout=30)
    assert response.status_code == 400, response.text
    error = error_of(response)
    assert param is None or error["param"] == param, error


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        *(({"latency_first": value}, "latency_first") for value in ("yes", 1, None)),
        ({"speed": 0.1}, "speed"),
        ({"speed": "fast"}, "speed"),
        ({"input": ""}, "input"),
        ({"input": None}, "input"),
        ({"input": "x" * 4_097}, "input"),
        ({"voice": "nobody"}, "voice"),
        ({"response_format": "ogg"}, "response_format"),
        ({"stream_format": "x"}, "stream_format"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_speech_that_cannot_be_is_a_400_that_names_it(server: LiveServer, changes: Json, param: str) -> None:
    response = httpx.post(f"{server.url}{SPEECH}", json=SAY | changes)
    assert response.status_code == 400 and error_of(response)["param"] == param


@pytest.mark.parametrize(
    ("fields", "file", "param"),
    [
        ({}, None, "file"),
        ({}, b"", "file"),
        ({}, b"zzzz" * 100, "file"),
        ({}, WAV[:1_000], "file"),
        ({}, encode(SOUND, "mp3", 24_000)[:3_000], "file"),
        ({}, WAV[:44] + bytes(25_100_000), "file"),
        ({"language": "xx"}, WAV, "language"),
        ({"language": "english"}, WAV, "language"),
        ({"response_format": "x"}, WAV, "response_format"),
        ({"stream": "x"}, WAV, "stream"),
        ({"stream": "true", "language": "xx"}, WAV, "language"),
        ({"timestamp_granularities[]": "word"}, WAV, "timestamp_granularities"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_file_to_write_down_that_cannot_be_is_a_400_that_names_it(
    server: LiveServer, fields: Json, file: bytes | None, param: str
) -> None:
    files: Any = {"file": ("a.wav", file)} if file is not None else {"other": ("a.wav", b"")}
    response = httpx.post(f"{server.url}{WRITE}", data={"model": "w"} | fields, files=files, timeout=30)
    assert response.status_code == 400, response.text
    assert error_of(response)["param"] == param


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", CHAT, DEEP, 400),
        ("POST", CHAT, b'{"a":' * 100_000, 400),
        ("POST", CHAT, b'{"model":"\xff\xfe"}', 400),
        ("POST", CHAT, b'{"model":"\\ud800","messages":[]}', 400),
        ("POST", CHAT, b'{"model":"m","temperature":NaN}', 400),
        ("POST", CHAT, b'{"model":"m","seed":' + b"9" * 400 + b"}", 400),
        ("POST", CHAT, b"", 400),
        ("POST", CHAT, b"[]", 400),
        ("POST", CHAT, b"x" * 51_000_000, 413),
        ("POST", SPEECH, b"x" * 20_000_000, 413),
        ("POST", WRITE, b"{}", 415),
        ("POST", "/v1/realtime/client_secrets", b"{", 400),
        ("POST", "/v1/realtime/calls/rtc_none/hangup", b"", 404),
        ("POST", "/v1/nothing", b" " * 1_000_000, 404),
        ("GET", "/v1/models/none", b"", 404),
        ("GET", CHAT, b"", 405),
        ("PUT", "/v1/models", b"", 405),
        ("GET", "/v1/realtime", b"", 426),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bodies_and_paths_that_are_none_get_the_error_body(
    server: LiveServer, method: str, path: str, content: bytes, status: int
) -> None:
    response = httpx.request(method, f"{server.url}{path}", content=content, timeout=30)
    assert response.status_code == status, response.text
    error_of(response)


# --- events ------------------------------------------------------------------------------------------------------


def session(**fields: Any) -> Json:
    return {"type": "session.update", "session": {"type": "realtime"} | fields}


def created(**item: Any) -> Json:
    return {"type": "conversation.item.create", "item": item}


def message(**part: Any) -> Json:
    return created(type="message", role="user", content=[part])


FORMAT = "session.audio.input.format"
DETECTION = "session.audio.input.turn_detection"
EVENTS: list[tuple[Json | str | bytes, str, str | None]] = [
    ("{}", "invalid_event", "type"),
    ("[]", "invalid_event", None),
    ("nonsense", "invalid_event", None),
    (DEEP.decode(), "invalid_event", None),
    ({"type": "no.such"}, "invalid_value", "type"),
    ({"type": "session.updat", "session": {}}, "invalid_value", "type"),
    ('{"type":"response.cancel","x":' + "9" * 400 + "}", "invalid_event", None),
    (session(typo=1), "unknown_parameter", "session.typo"),
    (session(latency_first="yes"), "invalid_type", "session.latency_first"),
    (session(latency_first=None), "invalid_type", "session.latency_first"),
    (session(output_modalities=["text", "audio"]), "invalid_value", "session.output_modalities"),
    (session(tools=[{"type": "function"}]), "missing_required_parameter", "session.tools[0].name"),
    (session(audio={"output": {"voice": "nobody"}}), "invalid_value", "session.audio.output.voice"),
    (session(audio={"output": {"speed": 9}}), "invalid_value", "session.audio.output.speed"),
    (
        session(audio={"input": {"format": {"type": "audio/pcm", "rate": 16_000}}}),
        "invalid_value",
        f"{FORMAT}.rate",
    ),
    (session(audio={"input": {"format": {"type": "audio/mp3"}}}), "invalid_value", f"{FORMAT}.type"),
    (session(audio={"input": {"turn_detection": {"type": "magic"}}}), "invalid_value", f"{DETECTION}.type"),
    (
        session(audio={"input": {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 1}}}),
        "invalid_value",
        f"{DETECTION}.idle_timeout_ms",
    ),
    (
        session(audio={"input": {"transcription": {"model": "whisper-1", "language": "xx"}}}),
        "invalid_value",
        "session.audio.input.transcription.language",
    ),
    (message(type="input_image", image_url="x"), "unsupported_value", "item.content[0].type"),
    (message(type="input_audio", audio="!!"), "invalid_value", "item.content[0].audio"),
    ({"type": "conversation.item.retrieve", "item_id": "no"}, "item_retrieve_invalid_item_id", "item_id"),
    ({"type": "conversation.item.delete", "item_id": "no"}, "item_delete_invalid_item_id", "item_id"),
    ({"type": "response.cancel"}, "response_cancel_not_active", None),
    ({"type": "response.create", "response": {"latency_first": 1}}, "invalid_type", "response.latency_first"),
    (
        {"type": "response.create", "response": {"conversation": "x"}},
        "invalid_value",
        "response.conversation",
    ),
    ({"type": "response.create", "response": {"metadata": {"a": 1}}}, "invalid_type", "response.metadata.a"),
]
APPEND = "input_audio_buffer.append"
FRAMES: list[tuple[Json | str | bytes, str, str | None]] = [
    (b"\xff\xfe\x00", "invalid_event", None),
    (b"{}", "invalid_event", "type"),
    ('{"a":' * 100_000, "event_too_large", None),
    (session(instructions="x" * 20_000_000), "event_too_large", None),
    ({"type": "x", "y": "x" * 20_000_000}, "event_too_large", None),
    ({"type": APPEND, "audio": "A" * 20_000_000 + "!"}, "invalid_value", "audio"),
    ({"type": APPEND, "audio": "!!"}, "invalid_value", "audio"),
    ({"type": APPEND, "audio": "AAAAA"}, "invalid_value", "audio"),
    ({"type": APPEND}, "missing_required_parameter", "audio"),
    ({"type": "input_audio_buffer.commit"}, "input_audio_buffer_commit_empty", None),
    ({"type": "output_audio_buffer.clear"}, "invalid_event_for_transport", "type"),
]
LAST: Json = {
    "type": "session.update",
    "event_id": "last",
    "session": {"type": "realtime", "instructions": "x"},
}


async def told(connection: ClientConnection, *wanted: str) -> Json:
    """The next event of these types."""
    async with asyncio.timeout(20):
        while True:
            event = json.loads(await connection.recv())
            if event["type"] in wanted:
                return event


def socket(server: LiveServer, **extra: Any) -> connect:
    return connect(f"{server.url.replace('http', 'ws')}/v1/realtime?model=m", max_size=None, **extra)


@pytest.mark.parametrize(("event", "code", "param"), EVENTS + FRAMES, ids=lambda value: str(value)[:60])
async def test_a_wrong_event_over_a_websocket_is_an_error_event_and_the_session_goes_on(
    server: LiveServer, event: Json | str | bytes, code: str, param: str | None
) -> None:
    async with socket(server) as connection:
        await told(connection, "session.created")
        if isinstance(event, dict):
            event = event | {"event_id": "wrong"}
        await connection.send(json.dumps(event) if isinstance(event, dict) else event)
        error = (await told(connection, "error", "session.updated"))["error"]
        assert (error["code"], error["param"]) == (code, param) and error["type"] == "invalid_request_error"
        if isinstance(event, dict) and code != "event_too_large":
            assert error["event_id"] == "wrong"
        await connection.send(json.dumps(LAST))
        assert (await told(connection, "error", "session.updated"))["type"] == "session.updated"


@pytest.mark.parametrize("fragments", [[b'{"type":"\xff"}'], [b'{"type":"', b"\xc3", b'\x28"}']])
async def test_text_that_is_no_utf8_costs_no_session(server: LiveServer, fragments: list[bytes]) -> None:
    async with socket(server) as connection:
        await told(connection, "session.created")
        for n, data in enumerate(fragments):
            kind = Opcode.CONT if n else Opcode.TEXT
            connection.protocol.send_frame(Frame(kind, data, fin=n == len(fragments) - 1))
        connection.transport.writelines(connection.protocol.data_to_send())
        error = (await told(connection, "error"))["error"]
        assert error["code"] == "invalid_event" and "no UTF-8 from character 9 on" in error["message"]
        await connection.send(json.dumps(LAST))
        await told(connection, "session.updated")


async def test_half_a_sample_is_kept_for_the_next_append(server: LiveServer) -> None:
    """An append has no answer of its own; sound may be cut anywhere, and is whole when all of it has come."""
    detection: Json = {"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}}
    async with socket(server) as connection:
        await told(connection, "session.created")
        await connection.send(json.dumps(session(audio=detection)))
        await told(connection, "session.updated")
        pcm = np.full(24_000, 1_000, "<i2").tobytes()
        for at in range(0, len(pcm), 4_801):
            audio = base64.b64encode(pcm[at : at + 4_801]).decode()
            await connection.send(json.dumps({"type": APPEND, "audio": audio}))
        await connection.send(json.dumps({"type": "input_audio_buffer.commit"}))
        done = "conversation.item.input_audio_transcription.completed"
        completed = await told(connection, "error", done)
        assert completed["type"] == done and completed["transcript"] == "Tell me something."


async def test_a_frame_over_the_limit_closes_one_connection_and_says_why(server: LiveServer) -> None:
    async with socket(server) as connection:
        await told(connection, "session.created")
        await connection.send("x" * 40_000_000)
        await asyncio.wait_for(connection.wait_closed(), 20)
        assert connection.close_code == 1009 and "exceeds limit" in (connection.close_reason or "")


async def test_another_model_and_another_origin_are_refused_before_the_upgrade(server: LiveServer) -> None:
    foreign: Any = {"origin": "https://evil.example"}
    for extra, query, status in ((foreign, "", 403), ({}, "?model=nobody", 404)):
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"{server.url.replace('http', 'ws')}/v1/realtime{query}", **extra):
                pass
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body or b"")["error"]["message"]


SOUNDLESS: list[tuple[Json | str | bytes, str, str | None]] = [
    *((event, code, param) for event, code, param in EVENTS if len(str(event)) < 60_000),
    (b"{}", "invalid_message", None),
    ("x" * 70_000, "message_too_large", None),
    (DEEP[:50_000].decode(), "invalid_event", None),
    ({"type": APPEND, "audio": "AAAA"}, "invalid_event_for_transport", "type"),
    (
        {"type": "conversation.item.truncate", "item_id": "no", "content_index": 0, "audio_end_ms": 1},
        "item_truncate_invalid_item_id",
        "item_id",
    ),
]


TEXT_PPID = 51  # RFC 8831


@pytest.mark.loopback
async def test_wrong_events_over_a_data_channel_are_error_events_and_the_call_goes_on(
    server: LiveServer,
) -> None:
    async with Caller(server.url, MonotonicClock()) as caller:
        channel: Any = caller._channel  # pyright: ignore[reportPrivateUsage]
        for n, (event, code, param) in enumerate(SOUNDLESS, 1):
            channel.send(json.dumps(event) if isinstance(event, dict) else event)
            errors: list[Json] = []

            def came(count: int = n, errors: list[Json] = errors) -> bool:
                errors[:] = [one.event["error"] for one in caller.events if one.kind == "error"]
                return len(errors) >= count

            assert await caller.event(lambda _: came(), 20), f"nothing came for {str(event)[:80]}"
            assert (errors[-1]["code"], errors[-1]["param"]) == (code, param), errors[-1]
        await channel.transport._send(channel.id, TEXT_PPID, b'{"type":"\xff"}')
        assert await caller.event(lambda one: one.kind == "error" and "no UTF-8" in str(one.event), 20)
        channel.send(json.dumps(LAST))
        assert await caller.event(lambda one: one.kind == "session.updated", 20)
