"""A session's pieces without the session: floor, ears, turns, items and replies are real, engines and ear are fakes.

For tests of one decision: a test wires what it judges to these and puts the floor where it wants it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from tests.fakes import FakeEngine, FakeOutput, Step
from tests.test_session import WINDOW, AtOnce, Judge, LoudIsVoice
from voice_agent.audio import MODEL_RATE_HZ, MicrophoneFrame
from voice_agent.clock import ManualClock
from voice_agent.commands import AddSpoken, Sound
from voice_agent.config import TurnConfig
from voice_agent.engine.messages import Think
from voice_agent.listening import Ears, Listener
from voice_agent.metrics import TurnTimeline
from voice_agent.replies import Replies
from voice_agent.reply import ReplyPorts
from voice_agent.session_settings import SessionSettings
from voice_agent.speech.cascade import Cascade
from voice_agent.speech.chat import Chat
from voice_agent.speech.thinker import EngineThinker
from voice_agent.speech.watermark import PassThrough
from voice_agent.spoken_items import SpokenItems, SpokenPorts
from voice_agent.turn.endpoint import Edge, Endpointer
from voice_agent.turn.machine import Action, Event, TurnMachine
from voice_agent.turn.rules import session_rules
from voice_agent.turns import TurnPorts, Turns, UserTurn

SETTINGS = SessionSettings(instructions="", voice="")
WINDOW_MS = 1000 * WINDOW // MODEL_RATE_HZ
LOUD = 8000  # of a microphone sample: the user


class Pieces:
    """Lives as long as its `async with`, and so does what it spawns.

    State: `told` what the client and the floor were told, in one order; `floor` what the floor alone was told;
    `understood` the turns of which words came. `carry_out` and `items_heard` are the test's to replace.
    """

    def __init__(
        self,
        *,
        hears: Sequence[Sequence[Step] | str] = ("hello",),
        says: Sequence[Sequence[Step] | str] = ("Hello there.",),
        judge: Judge | None = None,
        **changes: Any,
    ) -> None:
        self.clock = ManualClock()
        self.recognizer = FakeEngine(self.clock, hears=hears)
        self.thinker = FakeEngine(self.clock, says=says)
        self.talker = FakeEngine(self.clock)
        self.output = FakeOutput(self.clock)
        self.settings = replace(SETTINGS, **changes)
        self.told: list[Any] = []
        self.floor: list[Event] = []
        self.understood: list[UserTurn] = []
        self.carry_out: Callable[[tuple[Action, ...], Event, Edge | None], None] = (
            lambda actions, event, edge: None
        )
        self.items_heard: Callable[[], None] = lambda: None
        self.machine, self.chat = TurnMachine(), Chat()
        self._first_sample = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._wire(Ears(LoudIsVoice(), judge or Judge(), AtOnce()))

    def _wire(self, ears: Ears) -> None:
        clock, emit = self.clock, self.told.append
        self.endpointer = Endpointer(session_rules(TurnConfig(), self.settings))
        self.listener = Listener(ears, self.endpointer, clock, 0, 30_000)
        self.turns = Turns(
            TurnPorts(
                self.recognizer,
                self.listener,
                clock,
                str,
                emit,
                self.spawn,
                self.understood.append,
            )
        )
        self.spoken = SpokenItems(
            SpokenPorts(self.recognizer, clock, self.chat, str, emit, self.spawn, self._items_heard)
        )
        cascade = Cascade(EngineThinker(self.thinker), self.talker, PassThrough, clock)
        self.replies = Replies(
            ReplyPorts(cascade, self.output, clock, emit), self.chat, self.spawn, self.tell
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all; a task that failed fails the test."""
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        faults = [one for one in ended if isinstance(one, Exception)]
        assert not faults, faults

    def _items_heard(self) -> None:
        self.items_heard()

    def present_settings(self) -> SessionSettings:
        return self.settings

    def tell(self, event: Event, edge: Edge | None = None) -> None:
        """The floor's ear."""
        self.told.append(event)
        self.floor.append(event)
        self.carry_out(self.machine.handle(event), event, edge)

    def of(self, *kinds: type) -> list[Any]:
        """What of these kinds was told."""
        return [one for one in self.told if isinstance(one, kinds)]

    async def settle(self, ms: float = 0) -> None:
        """Let all that is ready run, from asking to sound if need be, and then so much time pass."""
        for _ in range(5):
            await self.clock.advance_ms(0)
        await self.clock.advance_ms(ms)

    async def hear(self, level: int = LOUD) -> list[Edge]:
        """The microphone's next window (32 ms); gives the edges that it caused."""
        await self.clock.advance_ms(WINDOW_MS)
        frame = MicrophoneFrame(np.full(WINDOW, level, dtype=np.int16), self._first_sample)
        self._first_sample += WINDOW
        return await self.listener.hear(frame)

    def wait_for_an_item(self) -> None:
        """The words of an item of the conversation are not known yet."""
        item = spoken_item("waits")
        self.chat.add_user(item.item_id, "")
        self.spoken.hear(item)

    def asked(self) -> list[str]:
        """The last words of all that the Thinker was asked."""
        thinks: list[Think] = self.thinker.of_kind(Think)
        return [str(think.messages[-1]["content"]) if think.messages else "" for think in thinks]


def user_turn(text: str | None = None, turn_id: str = "turn", **fields: Any) -> UserTurn:
    """A turn of which so much is known."""
    return UserTurn(turn_id, TurnTimeline(turn_id), 0, text=text, **fields)


def spoken_item(item_id: str, payload: bytes = bytes(48_000)) -> AddSpoken:
    """A client's own item with one sound in it: a second of silence."""
    return AddSpoken(item_id, (Sound(payload, "audio/pcm", 0),), client_event_id="mine")
