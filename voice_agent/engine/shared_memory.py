"""SharedMemoryPool: blocks from one process to another without allocation, copy or pickle per step.

One creator (the server, or whoever starts both sides), one writer, one reader. The memory is an anonymous file
(memfd): it has no name that could be left behind, so even SIGKILL of every process at once leaves nothing to sweep,
/dev/shm may be as small as a container makes it, and no resource tracker takes it away when a reader exits. It is
reserved at once (posix_fallocate), because memory that is promised and then missing is a SIGBUS in mid-sentence. Any
process of the user opens it by `address`; a side is claimed by a file lock, which the kernel drops when its holder
dies, and the next to claim it, or anyone's `sweep`, puts right what the dead one left.

It knows no message and no device; `cuda_ipc` puts the same bookkeeping over device memory. x86-64 Linux only.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import struct
import sys
import time

from voice_agent.engine import futex
from voice_agent.engine.host_memory import available_bytes
from voice_agent.engine.slots import (
    CREDITS,
    INCARNATION,
    MAGIC,
    POSTED,
    READER_IS_IN,
    TAKEN,
    WORD_BYTES,
    BlockRef,
    Reader,
    Shape,
    SlotTable,
    Writer,
)
from voice_agent.errors import SharedMemoryError, SlotStale

_PAGE_BYTES = mmap.PAGESIZE
_WRITER_BYTE, _READER_BYTE = 0, 1
_SWEEP_EVERY_S = 0.25  # how often one who waits looks whether the other side still lives
_CLAIM_S = 1.0
_FLOCK = "hhqqi"  # struct flock on 64-bit Linux: type, whence, start, length, pid


class SharedMemoryPool:
    """The mapped memory. `create` makes it, `attach` opens it elsewhere; then `writer()` or `reader()`, once each."""

    def __init__(self, descriptor: int, shape: Shape | None) -> None:
        size = os.fstat(descriptor).st_size
        self._descriptor = descriptor
        self._map = mmap.mmap(descriptor, size)
        self._bytes = memoryview(self._map)
        self._words = self._bytes.cast("Q")
        if shape is None and self._words[0] != MAGIC:
            raise SharedMemoryError("this memory holds no pool")
        self.table = SlotTable(self._words) if shape is None else SlotTable.format(self._words, shape)
        self.shape = self.table.shape
        self._slots_at = _data_offset(self.shape)
        anchor = ctypes.c_char.from_buffer(self._map)
        self._address = ctypes.addressof(anchor)
        del anchor  # it would keep the map from being closed

    @classmethod
    def create(cls, shape: Shape, extra_bytes: int = 0) -> "SharedMemoryPool":
        """Reserve the memory now. Raises SharedMemoryError with what is missing.

        `extra_bytes` are kept free behind the slots, see `extra`.
        """
        _check_platform()
        size = _data_offset(shape) + shape.slots * shape.host_slot_bytes + extra_bytes
        size += -size % _PAGE_BYTES
        descriptor = os.memfd_create("voice-agent-pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            _reserve(descriptor, size)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            return cls(descriptor, shape)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def attach(cls, address: str) -> "SharedMemoryPool":
        """Open a pool by its `address`; raises SharedMemoryError if its creator is gone."""
        _check_platform()
        try:
            descriptor = os.open(address, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise SharedMemoryError(f"the pool at {address} is gone: {error.strerror}") from error
        try:
            return cls(descriptor, None)
        except BaseException:
            os.close(descriptor)
            raise

    @property
    def address(self) -> str:
        """Where other processes of this user open it, as long as this one lives."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    @property
    def extra(self) -> memoryview:
        """The bytes behind the slots, for whoever asked for them."""
        return self._bytes[self._slots_at + self.shape.slots * self.shape.host_slot_bytes :]

    @property
    def incarnation(self) -> int:
        """How many processes have claimed the writer's side so far."""
        return self._words[INCARNATION]

    def block(self, ref: BlockRef) -> memoryview:
        """The rows of a block; raises SlotStale if its slot was given back or leased again."""
        self._check_current(ref)
        return self.slot(ref.slot)[: ref.rows * self.shape.row_bytes]

    def notes_of(self, ref: BlockRef) -> memoryview:
        """The notes of a block's rows; raises SlotStale as `block` does."""
        self._check_current(ref)
        return self.notes(ref.slot)[: ref.rows * self.shape.note_bytes]

    def slot(self, slot: int) -> memoryview:
        """All bytes of a slot's rows, whoever has it."""
        start = self._slots_at + slot * self.shape.host_slot_bytes
        return self._bytes[start : start + self.shape.slot_bytes]

    def notes(self, slot: int) -> memoryview:
        """All bytes of a slot's notes, whoever has it."""
        end = self._slots_at + (slot + 1) * self.shape.host_slot_bytes
        return self._bytes[end - self.shape.rows * self.shape.note_bytes : end]

    def address_of(self, slot: int) -> int:
        """Where a slot's rows are mapped in this process."""
        return self._address + self._slots_at + slot * self.shape.host_slot_bytes

    def writer(self) -> "BlockWriter":
        """Claim the writer's side; raises SharedMemoryError while another process has it."""
        lock = self._claim(_WRITER_BYTE, "writer")
        writer = Writer(self.table)
        writer.recover()
        self._words[INCARNATION] += 1
        return BlockWriter(self, writer, lock)

    def reader(self) -> "BlockReader":
        """Claim the reader's side; raises SharedMemoryError while another process has it."""
        lock = self._claim(_READER_BYTE, "reader")
        reader = Reader(self.table)
        reader.recover()
        self._words[READER_IS_IN] = 1
        self.wake(CREDITS)
        return BlockReader(self, reader, lock)

    def sweep(self) -> int:
        """Give back what a dead reader held; gives how many slots. A dead writer's leases wait for the next writer."""
        if not self._words[READER_IS_IN] or (lock := _lock(self._descriptor, _READER_BYTE)) is None:
            return 0
        try:
            freed = Reader(self.table).recover()
            self._words[READER_IS_IN] = 0
        finally:
            os.close(lock)
        self.wake(CREDITS)
        return freed

    def wait(self, word: int, seen: int, timeout_s: float) -> None:
        """Return when a word of the table is no longer `seen`, at the latest after `timeout_s`."""
        futex.wait(self._address + word * WORD_BYTES, seen, timeout_s)

    def wake(self, word: int) -> None:
        """Wake who waits for a word of the table."""
        futex.wake(self._address + word * WORD_BYTES)

    def close(self) -> None:
        """Unmap, unless somebody still holds a block's memory (then with the last of it). May be called again."""
        for view in (self._words, self._bytes):
            view.release()
        with contextlib.suppress(BufferError):  # an array over a block lives; the memory goes with it
            self._map.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _check_current(self, ref: BlockRef) -> None:
        if not self.table.is_current(ref):
            raise SlotStale(f"slot {ref.slot} no longer holds generation {ref.generation}")

    def _claim(self, byte: int, side: str) -> int:
        """The side's lock; waits a moment, for a holder that was just killed or somebody's `sweep`."""
        until_s = time.monotonic() + _CLAIM_S
        while (lock := _lock(self._descriptor, byte)) is None:
            if time.monotonic() > until_s:
                raise SharedMemoryError(f"the pool has a living {side} already")
            time.sleep(0.005)
        return lock


