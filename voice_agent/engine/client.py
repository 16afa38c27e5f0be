"""The contract between the cascade and an engine, wherever the engine runs.

One process, a socket on one host, or a socket between hosts: each is an `EngineClient`, and the same contract
tests run against each (tests/test_engine_contract.py).
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from voice_agent.engine.messages import Request, Result, SpeakEnd, SpeakText


class EngineStream(Protocol):
    """One request in flight: iterate its results; the last one is Transcript, Finished or a final Failed.

    Raises EngineDied if the engine's process ends first. `push` sends the rest of a Speak request.
    """

    def __aiter__(self) -> AsyncIterator[Result]:
        """Results in order."""
        ...

    def push(self, message: SpeakText | SpeakEnd) -> None:
        """Send the next clause of a Speak request; ignored once the request has ended."""
        ...


class EngineClient(Protocol):
    """Submit requests at once, get results told apart by id; nothing is batched by hand."""

    def submit(self, request: Request) -> AbstractAsyncContextManager[EngineStream]:
        """Send the request on entry; leaving the block before its end aborts it in the engine.

        Raises EngineDied when no engine is up, after waiting a moment for one that is on its way.
        """
        ...

    def abort(self, request_id: str) -> None:
        """Stop a request from outside; its stream ends with Finished(reason="aborted")."""
        ...

    def in_flight(self) -> list[str]:
        """Ids of the requests that have not ended, as this side knows them."""
        ...

    def next_epoch(self) -> int:
        """A number no earlier request of this engine carried."""
        ...
