"""Hand-over of device memory against a device that does nothing before it is told to."""

import contextlib
import ctypes
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

from tests.fake_cuda import FakeCuda, Host
from voice_agent.engine.cuda_driver import CudaError, LibCuda
from voice_agent.engine.cuda_ipc import DeviceReader, DeviceWriter, Via, device_pool
from voice_agent.engine.cuda_probe import why_not
from voice_agent.engine.shared_memory import SharedMemoryPool
from voice_agent.engine.slots import Shape
from voice_agent.errors import SlotStale

THEIRS, OURS = 11, 22  # the writer's stream, the reader's
ROW = 8


@dataclass
class Rig:
    """A pool with both sides, each with a device of its own process."""

    pool: SharedMemoryPool
    host: Host = field(default_factory=Host)

    def __post_init__(self) -> None:
        self.writing, self.reading = FakeCuda(self.host), FakeCuda(self.host)
        self.source = self.writing.allocate(4 * ROW)
        self.target = self.reading.allocate(4 * ROW)

    def fill(self, value: int) -> None:
        ctypes.memset(self.source, value, 4 * ROW)

    def got(self, size: int = 4 * ROW) -> bytes:
        return ctypes.string_at(self.target, size)


@contextlib.contextmanager
def a_rig(slots: int = 2) -> Generator[Rig]:
    pool = device_pool(Shape(slots, 4, ROW))
    try:
        yield Rig(pool)
    finally:
        pool.close()


def test_the_readers_stream_waits_for_the_writers_event_and_nobody_else_does() -> None:
    with a_rig() as rig:
        writer, reader = DeviceWriter(rig.pool, rig.writing), DeviceReader(rig.pool, rig.reading)
        rig.fill(7)
        assert writer.send(rig.source, 4, THEIRS, tag=3) is not None
        block = reader.take()
        assert block is not None and block.ref.tag == 3 and reader.via == "device"
        block.copy_to(rig.target, OURS)
        rig.reading.run(OURS)
        assert rig.got() == bytes(32)  # the rows are not there yet
        rig.writing.run(THEIRS)
        rig.reading.run(OURS)
        assert rig.got() == bytes([7]) * 32


def test_rows_are_read_where_they_lie_and_their_notes_on_the_host() -> None:
    pool = device_pool(Shape(2, 4, ROW, note_bytes=3))
    with contextlib.closing(pool):
        rig = Rig(pool)
        writer, reader = DeviceWriter(rig.pool, rig.writing), DeviceReader(rig.pool, rig.reading)
        for value in (5, 6):
            rig.fill(value)
            assert writer.send(rig.source, 2, THEIRS, notes=bytes([value]) * 6) is not None
            rig.writing.run(THEIRS)
        for value in (5, 6):
            block = reader.take()
            assert block is not None and bytes(block.notes) == bytes([value]) * 6
            assert ctypes.string_at(block.read_on(OURS), 2 * ROW) == bytes([value]) * 2 * ROW
            block.release(OURS)
            rig.reading.run(OURS)
            assert reader.reclaim() == 0
            with pytest.raises(SlotStale):
                block.read_on(OURS)


def test_a_slot_comes_back_only_when_the_readers_stream_is_through() -> None:
    with a_rig(slots=2) as rig:
        writer, reader = DeviceWriter(rig.pool, rig.writing), DeviceReader(rig.pool, rig.reading)
        for tag in range(2):
            assert writer.send(rig.source, 1, THEIRS, tag) is not None
            block = reader.take()
            assert block is not None
            block.copy_to(rig.target, OURS)
            block.release(OURS)
        assert reader.reclaim() == 2 and writer.send(rig.source, 1, THEIRS) is None
        rig.writing.run(THEIRS)
        rig.reading.run(OURS)
        assert reader.take() is None and rig.pool.table.free() == 2
        assert writer.send(rig.source, 1, THEIRS) is not None


