"""Engines placed on GPUs: specs, shares, refusals, before anything is loaded."""

import os
from pathlib import Path
from typing import Any

import pytest

from voice_agent.config_sources import load_config
from voice_agent.engine.memory_plan import GB, Gpu, MemoryPlanError
from voice_agent.engine.runtime import EngineSpec, TalkerOptions, ThinkerOptions
from voice_agent.errors import ConfigError
from voice_agent.placing import Placing, check_shm, place

GPUS = [Gpu(index, f"GPU-{index}-{os.getpid()}", "NVIDIA H200", 150 * GB, 149 * GB) for index in range(2)]


def placed(tmp_path: Path, lines: list[str] | None = None, **flags: Any) -> Placing:
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    options = flags.pop("options", {})
    base = {"thinker": {"family": "vllm", "options": options}, "engines": flags}
    config = load_config(environment={}, flags=base)
    folders = {"thinker": str(tmp_path), "speech": str(tmp_path)}
    return place(config, folders, (lines if lines is not None else []).append, lambda: GPUS)


def test_engines_get_their_gpus_and_the_thinker_its_share(tmp_path: Path) -> None:
    lines: list[str] = []
    placing = placed(tmp_path, lines, thinker={"devices": [1], "weights_gb": 16.0}, speech={"devices": [0]})
    try:
        spec = EngineSpec(kind="thinker", thinker=ThinkerOptions("vllm", "x"), env={"A": "b"})
        applied = placing.applied("thinker", spec)
        order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        assert applied.env == {"A": "b", "CUDA_VISIBLE_DEVICES": "1"} | order and applied.has_children
        assert applied.thinker is not None
        share, cache = (applied.thinker.extra[name] for name in ("gpu_memory_utilization", "kv_cache_bytes"))
        assert 0.9 < share < 0.96 and cache == pytest.approx(share * 150 * GB - 19 * GB, abs=GB)
        speech = placing.applied("speech", EngineSpec(kind="speech", talker=TalkerOptions("x", "y")))
        assert speech.env["CUDA_VISIBLE_DEVICES"] == "0" and not speech.has_children
        assert placing.jobs("speech", 32) == 32 and len(lines) > 6
        with pytest.raises(ConfigError, match="another voice-agent server"):
            placed(tmp_path, speech={"devices": [0]})
    finally:
        placing.close()


def test_a_thinker_on_several_gpus_is_spread_over_them(tmp_path: Path) -> None:
    placing = placed(tmp_path, thinker={"devices": [0, 1], "weights_gb": 16.0})
    try:
        applied = placing.applied("thinker", EngineSpec(kind="thinker", thinker=ThinkerOptions("vllm", "x")))
        assert applied.thinker is not None
        assert applied.thinker.extra["tensor_parallel_size"] == 2
        assert applied.env["CUDA_VISIBLE_DEVICES"] == "0,1"
    finally:
        placing.close()


def test_without_devices_no_gpu_is_looked_at_or_seen() -> None:
    placing = place(load_config(environment={}), {}, lambda line: None, lambda: pytest.fail("looked"))
    spec = EngineSpec(kind="speech", talker=TalkerOptions("x", "y"))
    assert placing.applied("speech", spec).env == {"CUDA_VISIBLE_DEVICES": ""}
    assert placing.jobs("speech", 7) == 7
    thinker = EngineSpec(kind="thinker", thinker=ThinkerOptions("vllm", "x"))
    assert placing.applied("thinker", thinker).has_children and not spec.has_children


@pytest.mark.parametrize(
    ("flags", "error", "text"),
    [
        ({"speech": {"devices": [2]}}, ConfigError, "engines.speech.devices: there is no GPU 2"),
        ({"speech": {"devices": [0, 0]}}, ConfigError, "engines.speech.devices: GPU 0 is named twice"),
        (
            {"speech": {"devices": [0], "weights_gb": 200.0}},
            MemoryPlanError,
            r"Lower one of: talker.model \(200",
        ),
        ({"thinker": {"devices": [0], "warm_spare": True}}, ConfigError, "engines.thinker.warm_spare"),
        ({"thinker": {"warm_spare": True}}, ConfigError, "engines.thinker.warm_spare: a vllm engine"),
        (
            {"thinker": {"devices": [0]}, "options": {"gpu_memory_utilization": 0.6}},
            ConfigError,
            "thinker.options.gpu_memory_utilization: .* planned; leave it out",
        ),
        (
            {"thinker": {"devices": [0, 1]}, "options": {"tensor_parallel_size": 4}},
            ConfigError,
            "tensor_parallel_size: 4 does not match the 2 GPUs of engines.thinker.devices",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, flags: dict[str, Any], error: type[ConfigError], text: str
) -> None:
    with pytest.raises(error, match=text):
        placed(tmp_path, **flags)


def test_weights_that_are_not_here_must_be_told(tmp_path: Path) -> None:
    config = load_config(environment={}, flags={"engines": {"speech": {"devices": [0]}}})
    with pytest.raises(ConfigError, match="engines.speech.weights_gb: the weights are not here"):
        place(config, {"speech": str(tmp_path)}, lambda line: None, lambda: GPUS)


def test_a_small_dev_shm_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"/dev/shm has 1 MB free .*--shm-size=1g"):
        check_shm(1_000_000)
    check_shm(65 << 20)
