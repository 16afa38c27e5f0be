"""Where the server listens: what is wrong with an address, and connections that nobody reads any more."""

import asyncio
import errno
import socket
import time

import pytest

from voice_agent import address
from voice_agent.errors import ConfigError


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux has it")
async def test_a_client_that_reads_nothing_is_gone_after_its_time(monkeypatch: pytest.MonkeyPatch):
    """Its sender does not wait for ever: it is told that the connection is lost."""
    monkeypatch.setattr(address, "UNREAD_S", 1)
    told = asyncio.get_running_loop().create_future()

    async def send_without_end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began = time.monotonic()
        try:
            while True:
                writer.write(bytes(65_536))
                await writer.drain()
        except OSError as error:
            told.set_result((error.errno, time.monotonic() - began))

    listening = address.bind("127.0.0.1", 0)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        async with await asyncio.start_server(send_without_end, sock=listening):
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, listening.getsockname())
            number, seconds = await asyncio.wait_for(told, 30)
    assert number == errno.ETIMEDOUT and seconds > 0.9


def test_connections_are_probed_while_nothing_is_said():
    with (
        address.bind("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        taken, _ = listening.accept()
        with taken:
            assert taken.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert not client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_what_is_wrong_with_an_address_is_said():
    with (
        address.bind("127.0.0.1", 0) as listening,
        pytest.raises(ConfigError, match=r"server.port: .* in use"),
    ):
        address.bind("127.0.0.1", listening.getsockname()[1])
    with pytest.raises(ConfigError, match="server.port: 70000 is no port"):
        address.bind("127.0.0.1", 70_000)
    with pytest.raises(ConfigError, match="server.host"):
        address.bind("192.0.2.1", 0)
