"""A kernel that writes down the device's own time and the first eight bytes of what it was handed.

Two processes on one GPU read the same clock, so the stamps of a producer and a consumer can be compared, which no
host's clock allows: a launch returns long before its kernel runs. The PTX is compiled by the driver; nothing else is
needed, and a launch costs a few microseconds.
"""

import ctypes

import numpy as np
from numpy.typing import NDArray

from voice_agent.engine.cuda_driver import LibCuda

_PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry stamp(.param .u64 target, .param .u64 source)
{
    .reg .u64 %now, %to, %from, %seen;
    mov.u64 %now, %globaltimer;
    ld.param.u64 %to, [target];
    ld.param.u64 %from, [source];
    ld.global.u64 %seen, [%from];
    st.global.u64 [%to], %now;
    st.global.u64 [%to+8], %seen;
    ret;
}
"""
_Word = tuple[ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint]

_ONE, _NONE = ctypes.c_uint(1), ctypes.c_uint(0)
_PAIR_BYTES = 16


class StampKernel:
    """Room for `count` stamps on the device. One thread, one stream at a time."""

    def __init__(self, cuda: LibCuda, count: int) -> None:
        self._cuda = cuda
        self._count = count
        self._stamps = cuda.allocate(count * _PAIR_BYTES)
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        cuda.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(_PTX))
        cuda.call("cuModuleGetFunction", ctypes.byref(self._function), module, ctypes.c_char_p(b"stamp"))
        self._target, self._source = ctypes.c_uint64(), ctypes.c_uint64()
        places = (ctypes.addressof(self._target), ctypes.addressof(self._source))
        self._arguments = (ctypes.c_void_p * 2)(*places)

    def launch(self, step: int, source: int, stream: int) -> None:
        """Queue the kernel for one step behind whatever the stream has."""
        self._target.value = self._stamps + step % self._count * _PAIR_BYTES
        self._source.value = source
        sizes = (_ONE, _ONE, _ONE, _ONE, _ONE, _ONE, _NONE)
        self._cuda.call(
            "cuLaunchKernel", self._function, *sizes, ctypes.c_void_p(stream), self._arguments, None
        )

    def read(self, stream: int) -> NDArray[np.uint64]:
        """All stamps, in the stream's order: nanoseconds and the bytes seen, uint64 [count, 2]."""
        found = np.zeros((self._count, 2), np.uint64)
        self._cuda.copy(found.ctypes.data, self._stamps, found.nbytes, stream)
        done = self._cuda.new_event(interprocess=False)
        self._cuda.record(done, stream)
        self._cuda.synchronize(done)
        self._cuda.free_event(done)
        return found


def write_when_reached(cuda: LibCuda, stream: int, address: int, value: int) -> None:
    """The device stores a 32-bit word when the stream gets here, after everything before it."""
    cuda.call("cuStreamWriteValue32_v2", *_word(stream, address, value))


def wait_until_written(cuda: LibCuda, stream: int, address: int, value: int) -> None:
    """The stream goes on once the word has reached the value, counted round; no host has to look."""
    cuda.call("cuStreamWaitValue32_v2", *_word(stream, address, value))


def _word(stream: int, address: int, value: int) -> _Word:
    return ctypes.c_void_p(stream), ctypes.c_uint64(address), ctypes.c_uint32(value), _NONE
