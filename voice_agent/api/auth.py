"""Who may call: bearer keys, client secrets, and without keys only this machine's own programs and pages.

Without keys three things keep a foreign web page out: the client's address must be loopback, the Host a name of
this machine (against DNS rebinding), and the Origin, where a browser sends one, our own or an allowed one.
Keys are kept as digests and never logged. Pages of other origins may open no WebSocket: CORS does not cover those.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from voice_agent.api.http_errors import http_error
from voice_agent.config import DIGEST

BEARER = {"www-authenticate": "Bearer"}
OPEN_METHODS = {"GET", "HEAD", "OPTIONS"}
REALTIME = "/v1/realtime"
SECRETS_PATH = "/v1/realtime/client_secrets"
SECRET_PREFIX = "ek_"
KEY_SUBPROTOCOL = "openai-insecure-api-key."  # a browser can send no header with a WebSocket
FOREIGN = "Pages of other origins may not call this server; see server.allowed_origins."


def _no_secrets(_key: str) -> str | None:
    return None


def _no_tokens(_token: str) -> bool:
    return False


@dataclass(frozen=True)
class Access:
    """Configured keys (or digests, `sha256:` and hex), web origins besides our own, host names besides loopback ones.

    `session_of` gives the session that a client secret was made for; None if it is none, or its time is over.
    `resumes` says whether a call can be come back to with a token: that is then all its client needs.
    """

    keys: Sequence[str] = ()
    origins: Sequence[str] = ()
    hosts: Sequence[str] = ()
    session_of: Callable[[str], str | None] = _no_secrets
    resumes: Callable[[str], bool] = _no_tokens


class AccessGate:
    """ASGI middleware before everything under a prefix; the page and the health checks are open.

    The session of a client secret is in scope["state"]["session"] for whoever makes the call.
    """

    def __init__(self, app: ASGIApp, access: Access, prefix: str = "/v1/") -> None:
        self._app = app
        self._prefix = prefix
        self._access = access
        self._digests = [_digest_of(key) for key in access.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through or answer it with 401 or 403."""
        if scope["type"] in {"http", "websocket"} and scope["path"].startswith(self._prefix):
            try:
                self._check(scope, Headers(scope=scope))
            except HTTPException as refusal:
                await http_error(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        key = _key_of(scope, headers)
        if not self._digests:
            self._check_local(scope, headers)
        if scope["type"] == "websocket" and self._is_foreign(scope, headers):
            raise HTTPException(403, FOREIGN)
        if self._comes_back(scope):
            return
        if key.startswith(SECRET_PREFIX):
            scope.setdefault("state", {})["session"] = self._session_of(key, scope["path"])
        elif self._digests:
            self._check_key(key)

    def _comes_back(self, scope: Scope) -> bool:
        """Whether a WebSocket names a call of its own; the secret that began the call may have expired since."""
        if scope["type"] != "websocket" or scope["path"] != REALTIME:
            return False
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        return any(self._access.resumes(token) for token in query.get("resume", []))

    def _session_of(self, key: str, path: str) -> str:
        session = self._access.session_of(key)
        if session is None:
            raise HTTPException(401, "This client secret has expired, or never was.", BEARER)
        if path == SECRETS_PATH or not (path == REALTIME or path.startswith(f"{REALTIME}/")):
            raise HTTPException(403, "A client secret is good for realtime calls only.")
        return session

    def _check_key(self, key: str) -> None:
        if not key:
            raise HTTPException(
                401, "This server wants an API key: send 'Authorization: Bearer KEY'.", BEARER
            )
        digest = hashlib.sha256(key.encode()).digest()
        # all are compared, so that the time does not tell which one was close
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        if not any(matches):
            raise HTTPException(401, "Incorrect API key provided.", BEARER)

    def _check_local(self, scope: Scope, headers: Headers) -> None:
        client = scope.get("client")
        if client is None or not _is_loopback(client[0]):
            raise HTTPException(
                403, "Without configured API keys this server answers only on its own machine."
            )
        host = headers.get("host", "")
        if not (_is_loopback(_name(host)) or _name(host) in self._access.hosts):
            raise HTTPException(
                403, "This server has no such name; open it as http://127.0.0.1 or http://localhost."
            )
        if self._is_foreign(scope, headers) and scope.get("method") not in OPEN_METHODS:
            raise HTTPException(403, FOREIGN)

    def _is_foreign(self, scope: Scope, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is None or origin in self._access.origins:
            return False
        return not _same_origin(origin, scope, headers.get("host", ""))


def _digest_of(configured: str) -> bytes:
    if configured.startswith(DIGEST):
        return bytes.fromhex(configured.removeprefix(DIGEST))
    return hashlib.sha256(configured.encode()).digest()


def _key_of(scope: Scope, headers: Headers) -> str:
    """The key a client sent: as bearer, in Azure's way, or as a subprotocol; empty if none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    offered: list[str] = scope.get("subprotocols", [])
    named = (name.removeprefix(KEY_SUBPROTOCOL) for name in offered if name.startswith(KEY_SUBPROTOCOL))
    return next(named, headers.get("api-key", "").strip())


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _name(host: str) -> str:
    """The name in a Host header, without port and brackets; empty if it is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _same_origin(origin: str, scope: Scope, host: str) -> bool:
    default = {"http": 80, "https": 443}
    scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
    try:
        ours, theirs = urlsplit(f"{scheme}://{host}"), urlsplit(origin)
        same_port = (ours.port or default.get(ours.scheme)) == (theirs.port or default.get(theirs.scheme))
    except ValueError:
        return False
    return (ours.scheme, ours.hostname) == (theirs.scheme, theirs.hostname) and same_port