def test_parts_of_a_block_are_copied_and_a_released_one_is_stale() -> None:
    with a_rig() as rig:
        writer, reader = DeviceWriter(rig.pool, rig.writing), DeviceReader(rig.pool, rig.reading)
        for row in range(4):
            ctypes.memset(rig.source + row * ROW, row + 1, ROW)
        writer.send(rig.source, 4, THEIRS)
        rig.writing.run(THEIRS)
        block = reader.take()
        assert block is not None
        block.copy_to(rig.target, OURS, first_row=2, rows=1)
        block.copy_to(rig.target + ROW, OURS, first_row=3)
        block.release(OURS)
        rig.reading.run(OURS)
        assert rig.got(2 * ROW) == bytes([3]) * 8 + bytes([4]) * 8
        assert reader.reclaim() == 0
        with pytest.raises(SlotStale):
            block.copy_to(rig.target, OURS)


def test_blocks_of_a_dead_writer_are_lost_and_the_successors_memory_is_opened() -> None:
    with a_rig(slots=3) as rig:
        first, reader = DeviceWriter(rig.pool, rig.writing), DeviceReader(rig.pool, rig.reading)
        for tag in range(2):
            first.send(rig.source, 1, THEIRS, tag)
        rig.writing.run(THEIRS)
        block = reader.take()
        assert block is not None and block.ref.tag == 0
        block.release(OURS)
        first._side.close()  # pyright: ignore[reportPrivateUsage]  # as its death would leave it
        second = DeviceWriter(rig.pool, rig.writing)
        assert reader.take() is None and reader.lost == 1
        rig.fill(9)
        second.send(rig.source, 4, THEIRS, tag=5)
        block = reader.take()
        assert block is not None and block.ref.tag == 5
        block.copy_to(rig.target, OURS)
        block.release(OURS)
        rig.writing.run(THEIRS)
        rig.reading.run(OURS)
        assert rig.got() == bytes([9]) * 32 and len(rig.reading.mapped) == 1
        reader.close()
        second.close()
        assert rig.reading.mapped == set() and rig.reading.events == {} and rig.pool.table.free() == 3


def test_a_block_taken_between_the_successors_claim_and_its_export_is_lost_too() -> None:
    with a_rig() as rig:
        first, reader = DeviceWriter(rig.pool, rig.writing), DeviceReader(rig.pool, rig.reading)
        first.send(rig.source, 1, THEIRS)
        first._side.close()  # pyright: ignore[reportPrivateUsage]
        rig.pool.writer()
        assert reader.take() is None and reader.lost == 1 and rig.pool.table.free() == 2


def test_the_host_stands_in_and_says_so() -> None:
    with a_rig() as rig:
        via: Via = "host"
        writer = DeviceWriter(rig.pool, rig.writing, via)
        reader = DeviceReader(rig.pool, rig.reading)
        rig.fill(5)
        assert writer.send(rig.source, 4, THEIRS) is not None
        block = reader.take()
        assert block is not None and (writer.via, reader.via) == ("host", "host")
        block.copy_to(rig.target, OURS)
        block.release(OURS)
        rig.reading.run(OURS)
        assert rig.got() == bytes([5]) * 32 and reader.reclaim() == 0
        assert rig.writing.registered == [(rig.pool.address_of(0), 64)] == rig.reading.registered
        assert not rig.host.memory


def test_a_copy_the_driver_refuses_costs_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_rig() as rig:
        writer = DeviceWriter(rig.pool, rig.writing)

        def refuse(*_: int) -> None:
            raise CudaError("cuMemcpyAsync: an illegal memory access was encountered (700)")

        monkeypatch.setattr(rig.writing, "copy", refuse)
        with pytest.raises(CudaError):
            writer.send(rig.source, 1, THEIRS)
        assert rig.pool.table.free() == 2


def test_without_a_driver_the_reason_is_said() -> None:
    try:
        LibCuda(0)
    except CudaError as error:
        assert "NVIDIA driver" in str(error) or "cuInit" in str(error)
    else:
        pytest.skip("there is a GPU")


@pytest.mark.process
def test_the_probe_says_why_device_memory_cannot_be_shared_here() -> None:
    try:
        LibCuda(0)
    except CudaError:
        assert "write: " in why_not(0, 0, timeout_s=20)
    else:
        assert why_not(0, 0) == ""
