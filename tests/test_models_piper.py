import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.model_weights import to_model_rate, weights, words_of, words_wrong
from voice_agent.audio import Samples, dbfs
from voice_agent.engine.messages import SpokenWord
from voice_agent.engine.runtime import Latents, RecognizerOptions, TalkerOptions
from voice_agent.errors import EngineError, UnsupportedLanguage, WeightsError
from voice_agent.models import piper, whisper
from voice_agent.models.piper import TALKER, VOICE_BOX

CONFIG = {
    "audio": {"sample_rate": 22_050},
    "espeak": {"voice": "en-us"},
    "inference": {"noise_scale": 0.667, "length_scale": 1, "noise_w": 0.8},
    "phoneme_id_map": {"_": [0], "^": [1], "$": [2], " ": [3], "a": [14]},
}


@pytest.fixture(scope="module")
def joe() -> Iterator[piper.Piper]:
    yield piper.load(weights("piper-joe"), TalkerOptions("piper", "", threads=2))


def voice_folder(folder: Path, graph: bytes = b"", config: object = CONFIG) -> Path:
    (folder / "en_US-x-low.onnx").write_bytes(graph)
    (folder / "en_US-x-low.onnx.json").write_text(json.dumps(config))
    return folder


def whole(model: piper.Piper, latents: Latents) -> Samples:
    return model.decode(latents, 0, latents.frames)


# --- folders ----------------------------------------------------------------------------------------------------


def test_an_empty_folder_and_two_voices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="exactly one"):
        piper.find_voice(tmp_path)
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).touch()
    with pytest.raises(WeightsError, match="exactly one"):
        piper.find_voice(tmp_path)


def test_a_voice_without_its_description_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").touch()
    with pytest.raises(WeightsError, match=r"a\.onnx\.json"):
        piper.find_voice(tmp_path)


@pytest.mark.parametrize(
    "config",
    [
        [],
        {},
        "text",
        {**CONFIG, "espeak": {"voice": "de"}},
        {**CONFIG, "espeak": None},
        {**CONFIG, "phoneme_id_map": {"a": [1]}},
        {**CONFIG, "num_speakers": 904},
        {**CONFIG, "audio": {"sample_rate": "loud"}},
    ],
)
def test_a_description_that_cannot_be_used_is_refused(tmp_path: Path, config: object) -> None:
    with pytest.raises(WeightsError):
        piper.load(voice_folder(tmp_path, config=config), TalkerOptions("piper", ""))


def _other_graph() -> bytes:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    made = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "g", [value], [helper.make_empty_tensor_value_info("y")]
    )
    return helper.make_model(made).SerializeToString()


@pytest.mark.parametrize("graph", [b"", b"not a graph" * 99, b"\x08\x07\x12\xff\xff\xff\x7f", _other_graph()])
def test_a_graph_that_is_no_piper_voice_is_refused_and_leaves_nothing(tmp_path: Path, graph: bytes) -> None:
    with pytest.raises(WeightsError, match=r"en_US-x-low\.onnx"):
        piper.prepare(voice_folder(tmp_path, graph))
    assert list((tmp_path / "derived").iterdir()) == []


@pytest.mark.weights
def test_the_cut_is_made_once_and_again_when_the_voice_changes(tmp_path: Path) -> None:
    source = piper.find_voice(weights("piper-joe"))
    for path in (source, source.with_name(source.name + ".json")):
        shutil.copy2(path, tmp_path)
    first = piper.prepare(tmp_path)
    made_ns = (first / TALKER).stat().st_mtime_ns
    assert piper.prepare(tmp_path) == first
    assert (first / TALKER).stat().st_mtime_ns == made_ns
    os.utime(tmp_path / source.name, (1, 1))
    second = piper.prepare(tmp_path)
    assert second != first
    assert sorted(path.name for path in (tmp_path / "derived").iterdir()) == [second.name]
    assert sorted(path.name for path in second.iterdir()) == [TALKER, VOICE_BOX]


@pytest.mark.weights
def test_a_cut_voice_goes_to_the_cache_where_the_folder_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = piper.find_voice(weights("piper-joe")), tmp_path / "voice"
    folder.mkdir()
    for path in (source, source.with_name(source.name + ".json")):
        (folder / path.name).symlink_to(path)
    (folder / "derived").touch()  # a file in the way: stands for a read-only disk, also for root
    monkeypatch.setenv("VOICE_AGENT_CACHE", str(tmp_path / "cache"))
    assert piper.prepare(folder).is_relative_to(tmp_path / "cache" / "derived")
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").touch()
    with pytest.raises(WeightsError, match="can be written"):
        piper.prepare(folder)


# --- the voice --------------------------------------------------------------------------------------------------


@pytest.mark.weights
def test_every_window_size_joins_to_the_one_shot_sound(joe: piper.Piper) -> None:
    latents = joe.encode(words_of("Of course, I can help."), "", 1.0, 1)
    once = whole(joe, latents).astype(np.int32)
    assert len(once) == latents.frames * joe.samples_per_frame
    loudest_step = int(np.abs(np.diff(once)).max())
    for size in range(1, 97):
        at = (37 * size) % (latents.frames - size)
        window = joe.decode(latents, at, size).astype(np.int32)
        begin, end = at * joe.samples_per_frame, (at + size) * joe.samples_per_frame
        assert np.abs(window - once[begin:end]).max() <= 2, size
        seams = np.concatenate([once[max(0, begin - 1) : begin], window, once[end : end + 1]])
        assert np.abs(np.diff(seams)).max() <= loudest_step + 4, size


