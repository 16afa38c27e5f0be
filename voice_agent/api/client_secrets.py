"""`POST /v1/realtime/client_secrets`: keys that a server may hand to its browsers, for one kind of session and a while.

Kept as digests, in memory, bounded; a restart forgets them. A key opens what is under /v1/realtime, not the rest, and
no further keys. Which session may be had is checked by `describe`, which is handed in. Source: OpenAI reference.
"""

import hashlib
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from voice_agent.api.bodies import MB, read_body
from voice_agent.api.parse import read_object, validated
from voice_agent.api.schema import Wire
from voice_agent.errors import BusyError, RemoteProtocolError

PATH = "/v1/realtime/client_secrets"
PREFIX = "ek_"
MAX_SECRETS = 10_000
MAX_BODY_BYTES = MB // 4
NO_STORE = {"cache-control": "no-store"}


class ExpiresAfter(Wire):
    """How long a key lives."""

    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[int, Field(ge=10, le=7200)] = 600


class SecretRequest(Wire):
    """The body; the session is checked as the one of a call."""

    expires_after: ExpiresAfter | None = None
    session: dict[str, Any] | None = None


class ClientSecrets:
    """The keys that live, oldest first, each with its end in Unix seconds and its session (JSON)."""

    def __init__(self, unix_s: Callable[[], float] = time.time) -> None:
        self._unix_s = unix_s
        self._known: OrderedDict[bytes, tuple[float, str]] = OrderedDict()

    def mint(self, session: str, seconds: int) -> tuple[str, int]:
        """A new key and its end; raises BusyError while too many live."""
        self._forget_old()
        if len(self._known) >= MAX_SECRETS:
            raise BusyError("Too many client secrets are alive.", retry_after_s=60)
        value = f"{PREFIX}{secrets.token_hex(24)}"
        expires_at = int(self._unix_s()) + seconds
        self._known[_digest(value)] = (expires_at, session)
        return value, expires_at

    def session_of(self, key: str) -> str | None:
        """The session (JSON) a key is good for; None if it is none, or its time is over."""
        expires_at, session = self._known.get(_digest(key), (0, ""))
        return session if expires_at > self._unix_s() else None

    def _forget_old(self) -> None:
        now_s = self._unix_s()
        for digest in [digest for digest, (expires_at, _) in self._known.items() if expires_at <= now_s]:
            del self._known[digest]


def create_secret_routes(known: ClientSecrets, describe: Callable[[str], dict[str, Any]]) -> list[BaseRoute]:
    """The endpoint; `describe` gives the whole session object for a partial one (JSON), or RemoteProtocolError."""

    async def create(request: Request) -> Response:
        wanted = _read(await read_body(request, MAX_BODY_BYTES))
        session = json.dumps(wanted.session or {})
        described = describe(session)
        seconds = (wanted.expires_after or ExpiresAfter()).seconds
        value, expires_at = known.mint(session, seconds)
        answer = {"value": value, "expires_at": expires_at, "session": described}
        return JSONResponse(answer, headers=NO_STORE)

    return [Route(PATH, create, methods=["POST"])]


def _read(body: bytes) -> SecretRequest:
    """An empty body asks for a key with all defaults. Raises RemoteProtocolError."""
    if not body.strip():
        return SecretRequest()
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("invalid_json", "The body is not UTF-8 text.") from error
    return validated(SecretRequest, read_object(text), "")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
