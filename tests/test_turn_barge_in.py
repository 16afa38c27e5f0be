"""Hold early, decide as soon as the evidence allows."""

import pytest

from voice_agent.turn.barge_in import BargeInRules, Evidence, Verdict, decide, should_hold
from voice_agent.turn.loudness import Loudness
from voice_agent.turn.wording import is_backchannel, is_open_ended, is_whole_question

RULES = BargeInRules(
    hold_ms=150,
    verdict_ms=600,
    surely_speech_ms=700,
    surely_not_listening_ms=1050,
    words_ms=900,
    longest_backchannel_ms=450,
    aside_db=9,
    settle_ms=250,
)


@pytest.mark.parametrize(("speech_ms", "held"), [(0, False), (149, False), (150, True), (900, True)])
def test_hold_after_so_much_speech(speech_ms: float, held: bool) -> None:
    assert should_hold(speech_ms, RULES) is held


@pytest.mark.parametrize(("quiet_db", "held"), [(-15, False), (-9, False), (-8, True), (0, True)])
def test_more_of_the_quiet_talk_that_was_ignored_holds_nothing(quiet_db: float, held: bool) -> None:
    assert should_hold(300, RULES, quiet_db) is held


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        (Evidence(200, 50, True), None),
        (Evidence(300, 300, False), None),
        (Evidence(700, 550, True), None),  # no word is known: it may be a cough
        (Evidence(1050, 900, True), Verdict.INTERRUPT),
        (Evidence(700, 550, True, None, first_words="What"), Verdict.INTERRUPT),
        (Evidence(500, 600, True, None, first_words="What"), Verdict.INTERRUPT),
        (Evidence(500, 600, True), None),
        (Evidence(300, 600, False), None),  # silent again: its words are about to be known
        (Evidence(300, 900, False), Verdict.BACKCHANNEL),
        (Evidence(451, 900, False), Verdict.INTERRUPT),
        (Evidence(640, 601, False, None, first_words="interest"), None),  # "interesting" is nearly there
        (Evidence(640, 700, False, "Interesting.", 0, 450), Verdict.BACKCHANNEL),
        (Evidence(300, 200, False, "stop please"), Verdict.INTERRUPT),
        (Evidence(300, 200, False, "Mm-hmm.", 0, 100), None),  # "mm-hmm, but ..." begins like this
        (Evidence(300, 350, False, "Mm-hmm.", 0, 250), Verdict.BACKCHANNEL),
        (Evidence(300, 600, False, "Mm-hmm.", 0, 100), Verdict.BACKCHANNEL),
        (Evidence(300, 200, False, ""), None),  # no words yet: the user may go on
        (Evidence(500, 600, False, ""), Verdict.BACKCHANNEL),
        (Evidence(900, 600, False, ""), Verdict.BACKCHANNEL),  # a laugh, a cough
        (
            Evidence(736, 784, False, "", first_words="Off"),
            Verdict.BACKCHANNEL,
        ),  # the whole has no word after all
        (Evidence(900, 300, True, None, -12), None),
        (Evidence(900, 600, True, None, -12), Verdict.BACKCHANNEL),
        (Evidence(500, 300, False, "stop that", -12, 250), Verdict.BACKCHANNEL),
        (Evidence(256, 300, False, "okay", -9, 150), None),  # "okay, please stop"
        (Evidence(900, 300, True, None, -6, first_words="Please"), Verdict.INTERRUPT),
        (Evidence(800, 650, True, None, first_words="Oh,"), None),  # "oh, I see" goes on
        (Evidence(1050, 900, True, None, first_words="Oh,"), Verdict.INTERRUPT),
        (
            Evidence(640, 610, False, None, first_words="Yeah, yeah"),
            None,
        ),  # all its words are about to be known
        (Evidence(640, 900, False, None, first_words="Yeah, yeah"), Verdict.BACKCHANNEL),
        (Evidence(704, 597, True, None, first_words="Oh, no."), None),  # "oh, nice" is nearly there
        (Evidence(704, 597, True, None, first_words="No, oh."), Verdict.INTERRUPT),
        (Evidence(640, 700, False, "Okay, stop.", first_words="Okay, st"), Verdict.INTERRUPT),
        (Evidence(800, 610, True, None, first_words="What time"), Verdict.INTERRUPT),
        (Evidence(600, 610, True, None, first_words=""), None),
        (Evidence(600, 500, False, "Okay but", first_words="Okay"), Verdict.INTERRUPT),
    ],
)
def test_verdict(evidence: Evidence, verdict: Verdict | None) -> None:
    assert decide(evidence, RULES) is verdict


