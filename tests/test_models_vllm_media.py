"""Sound and pictures through our chat path into models on vLLM that hear or see (`make test-vllm`)."""
# pyright: reportMissingImports=false

import asyncio
import base64
import io
import os
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm")
transformers = pytest.importorskip("transformers")
import torch  # noqa: E402
from PIL import Image  # noqa: E402

from tests.vllm_folders import nearest_choice, write_media_model  # noqa: E402
from voice_agent.engine.messages import Think  # noqa: E402
from voice_agent.engine.runtime import ThinkerOptions  # noqa: E402
from voice_agent.errors import EngineError  # noqa: E402
from voice_agent.models.vllm_thinker import VllmThinker, load  # noqa: E402

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

ANSWER_TOKENS = 16
NEAR_TIE = (
    0.02  # between two logits: sums in another order move them by thousandths, and 0.0019 was decided so
)
LIMITS = {
    "qwen2-audio": {"audio": 2},
    "llava": {"image": 2},
    "qwen2.5-omni": {"audio": 2, "image": 2, "video": 0},
}
RATE_HZ = 16_000
FOR_PICTURES = "models that see are imported with it"


class Rig:
    """A vLLM engine and transformers' model over the same folder."""

    def __init__(self, folder: Path, family: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.reference, self.processor = write_media_model(folder, family)
        options: dict[str, Any] = {
            "dtype": "float32",
            "max_num_seqs": 2,
            "enforce_eager": True,
            "engine_args": {"seed": 0, "limit_mm_per_prompt": LIMITS[family]},
        }
        if torch.cuda.is_available():  # a small part of the card: several of these may run beside each other
            options |= {"gpu_memory_utilization": 0.1, "kv_cache_bytes": 1 << 30}
        self.model: VllmThinker = load(
            folder, ThinkerOptions("vllm", str(folder), context_tokens=2048, extra=options)
        )
        self.run(self.model.warm_up("Be brief."))

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, 300))

    def answer(self, parts: list[dict[str, Any]]) -> str:
        """What our path says."""
        told = list[str]()
        messages = [{"role": "user", "content": parts}]
        request = Think(f"r{id(parts)}", 1, messages, max_output_tokens=ANSWER_TOKENS)
        self.run(self.model.answer(request, lambda text, rows: bool(told.append(text))))
        return "".join(told)

    def expected(self, parts: list[dict[str, Any]], **media: Any) -> str | None:
        """What transformers says to the same, the media given as they are; None where rounding could decide a token."""
        told = [{"role": "user", "content": parts}]
        text = self.processor.apply_chat_template(told, tokenize=False, add_generation_prompt=True)
        inputs = self.processor(text=text, return_tensors="pt", **media)
        with torch.inference_mode():
            found = self.reference.generate(
                **inputs,
                do_sample=False,
                max_new_tokens=ANSWER_TOKENS,
                pad_token_id=0,
                return_dict_in_generate=True,
                output_logits=True,
            )
        if nearest_choice(found.logits) < NEAR_TIE:
            return None
        tokens = found.sequences[0, inputs["input_ids"].shape[1] :]
        return self.model.engine.get_tokenizer().decode(tokens, skip_special_tokens=True)

    def close(self) -> None:
        self.model.engine.shutdown()
        self.loop.run_until_complete(asyncio.sleep(0.1))
        self.loop.close()


