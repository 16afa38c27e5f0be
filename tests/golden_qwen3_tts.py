"""Ask the published implementation (PyPI qwen-tts) for its answers on small random weights; run by hand.

    python -m tests.golden_qwen3_tts          in an environment of its own with qwen-tts, its pins and msgspec
Writes tests/data/qwen3_tts.npz: codes chosen greedily, waveforms, logits after the published samplers. A run is
refused when two candidates were ever so close that rounding could decide between them.
"""

# ruff: noqa: T201
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false

import importlib.machinery
import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from tests import qwen3_tts_small as small
from tests.qwen3_tts_cases import CASES, SAMPLER_CASES, Case, sampler_inputs
from tests.qwen3_tts_tokens import TEXTS, write_tokenizer

DATA = Path(__file__).parent / "data" / "qwen3_tts.npz"
CLOSEST = 5e-5  # least gap between the best two logits of any choice; float32 differences are below 1e-5


def without_torchaudio() -> None:
    """Only the 25 Hz codec, which is not asked, uses torchaudio."""
    for name in ("torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi"):
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name] = module
    sys.modules["torchaudio.compliance"].kaldi = sys.modules["torchaudio.compliance.kaldi"]


without_torchaudio()
from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSConfig  # noqa: E402
from qwen_tts.core.models.modeling_qwen3_tts import Qwen3TTSForConditionalGeneration  # noqa: E402
from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import (  # noqa: E402
    Qwen3TTSTokenizerV2DecoderConfig,
)
from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import (  # noqa: E402
    Qwen3TTSTokenizerV2Decoder,
)


def published_model(model_type: str) -> Any:
    """The published Talker, Code Predictor and (Base) speaker encoder with the test's weights."""
    config = json.loads(msgspec.json.encode(small.CONFIG))
    talker = config["talker_config"]
    talker["rope_scaling"] = {"rope_type": "default", "mrope_section": [4, 2, 2], "interleaved": True}
    config["tts_model_type"] = model_type
    config["speaker_encoder_config"] = json.loads(msgspec.json.encode(small.SPEAKER))
    model = Qwen3TTSForConditionalGeneration(Qwen3TTSConfig(**config)).eval()
    fill(model, "")
    return model


def published_decoder(config: Any) -> Any:
    settings = json.loads(msgspec.json.encode(config))
    decoder = Qwen3TTSTokenizerV2Decoder._from_config(Qwen3TTSTokenizerV2DecoderConfig(**settings)).eval()
    fill(decoder, "decoder.")
    return decoder


