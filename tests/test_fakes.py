"""The fakes keep the contracts that the rooms rely on."""

import asyncio

import numpy as np
import pytest

from tests.fakes import Die, FakeEngine, FakeOutput, Stall, Use, Voice, Wait, microphone, tone, word_tone_hz
from voice_agent.audio import MODEL_RATE_HZ, PcmChunk, Samples, silence
from voice_agent.clock import NS_PER_MS, ManualClock
from voice_agent.engine.messages import (
    Finished,
    Result,
    Speak,
    SpeakEnd,
    SpeakText,
    SpeechChunk,
    SpokenWord,
    TextDelta,
    Think,
    ToolCall,
    Transcribe,
    Transcript,
)
from voice_agent.errors import EngineDied

RATE_HZ = 22_050


def chunk(ms: float, hz: float = 440) -> PcmChunk:
    return PcmChunk(tone(hz, ms, RATE_HZ), RATE_HZ)


async def test_output_plays_as_fast_as_the_clock_and_no_faster():
    clock = ManualClock()
    output = FakeOutput(clock)
    await output.write("r", chunk(1000))
    await clock.advance_ms(100)
    assert output.played_samples("r") == 2205
    await clock.advance_ms(5000)
    assert output.played_samples("r") == RATE_HZ
    assert output.underruns == 0


async def test_hold_keeps_the_sample_and_resume_goes_on_there():
    clock = ManualClock()
    output = FakeOutput(clock)
    sound = chunk(400)
    await output.write("r", sound)
    await clock.advance_ms(100)
    output.hold()
    await clock.advance_ms(700)
    assert output.played_samples("r") == 2205
    output.resume()
    await clock.advance_ms(300)
    assert np.array_equal(output.heard("r"), sound.samples)


async def test_flush_tells_what_was_played_and_refuses_the_rest():
    clock = ManualClock()
    output = FakeOutput(clock)
    await output.write("a", chunk(400))
    await clock.advance_ms(100)
    drained = asyncio.create_task(output.drained("a"))
    await clock.advance_ms(0)
    output.hold()
    assert output.flush() == 2205
    assert await drained == 2205
    await output.write("a", chunk(400))
    await output.write("b", chunk(100))
    await clock.advance_ms(1000)
    assert (output.played_samples("a"), output.played_samples("b")) == (2205, 2205)


async def test_write_waits_for_room_and_a_flush_lets_it_go():
    clock = ManualClock()
    output = FakeOutput(clock, queue_ms=1000)
    await output.write("r", chunk(1500))
    writing = asyncio.create_task(output.write("r", chunk(100)))
    await clock.advance_ms(400)
    assert not writing.done()
    await clock.advance_ms(200)
    assert writing.done()
    await output.write("r", chunk(1500))
    writing = asyncio.create_task(output.write("r", chunk(100)))
    await clock.advance_ms(1)
    assert not writing.done()
    output.flush()
    await writing


async def test_sound_that_comes_too_late_is_an_underrun():
    clock = ManualClock()
    output = FakeOutput(clock)
    await output.write("r", chunk(100))
    await clock.advance_ms(150)
    await output.write("r", chunk(100))
    output.finish("r")
    drained = asyncio.create_task(output.drained("r"))
    await clock.advance_ms(101)
    assert await drained == 4410
    assert output.underruns == 1


async def test_microphone_gives_each_frame_when_it_was_spoken():
    clock = ManualClock()
    frames: list[tuple[int, int, Samples]] = []

    async def listen() -> None:
        async for frame in microphone(clock, tone(300, 50), silence(160)):
            frames.append((clock.now_ns() // NS_PER_MS, frame.first_sample, frame.samples))

    task = asyncio.create_task(listen())
    await clock.advance_ms(1000)
    await task
    assert [(ms, first) for ms, first, _ in frames] == [(20, 0), (40, 320), (60, 640)]
    assert sum(len(samples) for _, _, samples in frames) == 60 * MODEL_RATE_HZ // 1000


async def results_of(engine: FakeEngine, request: Think | Transcribe) -> list[Result]:
    async with engine.submit(request) as stream:
        return [result async for result in stream]


async def test_engine_follows_its_scripts_in_order():
    clock = ManualClock()
    engine = FakeEngine(clock, hears=["hello", [Wait(80), "bye"]], says=[["A ", Wait(50), "b.", Use("ring")]])
    assert await results_of(engine, Transcribe("t1", 1, b"")) == [Transcript("t1", 1, "hello", "en")]
    late = asyncio.create_task(results_of(engine, Transcribe("t2", 2, b"")))
    await clock.advance_ms(79)
    assert not late.done()
    await clock.advance_ms(2)
    assert await late == [Transcript("t2", 2, "bye", "en")]
    thinking = asyncio.create_task(results_of(engine, Think("r1", 3, [])))
    await clock.advance_ms(50)
    assert await thinking == [
        TextDelta("r1", 3, "A "),
        TextDelta("r1", 3, "b."),
        ToolCall("r1", 3, "call_1", "ring", "{}"),
        Finished("r1", 3, "tool_calls"),
    ]
    assert engine.aborted == []


async def test_engine_speaks_each_word_as_its_own_tone():
    engine = FakeEngine(ManualClock(), voice=Voice(word_ms=100, rate_hz=8000))
    async with engine.submit(Speak("r", 1, "joe")) as stream:
        stream.push(SpeakText("r", 1, [SpokenWord("Good", 0, 4), SpokenWord("day", 5, 8)], "en"))
        stream.push(SpeakEnd("r", 1))
        results = [result async for result in stream]
    chunks = [result for result in results if isinstance(result, SpeechChunk)]
    assert [(c.first_sample, c.words[0].start_char, c.words[0].end_sample) for c in chunks] == [
        (0, 0, 800),
        (800, 5, 1600),
    ]
    for sound, word in zip(chunks, ["Good", "day"], strict=True):
        spectrum = np.abs(np.fft.rfft(np.frombuffer(sound.pcm, "<i2")))
        assert abs(int(np.argmax(spectrum)) * 10 - word_tone_hz(word)) <= 10
    assert results[-1] == Finished("r", 1)


async def test_abort_from_outside_ends_the_stream():
    engine = FakeEngine(ManualClock(), says=[["A ", Stall()]])
    async with engine.submit(Think("r", 1, [])) as stream:
        results = aiter(stream)
        await anext(results)
        assert engine.in_flight() == ["r"]
        engine.abort("r")
        assert await anext(results) == Finished("r", 1, "aborted")
    assert (engine.in_flight(), engine.aborted) == ([], ["r"])


async def test_a_dead_engine_ends_what_it_held_and_takes_nothing():
    engine = FakeEngine(ManualClock(), says=[["A ", Stall()], [Die()]])

    async def hold_on() -> None:
        async with engine.submit(Think("r1", 1, [])) as stream:
            async for _ in stream:
                pass

    held = asyncio.create_task(hold_on())
    await asyncio.sleep(0)
    with pytest.raises(EngineDied):
        await results_of(engine, Think("r2", 2, []))
    with pytest.raises(EngineDied):
        await held
    with pytest.raises(EngineDied):
        await results_of(engine, Think("r3", 3, []))