@pytest.mark.weights
def test_words_lie_in_order_within_the_clause_and_sound(joe: piper.Piper) -> None:
    text = "Well, the quick brown fox — you know — jumped over 12 dogs!"
    latents = joe.encode(words_of(text), "joe", 1.0, 0)
    assert [text[word.start_char : word.end_char] for word in latents.words] == text.split()
    borders = [frame for word in latents.words for frame in (word.first_frame, word.end_frame)]
    assert borders == sorted(borders)
    assert 0 <= borders[0] <= piper.LEAD_FRAMES
    assert borders[-1] <= latents.frames
    for word in latents.words:
        frames = word.end_frame - word.first_frame
        if text[word.start_char] == "—":
            assert frames == 0
        else:
            assert dbfs(joe.decode(latents, word.first_frame, frames)) > -45


@pytest.mark.weights
def test_a_clause_starts_without_leading_silence_or_click_and_is_loud_enough(joe: piper.Piper) -> None:
    peaks = list[float]()
    for seed, text in enumerate(
        ["The capital of France is Paris.", "Twelve times seven.", "I would be happy to,"]
    ):
        sound = whole(joe, joe.encode(words_of(text), "", 1.0, seed))
        loud = np.flatnonzero(np.abs(sound.astype(np.int32)) > 300)
        assert loud[0] < 0.06 * joe.rate_hz
        assert abs(int(sound[0])) < 400
        peaks.append(float(np.abs(sound.astype(np.int32)).max()) / 32_768)
    assert 0.35 < np.median(peaks) < 0.95


@pytest.mark.weights
def test_the_same_seed_speaks_the_same_and_another_does_not(joe: piper.Piper) -> None:
    clause = words_of("Good morning.")
    first, again, other = (whole(joe, joe.encode(clause, "", 1.0, seed)) for seed in (5, 5, 6))
    assert np.array_equal(first, again)
    assert len(first) != len(other) or not np.array_equal(first, other)


@pytest.mark.weights
def test_speed_changes_the_length(joe: piper.Piper) -> None:
    clause = words_of("How are you doing today?")
    slow, normal, fast = (joe.encode(clause, "", speed, 0).frames for speed in (0.5, 1.0, 2.0))
    assert slow > 1.4 * normal
    assert normal > 1.2 * fast  # a phoneme keeps at least a frame
    assert joe.encode(clause, "", 0.0, 0).frames > 0


@pytest.mark.weights
def test_a_clause_without_sound_has_no_frames(joe: piper.Piper) -> None:
    latents = joe.encode(words_of("... — 😀"), "", 1.0, 0)
    assert (latents.frames, len(latents.words)) == (0, 3)
    assert len(joe.decode(latents, 0, 0)) == 0
    assert joe.encode([], "", 1.0, 0).frames == 0


@pytest.mark.weights
@pytest.mark.parametrize("text", ["안녕하세요, 반갑습니다.", "你好 OK", "Привет"])
def test_a_foreign_clause_is_refused_not_garbled(joe: piper.Piper, text: str) -> None:
    with pytest.raises(UnsupportedLanguage):
        joe.encode(words_of(text), "", 1.0, 0)


@pytest.mark.weights
def test_a_foreign_word_in_an_english_clause_is_left_out(joe: piper.Piper) -> None:
    latents = joe.encode(words_of("They say 안녕 in Korea."), "", 1.0, 0)
    assert latents.words[2].first_frame == latents.words[2].end_frame


@pytest.mark.weights
def test_an_unknown_voice_and_an_endless_clause_are_refused(joe: piper.Piper) -> None:
    with pytest.raises(EngineError) as caught:
        joe.encode(words_of("Hi."), "nobody", 1.0, 0)
    assert caught.value.code == "unknown_voice"
    with pytest.raises(EngineError) as caught:
        joe.encode([SpokenWord("hello", 0, 5)] * 800, "", 1.0, 0)
    assert caught.value.code == "clause_too_long"


@pytest.mark.weights
@pytest.mark.parametrize(("first_frame", "frames"), [(-1, 2), (0, 10_000), (3, -1)])
def test_a_window_outside_is_refused(joe: piper.Piper, first_frame: int, frames: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        joe.decode(joe.encode(words_of("Yes."), "", 1.0, 0), first_frame, frames)


@pytest.mark.weights
def test_a_long_clause_reads_the_noise_in_a_circle(joe: piper.Piper) -> None:
    latents = joe.encode(words_of("one two three four five six seven " * 5), "", 0.6, 0)
    assert latents.frames > piper.NOISE_FRAMES
    assert dbfs(joe.decode(latents, latents.frames - 60, 40)) > -45


@pytest.mark.weights
def test_piper_speaks_and_whisper_hears(joe: piper.Piper) -> None:
    recognizer = whisper.load(weights("whisper-tiny.en"), RecognizerOptions("whisper", "", threads=2))
    sentences = [
        "The capital of France is Paris.",
        "Could you repeat the last part, please?",
        "I would be happy to help you with that.",
        "Remind me to call my mother on Saturday.",
        "How is the weather in London tomorrow morning?",
    ]
    wrong = total = 0
    for seed, sentence in enumerate(sentences):
        sound = whole(joe, joe.encode(words_of(sentence), "", 1.0, seed))
        text, language = recognizer.transcribe(to_model_rate(sound, joe.rate_hz), None)
        assert language == "en"
        errors, words = words_wrong(sentence, text)
        wrong, total = wrong + errors, total + words
    assert wrong / total < 0.2