def fill(model: Any, prefix: str) -> None:
    """Give every parameter the value of its name."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            tensor.copy_(small.values(prefix + name, tuple(tensor.shape)))


class Gaps:
    """The smallest distance between the two best candidates of any choice, after all published processors."""

    def __init__(self) -> None:
        self.least = float("inf")

    def watch(self, generator: Any) -> None:
        build = generator._get_logits_processor

        def build_and_watch(*args: Any, **kwargs: Any) -> Any:
            steps = build(*args, **kwargs)
            steps.append(self)
            return steps

        generator._get_logits_processor = build_and_watch

    def __call__(self, before: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        best = scores.topk(2).values
        self.least = min(self.least, float((best[:, 0] - best[:, 1]).min()))
        return scores


def answer(model: Any, case: Case, **more: Any) -> np.ndarray:
    """The frames that the published generate() makes of a case, [n, 16]."""
    clone = None
    if case.clone:
        codes = torch.tensor(case.reference_codes) if case.reference_codes else None
        clone = {
            "ref_code": [codes],
            "ref_spk_embedding": [small.speaker_vector()],
            "x_vector_only_mode": [codes is None],
            "icl_mode": [codes is not None],
        }
    chosen, _ = model.generate(
        input_ids=[torch.tensor([case.template()])],
        instruct_ids=[torch.tensor([case.instruction]) if case.instruction else None],
        ref_ids=[torch.tensor([case.reference_template()])],
        voice_clone_prompt=clone,
        languages=[case.language],
        speakers=[case.voice],
        non_streaming_mode=case.whole_text,
        max_new_tokens=case.most_frames + 1,
        do_sample=False,
        subtalker_dosample=False,
        **more,
    )
    return chosen[0].numpy()


def talk(arrays: dict[str, np.ndarray]) -> None:
    gaps = Gaps()
    for model_type in ("custom_voice", "base"):
        model = published_model(model_type)
        gaps.watch(model.talker)
        gaps.watch(model.talker.code_predictor)
        for case in CASES:
            if case.clone == (model_type == "base"):
                arrays[f"codes.{case.name}"] = answer(model, case).astype(np.int16)
                print(case.name, arrays[f"codes.{case.name}"].shape, f"gap {gaps.least:.5f}")
    assert gaps.least > CLOSEST, gaps.least


@torch.no_grad()
def sound(arrays: dict[str, np.ndarray]) -> None:
    for name, (config, codes) in small.SOUNDS.items():
        wave = published_decoder(config)(codes.transpose(1, 2))[:, 0]
        arrays[f"sound.{name}"] = wave.numpy()
        print(name, wave.shape, f"rms {wave.square().mean().sqrt():.3f}")


CLIPS = (26_000, 19_200)  # samples: one ends inside a frame


@torch.no_grad()
def cloning(arrays: dict[str, np.ndarray]) -> None:
    """Speaker vectors and codes of clips; the codes come from the whole published tokenizer model."""
    from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Config
    from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Model

    settings = json.loads(msgspec.json.encode(small.CODEC))
    settings["encoder_config"] |= {"frame_rate": 12.5, "upsample_groups": 16, "sliding_window": 7}
    codec = Qwen3TTSTokenizerV2Model(Qwen3TTSTokenizerV2Config(**settings)).eval()
    fill(codec, "")
    model = published_model("base")
    for count in CLIPS:
        clip = small.clip(count)
        arrays[f"speaker.{count}"] = model.extract_speaker_embedding(clip.numpy(), 24_000).numpy()
        codes = codec.encode(clip[None], torch.ones((1, count), dtype=torch.int32)).audio_codes[0]
        arrays[f"clip.{count}"] = codes.numpy().astype(np.int16)
        print("clip", tuple(codes.shape), "different codes:", len(set(codes.flatten().tolist())))


def samplers(arrays: dict[str, np.ndarray]) -> None:
    """What the published order of processors leaves of given logits."""
    from transformers.generation import logits_process as published

    talker = small.TALKER
    control = range(small.CODES, talker.vocab_size)
    for name, (temperature, top_k, top_p, penalty) in SAMPLER_CASES.items():
        logits, before = sampler_inputs(name)
        eos = talker.codec_eos_token_id
        steps = published.LogitsProcessorList(
            [
                published.RepetitionPenaltyLogitsProcessor(penalty),
                published.MinNewTokensLengthLogitsProcessor(0, 2, eos, device="cpu"),
                published.SuppressTokensLogitsProcessor([i for i in control if i != eos], device="cpu"),
                published.TemperatureLogitsWarper(temperature),
                published.TopKLogitsWarper(top_k),
                published.TopPLogitsWarper(top_p),
            ]
        )
        arrays[f"chances.{name}"] = steps(before, logits).softmax(-1).numpy()


def tokens(arrays: dict[str, np.ndarray]) -> None:
    """Ids of whole templates, as the published wrapper tokenizes them."""
    from transformers import Qwen2TokenizerFast

    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder))
        tokenizer = Qwen2TokenizerFast.from_pretrained(folder)
        for at, text in enumerate(TEXTS):
            whole = f"<|im_start|>assistant\n{text}<|im_end|>\n<|im_start|>assistant\n"
            arrays[f"tokens.{at}"] = np.array(tokenizer(whole)["input_ids"], dtype=np.int16)
        turn = "<|im_start|>user\nhello world<|im_end|>\n"
        arrays["tokens.instruction"] = np.array(tokenizer(turn)["input_ids"], dtype=np.int16)


if __name__ == "__main__":
    torch.set_num_threads(1)
    answers: dict[str, np.ndarray] = {}
    talk(answers)
    sound(answers)
    samplers(answers)
    tokens(answers)
    cloning(answers)
    DATA.parent.mkdir(exist_ok=True)
    np.savez_compressed(DATA, allow_pickle=False, **answers)
    print(DATA.name, DATA.stat().st_size, "bytes")
