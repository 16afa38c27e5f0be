"""The GPUs of this host, as the driver's management library tells them: NVML through ctypes, no CUDA context, no torch.

The server's side looks here before it starts an engine, and claims the GPUs it uses, so that a second server on one of
them is refused instead of running both out of memory.
"""

import ctypes
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

from voice_agent.engine.memory_plan import Gpu
from voice_agent.errors import ConfigError

_NAME_BYTES = 96
_DRIVER_NOT_LOADED, _MISMATCH = 9, 18


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def find_gpus(load: Callable[[str], Any] = ctypes.CDLL) -> list[Gpu]:
    """All GPUs; raises ConfigError that says what is missing when the driver cannot be asked."""
    try:
        library = load("libnvidia-ml.so.1")
    except OSError as error:
        raise ConfigError(
            "no NVIDIA driver here (libnvidia-ml.so.1 cannot be loaded): install it, give the container the GPU "
            "(--gpus all), or empty engines.<name>.devices to run on the CPU"
        ) from error
    _call(library, "nvmlInit_v2")
    try:
        count = ctypes.c_uint()
        _call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        return [_gpu(library, index) for index in range(count.value)]
    finally:
        library.nvmlShutdown()


def chosen_gpus(gpus: Sequence[Gpu], devices: Sequence[int], setting: str) -> list[Gpu]:
    """The GPUs an engine is placed on; raises ConfigError for unknown and duplicate ids."""
    known = {gpu.index: gpu for gpu in gpus}
    there = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in gpus) or "none"
    for place, device in enumerate(devices):
        if device not in known:
            raise ConfigError(f"{setting}: there is no GPU {device}; there are: {there}")
        if device in devices[:place]:
            raise ConfigError(f"{setting}: GPU {device} is named twice")
    return [known[device] for device in devices]


def claim(gpus: Sequence[Gpu]) -> list[socket.socket]:
    """Hold these GPUs for this server until the sockets are closed; raises ConfigError if another server does.

    The claim is a socket name that the kernel frees when its holder dies. It reaches as far as the network namespace.
    """
    held: list[socket.socket] = []
    try:
        for gpu in gpus:
            held.append(_claim_one(gpu))
    except BaseException:
        for own in held:
            own.close()
        raise
    return held


def _claim_one(gpu: Gpu) -> socket.socket:
    name = f"\0voice-agent-{gpu.uuid}"
    own = socket.socket(socket.AF_UNIX)
    try:
        own.bind(name)
        own.listen(1)
    except OSError as error:
        own.close()
        raise ConfigError(
            f"GPU {gpu.index} ({gpu.name}) is used by another voice-agent server ({_holder(name)}): "
            "stop that one, or place the engines elsewhere with engines.<name>.devices"
        ) from error
    return own


def _holder(name: str) -> str:
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(name)
        except OSError:
            return "which just ended or starts"
        pid, _, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return f"process {pid}"


def _gpu(library: Any, index: int) -> Gpu:
    handle = ctypes.c_void_p()
    _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    name, uuid = (ctypes.create_string_buffer(_NAME_BYTES) for _ in range(2))
    _call(library, "nvmlDeviceGetName", handle, name, ctypes.c_uint(_NAME_BYTES))
    _call(library, "nvmlDeviceGetUUID", handle, uuid, ctypes.c_uint(_NAME_BYTES))
    memory = _Memory()
    _call(library, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    return Gpu(index, uuid.value.decode(), name.value.decode(), memory.total, memory.free)


def _call(library: Any, name: str, *arguments: Any) -> None:
    result = getattr(library, name)(*arguments)
    if result == _MISMATCH:
        raise ConfigError(
            "the NVIDIA kernel module and the driver's libraries have different versions: reboot, or reload the module"
        )
    if result == _DRIVER_NOT_LOADED:
        raise ConfigError("the NVIDIA kernel module is not loaded: `nvidia-smi` says why")
    if result:
        raise ConfigError(f"the NVIDIA driver refused {name} ({result})")
