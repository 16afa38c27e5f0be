"""What each engine takes of each GPU's memory, added up before anything is loaded: pure arithmetic, no device.

Planned, not hoped for: a plan that does not fit is refused with the settings to lower, largest first, instead of an
out-of-memory in somebody's sentence. From what is left come vLLM's share and how many replies the VoiceBox renders at
once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from voice_agent.errors import ConfigError

GB = 1_000_000_000
MARGIN_PART = 0.04  # of a GPU, for what no plan knows: fragmentation, another program's window


class MemoryPlanError(ConfigError):
    """The engines do not fit their GPUs; the text names what to lower."""

    code = "memory_plan"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as found: `index` counts as nvidia-smi does."""

    index: int
    uuid: str
    name: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Part:
    """Memory of one purpose. `setting` is what lowers it; `spread` parts are divided among the engine's GPUs."""

    name: str
    bytes: int
    setting: str
    spread: bool = False


@dataclass(frozen=True, slots=True)
class Needs:
    """One engine: its `parts`, a cache of at least `cache` that takes what is left, and jobs of `job_bytes` each."""

    engine: str
    devices: tuple[int, ...]
    parts: tuple[Part, ...]
    cache: Part | None = None
    job_bytes: int = 0
    jobs: int = 0
    jobs_setting: str = ""


@dataclass(slots=True)
class Plan:
    """By engine with a cache its `share` of a GPU's memory and its `cache` in bytes; by engine with jobs its `jobs`.

    `lines` are to be printed.
    """

    share: dict[str, float] = field(default_factory=dict[str, float])
    cache: dict[str, int] = field(default_factory=dict[str, int])
    jobs: dict[str, int] = field(default_factory=dict[str, int])
    lines: list[str] = field(default_factory=list[str])


def plan_memory(gpus: Sequence[Gpu], needs: Sequence[Needs]) -> Plan:
    """Plan all engines; raises MemoryPlanError naming what to lower. Devices are known to exist."""
    plan = Plan()
    for gpu in gpus:
        here = [need for need in needs if gpu.index in need.devices]
        if here:
            _plan_one(gpu, here, plan)
    return plan


def _plan_one(gpu: Gpu, needs: Sequence[Needs], plan: Plan) -> None:
    usable = gpu.free_bytes - int(MARGIN_PART * gpu.total_bytes)
    least = sum(_fixed(need) + _cache(need) + need.job_bytes * min(1, need.jobs) for need in needs)
    if least > usable:
        raise MemoryPlanError(_refusal(gpu, needs, least, usable))
    left = usable - sum(_fixed(need) + _cache(need) for need in needs)
    rows: list[str] = []
    for need in needs:
        rows += [f"  {need.engine}: {part.name} {_gb(_here(part, need))}" for part in need.parts]
        if need.job_bytes:
            jobs = min(need.jobs, left // need.job_bytes, plan.jobs.get(need.engine, need.jobs))
            plan.jobs[need.engine] = jobs
            left -= jobs * need.job_bytes
            fewer = "" if jobs == need.jobs else f" ({need.jobs_setting} asks for {need.jobs})"
            rows.append(f"  {need.engine}: {jobs} jobs at once {_gb(jobs * need.job_bytes)}{fewer}")
    growing = [need for need in needs if need.cache is not None]
    for need in growing:
        cache = _cache(need) + left // len(growing)
        share = math.floor((_fixed(need) + cache) / gpu.total_bytes * 1000) / 1000
        plan.share[need.engine] = min(share, plan.share.get(need.engine, 1.0))
        plan.cache[need.engine] = min(cache, plan.cache.get(need.engine, cache))
        rows.append(f"  {need.engine}: {need.cache and need.cache.name} {_gb(cache)} (share {share:g})")
    spare = 0 if growing else left
    head = f"GPU {gpu.index} ({gpu.name}): {_gb(gpu.total_bytes)}, {_gb(gpu.free_bytes)} free"
    plan.lines += [head, *rows, f"  unused {_gb(spare)}, kept back {_gb(gpu.free_bytes - usable)}"]


def _refusal(gpu: Gpu, needs: Sequence[Needs], least: int, usable: int) -> str:
    sizes: dict[str, int] = {}
    for need in needs:
        for part in (*need.parts, *([need.cache] if need.cache else [])):
            sizes[part.setting] = sizes.get(part.setting, 0) + _here(part, need)
    largest = sorted(sizes, key=lambda setting: -sizes[setting])
    others = gpu.total_bytes - gpu.free_bytes
    taken = f"; {_gb(others)} are taken by other programs" if others > MARGIN_PART * gpu.total_bytes else ""
    return (
        f"GPU {gpu.index} ({gpu.name}) has {_gb(usable)} for the engines, and they need {_gb(least)} at least{taken}. "
        f"Lower one of: {', '.join(f'{setting} ({_gb(sizes[setting])})' for setting in largest)}; "
        "or place an engine on another GPU with engines.<name>.devices"
    )


def _fixed(need: Needs) -> int:
    return sum(_here(part, need) for part in need.parts)


def _cache(need: Needs) -> int:
    return _here(need.cache, need) if need.cache else 0


def _here(part: Part, need: Needs) -> int:
    """What of it lies on each of the engine's GPUs."""
    return math.ceil(part.bytes / len(need.devices)) if part.spread else part.bytes


def _gb(size: int) -> str:
    return f"{size / GB:.1f} GB"
