"""Several steps' rows are read at once, a reply's first row at once; against a device that works only when told."""

import contextlib
import ctypes
from collections.abc import Generator
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.fake_cuda import FakeCuda, Host
from voice_agent.engine.cuda_ipc import DeviceReader, DeviceWriter, device_pool
from voice_agent.engine.row_pile import LATE_S, MOST_BLOCKS, RowPile
from voice_agent.engine.shared_memory import SharedMemoryPool
from voice_agent.engine.slots import Shape
from voice_agent.errors import SlotStale

THEIRS, OURS = 11, 22
ROW = 8


@dataclass
class Rig:
    """A pool with both sides and a clock that stands still."""

    pool: SharedMemoryPool
    host: Host = field(default_factory=Host)
    time_s: float = 100.0

    def __post_init__(self) -> None:
        self.writing, self.reading = FakeCuda(self.host), FakeCuda(self.host)
        self.source = self.writing.allocate(4 * ROW)
        self.writer = DeviceWriter(self.pool, self.writing)
        self.reader = DeviceReader(self.pool, self.reading)
        self.pile = RowPile(self.reader, now_s=lambda: self.time_s)

    def send(self, tag: int, *numbers: int) -> None:
        """A step's rows, each of a reply of its own, of which it is the row with this number."""
        names = np.array([[key, number] for key, number in enumerate(numbers)], np.int64)
        assert self.writer.send(self.source, len(numbers), THEIRS, tag, notes=names.tobytes()) is not None
        self.writing.run(THEIRS)

    def taken(self) -> list[int]:
        """What is due now, given back; by its tag."""
        blocks = self.pile.take(0.0)
        for block in blocks:
            block.release(OURS)
        self.reading.run(OURS)
        return [block.ref.tag for block in blocks]


@contextlib.contextmanager
def a_rig(slots: int = 32) -> Generator[Rig]:
    pool = device_pool(Shape(slots, 4, ROW, note_bytes=16))
    try:
        yield Rig(pool)
    finally:
        pool.close()


def test_later_rows_wait_a_moment_for_those_behind_them() -> None:
    with a_rig() as rig:
        rig.send(1, 5, 8)
        assert rig.taken() == []
        rig.time_s += LATE_S / 2
        rig.send(2, 6, 9)
        assert rig.taken() == []
        rig.time_s += LATE_S / 2 + 1e-6
        rig.send(3, 7)
        assert rig.taken() == [1, 2]  # due by the oldest of them
        rig.time_s += LATE_S
        assert rig.taken() == []  # its own wait began when it was taken
        rig.time_s += LATE_S + 1e-6
        assert rig.taken() == [3]


def test_a_replys_first_row_waits_for_nobody_and_takes_along_what_is_there() -> None:
    with a_rig() as rig:
        rig.send(1, 5)
        assert rig.taken() == []
        rig.send(2, 6, 0)
        assert rig.taken() == [1, 2]
        rig.send(3, 0)
        assert rig.taken() == [3]


@pytest.mark.parametrize(("slots", "most"), [(32, MOST_BLOCKS), (6, 3), (2, 1)])
def test_no_more_are_held_than_leave_the_writer_half_of_the_slots(slots: int, most: int) -> None:
    with a_rig(slots) as rig:
        for tag in range(most - 1):
            rig.send(tag, 1 + tag)
            assert rig.taken() == []
        rig.send(most - 1, most)
        assert rig.taken() == list(range(most))


def test_what_died_with_its_writer_is_never_read_from_its_successors_memory() -> None:
    with a_rig() as rig:
        rig.send(1, 5)
        assert rig.taken() == []
        (held,) = rig.pile._blocks  # pyright: ignore[reportPrivateUsage]
        rig.writer._side.close()  # pyright: ignore[reportPrivateUsage]  # as its death would leave it
        rig.writer = DeviceWriter(rig.pool, rig.writing)
        rig.send(2, 0)
        assert rig.taken() == [2]
        assert rig.reader.lost == 1
        assert rig.reader.reclaim() == 0 and rig.pool.table.free() == 32
        with pytest.raises(SlotStale):
            held.copy_to(0, OURS)


def test_rows_of_several_steps_arrive_as_they_were() -> None:
    with a_rig() as rig:
        target = rig.reading.allocate(2 * ROW)
        for value in (3, 4):
            ctypes.memset(rig.source, value, ROW)
            rig.send(value, value)
            assert rig.taken() == []
        rig.time_s += LATE_S + 1e-6
        for at, block in enumerate(rig.pile.take(0.0)):
            block.copy_to(target + at * ROW, OURS)
            block.release(OURS)
        rig.reading.run(OURS)
        assert ctypes.string_at(target, 2 * ROW) == bytes([3]) * ROW + bytes([4]) * ROW
