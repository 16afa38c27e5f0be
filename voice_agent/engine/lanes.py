"""A lane: one thread that does requests in the order they came, each stopped at once when it is aborted.

It knows no model: a request is a callable that gives the message that ends it. Every request put in gets exactly one
ending message, whatever happens to it.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from voice_agent.clock import Clock, ms_between
from voice_agent.engine.failures import code_and_text
from voice_agent.engine.messages import Failed, Finished, FromEngine, Transcript
from voice_agent.errors import EngineError

logger = logging.getLogger(__name__)

Send = Callable[[FromEngine], None]  # from any thread
Work = Callable[["Job"], Transcript | Finished | Failed]


@dataclass(eq=False, slots=True)
class Job:
    """One request in a lane; `work` asks `stopped` between its steps, which also tells that it moves."""

    request_id: str
    epoch: int
    work: Work
    queued_ns: int
    clock: Clock
    moved_ns: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)

    def stopped(self) -> bool:
        """Whether to stop now; call it between steps."""
        self.moved_ns = self.clock.now_ns()
        return self.cancelled.is_set()


def failure(request_id: str, epoch: int, error: Exception) -> Failed:
    """The message for a request that raised; the text of a foreign error is kept out, it may quote a transcript."""
    if isinstance(error, EngineError):
        return Failed(request_id, epoch, error.code, str(error), error.retryable)
    return Failed(request_id, epoch, *code_and_text(error))


class Lanes:
    """Several lanes as one: a request goes where the fewest are. Methods: any thread."""

    def __init__(self, lanes: Sequence["Lane"]) -> None:
        self._lanes = lanes

    def put(self, request_id: str, epoch: int, work: Work) -> None:
        """As Lane's; a request stays with the lane that holds an older one of its id."""
        held = [lane.in_flight() for lane in self._lanes]
        known = (place for place, ids in enumerate(held) if request_id in ids)
        emptiest = min(range(len(held)), key=lambda place: len(held[place]))
        self._lanes[next(known, emptiest)].put(request_id, epoch, work)

    def abort(self, request_id: str, epoch: int) -> None:
        """As Lane's."""
        for lane in self._lanes:
            lane.abort(request_id, epoch)

    def wait_idle(self, limit_s: float) -> None:
        """As Lane's: all of them, within the one limit."""
        end_s = time.monotonic() + limit_s
        for lane in self._lanes:
            lane.wait_idle(max(0.0, end_s - time.monotonic()))

    def in_flight(self) -> list[str]:
        """Ids queued and running."""
        return [request_id for lane in self._lanes for request_id in lane.in_flight()]

    def busy_ms(self) -> float:
        """How long the slowest running request has not moved; 0 when idle."""
        return max(lane.busy_ms() for lane in self._lanes)


class Lane:
    """One worker thread. Full (`capacity` requests queued): the new one fails as busy. Methods: any thread."""

    def __init__(self, name: str, send: Send, clock: Clock, capacity: int) -> None:
        self._send = send
        self._clock = clock
        self._capacity = capacity
        self._queue: deque[Job] = deque()
        self._running: Job | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def put(self, request_id: str, epoch: int, work: Work) -> None:
        """Queue a request; an older one with this id is aborted, a newer one lets this one end as aborted."""
        job = Job(request_id, epoch, work, self._clock.now_ns(), self._clock)
        with self._changed:
            if any(held.request_id == request_id and held.epoch >= epoch for held in self._held()):
                self._send(Finished(request_id, epoch, "aborted"))
                return
            self._stop(lambda held: held.request_id == request_id)
            if len(self._queue) >= self._capacity:
                self._send(Failed(request_id, epoch, "busy", "too many requests are waiting", retryable=True))
                return
            self._queue.append(job)
            self._changed.notify_all()

    def abort(self, request_id: str, epoch: int) -> None:
        """End a queued request now, a running one at its next step; others are left alone."""
        with self._changed:
            self._stop(lambda held: held.request_id == request_id and held.epoch == epoch)

    def wait_idle(self, limit_s: float) -> None:
        """Block until nothing is queued or running, `limit_s` at most."""
        if self._running or self._queue:
            with self._changed:
                self._changed.wait_for(lambda: not self._held(), limit_s)

    def in_flight(self) -> list[str]:
        """Ids queued and running."""
        with self._changed:
            return [job.request_id for job in self._held()]

    def busy_ms(self) -> float:
        """How long the running request has not moved; 0 when idle."""
        job = self._running
        return 0.0 if job is None else ms_between(job.moved_ns, self._clock.now_ns())

    def _held(self) -> list[Job]:
        return [*([self._running] if self._running else []), *self._queue]

    def _stop(self, which: Callable[[Job], bool]) -> None:
        for job in filter(which, self._held()):
            job.cancelled.set()
            if job is not self._running:
                self._queue.remove(job)
                self._send(Finished(job.request_id, job.epoch, "aborted"))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue)
                job = self._running = self._queue.popleft()
                job.moved_ns = self._clock.now_ns()
            ending = self._attempt(job)
            with self._changed:
                self._running = None
                self._changed.notify_all()
                self._send(
                    Finished(job.request_id, job.epoch, "aborted") if job.cancelled.is_set() else ending
                )

    def _attempt(self, job: Job) -> Transcript | Finished | Failed:
        try:
            return job.work(job)
        except Exception as error:  # noqa: BLE001 - one request's supervisor: the lane outlives any model's error
            logger.warning("a request failed", exc_info=not isinstance(error, EngineError))
            return failure(job.request_id, job.epoch, error)
