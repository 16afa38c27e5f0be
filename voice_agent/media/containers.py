"""Sound files: read by what they contain, written whole or piece by piece.

In: WAV, MP3, FLAC, Ogg (Opus, Vorbis), MP4/M4A, WebM, ADTS. The first bytes decide which demuxer is opened, never a
name or a claim: a demuxer that follows references (playlists, concat) is thus never reached. Out: every format is mono
at one rate, and its bytes can be sent as they come. Knows nothing of HTTP, base64 or who asked.
"""

import io
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any, cast

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler

from voice_agent.audio import AudioFormat, Samples, silence
from voice_agent.errors import MediaError
from voice_agent.media.whole import ends_inside, said_mp3_s, wav_chunks

LOWEST_HZ, HIGHEST_HZ = 4_000, 384_000
MOST_CHANNELS = 8
MOST_CHUNKS = 10_000  # of a WAV, before its sound
CUT_S = {"mp3": 0.0, "flac": 0.02, "mov": 0.5}  # a file this much shorter than it says is cut off
UNKNOWN_BYTES = 0xFFFFFFFF  # a WAV that is written while it is spoken does not know its length


class UnreadableSound(MediaError):
    """The bytes are no sound file that can be read; the text says what is wrong."""

    code = "invalid_audio"


# --- reading ----------------------------------------------------------------------------------------------------


