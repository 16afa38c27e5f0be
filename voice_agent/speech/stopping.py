"""Stop sequences, for whichever Thinker: the answer ends before the first of them, and the Thinker is told to stop.

Text that may be the beginning of one waits until it is clear; what was given out never holds a stop sequence or a
piece of one.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from voice_agent.engine.messages import Finished, TextDelta, Think
from voice_agent.speech.completion import ThinkResult
from voice_agent.speech.thinker import Thinker


class StopCutter:
    """Finds the stop sequence that is whole first in text that comes in pieces. State: the text that may begin one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.stopped = False

    def push(self, piece: str) -> str:
        """The text that is certain by now; once `stopped`, nothing more."""
        if self.stopped:
            return ""
        text = self._held + piece
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        held = max((_beginning(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        """What waited for a sequence that never came."""
        rest, self._held = self._held, ""
        return rest


def _beginning(text: str, stop: str) -> int:
    """How much of the text's end begins a stop sequence."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)


class StopAware:
    """A Thinker that ends at the request's stop sequences."""

    def __init__(self, thinker: Thinker) -> None:
        self._thinker = thinker

    async def stream(self, request: Think) -> AsyncGenerator[ThinkResult, None]:
        """As the Thinker inside, cut at the first stop sequence; then as many output tokens are told as pieces came."""
        cutter, key, pieces = StopCutter(request.stop), (request.request_id, request.epoch), 0
        async with aclosing(self._thinker.stream(request)) as results:
            async for result in results:
                if not isinstance(result, TextDelta):
                    if rest := cutter.end():
                        yield TextDelta(*key, rest)
                    yield result
                    continue
                pieces += 1
                if (text := cutter.push(result.text)) or result.rows:
                    yield TextDelta(*key, text, result.rows)
                if cutter.stopped:
                    yield Finished(*key, "stop", {"output_tokens": pieces})
                    return
