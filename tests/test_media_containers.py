"""Sound files: what was written is read again, whatever its pieces; what is no sound is refused by name."""

import contextlib
import io
import struct
import wave
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import tone
from voice_agent.audio import AudioFormat, Samples
from voice_agent.media.containers import Encoder, UnreadableSound, container_of, decode, encode, wav_header

RATE_HZ = 24_000
SOUND = tone(440, 1_500, RATE_HZ)
FILES: list[AudioFormat] = ["wav", "mp3", "flac", "opus", "aac"]
EVERY: list[AudioFormat] = [*FILES, "pcm16"]
CONTAINERS = {"wav": "wav", "mp3": "mp3", "flac": "flac", "opus": "ogg", "aac": "aac"}


def pitch_hz(samples: Samples, rate_hz: int) -> float:
    middle = samples[len(samples) // 4 : len(samples) * 3 // 4].astype(np.float64)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle)), 1 << 18))
    return float(np.argmax(spectrum)) * rate_hz / (1 << 18)


def streamed(samples: Samples, audio_format: AudioFormat, piece: int) -> bytes:
    encoder = Encoder(audio_format, RATE_HZ)
    pieces = [encoder.push(samples[at : at + piece]) for at in range(0, len(samples), piece)]
    return b"".join([*pieces, encoder.finish()])


def muxed(kind: str, codec: str, samples: Samples, rate_hz: int) -> bytes:
    """A file as other programs write it."""
    file = io.BytesIO()
    with av.open(file, "w", format=kind) as container:
        stream: Any = container.add_stream(codec, rate_hz)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = rate_hz
        size = stream.codec_context.frame_size or 1024
        for out in av.AudioResampler(stream.codec_context.format, "mono", rate_hz, size).resample(frame):
            container.mux(stream.encode(out))
        container.mux(stream.encode(None))
    return file.getvalue()


@pytest.mark.parametrize("audio_format", FILES)
@pytest.mark.parametrize("piece", [0, 97, 4_800, 100_000])
def test_a_file_is_read_again_as_it_was_written(audio_format: AudioFormat, piece: int):
    file = streamed(SOUND, audio_format, piece) if piece else encode(SOUND, audio_format, RATE_HZ)
    assert container_of(file) == CONTAINERS[audio_format]
    heard = decode(file, 16_000, 10)
    assert abs(len(heard) / 16_000 - 1.5) < 0.1
    assert abs(pitch_hz(heard, 16_000) - 440) < 1


@pytest.mark.parametrize("audio_format", EVERY)
def test_the_first_bytes_leave_long_before_the_last_sample_came(audio_format: AudioFormat):
    encoder = Encoder(audio_format, RATE_HZ)
    sizes = [len(encoder.push(SOUND[at : at + 4_800])) for at in range(0, len(SOUND), 4_800)]
    assert sum(size > 0 for size in sizes) >= len(sizes) - 1
    assert sizes[0] > 0


@pytest.mark.parametrize("audio_format", ["wav", "flac", "pcm16"])
def test_lossless_formats_give_every_sample_back(audio_format: AudioFormat):
    file = encode(SOUND, audio_format, RATE_HZ)
    same = np.frombuffer(file, "<i2") if audio_format == "pcm16" else decode(file, RATE_HZ, 10)
    assert np.array_equal(same, SOUND)


def test_a_whole_wav_tells_its_length_and_a_streamed_one_that_it_does_not_know():
    with wave.open(io.BytesIO(encode(SOUND, "wav", RATE_HZ))) as file:
        assert (file.getnframes(), file.getframerate(), file.getnchannels()) == (len(SOUND), RATE_HZ, 1)
    assert streamed(SOUND, "wav", 4_800)[4:8] == b"\xff" * 4


@pytest.mark.parametrize("audio_format", EVERY)
def test_no_sound_at_all_is_a_file_too(audio_format: AudioFormat):
    assert isinstance(Encoder(audio_format, RATE_HZ).finish(), bytes)
    assert isinstance(encode(SOUND[:0], audio_format, RATE_HZ), bytes)


@pytest.mark.parametrize(
    ("kind", "codec"), [("mp4", "aac"), ("ipod", "aac"), ("webm", "libopus"), ("ogg", "libopus")]
)
def test_what_browsers_and_telephones_record_is_read(kind: str, codec: str):
    heard = decode(muxed(kind, codec, tone(440, 1_500, 48_000), 48_000), 16_000, 10)
    assert abs(len(heard) / 16_000 - 1.5) < 0.15
    assert abs(pitch_hz(heard, 16_000) - 440) < 1


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 22_050, 44_100, 48_000])
def test_the_rate_is_the_files_own(rate_hz: int):
    heard = decode(encode(tone(440, 1_000, rate_hz), "wav", rate_hz), 16_000, 10)
    assert abs(pitch_hz(heard, 16_000) - 440) < 1


