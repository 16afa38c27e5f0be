"""The requests without a session with real models, once each: the SDK asks, Whisper hears what Piper said."""

import base64
from typing import Any

import pytest
from openai import OpenAI

from tests.live_server import live_server
from tests.model_weights import words_wrong
from voice_agent.media.containers import decode

pytestmark = [pytest.mark.weights, pytest.mark.process]

TEXT = "The harbour opens early and closes late in summer."


def test_speech_transcription_and_a_spoken_answer() -> None:
    with (
        live_server("--profile", "cpu-small") as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="x") as client,
    ):
        sound = client.audio.speech.create(
            model="tts-1", voice="alloy", input=TEXT, response_format="opus"
        ).read()
        assert 2.0 < len(decode(sound, 16_000, 30)) / 16_000 < 6.0
        transcriptions: Any = client.audio.transcriptions
        heard = transcriptions.create(
            model="whisper-1",
            file=("a.ogg", sound),
            response_format="verbose_json",
            timestamp_granularities=["word"],
        )
        wrong, wanted = words_wrong(TEXT, heard.text)
        assert wrong <= wanted // 3
        times = [(word.start, word.end) for word in heard.words]
        assert all(a <= b <= c for (a, b), (c, _) in zip(times, times[1:], strict=False))
        assert 0.5 < times[-1][1] <= heard.duration + 0.1

        b64 = base64.b64encode(sound).decode()
        part: Any = {
            "type": "input_audio",
            "input_audio": {"data": b64, "format": "wav"},
        }  # wrong, and no matter
        reply = client.chat.completions.create(
            model="voice-agent",
            modalities=["text", "audio"],
            audio={"voice": "alloy", "format": "mp3"},
            messages=[{"role": "user", "content": [part, {"type": "text", "text": "Repeat this."}]}],
            max_completion_tokens=24,
        )
        audio = reply.choices[0].message.audio
        assert audio and audio.transcript
        assert len(decode(base64.b64decode(audio.data), 16_000, 60)) > 8_000
        assert reply.usage and reply.usage.completion_tokens <= 24 + 20 * 30
