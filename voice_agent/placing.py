"""Where the engines run: their GPUs found, claimed and planned before any process starts, and the specs adjusted.

An engine without `devices` runs on the CPU: it is shown no GPU, and nothing is planned for it. Sizes come from the
weights' files and from the configuration's measured figures.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from voice_agent.config import Config, EngineConfig
from voice_agent.engine.gpus import chosen_gpus, claim, find_gpus
from voice_agent.engine.memory_plan import GB, Gpu, Needs, Part, Plan, plan_memory
from voice_agent.engine.runtime import EngineSpec
from voice_agent.errors import ConfigError

WEIGHTS = ("*.safetensors", "*.gguf", "*.onnx", "*.bin", "*.pt", "*.pth")
CONCURRENT_FAMILIES = {"vllm"}  # with a cache that takes what is left, and processes of their own
KNOWN_GB = {  # weights that are fetched by their name, and random ones of a published shape
    "Qwen/Qwen3-8B": 16.4,
    "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice": 4.6,
    "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice": 2.6,
}
LEAST_SHM_BYTES = 64 << 20  # vLLM's own queues and NCCL live in /dev/shm


@dataclass
class Placing:
    """What was found and planned; `claims` are held as long as the server uses the GPUs."""

    gpus: dict[str, list[Gpu]] = field(default_factory=dict[str, list[Gpu]])  # by engine
    plan: Plan = field(default_factory=Plan)
    claims: list[socket.socket] = field(default_factory=list[socket.socket])

    def applied(self, engine: str, spec: EngineSpec) -> EngineSpec:
        """The engine's spec with its GPUs in the environment and its share of their memory."""
        concurrent = spec.thinker is not None and spec.thinker.family in CONCURRENT_FAMILIES
        if concurrent:
            spec = replace(spec, has_children=True)
        if engine not in self.gpus:
            return replace(spec, env={**spec.env, "CUDA_VISIBLE_DEVICES": ""})
        # numbers, not names: vLLM reads them as such; CUDA counts as nvidia-smi does only if told to
        visible = ",".join(str(gpu.index) for gpu in self.gpus[engine])
        env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": visible}
        spec = replace(spec, env={**spec.env, **env})
        if spec.thinker is None or not concurrent:
            return spec
        # the cache by its size: measured beside an engine that starts meanwhile, it would come out wrong
        planned = {
            "gpu_memory_utilization": self.plan.share[engine],
            "kv_cache_bytes": self.plan.cache[engine],
            "tensor_parallel_size": len(self.gpus[engine]),
        }
        return replace(spec, thinker=replace(spec.thinker, extra={**planned, **spec.thinker.extra}))

    def jobs(self, engine: str, wanted: int) -> int:
        """How many jobs at once fit."""
        return self.plan.jobs.get(engine, wanted)

    def close(self) -> None:
        """Give the GPUs up."""
        for own in self.claims:
            own.close()


def place(
    config: Config,
    folders: Mapping[str, str],
    tell: Callable[[str], None],
    find: Callable[[], list[Gpu]] = find_gpus,
    pool_bytes: int = 0,
) -> Placing:
    """Find, check, plan and claim; `folders` hold each engine's weights. Tells the plan.

    `pool_bytes`: what the Thinker takes for hidden rows. Raises ConfigError (MemoryPlanError if it does not fit),
    before anything is loaded.
    """
    engines = {"thinker": config.engines.thinker, "speech": config.engines.speech}
    placed = {name: engine for name, engine in engines.items() if engine.devices}
    if config.thinker.family in CONCURRENT_FAMILIES:
        _check_concurrent(config)
    if not placed:
        return Placing()
    gpus = find()
    chosen = {
        name: chosen_gpus(gpus, engine.devices, f"engines.{name}.devices") for name, engine in placed.items()
    }
    needs = [_needs(config, name, engine, folders.get(name, "")) for name, engine in placed.items()]
    if pool_bytes:
        pool = Part("hidden rows", pool_bytes, "talker.options.hidden")
        needs = [
            replace(need, parts=(*need.parts, pool)) if need.engine == "thinker" else need for need in needs
        ]
    plan = plan_memory(gpus, needs)
    if config.thinker.family in CONCURRENT_FAMILIES and "thinker" in placed:
        check_shm(os.statvfs("/dev/shm").f_bavail * os.statvfs("/dev/shm").f_frsize)
    claims = claim(list({gpu.uuid: gpu for engine in chosen.values() for gpu in engine}.values()))
    for line in plan.lines:
        tell(line)
    return Placing(chosen, plan, claims)


def check_shm(free_bytes: int) -> None:
    """Raise ConfigError when /dev/shm is too small for what vLLM puts there by itself."""
    if free_bytes < LEAST_SHM_BYTES:
        raise ConfigError(
            f"/dev/shm has {free_bytes / 1e6:.0f} MB free and vLLM needs {LEAST_SHM_BYTES / 1e6:.0f} MB there: "
            "start the container with --shm-size=1g or --ipc=host"
        )


def _check_concurrent(config: Config) -> None:
    """Refuse what such a Thinker cannot do, or what the plan decides. Raises ConfigError."""
    family, engine, options = config.thinker.family, config.engines.thinker, config.thinker.options
    if engine.warm_spare:
        raise ConfigError(
            f"engines.thinker.warm_spare: a {family} engine takes its whole share of the GPU, so a second one beside "
            "it has none"
        )
    if not engine.devices:
        return
    if told := sorted({"gpu_memory_utilization", "kv_cache_bytes"} & options.keys()):
        raise ConfigError(
            f"thinker.options.{told[0]}: with engines.thinker.devices its part of the memory is planned; leave it out, "
            "and set engines.thinker.cache_gb for a larger cache"
        )
    parallel = options.get("tensor_parallel_size")
    if parallel is not None and parallel != len(engine.devices):
        raise ConfigError(
            f"thinker.options.tensor_parallel_size: {parallel} does not match the {len(engine.devices)} GPUs of "
            "engines.thinker.devices; leave it out"
        )


def _needs(config: Config, name: str, engine: EngineConfig, folder: str) -> Needs:
    setting = f"engines.{name}"
    concurrent = name == "thinker" and config.thinker.family in CONCURRENT_FAMILIES
    copies = 2 if engine.warm_spare else 1
    model = config.thinker.model if name == "thinker" else config.talker.model
    weights = _weights_bytes(engine, folder, model, f"{setting}.weights_gb")
    parts = (
        Part("weights", copies * weights, f"{name if name == 'thinker' else 'talker'}.model", spread=True),
        Part("context, graphs, working memory", copies * int(engine.work_gb * GB), f"{setting}.work_gb"),
    )
    cache = Part("KV cache", int(engine.cache_gb * GB), f"{setting}.cache_gb") if concurrent else None
    if name == "thinker":
        return Needs(name, engine.devices, parts, cache)
    job_bytes = int(engine.job_gb * GB)
    return Needs(name, engine.devices, parts, None, job_bytes, config.talker.max_jobs, "talker.max_jobs")


def _weights_bytes(engine: EngineConfig, folder: str, model: str, setting: str) -> int:
    if told_gb := engine.weights_gb or (KNOWN_GB.get(model, 0.0) if not folder else 0.0):
        return int(told_gb * GB)
    size = _files_bytes(Path(folder), WEIGHTS) if folder else 0
    if not size:
        raise ConfigError(f"{setting}: the weights are not here to be measured; say how large they are")
    return size


def _files_bytes(folder: Path, patterns: Sequence[str]) -> int:
    return sum(file.stat().st_size for pattern in patterns for file in folder.rglob(pattern))
