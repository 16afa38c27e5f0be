"""Opus, both ways: one decoder and one encoder for the whole session, in the event loop.

Calls libopus itself, the one that comes with PyAV, because PyAV's codec objects take half as much time again and know
neither other rates nor a change of settings. To encode a frame takes 0.1 ms, to decode one 0.03, a hop to a thread and
back 0.1. Once the encoder has settled on digital silence its last packet is repeated without encoding (no sample
differs by more than one at the decoder).

Sources: RFC 7587; opus_defines.h of libopus 1.x for the numbers.
"""

import ctypes
import ctypes.util
import logging
import weakref
from functools import lru_cache
from pathlib import Path

import av
import numpy as np

from voice_agent.audio import MODEL_RATE_HZ, OPUS_RATE_HZ, Samples, silence
from voice_agent.errors import MediaError
from voice_agent.media.playout import FRAME_SAMPLES

logger = logging.getLogger(__name__)

BIT_RATE = 40_000  # fullband speech (RFC 7587, 3.1.1 recommends 28-40 kbit/s)
# 0-10; half the time of 5. Its spectral distance is 1.85 dB at 40 kbit/s and 2.20 at 32, where 5 has 1.69.
COMPLEXITY = 1
EXPECTED_LOSS_PERCENT = 5  # a lost packet's speech travels again, coarsely, in the next one
SETTLED_FRAMES = 15  # after so many zero frames the encoder's packets are as good as equal
LONGEST_PACKET_MS = 120  # RFC 6716 3.2.5
MAX_PACKET_BYTES = 1_275  # RFC 6716 3.4, for a packet of one frame
GARBAGE = silence(0)
SILENT_FRAME = bytes(2 * FRAME_SAMPLES)

_VOIP = 2048
_SET_BIT_RATE, _SET_COMPLEXITY, _SET_INBAND_FEC, _SET_LOSS_PERCENT = 4002, 4010, 4012, 4014
# beside PyAV in its wheels for Linux and Windows, and for macOS
_PLACES = ("../av.libs/libopus*", ".dylibs/libopus*")


@lru_cache(maxsize=1)
def libopus() -> ctypes.CDLL:
    """The library, PyAV's own or the system's. Raises MediaError if there is neither."""
    package = Path(av.__file__).parent
    beside = [str(path) for place in _PLACES for path in package.glob(place)]
    name = next(iter(beside), None) or ctypes.util.find_library("opus")
    if name is None:
        raise MediaError("libopus is missing: install PyAV from its wheel, or the system's libopus.")
    library = ctypes.CDLL(name)
    pointer, number = ctypes.c_void_p, ctypes.c_int
    for call, result, arguments in (
        ("encoder_create", pointer, [number, number, number, pointer]),
        ("encode", number, [pointer, ctypes.c_char_p, number, ctypes.c_char_p, number]),
        ("decoder_create", pointer, [number, number, pointer]),
        ("decode", number, [pointer, ctypes.c_char_p, number, pointer, number, number]),
        ("encoder_destroy", None, [pointer]),
        ("decoder_destroy", None, [pointer]),
    ):
        function = getattr(library, f"opus_{call}")
        function.restype, function.argtypes = result, arguments
    return library


class OpusDecoder:
    """Mono at the models' rate, of stereo the mean. State: the codec."""

    def __init__(self) -> None:
        self._library = libopus()
        self._codec = self._library.opus_decoder_create(MODEL_RATE_HZ, 1, None)
        weakref.finalize(self, self._library.opus_decoder_destroy, self._codec)
        self._room = np.empty(MODEL_RATE_HZ * LONGEST_PACKET_MS // 1000, np.int16)
        self._address = self._room.ctypes.data

    def decode(self, payload: bytes) -> Samples:
        """The samples [T] at 16 kHz of one packet, of whatever length it is; nothing for one that is no Opus."""
        count = self._library.opus_decode(
            self._codec, payload, len(payload), self._address, len(self._room), 0
        )
        if count < 0:
            logger.warning("a packet was no Opus: error %d", count)
            return GARBAGE
        return self._room[:count].copy()


class OpusEncoder:
    """Mono, 48 kHz, 20 ms a packet. State: the codec, and the run of silent frames with the packet that repeats."""

    def __init__(self) -> None:
        self._library = libopus()
        self._codec = self._library.opus_encoder_create(OPUS_RATE_HZ, 1, _VOIP, None)
        weakref.finalize(self, self._library.opus_encoder_destroy, self._codec)
        for setting, value in (
            (_SET_BIT_RATE, BIT_RATE),
            (_SET_COMPLEXITY, COMPLEXITY),
            (_SET_INBAND_FEC, 1),
            (_SET_LOSS_PERCENT, EXPECTED_LOSS_PERCENT),
        ):
            # the rest of a variadic call is not declared, so each argument says what it is
            self._library.opus_encoder_ctl(
                ctypes.c_void_p(self._codec), ctypes.c_int(setting), ctypes.c_int(value)
            )
        self._room = ctypes.create_string_buffer(MAX_PACKET_BYTES)
        self._silent_frames = 0
        self._packet = b""

    def encode(self, samples: Samples) -> bytes:
        """Encode [960] samples into one packet."""
        assert len(samples) == FRAME_SAMPLES, "libopus reads what it was promised"
        sound = samples.tobytes()
        self._silent_frames = self._silent_frames + 1 if sound == SILENT_FRAME else 0
        if self._silent_frames <= SETTLED_FRAMES:
            size = self._library.opus_encode(self._codec, sound, FRAME_SAMPLES, self._room, MAX_PACKET_BYTES)
            assert size > 0, f"libopus could not encode: {size}"
            self._packet = ctypes.string_at(self._room, size)
        return self._packet
