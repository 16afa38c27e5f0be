"""Which thread the kernel runs first when there are more than cores: the event loop, before everything that may wait.

The loop owes each caller a frame every 20 ms and takes a moment for it; a judgement or a model's step takes tens of
milliseconds. With equal shares the loop waits for them, frame after frame. Niceness is a thread's own on Linux, and
what a thread starts begins with it: so the loop's thread takes precedence, and its threads and processes step back.
Python's own lock has no order: who holds it may keep it for a switch interval, so that is shortened.

Lowering it wants root, CAP_SYS_NICE or RLIMIT_NICE; without, everything stays equal. Source: setpriority(2), notes.
"""

import contextlib
import os
import sys

SWITCH_S = 0.0005  # Python's own 5 ms is a quarter of a frame, for each time a judgement gets the lock
NICENESS = -10  # of the loop: ten times an equal thread's share; the kernel's own work stays at -20

MOST_NICENESS = 19


def take() -> bool:
    """Let the calling thread go before others; False where the kernel does not allow it, or knows no such thing."""
    sys.setswitchinterval(SWITCH_S)
    if sys.platform != "linux":
        return False
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    except PermissionError:
        return False
    return True


def step_back() -> None:
    """Give up what the calling thread was given by the one that started it. Raising niceness is always allowed."""
    if sys.platform == "linux" and os.getpriority(os.PRIO_PROCESS, 0) < 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)


def threads() -> set[int]:
    """Ids of this process's threads; none where they have no niceness of their own."""
    return {int(name) for name in os.listdir("/proc/self/task")} if sys.platform == "linux" else set()


def let_step_back(these: set[int], by: int) -> None:
    """Let these threads of this process go behind others, as nice(2) would in each; ended ones may be named."""
    for thread in these:
        with contextlib.suppress(ProcessLookupError):
            now = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, min(now + by, MOST_NICENESS))


def let_come_forward(these: set[int], to: int) -> bool:
    """Give these threads of this process this niceness; False where the kernel does not allow them less."""
    for thread in these:
        try:
            os.setpriority(os.PRIO_PROCESS, thread, to)
        except ProcessLookupError:
            continue
        except PermissionError:
            return False
    return True
