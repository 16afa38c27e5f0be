import re
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import av
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from voice_agent.audio import Samples, silence
from voice_agent.engine.messages import SpokenWord, Think
from voice_agent.engine.runtime import RecognizerOptions, TalkerOptions, ThinkerOptions
from voice_agent.errors import ConfigError, EngineError
from voice_agent.models import scripted, tones

VOCABULARY = re.findall(
    r"\w+", "hello world this is a test of the tones yes no Paris France whales largest mammals on earth"
)
NOWHERE = Path("nowhere")
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}

words = st.text(st.characters(categories=["Lu", "Ll", "Lo", "Nd"]), min_size=1, max_size=14)


def thinker(**extra: Any) -> scripted.ScriptedThinker:
    return cast(scripted.ScriptedThinker, scripted.load(NOWHERE, ThinkerOptions("scripted", "", extra=extra)))


def talker(**extra: Any) -> scripted.ToneTalker:
    return cast(scripted.ToneTalker, scripted.load(NOWHERE, TalkerOptions("scripted", "", extra=extra)))


def ears(**extra: Any) -> scripted.ScriptedRecognizer:
    return cast(
        scripted.ScriptedRecognizer, scripted.load(NOWHERE, RecognizerOptions("scripted", "", extra=extra))
    )


def think(*turns: str, **fields: Any) -> Think:
    return Think("r", 1, [{"role": "user", "content": turn} for turn in turns], **fields)


def spoken(texts: list[str]) -> list[SpokenWord]:
    return [SpokenWord(text, 10 * index, 10 * index + 5) for index, text in enumerate(texts)]


def sound_of(model: scripted.ToneTalker, texts: list[str], window: int = 1_000) -> Samples:
    latents = model.encode(spoken(texts), "", 1.0, 0)
    starts = range(0, latents.frames, window)
    return np.concatenate(
        [silence(0), *(model.decode(latents, at, min(window, latents.frames - at)) for at in starts)]
    )


def distinct(texts: list[str]) -> list[str]:
    """One spelling of each word, as long as no two sound alike (one vocabulary in 150 has such a pair)."""
    chosen = list({tones.plain(text): text for text in texts if tones.plain(text)}.values())
    assume(len({tones.tone_of(text) for text in chosen}) == len(chosen))
    return chosen


# --- tones ------------------------------------------------------------------------------------------------------


@given(st.lists(words, min_size=1, max_size=64), st.data())
def test_any_words_of_any_vocabulary_are_heard_again(vocabulary: list[str], data: st.DataObject) -> None:
    vocabulary = distinct(vocabulary)
    assume(vocabulary)
    said = data.draw(st.lists(st.sampled_from(vocabulary), max_size=6))
    assert [word for word, _ in tones.words_heard(tones.sequence(said), tones.RATE_HZ, vocabulary)] == said


def test_words_are_heard_where_they_begin() -> None:
    latents = talker().encode(spoken(VOCABULARY), "", 1.0, 0)
    heard = tones.words_heard(talker().decode(latents, 0, latents.frames), tones.RATE_HZ, VOCABULARY)
    assert [word for word, _ in heard] == VOCABULARY
    for (_, first_sample), word in zip(heard, latents.words, strict=True):
        assert abs(first_sample - word.first_frame * tones.SAMPLES_PER_FRAME) <= tones.RATE_HZ // 100


@pytest.mark.parametrize("bit_rate", [16_000, 32_000])
def test_words_are_heard_after_opus(bit_rate: int) -> None:
    heard = tones.words_heard(through_opus(tones.sequence(VOCABULARY), bit_rate), 48_000, VOCABULARY)
    assert [word for word, _ in heard] == VOCABULARY


def test_words_are_heard_on_a_telephone_and_in_noise() -> None:
    sound = tones.sequence(VOCABULARY)[::3].astype(np.float64)
    noisy = (sound + np.random.default_rng(0).normal(0, 300, len(sound))).clip(-32768, 32767).astype(np.int16)
    assert [word for word, _ in tones.words_heard(noisy, 8_000, VOCABULARY)] == VOCABULARY


