"""Which slot of a pool belongs to whom: bookkeeping in words with one writer each, so that no lock can be left held.

A pool has one writer and one reader, in different processes. A slot is free when the reader has given back the
generation that the writer last leased. What is published goes through a ring of descriptors with as many places as
slots, so publishing never waits: back-pressure is at the lease, and nothing is ever dropped. A process may be killed
between any two stores; `recover` of its side puts right what it left. Knows no process, no clock and no waiting.

Words are 64 bit, little-endian, aligned, and seen in the order of their stores (x86-64); the order of the stores is
the protocol.
"""

from dataclasses import dataclass
from typing import Protocol

MAGIC = 0x31_4C_4F_4F_50_41_56  # "VAPOOL1"
WORD_BYTES = 8
HEADER_WORDS = 16
DESCRIPTOR_WORDS = 5
WORDS_PER_SLOT = 3 + DESCRIPTOR_WORDS

# words of the header, and who stores to them
_MAGIC, _SLOTS, _ROWS, _ROW_BYTES = 0, 1, 2, 3  # the creator, once
POSTED = 4  # writer: descriptors published, ever
INCARNATION = 5  # writer: how many processes have written so far
TAKEN = 6  # reader: descriptors taken, ever
CREDITS = 7  # reader: slots given back, ever
READER_IS_IN = 8  # reader: one has claimed its side and has not left it in order
_NOTE_BYTES = 9  # the creator, once


class Words(Protocol):
    """Shared memory as 64-bit words."""

    def __getitem__(self, index: int, /) -> int:
        """One load."""
        ...

    def __setitem__(self, index: int, value: int, /) -> None:
        """One store."""
        ...


@dataclass(frozen=True, slots=True)
class Shape:
    """A pool's size: `slots` blocks of up to `rows` rows of `row_bytes` bytes.

    `note_bytes` more go with each row and stay in host memory wherever the rows are: what a row is, not its values.
    """

    slots: int
    rows: int
    row_bytes: int
    note_bytes: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work: one slot leaves no place to write while another is read."""
        if self.slots < 2 or self.rows < 1 or self.row_bytes < 1 or self.note_bytes < 0:
            raise ValueError("a pool needs at least 2 slots, and 1 row of 1 byte")

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot's rows."""
        return self.rows * self.row_bytes

    @property
    def host_slot_bytes(self) -> int:
        """Bytes of one slot in host memory: its rows, then their notes."""
        return self.slot_bytes + self.rows * self.note_bytes


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A published block, as it may also travel in a message: slot, generation, rows 0 to `rows`.

    `tag` and `stamp_ns` are the writer's own: which step it was, and when.
    """

    slot: int
    generation: int
    rows: int
    tag: int = 0
    stamp_ns: int = 0


class SlotTable:
    """The words of a pool by name. `format` belongs to the creator."""

    def __init__(self, words: Words) -> None:
        self.words = words
        if words[_MAGIC] not in {0, MAGIC}:
            raise ValueError("this memory holds no pool")
        self.slots = words[_SLOTS]

    @staticmethod
    def bytes_for(shape: Shape) -> int:
        """How much memory the words take."""
        return WORD_BYTES * (HEADER_WORDS + shape.slots * WORDS_PER_SLOT)

    @classmethod
    def format(cls, words: Words, shape: Shape) -> "SlotTable":
        """Write the header into zeroed memory; every slot is free."""
        words[_SLOTS], words[_ROWS], words[_ROW_BYTES] = shape.slots, shape.rows, shape.row_bytes
        words[_NOTE_BYTES] = shape.note_bytes
        words[_MAGIC] = MAGIC
        return cls(words)

    @property
    def shape(self) -> Shape:
        """What the creator wrote."""
        return Shape(self.slots, self.words[_ROWS], self.words[_ROW_BYTES], self.words[_NOTE_BYTES])

    def generation_at(self, slot: int) -> int:
        """Index of the generation last leased: the writer's."""
        return HEADER_WORDS + slot

    def published_at(self, slot: int) -> int:
        """Index of the generation last published: the writer's."""
        return HEADER_WORDS + self.slots + slot

    def returned_at(self, slot: int) -> int:
        """Index of the generation last given back: the reader's."""
        return HEADER_WORDS + 2 * self.slots + slot

    def descriptor_at(self, number: int) -> int:
        """Index of the descriptor with this running number."""
        return HEADER_WORDS + 3 * self.slots + number % self.slots * DESCRIPTOR_WORDS

    def descriptor(self, number: int) -> BlockRef:
        """Read a descriptor."""
        at = self.descriptor_at(number)
        slot, generation, rows, tag, stamp_ns = (self.words[at + i] for i in range(5))
        return BlockRef(slot, generation, rows, tag, stamp_ns)

    def free(self) -> int:
        """How many slots could be leased now."""
        words = self.words
        return sum(words[self.generation_at(s)] == words[self.returned_at(s)] for s in range(self.slots))

    def is_current(self, ref: BlockRef) -> bool:
        """Whether the slot still holds this published block: not leased again, and not given back."""
        words = self.words
        return (
            0 <= ref.slot < self.slots
            and words[self.generation_at(ref.slot)] == ref.generation
            and words[self.returned_at(ref.slot)] != ref.generation
        )


