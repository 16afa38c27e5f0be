"""G.711, telephony's eight bits a sample at 8 kHz: mu-law and A-law both ways, by table.

Source of the rules: ITU-T G.711; the tables are made at import from their segments.
"""

import numpy as np
from numpy.typing import NDArray

from voice_agent.audio import Samples

RATE_HZ = 8_000
_BIAS, _CLIP = 132, 32_635  # mu-law: so that each segment begins at a power of two


def _mu_decoded() -> Samples:
    code = ~np.arange(256) & 0xFF
    magnitude = ((((code & 0x0F) << 3) + _BIAS) << ((code >> 4) & 0x07)) - _BIAS
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)


def _mu_encoded() -> NDArray[np.uint8]:
    samples = np.arange(-32_768, 32_768)
    magnitude = np.minimum(np.abs(samples), _CLIP) + _BIAS
    segment = np.floor(np.log2(magnitude)).astype(np.int64) - 7
    mantissa = (magnitude >> (segment + 3)) & 0x0F
    code = np.where(samples < 0, 0x80, 0) | (segment << 4) | mantissa
    return (~code & 0xFF).astype(np.uint8)


def _a_decoded() -> Samples:
    code = np.arange(256) ^ 0x55
    segment, mantissa = (code >> 4) & 0x07, code & 0x0F
    magnitude = np.where(segment > 0, mantissa + 16, mantissa) * 16 + 8
    magnitude <<= np.maximum(segment - 1, 0)
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)


def _a_encoded() -> NDArray[np.uint8]:
    samples = np.arange(-32_768, 32_768)
    magnitude = np.where(samples < 0, ~samples, samples) >> 4  # 0..2047
    segment = np.maximum(np.floor(np.log2(np.maximum(magnitude, 1))).astype(np.int64) - 3, 0)
    mantissa = np.where(segment > 0, (magnitude >> np.maximum(segment - 1, 0)) - 16, magnitude)
    code = (segment << 4) | mantissa | np.where(samples >= 0, 0x80, 0)
    return ((code & 0xFF) ^ 0x55).astype(np.uint8)


_DECODED = {"audio/pcmu": _mu_decoded(), "audio/pcma": _a_decoded()}
_ENCODED = {"audio/pcmu": _mu_encoded(), "audio/pcma": _a_encoded()}


def decode(payload: bytes, encoding: str) -> Samples:
    """Bytes of audio/pcmu or audio/pcma to samples."""
    return _DECODED[encoding][np.frombuffer(payload, dtype=np.uint8)]


def encode(samples: Samples, encoding: str) -> bytes:
    """Samples to bytes of audio/pcmu or audio/pcma."""
    return _ENCODED[encoding][samples.astype(np.int32) + 32_768].tobytes()
