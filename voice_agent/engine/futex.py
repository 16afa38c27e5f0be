"""Waiting for a word in shared memory to change, and waking who waits: Linux futex(2), between processes.

Chosen over an eventfd because nothing has to be handed over: whoever maps the memory can wait, a process started by
another engine's child too. The interpreter's lock is released while waiting.
"""

import ctypes
import errno
import os

_FUTEX = 202  # of x86-64
_WAIT, _WAKE = 0, 1  # without FUTEX_PRIVATE_FLAG: the word is shared
_ALL = 2**31 - 1

supported = os.uname().sysname == "Linux" and os.uname().machine == "x86_64"
_number = ctypes.c_long(_FUTEX)
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def wait(address: int, seen: int, timeout_s: float) -> None:
    """Return when the 32-bit word at `address` is no longer `seen`, was woken, or the time is over.

    It may also return for no reason: look at the word again.
    """
    seconds = int(timeout_s)
    limit = _Timespec(seconds, int((timeout_s - seconds) * 1e9))
    value = ctypes.c_uint32(seen & 0xFFFFFFFF)
    done = _syscall(
        _number, ctypes.c_void_p(address), ctypes.c_int(_WAIT), value, ctypes.byref(limit), None, 0
    )
    if done and ctypes.get_errno() not in {errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT}:
        raise OSError(ctypes.get_errno(), "futex wait")


def wake(address: int) -> None:
    """Wake everyone who waits for the word at `address`."""
    _syscall(_number, ctypes.c_void_p(address), ctypes.c_int(_WAKE), ctypes.c_int(_ALL), None, None, 0)
