"""While the user still speaks the Thinker reads what was said so far; nobody hears of it."""

from tests.fakes import FakeEngine, Wait
from tests.test_session import STORY, Rig
from voice_agent.clock import ManualClock
from voice_agent.config import TurnConfig
from voice_agent.engine.messages import Think, Transcribe
from voice_agent.events import ReplyDone, TurnTranscribed
from voice_agent.session_settings import SessionSettings

AHEAD = TurnConfig(read_ahead_ms=900)


def words(think: Think) -> str:
    return str(think.messages[-1]["content"])


async def test_the_thinker_reads_the_words_so_far_while_the_user_goes_on() -> None:
    clock = ManualClock()
    hears = [[Wait(200), "What is the"], [Wait(200), "What is the capital of"], [Wait(200), "What is it?"]]
    recognizer = FakeEngine(clock, hears=hears)
    thinker = FakeEngine(clock, says=["So", "What", "It is a frog."])
    async with Rig(clock=clock, recognizer=recognizer, thinker=thinker, turn=AHEAD) as rig:
        await rig.say(2600)
        assert [words(t) for t in thinker.of_kind(Think)] == ["What is the", "What is the capital of"]
        assert {t.max_output_tokens for t in thinker.of_kind(Think)} == {1}
        assert rig.session.timeline()["in_flight"]["thinker"] == []  # pyright: ignore[reportIndexIssue]
        assert not rig.of(TurnTranscribed) and not rig.history
        await rig.wait(3000)
        assert [words(t) for t in thinker.of_kind(Think)][2:] == ["What is it?"]
        assert [e.text for e in rig.of(ReplyDone)] == ["It is a frog."]
        assert rig.history == [("user", "What is it?"), ("assistant", "It is a frog.")]


async def test_a_pause_comes_before_the_words_so_far() -> None:
    """The recognizer does one thing after the other: what it hears ahead is broken off for all the words."""
    clock = ManualClock()
    recognizer = FakeEngine(clock, hears=[[Wait(2_000), "What"], [Wait(100), "What is it?"]])
    async with Rig(clock=clock, recognizer=recognizer, turn=AHEAD) as rig:
        await rig.say(1000)
        await rig.wait(200)
        first, whole = recognizer.of_kind(Transcribe)
        assert recognizer.aborted == [first.request_id]
        assert len(whole.pcm) > len(first.pcm)
        await rig.wait(3000)
        assert len(rig.of(ReplyDone)) == 1


async def test_an_answer_comes_before_what_is_read_ahead_of_it() -> None:
    clock = ManualClock()
    recognizer = FakeEngine(clock, hears=["What is", "What is it?"])
    thinker = FakeEngine(clock, says=[[Wait(5_000), "So"], "It is a frog."])
    async with Rig(clock=clock, recognizer=recognizer, thinker=thinker, turn=AHEAD) as rig:
        await rig.say(1200)
        (reading,) = thinker.of_kind(Think)
        await rig.wait(3000)
        assert reading.request_id in thinker.aborted
        assert [e.text for e in rig.of(ReplyDone)] == ["It is a frog."]


async def test_nothing_is_read_ahead_of_speech_over_a_reply_or_where_it_is_off() -> None:
    clock = ManualClock()
    thinker = FakeEngine(clock, says=[STORY * 3])
    recognizer = FakeEngine(clock, hears=["Tell me a story.", "Stop, please."])
    async with Rig(clock=clock, thinker=thinker, recognizer=recognizer, turn=AHEAD) as rig:
        await rig.say(800)  # shorter than it takes
        await rig.wait(1500)
        await rig.say(600)
        assert [words(t) for t in thinker.of_kind(Think)] == ["Tell me a story."]
    off = FakeEngine(clock)
    async with Rig(clock=clock, recognizer=off, turn=TurnConfig(read_ahead_ms=0)) as rig:
        await rig.say(3000)
        assert not off.of_kind(Transcribe)


async def test_a_thinker_that_fails_ahead_is_asked_again_for_the_answer() -> None:
    clock = ManualClock()
    recognizer = FakeEngine(clock, hears=["What is", "What is it?"])
    thinker = FakeEngine(clock, says=["It is a frog."])
    thinker.dead = True
    async with Rig(clock=clock, recognizer=recognizer, thinker=thinker, turn=AHEAD) as rig:
        await rig.say(1200)
        thinker.dead = False
        await rig.wait(3000)
        assert [e.text for e in rig.of(ReplyDone)] == ["It is a frog."]


async def test_a_session_that_only_writes_down_reads_nothing_ahead() -> None:
    clock = ManualClock()
    recognizer, thinker = FakeEngine(clock), FakeEngine(clock)
    settings = SessionSettings(instructions="", voice="", answers=False, create_response=False)
    async with Rig(clock=clock, recognizer=recognizer, thinker=thinker, turn=AHEAD, settings=settings) as rig:
        await rig.say(3000)
        assert not recognizer.of_kind(Transcribe) and not thinker.of_kind(Think)