class WriteLease:
    """A slot to fill: `buffer` is its memory. Ends with `publish` or `give_up`."""

    def __init__(self, writer: "BlockWriter", slot: int, generation: int) -> None:
        self._writer = writer
        self.slot = slot
        self.generation = generation

    @property
    def buffer(self) -> memoryview:
        """The slot's rows."""
        return self._writer.pool.slot(self.slot)

    @property
    def notes(self) -> memoryview:
        """The notes of the slot's rows."""
        return self._writer.pool.notes(self.slot)

    def publish(self, rows: int, tag: int = 0, stamp_ns: int = 0) -> BlockRef:
        """Hand its first `rows` rows to the reader and wake it; the slot is no longer ours."""
        ref = BlockRef(self.slot, self.generation, rows, tag, stamp_ns)
        self._writer.publish(ref)
        return ref

    def give_up(self) -> None:
        """Free the slot unread."""
        self._writer.give_up(self.slot)


class BlockWriter:
    """The writing side of a pool, for one thread. Back-pressure is here: no slot, no lease."""

    def __init__(self, pool: SharedMemoryPool, side: Writer, lock: int) -> None:
        self.pool = pool
        self._side = side
        self._lock = lock

    def lease(self, timeout_s: float = 0.0) -> WriteLease | None:
        """A free slot, waiting for the reader to give one back; None when the time is over.

        While it waits it sweeps, so a reader that was killed costs a quarter of a second.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            seen = self.pool.table.words[CREDITS]
            if got := self._side.lease():
                return WriteLease(self, *got)
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return None
            if not self.pool.sweep():
                self.pool.wait(CREDITS, seen, min(left_s, _SWEEP_EVERY_S))

    def publish(self, ref: BlockRef) -> None:
        """Hand a filled slot to the reader; see WriteLease."""
        self._side.publish(ref)
        self.pool.wake(POSTED)

    def give_up(self, slot: int) -> None:
        """Free a slot unread; see WriteLease."""
        self._side.give_up(slot)

    def close(self) -> None:
        """Leave the side to the next; leases that were not published are taken back. May be called again."""
        if self._lock >= 0:
            self._side.recover()
            os.close(self._lock)
            self._lock = -1


class ReadLease:
    """A block that was taken: `buffer` is its rows. Ends with `release`."""

    def __init__(self, reader: "BlockReader", ref: BlockRef) -> None:
        self._reader = reader
        self.ref = ref

    @property
    def buffer(self) -> memoryview:
        """The rows' bytes; not to be used after `release`."""
        return self._reader.pool.block(self.ref)

    @property
    def notes(self) -> memoryview:
        """The notes of the rows; not to be used after `release`."""
        return self._reader.pool.notes_of(self.ref)

    def release(self) -> None:
        """Give the slot back and wake the writer."""
        self._reader.give_back(self.ref)


