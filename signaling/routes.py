"""Signalling over HTTP: OpenAI's calls endpoints, with WHIP's PATCH and DELETE on the Location.

Errors are raised (voice_agent.errors, HTTPException); the application turns them into OpenAI's error bodies.
Sources: OpenAI Realtime reference (calls), RFC 9725 (WHIP), RFC 8840 (sdpfrag).
"""

from collections.abc import AsyncGenerator
from typing import Any

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from signaling.calls import CallRegistry
from signaling.ice import IceServers, as_configuration, as_links
from signaling.sdp import MAX_SDP_BYTES, check_offer, parse_fragment
from voice_agent.errors import OfferRejected, RemoteProtocolError

CALLS_PATH = "/v1/realtime/calls"
SDP_TYPE = "application/sdp"
FRAGMENT_TYPE = "application/trickle-ice-sdpfrag"
MAX_SESSION_BYTES = 256 * 1024
MAX_FRAGMENT_BYTES = 16 * 1024
MAX_TURNS = 100
NO_STORE = {"cache-control": "no-store"}


def create_signaling_routes(registry: CallRegistry, ice: IceServers) -> list[BaseRoute]:
    """The endpoints under /v1/realtime that make, find and end calls."""
    endpoints = _Endpoints(registry, ice)
    call = CALLS_PATH + "/{call_id}"
    return [
        Route(CALLS_PATH, endpoints.create, methods=["POST"]),
        Route(call, endpoints.trickle, methods=["PATCH"]),
        Route(call, endpoints.delete, methods=["DELETE"]),
        Route(call + "/hangup", endpoints.hangup, methods=["POST"]),
        Route(call + "/timeline", endpoints.timeline, methods=["GET"]),
        Route("/v1/realtime/ice_servers", endpoints.ice_servers, methods=["GET"]),
    ]


class _Endpoints:
    def __init__(self, registry: CallRegistry, ice: IceServers) -> None:
        self._registry = registry
        self._ice = ice

    async def create(self, request: Request) -> Response:
        offer_sdp, session = await _read_offer(request)
        check_offer(offer_sdp)
        pinned = request.scope.get("state", {}).get("session")  # of the client secret, if it is one
        call_id, call = await self._registry.open(offer_sdp, session, pinned)
        response = Response(call.answer_sdp, 201, NO_STORE, media_type=None)
        response.headers["content-type"] = SDP_TYPE
        response.headers["location"] = f"{CALLS_PATH}/{call_id}"
        response.headers["access-control-expose-headers"] = "Location, Link"
        response.headers["accept-patch"] = FRAGMENT_TYPE
        for link in as_links(self._ice.for_client()):
            response.headers.append("link", link)
        return response

    async def trickle(self, request: Request) -> Response:
        if _content_type(request) != FRAGMENT_TYPE:
            raise HTTPException(415, f"Send candidates as {FRAGMENT_TYPE}.", {"accept-patch": FRAGMENT_TYPE})
        call = self._registry.get(request.path_params["call_id"])
        text = _text(await _read_body(request, MAX_FRAGMENT_BYTES), "candidate")
        parse_fragment(text)
        await call.add_candidates(text)
        return Response(status_code=204)

    async def delete(self, request: Request) -> Response:
        """No error for a call that ended a moment ago: a client's sound may end before its request arrives."""
        call_id = request.path_params["call_id"]
        if not self._registry.has_ended(call_id):
            await self._registry.end(call_id, "client_hangup")
        return Response(status_code=204)

    async def hangup(self, request: Request) -> Response:
        await self._registry.end(request.path_params["call_id"], "client_hangup")
        return Response(status_code=200)

    async def timeline(self, request: Request) -> Response:
        timeline = self._registry.timeline(request.path_params["call_id"])
        return JSONResponse(_latest(timeline, request.query_params.get("turns")), headers=NO_STORE)

    async def ice_servers(self, request: Request) -> Response:
        return JSONResponse(as_configuration(self._ice.for_client()), headers=NO_STORE)


def _latest(timeline: dict[str, Any], turns: str | None) -> dict[str, Any]:
    """With ?turns=N only the last N turns and no history: for who asks several times a second."""
    if turns is None:
        return timeline
    if not turns.isascii() or not turns.isdigit() or not 0 < int(turns) <= MAX_TURNS:
        raise RemoteProtocolError(
            "invalid_value", f"turns should be a number from 1 to {MAX_TURNS}.", "turns"
        )
    brief = {name: value for name, value in timeline.items() if name != "history"}
    return brief | {"turns": timeline.get("turns", [])[-int(turns) :]}


async def _read_offer(request: Request) -> tuple[str, str | None]:
    """The offer, and the session of the form; raises OfferRejected, RemoteProtocolError, HTTPException."""
    kind = _content_type(request)
    if kind == SDP_TYPE:
        return _text(await _read_body(request, MAX_SDP_BYTES), "sdp"), None
    if kind != "multipart/form-data":
        accepted = {"accept-post": f"{SDP_TYPE}, multipart/form-data"}
        raise HTTPException(
            415, f"Send the offer as {SDP_TYPE}, or as a form with sdp and session.", accepted
        )
    body = await _read_body(request, MAX_SDP_BYTES + MAX_SESSION_BYTES)
    parts = await _read_form(request, body)
    if "sdp" not in parts:
        raise RemoteProtocolError("missing_required_parameter", "The form has no part named 'sdp'.", "sdp")
    if len(parts["sdp"]) > MAX_SDP_BYTES:
        raise HTTPException(413, f"An offer is {MAX_SDP_BYTES} bytes at most.")
    session = _text(parts["session"], "session") if "session" in parts else None
    return _text(parts["sdp"], "sdp"), session


async def _read_form(request: Request, body: bytes) -> dict[str, bytes]:
    """Parts by name; text fields and files alike. Raises RemoteProtocolError."""

    async def once() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(request.headers, once(), max_files=4, max_fields=8, max_part_size=len(body) + 1)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise RemoteProtocolError("invalid_request_body", f"Not a form: {error.message}") from error
    parts: dict[str, bytes] = {}
    for name, value in form.multi_items():
        parts[name] = await value.read() if isinstance(value, UploadFile) else value.encode()
    await form.close()
    return parts


async def _read_body(request: Request, limit: int) -> bytes:
    """The body, refused with 413 as soon as it is known to be longer than `limit`."""
    body = bytearray()
    declared = request.headers.get("content-length", "0")
    too_long = declared.isdigit() and int(declared) > limit
    if not too_long:
        async for piece in request.stream():
            body += piece
            if len(body) > limit:
                too_long = True
                break
    if too_long:
        raise HTTPException(413, f"The body is longer than the {limit} bytes allowed here.")
    return bytes(body)


def _text(body: bytes, param: str) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise OfferRejected("The body is not UTF-8 text.", param) from error


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
