"""The other side of a pool, as a process to kill: python pool_peer.py {write,read} ADDRESS MODE."""

import sys
import time

from voice_agent.engine.shared_memory import SharedMemoryPool


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def write(pool: SharedMemoryPool, mode: str) -> None:
    """`hold` leases a slot and stops; `flow` publishes numbered blocks for ever."""
    writer = pool.writer()
    if mode == "hold":
        lease = writer.lease()
        say(lease.slot if lease else "none")
        time.sleep(60)
    number = 0
    while True:
        if lease := writer.lease(1.0):
            lease.buffer[:8] = number.to_bytes(8, "little")
            lease.publish(1, number)
            number += 1
            if number == 3:
                say("flows")


def read(pool: SharedMemoryPool, mode: str) -> None:
    """`hold` takes two blocks and keeps them; `flow` checks every block and gives it back."""
    reader = pool.reader()
    if mode == "hold":
        held = [reader.take(5.0), reader.take(5.0)]
        say([lease.ref.tag for lease in held if lease])
        time.sleep(60)
    count = 0
    while lease := reader.take(5.0):
        count += 1
        if int.from_bytes(lease.buffer[:8], "little") != lease.ref.tag:
            say("torn")
        lease.release()
        if count == 3:
            say("flows")


if __name__ == "__main__":
    (write if sys.argv[1] == "write" else read)(SharedMemoryPool.attach(sys.argv[2]), sys.argv[3])
