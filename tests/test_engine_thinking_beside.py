"""A Thinker that schedules its requests itself: nothing that one asks holds up the loop of all answers."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from voice_agent.clock import ManualClock
from voice_agent.engine.messages import Abort, Failed, Finished, FromEngine, RowsRef, TextDelta, Think
from voice_agent.engine.runtime import EngineSpec, ThinkerEnd, ThinkerOptions
from voice_agent.engine.stepping_back import SteppingBack
from voice_agent.engine.thinker_process import LONG_CHARS, ThinkerEngine
from voice_agent.errors import EngineError


class Counting:
    """Says how many messages it was given; a word is a token. Counts where it was asked to count."""

    context_tokens = 200

    def __init__(self) -> None:
        self.counted: list[int] = []
        self.asked: list[Think] = []

    def count_tokens(self, messages: list[dict[str, Any]]) -> int:
        self.counted.append(threading.get_ident())
        if any("impossible" in message["content"] for message in messages):
            raise EngineError("no such conversation", code="invalid_request")
        return sum(len(message["content"].split()) for message in messages)

    async def warm_up(self, text: str) -> None:
        pass

    async def answer(self, request: Think, emit: Callable[[str, RowsRef | None], bool]) -> ThinkerEnd:
        self.asked.append(request)
        emit(f"{len(request.messages)} messages", None)
        return ThinkerEnd("stop", {})

    async def died(self) -> str:
        await asyncio.Event().wait()
        return ""


class Rig:
    """The engine, and what it sent."""

    def __init__(self) -> None:
        self.model, self.sent, self.ended = Counting(), list[FromEngine](), asyncio.Event()
        spec = EngineSpec("thinker", thinker=ThinkerOptions("scripted", "", context_tokens=200))
        self.engine = ThinkerEngine(spec, None, self.model, SteppingBack(set(), 0), self._send, ManualClock())

    async def ask(self, *contents: str) -> list[FromEngine]:
        messages = [
            {"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(contents)
        ]
        self.engine.handle(Think("r", 1, messages, max_output_tokens=10))
        await self.ended.wait()
        return self.sent

    def _send(self, message: FromEngine) -> None:
        self.sent.append(message)
        if isinstance(message, Finished | Failed):
            self.ended.set()


async def test_a_short_conversation_is_not_even_counted() -> None:
    rig = Rig()
    text, end = await rig.ask("Hello.")
    assert isinstance(text, TextDelta) and text.text == "1 messages"
    assert isinstance(end, Finished) and end.reason == "stop"
    assert rig.model.counted == []


@pytest.mark.parametrize(("letters", "beside"), [(3, False), (LONG_CHARS // 40, True)])
async def test_a_long_one_is_counted_and_cut_beside_the_loop(letters: int, beside: bool) -> None:
    rig = Rig()
    text, _ = await rig.ask(*[" ".join(["a" * letters] * 20) for _ in range(11)])
    assert isinstance(text, TextDelta) and text.text != "11 messages"
    assert rig.model.counted
    assert (threading.get_ident() not in rig.model.counted) is beside


@pytest.mark.parametrize("letters", [0, LONG_CHARS])
async def test_what_no_template_takes_is_told_wherever_it_is_counted(letters: int) -> None:
    [failed] = await Rig().ask("impossible " * 20 + "a" * letters)
    assert isinstance(failed, Failed) and failed.code == "invalid_request"


async def test_one_that_is_aborted_while_it_is_counted_is_not_asked() -> None:
    rig = Rig()
    rig.engine.handle(Think("r", 1, [{"role": "user", "content": "a " * LONG_CHARS}], max_output_tokens=10))
    await asyncio.sleep(0)
    rig.engine.handle(Abort("r", 1))
    await rig.ended.wait()
    assert [message.reason for message in rig.sent if isinstance(message, Finished)] == ["aborted"]
    assert rig.model.asked == []