def decode(data: bytes, rate_hz: int, most_s: float) -> Samples:
    """Read a whole file as [T] int16 mono at a rate; blocks. Raises UnreadableSound for anything but sound, a file
    that is cut off, one without a sample, and one longer than `most_s`."""
    demuxer = container_of(data)
    if demuxer is None:
        raise UnreadableSound(
            "this is no sound file that is known here: WAV, MP3, FLAC, Ogg, M4A and WebM are"
            if data
            else "the file is empty"
        )
    if demuxer == "wav":
        _check_wav(data)
    if piece := ends_inside(data, demuxer):
        raise UnreadableSound(f"the {demuxer} file is cut off: it ends inside {piece}")
    try:
        with av.open(io.BytesIO(data), "r", format=demuxer) as container:
            samples = _decoded(container, rate_hz, most_s, ragged=demuxer == "mp3")
            said_s = said_mp3_s(data) if demuxer == "mp3" else _said_s(container.streams.audio[0])
    except (av.FFmpegError, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableSound(f"the {demuxer} data cannot be read: {reason}") from error
    if said_s - len(samples) / rate_hz > CUT_S.get(demuxer, math.inf):
        held_s = len(samples) / rate_hz
        raise UnreadableSound(f"the {demuxer} file is cut off: {held_s:.1f} s of {said_s:.1f} s are there")
    return samples


def container_of(data: bytes) -> str | None:
    """The demuxer for these first bytes; None if they begin no sound file."""
    head = data[:12]
    if head[:4] in {b"RIFF", b"RF64"} and head[8:12] == b"WAVE":
        return "wav"
    if head[4:8] == b"ftyp":
        return "mov"
    for magic, demuxer in (
        (b"fLaC", "flac"),
        (b"OggS", "ogg"),
        (b"\x1aE\xdf\xa3", "matroska"),
        (b"ID3", "mp3"),
    ):
        if head.startswith(magic):
            return demuxer
    if len(head) >= 2 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        layer = head[1] & 0x06  # ISO 13818-7: ADTS has layer 0, MP3 has another
        return "mp3" if layer else "aac" if head[1] & 0xF0 == 0xF0 else None
    return None


def _decoded(container: Any, rate_hz: int, most_s: float, *, ragged: bool) -> Samples:
    stream = next(iter(container.streams.audio), None)
    if stream is None:
        raise UnreadableSound("the file holds no sound")
    if stream.codec_context is None:
        raise UnreadableSound("the file's sound is coded in a way that is not known here")
    _check_stream(stream.codec_context.sample_rate, stream.codec_context.channels)
    resampler = AudioResampler("s16", "mono", rate_hz)
    pieces, total, most = list[Samples](), 0, round(most_s * rate_hz)
    for frame in _of_one_kind(_frames(container, stream, ragged)):
        for resampled in resampler.resample(frame):
            pieces.append(cast(Samples, resampled.to_ndarray().ravel()))
            total += len(pieces[-1])
        if total > most:
            raise UnreadableSound(f"the sound is longer than {most_s:g} s")
    samples = np.concatenate(pieces) if pieces else silence(0)
    if not len(samples):
        raise UnreadableSound("the file holds no sound")
    return samples


def _said_s(stream: Any) -> float:
    return float((stream.duration or 0) * (stream.time_base or 0))


def _frames(container: Any, stream: Any, ragged: bool) -> Iterator[AudioFrame]:
    """All frames; `ragged`: without what stands behind the last one and is none."""
    refused: av.InvalidDataError | None = None
    for packet in container.demux(stream):
        try:
            frames = packet.decode()
        except av.InvalidDataError as error:
            if not ragged:
                raise
            refused = error
            continue
        if refused and frames:
            raise refused
        yield from frames


def _of_one_kind(frames: Iterator[AudioFrame]) -> Iterator[AudioFrame | None]:
    """The frames, then None for what the resampler holds; a stream may change its rate inside, a resampler not."""
    first: tuple[int, str, str] | None = None
    for frame in frames:
        kind = (frame.sample_rate, frame.format.name, frame.layout.name)
        first = first or kind
        if kind != first:
            raise UnreadableSound("the sound changes its rate or channels on the way")
        frame.pts = None  # gaps in time stamps are no sound
        yield frame
    if first is not None:
        yield None


def _check_stream(rate_hz: int, channels: int) -> None:
    if not rate_hz:
        raise UnreadableSound("the file holds no whole frame of sound")
    if not LOWEST_HZ <= rate_hz <= HIGHEST_HZ:
        raise UnreadableSound(
            f"a sample rate of {rate_hz} Hz: from {LOWEST_HZ} to {HIGHEST_HZ} Hz can be read"
        )
    if not 1 <= channels <= MOST_CHANNELS:
        raise UnreadableSound(f"{channels} channels: from 1 to {MOST_CHANNELS} can be read")


def _check_wav(data: bytes) -> None:
    """Refuse a header whose rate or channels are impossible (ffmpeg reads some of them), and a file without sound."""
    for name, length, position in islice(wav_chunks(data), MOST_CHUNKS):
        if name == b"fmt " and length >= 16 and position + 16 <= len(data):
            channels, rate_hz = struct.unpack_from("<HI", data, position + 2)
            _check_stream(rate_hz, channels)
        if name == b"data":
            return
    raise UnreadableSound("the WAV file holds no sound")


# --- writing ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Codec:
    """How ffmpeg writes a format; `block` is the format and samples of a frame its encoder wants."""

    muxer: str
    codec: str
    sample_format: str
    bit_rate: int | None = None
    options: tuple[tuple[str, str], ...] = ()


_CODECS: dict[AudioFormat, _Codec] = {
    "mp3": _Codec("mp3", "libmp3lame", "s16p", 64_000, (("id3v2_version", "0"),)),
    "flac": _Codec("flac", "flac", "s16"),
    "opus": _Codec("ogg", "libopus", "s16", 32_000, (("page_duration", "20000"),)),
    "aac": _Codec("adts", "aac", "fltp", 64_000),
}


STREAMED = {"mp3": {"write_xing": "0"}}  # the table that tells an MP3's length is written last


class Encoder:
    """One sound to one file, piece by piece; give it all samples in order, then `finish` once. One thread at a time."""

    def __init__(self, audio_format: AudioFormat, rate_hz: int) -> None:
        """Take mono int16 at a rate that the format has (24 kHz fits all)."""
        self._encode: Callable[[Samples], bytes]
        if audio_format in _CODECS:
            written = _Written(_CODECS[audio_format], rate_hz)
            self._encode, self._end = written.encode, written.end
        else:
            self._encode, self._end = _raw, _nothing
        self._head = wav_header(rate_hz, None) if audio_format == "wav" else b""

    def push(self, samples: Samples) -> bytes:
        """Encode the next samples; possibly no bytes yet, since encoders hold a frame back."""
        head, self._head = self._head, b""
        return head + self._encode(samples)

    def finish(self) -> bytes:
        """The rest of the file."""
        head, self._head = self._head, b""
        return head + self._end()


def encode(samples: Samples, audio_format: AudioFormat, rate_hz: int) -> bytes:
    """A whole file with its true length in it; blocks."""
    if audio_format == "wav":
        return wav_header(rate_hz, len(samples)) + _raw(samples)
    if audio_format == "pcm16":
        return _raw(samples)
    written = _Written(_CODECS[audio_format], rate_hz, seekable=True)
    return written.encode(samples) + written.end()


def wav_header(rate_hz: int, samples: int | None) -> bytes:
    """44 bytes for mono int16; None for a length that is not known yet, which readers take as "to the end"."""
    size = UNKNOWN_BYTES if samples is None else 2 * samples
    whole = size if samples is None else size + 36
    format_chunk = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate_hz, 2 * rate_hz, 2, 16)
    return struct.pack("<4sI4s", b"RIFF", whole, b"WAVE") + format_chunk + struct.pack("<4sI", b"data", size)


