"""Has the speaker finished, or only paused? Smart Turn v3.2 on the sound of the turn so far.

The features are Whisper's log-mel spectrogram, computed here with numpy. It blocks for about 0.1 s on one core, so it
belongs on a thread, and is worth asking only when the voice has gone quiet. It knows no words and no thresholds.

Sources: Smart Turn v3 model card (the last 8 s, zeros in front); Radford et al. 2022, section 2.2, for the features;
Slaney 1998, Auditory Toolbox, for the mel scale.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voice_agent.audio import MODEL_RATE_HZ, Samples
from voice_agent.media.onnx import load_session

MAX_SAMPLES = 8 * MODEL_RATE_HZ
FFT_SIZE = 400
HOP = 160
BANDS = 80
FRAMES = MAX_SAMPLES // HOP

Floats = NDArray[np.float32]


class EndOfTurn:
    """The detector; keeps nothing between calls. Raises WeightsError if the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self._session = load_session(path)

    def probability(self, samples: Samples) -> float:
        """Probability that the turn [T] at 16 kHz is finished; only the last 8 s count, and nothing at all gives 0."""
        if len(samples) == 0:
            return 0.0
        outputs: Any = self._session.run(None, {"input_features": features(samples)[None]})
        return float(outputs[0][0, 0])


def features(samples: Samples) -> Floats:
    """Log-mel spectrogram [80, 800] of the last 8 s, with zeros in front of a shorter turn."""
    sound = np.zeros(MAX_SAMPLES, dtype=np.float32)
    recent = samples[-MAX_SAMPLES:]
    sound[MAX_SAMPLES - len(recent) :] = recent.astype(np.float32) / 32768
    sound = (sound - sound.mean()) / np.sqrt(sound.var() + 1e-7)
    power = _power_spectrum(sound)
    log_mel = np.log10(np.maximum(power @ _mel_filters(), 1e-10)).T  # [80, 800]
    log_mel = np.maximum(log_mel, log_mel.max() - 8.0)  # Whisper's dynamic range: 8 decades
    return ((log_mel + 4.0) / 4.0).astype(np.float32)


def _power_spectrum(sound: Floats) -> Floats:
    """Power [800, 201] of Hann windows centred on each hop; the ends are mirrored."""
    padded = np.pad(sound, FFT_SIZE // 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, FFT_SIZE)[::HOP][:FRAMES]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT_SIZE) / FFT_SIZE)
    spectrum = np.fft.rfft(windows * hann.astype(np.float32), axis=1)
    return (spectrum.real**2 + spectrum.imag**2).astype(np.float32)


@lru_cache(maxsize=1)
def _mel_filters() -> Floats:
    """Triangles of equal area on Slaney's mel scale, 0 Hz to 8 kHz: [201, 80]."""
    edges_hz = _mel_to_hz(np.linspace(0.0, _hz_to_mel(MODEL_RATE_HZ / 2), BANDS + 2))
    bins_hz = np.arange(FFT_SIZE // 2 + 1) * MODEL_RATE_HZ / FFT_SIZE
    low, centre, high = edges_hz[:-2], edges_hz[1:-1], edges_hz[2:]
    rising = (bins_hz[:, None] - low) / (centre - low)
    falling = (high - bins_hz[:, None]) / (high - centre)
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return (triangles * 2.0 / (high - low)).astype(np.float32)


_LINEAR_HZ_PER_MEL = 200.0 / 3  # up to 1 kHz
_LOG_START_HZ = 1000.0
_LOG_START_MEL = _LOG_START_HZ / _LINEAR_HZ_PER_MEL
_LOG_STEP = np.log(6.4) / 27.0  # above: 27 mel for a factor of 6.4


def _hz_to_mel(hz: float) -> float:
    if hz < _LOG_START_HZ:
        return hz / _LINEAR_HZ_PER_MEL
    return float(_LOG_START_MEL + np.log(hz / _LOG_START_HZ) / _LOG_STEP)


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    linear = mel * _LINEAR_HZ_PER_MEL
    return np.where(mel < _LOG_START_MEL, linear, _LOG_START_HZ * np.exp(_LOG_STEP * (mel - _LOG_START_MEL)))