def rig_of(family: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    rig = Rig(tmp_path_factory.mktemp("model"), family)
    yield rig
    rig.close()


@pytest.fixture(scope="module")
def hearing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    yield from rig_of("qwen2-audio", tmp_path_factory)


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    pytest.importorskip("torchvision", reason=FOR_PICTURES)
    yield from rig_of("llava", tmp_path_factory)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    pytest.importorskip("torchvision", reason=FOR_PICTURES)
    yield from rig_of("qwen2.5-omni", tmp_path_factory)


def sweep(first_hz: float, seconds: float) -> np.ndarray:
    """An upward tone, int16 [T]."""
    t = np.arange(int(RATE_HZ * seconds)) / RATE_HZ
    return (12_000 * np.sin(2 * np.pi * (first_hz + 200 * t) * t)).astype(np.int16)


def sound(samples: np.ndarray) -> dict[str, Any]:
    """As OpenAI's chat has it."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(RATE_HZ)
        writer.writeframes(samples.tobytes())
    data = base64.b64encode(file.getvalue()).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def picture(pixels: np.ndarray) -> dict[str, Any]:
    """As OpenAI's chat has it."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def noise(seed: int, seconds: float) -> np.ndarray:
    """int16 [T]"""
    chance = np.random.default_rng(seed)
    return chance.integers(-12_000, 12_001, int(RATE_HZ * seconds)).astype(np.int16)


WORDS = text(" what is this")
# random weights may answer the same to two of these, which two depends on the releases that draw them
SOUNDS = [sweep(300, 1.5), sweep(2000, 1.5), noise(1, 1.5), sweep(40, 1.5), sweep(300, 4.0), noise(2, 0.4)]


def pixels(seed: int, edge: int) -> np.ndarray:
    """uint8 [edge, edge, 3]: noise, and for even seeds half of it dark."""
    drawn = np.random.default_rng(seed).integers(0, 256, (edge, edge, 3), np.uint8)
    drawn[: edge // 2 if seed % 2 == 0 else 0] = 0
    return drawn


def told_apart(
    candidates: list[np.ndarray], say: Callable[[np.ndarray], str | None]
) -> list[tuple[np.ndarray, str]]:
    """Two to which the reference says, and surely, something else, with what it says to each."""
    sure = [(candidate, said) for candidate in candidates if (said := say(candidate)) is not None]
    for other, differs in sure[1:]:
        if differs != sure[0][1]:
            return [sure[0], (other, differs)]
    pytest.fail("the reference says the same to all of them: nothing shows whether they are taken in")


def differ(one: str | None, other: str | None) -> bool:
    """Whether both are sure, and not the same."""
    return None not in (one, other) and one != other


def hears_like_the_reference(rig: Rig) -> None:
    """Two sounds that it tells apart; a rig that is deaf or hears always the same says one of them wrongly."""

    def say(samples: np.ndarray) -> str | None:
        return rig.expected([{"type": "audio"}, WORDS], audio=[samples / np.float32(32768)])

    for samples, said in told_apart(SOUNDS, say):
        assert rig.answer([sound(samples), WORDS]) == said


def sees_like_the_reference(rig: Rig, edge: int) -> None:
    """As with sounds."""

    def say(shown: np.ndarray) -> str | None:
        return rig.expected([{"type": "image"}, WORDS], images=[Image.fromarray(shown)])

    for shown, said in told_apart([pixels(seed, edge) for seed in range(5, 11)], say):
        assert rig.answer([picture(shown), WORDS]) == said


def test_a_sound_is_heard_as_transformers_hears_it(hearing: Rig) -> None:
    hears_like_the_reference(hearing)


def test_two_sounds_keep_their_order(hearing: Rig) -> None:
    """The reference tells their orders apart, so one that swaps them is found out."""
    low, parts = sweep(300, 1.0), [{"type": "audio"}, text(" and"), {"type": "audio"}]

    def say(first: np.ndarray, second: np.ndarray) -> str | None:
        return hearing.expected(parts, audio=[samples / np.float32(32768) for samples in (first, second)])

    others = [sweep(2000, 0.7), noise(1, 0.7), noise(2, 2.0), sweep(900, 1.6)]
    high = next((other for other in others if differ(say(low, other), say(other, low))), None)
    assert high is not None, "the reference hears no order in any two of these"
    for first, second in ((low, high), (high, low)):
        assert hearing.answer([sound(first), text(" and"), sound(second)]) == say(first, second)


def test_a_picture_is_seen_as_transformers_sees_it(seeing: Rig) -> None:
    sees_like_the_reference(seeing, 32)


def test_omni_hears_and_sees_as_transformers_does(both: Rig) -> None:
    hears_like_the_reference(both)
    sees_like_the_reference(both, 56)


@pytest.mark.parametrize("order", [("audio", "image"), ("image", "audio")])
def test_omni_hears_and_sees_in_one_message_as_transformers_does(both: Rig, order: tuple[str, str]) -> None:
    samples, told = sweep(300, 1.5), [*({"type": kind} for kind in order), WORDS]

    def say(shown: np.ndarray) -> str | None:
        heard = [samples / np.float32(32768)]
        return both.expected(told, audio=heard, images=[Image.fromarray(shown)])

    for shown, said in told_apart([pixels(seed, 56) for seed in range(5, 11)], say):
        ours = {"audio": sound(samples), "image": picture(shown)}
        assert both.answer([*(ours[kind] for kind in order), WORDS]) == said


@pytest.mark.parametrize("parts", [[sound(sweep(300, 0.5))] * 3, [picture(np.zeros((32, 32, 3), np.uint8))]])
def test_what_the_model_cannot_take_is_refused_and_the_engine_lives(
    hearing: Rig, parts: list[dict[str, Any]]
) -> None:
    """One sound more than the limit; a picture for ears."""
    with pytest.raises(EngineError) as refused:
        hearing.answer(parts)
    assert refused.value.code == "invalid_request"
    assert hearing.answer([text(" still there")])
