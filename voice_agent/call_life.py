"""A call from its start to its end, whatever carries it: one task, why it ended, and who waits for that.

The broad `except` here is the session's supervisor: a bug in one call is logged and ends that call, and no other. Knows
no media and no protocol: it is handed what the call does and how it is freed.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

logger = logging.getLogger(__name__)

EXPIRED = "time is over"


class CallLife:
    """One call's; `end_reason` is empty while it runs, and the first reason that is known stays."""

    def __init__(self, call_id: str) -> None:
        self.end_reason = ""
        self._call_id = call_id
        self._closed = asyncio.Event()
        self._ending = False
        self._task: asyncio.Task[None] | None = None

    def start(
        self, talk: Callable[[], Awaitable[None]], free: Callable[[], Awaitable[None]]
    ) -> asyncio.Task[None]:
        """Set the call going; it owns itself until it was freed."""
        self._task = asyncio.create_task(self._live(talk, free), name=f"call {self._call_id}")
        return self._task

    @property
    def expired(self) -> bool:
        """Whether its time was over."""
        return self.end_reason == EXPIRED

    @property
    def closed(self) -> bool:
        """Whether it is over and freed."""
        return self._closed.is_set()

    def ends(self, reason: str) -> None:
        """Say why, unless it is known already."""
        self.end_reason = self.end_reason or reason

    async def close(self, reason: str) -> None:
        """End the call and wait until all of it is freed."""
        self.ends(reason)
        if self._task and not self._ending:
            self._ending = True  # a second cancel would interrupt the freeing
            self._task.cancel()
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Return once the call is over."""
        await self._closed.wait()

    @asynccontextmanager
    async def until_first(self, parts: Mapping[asyncio.Future[Any], str]) -> AsyncGenerator[None]:
        """Wait until a part of the call ends, which says why the call does; on leaving all of them are ended."""
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            first = next(part for part in parts if part in done)
            self.ends(parts[first])
            first.result()
            yield
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _live(self, talk: Callable[[], Awaitable[None]], free: Callable[[], Awaitable[None]]) -> None:
        try:
            await talk()
        except asyncio.CancelledError:
            self.ends("cancelled")
        except Exception:
            self.end_reason = "internal_error"
            logger.exception("call %s failed", self._call_id)
        finally:
            self._ending = True
            try:
                await free()
            finally:
                logger.info("call %s ended: %s", self._call_id, self.end_reason)
                self._closed.set()
