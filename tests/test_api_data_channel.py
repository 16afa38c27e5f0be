import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from voice_agent.api.data_channel import join_channel
from voice_agent.api.realtime import RealtimeProtocol
from voice_agent.events import (
    ClearInput,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    SessionCommand,
    SessionError,
    SessionEvent,
    SessionSettings,
)


class QueueChannel:
    """A channel as two queues; None ends the messages, a broken one drops what is sent."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[str | None] = asyncio.Queue()
        self.sent: list[str] = []
        self.broken = False

    def send(self, text: str) -> bool:
        if not self.broken:
            self.sent.append(text)
        return not self.broken

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

    def command(self, command: SessionCommand) -> None:
        self.commands.append(command)

    async def events(self) -> AsyncIterator[SessionEvent]:
        while (event := await self.queue.get()) is not None:
            yield event


class Joined:
    """A channel and a session on both ends of join_channel."""

    def __init__(self) -> None:
        self.channel = QueueChannel()
        self.port = QueuePort()
        protocol = RealtimeProtocol("s", "m", SessionSettings("", "v"))
        self.task = asyncio.create_task(join_channel(self.channel, self.port, protocol))

    def tell(self, *events: SessionEvent | None) -> None:
        for event in events:
            self.port.queue.put_nowait(event)

    async def settle(self) -> None:
        for _ in range(40):
            await asyncio.sleep(0)


GREETING: list[SessionEvent] = [
    ReplyStarted("r", None),
    ReplyText("r", "Welcome"),
    ReplyDone("r", "completed", "Welcome"),
]


async def test_session_created_comes_first_and_the_rest_in_order() -> None:
    joined = Joined()
    joined.tell(*GREETING)
    await joined.settle()
    await joined.settle()
    types = joined.channel.types()
    assert types[:2] == ["session.created", "response.created"]
    assert types.index("response.output_audio_transcript.delta") < types.index("response.done")
    joined.tell(None)
    await joined.task


async def test_messages_become_commands_and_bad_ones_errors() -> None:
    joined = Joined()
    for text in ('{"type":"input_audio_buffer.clear"}', "garbage", '{"type":"input_audio_buffer.clear"}'):
        joined.channel.incoming.put_nowait(text)
    await joined.settle()
    assert joined.port.commands == [ClearInput(), ClearInput()]
    assert joined.channel.types() == ["session.created", "error"]
    joined.tell(None)
    await joined.task


async def test_the_last_words_of_a_session_are_still_sent() -> None:
    joined = Joined()
    await joined.settle()
    joined.tell(SessionError("session_expired", "The session is over."), None)
    await joined.task
    assert joined.channel.types()[-1] == "error"


async def test_a_session_without_a_channel_ends_all_the_same() -> None:
    joined = Joined()
    joined.tell(*GREETING, None)
    await joined.task


@pytest.mark.parametrize("broken", [False, True])
async def test_a_channel_that_closes_does_not_stop_the_session(broken: bool) -> None:
    joined = Joined()
    joined.channel.broken = broken
    joined.channel.incoming.put_nowait(None)
    await joined.settle()
    joined.tell(*GREETING)
    await joined.settle()
    assert not joined.task.done() and joined.port.queue.empty()
    joined.tell(None)
    await joined.task


async def test_cancelling_stops_both_directions_and_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    joined = Joined()
    await joined.settle()
    joined.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await joined.task
    assert asyncio.all_tasks() == before
