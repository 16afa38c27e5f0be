"""A pool between real processes: killed on either side, full, too large, gone."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

from voice_agent.engine import shared_memory
from voice_agent.engine.host_memory import available_bytes
from voice_agent.engine.shared_memory import SharedMemoryPool
from voice_agent.engine.slots import Shape
from voice_agent.errors import SharedMemoryError, SlotStale

PEER = Path(__file__).with_name("pool_peer.py")


@contextlib.contextmanager
def a_pool(slots: int = 4, rows: int = 4, row_bytes: int = 16) -> Generator[SharedMemoryPool]:
    pool = SharedMemoryPool.create(Shape(slots, rows, row_bytes))
    try:
        yield pool
    finally:
        pool.close()


@contextlib.contextmanager
def peer(side: str, pool: SharedMemoryPool, mode: str) -> Generator[subprocess.Popen[str]]:
    """A process on one side of the pool."""
    process = subprocess.Popen(
        [sys.executable, str(PEER), side, pool.address, mode], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_a_block_arrives_as_it_was_written_and_its_slot_comes_back() -> None:
    with a_pool(slots=2) as pool:
        writer, reader = pool.writer(), SharedMemoryPool.attach(pool.address).reader()
        for number in range(9):
            lease = writer.lease()
            assert lease is not None
            np.frombuffer(lease.buffer, np.uint8)[:] = number
            sent = lease.publish(3, tag=number, stamp_ns=5)
            got = reader.take()
            assert got is not None and got.ref == sent and got.ref.stamp_ns == 5
            assert bytes(got.buffer) == bytes([number]) * 48
            got.release()
            with pytest.raises(SlotStale):
                _ = got.buffer
            with pytest.raises(SlotStale):
                got.release()
        assert pool.table.free() == 2
        reader.pool.close()


def test_a_full_pool_makes_the_writer_wait_and_drops_nothing() -> None:
    with a_pool(slots=3) as pool:
        writer, reader = pool.writer(), pool.reader()
        for tag in range(3):
            lease = writer.lease()
            assert lease is not None
            lease.publish(1, tag)
        started_s = time.monotonic()
        assert writer.lease() is None and writer.lease(0.05) is None
        assert time.monotonic() - started_s >= 0.05
        taken = [reader.take() for _ in range(3)]
        assert [lease.ref.tag for lease in taken if lease] == [0, 1, 2] and reader.take() is None
        for lease in taken:
            assert lease is not None
            lease.release()
        lease = writer.lease()
        assert lease is not None
        lease.give_up()
        assert pool.table.free() == 3


def test_each_side_has_one_holder_and_a_side_that_was_left_can_be_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_memory, "_CLAIM_S", 0.02)
    with a_pool() as pool:
        writer, reader = pool.writer(), pool.reader()
        with pytest.raises(SharedMemoryError, match="living writer"):
            pool.writer()
        with pytest.raises(SharedMemoryError, match="living reader"):
            SharedMemoryPool.attach(pool.address).reader()
        lease = writer.lease()
        assert lease is not None
        lease.publish(1, 7)
        writer.lease()  # never published
        assert pool.incarnation == 1
        writer.close()
        reader.close()
        assert pool.table.free() == 3
        pool.writer()
        again = pool.reader().take()
        assert again is not None and again.ref.tag == 7 and pool.incarnation == 2


def test_nothing_is_left_in_dev_shm_and_the_memory_cannot_be_cut_by_anyone() -> None:
    before = set(os.listdir("/dev/shm"))
    with a_pool() as pool:
        assert set(os.listdir("/dev/shm")) == before
        with open(pool.address, "r+b") as file, pytest.raises(PermissionError):
            file.truncate(0)
        address = pool.address
    with pytest.raises(SharedMemoryError, match="is gone"):
        SharedMemoryPool.attach(address)


def test_an_array_over_a_block_outlives_the_pool() -> None:
    pool = SharedMemoryPool.create(Shape(2, 1, 8))
    lease = pool.writer().lease()
    assert lease is not None
    array = np.frombuffer(lease.buffer, np.uint8)
    pool.close()
    pool.close()
    assert array.sum() == 0


def test_a_pool_that_does_not_fit_is_refused_before_anything_is_taken() -> None:
    with pytest.raises(
        SharedMemoryError, match=r"a pool of 8\d{6} MB does not fit: \d+ MB of memory are free"
    ):
        SharedMemoryPool.create(Shape(8, 1, 1_000_000_000_000))


@pytest.mark.parametrize(
    ("number", "said"), [(errno.ENOSPC, "does not fit"), (errno.EPERM, "cannot be reserved: Operation not")]
)
def test_a_reservation_the_kernel_refuses_is_explained(
    monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def refuse(descriptor: int, offset: int, size: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(SharedMemoryError, match=said):
        SharedMemoryPool.create(Shape(2, 1, 8))
    assert len(os.listdir("/proc/self/fd")) == before


def test_memory_that_holds_no_pool_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "zeros"
    file.write_bytes(bytes(65_536))
    with pytest.raises(SharedMemoryError, match="no pool"):
        SharedMemoryPool.attach(str(file))


@pytest.mark.parametrize(
    ("limit", "used", "inactive", "free"),
    [("max", 5, 0, 8_000), ("6000", 1_000, 500, 5_500), ("60000", 0, 0, 8_000), ("100", 300, 0, 0)],
)
def test_free_memory_is_the_systems_or_the_containers(
    tmp_path: Path, limit: str, used: int, inactive: int, free: int
) -> None:
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text(f"{used}\n")
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {inactive}\n")
    meminfo = "MemTotal: 9 kB\nMemAvailable:   8 kB\n"
    assert available_bytes(meminfo, tmp_path) == (8_192 if free == 8_000 else free)
    assert available_bytes(meminfo, tmp_path / "nowhere") == 8_192


# --- processes that are killed ----------------------------------------------------------------------------------


@pytest.mark.process
def test_a_reader_that_is_killed_gives_its_blocks_back_to_a_waiting_writer() -> None:
    with a_pool(slots=3) as pool:
        writer = pool.writer()
        for tag in range(3):
            lease = writer.lease()
            assert lease is not None
            lease.publish(1, tag)
        with peer("read", pool, "hold") as reader:
            assert line_of(reader) == "[0, 1]"
            assert writer.lease(0.3) is None  # it lives: its blocks are its own
            os.kill(reader.pid, signal.SIGKILL)
            reader.wait()
            started_s = time.monotonic()
            assert writer.lease(2.0) is not None
            assert time.monotonic() - started_s < 0.5
        with peer("read", pool, "flow"):
            first = writer.lease(5.0)
            assert first is not None  # the block that was never taken was read by the successor
            deadline_s = time.monotonic() + 5
            while pool.table.free() < 1 and time.monotonic() < deadline_s:
                time.sleep(0.01)
            assert pool.table.free() == 1


@pytest.mark.process
def test_a_writer_that_is_killed_leaves_no_slot_leased() -> None:
    with a_pool(slots=2) as pool:
        with peer("write", pool, "hold") as writer:
            assert line_of(writer) == "0"
            assert pool.table.free() == 1
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait()
        pool.writer()
        assert pool.table.free() == 2


@pytest.mark.process
@pytest.mark.parametrize("victim", ["write", "read"])
def test_blocks_flow_on_whole_after_either_side_was_killed_in_full_flow(victim: str) -> None:
    with a_pool(slots=3) as pool:
        other = "read" if victim == "write" else "write"
        with peer(other, pool, "flow") as survivor:
            for _ in range(3):
                with peer(victim, pool, "flow") as dying:
                    assert line_of(dying) == "flows"
                    os.kill(dying.pid, signal.SIGKILL)
            assert line_of(survivor) == "flows"
            survivor.kill()
            assert survivor.stdout and "torn" not in survivor.stdout.read()
        pool.writer()
        reader = pool.reader()
        while lease := reader.take():
            lease.release()
        assert pool.table.free() == 3
