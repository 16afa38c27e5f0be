"""The engine of slots on a CPU with a tiny model: right sound for each of many, aborts, caps, broken rows."""

import queue
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.qwen3_tts_small import CODEC, CONFIG, FULL_RATE, Named  # noqa: E402
from voice_agent.clock import MonotonicClock  # noqa: E402
from voice_agent.engine.leading_silence import LeadingSilence  # noqa: E402
from voice_agent.engine.messages import (  # noqa: E402
    Abort,
    Failed,
    Finished,
    FromEngine,
    Speak,
    SpeakEnd,
    SpeakText,
    SpeechChunk,
    SpokenWord,
)
from voice_agent.engine.runtime import EngineSpec, TalkerOptions  # noqa: E402
from voice_agent.engine.slot_speech import SlotSpeech  # noqa: E402
from voice_agent.engine.slot_stream import CyclePolicy  # noqa: E402
from voice_agent.models.qwen3_tts.config import CodecConfig  # noqa: E402
from voice_agent.models.qwen3_tts.device import Sizes  # noqa: E402
from voice_agent.models.qwen3_tts.model import Model, build_model  # noqa: E402
from voice_agent.models.qwen3_tts.plain_ops import PlainOps  # noqa: E402
from voice_agent.models.qwen3_tts.prompt import Manner, Spoken, build_prompt  # noqa: E402
from voice_agent.models.qwen3_tts.sampling import sampling_rows  # noqa: E402
from voice_agent.models.qwen3_tts.serving import Serving, ready  # noqa: E402
from voice_agent.models.qwen3_tts.speak import speak  # noqa: E402

ROLE = [1, 2, 3]
SIZES = Sizes(4, 160, 48, (1, 2, 4), (1, 2, 4, 8), (1, 2, 4), (1, 2))


class LetterText:
    def add(self, piece: str) -> list[int]:
        return [5 + ord(letter) % 100 for letter in piece if letter.isalpha()]

    def close(self) -> list[int]:
        return []


@pytest.fixture(scope="module")
def model() -> Model:
    made = build_model(
        Named(), Named(), CONFIG, CodecConfig(decoder_config=FULL_RATE, encoder_config=CODEC.encoder_config)
    )
    return made


class Rig:
    """An engine and its messages."""

    def __init__(self, model: Model, policy: CyclePolicy) -> None:
        self.messages: queue.Queue[FromEngine] = queue.Queue()
        serving: Serving = ready(model, (PlainOps(),), SIZES, LetterText, ROLE, lambda stage: None)
        spec = EngineSpec("speech", talker=TalkerOptions("qwen3-tts", ""))
        self.serving = serving
        self.engine = SlotSpeech(serving, spec, self.messages.put, MonotonicClock(), policy)

    def say(self, name: str, words: list[str], frames: int, seed: int, voice: str = "ryan") -> None:
        self.engine.handle(Speak(name, 1, voice, seed=seed, most_frames=frames))
        at = 0
        for word in words:
            self.engine.handle(SpeakText(name, 1, [SpokenWord(word, at, at + len(word))], "en"))
            at += len(word) + 1
        self.engine.handle(SpeakEnd(name, 1))

    def until(self, names: set[str]) -> dict[str, list[FromEngine]]:
        """Everything until all of them ended."""
        got: dict[str, list[FromEngine]] = {name: [] for name in names}
        open_names, end = set(names), time.monotonic() + 60
        while open_names:
            message = self.messages.get(timeout=max(0.1, end - time.monotonic()))
            if isinstance(message, (SpeechChunk, Finished, Failed)):
                got[message.request_id].append(message)
                if not isinstance(message, SpeechChunk):
                    open_names.discard(message.request_id)
        return got


@pytest.fixture(scope="module")
def rig(model: Model) -> Iterator[Rig]:
    yield Rig(model, CyclePolicy(slots=4, ring_frames=32, admit_wait_ms=60_000))


def expected(model: Model, words: list[str], frames: int, seed: int, voice: str) -> np.ndarray:
    text = LetterText().add(" ".join(words))
    prompt = build_prompt(CONFIG, Spoken(ROLE, text), Manner(voice, "en"))
    [codes] = speak(model, [prompt], sampling_rows(1, seeds=[seed]), frames)
    sound = (model.codec.decode(codes[None])[0] * 32767).round().to(torch.int16).numpy()
    cut = LeadingSilence(24_000)
    return np.concatenate([cut.push(sound), cut.finish()])


