"""What the cascade may rely on, whatever the transport: the same tests on a child process and without one."""

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

from tests.engine_models import FRAMES_PER_WORD, RATE_HZ, SAMPLES_PER_FRAME
from tests.engine_rig import (
    LocalEngine,
    answer,
    chunks_of,
    clause,
    results,
    running,
    speech_spec,
    text_of,
    think,
    thinker_spec,
    until,
)
from voice_agent.engine.client import EngineClient
from voice_agent.engine.messages import (
    Failed,
    Finished,
    Result,
    Speak,
    SpeakEnd,
    TextDelta,
    Think,
    ToolCall,
    Transcribe,
    Transcript,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
TRANSPORTS = ("process", "local")
WORD_SAMPLES = FRAMES_PER_WORD * SAMPLES_PER_FRAME


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=TRANSPORTS)
async def thinker(request: pytest.FixtureRequest) -> AsyncIterator[EngineClient]:
    if request.param == "local":
        yield LocalEngine(thinker_spec())
        return
    async with running(thinker_spec()) as engine:
        yield engine


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=TRANSPORTS)
async def speech(request: pytest.FixtureRequest) -> AsyncIterator[EngineClient]:
    if request.param == "local":
        yield LocalEngine(speech_spec())
        return
    async with running(speech_spec()) as engine:
        yield engine


# --- Recognizer and Thinker -------------------------------------------------------------------------------------


async def test_transcribes(thinker: EngineClient) -> None:
    pcm = np.zeros(1_600, dtype="<i2").tobytes()
    given = await answer(thinker, Transcribe("turn", thinker.next_epoch(), pcm, "ko"))
    assert [(r.text, r.language) for r in given if isinstance(r, Transcript)] == [("1600 samples", "ko")]


@pytest.mark.parametrize("pcm", [b"", b"\0", b"\0\0" * (30 * 16_000 + 1)])
async def test_speech_that_is_none_fails_that_request_alone(thinker: EngineClient, pcm: bytes) -> None:
    (failed,) = await answer(thinker, Transcribe("turn", thinker.next_epoch(), pcm))
    assert isinstance(failed, Failed) and failed.code == "invalid_request" and not failed.retryable
    assert text_of(await answer(thinker, think(thinker, "r", "say fine"))) == "fine "


async def test_streams_an_answer_then_finishes_with_usage_and_timings(thinker: EngineClient) -> None:
    given = await answer(thinker, think(thinker, "r", "say one two"))
    assert [type(result) for result in given] == [TextDelta, TextDelta, Finished]
    end = given[-1]
    assert isinstance(end, Finished) and end.reason == "stop" and end.usage == {"output_tokens": 2}
    assert 0 <= end.timings_ms["first_token"] <= end.timings_ms["total"]


async def test_an_empty_answer_is_a_regular_end(thinker: EngineClient) -> None:
    (end,) = await answer(thinker, think(thinker, "r", "nothing"))
    assert isinstance(end, Finished) and end.reason == "stop"


async def test_a_tool_call_comes_whole_before_its_end(thinker: EngineClient) -> None:
    call, end = await answer(thinker, think(thinker, "r", "tool weather"))
    assert isinstance(call, ToolCall) and (call.name, call.arguments) == ("weather", '{"a":1}')
    assert isinstance(end, Finished) and end.reason == "tool_calls"


async def test_an_answer_that_never_stops_is_cut_at_its_token_limit(thinker: EngineClient) -> None:
    given = await answer(thinker, think(thinker, "r", "flood", max_output_tokens=7))
    assert text_of(given) == "on " * 7
    assert isinstance(given[-1], Finished) and given[-1].reason == "length"


@pytest.mark.parametrize(
    ("command", "code", "retryable"), [("raise", "model_error", False), ("refuse", "cannot", True)]
)
async def test_a_models_error_fails_one_request_and_quotes_nothing(
    thinker: EngineClient, command: str, code: str, retryable: bool
) -> None:
    (failed,) = await answer(thinker, think(thinker, "r", command))
    assert isinstance(failed, Failed) and (failed.code, failed.retryable) == (code, retryable)
    assert "secret" not in failed.message
    assert text_of(await answer(thinker, think(thinker, "r", "say fine"))) == "fine "


async def test_a_long_history_is_cut_to_the_system_message_and_the_newest_turns(
    thinker: EngineClient,
) -> None:
    turns = [{"role": "user", "content": f"turn{i} " + "x " * 40} for i in range(20)]
    messages = [{"role": "system", "content": "system"}, *turns, {"role": "user", "content": "prompt"}]
    given = await answer(thinker, Think("r", thinker.next_epoch(), messages, max_output_tokens=50))
    words = text_of(given).split()
    assert words[0] == "system" and words[-2:] == ["turn19", "prompt"] and 3 < len(words) < 12


async def test_a_turn_over_the_context_fails_with_a_code(thinker: EngineClient) -> None:
    (failed,) = await answer(thinker, think(thinker, "r", "say " + "x " * 500))
    assert isinstance(failed, Failed) and failed.code == "context_too_long"