def test_chunks_before_and_behind_the_sound_are_not_heard():
    info = struct.pack("<4sI", b"LIST", 400) + b"INFO" + bytes(range(99)) * 4
    quiet = wav_header(RATE_HZ, 2_400)
    head, sound = quiet[12:36], bytes(4_800)
    body = info + head + struct.pack("<4sI", b"data", 4_800) + sound + info
    file = struct.pack("<4sI4s", b"RIFF", len(body) + 4, b"WAVE") + body
    heard = decode(file, RATE_HZ, 10)
    assert len(heard) == 2_400 and not heard.any()


WAV = encode(SOUND, "wav", RATE_HZ)


def with_rate(rate_hz: int) -> bytes:
    return WAV[:24] + struct.pack("<I", rate_hz) + WAV[28:]


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (b"", "empty"),
        (b"RIFF", "no sound file"),
        (b"hello, this is text", "no sound file"),
        (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", "no sound file"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "no sound file"),
        (b"<?xml version='1.0'?><MPD/>", "no sound file"),
        (WAV[:44], "cut off"),
        (WAV[:20], "no sound"),
        (WAV[: len(WAV) // 2], "cut off"),
        (with_rate(0), "rate|whole frame"),
        (with_rate(1_000_000_000), "rate"),
        (WAV[:22] + b"\xff\x00" + WAV[24:], "channels"),
        (WAV[:20] + b"\x39\x30" + WAV[22:], "coded in a way"),
        (encode(SOUND, "flac", RATE_HZ)[:9_000], "cannot be read|cut off"),
        (encode(SOUND, "mp3", RATE_HZ)[:40], "cannot be read"),
        (muxed("mp4", "aac", SOUND, RATE_HZ)[:3_000], "cannot be read|cut off"),
        (b"OggS" + bytes(2_000), "cannot be read"),
        (b"ID3\x04\x00\x00\x7f\x7f\x7f\x7f" + bytes(2_000), "cannot be read|no sound"),
    ],
)
def test_what_is_no_whole_sound_file_is_refused_and_says_why(file: bytes, says: str):
    with pytest.raises(UnreadableSound, match=says):
        decode(file, 16_000, 10)


def test_a_longer_sound_than_allowed_is_refused_without_reading_it_all():
    with pytest.raises(UnreadableSound, match="longer than 1 s"):
        decode(encode(SOUND, "opus", RATE_HZ), 16_000, 1)


@given(st.sampled_from(FILES), st.data())
def test_damaged_files_are_read_or_refused_and_nothing_else(audio_format: AudioFormat, data: st.DataObject):
    file = bytearray(encode(SOUND[:4_800], audio_format, RATE_HZ))
    for _ in range(data.draw(st.integers(0, 8))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    del file[data.draw(st.integers(0, len(file))) :]
    with contextlib.suppress(UnreadableSound):
        assert len(decode(bytes(file), 16_000, 30)) > 0


@given(
    st.sampled_from([b"RIFF0000WAVE", b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"\xff\xf1", b"\x1aE\xdf\xa3"]),
    st.binary(),
)
def test_random_bytes_behind_a_right_beginning_are_refused(head: bytes, rest: bytes):
    with contextlib.suppress(UnreadableSound):
        decode(head + rest, 16_000, 30)
