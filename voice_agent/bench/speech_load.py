"""Put a load on a speech route and hear what comes: every job that was due is in the result, answered or not.

Client and server share the clock only if they share the machine; all figures are the client's own. A request leaves
when it is due, whatever became of the others; how late the client itself was is part of the result.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from voice_agent.bench.http_answer import BadAnswer
from voice_agent.bench.http_stream import Connection, ConnectionPool, post
from voice_agent.bench.listener import Heard, Listener
from voice_agent.bench.load import Job, lengths
from voice_agent.bench.sentences import texts
from voice_agent.bench.speech_servers import RATE_HZ, Asking, NotSound, SoundReader, check_answer
from voice_agent.clock import NS_PER_MS, NS_PER_S, Clock


@dataclass(slots=True)
class Reply:
    """One job and what became of it. `failure` is a short reason; `sound` is kept only where it is to be recognized.

    `random_weights`: the server says that nothing in it can be understood.
    """

    job: Job
    sent_ns: int = 0
    over_ns: int = 0
    late_ms: float = 0.0
    heard: Heard = field(default_factory=Heard)
    failure: str | None = None
    sound: bytes = b""
    random_weights: bool = False


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: in which dialect, over which connections, how long it waits for a whole answer."""

    asking: Asking
    pool: ConnectionPool
    clock: Clock
    timeout_s: float = 120.0
    api_key: str = ""
    keep_sound_every: int = 0

    def keeps(self, job: Job, number: int) -> bool:
        """Whether the sound of the job of that number is to be recognized."""
        return job.counts and self.keep_sound_every > 0 and number % self.keep_sound_every == 0

    async def ask(self, reply: Reply, *, keep: bool = False, latency_first: bool = True) -> None:
        """Ask and listen to the end; a failure is written down, not raised. Cancellation hangs up."""
        body = self.asking.body(reply.job, latency_first=latency_first)
        request = post(self.pool, self.asking.server.path, body, self.api_key)
        listener, reader = Listener(RATE_HZ), SoundReader(wav=self.asking.server.wav)
        connection: Connection | None = None

        def tell(piece: bytes, at_ns: int) -> None:
            try:
                listener.arrives(reader.feed(piece), at_ns)
            except NotSound as error:
                reply.failure = str(error)

        try:
            async with asyncio.timeout(self.timeout_s):
                connection = await self.pool.take()
                answer = await connection.ask(request, tell)
            reply.failure = reply.failure or check_answer(answer.status, answer.headers)
            reply.random_weights = answer.headers.get("x-voice-weights") == "random"
        except TimeoutError:
            reply.failure = f"no whole answer in {self.timeout_s:g} s"
        except (OSError, BadAnswer) as error:
            reply.failure = f"{type(error).__name__}: {error}"
        self._write_down(reply, listener, connection, keep=keep)
        if connection is not None:
            self.pool.give(connection)

    def _write_down(
        self, reply: Reply, listener: Listener, connection: Connection | None, *, keep: bool
    ) -> None:
        reply.over_ns = self.clock.now_ns()
        reply.sent_ns = connection.sent_ns if connection is not None else reply.over_ns
        reply.heard = listener.heard(reply.sent_ns)
        reply.sound = bytes(listener.sound) if keep else b""
        if reply.failure is None and reply.heard.audible_ms is None:
            reply.failure = "nothing audible came"


async def open_loop(caller: Caller, jobs: Sequence[Job], start_ns: int) -> list[Reply]:
    """Send each job when it is due, counted from an instant; returns all replies in that order."""
    replies: list[Reply] = []
    async with asyncio.TaskGroup() as group:
        for number, job in enumerate(jobs):
            due_ns = start_ns + int(job.at_s * NS_PER_S)
            await caller.clock.sleep_until(due_ns)
            reply = Reply(job, late_ms=(caller.clock.now_ns() - due_ns) / NS_PER_MS)
            replies.append(reply)
            group.create_task(caller.ask(reply, keep=caller.keeps(job, number)))
    return replies


async def closed_loop(
    caller: Caller, streams: int, warm_up_s: float, seconds: float, seed: int
) -> list[Reply]:
    """So many askers, each with one request after the other, until the time is over."""
    start_ns = caller.clock.now_ns()
    end_ns = start_ns + int((warm_up_s + seconds) * NS_PER_S)
    replies: list[Reply] = []
    jobs = enumerate(_jobs_now(caller.clock, start_ns, warm_up_s, seed))

    async def one_after_the_other() -> None:
        while caller.clock.now_ns() < end_ns:
            number, job = next(jobs)
            replies.append(reply := Reply(job))
            await caller.ask(reply, keep=caller.keeps(job, number))

    async with asyncio.TaskGroup() as group:
        for _ in range(streams):
            group.create_task(one_after_the_other())
    return replies


@asynccontextmanager
async def quality_jobs(caller: Caller, streams: int) -> AsyncGenerator[list[Reply]]:
    """Quality-first requests that run beside, one after the other in each stream; hung up at the end."""
    replies: list[Reply] = []
    jobs = _jobs_now(caller.clock, caller.clock.now_ns(), 0, 7)

    async def one_after_the_other() -> None:
        while True:
            reply = Reply(next(jobs))
            await caller.ask(reply, latency_first=False)
            replies.append(reply)
            if reply.failure:
                await asyncio.sleep(0.1)  # a server that refuses at once is not to be flooded

    tasks = [asyncio.ensure_future(one_after_the_other()) for _ in range(streams)]
    try:
        yield replies
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def in_flight(replies: Sequence[Reply], begin_ns: int, end_ns: int) -> tuple[float, int]:
    """Mean and peak of requests in flight between two instants."""
    steps = sorted([(r.sent_ns, 1) for r in replies] + [(r.over_ns, -1) for r in replies])
    now, peak, area, at_ns = 0, 0, 0.0, begin_ns
    for instant_ns, step in steps:
        inside_ns = min(max(instant_ns, begin_ns), end_ns)
        area += now * (inside_ns - at_ns)
        at_ns = inside_ns
        now += step
        if begin_ns <= instant_ns <= end_ns:
            peak = max(peak, now)
    return area / max(1, end_ns - begin_ns), peak


def _jobs_now(clock: Clock, start_ns: int, warm_up_s: float, seed: int) -> Iterator[Job]:
    for text, frames in zip(texts(seed), lengths(seed), strict=False):
        at_s = (clock.now_ns() - start_ns) / NS_PER_S
        yield Job(at_s, text, frames, at_s >= warm_up_s)


class Gpu:
    """How busy the device is while something runs, by `nvidia-smi` where there is one."""

    def __init__(self, index: int) -> None:
        self._index = index
        self.busy: list[float] = []
        self.memory_mib: list[float] = []
        self.name: str | None = None

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Read it twice a second meanwhile."""
        try:
            process = await asyncio.create_subprocess_exec(
                "nvidia-smi", "-i", str(self._index), "--query-gpu=utilization.gpu,memory.used,name",
                "--format=csv,noheader,nounits", "--loop-ms=500",
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        except OSError:
            yield
            return
        reading = asyncio.ensure_future(self._read(process))
        try:
            yield
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        if process.stdout is None:
            return
        async for line in process.stdout:
            self.read(line.decode("utf-8", "replace"))

    def read(self, line: str) -> None:
        """One line of its output; what is no number is passed over."""
        parts = [part.strip() for part in line.split(",")]
        if len(parts) < 3:
            return
        self.name = parts[2]
        for values, text in ((self.busy, parts[0]), (self.memory_mib, parts[1])):
            if text.replace(".", "", 1).isdigit():
                values.append(float(text))
