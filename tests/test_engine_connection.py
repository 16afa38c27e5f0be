"""Frames over a real socket pair, whole, cut, too long, unread."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.engine.connection import (
    MAX_FRAME_BYTES,
    Connection,
    ConnectionEnded,
    ConnectionFull,
    FrameTooLarge,
)


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Connection, Connection]]:
    left, right = [await Connection.over(sock) for sock in socket.socketpair()]
    yield left, right
    await left.close()
    await right.close()


@given(frames=st.lists(st.binary(max_size=70_000), max_size=8), pieces=st.integers(1, 9_000))
def test_frames_arrive_whole_and_in_order_however_the_stream_is_cut(frames: list[bytes], pieces: int) -> None:
    async def exchange() -> list[bytes]:
        raw, theirs = socket.socketpair()
        raw.setblocking(False)
        receiver = await Connection.over(theirs)
        stream = b"".join(len(frame).to_bytes(4, "little") + frame for frame in frames)

        async def feed() -> None:
            for first in range(0, len(stream), pieces):
                await asyncio.get_running_loop().sock_sendall(raw, stream[first : first + pieces])

        feeder = asyncio.create_task(feed())
        received = [await receiver.receive() for _ in frames]
        await feeder
        raw.close()
        with pytest.raises(ConnectionEnded):
            await receiver.receive()
        await receiver.close()
        return received

    assert asyncio.run(exchange()) == frames


async def test_both_sides_talk(pair: tuple[Connection, Connection]) -> None:
    left, right = pair
    left.send(b"ping" * 100_000)
    right.send(b"")
    assert await right.receive() == b"ping" * 100_000 and await left.receive() == b""


@pytest.mark.parametrize("sent", [b"", b"\5", b"\5\0\0\0ab", (MAX_FRAME_BYTES + 1).to_bytes(4, "little")])
async def test_an_end_in_mid_frame_and_a_frame_over_the_limit_end_the_connection(sent: bytes) -> None:
    raw, theirs = socket.socketpair()
    receiver = await Connection.over(theirs)
    raw.sendall(sent)
    if len(sent) != 4:
        raw.close()
    with pytest.raises(ConnectionEnded):
        await receiver.receive()
    raw.close()
    await receiver.close()


async def test_a_frame_of_ours_over_the_limit_is_refused_and_the_connection_lives(
    pair: tuple[Connection, Connection],
) -> None:
    left, right = pair
    with pytest.raises(FrameTooLarge):
        left.send(bytes(MAX_FRAME_BYTES + 1))
    left.send(b"small")
    assert await right.receive() == b"small"


async def test_a_side_that_does_not_read_fills_the_connection_and_no_more() -> None:
    ours, theirs = socket.socketpair()
    sender = await Connection.over(ours)
    with pytest.raises(ConnectionFull):
        for _ in range(20):
            sender.send(bytes(MAX_FRAME_BYTES))
    theirs.close()
    await sender.close()


async def test_sending_to_a_side_that_is_gone_ends_the_connection(
    pair: tuple[Connection, Connection],
) -> None:
    left, right = pair
    await right.close()
    with pytest.raises(ConnectionEnded):
        await left.receive()
    await asyncio.sleep(0)
    with pytest.raises(ConnectionEnded):
        for _ in range(3):
            left.send(b"x")
            await asyncio.sleep(0)
    await left.close()
    await left.close()
