"""The data channel: order, bounds, late opening, refusals. The channel under it is a small real object of ours."""

import asyncio
from typing import Any, cast

from aiortc import RTCDataChannel
from aiortc.exceptions import InvalidStateError
from pyee.asyncio import AsyncIOEventEmitter

from voice_agent.errors import RemoteProtocolError
from voice_agent.media.channel import (
    MAX_IN_FLIGHT_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_UNREAD_MESSAGES,
    MAX_WAITING_MESSAGES,
    Channel,
)


class Wire(AsyncIOEventEmitter):
    """What aiortc's data channel shows of itself, without SCTP."""

    def __init__(self, *, largest: int = MAX_MESSAGE_BYTES) -> None:
        super().__init__()
        self.label = "oai-events"
        self.readyState = "open"
        self.bufferedAmount = 0
        self.bufferedAmountLowThreshold = 0
        self.sent: list[str] = []
        self.largest = largest
        self.stuck = False

    def send(self, text: str) -> None:
        if self.readyState != "open":
            raise InvalidStateError
        if len(text.encode()) > self.largest:
            raise ValueError
        self.sent.append(text)
        if self.stuck:
            self.bufferedAmount += len(text.encode())

    def close(self) -> None:
        self.readyState = "closed"

    def as_channel(self) -> RTCDataChannel:
        return cast(RTCDataChannel, self)


def test_what_is_sent_before_the_channel_opens_goes_out_first_and_in_order() -> None:
    """C09."""
    channel, wire = Channel(), Wire()
    for n in range(100):
        assert channel.send(str(n))
    channel.attach(wire.as_channel())
    channel.send("100")
    assert wire.sent == [str(n) for n in range(101)]


def test_a_channel_that_opens_after_it_was_attached_is_flushed_then() -> None:
    channel, wire = Channel(), Wire()
    wire.readyState = "connecting"
    channel.attach(wire.as_channel())
    channel.send("a")
    assert wire.sent == []
    wire.readyState = "open"
    wire.emit("open")
    assert wire.sent == ["a"]


def test_when_too_much_waits_new_messages_are_dropped_and_order_is_kept() -> None:
    channel, wire = Channel(), Wire()
    results = [channel.send(str(n)) for n in range(MAX_WAITING_MESSAGES + 10)]
    assert results.count(False) == channel.dropped == 10
    channel.attach(wire.as_channel())
    assert wire.sent == [str(n) for n in range(MAX_WAITING_MESSAGES)]


def test_bytes_that_wait_are_bounded_too() -> None:
    channel = Channel()
    while channel.send("x" * 60_000):
        pass
    assert channel.dropped == 1
    assert not channel.send("x" * 60_000)


def test_a_peer_that_does_not_read_is_not_given_more_until_it_does() -> None:
    channel, wire = Channel(), Wire()
    wire.stuck = True
    channel.attach(wire.as_channel())
    for _ in range(10):
        channel.send("x" * 60_000)
    assert wire.bufferedAmount <= MAX_IN_FLIGHT_BYTES + 60_000
    wire.bufferedAmount, wire.stuck = 0, False
    wire.emit("bufferedamountlow")
    assert len(wire.sent) == 10


def test_a_message_larger_than_the_peer_takes_is_dropped_alone() -> None:
    channel, wire = Channel(), Wire(largest=100)
    channel.attach(wire.as_channel())
    assert not channel.send("x" * 101)
    assert channel.send("x" * 100)
    assert channel.dropped == 1


async def test_messages_come_in_order_and_end_with_the_call() -> None:
    channel, wire = Channel(), Wire()
    channel.attach(wire.as_channel())
    for n in range(5):
        wire.emit("message", str(n))
    got: list[str] = []

    async def collect() -> None:
        async for message in channel.messages():
            got.append(message)

    task = asyncio.create_task(collect())
    await asyncio.sleep(0)
    wire.emit("message", "5")
    await asyncio.sleep(0)
    channel.close()
    await asyncio.wait_for(task, 1)
    assert got == [str(n) for n in range(6)]
    assert not channel.send("late")


def test_bytes_giants_and_floods_are_refused_and_told() -> None:
    channel, wire = Channel(), Wire()
    refused: list[RemoteProtocolError] = []
    channel.on_refused = refused.append
    channel.attach(wire.as_channel())
    wire.emit("message", b"bytes")
    wire.emit("message", "x" * (MAX_MESSAGE_BYTES + 1))
    for _ in range(MAX_UNREAD_MESSAGES + 1):
        wire.emit("message", "ok")
    assert [error.code for error in refused] == ["invalid_message", "message_too_large", "too_many_messages"]


def test_a_second_channel_takes_over_and_is_opened_like_the_first() -> None:
    channel, first, second = Channel(), Wire(), Wire()
    channel.on_replaced = lambda: ["session", "more"]
    channel.attach(first.as_channel())
    assert first.sent == []
    first.bufferedAmount = MAX_IN_FLIGHT_BYTES + 1
    channel.send("a")
    channel.attach(second.as_channel())
    channel.send("b")
    received: Any = first.listeners("message")
    assert (first.sent, second.sent, list(received)) == ([], ["session", "more", "a", "b"], [])
    assert (first.readyState, second.readyState) == ("closed", "open")
