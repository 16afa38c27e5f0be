"""Files that end too early are refused, and no healthy one is, whoever wrote it and whatever comes behind it."""

import io
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.media.containers import UnreadableSound, container_of, decode, encode
from voice_agent.media.whole import ends_inside, said_mp3_s

SECONDS = 1.2
ID3V1 = b"TAG" + bytes(125)
APE = b"APETAGEX" + bytes(200) + ID3V1
Options = dict[str, str]


class Pipe:
    """What cannot be gone back in."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)


def noise(rate_hz: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    random = np.random.default_rng(1).normal(0, 3_000, round(SECONDS * rate_hz))
    return random.clip(-32_000, 32_000).astype(np.int16)


def made(muxer: str, codec: str, rate_hz: int, options: Options, target: Any) -> None:
    """A file as other programs write it."""
    with av.open(target, "w", format=muxer, options=options) as container:
        container.metadata["title"] = "A title"
        stream: Any = container.add_stream(codec, rate_hz, options={"strict": "-2"})
        layout = stream.layout = "stereo" if codec == "vorbis" else "mono"
        frame = av.AudioFrame.from_ndarray(noise(rate_hz).reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = rate_hz
        size = stream.codec_context.frame_size or 1024
        for out in av.AudioResampler(stream.codec_context.format, layout, rate_hz, size).resample(frame):
            container.mux(stream.encode(out))
        container.mux(stream.encode(None))


def sought(muxer: str, codec: str, rate_hz: int = 48_000, options: Options | None = None) -> bytes:
    """Into a file, whose beginning is written last."""
    file = io.BytesIO()
    made(muxer, codec, rate_hz, options or {}, file)
    return file.getvalue()


def piped(muxer: str, codec: str, rate_hz: int = 48_000, options: Options | None = None) -> bytes:
    """Into a pipe, while it is recorded."""
    pipe = Pipe()
    made(muxer, codec, rate_hz, options or {}, pipe)
    return bytes(pipe.data)


FRAGMENTS = {"movflags": "frag_keyframe+empty_moov", "frag_duration": "300000"}
PAGES = {"page_duration": "20000"}
CLUSTERS = {"cluster_time_limit": "300"}
NO_LENGTH = {"write_xing": "0", "id3v2_version": "0"}
MAKERS: dict[str, Callable[[], bytes]] = {
    **{
        f"mp3 {rate}": partial(sought, "mp3", "libmp3lame", rate)
        for rate in (8_000, 16_000, 22_050, 44_100, 48_000)
    },
    **{f"mp3 piped {rate}": partial(piped, "mp3", "libmp3lame", rate) for rate in (11_025, 24_000, 32_000)},
    "mp3 of old": partial(sought, "mp3", "libmp3lame", 44_100, {"id3v2_version": "3", "write_id3v1": "1"}),
    "mp3 without its length": partial(sought, "mp3", "libmp3lame", 44_100, NO_LENGTH | {"write_id3v1": "1"}),
    "mp2": partial(sought, "mp2", "mp2"),
    "mp2 of half the rate": partial(sought, "mp2", "mp2", 24_000),
    "adts": partial(sought, "adts", "aac", 44_100),
    "adts piped": partial(piped, "adts", "aac", 16_000),
    "ogg": partial(sought, "ogg", "libopus"),
    "ogg of small pages": partial(sought, "ogg", "libopus", 48_000, PAGES),
    "ogg piped": partial(piped, "ogg", "libopus", 16_000, PAGES),
    "ogg vorbis": partial(sought, "ogg", "vorbis", 44_100, PAGES),
    "flac": partial(sought, "flac", "flac", 44_100),
    "flac piped": partial(piped, "flac", "flac", 44_100),
    "m4a": partial(sought, "ipod", "aac"),
    "mp4": partial(sought, "mp4", "aac", 44_100),
    "mp4 opus": partial(sought, "mp4", "libopus"),
    "mp4 mp3": partial(sought, "mp4", "libmp3lame"),
    "mp4 alac": partial(sought, "mp4", "alac"),
    "mp4 in fragments": partial(sought, "mp4", "aac", 48_000, FRAGMENTS),
    "mp4 in fragments, piped": partial(piped, "mp4", "libopus", 48_000, FRAGMENTS),
    "mov": partial(sought, "mov", "pcm_s16le", 48_000),
    "3gp": partial(sought, "3gp", "aac", 16_000),
    "webm": partial(sought, "webm", "libopus"),
    "webm piped": partial(piped, "webm", "libopus", 48_000, CLUSTERS),
    "webm live": partial(piped, "webm", "libopus", 48_000, CLUSTERS | {"live": "1"}),
    "matroska": partial(sought, "matroska", "libopus"),
    "wav": partial(sought, "wav", "pcm_s16le"),
    "wav float": partial(sought, "wav", "pcm_f32le"),
    "wav of eight bits": partial(sought, "wav", "pcm_u8", 8_001),
    "wav alaw": partial(sought, "wav", "pcm_alaw", 8_000),
    "rf64": partial(sought, "wav", "pcm_s16le", 48_000, {"rf64": "always"}),
}
FILES = sorted(MAKERS)


@cache
def file_of(name: str) -> bytes:
    return MAKERS[name]()


@pytest.mark.parametrize("name", FILES)
def test_a_whole_file_is_taken(name: str):
    heard = decode(file_of(name), 16_000, 60)
    assert abs(len(heard) / 16_000 - SECONDS) < 0.25


TAILS = {"id3": ID3V1, "ape": APE, "zeros": bytes(1_000), "ones": b"\xff" * 300, "line": b"\r\n"}

TAILED = [
    (name, tail)
    for name in ("mp3 44100", "mp3 without its length", "adts", "flac", "ogg", "mp4", "wav")
    for tail in TAILS
    if name != "adts" or tail not in {"ones", "line"}  # which ffmpeg refuses by itself
]


@pytest.mark.parametrize(("name", "tail"), TAILED)
def test_so_is_one_with_something_behind_its_sound(name: str, tail: str):
    heard = decode(file_of(name) + TAILS[tail], 16_000, 60)
    assert abs(len(heard) / 16_000 - SECONDS) < 0.25


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_cut_is_refused(name: str, part: float):
    behind = 128 if name in {"mp3 of old", "mp3 without its length"} else 0
    file = file_of(name)
    cut = file[: int(part * (len(file) - behind)) | 1]
    with pytest.raises(UnreadableSound) as refused:
        decode(cut, 16_000, 60)
    assert "cut off" in str(refused.value) or "cannot be read" in str(refused.value)


def test_a_wav_of_unknown_length_ends_where_it_ends():
    file = piped("wav", "pcm_s16le")
    assert len(decode(file[: len(file) // 2], 16_000, 60)) == pytest.approx(8_000 * SECONDS, abs=100)


def test_an_mp3_that_tells_its_length_is_refused_even_between_two_frames():
    file = encode(noise(24_000), "mp3", 24_000)
    frame = 192  # 64 kbit/s at 24 kHz: 24 ms
    assert len(file) % frame == 0 and said_mp3_s(file) == pytest.approx(SECONDS, abs=0.1)
    for frames in range(3, len(file) // frame - 4):
        with pytest.raises(UnreadableSound, match=r"cut off: [\d.]+ s of 1.2 s"):
            decode(file[: frames * frame], 16_000, 60)


def test_two_files_in_one_are_longer_than_the_first_says_and_are_whole():
    file = encode(noise(24_000), "mp3", 24_000)
    assert len(decode(file + ID3V1 + file, 16_000, 60)) > 1.9 * 16_000 * SECONDS


def test_an_ogg_stream_that_was_never_ended_is_a_recording_that_was_stopped():
    file = file_of("ogg piped")
    assert len(decode(file[: file.rfind(b"OggS")], 16_000, 60)) > 16_000


def test_a_packet_that_goes_on_in_a_page_that_is_not_there_is_missed():
    page = b"OggS" + bytes(22) + b"\x01\xff" + bytes(255)
    assert ends_inside(page, "ogg") == "a page" and ends_inside(page.replace(b"\xff", b"\xfe"), "ogg") == ""


@given(st.sampled_from(["wav", "ogg", "mov", "matroska", "mp3", "aac", "flac"]), st.binary(max_size=300))
def test_any_bytes_are_whole_or_not(demuxer: str, data: bytes):
    ends_inside(data, demuxer)
    said_mp3_s(data)


@given(st.sampled_from(FILES), st.data())
def test_no_file_is_taken_for_one_that_ends_early_before_it_is_cut(name: str, data: st.DataObject):
    file = file_of(name)
    kind = container_of(file)
    assert kind and ends_inside(file, kind) == ""
    ends_inside(file[: data.draw(st.integers(12, len(file)))], kind)


@pytest.mark.parametrize(
    "piece", [b"\xec\x80", b"\0\0\0\x08free", b"\xff\xfb\x90\x00", b"LIST\0\0\0\0"], ids=repr
)
@pytest.mark.parametrize("demuxer", ["wav", "mov", "matroska", "mp3"])
@pytest.mark.timeout(20)
def test_many_small_pieces_hold_nobody_up(demuxer: str, piece: bytes):
    head = (
        b"\x18\x53\x80\x67\x01" + b"\xff" * 7
        if demuxer == "matroska"
        else bytes(12)
        if demuxer == "wav"
        else b""
    )
    ends_inside(head + piece * 2_000_000, demuxer)
    said_mp3_s(piece * 2_000_000)


def test_fast_start_and_dash_files_are_whole(tmp_path: Path):
    for flags in ("faststart", "dash+global_sidx"):
        target = tmp_path / f"{flags}.mp4"
        made("mp4", "aac", 48_000, {"movflags": flags, "frag_duration": "300000"}, str(target))
        file = target.read_bytes()
        assert len(decode(file, 16_000, 60)) > 16_000
        with pytest.raises(UnreadableSound, match="cut off"):
            decode(file[:-9], 16_000, 60)
