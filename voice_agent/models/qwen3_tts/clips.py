"""Clips that voices are cloned from, as configured: a WAV file each, and what is said in it if that is known.

Brings any PCM WAV to the codec's rate. Knows no engine; `cloning` makes voices of what is read here.
"""

import wave
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from voice_agent.errors import ConfigError
from voice_agent.models.qwen3_tts.config import RATE_HZ

LONGEST_S = 30.0  # half a minute of codes before every reply; more gives no closer voice
_KINDS = {1: "u1", 2: "<i2", 4: "<i4"}  # bytes of a sample


@dataclass(frozen=True)
class VoiceClip:
    """One configured clip: samples [T] at 24 kHz in -1..1; `text` is empty if nobody wrote it down."""

    samples: Tensor
    text: str


def read_clips(configured: Mapping[str, Any]) -> dict[str, VoiceClip]:
    """Clips by voice name; raises ConfigError that names the field and what would be right."""
    return {name: _clip(f"talker.clones.{name}", told) for name, told in configured.items()}


def _clip(path: str, told: Any) -> VoiceClip:
    fields = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    file, text = fields.get("file"), fields.get("text", "")
    if not isinstance(file, str) or not isinstance(text, str) or set(fields) - {"file", "text"}:
        raise ConfigError(f'{path}: should be {{ file = "clip.wav", text = "what is said in it" }}')
    return VoiceClip(read_wav(Path(file).expanduser(), f"{path}.file"), text.strip())


def read_wav(path: Path, field: str) -> Tensor:
    """A PCM WAV's sound, mono at 24 kHz in -1..1; raises ConfigError that names the field."""
    try:
        with wave.open(str(path), "rb") as file:
            width, channels, rate_hz = file.getsampwidth(), file.getnchannels(), file.getframerate()
            if file.getnframes() > LONGEST_S * rate_hz:
                raise ConfigError(
                    f"{field}: {path} is longer than {LONGEST_S:g} s; cut it to its best sentence"
                )
            data = file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise ConfigError(f"{field}: {path} is no PCM WAV that can be read ({error})") from error
    return _resampled(torch.from_numpy(_samples(data, width).reshape(-1, channels).mean(1)), rate_hz)


def _samples(data: bytes, width: int) -> np.ndarray:
    if width == 3:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        data, width = wide.tobytes(), 4
    samples = np.frombuffer(data, _KINDS[width]).astype(np.float32)
    return (samples - 128) / 128 if width == 1 else samples / 2.0 ** (8 * width - 1)


def _resampled(samples: Tensor, rate_hz: int) -> Tensor:
    """The same spectrum at 24 kHz, cut or filled up; a whole clip at once, so that nothing need be filtered."""
    if rate_hz == RATE_HZ or not len(samples):
        return samples.float()
    count = round(len(samples) * RATE_HZ / rate_hz)
    spectrum = torch.fft.rfft(samples.double())
    return (torch.fft.irfft(spectrum, n=count) * (count / len(samples))).float()
