"""Ends an engine's whole process group when the server is gone, for engines that start processes of their own.

The death signal that the kernel sends reaches the engine alone: what it started (vLLM's core holds the GPU) would live
on, unseen. So a tiny process of the same group waits for the server's end and then kills the group. It holds nothing of
ours open, and the server's own kill of the group ends it too.
"""

import subprocess
import sys

_GUARD = """
import os, select, signal, sys
try:
    server = os.pidfd_open(int(sys.argv[1]))
except ProcessLookupError:
    pass
else:
    waiting = select.poll()
    waiting.register(server, select.POLLIN)
    waiting.poll()
os.killpg(0, signal.SIGKILL)
"""


def start(server_pid: int) -> None:
    """Start the guard in the calling process's group; call it before anything else is started. Linux only."""
    subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _GUARD, str(server_pid)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=True,
    )