async def test_requests_of_one_kind_are_done_in_order_and_kinds_do_not_wait_for_each_other(
    thinker: EngineClient,
) -> None:
    async with (
        thinker.submit(think(thinker, "long", "forever")),
        thinker.submit(think(thinker, "next", "say x")) as queued,
    ):
        pcm = np.zeros(2, dtype="<i2").tobytes()
        async with asyncio.timeout(2):
            assert await answer(thinker, Transcribe("turn", thinker.next_epoch(), pcm))
        assert set(thinker.in_flight()) == {"long", "next"}
        thinker.abort("long")
        assert text_of(await results(queued)) == "x "
    await until(lambda: not thinker.in_flight())


async def test_abort_from_outside_ends_the_stream_as_aborted_and_frees_the_engine(
    thinker: EngineClient,
) -> None:
    async with thinker.submit(think(thinker, "r", "forever")) as stream:
        await anext(aiter(stream))
        thinker.abort("r")
        (end,) = await results(stream)
        assert isinstance(end, Finished) and end.reason == "aborted"
    await until(lambda: not thinker.in_flight(), 1.0)


async def test_leaving_the_block_early_aborts(thinker: EngineClient) -> None:
    async with thinker.submit(think(thinker, "r", "forever")) as stream:
        await anext(aiter(stream))
    assert thinker.in_flight() == ["r"]  # until the engine has let go of it
    await until(lambda: not thinker.in_flight(), 1.0)


async def test_a_cancelled_reader_aborts_its_request(thinker: EngineClient) -> None:
    task = asyncio.create_task(answer(thinker, think(thinker, "r", "forever")))
    await until(lambda: thinker.in_flight() == ["r"])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not thinker.in_flight(), 1.0)


async def test_a_queued_request_that_is_aborted_is_never_done(thinker: EngineClient) -> None:
    async with thinker.submit(think(thinker, "long", "forever")):
        async with thinker.submit(think(thinker, "queued", "say never")) as queued:
            thinker.abort("queued")
            assert text_of(await results(queued)) == ""
        await until(lambda: thinker.in_flight() == ["long"], 1.0)
    await until(lambda: not thinker.in_flight())


async def test_an_aborted_transcription_gives_nothing_and_the_next_is_done(thinker: EngineClient) -> None:
    slow = np.zeros(1, dtype="<i2").tobytes()
    async with thinker.submit(Transcribe("turn", thinker.next_epoch(), slow)) as stream:
        await asyncio.sleep(0.05)
        thinker.abort("turn")
        assert [type(result) for result in await results(stream)] == [Finished]
    given = await answer(thinker, Transcribe("turn", thinker.next_epoch(), slow * 3))
    assert isinstance(given[0], Transcript) and given[0].text == "3 samples"


async def test_a_new_attempt_with_the_same_id_hears_nothing_of_the_old_one(thinker: EngineClient) -> None:
    async with thinker.submit(think(thinker, "r", "forever")) as old:
        await anext(aiter(old))
        given = await answer(thinker, think(thinker, "r", "say new"))
        assert text_of(given) == "new "
        assert [type(result) for result in await results(old)] == [Finished]
    await until(lambda: not thinker.in_flight(), 1.0)


async def test_an_answer_may_take_half_of_the_context_at_most(thinker: EngineClient) -> None:
    given = await answer(thinker, think(thinker, "r", "flood", max_output_tokens=100_000))
    assert text_of(given) == "on " * 200
    assert isinstance(given[-1], Finished) and given[-1].reason == "length"


# --- speech -----------------------------------------------------------------------------------------------------


async def speak(speech: EngineClient, *clauses: str, language: str = "en", **more: object) -> list[Result]:
    """Speak a reply whose text is the clauses with spaces between."""
    epoch, at = speech.next_epoch(), 0
    async with speech.submit(Speak("reply", epoch, "low", **more)) as stream:  # type: ignore[arg-type]
        for text in clauses:
            stream.push(clause("reply", epoch, text, at, language))
            at += len(text) + 1
        stream.push(SpeakEnd("reply", epoch))
        return await results(stream)


