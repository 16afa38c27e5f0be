"""How each server's speech route is asked and how its answer is read: small adapters, one per server.

All take POST /v1/audio/speech in OpenAI's form and stream 24 kHz mono int16; they differ in what turns streaming on,
in how a reply's length is limited, and in what wraps the samples.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from voice_agent.bench.load import Job
from voice_agent.errors import ConfigError

RATE_HZ = 24_000
STREAMED = {"stream": True, "non_streaming_mode": False}


class NotSound(Exception):
    """The answer is not what this server's adapter reads."""


@dataclass(frozen=True, slots=True)
class SpeechServer:
    """One server's dialect: fields that every request carries, how a length in frames is forced, what comes back."""

    name: str
    fields: Mapping[str, Any]
    length_field: str | None = None
    wav: bool = False
    voice: str = "ryan"
    language: str | None = "English"
    model: str | None = None
    path: str = "/v1/audio/speech"


SERVERS = {
    server.name: server
    for server in (
        SpeechServer(
            "ours",
            {"response_format": "pcm", "stream_format": "audio", "latency_first": True},
            "max_new_tokens",
            voice="",
            language=None,
            model="tts-1",
        ),
        SpeechServer("nari", {"response_format": "pcm", **STREAMED}, "max_new_tokens"),
        SpeechServer(
            "vllm-omni", {"response_format": "pcm", "stream_format": "audio", **STREAMED}, "max_new_tokens"
        ),
        SpeechServer("sglang-omni", {"response_format": "pcm", **STREAMED}, "max_new_tokens"),
        SpeechServer("voxserve", {"response_format": "pcm", **STREAMED}),
        SpeechServer("mstar", {"response_format": "wav", **STREAMED}, wav=True),
    )
}


@dataclass(frozen=True, slots=True)
class Asking:
    """What the command line says about the requests; `extra` fields win over the adapter's own."""

    server: SpeechServer
    model: str | None = None
    voice: str | None = None
    language: str | None = None
    force_lengths: bool = False
    length_field: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def body(self, job: Job, *, latency_first: bool = True) -> bytes:
        """The JSON of one request. Raises ConfigError where lengths are forced and no field is known for it."""
        server = self.server
        values: dict[str, Any] = {"input": job.text, **server.fields}
        given = {
            "model": server.model if self.model is None else self.model,
            "voice": server.voice if self.voice is None else self.voice,
            "language": server.language if self.language is None else self.language,
        }
        values |= {name: value for name, value in given.items() if value}
        if "latency_first" in values:
            values["latency_first"] = latency_first
        if self.force_lengths:
            name = self.length_field or server.length_field
            if name is None:
                raise ConfigError(f"no field is known that sets {server.name}'s length: give --length-field")
            values[name] = job.frames
        return json.dumps({**values, **self.extra}).encode()


class SoundReader:
    """Bodies in, int16 samples as bytes out: raw, or behind a WAV header whose sizes a stream cannot know."""

    def __init__(self, *, wav: bool) -> None:
        self._head: bytearray | None = bytearray() if wav else None

    def feed(self, piece: bytes) -> bytes:
        """More of the body came. Raises NotSound for a WAV of another kind."""
        if self._head is None:
            return piece
        self._head += piece
        begin = _data_begin(bytes(self._head))
        if begin is None:
            return b""
        sound, self._head = bytes(self._head[begin:]), None
        return sound


def check_answer(status: int, headers: Mapping[str, str]) -> str | None:
    """Why an answer is no sound, None if it is."""
    if status != 200:
        return f"status {status}"
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.startswith("text/") or kind == "application/json":
        return f"content type {kind}"
    rate = headers.get("x-sample-rate")
    if rate is not None and rate != str(RATE_HZ):
        return f"a rate of {rate[:10]} Hz instead of {RATE_HZ}"
    return None


def _data_begin(head: bytes) -> int | None:
    """Where the samples of a WAV begin, None while its header is not whole."""
    if len(head) < 12:
        return None
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        raise NotSound("the answer does not begin like a WAV")
    at = 12
    while len(head) >= at + 8:
        name, size = struct.unpack_from("<4sI", head, at)
        if name == b"data":
            return at + 8
        if name == b"fmt " and len(head) >= at + 24:
            coding, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", head, at + 8)
            if (channels, rate_hz, bits) != (1, RATE_HZ, 16) or coding not in (1, 0xFFFE):
                raise NotSound(f"a WAV of {channels} x {rate_hz} Hz, {bits} bits, coding {coding}")
        at += 8 + size + size % 2
    return None
