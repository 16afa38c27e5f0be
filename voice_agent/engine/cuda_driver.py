"""The few calls of the CUDA driver that blocks between processes need, through ctypes on libcuda.

Child side only. The primary context is used, which torch and vLLM use too, so pointers and streams of theirs may be
given here as integers (`tensor.data_ptr()`, `torch.cuda.current_stream().cuda_stream`). It needs neither of them.
"""

import ctypes
from typing import Any, Protocol

from voice_agent.errors import SharedMemoryError

HANDLE_BYTES = 64  # CUipcMemHandle and CUipcEventHandle
_NOT_READY = 600
_DISABLE_TIMING, _INTERPROCESS = 2, 4
_LAZY_PEER_ACCESS = 1
_PORTABLE = 1
_ALREADY_REGISTERED = 712


class CudaError(SharedMemoryError):
    """The driver refused a call; the text names the call and the driver's own reason."""

    code = "cuda_error"


class Driver(Protocol):
    """What DeviceWriter and DeviceReader ask of a device; pointers, streams and events are integers."""

    def uuid(self) -> bytes:
        """16 bytes that name the device, the same in every process."""
        ...

    def allocate(self, size: int) -> int:
        """Device memory."""
        ...

    def free(self, pointer: int) -> None:
        """Give it back."""
        ...

    def export_memory(self, pointer: int) -> bytes:
        """A handle by which another process opens it."""
        ...

    def open_memory(self, handle: bytes) -> int:
        """Map another process's memory; also of another device, over the peer link."""
        ...

    def close_memory(self, pointer: int) -> None:
        """Unmap it."""
        ...

    def new_event(self, *, interprocess: bool) -> int:
        """An event without timing."""
        ...

    def export_event(self, event: int) -> bytes:
        """A handle by which another process opens it."""
        ...

    def open_event(self, handle: bytes) -> int:
        """Another process's event."""
        ...

    def free_event(self, event: int) -> None:
        """Forget it."""
        ...

    def record(self, event: int, stream: int) -> None:
        """The event happens when the stream gets here."""
        ...

    def wait(self, stream: int, event: int) -> None:
        """The stream waits for the event as it was last recorded; the caller does not."""
        ...

    def happened(self, event: int) -> bool:
        """Whether it has."""
        ...

    def synchronize(self, event: int) -> None:
        """Wait on this thread until it has."""
        ...

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        """Bytes from anywhere to anywhere (host memory must be registered), in the stream's order."""
        ...

    def register_host(self, address: int, size: int) -> None:
        """Lock host memory, so that copies to and from it need no staging."""
        ...


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * HANDLE_BYTES),)


class LibCuda:
    """A Driver on the real thing, for one device and the threads that call `enter`."""

    def __init__(self, device: int) -> None:
        try:
            self._library: Any = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError(
                "there is no NVIDIA driver on this host (libcuda.so.1 cannot be loaded)"
            ) from error
        self.call("cuInit", ctypes.c_uint(0))
        handle = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(device))
        self._device = handle
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        self._context = context
        self.enter()

    def enter(self) -> None:
        """Make the device's primary context the calling thread's; each thread that calls must."""
        self.call("cuCtxSetCurrent", self._context)

    def uuid(self) -> bytes:
        """See Driver."""
        given = (ctypes.c_ubyte * 16)()
        self.call("cuDeviceGetUuid", given, self._device)
        return bytes(given)

    def allocate(self, size: int) -> int:
        """See Driver."""
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def free(self, pointer: int) -> None:
        """See Driver."""
        self.call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def export_memory(self, pointer: int) -> bytes:
        """See Driver."""
        handle = _Handle()
        self.call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(pointer))
        return bytes(handle.reserved)

    def open_memory(self, handle: bytes) -> int:
        """See Driver."""
        pointer = ctypes.c_uint64()
        given = _Handle.from_buffer_copy(handle)
        self.call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), given, ctypes.c_uint(_LAZY_PEER_ACCESS))
        return pointer.value

    def close_memory(self, pointer: int) -> None:
        """See Driver."""
        self.call("cuIpcCloseMemHandle", ctypes.c_uint64(pointer))

    def new_event(self, *, interprocess: bool) -> int:
        """See Driver."""
        event = ctypes.c_void_p()
        flags = _DISABLE_TIMING | (_INTERPROCESS if interprocess else 0)
        self.call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(flags))
        return event.value or 0

    def export_event(self, event: int) -> bytes:
        """See Driver."""
        handle = _Handle()
        self.call("cuIpcGetEventHandle", ctypes.byref(handle), ctypes.c_void_p(event))
        return bytes(handle.reserved)

    def open_event(self, handle: bytes) -> int:
        """See Driver."""
        event = ctypes.c_void_p()
        self.call("cuIpcOpenEventHandle", ctypes.byref(event), _Handle.from_buffer_copy(handle))
        return event.value or 0

    def free_event(self, event: int) -> None:
        """See Driver."""
        self.call("cuEventDestroy_v2", ctypes.c_void_p(event))

    def record(self, event: int, stream: int) -> None:
        """See Driver."""
        self.call("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream))

    def wait(self, stream: int, event: int) -> None:
        """See Driver."""
        self.call("cuStreamWaitEvent", ctypes.c_void_p(stream), ctypes.c_void_p(event), ctypes.c_uint(0))

    def happened(self, event: int) -> bool:
        """See Driver."""
        result = self._library.cuEventQuery(ctypes.c_void_p(event))
        if result not in {0, _NOT_READY}:
            raise self._error("cuEventQuery", result)
        return result == 0

    def synchronize(self, event: int) -> None:
        """See Driver."""
        self.call("cuEventSynchronize", ctypes.c_void_p(event))

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        """See Driver."""
        self.call(
            "cuMemcpyAsync",
            ctypes.c_uint64(target),
            ctypes.c_uint64(source),
            ctypes.c_size_t(size),
            ctypes.c_void_p(stream),
        )

    def register_host(self, address: int, size: int) -> None:
        """See Driver."""
        call = self._library.cuMemHostRegister_v2
        result = call(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_uint(_PORTABLE))
        if result not in {0, _ALREADY_REGISTERED}:
            raise self._error("cuMemHostRegister", result)

    def call(self, name: str, *arguments: Any) -> None:
        """One of the driver's functions by its exported name; raises CudaError if it says no."""
        result = getattr(self._library, name)(*arguments)
        if result:
            raise self._error(name, result)

    def _error(self, name: str, result: int) -> CudaError:
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(ctypes.c_int(result), ctypes.byref(text))
        reason = (text.value or b"unknown").decode(errors="replace")
        return CudaError(f"{name}: {reason} ({result})")