class Writer:
    """The side that leases and publishes; one at a time, on one thread."""

    def __init__(self, table: SlotTable) -> None:
        self._table = table
        self._next = 0  # slots are used in turn, so that a stale reference shows early

    def lease(self) -> tuple[int, int] | None:
        """A free slot and its new generation; None when the reader holds them all."""
        table, words = self._table, self._table.words
        for _ in range(table.slots):
            slot, self._next = self._next, (self._next + 1) % table.slots
            generation = words[table.generation_at(slot)]
            if generation == words[table.returned_at(slot)]:
                words[table.generation_at(slot)] = generation + 1
                return slot, generation + 1
        return None

    def publish(self, ref: BlockRef) -> None:
        """Hand a leased slot, now filled, to the reader."""
        table, words = self._table, self._table.words
        posted = words[POSTED]
        at = table.descriptor_at(posted)
        words[at], words[at + 1], words[at + 2] = ref.slot, ref.generation, ref.rows
        words[at + 3], words[at + 4] = ref.tag, ref.stamp_ns
        words[POSTED] = posted + 1
        words[table.published_at(ref.slot)] = ref.generation

    def give_up(self, slot: int) -> None:
        """Take a lease back that was not published."""
        table, words = self._table, self._table.words
        words[table.generation_at(slot)] = words[table.published_at(slot)]

    def recover(self) -> int:
        """Finish or take back what a dead writer left; gives how many leases were taken back."""
        table, words = self._table, self._table.words
        if (posted := words[POSTED]) > 0:
            last = table.descriptor(posted - 1)
            if words[table.generation_at(last.slot)] == last.generation:
                words[table.published_at(last.slot)] = last.generation
        lost = [
            s for s in range(table.slots) if words[table.generation_at(s)] != words[table.published_at(s)]
        ]
        for slot in lost:
            self.give_up(slot)
        return len(lost)


class Reader:
    """The side that takes and gives back; one at a time, on one thread."""

    def __init__(self, table: SlotTable) -> None:
        self._table = table

    def take(self) -> BlockRef | None:
        """The oldest block that was not taken yet, now held by the reader; None if there is none."""
        words = self._table.words
        taken = words[TAKEN]
        if taken == words[POSTED]:
            return None
        ref = self._table.descriptor(taken)
        words[TAKEN] = taken + 1
        return ref

    def give_back(self, ref: BlockRef) -> None:
        """Free a held block's slot."""
        words = self._table.words
        words[self._table.returned_at(ref.slot)] = ref.generation
        words[CREDITS] += 1

    def recover(self) -> int:
        """Give back what a dead reader held; what it had not taken waits for the next. Gives how many."""
        table, words = self._table, self._table.words
        # in this order: what is published after the snapshot can only be in the ring after `posted`
        published = [words[table.published_at(s)] for s in range(table.slots)]
        posted = words[POSTED]
        waiting = {table.descriptor(number).slot for number in range(words[TAKEN], posted)}
        held = [
            s
            for s, generation in enumerate(published)
            if s not in waiting and words[table.returned_at(s)] != generation
        ]
        for slot in held:
            self.give_back(BlockRef(slot, published[slot], 0))
        return len(held)
