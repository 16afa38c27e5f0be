"""Hidden rows in the server: who gets a pool, what it takes, and rows that reach a Talker by their names."""

import ctypes
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fake_cuda import FakeCuda, Host
from voice_agent.config_sources import load_config
from voice_agent.engine.cuda_ipc import DeviceWriter, device_pool
from voice_agent.engine.memory_plan import GB, Gpu
from voice_agent.engine.messages import RowsRef
from voice_agent.engine.row_store import RowsMissing, RowStore
from voice_agent.engine.runtime import EngineSpec, TalkerOptions, ThinkerOptions
from voice_agent.engine.shared_memory import BlockWriter, SharedMemoryPool
from voice_agent.errors import ConfigError
from voice_agent.hidden_rows import HiddenPool, hidden_pool
from voice_agent.models.vllm_rows import Picked, pool_shape
from voice_agent.placing import place

Probe = Callable[[int, int], str]

WANTS = {"family": "scripted", "model": "", "options": {"hidden": "last+embedding"}}


def made(
    tmp_path: Path, lines: list[str] | None = None, probe: Probe = lambda _w, _r: "", **flags: Any
) -> HiddenPool | None:
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 64, "torch_dtype": "bfloat16"}))
    base = {"thinker": {"family": "vllm", "model": str(tmp_path)}, "talker": WANTS}
    config = load_config(environment={}, flags={**base, **flags})
    return hidden_pool(config, (lines if lines is not None else []).append, probe)


def test_nobody_who_wants_none_gets_a_pool(tmp_path: Path) -> None:
    assert made(tmp_path, talker={"family": "scripted", "model": ""}) is None


def test_both_engines_are_told_of_one_pool(tmp_path: Path) -> None:
    options = {"max_num_seqs": 5}
    thinker = {"family": "vllm", "model": str(tmp_path), "options": options}
    pool = made(tmp_path, thinker=thinker)
    assert pool is not None
    with closing(pool):
        assert pool.memory.shape == pool_shape("last+embedding", 64, 2, slots=32, rows=5)
        writer = pool.applied(EngineSpec(kind="thinker", thinker=ThinkerOptions("vllm", "x", extra=options)))
        reader = pool.applied(EngineSpec(kind="speech", talker=TalkerOptions("scripted", "")))
        assert writer.thinker is not None and reader.talker is not None
        told = {"hidden": "last+embedding", "hidden_pool": pool.memory.address, "hidden_via": "host"}
        assert reader.talker.extra == told
        assert writer.thinker.extra == {**options, **told}


@pytest.mark.parametrize(
    ("thinker", "speech", "reason", "via"),
    [
        ([0], [0], "", "device"),
        ([0], [0], "no such thing", "host"),
        ([0], [1], "", "host"),
        ([0], [], "", "host"),
    ],
)
def test_device_memory_only_on_one_gpu_where_it_works(
    tmp_path: Path, thinker: list[int], speech: list[int], reason: str, via: str
) -> None:
    lines: list[str] = []
    engines = {"thinker": {"devices": thinker}, "speech": {"devices": speech}}
    pool = made(tmp_path, lines, lambda _writer, _reader: reason, engines=engines)
    assert pool is not None
    with closing(pool):
        assert pool.via == via
        assert bool(pool.device_bytes) == (via == "device")
        assert any(reason in line for line in lines)


