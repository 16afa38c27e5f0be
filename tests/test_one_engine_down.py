"""One engine of a running server is down: what needs it is refused in callers' words, all else is served."""

import io
import time
import wave
from collections.abc import Callable, Generator

import httpx
import pytest

from tests.live_server import LiveServer, live_server
from tests.scripted_calls import OFFER

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def server() -> Generator[LiveServer]:
    with live_server("--profile", "scripted") as running:
        yield running


def sound() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(16_000)
        writer.writeframes(bytes(16_000))
    return file.getvalue()


def chat(url: str) -> httpx.Response:
    messages = [{"role": "user", "content": "Hi."}]
    return httpx.post(
        f"{url}/v1/chat/completions", json={"model": "voice-agent", "messages": messages}, timeout=20
    )


def spoken_chat(url: str) -> httpx.Response:
    body = {
        "model": "voice-agent",
        "messages": [{"role": "user", "content": "Hi."}],
        "modalities": ["text", "audio"],
        "audio": {"voice": "alloy", "format": "wav"},
    }
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=20)


def speech(url: str) -> httpx.Response:
    body = {"model": "tts-1", "input": "Hello.", "response_format": "pcm"}
    return httpx.post(f"{url}/v1/audio/speech", json=body, timeout=20)


def transcription(url: str) -> httpx.Response:
    files = {"file": ("a.wav", sound())}
    return httpx.post(f"{url}/v1/audio/transcriptions", files=files, data={"model": "whisper-1"}, timeout=20)


def call(url: str) -> httpx.Response:
    headers = {"content-type": "application/sdp"}
    return httpx.post(f"{url}/v1/realtime/calls", content=OFFER, headers=headers, timeout=20)


def waited(condition: Callable[[], bool], seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until_s, "it did not come true in time"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("down", "served", "refused"),
    [
        ("speech", [chat, transcription], [speech, spoken_chat, call]),
        ("thinker", [speech], [chat, spoken_chat, transcription, call]),
    ],
)
def test_each_request_is_refused_only_for_what_it_needs(
    server: LiveServer,
    down: str,
    served: list[Callable[[str], httpx.Response]],
    refused: list[Callable[[str], httpx.Response]],
) -> None:
    httpx.post(f"{server.url}/operator/engines/{down}/stop")
    told = f"the {down} engine is stopped by an operator"
    waited(lambda: told in httpx.get(f"{server.url}/readyz").text, 10)
    assert httpx.get(f"{server.url}/page.json").json()["state"] == "stopped"
    for ask in served:
        answer = ask(server.url)
        assert answer.status_code == 200, (ask, answer.text)
    for ask in refused:
        answer = ask(server.url)
        assert answer.status_code == 503 and answer.headers["retry-after"] == "2", (ask, answer.text)
        assert answer.json()["error"]["message"] == f"The server is not ready: {told}."
        assert answer.json()["error"]["code"] == "server_busy"
    httpx.post(f"{server.url}/operator/engines/{down}/restart")
    waited(lambda: httpx.get(f"{server.url}/readyz").status_code == 200, 30)
    for ask in [*served, *refused[:-1]]:
        assert ask(server.url).status_code == 200