def pcm(messages: list[FromEngine]) -> np.ndarray:
    chunks = [message for message in messages if isinstance(message, SpeechChunk)]
    at = 0
    for chunk in chunks:
        assert chunk.first_sample == at
        at += len(chunk.pcm) // 2
    return np.frombuffer(b"".join(chunk.pcm for chunk in chunks), "<i2")


def test_each_of_many_sounds_as_it_would_alone(model: Model, rig: Rig) -> None:
    asked = {
        f"r{n}": (words, 4 + 3 * n, 40 + n, voice)
        for n, (words, voice) in enumerate(
            [(["hello", "you"], "ryan"), (["a"], "sohee"), (["one", "two", "three"], "ryan"), (["yes"], "eric"),
             (["some", "more"], "sohee"), (["late", "one"], "ryan")]
        )
    }  # fmt: skip
    for name, (words, frames, seed, voice) in asked.items():
        rig.say(name, words, frames, seed, voice)
    got = rig.until(set(asked))
    for name, (words, frames, seed, voice) in asked.items():
        sound, right = pcm(got[name]), expected(model, words, frames, seed, voice)
        assert len(sound) == len(right)
        assert int(np.abs(sound.astype(int) - right.astype(int)).max()) <= 2
        spoken = [word for message in got[name] if isinstance(message, SpeechChunk) for word in message.words]
        assert len(spoken) == len(words)
        assert all(a.end_sample <= b.first_sample for a, b in zip(spoken, spoken[1:], strict=False))
        assert isinstance(got[name][-1], Finished)
    assert rig.engine.in_flight() == []


def test_an_abort_frees_the_slot_at_once(rig: Rig) -> None:
    for n in range(4):
        rig.engine.handle(Speak(f"a{n}", 1, "ryan"))
        rig.engine.handle(SpeakText(f"a{n}", 1, [SpokenWord("endless", 0, 7)], "en"))
    time.sleep(0.1)
    for n in range(4):
        rig.engine.handle(Abort(f"a{n}", 1))
    got = rig.until({f"a{n}" for n in range(4)})
    assert [messages[-1].reason for messages in got.values() if isinstance(messages[-1], Finished)] == [
        "aborted"
    ] * 4
    rig.say("after", ["yes"], 3, 1)
    assert isinstance(rig.until({"after"})["after"][-1], Finished)


def test_a_broken_stream_fails_alone(rig: Rig) -> None:
    device = rig.serving.device
    rig.engine.handle(Speak("bad", 1, "ryan"))
    rig.engine.handle(SpeakText("bad", 1, [SpokenWord("waits", 0, 5)], "en"))  # stays hungry in its slot
    time.sleep(0.3)
    reply = next(reply for reply in list(rig.engine._replies.values()) if reply.key == ("bad", 1))  # pyright: ignore[reportPrivateUsage]
    assert reply.slot is not None
    with torch.inference_mode():
        device.arena.kv[:, reply.slot] = torch.nan
    rig.engine.handle(SpeakEnd("bad", 1))
    rig.say("good", ["fine"], 6, 3)
    got = rig.until({"bad", "good"})
    last = got["bad"][-1]
    assert isinstance(last, Failed) and last.code == "invalid_code"
    assert isinstance(got["good"][-1], Finished)


def test_a_voice_or_language_that_is_not_there_is_told(rig: Rig) -> None:
    rig.engine.handle(Speak("v", 1, "nobody"))
    [failed] = rig.until({"v"})["v"]
    assert isinstance(failed, Failed) and failed.code == "unknown_voice"
    rig.engine.handle(Speak("l", 1, ""))
    rig.engine.handle(SpeakText("l", 1, [SpokenWord("x", 0, 1)], "xx"))
    rig.engine.handle(SpeakEnd("l", 1))
    message = rig.messages.get(timeout=5)
    assert isinstance(message, Failed) and not message.final
    assert isinstance(rig.messages.get(timeout=5), Finished)


def test_an_end_that_never_comes_is_capped_by_the_text(model: Model) -> None:
    policy = replace(
        CyclePolicy(slots=4, ring_frames=32, admit_wait_ms=60_000), frames_per_text_row=2, spare_frames=3
    )
    endless = replace(model, talker=replace(model.talker, head=model.talker.head.clone()))
    endless.talker.head[CONFIG.talker_config.codec_eos_token_id] = 0.0
    rig = Rig(endless, policy)
    rig.say("long", ["ab"], 0, 5)
    last = rig.until({"long"})["long"][-1]
    assert isinstance(last, Finished) and last.reason == "length"
