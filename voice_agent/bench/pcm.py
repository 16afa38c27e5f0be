"""Sound from the speech engine to the server: in the message itself, or by the shared-memory pool and a reference.

Chunks of 20 to 200 ms (24 kHz int16) at their own pace for 8 replies at once, through the engines' own framing; from
the instant the chunk is made to the instant the server has its bytes. Both ways take turns in one run, so that the
machine's mood falls on both. Needs no server: `python -m voice_agent.bench.pcm`.
"""

import asyncio
import json
import multiprocessing
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from voice_agent.bench import arguments
from voice_agent.bench.statistics import nearest_rank
from voice_agent.engine.connection import Connection
from voice_agent.engine.messages import SpeechChunk, decode_from_engine, encode
from voice_agent.engine.shared_memory import SharedMemoryPool
from voice_agent.engine.slots import BlockRef, Shape

RATE_HZ = 24_000
SAMPLE_BYTES = 2
REPLIES = 8
LONGEST_MS = 200
WAYS = ("inline", "pool")


def main(argv: Sequence[str]) -> int:
    """Measure and print; JSON on request."""
    parser = arguments.parser("voice-agent bench pcm", (__doc__ or "").split("\n")[0])
    seconds, rounds = arguments.number(0.1), arguments.whole(1)
    parser.add_argument("--seconds", type=seconds, default=3.0, help="for each way, length and round")
    parser.add_argument("--rounds", type=rounds, default=2, help="how often the ways take turns")
    parser.add_argument("--json", type=arguments.file_to_write, help="write the results here")
    options = parser.parse_args(argv)
    rows = [
        {
            "way": way,
            "chunk_ms": chunk_ms,
            "round": number,
            **asyncio.run(_measure(way, chunk_ms, options.seconds)),
        }
        for chunk_ms in (20, 100, 200)
        for number in range(options.rounds)
        for way in WAYS
    ]
    print(
        f"{'way':8}{'chunk ms':>10}{'round':>8}{'p50 us':>10}{'p99 us':>10}{'engine CPU us':>16}{'server CPU us':>16}"
    )
    for row in rows:
        print(
            f"{row['way']:8}{row['chunk_ms']:>10}{row['round']:>8}{row['p50_us']:>10}{row['p99_us']:>10}"
            f"{row['engine_cpu_us']:>16}{row['server_cpu_us']:>16}"
        )
    if options.json:
        options.json.write_text(
            json.dumps({"command": sys.argv, "results": rows}, indent=1), encoding="utf-8"
        )
    return 0


async def _measure(way: str, chunk_ms: int, seconds: float) -> dict[str, float]:
    pool = SharedMemoryPool.create(Shape(32, LONGEST_MS * RATE_HZ // 1000, SAMPLE_BYTES))
    ours, theirs = socket.socketpair()
    spawn = multiprocessing.get_context("spawn")
    spent: Any = spawn.Queue()
    child = spawn.Process(
        target=_engine, args=(theirs, pool.address, way, chunk_ms, seconds, spent), daemon=True
    )
    child.start()
    theirs.close()
    try:
        found = await _receive(await Connection.over(ours), _opener(way, pool))
        found["engine_cpu_us"] = spent.get(timeout=10)
    finally:
        child.join(10)
        child.kill()
        pool.close()
    return found


async def _receive(connection: Connection, opened: Callable[[bytes], bytes]) -> dict[str, float]:
    """The server's side: what it takes to have a chunk's bytes, until an empty frame."""
    took_us: list[float] = []
    cpu_ns = 0
    while frame := await connection.receive():
        cpu_ns = cpu_ns or time.process_time_ns()
        message = decode_from_engine(frame)
        assert isinstance(message, SpeechChunk)
        sound = opened(message.pcm)
        took_us.append((time.monotonic_ns() - message.first_sample) / 1000)
        assert len(sound) >= SAMPLE_BYTES
    cpu_us = (time.process_time_ns() - cpu_ns) / 1000 / len(took_us)
    await connection.close()
    return {
        "p50_us": round(nearest_rank(took_us, 50), 1),
        "p99_us": round(nearest_rank(took_us, 99), 1),
        "server_cpu_us": round(cpu_us, 1),
        "chunks": len(took_us),
    }


def _opener(way: str, pool: SharedMemoryPool) -> Callable[[bytes], bytes]:
    if way == "inline":
        return lambda pcm: pcm
    reader = pool.reader()

    def read(reference: bytes) -> bytes:
        lease = reader.take()
        assert lease is not None and _packed(lease.ref) == reference
        sound = bytes(lease.buffer)
        lease.release()
        return sound

    return read


def _packed(ref: BlockRef) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in (ref.slot, ref.generation, ref.rows, ref.tag))


def _engine(sock: socket.socket, address: str, way: str, chunk_ms: int, seconds: float, spent: Any) -> None:
    """Child: chunks of all replies, one after the other, as a VoiceBox gives them."""
    asyncio.run(_speak(sock, address, way, chunk_ms, seconds, spent))


async def _speak(
    sock: socket.socket, address: str, way: str, chunk_ms: int, seconds: float, spent: Any
) -> None:
    connection = await Connection.over(sock)
    samples = chunk_ms * RATE_HZ // 1000
    sound = bytes(samples * SAMPLE_BYTES)
    writer = SharedMemoryPool.attach(address).writer() if way == "pool" else None
    period_s = chunk_ms / 1000 / REPLIES
    count = int(seconds / period_s)
    due_s = time.monotonic() + 0.5
    cpu_ns = 0
    for number in range(count):
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        due_s += period_s
        cpu_ns = cpu_ns or time.process_time_ns()
        made_ns = time.monotonic_ns()
        payload = sound
        if writer is not None:
            lease = writer.lease(1.0)
            assert lease is not None
            lease.buffer[: len(sound)] = sound
            payload = _packed(lease.publish(samples, number))
        connection.send(encode(SpeechChunk("reply", 1, payload, RATE_HZ, made_ns)))
    spent.put(round((time.process_time_ns() - cpu_ns) / 1000 / count, 1))
    connection.send(b"")
    await asyncio.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
