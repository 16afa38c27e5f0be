"""ICE servers as clients need them: for RTCPeerConnection and as WHIP Link headers (RFC 9725, 4.6).

With a shared secret, TURN credentials are made for each client and end by themselves: the user name is the end in
Unix seconds and a name, the password its HMAC-SHA1 (draft-uberti-behave-turn-rest-00, as coturn reads it).
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

CREDENTIAL_LIFE_S = 3600  # as long as the longest call: a refresh of the allocation needs them still


@dataclass(frozen=True, slots=True)
class IceServer:
    """One STUN or TURN server; `username` and `credential` only for TURN."""

    urls: tuple[str, ...]
    username: str = ""
    credential: str = ""

    @property
    def is_turn(self) -> bool:
        """Whether it relays, and so wants credentials."""
        return any(url.startswith(("turn:", "turns:")) for url in self.urls)


class IceServers:
    """The configured servers, with fresh TURN credentials for whoever asks."""

    def __init__(
        self,
        servers: Sequence[IceServer] = (),
        turn_secret: str = "",
        unix_s: Callable[[], float] = time.time,
    ) -> None:
        self._servers = tuple(servers)
        self._turn_secret = turn_secret
        self._unix_s = unix_s

    def for_client(self) -> tuple[IceServer, ...]:
        """The servers with credentials that are good for an hour."""
        return tuple(self._with_credentials(server) for server in self._servers)

    def _with_credentials(self, server: IceServer) -> IceServer:
        if not self._turn_secret or not server.is_turn or server.credential:
            return server
        username = f"{int(self._unix_s()) + CREDENTIAL_LIFE_S}:{secrets.token_hex(8)}"
        digest = hmac.new(self._turn_secret.encode(), username.encode(), hashlib.sha1).digest()
        return replace(server, username=username, credential=base64.b64encode(digest).decode())


def as_configuration(servers: Sequence[IceServer]) -> dict[str, Any]:
    """What `new RTCPeerConnection(...)` takes."""
    entries: list[dict[str, Any]] = []
    for server in servers:
        entry: dict[str, Any] = {"urls": list(server.urls)}
        if server.credential:
            entry |= {"username": server.username, "credential": server.credential}
        entries.append(entry)
    return {"iceServers": entries}


def as_links(servers: Sequence[IceServer]) -> list[str]:
    """One Link header value for each URL; characters that would end the quoting are escaped."""
    links: list[str] = []
    for server in servers:
        login = ""
        if server.credential:
            login = (
                f"; username={_quoted(server.username)}; credential={_quoted(server.credential)}"
                '; credential-type="password"'
            )
        links += [f'<{url}>; rel="ice-server"{login}' for url in server.urls]
    return links


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
