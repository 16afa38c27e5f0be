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
    longest_backchannel_ms=450,
    aside_db=9,
    settle_ms=250,
)


@pytest.mark.parametrize(("speech_ms", "held"), [(0, False), (149, False), (150, True), (900, True)])
def test_hold_after_so_much_speech(speech_ms: float, held: bool) -> None:
    assert should_hold(speech_ms, RULES) is held


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        (Evidence(200, 50, True), None),
        (Evidence(300, 300, False), None),
        (Evidence(700, 550, True), Verdict.INTERRUPT),
        (Evidence(300, 600, False), Verdict.BACKCHANNEL),
        (Evidence(500, 600, True), Verdict.INTERRUPT),
        (Evidence(451, 600, False), Verdict.INTERRUPT),
        (Evidence(300, 200, False, "stop please"), Verdict.INTERRUPT),
        (Evidence(300, 200, False, "Mm-hmm.", 0, 100), None),  # "mm-hmm, but ..." begins like this
        (Evidence(300, 350, False, "Mm-hmm.", 0, 250), Verdict.BACKCHANNEL),
        (Evidence(300, 600, False, "Mm-hmm.", 0, 100), Verdict.BACKCHANNEL),
        (Evidence(300, 200, False, ""), None),  # no words yet: the user may go on
        (Evidence(500, 600, False, ""), Verdict.BACKCHANNEL),
        (Evidence(900, 300, True, None, -12), None),
        (Evidence(900, 600, True, None, -12), Verdict.BACKCHANNEL),
        (Evidence(500, 300, False, "stop that", -12, 250), Verdict.BACKCHANNEL),
        (Evidence(256, 300, False, "okay", -9, 150), None),  # "okay, please stop"
        (Evidence(900, 300, True, None, -6), Verdict.INTERRUPT),
        (Evidence(800, 650, True, None, first_words="Oh,"), None),  # "oh, I see" goes on
        (Evidence(1050, 900, True, None, first_words="Oh,"), Verdict.INTERRUPT),
        (Evidence(640, 610, False, None, first_words="Yeah, yeah"), Verdict.BACKCHANNEL),
        (
            Evidence(640, 500, False, None, first_words="Yeah, yeah"),
            None,
        ),  # all its words are about to be known
        (Evidence(800, 610, True, None, first_words="What time"), Verdict.INTERRUPT),
        (Evidence(600, 610, True, None, first_words=""), Verdict.INTERRUPT),
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
