"""Routing of results on the server's side: what is stale, over, or unread."""

import asyncio

import pytest

from voice_agent.engine.messages import (
    Abort,
    Failed,
    Finished,
    Result,
    SpeakEnd,
    TextDelta,
    Think,
    ToEngine,
    Transcript,
)
from voice_agent.engine.streams import ConsumerBehind, StreamTable
from voice_agent.errors import EngineDied, EngineError

LIMIT = 10


class Wire:
    """Keeps what was sent; refuses on wish."""

    def __init__(self) -> None:
        self.sent: list[ToEngine] = []
        self.refuse = False

    def __call__(self, message: ToEngine) -> None:
        if self.refuse:
            raise EngineError("too large")
        self.sent.append(message)


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def table(wire: Wire) -> StreamTable:
    return StreamTable(wire, LIMIT)


def request(table: StreamTable, request_id: str = "r") -> Think:
    return Think(request_id, table.next_epoch(), [])


@pytest.mark.parametrize(
    "last", [Transcript("r", 1, "hi", "en"), Finished("r", 1), Failed("r", 1, "code", "text")]
)
async def test_a_stream_ends_after_its_last_result_and_nothing_is_aborted(
    table: StreamTable, wire: Wire, last: Result
) -> None:
    async with table.submit(request(table)) as stream:
        for result in (TextDelta("r", 1, "a"), Failed("r", 1, "code", "one clause", final=False), last):
            table.route(result)
        assert len([result async for result in stream]) == 3
        assert [result async for result in stream] == []
    assert len(wire.sent) == 1 and table.in_flight() == []


async def test_results_of_older_epochs_ended_requests_and_strangers_are_dropped(table: StreamTable) -> None:
    old = request(table)
    async with table.submit(old), table.submit(request(table)) as stream:
        for stale in (
            TextDelta("r", old.epoch, "old"),
            Finished("r", old.epoch),
            TextDelta("x", 2, "stranger"),
        ):
            table.route(stale)
        table.route(Finished("r", 2))
        table.route(TextDelta("r", 2, "late"))
        assert [result async for result in stream] == [Finished("r", 2)]


async def test_an_aborted_request_is_in_flight_until_the_engine_lets_go(
    table: StreamTable, wire: Wire
) -> None:
    async with table.submit(request(table)) as stream:
        table.route(TextDelta("r", 1, "unread"))
        table.abort("r")
        table.abort("unknown")
        assert [result async for result in stream] == [Finished("r", 1, "aborted")]
        assert table.in_flight() == ["r"]
    table.route(TextDelta("r", 1, "late"))
    assert table.in_flight() == ["r"]
    table.route(Finished("r", 1, "aborted"))
    assert table.in_flight() == []
    assert [type(message) for message in wire.sent] == [Think, Abort]


async def test_a_waiting_reader_wakes_on_death_and_unread_results_are_not_given(table: StreamTable) -> None:
    async with table.submit(request(table)) as stream, table.submit(request(table, "other")) as other:
        reader = asyncio.ensure_future(anext(aiter(other)))
        await asyncio.sleep(0)
        table.route(TextDelta("r", 1, "unread"))
        table.fail_all("it ended")
        with pytest.raises(EngineDied):
            await reader
        with pytest.raises(EngineDied) as died:
            await anext(aiter(stream))
        assert died.value.retryable and table.in_flight() == []


async def test_a_result_that_came_before_the_death_ended_its_request(table: StreamTable) -> None:
    async with table.submit(request(table)) as stream:
        table.route(Finished("r", 1))
        table.fail_all("it ended")
        assert [result async for result in stream] == [Finished("r", 1)]


@pytest.mark.parametrize("one_more", [TextDelta("r", 1, "x"), Finished("r", 1)])
async def test_a_reader_too_far_behind_fails_its_request_alone(
    table: StreamTable, wire: Wire, one_more: Result
) -> None:
    async with table.submit(request(table)) as stream, table.submit(request(table, "other")) as other:
        for _ in range(LIMIT):
            table.route(TextDelta("r", 1, "x"))
        table.route(one_more)
        with pytest.raises(ConsumerBehind) as behind:
            await anext(aiter(stream))
        assert behind.value.code == "consumer_behind"
        table.route(Finished("other", 2))
        assert [type(result) async for result in other] == [Finished]
    aborted = [message for message in wire.sent if isinstance(message, Abort)]
    assert len(aborted) == isinstance(one_more, TextDelta)


async def test_push_is_dropped_after_the_end_and_with_a_foreign_epoch(table: StreamTable, wire: Wire) -> None:
    async with table.submit(request(table)) as stream:
        stream.push(SpeakEnd("r", 7))
        stream.push(SpeakEnd("r", 1))
        table.route(Finished("r", 1))
        stream.push(SpeakEnd("r", 1))
    assert wire.sent[1:] == [SpeakEnd("r", 1)]


async def test_a_request_that_cannot_be_sent_leaves_nothing_in_flight(table: StreamTable, wire: Wire) -> None:
    wire.refuse = True
    with pytest.raises(EngineError):
        async with table.submit(request(table)):
            pytest.fail("the block must not be entered")
    assert table.in_flight() == []


async def test_epochs_never_repeat(table: StreamTable) -> None:
    assert len({table.next_epoch() for _ in range(100)}) == 100