@pytest.mark.parametrize("text", ["mm-hmm", "Yeah.", "Okay, right.", "Uh-huh", "I see.", "네", "응, 그래요"])
def test_sounds_of_listening(text: str) -> None:
    assert is_backchannel(text)


@pytest.mark.parametrize(
    "text",
    ["stop", "wait a minute", "yeah but no", "what?", "right?", "no", "I", "okay stop talking now", ""],
)
def test_words_that_mean_something(text: str) -> None:
    assert not is_backchannel(text)


@pytest.mark.parametrize(
    "text",
    [
        "I would like to go to Paris and",
        "my number is four one five",
        "My phone number is 415-26",
        "it's spelled S M I",
        "one two three",
        "the code is 4",
        "그리고",
        "well, um",
        "I would like to know.",
        "Can you tell me?",
        "Could you please?",
        "Do you know?",
        "Remind me to call.",
        "I think that",
        "So,",
        "Well.",
        "The thing is.",
        "If it rains tomorrow.",
        "When I get home.",
        "My email is John.",
        "That is spelled K.",
        "You can reach me at 555.",
    ],
)
def test_open_ended(text: str) -> None:
    assert is_open_ended(text)


@pytest.mark.parametrize(
    "text",
    [
        "What is the capital of France?",
        "my number is 415 267 1109",
        "I have two",
        "Tell me a story.",
        "",
        "Where is it from?",
        "Hello!",
        "I am ten",
        "Hang on.",
        "Sorry, I did not catch that.",
        "Can you help me?",
        "I know.",
        "Do you know the way?",
        "If it rains tomorrow, I will stay at home.",
        "My email is john@example.com",
        "My email is john dot miller at example.com.",
        "Tell me a joke.",
        "When is Christmas",
        "What is the thing",
    ],
)
def test_closed(text: str) -> None:
    assert not is_open_ended(text)


def test_loudness_is_relative_to_what_the_user_is_usually_like() -> None:
    loudness = Loudness()
    loudness.voiced(-30)
    assert loudness.relative_db == 0  # nothing is known yet
    loudness.learn()
    loudness.begin()
    assert loudness.relative_db == 0
    loudness.voiced(-42)
    assert loudness.relative_db == pytest.approx(-12)
    for _ in range(20):
        loudness.begin()
        loudness.voiced(-20)
        loudness.learn()
    assert loudness.relative_db == pytest.approx(0, abs=0.2)


@pytest.mark.parametrize("text", ["Okay?", "Really?", "Oh, really?", "Interesting."])
def test_surprise_is_a_sound_of_listening_too(text: str) -> None:
    assert is_backchannel(text)


@pytest.mark.parametrize(
    "text",
    [
        "Is it better to run in the morning or in the evening?",
        "What is the capital of France?",
    ],
)
def test_a_whole_question_waits_for_nothing_more(text: str) -> None:
    assert is_whole_question(text)


@pytest.mark.parametrize(
    "text", ["You know?", "Can you tell me?", "How long does it take to?", "Tell me about Rome."]
)
def test_what_is_no_whole_question(text: str) -> None:
    assert not is_whole_question(text)


def test_who_speaks_up_after_long_quiet_talk_is_heard() -> None:
    loudness = Loudness()
    loudness.voiced(-30)
    loudness.learn()
    loudness.begin()
    for _ in range(200):
        loudness.voiced(-45)
    assert loudness.relative_db == -15
    for _ in range(12):  # 384 ms
        loudness.voiced(-30)
    assert -9 < loudness.relative_db < 0