class _Pipe:
    """A file that can only be written: what ffmpeg put in is taken out with `take`."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def write(self, data: bytes) -> int:
        self._bytes += data
        return len(data)

    def take(self) -> bytes:
        taken = bytes(self._bytes)
        self._bytes.clear()
        return taken


class _Written:
    """A muxer and its encoder. With `seekable` all bytes come at the end, since the beginning is written last."""

    def __init__(self, codec: _Codec, rate_hz: int, *, seekable: bool = False) -> None:
        self._file = io.BytesIO() if seekable else _Pipe()
        self._rate_hz = rate_hz
        options = {} if seekable else {"flush_packets": "1", **STREAMED.get(codec.muxer, {})}
        self._container = av.open(
            self._file, "w", format=codec.muxer, options={**dict(codec.options), **options}, buffer_size=4096
        )
        stream = cast(Any, self._container.add_stream(codec.codec, rate_hz))
        stream.layout, stream.format = "mono", codec.sample_format
        if codec.bit_rate:
            stream.bit_rate = codec.bit_rate
        self._stream = stream
        self._resampler: AudioResampler | None = None
        self._position = 0
        self._format = codec.sample_format

    def encode(self, samples: Samples) -> bytes:
        """Write samples; the encoder's frame size is cared for by the resampler's fifo."""
        if len(samples):
            self._write(samples)
        return self._file.take() if isinstance(self._file, _Pipe) else b""

    def end(self) -> bytes:
        """Flush and close."""
        for frame in self._resampler.resample(None) if self._resampler else ():
            self._mux(frame)
        self._mux(None)
        self._container.close()
        return self._file.take() if isinstance(self._file, _Pipe) else self._file.getvalue()

    def _write(self, samples: Samples) -> None:
        if self._resampler is None:
            self._container.start_encoding()
            frame_samples = self._stream.codec_context.frame_size or 4096
            self._resampler = AudioResampler(self._format, "mono", self._rate_hz, frame_samples)
        frame = AudioFrame.from_ndarray(
            np.ascontiguousarray(samples).reshape(1, -1), format="s16", layout="mono"
        )
        frame.sample_rate, frame.time_base, frame.pts = (
            self._rate_hz,
            Fraction(1, self._rate_hz),
            self._position,
        )
        self._position += len(samples)
        for resampled in self._resampler.resample(frame):
            self._mux(resampled)

    def _mux(self, frame: AudioFrame | None) -> None:
        for packet in self._stream.encode(frame):
            self._container.mux(packet)


def _raw(samples: Samples) -> bytes:
    return samples.astype("<i2", copy=False).tobytes()


def _nothing() -> bytes:
    return b""
