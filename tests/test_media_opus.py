"""Opus on the way out and in: what another codec hears, that silence costs nothing, and what is no Opus."""

import ctypes.util
import subprocess
import sys
import time
from fractions import Fraction

import av
import numpy as np
import pytest

from voice_agent.audio import Samples, dbfs
from voice_agent.errors import MediaError
from voice_agent.media import opus
from voice_agent.media.opus import BIT_RATE, SETTLED_FRAMES, OpusDecoder, OpusEncoder
from voice_agent.media.resample import Resampler


def tone(seconds: float, hz: float = 440.0) -> Samples:
    return (10_000 * np.sin(2 * np.pi * hz * np.arange(int(48_000 * seconds)) / 48_000)).astype(np.int16)


def decoded(packets: list[bytes]) -> Samples:
    codec = av.CodecContext.create("libopus", "r")
    codec.format, codec.layout, codec.sample_rate = "s16", "mono", 48_000
    sound: list[Samples] = []
    for number, payload in enumerate(packets):
        packet = av.Packet(payload)
        packet.pts, packet.time_base = number * 960, Fraction(1, 48_000)
        sound += [np.asarray(frame.to_ndarray(), np.int16).ravel() for frame in codec.decode(packet)]
    return np.concatenate(sound)


def encoded(sound: Samples) -> list[bytes]:
    encoder = OpusEncoder()
    return [encoder.encode(sound[at : at + 960]) for at in range(0, len(sound), 960)]


def test_each_frame_is_one_packet_of_20_ms_near_the_bit_rate() -> None:
    packets = encoded(tone(1.0))
    assert len(decoded(packets)) == 48_000
    assert 8 * sum(map(len, packets)) == pytest.approx(BIT_RATE, rel=0.3)


def test_the_tone_survives() -> None:
    sound = decoded(encoded(tone(1.0)))
    assert dbfs(sound[9_600:]) == pytest.approx(dbfs(tone(1.0)), abs=1.0)
    assert np.argmax(np.abs(np.fft.rfft(sound))) == pytest.approx(440, abs=2)


def test_settled_silence_repeats_a_packet_stays_silent_and_wakes_without_a_click() -> None:
    quiet = np.zeros(960 * 100, np.int16)
    packets = encoded(np.concatenate([tone(0.5), quiet, tone(0.5)]))
    assert len(set(packets[25 + SETTLED_FRAMES : 125])) == 1
    sound = decoded(packets)
    assert np.abs(sound[960 * 35 : 960 * 124]).max() <= 2
    always = decoded(encoded(tone(0.5)))
    woken = sound[960 * 125 :]
    assert np.abs(np.diff(woken.astype(int))).max() <= 1.5 * np.abs(np.diff(always.astype(int))).max()


def test_a_settled_silent_frame_takes_no_time() -> None:
    encoder = OpusEncoder()
    quiet = np.zeros(960, np.int16)
    for _ in range(SETTLED_FRAMES + 1):
        encoder.encode(quiet)
    began = time.perf_counter()
    for _ in range(1_000):
        encoder.encode(quiet)
    assert time.perf_counter() - began < 0.1


def test_the_decoder_hears_what_another_hears_and_when_it_does() -> None:
    rising = (8_000 * np.sin(1e3 * np.pi * np.square(np.arange(24_000) / 48_000))).astype(
        np.int16
    )  # to 500 Hz
    packets = encoded(rising)
    decoder = OpusDecoder()
    heard = np.concatenate([decoder.decode(packet) for packet in packets])
    assert len(heard) == 8_000
    resampler = Resampler(48_000, 16_000)
    right = np.concatenate([resampler.push(decoded(packets)), resampler.flush()])
    assert dbfs((heard - right)[400:-400]) < dbfs(right) - 14


def test_the_encoder_takes_whole_frames_only() -> None:
    with pytest.raises(AssertionError):
        OpusEncoder().encode(np.zeros(480, np.int16))


def test_a_host_without_the_library_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(_name: str) -> None: ...

    monkeypatch.setattr(opus, "_PLACES", ())
    monkeypatch.setattr(ctypes.util, "find_library", no_library)
    opus.libopus.cache_clear()
    with pytest.raises(MediaError, match="libopus is missing"):
        OpusDecoder()
    opus.libopus.cache_clear()


def test_codecs_are_freed_with_their_owners() -> None:
    """A thousand pairs take 40 MB if they are not."""
    script = """
import resource
from voice_agent.errors import MediaError
from voice_agent.media import opus
from voice_agent.media.opus import OpusDecoder, OpusEncoder
OpusEncoder(), OpusDecoder()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(1000):
    OpusEncoder(), OpusDecoder()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    grown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert int(grown.stdout) < 4_000  # KB


def test_the_decoder_takes_stereo_packets_of_any_length_and_outlives_garbage() -> None:
    codec = av.CodecContext.create("libopus", "w")
    codec.format, codec.layout, codec.sample_rate = "s16", "stereo", 48_000
    codec.options = {"frame_duration": "60"}
    left = tone(0.6)
    both = np.stack([left, np.zeros_like(left)], axis=1)
    decoder = OpusDecoder()
    heard: list[Samples] = []
    for at in range(0, len(left), 2_880):
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(both[at : at + 2_880]).reshape(1, -1), format="s16", layout="stereo"
        )
        frame.sample_rate = 48_000
        heard += [decoder.decode(bytes(packet)) for packet in codec.encode(frame)]
        assert len(decoder.decode(b"\xff\xff\xff")) == 0
    assert {len(piece) for piece in heard} == {960}
    sound = np.concatenate(heard)
    assert np.argmax(np.abs(np.fft.rfft(sound))) * 16_000 / len(sound) == pytest.approx(440, abs=4)
    assert dbfs(sound[1_600:]) == pytest.approx(dbfs(left) - 6.0, abs=1.0)
