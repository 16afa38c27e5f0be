"""Every refusal over HTTP as OpenAI's error body: message, type, param, code, and an x-request-id.

The one place where our errors get a status. Knows no endpoint.
"""

import json
import logging
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, ExceptionHandler, Message, Receive, Scope, Send

from voice_agent.errors import (
    BusyError,
    EngineError,
    MediaError,
    OfferRejected,
    RemoteProtocolError,
    UnknownCall,
    VoiceAgentError,
)

log = logging.getLogger(__name__)

CODES = {
    400: "invalid_request",
    401: "invalid_api_key",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "request_too_large",
    415: "unsupported_media_type",
    426: "upgrade_required",
    431: "headers_too_large",
}
UNAVAILABLE_RETRY_S = 5
HUNG_UP = 499  # nginx's word for a client that is gone
ASKERS_FAULT = {  # what an engine refuses because of the request: asking again would not help
    "context_length_exceeded",
    "context_too_long",
    "invalid_instructions",
    "invalid_request",
    "invalid_speed",
    "request_too_large",
    "unknown_voice",
    "unsupported_language",
}
STATUS = {  # of refusals that are not 400
    "model_not_found": 404,
    "request_too_large": 413,
    "resume_token_unknown": 404,
    "resume_cursor_unknown": 404,
}


def new_request_id() -> str:
    """What an answer is named by (x-request-id)."""
    return f"req_{secrets.token_hex(12)}"


def exception_handlers() -> dict[Any, ExceptionHandler]:
    """Handlers for Starlette: our errors, its own, and whatever nobody expected."""
    return {
        HTTPException: _http,
        BusyError: _busy,
        UnknownCall: _unknown_call,
        OfferRejected: _bad_request,
        RemoteProtocolError: _bad_request,
        MediaError: _bad_request,
        EngineError: _engine,
        ClientDisconnect: _gone,
        Exception: _unexpected,
    }


def error_response(
    status: int, message: str, code: str, param: str | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """One error body; server trouble has its own type."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    body = {"error": {"message": message[:1000], "type": kind, "param": param, "code": code}}
    return Response(json.dumps(body), status, headers, media_type="application/json")


def http_error(refusal: HTTPException) -> Response:
    """A refusal that carries its own status."""
    code = CODES.get(refusal.status_code, "error")
    return error_response(refusal.status_code, refusal.detail, code, headers=refusal.headers)


def error_answer(error: VoiceAgentError) -> Response:
    """The answer to one of our errors, where no framework turns it into one."""
    match error:
        case BusyError():
            headers = {"retry-after": str(error.retry_after_s)}
            return error_response(503, str(error), error.code, headers=headers)
        case UnknownCall():
            return error_response(404, str(error), UnknownCall.code, "call_id")
        case EngineError():
            headers = {"retry-after": str(UNAVAILABLE_RETRY_S)}
            return error_response(503, error.notice(), error.code, headers=headers)
        case _:
            status = STATUS.get(error.code, 400)
            return error_response(status, str(error), error.code, getattr(error, "param", None))


class RequestIds:
    """ASGI middleware: a random x-request-id on every answer, also those of errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Name the request; the name is in scope["state"] for logs."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = new_request_id()
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        await self._app(scope, receive, send_named)


def _http(request: Request, error: Exception) -> Response:
    refusal = cast(HTTPException, error)
    if refusal.detail == HTTPStatus.NOT_FOUND.phrase:  # the router's own, which says nothing
        refusal.detail = f"There is nothing at {request.method} {request.url.path[:200]}."
    elif refusal.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (refusal.headers or {}).get("Allow", "")
        refusal.detail = f"{request.method} is not allowed here; {allowed} is."
    return http_error(refusal)


def _busy(request: Request, error: Exception) -> Response:
    busy = cast(BusyError, error)
    return error_response(503, str(busy), busy.code, headers={"retry-after": str(busy.retry_after_s)})


def _unknown_call(request: Request, error: Exception) -> Response:
    return error_response(404, str(error), UnknownCall.code, "call_id")


def _bad_request(request: Request, error: Exception) -> Response:
    refusal = cast(OfferRejected | RemoteProtocolError | MediaError, error)
    return error_response(400, str(refusal), refusal.code, getattr(refusal, "param", None))


def _engine(request: Request, error: Exception) -> Response:
    failure = cast(EngineError, error)
    if failure.code in ASKERS_FAULT:
        return error_response(STATUS.get(failure.code, 400), str(error), failure.code)
    log.warning("an engine could not serve a request: %s%s", failure.code, failure.kept_back())
    return error_answer(failure)


def _gone(request: Request, error: Exception) -> Response:
    """The client went in the middle of its own body: nobody reads this, and no log need tell of it."""
    return Response(status_code=HUNG_UP)


def _unexpected(request: Request, error: Exception) -> Response:
    """Starlette raises it on after this answer, so that the server logs it once, with its trace."""
    request_id = request.scope.get("state", {}).get("request_id", "")
    message = f"The server failed on this request. Its log has more under {request_id}."
    return error_response(500, message, "internal_error", headers={"x-request-id": request_id})
