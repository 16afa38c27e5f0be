"""A device for tests: streams are queues that run only when told, device memory is host memory, handles are keys.

It keeps what matters for hand-over: order within a stream, waiting of one stream for another's event, and that nothing
happens before its turn.
"""

import ctypes
import itertools
from collections import deque
from collections.abc import Callable, Mapping

Work = Callable[[], bool]  # True once done, False when it must wait


class Event:
    """Recorded so many times, happened so many times."""

    def __init__(self) -> None:
        self.recorded = 0
        self.happened = 0


class Host:
    """What all processes of one machine see: exported memory and events."""

    def __init__(self) -> None:
        self.memory: dict[bytes, int] = {}
        self.events: dict[bytes, Event] = {}


class FakeCuda:
    """One process's Driver. `run(stream)` lets the device work."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._numbers = itertools.count(1)
        self._buffers: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.mapped: set[int] = set()
        self.events: dict[int, Event] = {}
        self._streams: dict[int, deque[Work]] = {}
        self.registered: list[tuple[int, int]] = []

    def run(self, stream: int) -> None:
        """Do what the stream can do now."""
        queue = self._streams.setdefault(stream, deque())
        while queue and queue[0]():
            queue.popleft()

    def uuid(self) -> bytes:
        return b"fake-device-uuid"

    def allocate(self, size: int) -> int:
        buffer = ctypes.create_string_buffer(size)
        address = ctypes.addressof(buffer)
        self._buffers[address] = buffer
        return address

    def free(self, pointer: int) -> None:
        del self._buffers[pointer]

    def export_memory(self, pointer: int) -> bytes:
        assert pointer in self._buffers
        key = self._key(self._host.memory)
        self._host.memory[key] = pointer
        return key

    def open_memory(self, handle: bytes) -> int:
        self.mapped.add(self._host.memory[handle])
        return self._host.memory[handle]

    def close_memory(self, pointer: int) -> None:
        self.mapped.remove(pointer)

    def new_event(self, *, interprocess: bool) -> int:
        return self._adopt(Event())

    def export_event(self, event: int) -> bytes:
        key = self._key(self._host.events)
        self._host.events[key] = self.events[event]
        return key

    def open_event(self, handle: bytes) -> int:
        return self._adopt(self._host.events[handle])

    def free_event(self, event: int) -> None:
        del self.events[event]

    def record(self, event: int, stream: int) -> None:
        known = self.events[event]
        known.recorded += 1
        number = known.recorded

        def happen() -> bool:
            known.happened = max(known.happened, number)
            return True

        self._streams.setdefault(stream, deque()).append(happen)

    def wait(self, stream: int, event: int) -> None:
        known, number = self.events[event], self.events[event].recorded
        self._streams.setdefault(stream, deque()).append(lambda: known.happened >= number)

    def happened(self, event: int) -> bool:
        return self.events[event].happened >= self.events[event].recorded

    def synchronize(self, event: int) -> None:
        for stream in list(self._streams):
            self.run(stream)
        assert self.happened(event), "would wait for ever"

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        def move() -> bool:
            ctypes.memmove(target, source, size)
            return True

        self._streams.setdefault(stream, deque()).append(move)

    def register_host(self, address: int, size: int) -> None:
        self.registered.append((address, size))

    def _adopt(self, event: Event) -> int:
        number = next(self._numbers)
        self.events[number] = event
        return number

    def _key(self, where: Mapping[bytes, object]) -> bytes:
        return f"{len(where)} {id(self)}".encode().ljust(64, b"\0")