@pytest.mark.parametrize("latency_first", [True, False])
async def test_sound_comes_in_windows_without_a_hole_and_words_say_where_they_are(
    speech: EngineClient, latency_first: bool
) -> None:
    given = await speak(speech, "I see a cat", "and nine dogs too", latency_first=latency_first)
    chunks = chunks_of(given)
    sound = np.concatenate([np.frombuffer(chunk.pcm, "<i2") for chunk in chunks])
    expected_next = np.cumsum([0, *(len(chunk.pcm) // 2 for chunk in chunks)])
    assert [chunk.first_sample for chunk in chunks] == expected_next[:-1].tolist()
    assert len(sound) == 8 * WORD_SAMPLES and {chunk.rate_hz for chunk in chunks} == {RATE_HZ}
    words = [(word, chunk) for chunk in chunks for word in chunk.words]
    assert [word.start_char for word, _ in words] == [0, 2, 6, 8, 12, 16, 21, 26]
    for word, chunk in words:
        assert set(sound[word.first_sample : word.end_sample]) == {word.start_char + 1}
        assert chunk.first_sample <= word.first_sample < chunk.first_sample + len(chunk.pcm) // 2


async def test_latency_first_starts_with_the_smallest_window(speech: EngineClient) -> None:
    first = {
        mode: chunks_of(await speak(speech, "one two three", latency_first=mode))[0] for mode in (True, False)
    }
    assert len(first[True].pcm) // 2 == 16 * SAMPLES_PER_FRAME
    assert len(first[False].pcm) // 2 == 3 * WORD_SAMPLES


@pytest.mark.parametrize("clauses", [(), ("",), ("...",), ("...", "..."), ("...", "yes", "...")])
async def test_clauses_without_sound_end_regularly(speech: EngineClient, clauses: tuple[str, ...]) -> None:
    async with asyncio.timeout(1.5):
        given = await speak(speech, *clauses)
    assert isinstance(given[-1], Finished) and given[-1].reason == "stop"
    assert sum(len(chunk.pcm) // 2 for chunk in chunks_of(given)) == WORD_SAMPLES * ("yes" in clauses)


async def test_a_language_the_voice_cannot_speak_costs_its_clause_and_not_the_reply(
    speech: EngineClient,
) -> None:
    epoch = speech.next_epoch()
    async with speech.submit(Speak("reply", epoch, "low")) as stream:
        stream.push(clause("reply", epoch, "bonjour", language="fr"))
        stream.push(clause("reply", epoch, "the moon", language="en-US"))  # the model itself finds out
        stream.push(clause("reply", epoch, "yes", at=30, language="ko"))
        stream.push(SpeakEnd("reply", epoch))
        given = await results(stream)
    refused = [result for result in given if isinstance(result, Failed)]
    assert [(failed.code, failed.final) for failed in refused] == [("unsupported_language", False)] * 2
    assert [word.start_char for chunk in chunks_of(given) for word in chunk.words] == [30]
    assert isinstance(given[-1], Finished)


@pytest.mark.parametrize(
    ("voice", "speed", "code"),
    [("loud", 1.0, "unknown_voice"), ("low", 0.0, "invalid_speed"), ("low", float("nan"), "invalid_speed")],
)
async def test_a_reply_that_cannot_be_spoken_at_all_is_refused(
    speech: EngineClient, voice: str, speed: float, code: str
) -> None:
    (failed,) = await answer(speech, Speak("reply", speech.next_epoch(), voice, speed=speed))
    assert isinstance(failed, Failed) and failed.code == code and failed.final
    assert code != "unknown_voice" or "low, high" in failed.message


async def test_a_talkers_error_ends_its_reply_and_leaves_the_neighbour_unharmed(speech: EngineClient) -> None:
    neighbour = speech.next_epoch()
    async with speech.submit(Speak("neighbour", neighbour, "high")) as stream:
        stream.push(clause("neighbour", neighbour, "slow and steady"))
        given = await speak(speech, "fine until", "boom")
        assert isinstance(given[-1], Failed) and given[-1].code == "model_error" and given[-1].final
        stream.push(SpeakEnd("neighbour", neighbour))
        assert sum(len(chunk.pcm) for chunk in chunks_of(await results(stream))) == 2 * 3 * WORD_SAMPLES


async def test_an_aborted_reply_sounds_no_more_and_the_next_one_is_whole(speech: EngineClient) -> None:
    for _ in range(5):
        epoch = speech.next_epoch()
        async with speech.submit(Speak("reply", epoch, "low")) as stream:
            stream.push(clause("reply", epoch, "slow " * 40))
            await anext(aiter(stream))
            speech.abort("reply")
            assert [type(result) for result in await results(stream)] == [Finished]
        sound = chunks_of(await speak(speech, "next", "one"))
        assert {value for chunk in sound for value in np.frombuffer(chunk.pcm, "<i2")} == {1, 6}
    await until(lambda: not speech.in_flight(), 1.0)


async def test_text_for_an_older_attempt_is_dropped(speech: EngineClient) -> None:
    old = speech.next_epoch()
    async with speech.submit(Speak("reply", old, "low")):
        epoch = speech.next_epoch()
        async with speech.submit(Speak("reply", epoch, "low")) as stream:
            stream.push(clause("reply", old, "stale", at=50))
            stream.push(clause("reply", epoch, "fresh"))
            stream.push(SpeakEnd("reply", epoch))
            words = [word for chunk in chunks_of(await results(stream)) for word in chunk.words]
    assert [word.start_char for word in words] == [0]


async def test_a_long_reply_is_not_rendered_further_ahead_than_the_cap(speech: EngineClient) -> None:
    epoch = speech.next_epoch()
    async with speech.submit(Speak("reply", epoch, "low")) as stream:
        stream.push(clause("reply", epoch, "word " * 200))  # 40 s
        heard, ahead_s = aiter(stream), 0.0
        while ahead_s < 19:
            chunk = await anext(heard)
            assert not isinstance(chunk, Finished)
            ahead_s += len(chunks_of([chunk])[0].pcm) / 2 / RATE_HZ
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                while True:
                    ahead_s += len(chunks_of([await anext(heard)])[0].pcm) / 2 / RATE_HZ
    assert ahead_s < 22.0
