"""The bookkeeping of slots under every order of events, with a side killed between any two of its stores."""

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from voice_agent.engine.slots import BlockRef, Reader, Shape, SlotTable, Writer


class Killed(Exception):
    """The process that was storing is gone."""


@dataclass
class Memory:
    """Words in which the process dies instead of doing its next store, once `fuse` stores were done."""

    words: list[int]
    fuse: int | None = None
    stores: int = field(default=0)

    def __getitem__(self, index: int) -> int:
        return self.words[index]

    def __setitem__(self, index: int, value: int) -> None:
        if self.fuse is not None:
            if self.fuse == 0:
                raise Killed
            self.fuse -= 1
        self.words[index] = value
        self.stores += 1


def table_of(slots: int) -> SlotTable:
    shape = Shape(slots, 4, 2)
    return SlotTable.format(Memory([0] * (SlotTable.bytes_for(shape) // 8)), shape)


FUSES = st.one_of(st.none(), st.integers(0, 8))


class PoolModel(RuleBasedStateMachine):
    """Every published tag reaches a reader once, in order; no slot has two owners; none is lost."""

    SLOTS = 3

    def __init__(self) -> None:
        super().__init__()
        self.table = table_of(self.SLOTS)
        self.memory = self.table.words
        self.writer, self.reader = Writer(self.table), Reader(self.table)
        self.leases: list[tuple[int, int]] = []
        self.waiting: deque[BlockRef] = deque()  # published and not taken, as the model has it
        self.held: list[BlockRef] = []
        self.tag = 0

    def arm(self, fuse: int | None) -> None:
        assert isinstance(self.memory, Memory)
        self.memory.fuse = fuse

    def owned(self) -> list[int]:
        return [slot for slot, _ in self.leases] + [ref.slot for ref in (*self.waiting, *self.held)]

    @rule(fuse=FUSES)
    def lease(self, fuse: int | None) -> None:
        self.arm(fuse)
        try:
            got = self.writer.lease()
        except Killed:
            self.writer_is_replaced()
            return
        self.arm(None)
        assert (got is None) == (len(self.owned()) == self.SLOTS)
        if got is not None:
            assert got[0] not in self.owned()
            self.leases.append(got)

    @precondition(lambda self: self.leases)
    @rule(fuse=FUSES, data=st.data())
    def publish(self, fuse: int | None, data: st.DataObject) -> None:
        slot, generation = data.draw(st.sampled_from(self.leases))
        self.tag += 1
        ref = BlockRef(slot, generation, 1 + self.tag % 4, self.tag, 7 * self.tag)
        before = self.posted()
        self.arm(fuse)
        try:
            self.writer.publish(ref)
        except Killed:
            if self.posted() > before:
                self.leases.remove((slot, generation))
                self.waiting.append(ref)
            self.writer_is_replaced()
            return
        self.arm(None)
        self.leases.remove((slot, generation))
        self.waiting.append(ref)
        assert self.table.is_current(ref)

    @precondition(lambda self: self.leases)
    @rule()
    def give_up(self) -> None:
        self.writer.give_up(self.leases.pop()[0])

    @rule(fuse=FUSES)
    def take(self, fuse: int | None) -> None:
        before = self.taken()
        self.arm(fuse)
        try:
            got = self.reader.take()
        except Killed:
            assert self.taken() == before
            self.reader_is_replaced()
            return
        self.arm(None)
        assert got == (self.waiting[0] if self.waiting else None)
        if got is not None:
            self.held.append(self.waiting.popleft())

    @precondition(lambda self: self.held)
    @rule(fuse=FUSES, data=st.data())
    def give_back(self, fuse: int | None, data: st.DataObject) -> None:
        ref = data.draw(st.sampled_from(self.held))
        self.arm(fuse)
        try:
            self.reader.give_back(ref)
        except Killed:
            self.reader_is_replaced()
            return
        self.arm(None)
        self.held.remove(ref)
        assert not self.table.is_current(ref)

    @rule()
    def writer_is_replaced(self) -> None:
        self.arm(None)
        self.writer = Writer(self.table)
        self.writer.recover()
        self.leases.clear()

    @rule()
    def reader_is_replaced(self) -> None:
        self.arm(None)
        self.reader = Reader(self.table)
        self.reader.recover()
        self.held.clear()

    def posted(self) -> int:
        from voice_agent.engine.slots import POSTED

        return self.memory[POSTED]

    def taken(self) -> int:
        from voice_agent.engine.slots import TAKEN

        return self.memory[TAKEN]

    @invariant()
    def no_slot_is_lost_or_owned_twice(self) -> None:
        owned = self.owned()
        assert len(owned) == len(set(owned))
        assert self.table.free() == self.SLOTS - len(owned)
        assert all(self.table.is_current(ref) for ref in (*self.waiting, *self.held))


TestPoolModel = PoolModel.TestCase


def test_a_reader_that_dies_while_the_writer_goes_on_frees_only_what_it_held() -> None:
    """The writer publishes between the two looks of the recovery: that block must stay for the next reader."""
    table = table_of(3)
    writer, reader = Writer(table), Reader(table)
    for tag in (1, 2):
        slot, generation = writer.lease() or (0, 0)
        writer.publish(BlockRef(slot, generation, 1, tag))
    assert reader.take() is not None
    late = writer.lease()
    assert late is not None

    class Late(Memory):
        """Publishes a third block after the recovery has read every `published` word."""

        def __getitem__(self, index: int) -> int:
            value = self.words[index]
            if index == table.published_at(2):
                publish_once()
            return value

    plain = table.words
    assert isinstance(plain, Memory)
    done: list[bool] = []

    def publish_once() -> None:
        if not done:
            done.append(True)
            table.words = plain
            writer.publish(BlockRef(*late, 1, 3))
            table.words = watched

    watched = Late(plain.words)
    table.words = watched
    assert Reader(table).recover() == 1
    table.words = plain
    successor = Reader(table)
    assert done and [ref.tag for ref in iter(successor.take, None)] == [2, 3]


@pytest.mark.parametrize("moment", range(1, 8))
def test_a_reader_that_looks_between_any_two_stores_of_a_publish_finds_all_or_nothing(moment: int) -> None:
    table = table_of(2)
    memory = table.words
    assert isinstance(memory, Memory)
    writer, reader = Writer(table), Reader(table)
    taken: list[BlockRef] = []

    class Watched(Memory):
        """Lets the reader have its turn after the writer's store number `moment`."""

        def __setitem__(self, index: int, value: int) -> None:
            super().__setitem__(index, value)
            if self.stores == moment and table.words is self:
                table.words = memory
                if ref := reader.take():
                    assert table.is_current(ref)
                    reader.give_back(ref)
                    taken.append(ref)
                table.words = self

    lease = writer.lease()
    assert lease is not None
    ref = BlockRef(*lease, 1, tag=5, stamp_ns=6)
    table.words = Watched(memory.words)
    writer.publish(ref)
    table.words = memory
    if not taken:
        taken += [got for got in iter(reader.take, None)]
        reader.give_back(taken[0])
    assert taken == [ref] and reader.take() is None and table.free() == 2
    assert writer.recover() == reader.recover() == 0 and table.free() == 2


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 0, 1), (2, 1, 0)])
def test_a_pool_that_cannot_work_is_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least 2 slots"):
        Shape(*shape)


def test_memory_of_something_else_is_no_pool() -> None:
    with pytest.raises(ValueError, match="no pool"):
        SlotTable(Memory([5] * 32))
