"""Which engine process a configuration asks for."""

from pathlib import Path
from typing import Any

import pytest

from voice_agent.config import load_config
from voice_agent.engines import model_names, store_of, thinker_spec
from voice_agent.errors import ConfigError


def test_a_thinker_on_vllm_is_a_hugging_face_name_and_may_start_slowly(tmp_path: Path) -> None:
    flags = {"recognizer": {"family": "scripted", "model": ""}, "models": {"cache": str(tmp_path)}}
    config = load_config(environment={}, flags={"profile": "gpu-cascade", **flags})  # type: ignore[dict-item]
    spec = thinker_spec(config, store_of(config))
    assert spec.thinker is not None
    assert (spec.thinker.family, spec.thinker.folder) == ("vllm", "Qwen/Qwen3-8B")
    assert spec.limits.start_s >= 600
    assert spec.nice == 0
    assert "Qwen/Qwen3-8B" not in model_names(config)


def test_a_thinker_on_vllm_may_be_a_folder_with_options(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(
        '[recognizer]\nfamily = "scripted"\nmodel = ""\n[thinker]\nfamily = "vllm"\nmodel = "~/llm"\n'
        'options = { dtype = "bfloat16", tensor_parallel_size = 2 }\n'
    )
    config = load_config(file, environment={})
    spec = thinker_spec(config, store_of(config))
    assert spec.thinker is not None
    assert spec.thinker.folder == str(Path.home() / "llm")
    assert spec.thinker.extra == {"dtype": "bfloat16", "tensor_parallel_size": 2}


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            {"thinker": {"model": "whisper-tiny.en"}},
            "thinker.model: .* for recognizer, not for thinker; .*smollm2",
        ),
        ({"recognizer": {"model": "piper-joe"}}, "recognizer.model: .* for talker, .* whisper-base"),
        ({"talker": {"model": "silero-vad"}}, "talker.model: .* for vad, not for talker; .* piper-joe"),
        (
            {"talker": {"model": "kokoro-82m"}},
            "talker.family: 'kokoro-82m' is of family 'kokoro', not 'piper'",
        ),
        (
            {"recognizer": {"language": "ko"}},
            "recognizer.language: .* hears English only, not 'ko'; whisper-base",
        ),
    ],
)
def test_a_model_in_the_wrong_place_is_refused_before_anything_is_fetched(
    flags: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        model_names(load_config(environment={}, flags=flags))


@pytest.mark.parametrize(
    "flags",
    [
        {"recognizer": {"language": "en-US"}},
        {"recognizer": {"model": "whisper-base", "language": "ko"}},
        {"talker": {"model": "kokoro-82m", "family": "kokoro"}},
        {"thinker": {"model": "whisper-tiny.en", "url": "http://x/v1"}},
    ],
)
def test_a_model_in_its_place_is_named(flags: dict[str, Any]) -> None:
    assert model_names(load_config(environment={}, flags=flags))