def test_a_word_cut_off_is_not_heard_and_the_others_are() -> None:
    sound = tones.sequence(["hello", "mammals"])
    cut = len(tones.sequence(["hello"])) + tones.tone_of("mammals").frames * tones.SAMPLES_PER_FRAME // 2
    assert [word for word, _ in tones.words_heard(sound[:cut], tones.RATE_HZ, VOCABULARY)] == ["hello"]


def test_a_word_that_was_held_and_resumed_is_heard_once() -> None:
    sound = tones.sequence(["hello", "mammals", "yes"])
    inside = len(tones.sequence(["hello"])) + 2_000
    held = np.concatenate([sound[:inside], silence(9_600), sound[inside:]])
    heard = tones.words_heard(held, tones.RATE_HZ, VOCABULARY)
    assert [word for word, _ in heard] == ["hello", "mammals", "yes"]


@pytest.mark.parametrize("sound", [silence(0), silence(48_000), np.full(9, 500, np.int16)])
def test_silence_holds_no_words(sound: Samples) -> None:
    assert tones.words_heard(sound, tones.RATE_HZ, VOCABULARY) == []


def test_words_outside_of_the_vocabulary_are_skipped() -> None:
    heard = tones.words_heard(tones.sequence(["hello", "stranger", "yes"]), tones.RATE_HZ, VOCABULARY)
    assert [word for word, _ in heard] == ["hello", "yes"]


def test_a_vocabulary_with_words_that_sound_alike_is_refused() -> None:
    seen = dict[tones.Tone, str]()
    for number in range(100_000):
        word = f"w{number:05}"
        other = seen.setdefault(tones.tone_of(word), word)
        if other != word:
            with pytest.raises(ValueError, match="same tones"):
                tones.words_heard(silence(10), tones.RATE_HZ, [word, other])
            return
    pytest.fail("no two of 100,000 words sound alike: the hash is not the one that was meant")


# --- the Talker -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 2, 7, 16, 96])
def test_windows_join_to_the_one_shot_sound(window: int) -> None:
    whole = sound_of(talker(), VOCABULARY[:5])
    assert np.array_equal(sound_of(talker(), VOCABULARY[:5], window), whole)
    assert (
        np.abs(np.diff(whole.astype(np.int32))).max()
        < 2 * 2 * np.pi * 3_400 / tones.RATE_HZ * tones.AMPLITUDE
    )


def test_words_without_letters_have_no_sound() -> None:
    latents = talker().encode(spoken(["hello", "—", "yes", "..."]), "", 1.0, 0)
    assert [word.end_frame - word.first_frame for word in latents.words] == [18, 0, 14, 0]
    assert talker().encode(spoken(["..."]), "", 1.0, 0).frames == 0


def test_speed_shortens_words() -> None:
    slow, fast = (talker().encode(spoken(VOCABULARY), "", speed, 0).frames for speed in (0.5, 2.0))
    assert slow > 2 * fast


