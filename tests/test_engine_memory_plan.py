"""Adding up GPU memory, naming what to lower, finding GPUs, and claiming them."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.engine.gpus import chosen_gpus, claim, find_gpus
from voice_agent.engine.memory_plan import GB, MARGIN_PART, Gpu, MemoryPlanError, Needs, Part, plan_memory
from voice_agent.errors import ConfigError

H200 = Gpu(0, "GPU-aaaa", "NVIDIA H200", 150 * GB, 149 * GB)
THINKER = Needs(
    "thinker",
    (0,),
    (Part("weights", 16 * GB, "thinker.model", spread=True), Part("work", 4 * GB, "engines.thinker.work_gb")),
    cache=Part("KV cache", 8 * GB, "engines.thinker.cache_gb"),
)
SPEECH = Needs(
    "speech",
    (0,),
    (Part("weights", 4 * GB, "talker.model"), Part("work", 3 * GB, "engines.speech.work_gb")),
    job_bytes=GB // 2,
    jobs=64,
    jobs_setting="talker.max_jobs",
)


def test_two_engines_on_one_gpu_are_added_up_and_the_cache_takes_what_is_left() -> None:
    plan = plan_memory([H200], [THINKER, SPEECH])
    assert plan.jobs == {"speech": 64}
    left = 149 * GB - 6 * GB - 28 * GB - 7 * GB - 32 * GB
    assert plan.share["thinker"] == pytest.approx((28 * GB + left) / (150 * GB), abs=0.001)
    assert plan.lines[0] == "GPU 0 (NVIDIA H200): 150.0 GB, 149.0 GB free"
    assert "  speech: 64 jobs at once 32.0 GB" in plan.lines
    assert any(line.startswith("  thinker: KV cache 84.0 GB (share 0.69") for line in plan.lines)


def test_tensor_parallel_spreads_the_weights_and_each_gpu_is_planned() -> None:
    second = replace(H200, index=1, uuid="GPU-bbbb", free_bytes=40 * GB)
    plan = plan_memory([H200, second], [replace(THINKER, devices=(0, 1)), SPEECH])
    assert sum("weights 8.0 GB" in line for line in plan.lines) == 2
    assert plan.share["thinker"] == pytest.approx((40 - 6) / 150, abs=0.001)  # the tighter one decides


def test_fewer_jobs_than_asked_for_are_told_with_the_setting() -> None:
    plan = plan_memory([replace(H200, free_bytes=30 * GB)], [SPEECH])
    assert plan.jobs == {"speech": 34}
    assert "  speech: 34 jobs at once 17.0 GB (talker.max_jobs asks for 64)" in plan.lines


def test_what_does_not_fit_is_refused_with_what_to_lower_largest_first() -> None:
    with pytest.raises(MemoryPlanError) as refused:
        plan_memory([replace(H200, free_bytes=40 * GB)], [THINKER, SPEECH])
    text = str(refused.value)
    assert "has 34.0 GB for the engines, and they need 35.5 GB at least" in text
    assert "110.0 GB are taken by other programs" in text
    assert text.index("thinker.model (16.0 GB)") < text.index("engines.thinker.cache_gb (8.0 GB)")
    assert "engines.<name>.devices" in text


@given(
    total=st.integers(1, 200),
    used=st.integers(0, 100),
    parts=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    cache=st.integers(0, 30),
    jobs=st.integers(1, 50),
)
def test_a_plan_never_promises_more_than_is_free(
    total: int, used: int, parts: list[int], cache: int, jobs: int
) -> None:
    gpu = Gpu(0, "u", "g", total * GB, max(0, total - used) * GB)
    sizes = tuple(Part("p", size * GB, "s") for size in parts)
    needs = [
        Needs("a", (0,), sizes, cache=Part("c", cache * GB, "c")),
        Needs("b", (0,), (), job_bytes=GB, jobs=jobs, jobs_setting="j"),
    ]
    least = sum(parts) + cache + 1
    try:
        plan = plan_memory([gpu], needs)
    except MemoryPlanError:
        assert least * GB > gpu.free_bytes - int(MARGIN_PART * gpu.total_bytes)
        return
    promised = plan.share["a"] * gpu.total_bytes + plan.jobs["b"] * GB
    assert promised <= gpu.free_bytes - int(MARGIN_PART * gpu.total_bytes)
    assert 1 <= plan.jobs["b"] <= jobs


# --- the GPUs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        ((3,), r"there is no GPU 3; there are: 0 \(NVIDIA H200\)"),
        ((0, 0), "GPU 0 is named twice"),
        ((-1,), "no GPU -1"),
    ],
)
def test_unknown_and_duplicate_devices_are_refused(devices: tuple[int, ...], text: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"engines.speech.devices: {text}" if "no GPU -1" not in text else text
    ):
        chosen_gpus([H200], devices, "engines.speech.devices")
    assert chosen_gpus([H200], (0,), "x") == [H200]


def test_a_gpu_has_one_server_and_the_second_is_told_which() -> None:
    gpu = replace(H200, uuid=f"GPU-test-{os.getpid()}")
    held = claim([gpu])
    with pytest.raises(ConfigError, match=rf"GPU 0 .* another voice-agent server \(process {os.getpid()}\)"):
        claim([gpu])
    held[0].close()
    again = claim([gpu])
    again[0].close()


OTHER_SERVER = """
import sys, time
from voice_agent.engine.gpus import claim
from voice_agent.engine.memory_plan import Gpu

held = claim([Gpu(0, sys.argv[1], "NVIDIA H200", 1, 1)])
print("holds", flush=True)
time.sleep(60)
"""


@pytest.mark.process
def test_a_server_that_was_killed_leaves_its_gpu_to_the_next() -> None:
    gpu = replace(H200, uuid=f"GPU-other-{os.getpid()}")
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER_SERVER, gpu.uuid], stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout is not None and other.stdout.readline() == "holds\n"
        with pytest.raises(
            ConfigError, match=rf"another voice-agent server \(process {other.pid}\): stop that"
        ):
            claim([gpu])
        other.kill()
        other.wait()
    claim([gpu])[0].close()


class Library:
    """NVML with one GPU; `refusals` are results of calls that fail."""

    def __init__(self, **refusals: int) -> None:
        self.refusals = refusals
        self.ended = False

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            if name in self.refusals:
                return self.refusals[name]
            match name:
                case "nvmlDeviceGetCount_v2":
                    arguments[0]._obj.value = 1
                case "nvmlDeviceGetName":
                    arguments[1].value = b"NVIDIA H200"
                case "nvmlDeviceGetUUID":
                    arguments[1].value = b"GPU-aaaa"
                case "nvmlDeviceGetMemoryInfo":
                    arguments[1]._obj.total, arguments[1]._obj.free = 150 * GB, 149 * GB
                case "nvmlShutdown":
                    self.ended = True
                case _:
                    pass
            return 0

        return call


def test_gpus_are_found_with_what_is_free() -> None:
    library = Library()
    assert find_gpus(lambda name: library) == [H200] and library.ended


@pytest.mark.parametrize(
    ("result", "text"), [(18, "different versions: reboot"), (9, "not loaded"), (999, "refused nvmlInit_v2")]
)
def test_a_driver_that_cannot_be_asked_says_why(result: int, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        find_gpus(lambda name: Library(nvmlInit_v2=result))


def test_without_a_driver_the_way_out_is_told() -> None:
    with pytest.raises(ConfigError, match=r"no NVIDIA driver here.*--gpus all"):
        find_gpus(lambda name: ctypes.CDLL("libnothing-of-this-name.so"))
