"""A one-word command told from a sound of listening by the odds of its first word."""

import numpy as np

from voice_agent.models.first_word import COMMANDS, LISTENING, command_in, first_words

TOKENS = {
    word: number
    for number, word in enumerate(sorted({w for ws in COMMANDS.values() for w in ws} | set(LISTENING)))
}
WORDS = first_words(
    lambda text: TOKENS[text.strip() if text.strip() in TOKENS else text.strip().capitalize()]
)


def logits(**likely: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    made = np.full(len(TOKENS) + 100, -20.0, np.float32)
    for word, value in likely.items():
        made[TOKENS[word]] = value
    return made


def test_a_command_is_named_with_all_ways_to_write_it_counted_together() -> None:
    assert command_in(logits(Now=-2.1, No=-2.6, Okay=-2.4), WORDS) == "No."
    assert command_in(logits(Stop=-0.9, I=-5.0), WORDS) == "Stop."


def test_a_sound_of_listening_or_a_cough_is_no_command() -> None:
    assert command_in(logits(Yeah=-0.5, No=-6.0), WORDS) is None
    assert command_in(logits(I=-2.9, No=-5.0), WORDS) is None


def test_even_odds_are_no_command() -> None:
    assert command_in(logits(No=-2.0, Okay=-2.0), WORDS) is None
