"""One answer through the stages: what overlaps, what waits, what is urgent, and what an abort leaves behind."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import pytest

from tests.fakes import Fail, FakeEngine, Stall, Step, Voice, Wait
from voice_agent.audio import PcmChunk
from voice_agent.clock import NS_PER_MS, ManualClock
from voice_agent.engine.messages import (
    Finished,
    RowsRef,
    Speak,
    SpeakEnd,
    SpeakText,
    TextDelta,
    Think,
    ToolCall,
)
from voice_agent.errors import EngineError, EngineStalled
from voice_agent.speech.ask import Answer, Ask
from voice_agent.speech.cascade import Cascade
from voice_agent.speech.completion import ThinkResult
from voice_agent.speech.stopping import StopAware
from voice_agent.speech.thinker import EngineThinker
from voice_agent.speech.watermark import PassThrough


@dataclass
class Notes:
    """A sink that writes down what came, and when."""

    clock: ManualClock
    text_so_far: str = ""
    chunks: list[PcmChunk] = field(default_factory=list[PcmChunk])
    stamps_ms: dict[str, int] = field(default_factory=dict[str, int])
    silent: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    same_again: bool = True
    broken_ms: list[int] = field(default_factory=list[int])

    def text(self, delta: str) -> None:
        self.text_so_far += delta

    async def sound(self, pcm: PcmChunk) -> None:
        self.chunks.append(pcm)

    def tool_call(self, call: ToolCall) -> None:
        self.calls.append(call)

    def unspoken(self, start_char: int, end_char: int, language: str) -> None:
        self.silent.append((start_char, end_char, language))

    def stamp(self, stage: str) -> None:
        self.stamps_ms.setdefault(stage, self.clock.now_ns() // NS_PER_MS)

    def may_start_over(self) -> bool:
        return not self.chunks and self.same_again

    def breaks_off(self, error: EngineError) -> None:
        self.broken_ms.append(self.clock.now_ns() // NS_PER_MS)


@dataclass
class Rig:
    """A cascade between fake engines."""

    says: Sequence[Step]
    voice: Voice = field(default_factory=Voice)
    languages: tuple[str, ...] = ()
    overlap: bool = True
    by_word: bool = False
    same_again: bool = True  # whether a second run would write the same words

    async def run(self, for_ms: int = 20_000) -> Answer:
        self.clock = ManualClock()
        self.thinker = FakeEngine(self.clock, says=[self.says])
        self.talker = FakeEngine(self.clock, voice=self.voice)
        self.notes = Notes(self.clock, same_again=self.same_again)
        self.cascade = Cascade(
            EngineThinker(self.thinker), self.talker, PassThrough, self.clock, lambda: self.languages, 5,
            lambda: self.by_word,
        )  # fmt: skip
        ask = Ask("r", Think("r", 0, [{"role": "user", "content": "?"}]), Speak("r", 0, ""), self.overlap)
        task = asyncio.create_task(self.cascade.run(ask, self.notes))
        for _ in range(for_ms // 50):
            await self.clock.advance_ms(50)
            if task.done():
                return task.result()
        task.cancel()
        await asyncio.wait({task})
        return Answer("cut", {})

    @property
    def clauses(self) -> list[str]:
        pushed = [m for m in self.talker.pushed if isinstance(m, SpeakText)]
        return [" ".join(word.text for word in message.words) for message in pushed]


SLOW = [
    "The old mill ",
    Wait(400),
    "near the river, ",
    Wait(400),
    "has a big wheel. ",
    Wait(400),
    "It turns.",
]


async def test_speech_begins_while_the_thinker_still_writes() -> None:
    rig = Rig(SLOW)
    await rig.run()
    assert rig.notes.stamps_ms["talker"] < 700
    assert rig.notes.text_so_far == "The old mill near the river, has a big wheel. It turns."
    assert " ".join(rig.clauses).split() == rig.notes.text_so_far.split()


async def test_a_voice_that_takes_text_as_it_comes_gets_each_word_with_the_next() -> None:
    words = [step for word in "The old mill near the river turns".split() for step in (word + " ", Wait(100))]
    rig, clauses = Rig(words, by_word=True), Rig(words)
    await rig.run()
    await clauses.run()
    assert rig.clauses == ["The", "old", "mill", "near", "the", "river", "turns"]
    assert rig.notes.stamps_ms["clause"] == 100
    assert clauses.notes.stamps_ms["clause"] >= 300
    together = Rig(["The old mill near the river, ", "turns at 5 p.m. or so."], by_word=True)
    await together.run()
    assert together.clauses == ["The old mill near the", "river, turns at five PM or", "so."]


async def test_without_overlap_each_stage_waits_for_the_end_of_the_one_before() -> None:
    rig = Rig(SLOW, overlap=False)
    await rig.run()
    assert rig.notes.stamps_ms["clause"] >= 1200
    assert rig.notes.stamps_ms["talker"] >= rig.notes.stamps_ms["clause"]


async def test_when_sound_runs_out_the_next_words_leave_before_their_clause_is_whole() -> None:
    words = [
        step
        for word in "one two three four five six seven eight nine ten".split()
        for step in (word + " ", Wait(150))
    ]
    rig = Rig(["Well I see, ", *words], voice=Voice(word_ms=120))
    await rig.run()
    assert len(rig.clauses) >= 3
    assert " ".join(rig.clauses).split() == rig.notes.text_so_far.split()


async def test_a_clause_in_a_language_the_voice_has_not_is_marked_and_not_sent() -> None:
    rig = Rig(["Hello there my friend. ", "안녕하세요 반갑습니다. ", "That was Korean."], languages=("en",))
    answer = await rig.run()
    assert answer.reason == "stop"
    ((start, end, language),) = rig.notes.silent
    assert language == "ko" and "안녕하세요" in rig.notes.text_so_far[start:end]
    assert not any("안녕" in clause for clause in rig.clauses)


async def test_each_clause_takes_the_hidden_rows_since_the_one_before() -> None:
    """Whatever clauses the pieces make: no row is told twice, and none that came before a clause is left out."""

    class Stateful:
        async def stream(self, request: Think) -> AsyncGenerator[ThinkResult, None]:
            pieces = ["Good ", "morning to you all. ", "It is ", "raining, ", "and it is cold outside. "]
            for number, piece in enumerate(pieces):
                yield TextDelta(
                    request.request_id, request.epoch, piece, RowsRef(3, 2 * number, 2 * number + 2)
                )
            yield Finished(request.request_id, request.epoch)

    clock = ManualClock()
    talker, notes = FakeEngine(clock, voice=Voice()), Notes(clock)
    cascade = Cascade(StopAware(Stateful()), talker, PassThrough, clock, lambda: (), 5)
    task = asyncio.create_task(cascade.run(Ask("r", Think("r", 0, []), Speak("r", 0, "")), notes))
    for _ in range(200):
        await clock.advance_ms(50)
    assert task.done() and task.result().reason == "stop"
    told = [message.rows for message in talker.pushed if isinstance(message, SpeakText) and message.rows]
    assert len(told) >= 2 and {rows.key for rows in told} == {3}
    assert [rows.first_row for rows in told] == [0, *(rows.end_row for rows in told[:-1])]
    assert told[-1].end_row == 10


async def test_words_of_all_clauses_point_into_the_written_text() -> None:
    rig = Rig(["It costs $5.50 today, ", "which is **not** much."])
    await rig.run()
    words = [rig.notes.text_so_far[w.start_char : w.end_char] for c in rig.notes.chunks for w in c.words]
    assert words == ["It", "costs", "$5.50", "today", "which", "is", "not", "much"]


@pytest.mark.parametrize("final", [True, False])
async def test_a_clause_that_cannot_be_spoken_fails_the_reply_only_if_the_engine_says_so(final: bool) -> None:
    rig = Rig(["Hello."], voice=Voice(steps=[Fail("model_error", final=final)]))
    if final:
        with pytest.raises(EngineError):
            await rig.run()
        assert not rig.thinker.in_flight() and not rig.talker.in_flight()
    else:
        assert (await rig.run()).reason == "stop"


async def test_a_stalled_thinker_is_given_up_and_the_talker_is_aborted() -> None:
    rig = Rig(["Well, ", Stall()])
    with pytest.raises(EngineStalled):
        await rig.run()
    assert not rig.talker.in_flight() and rig.cascade.thinking() == []


async def test_cancelling_aborts_both_engines() -> None:
    rig = Rig(["Well, ", Stall()])
    assert (await rig.run(for_ms=1000)).reason == "cut"
    assert rig.thinker.aborted == ["r"] and rig.talker.aborted == ["r"]
    assert not rig.thinker.in_flight() and not rig.talker.in_flight()


BREAKS_OFF = ["The old mill near the river, ", "has a big ", Wait(600), Fail("engine_died", retryable=True)]


async def test_what_was_written_is_spoken_when_the_thinker_fails() -> None:
    rig = Rig(BREAKS_OFF)
    with pytest.raises(EngineError, match="scripted"):
        await rig.run()
    assert rig.clauses == ["The old mill near the river,", "has a big"]
    spoken = [word.end_char for chunk in rig.notes.chunks for word in chunk.words]
    assert spoken[-1] == len("The old mill near the river, has a big")
    assert rig.notes.broken_ms == [600]
    assert isinstance(rig.talker.pushed[-1], SpeakEnd)
    assert rig.talker.aborted == []


async def test_a_thinker_that_fails_before_the_talker_was_fed_ends_it_at_once() -> None:
    rig = Rig(["The ", Wait(100), Fail("engine_died")])
    with pytest.raises(EngineError, match="scripted"):
        await rig.run()
    assert rig.notes.broken_ms == []
    assert rig.clauses == []


@pytest.mark.parametrize(
    ("retryable", "same_again", "spoken"), [(True, True, False), (True, False, True), (False, True, True)]
)
async def test_what_can_be_made_good_is_not_spoken_to_its_end(
    retryable: bool, same_again: bool, spoken: bool
) -> None:
    slow = Voice(clause_wait_ms=2_000)  # nothing is played yet when the Thinker fails
    rig = Rig([*BREAKS_OFF[:-1], Fail("engine_died", retryable=retryable)], slow, same_again=same_again)
    with pytest.raises(EngineError, match="scripted"):
        await rig.run()
    assert bool(rig.notes.chunks) is spoken
    assert bool(rig.notes.broken_ms) is spoken


async def test_a_talker_that_fails_while_the_rest_is_spoken_says_so() -> None:
    rig = Rig(BREAKS_OFF, Voice(steps=[Wait(1_000), Fail("voice_gone")]), same_again=False)
    with pytest.raises(EngineError) as failed:
        await rig.run()
    assert failed.value.code == "voice_gone"


async def test_without_overlap_nothing_was_fed_yet() -> None:
    rig = Rig(BREAKS_OFF, overlap=False)
    with pytest.raises(EngineError, match="scripted"):
        await rig.run()
    assert rig.notes.chunks == []