@pytest.mark.parametrize(("first_frame", "frames"), [(-1, 2), (0, 23), (22, 1), (0, -1)])
def test_a_window_outside_is_refused(first_frame: int, frames: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        talker().decode(talker().encode(spoken(["hello"]), "", 1.0, 0), first_frame, frames)


def test_a_clause_fails_where_the_script_says() -> None:
    with pytest.raises(EngineError) as caught:
        talker(fails_on="bad").encode(spoken(["a", "bad", "one"]), "", 1.0, 0)
    assert caught.value.code == "clause_failed"


# --- recognizer and Thinker -------------------------------------------------------------------------------------


def test_the_recognizer_tells_by_duration() -> None:
    model = ears(text="long", by_duration=[(200, "short"), (500, "middle")])
    texts = [model.transcribe(np.full(ms * 16, 100, np.int16), None)[0] for ms in (100, 400, 900)]
    assert texts == ["short", "middle", "long"]
    assert model.transcribe(silence(16_000), "ko") == ("", "ko")


def test_the_thinker_writes_its_texts_in_turn() -> None:
    model, pieces = thinker(texts=["One two.", "Three."]), list[str]()
    for turns in (["a"], ["a", "b"], ["a", "b", "c"]):
        assert model.stream(think(*turns), lambda piece: bool(pieces.append(piece))).reason == "stop"
    assert pieces == ["One", " two.", "Three.", "One", " two."]


def test_the_thinker_stops_at_once_and_at_its_limit() -> None:
    seen = list[str]()
    end = thinker(endless=True).stream(think("a"), lambda piece: bool(seen.append(piece)) or len(seen) == 100)
    assert (end.reason, len(seen), end.usage["completion_tokens"]) == ("aborted", 100, 99)
    assert thinker(endless=True).stream(think("a", max_output_tokens=7), lambda _: False).reason == "length"


@pytest.mark.parametrize("extra", [{"stall_after": 2}, {"stall_after": 0}, {"first_ms": 60_000.0}])
def test_a_stalled_thinker_can_be_stopped(extra: dict[str, Any]) -> None:
    stop, ends = threading.Event(), list[str]()
    run = threading.Thread(
        target=lambda: ends.append(thinker(**extra).stream(think("a"), lambda _: stop.is_set()).reason)
    )
    run.start()
    time.sleep(0.03)
    assert run.is_alive()
    stop.set()
    run.join(1)
    assert ends == ["aborted"]


def test_the_thinker_calls_its_tool_once_then_answers() -> None:
    model = thinker(tool_call={"name": "weather", "arguments": {"city": "서울"}})
    end = model.stream(think("a", tools=[TOOL]), lambda _: False)
    assert (end.reason, end.tool_calls[0].name, end.tool_calls[0].arguments) == (
        "tool_calls",
        "weather",
        '{"city": "서울"}',
    )
    result = {"role": "tool", "tool_call_id": end.tool_calls[0].call_id, "content": "sunny"}
    request = Think("r", 1, [*think("a").messages, result], tools=[TOOL])
    assert model.stream(request, lambda _: False).reason == "stop"
    assert model.stream(think("a"), lambda _: False).reason == "stop"


def test_counting_grows_with_the_words() -> None:
    model = thinker()
    assert (
        model.count_tokens(
            [{"role": "user", "content": "one two three"}, {"role": "assistant", "content": None}]
        )
        == 11
    )


@pytest.mark.parametrize("load", [ears, thinker, talker])
def test_an_unknown_option_is_named(load: Any) -> None:
    with pytest.raises(ConfigError, match="tpyo"):
        load(tpyo=1)


def through_opus(sound: Samples, bit_rate: int) -> Samples:
    """24 kHz through a real Opus encoder and decoder: 48 kHz."""
    encoder = av.CodecContext.create("libopus", "w")
    encoder.sample_rate, encoder.layout, encoder.format, encoder.bit_rate = 48_000, "mono", "s16", bit_rate
    encoder.time_base = Fraction(1, 48_000)
    decoder = av.CodecContext.create("opus", "r")
    decoder.sample_rate, decoder.layout = 48_000, "mono"
    frame = av.AudioFrame.from_ndarray(sound[None], "s16", "mono")
    frame.sample_rate = tones.RATE_HZ
    resampler = av.AudioResampler("s16", "mono", 48_000, frame_size=960)
    frames = [*resampler.resample(frame), *resampler.resample(None)]
    packets = [packet for item in [*frames, None] for packet in encoder.encode(item)]
    decoded = [out.to_ndarray().ravel() for packet in packets for out in decoder.decode(packet)]
    heard = np.concatenate(decoded).astype(np.float64)
    scale = 1 if decoded[0].dtype == np.int16 else 32_767
    return (heard * scale).clip(-32_768, 32_767).astype(np.int16)
