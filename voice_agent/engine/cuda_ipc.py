"""The pool over device memory: rows stay on the GPU, and only slot, generation and count go through the host.

The bookkeeping (leases, generations, credits, death of a side) is the SharedMemoryPool's; here each of its slots gets
device memory, exported once by CUDA IPC, and one interprocess event, which the writer records behind the rows and the
reader's stream waits for. Neither side waits on its own thread. A slot is given back once the reader's stream is
through with it, which `take` and `reclaim` look for; a hung reader costs the writer credits, never a stream.

Where CUDA IPC can't be had (see `cuda_probe`) the same two classes go through the pool's host slots, locked in memory,
and `via` says so. Child side only. It knows no model and no framework: pointers and streams are integers.
"""

import struct
import time
from collections import deque
from dataclasses import dataclass
from typing import Literal

from voice_agent.engine.cuda_driver import HANDLE_BYTES, Driver
from voice_agent.engine.shared_memory import BlockReader, ReadLease, SharedMemoryPool
from voice_agent.engine.slots import POSTED, TAKEN, WORD_BYTES, BlockRef, Shape
from voice_agent.errors import SharedMemoryError, SlotStale

Via = Literal["device", "host"]

_HEADER = struct.Struct("<QQQ16s")  # incarnation, blocks posted before it, via, the device's uuid
_VIAS: tuple[Via, ...] = ("device", "host")
_LOOK_EVERY_S = 0.000_2  # for the end of our own stream's work, while nothing new comes


def device_pool(shape: Shape) -> SharedMemoryPool:
    """A pool with room for the handles; its creator needs no GPU."""
    return SharedMemoryPool.create(shape, extra_bytes=_HEADER.size + HANDLE_BYTES * (1 + shape.slots))


@dataclass(frozen=True, slots=True)
class _Export:
    """What a writer says about its memory: `blocks_before` were posted by its predecessors and died with them."""

    incarnation: int
    blocks_before: int
    via: Via
    uuid: bytes
    memory: bytes = b""
    events: tuple[bytes, ...] = ()

    def write(self, target: memoryview) -> None:
        """The incarnation last: whoever sees it sees the rest."""
        header = _HEADER.pack(self.incarnation, self.blocks_before, _VIAS.index(self.via), self.uuid)
        whole = header + self.memory + b"".join(self.events)
        target[WORD_BYTES : len(whole)] = whole[WORD_BYTES:]
        target[:WORD_BYTES] = whole[:WORD_BYTES]

    @classmethod
    def read(cls, source: memoryview, slots: int) -> "_Export":
        incarnation, before, via, uuid = _HEADER.unpack_from(source)
        at = [_HEADER.size + HANDLE_BYTES * i for i in range(slots + 2)]
        handles = [bytes(source[a:b]) for a, b in zip(at, at[1:], strict=False)]
        return cls(incarnation, before, _VIAS[via], uuid, handles[0], tuple(handles[1:]))


class DeviceWriter:
    """The writing side: claims the pool, allocates, exports. One thread."""

    def __init__(self, pool: SharedMemoryPool, driver: Driver, via: Via = "device") -> None:
        self._pool = pool
        self._driver = driver
        self.via: Via = via
        self._side = pool.writer()
        self._memory = 0
        on_device = via == "device"
        self._events = [driver.new_event(interprocess=on_device) for _ in range(pool.shape.slots)]
        memory_handle, event_handles = b"", ()
        if on_device:
            self._memory = driver.allocate(pool.shape.slots * pool.shape.slot_bytes)
            memory_handle = driver.export_memory(self._memory)
            event_handles = tuple(driver.export_event(event) for event in self._events)
        else:
            _register_slots(pool, driver)
        posted = pool.table.words[POSTED]
        _Export(pool.incarnation, posted, via, driver.uuid(), memory_handle, event_handles).write(pool.extra)

    def send(
        self, source: int, rows: int, stream: int, tag: int = 0, timeout_s: float = 0.0, notes: bytes = b""
    ) -> BlockRef | None:
        """Copy `rows` rows from a device pointer in the stream's order and publish them, with their notes.

        None when no slot came free within `timeout_s`. The stream may go on at once; with `via` host the thread waits
        until the copy is through.
        """
        lease = self._side.lease(timeout_s)
        if lease is None:
            return None
        if notes:
            lease.notes[: len(notes)] = notes
        size = rows * self._pool.shape.row_bytes
        target, event = self._target(lease.slot), self._events[lease.slot]
        try:
            self._driver.copy(target, source, size, stream)
            self._driver.record(event, stream)
            if self.via == "host":
                self._driver.synchronize(event)
        except SharedMemoryError:
            lease.give_up()
            raise
        return lease.publish(rows, tag, time.monotonic_ns())

    def close(self) -> None:
        """Leave the side and free the memory; the reader must be through with it. May be called again."""
        self._side.close()
        for event in self._events:
            self._driver.free_event(event)
        self._events = []
        if self._memory:
            self._driver.free(self._memory)
            self._memory = 0

    def _target(self, slot: int) -> int:
        if self.via == "host":
            return self._pool.address_of(slot)
        return self._memory + slot * self._pool.shape.slot_bytes


