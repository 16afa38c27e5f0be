"""Profile gpu-cascade before anything is loaded: the examples are right, and both engines are planned on one card."""

import os
from pathlib import Path

import pytest

from voice_agent.config import Config
from voice_agent.config_sources import load_config
from voice_agent.engine.memory_plan import GB, Gpu, MemoryPlanError
from voice_agent.engines import model_names, speech_spec, store_of, thinker_spec
from voice_agent.errors import ConfigError
from voice_agent.placing import Placing, place

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
H200 = Gpu(0, f"GPU-cascade-{os.getpid()}", "NVIDIA H200", 150_754_820_096, 150 * GB)
SCRIPTED = {"recognizer": {"family": "scripted", "model": ""}}


def example(name: str, folder: Path) -> Config:
    """As it stands, with its folder of a model without weights where a test may write."""
    config = load_config(EXAMPLES / name, environment={}, flags=SCRIPTED)
    if not Path(config.thinker.model).is_absolute():
        return config
    (folder / "config.json").write_text("{}")
    return load_config(EXAMPLES / name, environment={}, flags=SCRIPTED | {"thinker": {"model": str(folder)}})


def placed(config: Config, lines: list[str], gpu: Gpu = H200) -> Placing:
    return place(config, {}, lines.append, lambda: [gpu])


@pytest.mark.parametrize("name", ["gpu.toml", "gpu-dummy.toml"])
def test_both_engines_of_an_example_fit_one_card(name: str, tmp_path: Path) -> None:
    config, lines = example(name, tmp_path), list[str]()
    store = store_of(config)
    placing = placed(config, lines)
    try:
        thinker = placing.applied("thinker", thinker_spec(config, store))
        speech = placing.applied("speech", speech_spec(config, store))
    finally:
        placing.close()
    assert thinker.thinker is not None and speech.talker is not None
    assert (thinker.thinker.family, speech.talker.family) == ("vllm", "qwen3-tts")
    assert thinker.env["CUDA_VISIBLE_DEVICES"] == speech.env["CUDA_VISIBLE_DEVICES"] == "0"
    assert thinker.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"  # vLLM reads the number as nvidia-smi's
    cache = thinker.thinker.extra["kv_cache_bytes"]
    fixed = (16.4 + 6.0 + 4.6 + 28.0) * GB
    assert 80 * GB < cache < 0.96 * H200.total_bytes - fixed
    share = thinker.thinker.extra["gpu_memory_utilization"]
    assert (
        share * H200.total_bytes <= H200.free_bytes - (4.6 + 28.0) * GB
    )  # what vLLM asks for is free beside us
    assert placing.jobs("speech", config.talker.max_jobs) == 96
    assert any(line.startswith("  thinker: KV cache") for line in lines)


def test_a_smaller_card_takes_fewer_slots_and_is_refused_as_it_is(tmp_path: Path) -> None:
    small = Gpu(0, H200.uuid, "NVIDIA L40S", 48 * GB, 47 * GB)
    with pytest.raises(MemoryPlanError, match=r"engines.speech.work_gb \(28.0 GB\)"):
        placed(example("gpu.toml", tmp_path), [], small)
    flags = SCRIPTED | {"engines": {"speech": {"work_gb": 10.0}}}
    placed(load_config(EXAMPLES / "gpu.toml", environment={}, flags=flags), [], small).close()


def test_another_name_needs_its_size() -> None:
    flags = SCRIPTED | {"thinker": {"model": "Qwen/Qwen3-32B"}}
    with pytest.raises(ConfigError, match="engines.thinker.weights_gb: the weights are not here"):
        placed(load_config(EXAMPLES / "gpu.toml", environment={}, flags=flags), [])


def test_the_profile_pulls_what_it_hears_with_and_no_voice() -> None:
    assert model_names(load_config(environment={"VOICE_AGENT_PROFILE": "gpu-cascade"})) == [
        "silero-vad",
        "smart-turn",
        "whisper-tiny.en",
    ]
