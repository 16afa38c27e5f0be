"""Kokoro's family around a graph of the same shape: voices, styles by length, word times, windows, faults.

The graph gives 600 samples a symbol at the level of the style, so that what it was asked can be heard. The real weights
are an option that is not fetched for tests; with them in the cache the last test speaks and is understood.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.model_weights import to_model_rate, weights, words_of, words_wrong
from voice_agent.engine.runtime import RecognizerOptions, TalkerOptions
from voice_agent.errors import EngineError, UnsupportedLanguage, WeightsError
from voice_agent.models import kokoro, phonemes, whisper

PER_SYMBOL = 600


def graph() -> onnx.ModelProto:
    """audio[600 * (symbols + 2)] = the style's first number, unless the speed halves or doubles it."""
    make: Any = helper.make_node
    number: Any = helper.make_tensor
    nodes = [
        make("Shape", ["tokens"], ["shape"]),
        make("Gather", ["shape", "one"], ["symbols"], axis=0),
        make("Cast", ["symbols"], ["symbols_float"], to=TensorProto.FLOAT),
        make("Mul", ["symbols_float", "each"], ["length_float"]),
        make("Div", ["length_float", "speed"], ["length_at_speed"]),
        make("Cast", ["length_at_speed"], ["length"], to=TensorProto.INT64),
        make("Gather", ["style", "zero"], ["first_style"], axis=1),
        make("Reshape", ["first_style", "minus_one"], ["level"]),
        make("Expand", ["level", "length"], ["audio"]),
    ]
    constants = [
        number("one", TensorProto.INT64, [1], [1]),
        number("zero", TensorProto.INT64, [1], [0]),
        number("minus_one", TensorProto.INT64, [1], [-1]),
        number("each", TensorProto.FLOAT, [1], [float(PER_SYMBOL)]),
    ]
    value: Any = helper.make_tensor_value_info
    built = helper.make_graph(
        nodes,
        "kokoro",
        [
            value("tokens", TensorProto.INT64, [1, "n"]),
            value("style", TensorProto.FLOAT, [1, 256]),
            value("speed", TensorProto.FLOAT, [1]),
        ],
        [value("audio", TensorProto.FLOAT, ["t"])],
        constants,
    )
    return helper.make_model(built, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two voices: the style for n symbols is (n + 1) / 1000, of the second one negative."""
    home = tmp_path_factory.mktemp("kokoro")
    onnx.save(graph(), home / "tiny.onnx")
    levels = np.arange(1, 511, dtype="<f4")[:, None, None] / 1000
    for name, sign in (("af_heart", 1), ("am_adam", -1)):
        np.broadcast_to(sign * levels, kokoro.STYLES).astype("<f4").tofile(home / f"{name}.bin")
    return home


@pytest.fixture(scope="module")
def model(folder: Path) -> kokoro.Kokoro:
    return kokoro.load(folder, TalkerOptions("kokoro", ""))


def symbols_of(text: str) -> int:
    spoken = [part for part in phonemes.phonemize(list[str](text.split()), "misaki") if part]
    return len(" ".join(spoken))


def test_every_symbol_has_a_number_of_its_own():
    assert len(kokoro.SYMBOLS) == 114 == len(set(kokoro.SYMBOLS.values()))
    assert (kokoro.SYMBOLS[";"], kokoro.SYMBOLS[" "], kokoro.SYMBOLS["ˈ"], kokoro.SYMBOLS["ᵻ"]) == (
        1,
        16,
        156,
        177,
    )


def test_the_lexicon_writes_only_symbols_the_model_knows():
    text = "Hello there, twenty two voices of the weather in Zorblax are heard; judge, measure, thought, boy!"
    spoken = "".join(phonemes.phonemize(list[str](text.split()), "misaki"))
    assert set(spoken) <= set(kokoro.SYMBOLS), set(spoken) - set(kokoro.SYMBOLS)


def test_a_clause_is_spoken_with_the_style_of_its_length(model: kokoro.Kokoro):
    text = "Hello there, world!"
    latents = model.encode(words_of(text), "", 1.0, 0)
    sound = model.decode(latents, 0, latents.frames)
    count = symbols_of(text)
    assert len(sound) == -(-PER_SYMBOL * (count + 2) // 240) * 240
    assert sound[len(sound) // 2] == round((count + 1) / 1000 * 32767)
    other = model.encode(words_of(text), "am_adam", 2.0, 0)
    assert other.frames == pytest.approx(latents.frames / 2, abs=1)
    assert model.decode(other, 0, 1)[0] < 0


def test_words_are_spread_over_the_sound_in_order_and_windows_join(model: kokoro.Kokoro):
    words = words_of("Extraordinarily I agree ... today.")
    latents = model.encode(words, "", 1.0, 0)
    timed = latents.words
    assert [(word.start_char, word.end_char) for word in timed] == [(w.start_char, w.end_char) for w in words]
    assert timed[0].first_frame == 0 and 0.9 * latents.frames < timed[-1].end_frame <= latents.frames
    assert all(a.end_frame <= b.first_frame for a, b in zip(timed, timed[1:], strict=False))
    assert timed[0].end_frame > timed[1].end_frame - timed[1].first_frame
    assert timed[3].first_frame == timed[3].end_frame and not timed[0].exact
    whole = model.decode(latents, 0, latents.frames)
    pieces = [model.decode(latents, at, min(7, latents.frames - at)) for at in range(0, latents.frames, 7)]
    assert np.array_equal(np.concatenate(pieces), whole)


def test_a_clause_longer_than_the_model_is_spoken_in_parts(model: kokoro.Kokoro):
    words = words_of("extraordinarily " * 60)
    latents = model.encode(words, "", 1.0, 0)
    assert len(latents.words) == 60 and 0.99 * latents.frames < latents.words[-1].end_frame <= latents.frames
    assert latents.frames * 240 > PER_SYMBOL * kokoro.MOST_SYMBOLS


def test_what_cannot_be_said(model: kokoro.Kokoro):
    assert model.encode(words_of("... ?"), "", 1.0, 0).frames == 0
    assert model.encode([], "", 1.0, 0).frames == 0
    with pytest.raises(UnsupportedLanguage):
        model.encode(words_of("안녕하세요 여러분"), "", 1.0, 0)
    with pytest.raises(EngineError, match="af_heart, am_adam"):
        model.encode(words_of("Hi."), "nobody", 1.0, 0)
    with pytest.raises(ValueError, match="outside"):
        model.decode(model.encode(words_of("Hi."), "", 1.0, 0), 0, 10_000)


def test_the_configured_voice_is_the_first(folder: Path):
    assert kokoro.load(folder, TalkerOptions("kokoro", "", voice="am_adam")).voices == ("am_adam", "af_heart")


def a_broken_voice(home: Path) -> None:
    (home / "af_heart.bin").write_bytes(b"1234")


def without_voices(home: Path) -> None:
    for path in home.glob("*.bin"):
        path.unlink()


def without_a_model(home: Path) -> None:
    (home / "tiny.onnx").unlink()


def a_broken_model(home: Path) -> None:
    (home / "tiny.onnx").write_bytes(b"no model")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (a_broken_voice, "no Kokoro voice"),
        (without_voices, "no voices"),
        (without_a_model, "holds 0 .onnx"),
        (a_broken_model, "cannot be loaded"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(
    folder: Path, tmp_path: Path, spoil: Callable[[Path], None], says: str
):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    spoil(tmp_path)
    with pytest.raises(WeightsError, match=says):
        kokoro.load(tmp_path, TalkerOptions("kokoro", ""))


KOKORO = Path(os.environ.get("VOICE_AGENT_CACHE") or Path.home() / ".cache" / "voice-agent") / "kokoro-82m"


@pytest.mark.weights
@pytest.mark.skipif(not KOKORO.is_dir(), reason="an option: voice-agent models pull kokoro-82m")
@pytest.mark.parametrize("voice", ["af_heart", "am_michael"])
def test_the_real_model_is_understood(voice: str):
    text = "The harbour opens early and closes late in summer."
    model = kokoro.load(KOKORO, TalkerOptions("kokoro", "", threads=2))
    latents = model.encode(words_of(text), voice, 1.0, 0)
    sound = to_model_rate(model.decode(latents, 0, latents.frames), kokoro.RATE_HZ)
    ears = whisper.load(weights("whisper-tiny.en"), RecognizerOptions("whisper", ""))
    wrong, wanted = words_wrong(text, ears.transcribe(sound, "en")[0])
    assert wrong <= 2 < wanted