class DeviceBlock:
    """A block that was taken. `copy_to` as often as wanted, then `release` once, all on one stream."""

    def __init__(self, reader: "DeviceReader", lease: ReadLease, incarnation: int) -> None:
        self._reader = reader
        self._lease = lease
        self._incarnation = incarnation
        self.ref = lease.ref

    @property
    def is_there(self) -> bool:
        """False once a successor's block was taken: the writer died, and its memory with it."""
        return self._reader.incarnation == self._incarnation

    @property
    def notes(self) -> memoryview:
        """The notes of the rows, in host memory; not to be used after `release`."""
        return self._lease.notes

    def read_on(self, stream: int) -> int:
        """The rows' own device pointer, for what is put on the stream from now on; raises SlotStale.

        They stay where they are, so nothing of theirs may be read after `release`.
        """
        self._check()
        return self._reader.read_on(self.ref, stream)

    def copy_to(self, target: int, stream: int, first_row: int = 0, rows: int | None = None) -> None:
        """Copy rows to a device pointer once they are there; only the stream waits. Raises SlotStale."""
        self._check()
        self._reader.copy(
            self.ref, target, stream, first_row, self.ref.rows - first_row if rows is None else rows
        )

    def release(self, stream: int) -> None:
        """Give the slot back once the stream is through with what was asked of it so far."""
        self._reader.release(self._lease, stream)

    def forget(self) -> None:
        """Give the slot of a block that died with its writer back unread."""
        self._reader.lost += 1
        self._lease.release()

    def _check(self) -> None:
        if not self.is_there:
            raise SlotStale(f"slot {self.ref.slot}'s writer died, and its memory with it")
        _ = self._lease.buffer  # says whether it is still ours


class DeviceReader:
    """The reading side, on the same device or on a peer. One thread."""

    def __init__(self, pool: SharedMemoryPool, driver: Driver) -> None:
        self._pool = pool
        self._driver = driver
        self._side: BlockReader = pool.reader()
        self._export: _Export | None = None
        self._memory = 0
        self._events: list[int] = []
        self._idle_events: list[int] = []
        self._busy: deque[tuple[int, ReadLease]] = deque()
        self.lost = 0  # blocks whose writer died with their memory

    @property
    def shape(self) -> Shape:
        """The pool's."""
        return self._pool.shape

    @property
    def incarnation(self) -> int:
        """Which writer's memory is open; 0 for none."""
        return self._export.incarnation if self._export else 0

    @property
    def via(self) -> Via | None:
        """How the writer hands over; None before its first block."""
        return self._export.via if self._export else None

    def take(self, timeout_s: float = 0.0, spin_s: float = 0.0) -> DeviceBlock | None:
        """The oldest block, None when there is none within `timeout_s`; see BlockReader.take.

        Raises CudaError when the writer's memory cannot be opened.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            self.reclaim()
            left_s = max(0.0, until_s - time.monotonic())
            lease = self._side.take(min(left_s, _LOOK_EVERY_S) if self._busy else left_s, spin_s)
            if lease is not None and self._opened(self._pool.table.words[TAKEN] - 1):
                return DeviceBlock(self, lease, self.incarnation)
            if lease is not None:
                self.lost += 1
                lease.release()
            elif left_s == 0.0:
                return None

    def reclaim(self) -> int:
        """Give back what the streams are through with; gives how many blocks are still in use."""
        while self._busy and self._driver.happened(self._busy[0][0]):
            event, lease = self._busy.popleft()
            self._idle_events.append(event)
            lease.release()
        return len(self._busy)

    def copy(self, ref: BlockRef, target: int, stream: int, first_row: int, rows: int) -> None:
        """See DeviceBlock.copy_to."""
        row_bytes = self._pool.shape.row_bytes
        source = self.read_on(ref, stream) + first_row * row_bytes
        self._driver.copy(target, source, rows * row_bytes, stream)

    def read_on(self, ref: BlockRef, stream: int) -> int:
        """See DeviceBlock.read_on; with `via` host the pointer is that of locked host memory."""
        if self.via == "host":
            return self._pool.address_of(ref.slot)
        self._driver.wait(stream, self._events[ref.slot])
        return self._memory + ref.slot * self._pool.shape.slot_bytes

    def release(self, lease: ReadLease, stream: int) -> None:
        """See DeviceBlock.release."""
        event = self._idle_events.pop() if self._idle_events else self._driver.new_event(interprocess=False)
        self._driver.record(event, stream)
        self._busy.append((event, lease))

    def close(self) -> None:
        """Wait for the streams, give everything back, unmap. May be called again."""
        for event, lease in self._busy:
            self._driver.synchronize(event)
            lease.release()
            self._idle_events.append(event)
        self._busy.clear()
        self._side.close()
        for event in self._idle_events:
            self._driver.free_event(event)
        self._idle_events = []
        self._unmap()

    def _opened(self, number: int) -> bool:
        """Whether the memory of the block with this running number is open; False if it died with its writer."""
        if self._export is None or self._export.incarnation != self._pool.incarnation:
            self._open()
        export = self._export
        return (
            export is not None
            and export.incarnation == self._pool.incarnation
            and number >= export.blocks_before
        )

    def _open(self) -> None:
        export = _Export.read(self._pool.extra, self._pool.shape.slots)
        if export.incarnation != self._pool.incarnation:
            return  # the successor has claimed its side and has not exported yet
        self._unmap()
        if export.via == "device":
            self._memory = self._driver.open_memory(export.memory)
            self._events = [self._driver.open_event(handle) for handle in export.events]
        else:
            _register_slots(self._pool, self._driver)
        self._export = export

    def _unmap(self) -> None:
        for event, _ in self._busy:
            self._driver.synchronize(event)
        for event in self._events:
            self._driver.free_event(event)
        self._events = []
        if self._memory:
            self._driver.close_memory(self._memory)
            self._memory = 0
        self._export = None


def _register_slots(pool: SharedMemoryPool, driver: Driver) -> None:
    size = pool.shape.slots * pool.shape.host_slot_bytes
    driver.register_host(pool.address_of(0), size)
