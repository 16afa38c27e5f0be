"""Each server that `bench speech` can ask, as a small fake that takes and gives only what that server's API does.

Wire forms from the servers' published request schemas and from the adapters of Nari's public benchmark: strict field
lists, what turns streaming on, content types, the rate header of one and the endless WAV of another.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.test_bench_speech import bench, running, sound
from tests.test_bench_speech_wire import wav_head
from voice_agent.bench.speech import main

CHUNK = sound(200)
QWEN = {
    "model",
    "input",
    "voice",
    "language",
    "stream",
    "non_streaming_mode",
    "response_format",
    "max_new_tokens",
}


@dataclass(frozen=True)
class Form:
    """What a server wants of a streamed request, which fields it knows, and how its answer begins."""

    wants: Mapping[str, Any]
    knows: set[str]
    headers: Sequence[tuple[bytes, bytes]]
    head: bytes = b""


STREAMED = {"stream": True, "non_streaming_mode": False, "response_format": "pcm"}
PCM = [(b"content-type", b"audio/pcm")]
FORMS = {
    "nari": Form(STREAMED, QWEN | {"seed", "ignore_eos", "instructions"}, PCM),
    "vllm-omni": Form(
        STREAMED | {"stream_format": "audio"}, QWEN | {"stream_format", "instructions", "speed"}, PCM
    ),
    "sglang-omni": Form(STREAMED, QWEN, [*PCM, (b"x-sample-rate", b"24000")]),
    "voxserve": Form(STREAMED, QWEN - {"max_new_tokens"}, [(b"content-type", b"application/octet-stream")]),
    "mstar": Form(
        STREAMED | {"response_format": "wav"},
        QWEN - {"max_new_tokens"},
        [(b"content-type", b"audio/wav")],
        wav_head(),
    ),
}


@dataclass
class Peer:
    """A server of one form: 422 for a field it does not know, a whole answer at the end for what is not streamed."""

    form: Form
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        asked = json.loads(body)
        self.asked.append(asked)
        right = scope["path"] == "/v1/audio/speech" and set(asked) <= self.form.knows
        streamed = all(asked.get(name) == value for name, value in self.form.wants.items())
        await send(
            {
                "type": "http.response.start",
                "status": 200 if right else 422,
                "headers": list(self.form.headers),
            }
        )
        pieces = [self.form.head[:7], self.form.head[7:] + CHUNK[:4_001], CHUNK[4_001:], CHUNK]
        for piece in pieces if streamed else [b"".join(pieces)]:
            await asyncio.sleep(0.005 if streamed else 0.5)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.mark.loopback
@pytest.mark.parametrize("name", FORMS)
async def test_a_server_is_asked_in_its_own_way_and_its_sound_is_read(name: str, tmp_path: Path) -> None:
    peer = Peer(FORMS[name])
    lengths = ["--force-lengths"] if "max_new_tokens" in peer.form.knows else []
    async with running(peer) as url:
        more = ["--server", name, "--rps", "12", "--seconds", "0.6", "--transcribe", "1", *lengths]
        if not lengths:
            more = more[:-2]
        status, report = await bench(url, tmp_path, *more)
    [p] = report["points"]
    assert status == 0, p["failures"]
    assert p["answered"] == p["due"] == len(peer.asked) > 3
    assert p["audible_ms"]["p50"] < 400  # it streams
    assert p["audio_s_per_s"] == pytest.approx(0.4 * p["due"] / 0.6, abs=0.1)
    assert all(asked["voice"] == "ryan" and asked["language"] == "English" for asked in peer.asked)
    if lengths:
        assert all(16 <= asked["max_new_tokens"] <= 140 for asked in peer.asked)
        assert p["replies_recognized"] == 0 and "random weights" in p["verdict"]["intelligible_note"]


@pytest.mark.loopback
async def test_a_field_that_a_server_does_not_know_is_told_as_its_refusal(tmp_path: Path) -> None:
    peer = Peer(FORMS["nari"])
    async with running(peer) as url:
        status, report = await bench(url, tmp_path, "--server", "nari", "--rps", "8", "--extra", "mode=1")
    assert status == 1 and set(report["points"][0]["failures"]) == {"status 422"}


def test_a_server_without_a_field_for_lengths_is_not_asked_for_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("voxserve", "mstar"):
        assert main(["--server", name, "--force-lengths"]) == 2
        assert "--length-field" in capsys.readouterr().err
