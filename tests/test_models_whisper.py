from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model_weights import to_model_rate, weights, words_of
from voice_agent.audio import MODEL_RATE_HZ, Samples, silence
from voice_agent.engine.runtime import RecognizerOptions, TalkerOptions
from voice_agent.errors import WeightsError
from voice_agent.models import piper, whisper
from voice_agent.models.whisper import Heard, is_speech, repeated

# --- guards -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("What time is it? What time is it?", "What time is it?"),
        ("Can you hear me? can you hear me. Can you", "Can you hear me?"),
        ("Go to bed, go to bed, go to bed", "Go to bed,"),
        ("Yes. Yes. Yes. Yes. Yes.", "Yes."),
        ("No, no.", None),
        ("Very good, very good.", None),
        ("one two three one two", None),
        ("What time is it? What time is it in Rome?", None),
        ("Well, what time is it? What time is it?", None),
        ("", None),
        ("Hello", None),
    ],
)
def test_a_text_that_says_itself_again_is_noticed(text: str, unit: str | None) -> None:
    assert repeated(text) == unit


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=3, max_size=8), st.integers(2, 5), st.data())
def test_any_loop_is_cut_to_something_that_loops(unit: list[str], times: int, data: st.DataObject) -> None:
    rest = data.draw(st.integers(0, len(unit) - 1))
    looped = unit * times + unit[:rest]
    found = repeated(" ".join(looped))
    assert found is not None
    words = found.split()
    assert len(words) <= len(unit)
    assert (words * len(looped))[: len(looped)] == looped


@pytest.mark.parametrize(
    ("heard", "speech"),
    [
        (Heard("Hello.", "en", -0.3, 0.05), True),
        (Heard("Hello.", "en", -2.0, 0.2), True),  # mumbled, but surely a voice
        (Heard("you", "en", -1.5, 0.99), False),
        (Heard("Thank you.", "en", -0.2, 0.8), False),
        (Heard("Okay", "en", -2.5, 0.5), False),
        (Heard("...", "en", -0.1, 0.0), False),
        (Heard("", "en", 0.0, 0.0), False),
    ],
)
def test_noise_is_told_from_speech(heard: Heard, speech: bool) -> None:
    assert is_speech(heard) == speech


@pytest.mark.parametrize(
    ("heard", "speech"),
    [
        (Heard("Yeah.", "en", -0.9, 0.77), True),  # measured, like all of these
        (Heard("Stop.", "en", -1.06, 0.48), True),
        (Heard("Che", "en", -3.42, 0.32), False),  # "Sure.", not understood
        (Heard("I'll...", "en", -1.59, 0.53), False),  # "Oh."
        (Heard("I'm sorry.", "en", -2.11, 0.76), False),  # a long breath
        (Heard("I'm", "en", -2.65, 0.9), False),
        (Heard("uh uh uh uh uh uh", "en", -0.78, 0.78), False),
    ],
)
def test_a_word_said_alone_is_told_from_a_cough(heard: Heard, speech: bool) -> None:
    assert is_speech(heard, alone=True) is speech


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"model\.bin"):
        whisper.load(tmp_path, RecognizerOptions("whisper", ""))
    (tmp_path / "model.bin").write_bytes(b"no model" * 99)
    for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(WeightsError, match="cannot be loaded"):
        whisper.load(tmp_path, RecognizerOptions("whisper", ""))


# --- the model --------------------------------------------------------------------------------------------------

TIME = np.arange(2 * MODEL_RATE_HZ) / MODEL_RATE_HZ
RANDOM = np.random.default_rng(0)


@pytest.fixture(scope="module")
def tiny() -> Iterator[whisper.Whisper]:
    yield whisper.load(weights("whisper-tiny.en"), RecognizerOptions("whisper", "", threads=2))


@pytest.fixture(scope="module")
def joe() -> Iterator[piper.Piper]:
    yield piper.load(weights("piper-joe"), TalkerOptions("piper", "", threads=2))


def say(joe: piper.Piper, text: str, speed: float = 1.0) -> Samples:
    """Speech with the quiet before and behind it that a VAD leaves."""
    latents = joe.encode(words_of(text), "", speed, 0)
    sound = to_model_rate(joe.decode(latents, 0, latents.frames), joe.rate_hz)
    return np.concatenate([silence(3_200), sound, silence(4_800)])


@pytest.mark.weights
@pytest.mark.parametrize(
    "text",
    [
        "What is the capital of France?",
        "Can you hear me now?",
        "Turn off the lights in the kitchen.",
        "Do you know a good joke about computers?",
        "Wait, I have another question.",
        "Yes.",
    ],
)
def test_a_sentence_is_heard_once(tiny: whisper.Whisper, joe: piper.Piper, text: str) -> None:
    for speed in (0.9, 1.2):  # these were said twice or more with a short mel alone
        heard, language = tiny.transcribe(say(joe, text, speed), None)
        assert (heard.lower().strip("."), language) == (text.lower().strip("."), "en")


@pytest.mark.weights
def test_a_sentence_that_was_said_twice_is_heard_twice(tiny: whisper.Whisper, joe: piper.Piper) -> None:
    heard, _ = tiny.transcribe(say(joe, "Can you hear me now? Can you hear me now?"), "en")
    assert heard.lower().count("hear me") == 2


@pytest.mark.weights
@pytest.mark.parametrize(
    "sound",
    [
        silence(0),
        silence(400),
        silence(2 * MODEL_RATE_HZ),
        RANDOM.normal(0, 2, 2 * MODEL_RATE_HZ),
        RANDOM.normal(0, 1_000, 2 * MODEL_RATE_HZ),
        RANDOM.normal(0, 3_000, MODEL_RATE_HZ // 5),
        1_500 * np.sin(2 * np.pi * 50 * TIME),
        5_000 * np.sin(2 * np.pi * 440 * TIME),
        9_000 * RANDOM.normal(0, 1, len(TIME)) * np.exp(-np.maximum(0, TIME - 0.3) / 0.06) * (TIME > 0.3),
    ],
    ids=["nothing", "25 ms", "zeros", "dither", "noise", "short noise", "hum", "beep", "bang"],
)
def test_what_is_no_speech_gives_no_words(tiny: whisper.Whisper, sound: np.ndarray) -> None:
    assert tiny.transcribe(np.clip(sound, -32_768, 32_767).astype(np.int16), None) == ("", "en")


@pytest.mark.weights
def test_what_lies_beyond_thirty_seconds_is_not_heard(tiny: whisper.Whisper, joe: piper.Piper) -> None:
    early, late = say(joe, "The door is open."), say(joe, "Bananas are yellow.")
    sound = np.concatenate([early, silence(30 * MODEL_RATE_HZ - len(early)), late])
    heard, _ = tiny.transcribe(sound, "en")
    assert "door" in heard.lower()
    assert "yellow" not in heard.lower()
