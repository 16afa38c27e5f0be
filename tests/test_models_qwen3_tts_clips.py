"""Clips as configured: any PCM WAV at the codec's rate, and errors that name the field."""

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from voice_agent.engine.runtime import TalkerOptions  # noqa: E402
from voice_agent.errors import ConfigError  # noqa: E402
from voice_agent.models.qwen3_tts.clips import read_clips, read_wav  # noqa: E402
from voice_agent.models.qwen3_tts.serving import serve  # noqa: E402


def tone(rate_hz: int, seconds: float = 1.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * 440 * np.arange(int(rate_hz * seconds)) / rate_hz)


def write(path: Path, rate_hz: int = 24_000, width: int = 2, channels: int = 1, seconds: float = 1.0) -> Path:
    sound = np.repeat(tone(rate_hz, seconds)[:, None], channels, axis=1)
    if width == 1:
        data = np.round(sound * 127 + 128).astype(np.uint8).tobytes()
    else:
        whole = np.round(sound * (2 ** (8 * width - 1) - 1)).astype("<i4")
        data = whole.reshape(-1, 1).view(np.uint8)[:, :width].tobytes()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate_hz)
        file.writeframes(data)
    return path


@pytest.mark.parametrize(
    ("rate_hz", "width", "channels"),
    [(24_000, 2, 1), (48_000, 3, 2), (16_000, 4, 1), (44_100, 2, 2), (8_000, 1, 1)],
)
def test_a_wav_of_any_kind_is_the_same_sound(tmp_path: Path, rate_hz: int, width: int, channels: int) -> None:
    sound = read_wav(write(tmp_path / "a.wav", rate_hz, width, channels), "f")
    assert sound.dtype == torch.float32 and len(sound) == 24_000
    assert np.abs(sound.numpy() - tone(24_000)).max() < (0.01 if width == 1 else 1e-3)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("a.wav", r"talker\.clones\.anna: should be"),
        ({"text": "Hello."}, r"talker\.clones\.anna: should be"),
        ({"file": "a.wav", "words": "Hello."}, r"talker\.clones\.anna: should be"),
        ({"file": "/nowhere.wav"}, r"talker\.clones\.anna\.file: /nowhere\.wav is no PCM WAV"),
    ],
)
def test_what_is_wrong_with_a_clip_is_told_with_its_field(told: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_clips({"anna": told})


def test_a_clip_that_is_none_or_too_long_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("no sound")
    for path, said in (
        (tmp_path / "text.wav", "no PCM WAV"),
        (write(tmp_path / "long.wav", 8_000, seconds=31), "longer than 30 s"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_clips({"anna": {"file": str(path)}})


def test_random_weights_clone_a_configured_clip_beside_the_preset_voices(tmp_path: Path) -> None:
    clones = {
        "anna": {"file": str(write(tmp_path / "a.wav", 16_000)), "text": "Hello there."},
        "bert": {"file": str(write(tmp_path / "b.wav", 48_000))},
    }
    extra = {"random": True, "size": "tiny", "slots": 2, "length": 96, "clones": clones}
    serving = serve(TalkerOptions("qwen3-tts", "", extra=extra), lambda stage: None)
    assert serving.voices[-2:] == ("anna", "bert") and "ryan" in serving.voices
    assert serving.random and serving.instructed == serving.voices[:-2]
    anna, bert = (serving.device.openings.open(name, "en") for name in ("anna", "bert"))
    assert (anna.before, len(anna.known), bert.before) == (
        13,
        3,
        0,
    )  # frames of a second; tokens of five letters
    assert anna.prefill_rows == 10 and bert.prefill_rows == 0
    with pytest.raises(ConfigError, match=r"talker\.clones\.ryan"):
        serve(
            TalkerOptions("qwen3-tts", "", extra=extra | {"clones": {"ryan": clones["bert"]}}),
            lambda stage: None,
        )
