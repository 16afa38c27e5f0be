"""One task per request on the event loop, all of them at once: for a model that schedules its requests itself.

The counterpart of a lane. There is no queue and no cap: whom the model cannot serve yet waits inside it, where its
scheduler sees him. It knows no model: a request is a coroutine that gives the message that ends it. Every request put
in gets exactly one ending message, whatever happens to it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from voice_agent.clock import Clock, ms_between
from voice_agent.engine.lanes import Send, failure
from voice_agent.engine.messages import Failed, Finished
from voice_agent.errors import EngineError

logger = logging.getLogger(__name__)

Work = Callable[["Request"], Awaitable[Finished | Failed]]


@dataclass(eq=False, slots=True)
class Request:
    """One request in flight; `stopped` tells that it moves."""

    request_id: str
    epoch: int
    queued_ns: int
    moved: Callable[[], None]

    def stopped(self) -> bool:
        """Never: an aborted request's task is cancelled. Call it at every step."""
        self.moved()
        return False


class Tasks:
    """Requests in flight. All methods belong to the event loop's thread."""

    def __init__(self, send: Send, clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._held: dict[str, tuple[Request, asyncio.Task[None]]] = {}  # by id: the newest attempt
        self._leaving: set[asyncio.Task[None]] = set()  # older attempts, cancelled
        self._moved_ns = clock.now_ns()

    def put(self, request_id: str, epoch: int, work: Work) -> None:
        """Begin a request; an older one with this id is aborted, a newer one lets this one end as aborted."""
        held = self._held.get(request_id)
        if held and held[0].epoch >= epoch:
            self._send(Finished(request_id, epoch, "aborted"))
            return
        if held:
            self._leaving.add(held[1])
            held[1].cancel()
        if not self._held:
            self._move()
        request = Request(request_id, epoch, self._clock.now_ns(), self._move)
        task = asyncio.get_running_loop().create_task(self._run(request, work), name=f"request {request_id}")
        self._held[request_id] = request, task
        task.add_done_callback(lambda done: self._ended(request, done))

    def abort(self, request_id: str, epoch: int) -> None:
        """Cancel a request; others are left alone."""
        request, task = self._held.get(request_id, (None, None))
        if request and task and request.epoch == epoch:
            task.cancel()

    def in_flight(self) -> list[str]:
        """Ids of requests that have not ended."""
        return list(self._held)

    def busy_ms(self) -> float:
        """How long none of them has moved; 0 when there is none."""
        return ms_between(self._moved_ns, self._clock.now_ns()) if self._held else 0.0

    def _move(self) -> None:
        self._moved_ns = self._clock.now_ns()

    async def _run(self, request: Request, work: Work) -> None:
        try:
            ending = await work(request)
        except Exception as error:  # noqa: BLE001 - one request's supervisor: the others outlive any model's error
            logger.warning("a request failed", exc_info=not isinstance(error, EngineError))
            ending = failure(request.request_id, request.epoch, error)
        self._send(ending)

    def _ended(self, request: Request, task: asyncio.Task[None]) -> None:
        """After the task, also when it was cancelled before its first step."""
        self._leaving.discard(task)
        if self._held.get(request.request_id, (None, None))[0] is request:
            del self._held[request.request_id]
        if task.cancelled():
            self._send(Finished(request.request_id, request.epoch, "aborted"))
