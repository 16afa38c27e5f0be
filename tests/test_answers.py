"""Replies without a session: what overlaps, what reaches the engines, what a hang-up and a failure leave behind."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tests.engine_rig import until
from tests.fakes import Die, Fail, FakeEngine, Stall, Step, Use, Voice, tone
from voice_agent.answers import AnswerParts, Answers
from voice_agent.audio import WIRE_RATE_HZ
from voice_agent.clock import MonotonicClock
from voice_agent.config import ThinkerConfig
from voice_agent.engine.messages import Speak, SpeakText, Think, Transcribe
from voice_agent.errors import BusyError, EngineError, RemoteProtocolError
from voice_agent.media.containers import decode, encode
from voice_agent.places import Places
from voice_agent.requests import (
    CallPiece,
    ChatRequest,
    Ended,
    ImagePart,
    Message,
    Part,
    ReplyPiece,
    SoundPart,
    SoundPiece,
    SpeechRequest,
    SpeechWish,
    TextPart,
    TextPiece,
)
from voice_agent.speech.cascade import Cascade
from voice_agent.speech.stopping import StopAware
from voice_agent.speech.thinker import EngineThinker
from voice_agent.speech.watermark import PassThrough
from voice_agent.transcripts import TranscriptParts, Transcripts

SPOKEN = SpeechWish("", "pcm16", latency_first=True, streamed=True)
WHOLE = SpeechWish("", "wav", latency_first=False, streamed=False)
WAV = encode(tone(300, 1_000), "wav", 16_000)
TOOLS = ({"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}},)


@dataclass
class Rig:
    """Answers between fake engines."""

    says: Sequence[Sequence[Step] | str] = ("Hello there.",)
    hears: Sequence[Sequence[Step] | str] = ("what I said",)
    voice: Voice | None = None
    config: ThinkerConfig = ThinkerConfig()  # noqa: RUF009 - frozen
    languages: tuple[str, ...] = ("en",)
    most: int = 4

    def __post_init__(self) -> None:
        clock = MonotonicClock()
        self.thinker = FakeEngine(clock, hears=self.hears, says=self.says)
        self.talker = FakeEngine(clock, voice=self.voice)
        self.places = Places(self.most)
        parts = TranscriptParts(
            self.thinker,
            lambda: pytest.fail("no file here is long"),
            ThreadPoolExecutor(1),
            self.places,
            clock,
        )
        cascade = Cascade(
            StopAware(EngineThinker(self.thinker)), self.talker, PassThrough, clock, lambda: self.languages, 5
        )
        self.answers = Answers(AnswerParts(cascade, Transcripts(parts), self.places, self.config))

    def thought(self) -> Think:
        return self.thinker.of_kind(Think)[-1]

    def spoke(self) -> Speak:
        return self.talker.of_kind(Speak)[-1]

    def clauses(self) -> list[str]:
        pushed = [message for message in self.talker.pushed if isinstance(message, SpeakText)]
        return [" ".join(word.text for word in message.words) for message in pushed]


def asking(*parts: Part | str, **changes: Any) -> ChatRequest:
    told = tuple(TextPart(part) if isinstance(part, str) else part for part in parts)
    return replace(ChatRequest((Message("user", told),)), **changes)


async def all_of(pieces: AsyncGenerator[Any]) -> list[Any]:
    async with aclosing(pieces) as got:
        return [piece async for piece in got]


def written(pieces: Sequence[ReplyPiece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))


def sound_of(pieces: Sequence[ReplyPiece]) -> bytes:
    return b"".join(piece.data for piece in pieces if isinstance(piece, SoundPiece))


async def test_a_written_reply_opens_no_speech():
    rig = Rig()
    pieces = await all_of(rig.answers.answer(asking("Hi.")))
    assert written(pieces) == "Hello there." and isinstance(pieces[-1], Ended)
    assert rig.talker.requests == []
    assert rig.thought().messages == [{"role": "user", "content": "Hi."}]


async def test_the_first_sound_leaves_before_the_thinker_has_finished_its_second_sentence():
    rig = Rig(says=[["The first sentence is here. ", "The second one never", Stall()]])
    answer = rig.answers.answer(asking("Hi.", speech=SPOKEN))
    async with asyncio.timeout(10), aclosing(answer) as pieces:
        async for piece in pieces:
            if isinstance(piece, SoundPiece) and len(piece.data) > 1_000:
                break
    assert rig.clauses() and "second" not in " ".join(rig.clauses())


@pytest.mark.parametrize("latency_first", [True, False])
async def test_the_wish_for_soon_or_good_reaches_the_talker_and_the_clauses(latency_first: bool):
    text = "Well now, this is a sentence that is long enough to be cut, and then it goes on for a while."
    rig = Rig(says=[text])
    await all_of(rig.answers.answer(asking("Hi.", speech=replace(SPOKEN, latency_first=latency_first))))
    assert rig.spoke().latency_first is latency_first
    assert (len(rig.clauses()) > 1) is latency_first


async def test_a_whole_file_comes_once_and_usage_counts_its_length():
    rig = Rig(voice=Voice(word_ms=500), says=["One two."])
    pieces = await all_of(rig.answers.answer(asking("Hi.", speech=WHOLE)))
    sounds = [piece for piece in pieces if isinstance(piece, SoundPiece)]
    assert len(sounds) == 1
    assert len(decode(sounds[0].data, WIRE_RATE_HZ, 10)) == pytest.approx(WIRE_RATE_HZ, abs=2)
    assert pieces[-1].usage.audio_out == 20


async def test_streamed_and_whole_sound_are_the_same_samples():
    streamed = sound_of(await all_of(Rig().answers.answer(asking("Hi.", speech=SPOKEN))))
    whole = sound_of(
        await all_of(Rig().answers.answer(asking("Hi.", speech=replace(WHOLE, audio_format="pcm16"))))
    )
    assert streamed == whole


async def test_sound_is_written_down_in_its_place_between_the_other_parts():
    rig = Rig(hears=["first", "second"])
    parts = (SoundPart(WAV, "a"), TextPart("between"), SoundPart(WAV, "b"), TextPart("behind"))
    pieces = await all_of(rig.answers.answer(asking(*parts)))
    assert rig.thought().messages[0]["content"] == "first\nbetween\nsecond\nbehind"
    assert pieces[-1].usage.audio_in == 20
    assert len(rig.thinker.of_kind(Transcribe)) == 2


async def test_a_thinker_that_hears_and_sees_gets_the_parts_themselves():
    rig = Rig(config=ThinkerConfig(sees=True, hears=True))
    image = ImagePart(PNG, "low", "i")
    await all_of(rig.answers.answer(asking(image, SoundPart(WAV, "a"), "What is it?")))
    picture, sound, text = rig.thought().messages[0]["content"]
    assert picture == {"type": "image_url", "image_url": {"url": image.url, "detail": "low"}}
    assert sound["type"] == "input_audio" and sound["input_audio"]["format"] == "wav"
    assert len(decode(base64.b64decode(sound["input_audio"]["data"]), 16_000, 10)) == 16_000
    assert text == {"type": "text", "text": "What is it?"}
    assert rig.thinker.of_kind(Transcribe) == []


@pytest.mark.parametrize(
    ("part", "code"),
    [
        (ImagePart("data:image/png;base64,AA==", "auto", "messages[0].content[0]"), "unsupported_value"),
        (SoundPart(b"no sound", "messages[0].content[0]"), "invalid_audio"),
        (SoundPart(WAV[:60], "messages[0].content[0]"), "invalid_audio"),
    ],
)
async def test_a_part_that_cannot_be_used_is_named_and_nothing_is_thought(part: Part, code: str):
    rig = Rig()
    with pytest.raises(RemoteProtocolError) as caught:
        await all_of(rig.answers.answer(asking(part)))
    assert (caught.value.code, caught.value.param) == (code, "messages[0].content[0]")
    assert rig.thinker.of_kind(Think) == []


PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n and more").decode()
PICTURES = [
    (PNG, None),
    ("data:image/jpeg;base64," + base64.b64encode(b"\xff\xd8\xff\xe0").decode(), None),
    ("https://example.org/a.png", None),
    ("data:image/png;base64,AAAA", "holds is no png"),
    ("data:image/png;base64,", "holds is no png"),
    ("data:image/png;base64,!!", "not base64"),
    ("data:image/png,AAAA", "no data: URI of a picture"),
    ("data:text/plain;base64,AAAA", "no data: URI of a picture"),
    ("file:///etc/passwd", "neither https"),
    ("http://169.254.169.254/latest", "neither https"),
    ("https://", "neither https"),
    ("https://[", "no address"),
    ("AAAA", "neither https"),
]


@pytest.mark.parametrize(("url", "fault"), PICTURES)
async def test_a_picture_that_is_none_is_refused_before_the_thinker_sees_it(url: str, fault: str | None):
    rig = Rig(config=ThinkerConfig(sees=True))
    request = asking(ImagePart(url, "auto", "messages[0].content[0]"))
    if fault is None:
        await all_of(rig.answers.answer(request))
        return
    with pytest.raises(RemoteProtocolError, match=fault) as caught:
        await all_of(rig.answers.answer(request))
    assert (caught.value.code, caught.value.param) == (
        "invalid_value",
        "messages[0].content[0].image_url.url",
    )
    assert rig.thinker.of_kind(Think) == []


async def test_every_option_reaches_the_thinker_and_the_configuration_fills_the_rest():
    options: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "max_output_tokens": 33,
        "stop": ("x",),
    }
    rig = Rig()
    await all_of(rig.answers.answer(asking("Hi.", tools=TOOLS, tool_choice="weather", **options)))
    think = rig.thought()
    assert {name: getattr(think, name) for name in options} == options | {"stop": ["x"]}
    assert (think.tools, think.tool_choice) == (list(TOOLS), "weather")
    rig = Rig(config=ThinkerConfig(max_output_tokens=44, temperature=0.25))
    await all_of(rig.answers.answer(asking("Hi.")))
    assert (rig.thought().max_output_tokens, rig.thought().temperature) == (44, 0.25)


async def test_a_stop_sequence_is_neither_written_nor_said():
    rig = Rig(says=[["One. Two. ", "STOP ", "Three.", Stall()]])
    pieces = await all_of(rig.answers.answer(asking("Hi.", stop=("STOP",), speech=SPOKEN)))
    assert written(pieces).strip() == "One. Two." and pieces[-1].reason == "stop"
    assert "Three" not in " ".join(rig.clauses()) and rig.thinker.in_flight() == []


async def test_calls_and_their_results_keep_their_places_and_ids_are_our_own():
    rig = Rig(says=[[Use("weather", '{"city":"Paris"}', "call_1"), Use("weather", "{}", "call_1")]])
    pieces = await all_of(rig.answers.answer(asking("Weather?", tools=TOOLS)))
    calls = [piece for piece in pieces if isinstance(piece, CallPiece)]
    assert [(call.name, call.arguments) for call in calls] == [
        ("weather", '{"city":"Paris"}'),
        ("weather", "{}"),
    ]
    assert len({call.call_id for call in calls}) == 2 and pieces[-1].reason == "tool_calls"
    called = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    history = (
        Message("user", (TextPart("Weather?"),)),
        Message("assistant", (), (called,)),
        Message("tool", (TextPart("Sunny."),), tool_call_id="c"),
    )
    await all_of(rig.answers.answer(ChatRequest(history)))
    assert rig.thought().messages[1:] == [
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "content": "Sunny.", "tool_call_id": "c"},
    ]


async def test_hanging_up_aborts_both_engines_and_gives_the_place_back():
    rig = Rig(says=[["One two three. ", Stall()]], most=1)
    pieces = rig.answers.answer(asking("Hi.", speech=SPOKEN))
    await anext(pieces)
    with pytest.raises(BusyError):
        await all_of(rig.answers.answer(asking("Me too.")))
    await pieces.aclose()
    assert rig.thinker.in_flight() == [] and rig.talker.in_flight() == []
    assert rig.thinker.aborted and rig.talker.aborted
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("answer")]
    async with rig.places.taken():
        pass


async def test_cancelling_while_nothing_comes_aborts_too():
    rig = Rig(says=[[Stall()]])
    waiting = asyncio.ensure_future(all_of(rig.answers.answer(asking("Hi.", speech=SPOKEN))))
    await until(lambda: bool(rig.thinker.in_flight()))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert rig.thinker.in_flight() == [] and rig.talker.in_flight() == []


BUSY = Fail("busy", retryable=True)
SAYS_NOTHING_THEN_WORDS = ([BUSY], "Here.")
HALF_THEN_WHOLE = (["Well. ", BUSY], "Well. Here.")


@pytest.mark.parametrize(
    ("says", "request_", "told"),
    [
        (SAYS_NOTHING_THEN_WORDS, {}, "Here."),
        (SAYS_NOTHING_THEN_WORDS, {"streamed": False, "speech": WHOLE}, "Here."),
        (HALF_THEN_WHOLE, {"streamed": False}, "Well. Here."),
        (HALF_THEN_WHOLE, {"streamed": False, "speech": WHOLE}, "Well. Here."),
        (
            HALF_THEN_WHOLE,
            {"temperature": 0.0},
            "Well. Here.",
        ),  # the same words again: only new ones are told
        (HALF_THEN_WHOLE, {"temperature": 0.7}, None),
        ((["Well.", Use("weather"), BUSY], "Well."), {"temperature": 0.0, "tools": TOOLS}, None),
        (([Die()],), {}, None),  # no engine comes up again
        (([BUSY],), {"streamed": False}, None),  # twice is enough
    ],
)
async def test_a_reply_is_made_once_more_if_nothing_given_out_would_differ(
    says: Sequence[Sequence[Step] | str], request_: dict[str, Any], told: str | None
):
    rig = Rig(says=says)
    answer = rig.answers.answer(asking("Hi.", **request_))
    if told is None:
        with pytest.raises(EngineError):
            await all_of(answer)
        return
    pieces = await all_of(answer)
    assert written(pieces) == told and len(rig.thinker.of_kind(Think)) == 2
    sounds = [piece for piece in pieces if isinstance(piece, SoundPiece)]
    assert len(sounds) == (1 if "speech" in request_ else 0)


async def test_what_was_written_before_the_thinker_failed_is_given_out_as_sound_and_then_the_error():
    rig = Rig(says=[["The mill near the river is closed. So ", BUSY], "Well."])
    pieces = list[ReplyPiece]()
    with pytest.raises(EngineError, match="scripted"):
        async with aclosing(rig.answers.answer(asking("Hi.", speech=SPOKEN, temperature=0.7))) as answer:
            async for piece in answer:
                pieces.append(piece)
    assert len(sound_of(pieces)) == pytest.approx(2 * WIRE_RATE_HZ * 8 * 0.2, rel=0.02)
    assert len(rig.thinker.of_kind(Think)) == 1


@dataclass(frozen=True)
class DiesOnce:
    """A voice whose process ends in its first reply after so many words."""

    words: int

    def rig(self) -> Rig:
        rig, failed = Rig(voice=Voice(word_ms=500)), list[str]()
        plain = rig.talker._word  # pyright: ignore[reportPrivateUsage]

        def once(request: Speak, word: Any, first_sample: int) -> Any:
            if not failed and first_sample >= self.words * 11_025:
                failed.append(request.request_id)
                rig.talker._streams[request.request_id].give(None)  # pyright: ignore[reportPrivateUsage]
            return plain(request, word, first_sample)

        rig.talker._word = once  # pyright: ignore[reportPrivateUsage]
        return rig


@pytest.mark.parametrize(
    ("words", "wish", "again"), [(0, SPOKEN, True), (2, WHOLE, True), (1, SPOKEN, False)]
)
async def test_a_text_is_said_once_more_if_none_of_its_sound_was_given_out(
    words: int, wish: SpeechWish, again: bool
):
    rig = DiesOnce(words).rig()
    saying = rig.answers.say(SpeechRequest("One two. Three four.", wish))
    if not again:
        with pytest.raises(EngineError):
            await all_of(saying)
        return
    pieces = await all_of(saying)
    sound = sound_of(pieces)[44 if wish is WHOLE else 0 :]
    assert len(sound) == pytest.approx(4 * WIRE_RATE_HZ, abs=4) and len(rig.talker.of_kind(Speak)) == 2


async def test_a_slow_reader_misses_nothing():
    rig = Rig(says=["word " * 60 + "."], voice=Voice(word_ms=100))
    pieces = list[ReplyPiece]()
    async with aclosing(rig.answers.answer(asking("Hi.", speech=SPOKEN))) as answer:
        async for piece in answer:
            pieces.append(piece)
            await asyncio.sleep(0.002)
    assert len(sound_of(pieces)) == pytest.approx(2 * WIRE_RATE_HZ * 6, abs=4)


async def test_a_text_is_said_with_voice_and_speed():
    rig = Rig(voice=Voice(word_ms=500))
    wish = SpeechWish("joe", "pcm16", latency_first=False, streamed=True, speed=2.0)
    pieces = await all_of(rig.answers.say(SpeechRequest("One two. Three four.", wish)))
    assert (rig.spoke().voice, rig.spoke().speed, rig.spoke().latency_first) == ("joe", 2.0, False)
    assert len(sound_of(pieces)) == pytest.approx(2 * WIRE_RATE_HZ, abs=4)
    assert rig.thinker.requests == [] and isinstance(pieces[-1], Ended)


async def test_a_text_the_voice_does_not_speak_is_refused_and_one_without_words_is_silence():
    with pytest.raises(RemoteProtocolError) as caught:
        await all_of(Rig().answers.say(SpeechRequest("안녕하세요", WHOLE)))
    assert (caught.value.code, caught.value.param) == ("unsupported_language", "input")
    pieces = await all_of(Rig().answers.say(SpeechRequest("... 🙂", WHOLE)))
    assert len(np.frombuffer(sound_of(pieces)[44:], "<i2")) == 0
