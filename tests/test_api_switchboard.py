import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from voice_agent.api.parse import LONG_CHARS
from voice_agent.api.realtime import RealtimeProtocol
from voice_agent.api.switchboard import Line, Switchboard
from voice_agent.api.wire_beta import Beta
from voice_agent.commands import ClearInput, SessionCommand
from voice_agent.events import (
    InputCleared,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    SessionError,
    SessionEvent,
    SettingsChanged,
    TurnCommitted,
    TurnTranscribed,
)
from voice_agent.session_settings import SessionSettings


class QueueChannel:
    """A channel as two queues; None ends the messages, a broken one drops what is sent."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[str | None] = asyncio.Queue()
        self.sent: list[str] = []
        self.broken = False

    async def send(self, text: str) -> None:
        if not self.broken:
            self.sent.append(text)

    async def messages(self) -> AsyncIterator[str]:
        while (text := await self.incoming.get()) is not None:
            yield text

    def types(self) -> list[str]:
        return [json.loads(text)["type"] for text in self.sent]


class QueuePort:
    """A session as a queue of events and a list of commands."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[SessionEvent | None] = asyncio.Queue()
        self.commands: list[SessionCommand] = []

    async def command(self, command: SessionCommand) -> None:
        self.commands.append(command)

    async def events(self) -> AsyncIterator[SessionEvent]:
        while (event := await self.queue.get()) is not None:
            yield event


class Stage:
    """A session's switchboard with one line from the start."""

    def __init__(self) -> None:
        self.port = QueuePort()
        self.board = Switchboard(self.port, RealtimeProtocol("s", "m", SessionSettings("", "v")))
        self.tasks: list[asyncio.Task[None]] = []
        self.channel = self.join()
        self.tasks.append(asyncio.create_task(self.board.run()))

    def join(self, dialect: Beta | None = None) -> QueueChannel:
        channel = QueueChannel()
        self.tasks.append(asyncio.create_task(self.board.join(Line(channel, dialect))))
        return channel

    async def tell(self, *events: SessionEvent) -> None:
        for event in events:
            self.port.queue.put_nowait(event)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(60):
            await asyncio.sleep(0)

    async def __aenter__(self) -> "Stage":
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


GREETING: list[SessionEvent] = [
    ReplyStarted("r", None),
    ReplyText("r", "Welcome"),
    ReplyDone("r", "completed", "Welcome"),
]
CLEAR = '{"type":"input_audio_buffer.clear"}'


async def test_session_created_comes_first_and_the_rest_in_order() -> None:
    async with Stage() as stage:
        await stage.tell(*GREETING)
        types = stage.channel.types()
        assert types[:2] == ["session.created", "response.created"]
        assert types.index("response.output_audio_transcript.delta") < types.index("response.done")


async def test_an_item_is_sent_as_it_was_then_however_late_the_frame_is_read() -> None:
    async with Stage() as stage:
        await stage.tell(TurnCommitted("t"), TurnTranscribed("t", "Hello", 1.0))
        added = next(json.loads(text) for text in stage.channel.sent if "item.added" in text)
        assert added["item"]["content"] == [{"type": "input_audio", "transcript": None}]


async def test_messages_become_commands_and_bad_ones_errors() -> None:
    async with Stage() as stage:
        for text in (CLEAR, "garbage", CLEAR):
            stage.channel.incoming.put_nowait(text)
        await stage.settle()
        assert stage.port.commands == [ClearInput(), ClearInput()]
        assert stage.channel.types() == ["session.created", "error"]


async def test_the_last_words_of_a_session_are_still_sent() -> None:
    async with Stage() as stage:
        await stage.tell(SessionError("session_expired", "The session is over."))
        stage.port.queue.put_nowait(None)
        await stage.tasks[-1]
        assert stage.channel.types()[-1] == "error"


@pytest.mark.parametrize("broken", [False, True])
async def test_a_channel_that_closes_does_not_stop_the_session(broken: bool) -> None:
    async with Stage() as stage:
        stage.channel.broken = broken
        stage.channel.incoming.put_nowait(None)
        await stage.tasks[0]
        await stage.tell(*GREETING)
        assert not stage.tasks[1].done() and stage.port.queue.empty()
        assert stage.channel.types() == ([] if broken else ["session.created"])


async def test_a_later_line_is_told_the_session_as_it_is_and_commands_it_too() -> None:
    async with Stage() as stage:
        await stage.tell(SettingsChanged(SessionSettings("Rhyme.", "v")), *GREETING)
        beside = stage.join()
        beside.incoming.put_nowait(CLEAR)
        await stage.tell(InputCleared())
        assert beside.types() == ["session.created", "input_audio_buffer.cleared"]
        assert json.loads(beside.sent[0])["session"]["instructions"] == "Rhyme."
        assert stage.channel.sent[-1] == beside.sent[-1] and stage.port.commands == [ClearInput()]


async def test_an_error_goes_to_the_line_that_caused_it() -> None:
    async with Stage() as stage:
        beside = stage.join()
        await stage.settle()
        beside.incoming.put_nowait("garbage")
        stage.channel.incoming.put_nowait(CLEAR)
        await stage.settle()
        assert beside.types()[-1] == "error" and stage.channel.types() == ["session.created"]


async def test_each_line_is_spoken_to_in_its_own_spelling() -> None:
    async with Stage() as stage:
        beta = stage.join(Beta())
        await stage.settle()
        await stage.tell(*GREETING)
        assert "response.output_audio_transcript.delta" in stage.channel.types()
        assert beta.types()[:2] == ["session.created", "conversation.created"]
        assert "response.audio_transcript.delta" in beta.types()
        assert not any("output_audio" in kind or kind == "conversation.item.added" for kind in beta.types())


async def test_leaving_a_line_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    async with Stage() as stage:
        beside = stage.join()
        await stage.settle()
        beside.incoming.put_nowait(None)
        await stage.tasks[-1]
        await stage.tell(*GREETING)
        assert beside.types() == ["session.created"]
    assert asyncio.all_tasks() == before


PART = {"type": "input_audio", "audio": "A" * LONG_CHARS}
LONG = {
    "an append": {"type": "input_audio_buffer.append", "audio": "A" * LONG_CHARS},
    "an item's sound": {
        "type": "conversation.item.create",
        "item": {"type": "message", "role": "user", "content": [PART]},
    },
    "an item's picture": {
        "type": "conversation.item.create",
        "item": {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_image", "image_url": "data:image/png;base64," + "A" * LONG_CHARS}],
        },
    },
}


@pytest.mark.parametrize("long", LONG.values(), ids=LONG)
async def test_a_long_frame_is_read_beside_the_loop_and_keeps_its_place(
    long: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, told = threading.Event(), list[bool]()

    def read(text: str) -> bytes:
        told.append(goes_on.wait(5))
        return b""

    monkeypatch.setattr("voice_agent.api.decoded.from_base64", read)
    monkeypatch.setattr("voice_agent.pictures.from_base64", read)
    async with Stage() as stage:
        for event in (long | {"event_id": "long"}, {"type": "no such thing", "event_id": "behind"}):
            stage.channel.incoming.put_nowait(json.dumps(event))
        asyncio.get_running_loop().call_later(0.05, goes_on.set)
        async with asyncio.timeout(10):
            while len(stage.channel.sent) < 3:  # noqa: ASYNC110 - the channel tells nobody
                await asyncio.sleep(0.01)
        assert told == [True]
        errors = [json.loads(text)["error"]["event_id"] for text in stage.channel.sent[1:]]
        assert errors == ["long", "behind"]
