"""The log mel spectrogram that the speaker encoder hears: 24 kHz, 1,024-point windows every 256 samples.

Bands as librosa's default (Slaney's scale, each band of unit area), so that no audio library is needed here.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from voice_agent.models.qwen3_tts.config import RATE_HZ

WINDOW_SAMPLES = 1_024
HOP_SAMPLES = 256
_QUIETEST = 1e-5
_LINEAR_HZ = 200 / 3  # below 1 kHz a mel is so many Hz
_BREAK_HZ, _BREAK_MEL = 1_000.0, 15.0
_STEP = math.log(6.4) / 27  # above it a mel is so much in log frequency


def log_mel(samples: Tensor, bands: int) -> Tensor:
    """A clip [T] in -1..1 to [bands, frames]."""
    margin = (WINDOW_SAMPLES - HOP_SAMPLES) // 2
    padded = F.pad(samples.float()[None], (margin, margin), mode="reflect")[0]
    window = torch.hann_window(WINDOW_SAMPLES, device=samples.device)
    spectrum = torch.stft(
        padded, WINDOW_SAMPLES, HOP_SAMPLES, window=window, center=False, return_complex=True
    )
    loudness = torch.sqrt(torch.view_as_real(spectrum).square().sum(-1) + 1e-9)
    return (filters(bands).to(loudness) @ loudness).clamp(min=_QUIETEST).log()


def filters(bands: int) -> Tensor:
    """Triangles over the spectrum's bins [bands, 513], from 0 Hz to half the rate."""
    bins_hz = torch.linspace(0, RATE_HZ / 2, WINDOW_SAMPLES // 2 + 1, dtype=torch.float64)
    edges_hz = _hz(torch.linspace(0, _mel(RATE_HZ / 2), bands + 2, dtype=torch.float64))
    low, middle, high = edges_hz[:-2, None], edges_hz[1:-1, None], edges_hz[2:, None]
    rising, falling = (bins_hz - low) / (middle - low), (high - bins_hz) / (high - middle)
    triangles = torch.minimum(rising, falling).clamp(min=0.0)
    return (triangles * (2.0 / (high - low))).float()


def _mel(hz: float) -> float:
    return _BREAK_MEL + math.log(hz / _BREAK_HZ) / _STEP if hz >= _BREAK_HZ else hz / _LINEAR_HZ


def _hz(mels: Tensor) -> Tensor:
    above = _BREAK_HZ * torch.exp(_STEP * (mels - _BREAK_MEL))
    return torch.where(mels >= _BREAK_MEL, above, mels * _LINEAR_HZ)
