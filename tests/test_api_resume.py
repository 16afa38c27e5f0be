"""A line that outlives its sockets, over sockets made of queues and a clock turned by hand."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voice_agent.api import resume
from voice_agent.api.resume import KeptChannel, Resumables
from voice_agent.clock import ManualClock
from voice_agent.errors import RemoteProtocolError


class QueueSocket:
    """A socket as two queues; `full` is one whose client does not read, None from the client is its end."""

    def __init__(self, *, full: bool = False) -> None:
        self.incoming: asyncio.Queue[str | None] = asyncio.Queue()
        self.sent: list[str] = []
        self.hung_up = False
        self.reading = asyncio.Event()
        if not full:
            self.reading.set()

    async def send(self, text: str) -> None:
        await self.reading.wait()
        self.sent.append(text)

    async def messages(self) -> AsyncIterator[str]:
        while (text := await self.incoming.get()) is not None:
            yield text

    def end(self, *, hung_up: bool = False) -> None:
        self.hung_up = hung_up
        self.incoming.put_nowait(None)

    def ids(self) -> list[str]:
        return [json.loads(frame)["event_id"] for frame in self.sent]


def frame(number: int, size: int = 0) -> str:
    return json.dumps({"event_id": f"event_{number}", "type": "x", "pad": "." * size})


class Stage:
    """A channel, whoever reads it, and the sockets that carry it."""

    def __init__(self, window_s: float = 30.0) -> None:
        self.clock = ManualClock()
        self.channel = KeptChannel(self.clock, window_s)
        self.read: list[str] = []
        self.ended = False
        self.tasks: list[asyncio.Task[Any]] = [asyncio.create_task(self._reader())]

    async def _reader(self) -> None:
        async for text in self.channel.messages():
            self.read.append(text)
        self.ended = True

    async def carried(self, after: str | None = None, *, full: bool = False) -> QueueSocket:
        socket = QueueSocket(full=full)
        self.tasks.append(asyncio.create_task(self.channel.carry(socket, after)))
        await settle()
        return socket

    async def send(self, *numbers: int) -> None:
        for number in numbers:
            self.tasks.append(asyncio.create_task(self.channel.send(frame(number))))
        await settle()

    async def __aenter__(self) -> "Stage":
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def settle() -> None:
    for _ in range(60):
        await asyncio.sleep(0)


async def test_what_was_sent_meanwhile_follows_the_last_event_that_arrived() -> None:
    async with Stage() as stage:
        first = await stage.carried()
        await stage.send(1, 2, 3)
        first.end()
        await settle()
        await stage.send(4, 5)
        second = await stage.carried("event_2")
        await stage.send(6)
        assert first.ids() == ["event_1", "event_2", "event_3"]
        assert second.ids()[1:] == ["event_3", "event_4", "event_5", "event_6"]
        assert json.loads(second.sent[0])["type"] == "session.resumed" and not stage.ended


async def test_the_client_hears_how_many_of_its_events_were_taken() -> None:
    async with Stage() as stage:
        first = await stage.carried()
        await stage.send(1)
        for text in ("a", "b"):
            first.incoming.put_nowait(text)
        await settle()
        first.end()
        second = await stage.carried("event_1")
        second.incoming.put_nowait("c")
        await settle()
        second.end()
        third = await stage.carried("event_1")
        assert [json.loads(socket.sent[0])["received"] for socket in (second, third)] == [2, 3]
        assert stage.read == ["a", "b", "c"]


async def test_the_id_of_session_resumed_is_a_cursor_too() -> None:
    async with Stage() as stage:
        first = await stage.carried()
        await stage.send(1, 2)
        first.end()
        cursor = (await stage.carried("event_1")).ids()[0]
        again = await stage.carried(cursor)
        assert again.ids()[1:] == ["event_2"] and again.ids()[0] != cursor


async def test_a_new_socket_takes_over_from_one_that_hangs() -> None:
    async with Stage() as stage:
        hanging = await stage.carried(full=True)
        await stage.send(1, 2)
        other = await stage.carried()
        assert other.ids() == ["event_1", "event_2"] and hanging.sent == []
        hanging.incoming.put_nowait("late")
        hanging.reading.set()
        await stage.send(3)
        assert other.ids()[-1] == "event_3" and hanging.sent == [] and stage.read == []


async def test_sending_waits_for_a_client_that_does_not_read_and_for_none_that_is_gone() -> None:
    async with Stage() as stage:
        slow = await stage.carried(full=True)
        sending = asyncio.create_task(stage.channel.send(frame(1)))
        await settle()
        assert not sending.done()
        slow.end()
        await asyncio.wait_for(sending, 1)


async def test_who_does_not_come_back_in_time_is_gone() -> None:
    async with Stage(window_s=30) as stage:
        (await stage.carried()).end()
        await settle()
        await stage.clock.advance_ms(29_000)
        assert not stage.ended
        (await stage.carried()).end()
        await settle()
        await stage.clock.advance_ms(29_900)
        assert not stage.ended
        await stage.clock.advance_ms(200)
        assert stage.ended and stage.channel.over


async def test_who_hangs_up_is_gone_at_once() -> None:
    async with Stage() as stage:
        (await stage.carried()).end(hung_up=True)
        await settle()
        assert stage.ended


async def test_a_cursor_that_is_not_kept_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "KEPT_CHARS", 300)
    async with Stage() as stage:
        socket = await stage.carried()
        for number in range(20):
            await stage.channel.send(frame(number))
        assert len(socket.sent) == 20
        for unknown in ("event_1", "", "nothing", "event_19 "):
            with pytest.raises(RemoteProtocolError) as refused:
                stage.channel.check(unknown)
            assert (refused.value.code, refused.value.param) == ("resume_cursor_unknown", "after")
        stage.channel.check("event_19")


async def test_a_call_whose_client_is_gone_ends_when_more_waits_than_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resume, "KEPT_CHARS", 300)
    async with Stage() as stage:
        (await stage.carried()).end()
        await settle()
        await stage.send(*range(20))
        assert stage.ended


def test_calls_are_found_by_their_tokens_while_they_live() -> None:
    calls = Resumables[str](ManualClock())
    kept = calls.channel()
    calls.add("the call", kept)
    assert calls.find(kept.token) == ("the call", kept)
    kept.over = True
    for token in (kept.token, "", "\udcff", "x" * 10_000):
        assert not calls.knows(token)
        with pytest.raises(RemoteProtocolError) as refused:
            calls.find(token)
        assert (refused.value.code, refused.value.param) == ("resume_token_unknown", "resume")


@given(st.data())
@settings(deadline=None)
def test_whatever_is_lost_nothing_is_missed_and_nothing_repeated(data: st.DataObject) -> None:
    """Sockets break at any point, with any number of frames and messages on their way: both sides get all, once."""

    async def talk() -> None:
        async with Stage() as stage:
            got: list[str] = []
            said: list[str] = []  # all that the client wants to say
            sent_events = 0
            cursor: str | None = None
            for _ in range(data.draw(st.integers(1, 5))):
                socket = await stage.carried(cursor)
                if cursor is not None:
                    taken = json.loads(socket.sent[0])["received"]
                    for text in said[taken:]:
                        socket.incoming.put_nowait(text)
                for _ in range(data.draw(st.integers(0, 4))):
                    await stage.send(sent_events)
                    sent_events += 1
                    said.append(f"m{len(said)}")
                    socket.incoming.put_nowait(said[-1])
                    if data.draw(st.booleans()):
                        await settle()
                if data.draw(st.booleans()):
                    socket.incoming.get_nowait() if not socket.incoming.empty() else None
                socket.end()
                frames = [one for one in socket.sent if "session.resumed" not in one]
                arrived = frames[: data.draw(st.integers(0, len(frames)))]
                got += arrived
                if not got:
                    break
                cursor = json.loads(got[-1])["event_id"]
                await settle()
            if cursor is not None:
                last = await stage.carried(cursor)
                for text in said[json.loads(last.sent[0])["received"] :]:
                    last.incoming.put_nowait(text)
                await settle()
                got += last.sent[1:]
                assert [json.loads(one)["event_id"] for one in got] == [
                    f"event_{n}" for n in range(sent_events)
                ]
                assert stage.read == said

    asyncio.run(talk())
