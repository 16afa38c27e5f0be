"""The server's side of requests in flight: one stream each, results routed by request id and epoch.

No I/O: it is handed a `send`. Whatever belongs to a request that has ended, or to an older attempt, is dropped here,
so that nothing said for one turn can reach the next.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from voice_agent.engine.messages import (
    Abort,
    Failed,
    Finished,
    Request,
    Result,
    SpeakEnd,
    SpeakText,
    ToEngine,
    Transcript,
)
from voice_agent.errors import EngineDied, EngineError

Key = tuple[str, int]  # request id, epoch


class ConsumerBehind(EngineError):
    """Whoever reads this request's results let too many pile up; the request was aborted."""

    code = "consumer_behind"


class ResultStream:
    """One request's results in order. At most `limit` wait; one more fails the request. One reader."""

    def __init__(self, key: Key, push: Callable[[ToEngine], None], limit: int) -> None:
        self.key = key
        self._push = push
        self._limit = limit
        self._results: deque[Result] = deque()
        self._error: EngineError | None = None
        self._changed = asyncio.Event()
        self.open = True  # no last result has come

    def push(self, message: SpeakText | SpeakEnd) -> None:
        """Send more of a Speak request; dropped once it has ended, or if it carries another id or epoch."""
        if self.open and (message.request_id, message.epoch) == self.key:
            self._push(message)

    def __aiter__(self) -> AsyncIterator[Result]:
        """The results; raises EngineDied or ConsumerBehind in place of what can no longer come."""
        return self

    async def __anext__(self) -> Result:
        """The next result."""
        while True:
            if self._error is not None:
                raise self._error
            if self._results:
                return self._results.popleft()
            if not self.open:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()

    def deliver(self, result: Result) -> bool:
        """Queue a result; False if there was no room, and the stream failed."""
        if len(self._results) >= self._limit:
            self.fail(ConsumerBehind(f"{self._limit} results of this request wait unread"))
            return False
        self._results.append(result)
        self.open = not is_last(result)
        self._changed.set()
        return True

    def cut(self) -> None:
        """Forget what was not read and end as aborted."""
        if self.open:
            self._results.clear()
            self.deliver(Finished(*self.key, "aborted"))

    def fail(self, error: EngineError) -> None:
        """Raise at the reader at once, also over results it has not read."""
        if self.open:
            self._error, self.open = error, False
            self._results.clear()
            self._changed.set()


class StreamTable:
    """All requests of one engine. Event loop only; `send` may drop a message when the engine is gone."""

    def __init__(self, send: Callable[[ToEngine], None], queued_results: int) -> None:
        self._send = send
        self._queued_results = queued_results
        self._streams: dict[Key, ResultStream] = {}
        self._leaving: set[Key] = set()  # aborted here, the engine has not confirmed yet
        self._epoch = 0

    def next_epoch(self) -> int:
        """A number no earlier request carried."""
        self._epoch += 1
        return self._epoch

    @contextlib.asynccontextmanager
    async def submit(self, request: Request) -> AsyncGenerator[ResultStream]:
        """Send a request; an older attempt with its id ends as aborted. Leaving early aborts it.

        Raises what `send` raises for a request that cannot be sent at all.
        """
        self.abort(request.request_id)
        stream = ResultStream((request.request_id, request.epoch), self._send, self._queued_results)
        self._streams[stream.key] = stream
        try:
            self._send(request)
        except EngineError:
            del self._streams[stream.key]
            raise
        try:
            yield stream
        finally:
            self._leave(stream)

    def abort(self, request_id: str) -> None:
        """End every attempt with this id; unknown ids are ignored."""
        for stream in [stream for stream in self._streams.values() if stream.key[0] == request_id]:
            self._leave(stream)

    def route(self, result: Result) -> None:
        """Give a result to its stream, or drop it."""
        key = (result.request_id, result.epoch)
        last = is_last(result)
        if last:
            self._leaving.discard(key)
        stream = self._streams.get(key)
        if stream is None:
            return
        kept = stream.deliver(result)
        if last:
            del self._streams[key]
        elif not kept:
            self._retire(stream)

    def fail_all(self, text: str) -> None:
        """The engine is gone: every stream raises EngineDied, nothing is in flight any more."""
        streams, self._streams = self._streams, {}
        self._leaving.clear()
        for stream in streams.values():
            stream.fail(EngineDied(text, retryable=True))

    def in_flight(self) -> list[str]:
        """Ids the engine may still be working on, aborted ones until it confirms."""
        return list(dict.fromkeys(request_id for request_id, _ in [*self._streams, *self._leaving]))

    def _leave(self, stream: ResultStream) -> None:
        if self._streams.get(stream.key) is stream:
            stream.cut()
            self._retire(stream)

    def _retire(self, stream: ResultStream) -> None:
        del self._streams[stream.key]
        self._leaving.add(stream.key)
        self._send(Abort(*stream.key))


def is_last(result: Result) -> bool:
    """Whether this result ends its request."""
    return isinstance(result, Transcript | Finished) or (isinstance(result, Failed) and result.final)
