"""Where the server listens, and how long a connection that nobody reads lives.

A client whose network is gone says no goodbye: its connection would stay open until the kernel gives up, after a
quarter of an hour, and with it the reply that it waits for. Knows no HTTP. Source: tcp(7).
"""

import errno
import os
import socket

from voice_agent.config import Config
from voice_agent.errors import ConfigError

UNREAD_S = 60  # a client that takes nothing for so long, or answers no probe, is gone; a paused player may take a while
PROBE_AFTER_S = 20  # of silence
PROBE_EVERY_S = 10


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; raises ConfigError that says what is wrong with the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _end_what_nobody_reads(listening)
    try:
        listening.bind((host, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"server.port: {port} is in use by another program; stop it, or choose another with --port"
            ) from error
        raise ConfigError(
            f"server.host: cannot listen on {host}:{port} ({os.strerror(error.errno or 0)})"
        ) from error
    except OverflowError as error:
        listening.close()
        raise ConfigError(f"server.port: {port} is no port") from error
    return listening


def url_of(config: Config, listening: socket.socket) -> str:
    """The address to open."""
    host, port = listening.getsockname()[:2]
    scheme = "https" if config.server.tls_cert else "http"
    name = "localhost" if host in {"127.0.0.1", "::1", "0.0.0.0", "::"} else host
    return f"{scheme}://{name}:{port}"


def _end_what_nobody_reads(listening: socket.socket) -> None:
    """Set the limits for all connections that it takes, which inherit them; what a system has not is left out."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", PROBE_AFTER_S),
        ("TCP_KEEPINTVL", PROBE_EVERY_S),
        ("TCP_USER_TIMEOUT", UNREAD_S * 1000),
    ):
        if hasattr(socket, option):
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