def test_the_plan_counts_the_pool(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    lines: list[str] = []
    gpu = Gpu(0, "GPU-hidden", "NVIDIA H200", 150 * GB, 149 * GB)
    config = load_config(
        environment={}, flags={"thinker": {"family": "vllm"}, "engines": {"thinker": {"devices": [0]}}}
    )
    placing = place(config, {"thinker": str(tmp_path)}, lines.append, lambda: [gpu], pool_bytes=3 * GB)
    with closing(placing):
        assert "  thinker: hidden rows 3.0 GB" in lines


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"talker": {**WANTS, "family": "piper", "model": "piper-joe"}}, "no such option of piper"),
        ({"thinker": {"family": "scripted", "model": ""}}, "only a Thinker of the family vllm"),
        ({"thinker": {"family": "vllm", "model": "Qwen/Qwen3-8B"}}, "should be a folder here"),
        ({"talker": {**WANTS, "options": {"hidden": "first"}}}, "none of last"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, flags: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        made(tmp_path, **flags)


# --- the reading side -----------------------------------------------------------------------------------------------


@pytest.fixture
def pool() -> Iterator[SharedMemoryPool]:
    pool = SharedMemoryPool.create(pool_shape("last", 4, 2, slots=2, rows=3))
    yield pool
    pool.close()


def write(writer: BlockWriter, *names: tuple[int, int]) -> None:
    lease = writer.lease(1.0)
    assert lease is not None
    for at, (key, number) in enumerate(names):
        lease.buffer[8 * at : 8 * at + 8] = bytes([key, number]) * 4
    notes = Picked([], np.array(names)).notes()
    lease.notes[: len(notes)] = notes
    lease.publish(len(names))


def test_rows_come_by_their_names_however_the_steps_mixed_them(pool: SharedMemoryPool) -> None:
    writer = pool.writer()
    with closing(RowStore(pool.address, "host")) as store:
        for number in range(4):  # more steps than slots: the store takes them without being asked
            write(writer, (1, number), (2, number + 10))
        assert store.read(RowsRef(2, 11, 14)).tolist() == [[2, number] * 4 for number in (11, 12, 13)]
        assert store.read(RowsRef(1, 0, 4)).tolist() == [[1, number] * 4 for number in range(4)]


class EagerCuda(FakeCuda):
    """A device that works as soon as it is asked."""

    def enter(self) -> None:
        """Any thread may use it."""

    def record(self, event: int, stream: int) -> None:
        super().record(event, stream)
        self.run(stream)


def test_rows_on_a_device_come_by_their_names_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first row at once; later ones, of which several steps are read at once, in time for who waits."""
    host = Host()
    writing, reading = EagerCuda(host), EagerCuda(host)

    def reader(_device: int) -> EagerCuda:
        return reading

    monkeypatch.setattr("voice_agent.engine.cuda_driver.LibCuda", reader)
    pool = device_pool(pool_shape("last", 4, 2, slots=4, rows=3))
    source, writer = writing.allocate(3 * 8), DeviceWriter(pool, writing)

    def step(*names: tuple[int, int]) -> None:
        for at, name in enumerate(names):
            ctypes.memmove(source + 8 * at, bytes(name) * 4, 8)
        notes = np.array(names, np.int64).tobytes()
        assert writer.send(source, len(names), 1, timeout_s=5.0, notes=notes) is not None

    with closing(pool), closing(RowStore(pool.address, "device")) as store:
        step((1, 0), (2, 10))
        assert store.read(RowsRef(1, 0, 1)).tolist() == [[1, 0] * 4]
        for number in range(1, 9):  # more steps than slots
            step((1, number), (2, number + 10))
        assert store.read(RowsRef(2, 10, 19)).tolist() == [[2, number] * 4 for number in range(10, 19)]
        assert store.read(RowsRef(1, 1, 9)).tolist() == [[1, number] * 4 for number in range(1, 9)]


def test_rows_that_never_come_are_an_error_and_what_came_stays(
    pool: SharedMemoryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_agent.engine.row_store.WAIT_S", 0.05)
    writer = pool.writer()
    with closing(RowStore(pool.address, "host")) as store:
        write(writer, (1, 0))
        with pytest.raises(RowsMissing, match="0 to 2"):
            store.read(RowsRef(1, 0, 2))
        write(writer, (1, 1))
        assert np.array_equal(store.read(RowsRef(1, 0, 2))[:, 1], [0, 1])
        with pytest.raises(RowsMissing):
            store.read(RowsRef(1, 0, 2))  # once read they are gone


def test_the_oldest_reply_is_forgotten_first(pool: SharedMemoryPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voice_agent.engine.row_store.WAIT_S", 0.2)
    writer = pool.writer()
    with closing(RowStore(pool.address, "host", most_bytes=5 * 8)) as store:
        for key in (1, 2, 3):
            write(writer, (key, 0), (key, 1))
        assert len(store.read(RowsRef(3, 0, 2))) == 2
        with pytest.raises(RowsMissing):
            store.read(RowsRef(1, 0, 2))
        assert len(store.read(RowsRef(2, 0, 2))) == 2
