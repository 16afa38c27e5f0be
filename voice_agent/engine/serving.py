"""The process that serves: what it is sent, what it says, and whether it gives signs of life.

One for each process that got ready, from then until it is ended. It routes results without knowing whose they are, ends
nothing but a process that does not read, and restarts nothing: it says why, and the supervisor acts.
"""

import asyncio
from collections.abc import Callable

import msgspec

from voice_agent.clock import NS_PER_S, Clock
from voice_agent.engine.connection import ConnectionEnded, ConnectionFull, FrameTooLarge, fits
from voice_agent.engine.messages import (
    Loading,
    Ping,
    Pong,
    Ready,
    Result,
    StartFailed,
    ToEngine,
    decode_from_engine,
    encode,
)
from voice_agent.engine.process import ChildProcess
from voice_agent.engine.runtime import EngineLimits
from voice_agent.errors import EngineError


class Serving:
    """One process that is up. `read` and `beat` run side by side; the first to end has the reason for its end."""

    def __init__(self, child: ChildProcess, limits: EngineLimits, clock: Clock) -> None:
        self.child = child
        self._limits = limits
        self._clock = clock
        self._pongs_missing = 0
        self._gone = False
        self._frames: list[bytes] = []  # of this turn
        self.held: list[str] = []  # request ids that its last sign of life named
        self.work: dict[str, float] = {}  # totals that it told

    def send(self, message: ToEngine) -> None:
        """Send, or drop it if the process is gone; what comes in one turn of the loop goes out in one write.

        So the engine sees all of a wave at once. Raises EngineError for a request that is too large.
        """
        if self._gone:
            return
        try:
            frame = fits(encode(message))
        except FrameTooLarge as error:
            what = (
                f"the request takes {error}: send fewer or shorter messages, or smaller sounds and pictures"
            )
            raise EngineError(what, code="request_too_large") from error
        if not self._frames:
            asyncio.get_running_loop().call_soon(self._flush)
        self._frames.append(frame)

    def _flush(self) -> None:
        """One that does not read is killed, which `read` then notices."""
        frames, self._frames = self._frames, []
        try:
            self.child.connection.send(*frames)
        except ConnectionFull:
            self.child.kill("did not read what it was sent")
        except ConnectionEnded:
            pass  # `read` notices at once

    async def read(self, route: Callable[[Result], None]) -> str:
        """Route results until the process has to be ended: why. Raises ConnectionEnded when nothing more comes."""
        try:
            while True:
                match decode_from_engine(await self.child.connection.receive()):
                    case Pong(in_flight=held, busy_ms=busy_ms, work=work):
                        self._pongs_missing, self.held, self.work = 0, held, work
                        if busy_ms > 1000 * self._limits.stuck_step_s:
                            return f"a step has not moved for {busy_ms / 1000:.0f} s"
                    case Ready() | Loading() | StartFailed():
                        pass
                    case result:
                        route(result)
        except ConnectionEnded:
            self._gone = True
            raise
        except msgspec.DecodeError:
            return "sent something that is no message"

    async def beat(self) -> str:
        """Ping; ends when too many in a row went unanswered.

        Pings are counted, not seconds, so that a pause of our own loop is never taken for one of the engine's.
        """
        number = 0
        while self._pongs_missing * self._limits.ping_s < self._limits.silent_s:
            number += 1
            self._pongs_missing += 1
            self.send(Ping(number))
            await self._clock.sleep_until(self._clock.now_ns() + int(self._limits.ping_s * NS_PER_S))
        return f"gave no sign of life for {self._limits.silent_s:g} s"
