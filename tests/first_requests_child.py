"""A scripted server in this process and one request of each kind to it: tells which modules each was the first to want.

The clients are sockets and the standard library's HTTP, which are there before the first request.
"""

import asyncio
import base64
import http.client
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from tests.test_media_offer import AUDIO, DATA, SESSION
from voice_agent.config_sources import load_config
from voice_agent.server import serve

BOUNDARY = "boundary"
WAV = base64.b64decode(
    "UklGRiQAAABXQVZFZm10IBAAAAABAAEAgD4AAAB9AAACABAAZGF0YQAAAAA="  # a head for 16 kHz, no sound yet
)
HELLO = [{"role": "user", "content": "Hello."}]


def post(port: int, path: str, body: bytes, kind: str = "application/json", method: str = "POST") -> int:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    line.request(method, path, body, {"content-type": kind})
    answer = line.getresponse()
    answer.read()
    line.close()
    return answer.status


def speech(**more: object) -> Callable[[int], int]:
    body = json.dumps({"model": "tts-1", "input": "Hello there, you.", **more}).encode()
    return lambda port: post(port, "/v1/audio/speech", body)


def chat(**more: object) -> Callable[[int], int]:
    body = json.dumps({"model": "voice-agent", "messages": HELLO, **more}).encode()
    return lambda port: post(port, "/v1/chat/completions", body)


def transcription(port: int) -> int:
    sound = WAV[:40] + (32_000).to_bytes(4, "little") + bytes(range(1, 251)) * 128
    parts = [
        f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n'.encode(),
        f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'.encode(),
        sound,
        f"\r\n--{BOUNDARY}--\r\n".encode(),
    ]
    return post(
        port, "/v1/audio/transcriptions", b"".join(parts), f"multipart/form-data; boundary={BOUNDARY}"
    )


def call(port: int) -> int:
    offer = (SESSION.replace("0 1 2", "0 2") + AUDIO + DATA).encode()
    return post(port, "/v1/realtime/calls", offer, "application/sdp")


def socket_call(port: int) -> int:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    key = base64.b64encode(bytes(16)).decode()
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    line.request("GET", "/v1/realtime?model=voice-agent", headers=upgrade | {"sec-websocket-key": key})
    status = line.getresponse().status
    assert line.sock
    line.sock.recv(100)  # session.created
    line.close()
    return status


REQUESTS: dict[str, Callable[[int], int]] = {
    **{
        f"speech {name}": speech(response_format=name)
        for name in ("pcm", "mp3", "wav", "opus", "aac", "flac")
    },
    "speech quality": speech(response_format="pcm", latency_first=False),
    "speech events": speech(stream_format="sse"),
    "chat": chat(),
    "chat streamed": chat(stream=True),
    "chat spoken": chat(modalities=["text", "audio"], audio={"voice": "alloy", "format": "mp3"}),
    "transcription": transcription,
    "secret": lambda port: post(port, "/v1/realtime/client_secrets", b"{}"),
    "call": call,
    "socket call": socket_call,
    "page": lambda port: post(port, "/", b"", method="GET"),
    "ready": lambda port: post(port, "/readyz", b"", method="GET"),
}


async def main() -> None:
    """Serve, ask, print, and leave without more ado."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def tell(line: str) -> None:
        if line.startswith("ready: ") and not ready.done():
            ready.set_result(line)

    flags: dict[str, Any] = {"profile": "scripted", "server": {"port": 0}}
    serving = asyncio.create_task(serve(load_config(flags=flags), tell))
    await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
    port = int(ready.result().rsplit(":", 1)[1].strip("/"))
    known, found = set(sys.modules), dict[str, object]()
    for name, ask in REQUESTS.items():
        status = await asyncio.to_thread(ask, port)
        found[name] = [status, sorted(set(sys.modules) - known)]
        known |= set(sys.modules)
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
