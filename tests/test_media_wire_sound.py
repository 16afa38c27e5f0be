import asyncio
from collections.abc import AsyncIterator
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import tone
from voice_agent.audio import MODEL_RATE_HZ, MicrophoneFrame, PcmChunk
from voice_agent.media import g711
from voice_agent.media.wire_sound import FRAME_SAMPLES, MAX_WAITING_BYTES, AppendedSound, ReplyEncoder

CODECS = {"audio/pcmu": "pcm_mulaw", "audio/pcma": "pcm_alaw"}
EVERY_SAMPLE = np.arange(-32_768, 32_768).astype(np.int16)


@pytest.mark.parametrize("encoding", CODECS)
def test_g711_agrees_with_another_codec_on_every_code(encoding: str) -> None:
    decoder: Any = av.CodecContext.create(CODECS[encoding], "r")
    decoder.sample_rate, decoder.layout = 8_000, "mono"
    codes = bytes(range(256))
    (frame,) = decoder.decode(av.Packet(codes))
    assert np.array_equal(g711.decode(codes, encoding), frame.to_ndarray().ravel())
    again = g711.encode(g711.decode(codes, encoding), encoding)
    assert again == (
        codes if encoding == "audio/pcma" else codes.replace(b"\x7f", b"\xff")
    )  # mu-law has two zeros


@pytest.mark.parametrize("encoding", CODECS)
def test_every_sample_goes_to_the_code_of_its_step(encoding: str) -> None:
    levels = np.unique(g711.decode(bytes(range(256)), encoding).astype(int))
    gaps = np.diff(levels)
    steps = np.maximum(np.append(gaps, gaps[-1]), np.insert(gaps, 0, gaps[0]))  # the wider one on either side
    decoded = g711.decode(g711.encode(EVERY_SAMPLE, encoding), encoding).astype(int)
    error = np.abs(decoded - EVERY_SAMPLE)
    inside = np.abs(EVERY_SAMPLE.astype(int)) <= levels[-1]
    assert (error <= steps[np.searchsorted(levels, decoded)] / 2 + 1)[inside].all()
    assert (np.diff(decoded) >= 0).all()


@pytest.mark.parametrize(
    ("encoding", "rate_hz"), [("audio/pcm", 24_000), ("audio/pcmu", 8_000), ("audio/pcma", 8_000)]
)
@pytest.mark.parametrize("talker_hz", [16_000, 22_050, 24_000])
def test_a_reply_keeps_its_pitch_and_length_in_every_format(
    encoding: str, rate_hz: int, talker_hz: int
) -> None:
    encoder, sound = ReplyEncoder(encoding), tone(440, 1000, talker_hz)
    pieces = [encoder.push(PcmChunk(piece, talker_hz)) for piece in np.array_split(sound, 7)]
    payload = b"".join([*pieces, encoder.flush()])
    samples = np.frombuffer(payload, "<i2") if encoding == "audio/pcm" else g711.decode(payload, encoding)
    assert len(samples) == rate_hz
    spectrum = np.abs(np.fft.rfft(samples))
    assert abs(int(spectrum.argmax()) - 440) <= 1
    assert encoder.flush() == b""


class Listener:
    """Takes frames as a session does."""

    def __init__(self, sound: AppendedSound) -> None:
        self.frames: list[MicrophoneFrame] = []
        self._task = asyncio.create_task(self._hear(sound.frames()))

    async def _hear(self, frames: AsyncIterator[MicrophoneFrame]) -> None:
        async for frame in frames:
            await asyncio.sleep(0)
            self.frames.append(frame)

    @property
    def samples(self) -> int:
        return sum(len(frame.samples) for frame in self.frames)

    async def end(self, sound: AppendedSound) -> None:
        sound.close()
        await self._task


async def test_frames_come_as_soon_as_they_are_whole_and_the_rest_when_it_is_settled() -> None:
    sound = AppendedSound()
    listener = Listener(sound)
    assert sound.append(bytes(2 * 24 * 50), "audio/pcm")  # 50 ms
    for _ in range(20):
        await asyncio.sleep(0)
    assert [len(frame.samples) for frame in listener.frames] == [FRAME_SAMPLES] * 2
    await sound.settled()
    assert listener.samples == 50 * MODEL_RATE_HZ // 1000
    await sound.settled()  # with nothing new, at once
    sound.append(bytes(2 * 24 * 100), "audio/pcm")
    await sound.settled()
    assert listener.samples == 150 * MODEL_RATE_HZ // 1000
    await listener.end(sound)
    await sound.settled()  # and after the end


@pytest.mark.parametrize("encoding", ["audio/pcm", "audio/pcmu", "audio/pcma"])
async def test_what_is_heard_is_what_was_sent(encoding: str) -> None:
    rate_hz = 24_000 if encoding == "audio/pcm" else 8_000
    sent = tone(440, 500, rate_hz)
    payload = sent.astype("<i2").tobytes() if encoding == "audio/pcm" else g711.encode(sent, encoding)
    sound = AppendedSound()
    listener = Listener(sound)
    sound.append(payload, encoding)
    await sound.settled()
    heard = np.concatenate([frame.samples for frame in listener.frames])
    wanted = tone(440, 500)
    assert len(heard) == len(wanted)
    assert np.abs(heard[200:-200].astype(int) - wanted[200:-200]).max() < 800
    await listener.end(sound)


async def test_the_format_may_change_in_mid_stream() -> None:
    sound = AppendedSound()
    listener = Listener(sound)
    sound.append(bytes(2 * 2400), "audio/pcm")
    sound.append(bytes([0xFF] * 800), "audio/pcmu")
    sound.append(bytes([0xD5] * 800), "audio/pcma")
    await sound.settled()
    assert listener.samples == 3 * 1600
    assert all(np.abs(frame.samples.astype(int)).max() <= 16 for frame in listener.frames)
    await listener.end(sound)


async def test_a_flood_is_bounded_and_heard_in_full() -> None:
    sound = AppendedSound()
    piece = bytes(15 * 1024 * 1024)
    assert sound.append(piece, "audio/pcmu")
    assert not sound.append(bytes(MAX_WAITING_BYTES - len(piece) + 1), "audio/pcmu")
    listener = Listener(sound)
    await asyncio.sleep(0.05)
    assert sound.append(b"\xff" * 8, "audio/pcmu")  # there is room again
    await listener.end(sound)


@settings(max_examples=10)
@given(st.lists(st.binary(max_size=400), max_size=8))
def test_any_cut_of_the_bytes_gives_the_same_sound(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)

    async def heard(*payloads: bytes) -> list[int]:
        sound = AppendedSound()
        listener = Listener(sound)
        for payload in payloads:
            sound.append(payload, "audio/pcm")
        await sound.settled()
        await listener.end(sound)
        return [int(sample) for frame in listener.frames for sample in frame.samples]

    assert asyncio.run(heard(*pieces)) == asyncio.run(heard(whole))
