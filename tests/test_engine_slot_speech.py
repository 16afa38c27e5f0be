"""The engine of slots on a CPU with a tiny model: right sound for each of many, aborts, caps, broken rows."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from msgspec import structs  # noqa: E402
from torch import Tensor  # noqa: E402

from tests.qwen3_tts_small import CODEC, CONFIG, FULL_RATE, SPEAKER, Named, speaker_vector  # noqa: E402
from voice_agent.clock import MonotonicClock  # noqa: E402
from voice_agent.engine.launches import Frames, Render  # noqa: E402
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
from voice_agent.engine.stretch import Stretch  # noqa: E402
from voice_agent.errors import ConfigError  # noqa: E402
from voice_agent.models.qwen3_tts.arena import new_arena  # noqa: E402
from voice_agent.models.qwen3_tts.cloning import heard_before  # noqa: E402
from voice_agent.models.qwen3_tts.config import CodecConfig  # noqa: E402
from voice_agent.models.qwen3_tts.device import Launch, Sizes, SpeechDevice  # noqa: E402
from voice_agent.models.qwen3_tts.model import Model, build_model  # noqa: E402
from voice_agent.models.qwen3_tts.openings import KeptPrefixes  # noqa: E402
from voice_agent.models.qwen3_tts.plain_ops import PlainOps  # noqa: E402
from voice_agent.models.qwen3_tts.prompt import Clone, Manner, Prompt, Spoken, build_prompt  # noqa: E402
from voice_agent.models.qwen3_tts.sampling import sampling_rows  # noqa: E402
from voice_agent.models.qwen3_tts.serving import Serving, Told, ready  # noqa: E402
from voice_agent.models.qwen3_tts.speak import speak  # noqa: E402

ROLE = [1, 2, 3]
SIZES = Sizes(4, 160, 48, (1, 2, 4), (1, 2, 4, 8), (1, 2, 4), (1, 2), (8, 32))


class LetterText:
    def add(self, piece: str) -> list[int]:
        return [5 + ord(letter) % 100 for letter in piece if letter.isalpha()]

    def close(self) -> list[int]:
        return []


TOLD = Told(LetterText, ROLE, LetterText().add, lambda text: [7, *LetterText().add(text), 8] if text else [])


@pytest.fixture(scope="module")
def model() -> Model:
    made = build_model(
        Named(), Named(), CONFIG, CodecConfig(decoder_config=FULL_RATE, encoder_config=CODEC.encoder_config)
    )
    return made


class Rig:
    """An engine and its messages."""

    def __init__(
        self,
        model: Model,
        policy: CyclePolicy | None,
        clones: dict[str, Clone] | None = None,
        pace: int | None = None,
    ) -> None:
        self.messages: queue.Queue[FromEngine] = queue.Queue()
        self.early: dict[str, list[FromEngine]] = {}  # of replies that nobody waits for yet
        serving: Serving = replace(
            ready(model, (PlainOps(),), SIZES, TOLD, lambda stage: None, clones), frames_per_token=pace
        )
        spec = EngineSpec("speech", talker=TalkerOptions("qwen3-tts", ""))
        self.serving = serving
        self.engine = SlotSpeech(serving, spec, self.messages.put, MonotonicClock(), policy)

    def say(
        self,
        name: str,
        words: list[str],
        frames: int,
        seed: int,
        voice: str = "ryan",
        pause_s: float = 0.0,
        **more: Any,
    ) -> None:
        self.engine.handle(Speak(name, 1, voice, seed=seed, most_frames=frames, **more))
        at = 0
        for word in words:
            self.engine.handle(SpeakText(name, 1, [SpokenWord(word, at, at + len(word))], "en"))
            at += len(word) + 1
            time.sleep(pause_s)
        self.engine.handle(SpeakEnd(name, 1))

    def until(self, names: set[str]) -> dict[str, list[FromEngine]]:
        """Everything until all of them ended."""
        got = {name: self.early.pop(name, []) for name in names}
        open_names, end = set(names), time.monotonic() + 60
        while open_names:
            message = self.messages.get(timeout=max(0.1, end - time.monotonic()))
            if isinstance(message, (SpeechChunk, Finished, Failed)):
                got.get(message.request_id, self.early.setdefault(message.request_id, [])).append(message)
                if not isinstance(message, SpeechChunk):
                    open_names.discard(message.request_id)
        return got


FOUR_SLOTS = CyclePolicy(slots=4, ring_frames=32, admit_wait_ms=60_000)


def endless(model: Model) -> Model:
    """The model that never ends by itself."""
    found = replace(model, talker=replace(model.talker, head=model.talker.head.clone()))
    found.talker.head[CONFIG.talker_config.codec_eos_token_id] = 0.0
    return found


@pytest.fixture(scope="module")
def rig(model: Model) -> Iterator[Rig]:
    yield Rig(model, FOUR_SLOTS)


def expected(model: Model, words: list[str], frames: int, manner: Manner, **sampling: Any) -> np.ndarray:
    """What the plain way speaks."""
    text = LetterText().add(" ".join(words))
    prompt: Prompt = build_prompt(model.config, Spoken(ROLE, text), manner)
    [codes] = speak(model, [prompt], sampling_rows(1, **sampling), frames)
    before = heard_before(model.codec, manner.clone) if manner.clone else model.codec.new_state(1)
    sound = (model.codec.step(codes[None], before)[0][0] * 32767).round().to(torch.int16).numpy()
    cut = LeadingSilence(24_000)
    return np.concatenate([cut.push(sound), cut.finish()])


def assert_same(sound: np.ndarray, right: np.ndarray) -> None:
    assert len(sound) == len(right) > 0
    assert int(np.abs(sound.astype(int) - right.astype(int)).max()) <= 2


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
        assert_same(pcm(got[name]), expected(model, words, frames, Manner(voice, "en"), seeds=[seed]))
        spoken = [word for message in got[name] if isinstance(message, SpeechChunk) for word in message.words]
        assert len(spoken) == len(words)
        assert all(a.end_sample <= b.first_sample for a, b in zip(spoken, spoken[1:], strict=False))
        assert isinstance(got[name][-1], Finished)
    assert rig.engine.in_flight() == []


def test_before_it_is_ready_it_has_spoken_in_both_modes_with_every_voice_and_nobody_heard(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, openings = list[Any](), rig.serving.device.openings
    opens = openings.open

    def noted(*of: Any) -> Any:
        opened.append(of)
        return opens(*of)

    monkeypatch.setattr(openings, "open", noted)
    asyncio.run(rig.engine.warm_up())
    assert {voice for voice, *_ in opened} == set(rig.serving.voices)
    assert len(opened) == 1 + len(rig.serving.voices) + bool(rig.serving.instructed)
    assert rig.messages.empty() and not rig.engine.in_flight()
    assert rig.engine.work()["frames"] == 0
    rig.say("first", ["well"], 4, 1)
    assert isinstance(rig.until({"first"})["first"][-1], Finished)


@pytest.mark.parametrize("speed", [0.5, 1.6])
def test_a_speed_is_a_replys_own_and_its_words_lie_where_they_are_heard(
    model: Model, rig: Rig, speed: float
) -> None:
    words = ["one", "two", "three"]
    rig.say("paced", words, 12, 44, speed=speed)
    rig.say("plain", words, 12, 44)
    got = rig.until({"paced", "plain"})
    plain, stretch = expected(model, words, 12, Manner("ryan", "en"), seeds=[44]), Stretch(24_000, speed)
    assert_same(pcm(got["plain"]), plain)
    heard, right = pcm(got["paced"]), np.concatenate([stretch.push(plain), stretch.finish()])
    assert len(heard) == len(right)
    assert np.std(heard) == pytest.approx(np.std(right), rel=0.2)
    spoken = [word for message in got["paced"] if isinstance(message, SpeechChunk) for word in message.words]
    assert len(spoken) == 3
    assert all(a.end_sample <= b.first_sample for a, b in zip(spoken, spoken[1:], strict=False))
    assert 0.6 * len(heard) < spoken[-1].end_sample <= len(heard)


@pytest.mark.parametrize("speed", [0.0, 4.1, float("nan")])
def test_a_speed_that_nobody_could_follow_is_refused(rig: Rig, speed: float) -> None:
    rig.engine.handle(Speak("s", 1, "ryan", speed=speed))
    [failed] = rig.until({"s"})["s"]
    assert isinstance(failed, Failed) and failed.code == "invalid_speed" and "0.25 to 4" in failed.message


def test_an_abort_frees_the_slot_at_once(model: Model) -> None:
    rig = Rig(endless(model), FOUR_SLOTS)
    batches = frames_of(rig)
    for n in range(4):
        rig.engine.handle(Speak(f"a{n}", 1, "ryan"))
        rig.engine.handle(SpeakText(f"a{n}", 1, [SpokenWord("endless", 0, 7)], "en"))
    soon(lambda: len({row for rows in batches for row in rows}) == 4)
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
    reply = next(reply for reply in list(rig.engine._replies.held.values()) if reply.key == ("bad", 1))  # pyright: ignore[reportPrivateUsage]
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


@pytest.mark.parametrize(
    ("spare", "pace", "frames", "warns"),
    [(3, None, 7, True), (None, 3, 6, False)],
    ids=["runaway", "paced as random weights are"],
)
def test_an_end_that_never_comes_is_capped_by_the_text(
    model: Model,
    spare: int | None,
    pace: int | None,
    frames: int,
    warns: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    policy = None
    if spare is not None:
        policy = CyclePolicy(
            slots=4, ring_frames=32, admit_wait_ms=60_000, frames_per_text_row=2, spare_frames=spare
        )
    rig = Rig(endless(model), policy, pace=pace)
    rig.say("long", ["ab"], 0, 5)
    last = rig.until({"long"})["long"][-1]
    assert isinstance(last, Finished) and last.reason == "length" and last.usage["frames"] == frames
    assert ("no end of speech" in caplog.text) == warns


def test_words_that_come_one_by_one_while_it_speaks_change_nothing(model: Model, rig: Rig) -> None:
    assert rig.engine.describe["by_word"]  # so that the cascade sends them so
    words = ["here", "is", "some", "text", "that", "comes", "slowly"]
    rig.say("beside", ["one", "that", "is", "whole"], 20, 8)
    rig.say("slow", words, 24, 9, pause_s=0.03)
    got = rig.until({"slow", "beside"})
    assert_same(pcm(got["slow"]), expected(model, words, 24, Manner("ryan", "en"), seeds=[9]))
    assert_same(
        pcm(got["beside"]),
        expected(model, ["one", "that", "is", "whole"], 20, Manner("ryan", "en"), seeds=[8]),
    )


def test_a_starved_reply_is_in_no_batch_while_others_go_on(model: Model, rig: Rig) -> None:
    batches = frames_of(rig)
    rig.engine.handle(Speak("hungry", 1, "ryan", seed=2, most_frames=9))
    rig.engine.handle(SpeakText("hungry", 1, [SpokenWord("abc", 0, 3)], "en"))
    soon(lambda: len(batches) >= 3)
    time.sleep(0.1)
    assert sum(len(rows) for rows in batches) == 3  # a frame a token, and then none
    rig.say("fed", ["enough"], 8, 3)
    rig.until({"fed"})
    fed = [rows for rows in batches if ("fed", 1) in rows]
    assert len(fed) == 8 and all(rows == [("fed", 1)] for rows in fed)
    rig.engine.handle(SpeakText("hungry", 1, [SpokenWord("de", 4, 6)], "en"))
    rig.engine.handle(SpeakEnd("hungry", 1))
    got = rig.until({"hungry"})["hungry"]
    assert_same(pcm(got), expected(model, ["abc", "de"], 9, Manner("ryan", "en"), seeds=[2]))


def soon(true: Callable[[], bool]) -> None:
    """Wait for it; the machine may be busy."""
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def frames_of(rig: Rig) -> list[list[tuple[str, int]]]:
    """The replies of each frame launch from now on."""
    seen: list[list[tuple[str, int]]] = []
    launch = rig.serving.device.make_frames

    def spy(what: Any, *more: Any) -> Any:
        seen.append([row.key for row in what.rows])
        return launch(what, *more)

    rig.serving.device.make_frames = spy  # type: ignore[method-assign]
    return seen


class HeldDevice:
    """Makes launches end only when told, as on a GPU: `held` are those on their way."""

    def __init__(self, device: SpeechDevice) -> None:
        self.held: list[tuple[Any, threading.Event]] = []
        for name in ("make_frames", "render"):
            setattr(device, name, self._held(getattr(device, name)))

    def _held(self, launch: Any) -> Any:
        def held(what: Any, *more: Any, **named: Any) -> Launch:
            done = threading.Event()
            self.held.append((what, done))
            made = launch(what, *more, **named)
            return Launch(what, made.answer, _Mark(done), _Mark(done))

        return held

    def release(self) -> None:
        self.release_but()

    def release_but(self, *kinds: type) -> bool:
        """End all but launches of these kinds, while none of these is held; whether one is."""
        if any(isinstance(what, kinds) for what, _ in self.held):
            return True
        held, self.held = self.held, []
        for _, done in held:
            done.set()
        return False


class _Mark:
    def __init__(self, done: threading.Event) -> None:
        self.query = done.is_set

    def elapsed_time(self, other: Any) -> float:
        return 1.0


def test_an_abort_ends_every_stage_with_what_is_on_its_way(model: Model) -> None:
    rig = Rig(model, CyclePolicy(slots=1, ring_frames=32, admit_wait_ms=60_000))
    device = HeldDevice(rig.serving.device)
    rig.engine.handle(Speak("cut", 1, "ryan", most_frames=60))
    rig.engine.handle(SpeakText("cut", 1, [SpokenWord("somewhat", 0, 8)], "en"))
    rig.engine.handle(SpeakEnd("cut", 1))
    soon(lambda: device.release_but(Render) and {Frames, Render} <= {type(what) for what, _ in device.held})
    time.sleep(0.1)
    rig.engine.handle(Abort("cut", 1))
    rig.say("next", ["yes"], 3, 1)
    soon(lambda: rig.engine.in_flight() == ["cut", "next"])
    on_its_way = len(device.held)
    assert 2 <= on_its_way <= 4  # two of a stage at most
    time.sleep(0.1)
    assert len(device.held) == on_its_way  # nothing more of it, and its slot is not free yet
    device.release()
    ending = next(iter(rig.until({"cut"}).values()))[-1]
    assert isinstance(ending, Finished) and ending.reason == "aborted"

    def released() -> bool:
        assert all(row.key == ("next", 1) for what, _ in device.held for row in what.rows)
        device.release()
        return not rig.engine.in_flight()

    soon(released)
    assert isinstance(rig.until({"next"})["next"][-1], Finished)


# --- instructions and clones ------------------------------------------------------------------------------------


def prefills(rig: Rig) -> list[int]:
    """Rows of each prefill from now on."""
    seen: list[int] = []
    launch = rig.serving.device.prefill

    def spy(what: Any, *more: Any) -> Any:
        seen.append(what.rows)
        return launch(what, *more)

    rig.serving.device.prefill = spy  # type: ignore[method-assign]
    return seen


def test_an_instruction_is_spoken_as_the_plain_way_does_and_prefilled_once(model: Model, rig: Rig) -> None:
    seen = prefills(rig)
    for n, (told, voice) in enumerate(
        (("slow", "ryan"), ("slow", "ryan"), ("very merry", "sohee"), ("slow", "ryan"))
    ):
        rig.say(f"i{n}", ["one", "two"], 6, 11 + n, voice, instructions=told)
        rig.say(f"p{n}", ["plain"], 5, 3, voice)
        got = rig.until({f"i{n}", f"p{n}"})
        manner = Manner(voice, "en", TOLD.instruction(told))
        assert_same(pcm(got[f"i{n}"]), expected(model, ["one", "two"], 6, manner, seeds=[11 + n]))
        assert_same(pcm(got[f"p{n}"]), expected(model, ["plain"], 5, Manner(voice, "en"), seeds=[3]))
    assert seen == [6 + 9, 11 + 9]  # the instruction's tokens and the rows before the text


def test_an_instruction_that_no_prefill_holds_is_refused_and_the_next_reply_is_spoken(rig: Rig) -> None:
    rig.say("far", ["one"], 3, 1, instructions="x" * 40)
    [failed] = rig.until({"far"})["far"]
    assert (
        isinstance(failed, Failed) and failed.code == "invalid_instructions" and "51 tokens" in failed.message
    )
    rig.say("near", ["one"], 3, 1)
    assert isinstance(rig.until({"near"})["near"][-1], Finished)


def test_what_an_instruction_kept_goes_when_it_is_unused_longest() -> None:
    arena = new_arena(CONFIG.talker_config, 1, 32, 8, torch.zeros(1))
    arena.kv.normal_()
    kept = KeptPrefixes(arena, entries=2, rows=8)
    assert kept.take("a") is None
    for key in ("a", "b"):
        kept.keep(key, arena.kv[:, 0], 5)
    held = kept.take("a")
    assert held and torch.equal(held.kv, arena.kv[:, 0, :, :5])
    kept.keep("c", arena.kv[:, 0], 8)
    assert kept.take("b") is None and kept.take("c")
    kept.keep("d", arena.kv[:, 0], 8)  # both are in use
    kept.keep("e", arena.kv[:, 0], 9)  # too long
    assert kept.take("d") is None and kept.take("e") is None
    kept.release("a")
    kept.keep("d", arena.kv[:, 0], 8)
    assert kept.take("d") and kept.take("a") is None


CLIP_TEXT = [40, 41, 42]


def clip_codes(count: int) -> Tensor:
    return torch.randint(64, (count, 16), generator=torch.Generator().manual_seed(8))


CLONES = {
    "vector": Clone(speaker_vector()),
    "clip": Clone(speaker_vector(), clip_codes(13), CLIP_TEXT),
    "hasty clip": Clone(speaker_vector(), clip_codes(2), CLIP_TEXT),
}


@pytest.fixture(scope="module")
def cloned(model: Model) -> Iterator[Rig]:
    base = structs.replace(CONFIG, tts_model_type="base", speaker_encoder_config=SPEAKER)
    yield Rig(replace(model, config=base), CyclePolicy(slots=4, ring_frames=32, admit_wait_ms=60_000), CLONES)


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("voice", CLONES)
def test_a_cloned_voice_speaks_as_the_plain_way_does(cloned: Rig, voice: str, greedy: bool) -> None:
    texts = {"short": ["hey"], "word by word": ["somewhat", "longer", "than", "the", "clip"]}
    more: dict[str, Any] = {"temperature": 0.0} if greedy else {}
    for name, words in texts.items():
        cloned.say(name, words, 9, 5, voice, 0.02, **more)
    cloned.say("beside", ["preset"], 9, 6)
    got = cloned.until({*texts, "beside"})
    model = cloned.serving.device.model
    for name, words in texts.items():
        right = expected(model, words, 9, Manner(None, "en", clone=CLONES[voice]), seeds=[5], **more)
        assert_same(pcm(got[name]), right)
    assert_same(pcm(got["beside"]), expected(model, ["preset"], 9, Manner("ryan", "en"), seeds=[6]))


def test_a_clip_waits_for_the_text_under_its_frames_and_is_never_fed_padding(cloned: Rig) -> None:
    seen = prefills(cloned)
    cloned.engine.handle(Speak("w", 1, "clip", seed=4, most_frames=4))
    cloned.engine.handle(
        SpeakText("w", 1, [SpokenWord("tenletters", 0, 10)], "en")
    )  # 10 of 13 - 3 rows: not the next
    soon(lambda: cloned.engine.in_flight() == ["w"])
    time.sleep(0.1)
    assert seen == [] and cloned.messages.empty()
    cloned.engine.handle(SpeakText("w", 1, [SpokenWord("on", 11, 13)], "en"))
    soon(lambda: bool(seen))
    cloned.engine.handle(SpeakEnd("w", 1))
    got = cloned.until({"w"})["w"]
    assert seen == [10]
    model = cloned.serving.device.model
    right = expected(model, ["tenletters", "on"], 4, Manner(None, "en", clone=CLONES["clip"]), seeds=[4])
    assert_same(pcm(got), right)


def test_a_clone_may_not_have_the_name_of_a_preset_voice(model: Model) -> None:
    with pytest.raises(ConfigError, match=r"talker\.clones\.ryan"):
        ready(model, (PlainOps(),), SIZES, TOLD, lambda stage: None, {"ryan": Clone(speaker_vector())})
