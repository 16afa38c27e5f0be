"""What a person is told when llama.cpp cannot load a model."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.model_weights import weights
from tests.test_models_llama_weights import MIXED, gguf_file
from voice_agent.engine.host_memory import MemoryLeft, memory_left
from voice_agent.models.gguf_file import map_file, read_head
from voice_agent.models.llama_failure import WORKING_BYTES, Load, why_not

REFUSED = RuntimeError("Failed to init server")


@pytest.mark.parametrize(
    ("left", "error"),
    [
        (MemoryLeft(WORKING_BYTES // 2, "of the process's limit"), REFUSED),
        (MemoryLeft(WORKING_BYTES * 100, "of the process's limit"), MemoryError()),
    ],
)
def test_too_little_host_memory_is_named_with_what_was_left(
    tmp_path: Path, left: MemoryLeft, error: Exception
) -> None:
    text = why_not(Load(gguf_file(tmp_path / "m.gguf", MIXED), 4096, left), error)
    assert "out of host memory" in text and "weights take" in text and "thinker.context_tokens" in text
    assert f"{left.size / 1e6:.0f} MB were left of the process's limit" in text


@pytest.mark.parametrize("left", [None, MemoryLeft(1 << 50, "of the machine's")])
def test_with_memory_enough_it_is_something_else(tmp_path: Path, left: MemoryLeft | None) -> None:
    text = why_not(Load(gguf_file(tmp_path / "m.gguf", MIXED), 4096, left), REFUSED)
    assert "memory" not in text and "Failed to init server" in text and "lines above" in text


def test_a_broken_head_is_named_before_memory(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF but no more")
    text = why_not(Load(tmp_path / "m.gguf", 4096, MemoryLeft(0, "of the machine's")), REFUSED)
    assert "fetch the file again" in text and "memory" not in text


def test_a_parted_model_is_as_large_as_its_parts(tmp_path: Path) -> None:
    for part in (1, 2, 3):
        whole = gguf_file(tmp_path / f"m-0000{part}-of-00003.gguf", MIXED)
        with whole.open("ab") as file:
            file.truncate(5_000_000)
    text = why_not(Load(tmp_path / "m-00001-of-00003.gguf", 4096, MemoryLeft(0, "here")), REFUSED)
    assert "weights take 15 MB" in text


def test_what_is_left_is_the_tighter_of_machine_and_process(tmp_path: Path) -> None:
    meminfo, statm, none = tmp_path / "meminfo", tmp_path / "statm", tmp_path / "none"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:  2048 kB\n")
    statm.write_text("0 0 0 0 0 0 0\n")
    assert memory_left(meminfo, statm) == MemoryLeft(2 << 20, "of the machine's")
    meminfo.write_text("odd")
    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    assert limited or memory_left(meminfo, statm) is memory_left(none, none) is None


LOADING = """
import resource, sys
from pathlib import Path
from voice_agent.engine.runtime import ThinkerOptions
from voice_agent.models import llama

used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
llama.load(Path(sys.argv[1]), ThinkerOptions("llama", "", threads=1, context_tokens=int(sys.argv[3])))
"""


@pytest.mark.weights
@pytest.mark.parametrize(
    ("room_bytes", "context_tokens", "says"),
    [
        (200_000_000, 4096, "weights take"),  # the file cannot be mapped
        (1_000_000_000, 100_000, "a context of 100000 tokens 2304 MB"),
    ],
)
def test_llama_without_memory_says_so(room_bytes: int, context_tokens: int, says: str) -> None:
    folder = str(weights("smollm2-135m"))
    loading = [sys.executable, "-c", LOADING, folder, str(room_bytes), str(context_tokens)]
    done = subprocess.run(loading, check=False, capture_output=True, text=True, timeout=60)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and "out of host memory" in last and says in last
    assert "this process's limit (ulimit -v)" in last


@pytest.mark.weights
def test_a_context_s_size_is_read_from_the_head() -> None:
    model = next(weights("qwen2.5-coder-0.5b").glob("*.gguf"))
    assert read_head(map_file(model)).numbers[b"qwen2.block_count"] == 24
    text = why_not(Load(model, 1000, MemoryLeft(0, "here")), REFUSED)
    assert "a context of 1000 tokens 12 MB" in text  # 24 layers of keys and values, 2 heads of 64, 16 bits
