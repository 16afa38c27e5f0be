"""Which engine process a configuration asks for."""

from pathlib import Path

import pytest

from voice_agent.config import load_config
from voice_agent.engines import model_names, speech_spec, store_of, thinker_spec
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


def test_cloned_voices_go_to_the_speech_engine_that_can_clone(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    clones = '[talker.clones]\nanna = { file = "anna.wav", text = "Hello." }\n'
    file.write_text(f'[talker]\nfamily = "qwen3-tts"\nmodel = "/m"\noptions = {{ slots = 8 }}\n{clones}')
    config = load_config(file, environment={})
    spec = speech_spec(config, store_of(config))
    assert spec.talker is not None
    assert spec.talker.extra == {"slots": 8, "clones": {"anna": {"file": "anna.wav", "text": "Hello."}}}
    file.write_text(clones)
    with pytest.raises(ConfigError, match=r"talker\.clones: family piper"):
        load_config(file, environment={})