class BlockReader:
    """The reading side of a pool, for one thread."""

    def __init__(self, pool: SharedMemoryPool, side: Reader, lock: int) -> None:
        self.pool = pool
        self._side = side
        self._lock = lock

    def take(self, timeout_s: float = 0.0, spin_s: float = 0.0) -> ReadLease | None:
        """The oldest block; None when there is none within `timeout_s`.

        Looks without pause for the first `spin_s`, which costs a core and saves the wake-up; then sleeps.
        """
        if ref := self._side.take():
            return ReadLease(self, ref)
        words, started_s = self.pool.table.words, time.monotonic()
        taken = words[TAKEN]
        while (waited_s := time.monotonic() - started_s) < timeout_s:
            if words[POSTED] != taken:
                return ReadLease(self, ref) if (ref := self._side.take()) else None
            if waited_s >= spin_s:
                self.pool.wait(POSTED, taken, timeout_s - waited_s)
        return None

    def give_back(self, ref: BlockRef) -> None:
        """Free a block's slot; see ReadLease. Raises SlotStale if it was given back before."""
        if not self.pool.table.is_current(ref):
            raise SlotStale(f"slot {ref.slot} no longer holds generation {ref.generation}")
        self._side.give_back(ref)
        self.pool.wake(CREDITS)

    def close(self) -> None:
        """Give back what is held and leave the side to the next, who finds what was not taken. May be called again."""
        if self._lock >= 0:
            self._side.recover()
            self.pool.table.words[READER_IS_IN] = 0
            self.pool.wake(CREDITS)
            os.close(self._lock)
            self._lock = -1


def _reserve(descriptor: int, size: int) -> None:
    free = available_bytes()
    if size > free:
        raise SharedMemoryError(_too_large(size, free))
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.ENOMEM, errno.EFBIG}:
            raise SharedMemoryError(_too_large(size, free)) from error
        raise SharedMemoryError(f"shared memory cannot be reserved: {error.strerror}") from error


def _too_large(size: int, free: int) -> str:
    return (
        f"a pool of {size / 1e6:.0f} MB does not fit: {free / 1e6:.0f} MB of memory are free (the container's limit "
        "counts). Take fewer or smaller slots, or give the container more memory"
    )


def _data_offset(shape: Shape) -> int:
    """Where the slots begin: on a page of their own, so that a device may be told of them."""
    size = SlotTable.bytes_for(shape)
    return size + -size % _PAGE_BYTES


def _check_platform() -> None:
    if not futex.supported or sys.byteorder != "little" or not hasattr(os, "memfd_create"):
        raise SharedMemoryError("blocks are shared between processes on x86-64 Linux only")


def _lock(descriptor: int, byte: int) -> int | None:
    """A descriptor that holds the lock of one byte as long as it is open; None if somebody else holds it.

    The file is opened anew: such a lock belongs to what was opened, which a child that inherits descriptors shares.
    """
    own = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    try:
        wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        fcntl.fcntl(own, fcntl.F_OFD_SETLK, wanted)
    except OSError as error:
        os.close(own)
        if error.errno in {errno.EAGAIN, errno.EACCES}:
            return None
        raise
    return own
