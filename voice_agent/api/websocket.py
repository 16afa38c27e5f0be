"""`WS /v1/realtime`: the handshake, and a socket as a line to a session.

Which session is not decided here: calls are opened and found through `Calls`, which is handed in. Refusals before the
upgrade are plain HTTP answers with OpenAI's error body. `?resumable=true` and `?resume=` are our own (see resume).
Source: OpenAI Realtime reference; RFC 6455.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from voice_agent.api.http_errors import error_answer
from voice_agent.api.resume import KeptChannel, Resumables
from voice_agent.api.switchboard import Line, Switchboard
from voice_agent.api.wire_beta import Beta
from voice_agent.api.wire_session import ALIAS
from voice_agent.clock import until_first
from voice_agent.errors import RemoteProtocolError, VoiceAgentError

PATH = "/v1/realtime"
SUBPROTOCOL = "realtime"
BETA_SUBPROTOCOL = "openai-beta.realtime-v1"
MAX_FRAME_BYTES = (
    32 * 1024 * 1024
)  # larger than any event may be: those are refused by an error, not by a close
MAX_WAITING_FRAMES = 512
GOING_AWAY, INTERNAL_ERROR, NORMAL, TRY_AGAIN_LATER = 1001, 1011, 1000, 1013
NO_CODE = 1005
REPLACED = 4001


class LiveCall(Protocol):
    """A call as a socket sees it."""

    @property
    def switchboard(self) -> Switchboard:
        """Where lines join."""
        ...

    @property
    def end_reason(self) -> str:
        """Why it is over."""
        ...

    @property
    def expired(self) -> bool:
        """Whether its time was over."""
        ...

    async def close(self, reason: str) -> None:
        """End it and wait until it is freed."""
        ...

    async def wait_closed(self) -> None:
        """Return once it is over."""
        ...


@dataclass(frozen=True, slots=True)
class SocketRequest:
    """What a client asked for: the model's name to be shown, the session it was given a key for (JSON), its line.

    `transcription`: a session that only writes down.
    """

    model: str
    session: str | None
    line: Line
    transcription: bool = False


class Calls(Protocol):
    """Where calls come from."""

    async def open(self, request: SocketRequest) -> LiveCall:
        """Begin one; raises BusyError, RemoteProtocolError."""
        ...

    def find(self, call_id: str) -> LiveCall:
        """A running one; raises UnknownCall."""
        ...


def create_websocket_routes(
    calls: Calls, model_name: str, resumables: Resumables[LiveCall]
) -> list[BaseRoute]:
    """The one endpoint; `resumables` are the calls that a lost client may come back to."""
    endpoint = _Endpoint(calls, model_name, resumables)
    return [WebSocketRoute(PATH, endpoint.serve), Route(PATH, _upgrade_required)]


class SocketChannel:
    """A WebSocket as a channel of text. Before `accept` senders wait; after the client is gone they write to nobody."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._open = asyncio.Event()
        self._turn = asyncio.Lock()  # frames leave in the order they were sent in
        self._gone = False
        self.hung_up = False

    async def accept(self) -> None:
        """Finish the handshake; the key that a browser puts among the subprotocols is not sent back."""
        offered = self._websocket.scope.get("subprotocols", [])
        await self._websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        self._open.set()

    async def send(self, text: str) -> None:
        """Send one frame; waits while the client does not read."""
        await self._open.wait()
        async with self._turn:
            if self._gone:
                return
            try:
                await self._websocket.send_text(text)
            except WebSocketDisconnect:
                self._gone = True

    async def messages(self) -> AsyncIterator[str]:
        """Text frames; bytes are taken as text, and what is no UTF-8 comes as lone surrogates, which no JSON has."""
        await self._open.wait()
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                self._gone, self.hung_up = True, _is_farewell(message)
                return
            text: str | None = message.get("text")
            yield message["bytes"].decode(errors="surrogateescape") if text is None else text

    async def close(self, code: int, reason: str) -> None:
        """End the connection, unless the client has."""
        async with self._turn:
            if self._gone or self._websocket.application_state is not WebSocketState.CONNECTED:
                return
            self._gone = True
            await self._websocket.close(code, reason)


class BesideChannel:
    """A line beside a call's own: it never makes the call wait. When MAX_WAITING_FRAMES are full, it is over."""

    def __init__(self, channel: SocketChannel) -> None:
        self._channel = channel
        self._waiting: asyncio.Queue[str] = asyncio.Queue(MAX_WAITING_FRAMES)
        self.overrun = asyncio.Event()

    async def send(self, text: str) -> None:
        """Keep a frame for `write`."""
        try:
            self._waiting.put_nowait(text)
        except asyncio.QueueFull:
            self.overrun.set()

    def messages(self) -> AsyncIterator[str]:
        """What the client sends."""
        return self._channel.messages()

    async def write(self) -> None:
        """Send what waits, for ever."""
        while True:
            await self._channel.send(await self._waiting.get())


class _Endpoint:
    def __init__(self, calls: Calls, model_name: str, resumables: Resumables[LiveCall]) -> None:
        self._calls = calls
        self._model_name = model_name
        self._resumables = resumables

    async def serve(self, websocket: WebSocket) -> None:
        """Refuse, or serve until the call or the socket ends."""
        channel = SocketChannel(websocket)
        dialect = Beta() if _wants_beta(websocket) else None
        query = websocket.query_params
        try:
            if token := query.get("resume"):
                await self._come_back(token, query.get("after", ""), channel)
            elif call_id := query.get("call_id"):
                await self._serve_beside(self._calls.find(call_id), channel, dialect)
            elif query.get("resumable") == "true":
                await self._serve_resumable(websocket, channel, dialect)
            else:
                await self._serve_call(await self._open(websocket, Line(channel, dialect)), channel)
        except VoiceAgentError as refusal:
            if websocket.application_state is not WebSocketState.CONNECTING:
                raise
            await websocket.send_denial_response(error_answer(refusal))

    async def _open(self, websocket: WebSocket, line: Line) -> LiveCall:
        transcription = websocket.query_params.get("intent") == "transcription"
        # some clients name the recognizer here; there is one
        model = (not transcription and websocket.query_params.get("model")) or self._model_name
        if model != self._model_name and not model.startswith(ALIAS):
            message = f"The model {model[:64]!r} does not exist here; there is {self._model_name!r}."
            raise RemoteProtocolError("model_not_found", message, "model")
        session = websocket.scope.get("state", {}).get("session")
        return await self._calls.open(SocketRequest(model, session, line, transcription))

    async def _serve_call(self, call: LiveCall, channel: SocketChannel) -> None:
        """The call's own socket: they end together."""
        try:
            await channel.accept()
            await call.wait_closed()
        finally:
            await call.close("client gone")
        await channel.close(*_closing(call))

    async def _serve_resumable(
        self, websocket: WebSocket, channel: SocketChannel, dialect: Beta | None
    ) -> None:
        """A call that outlives its sockets for a while."""
        kept = self._resumables.channel()
        call = await self._open(websocket, Line(kept, dialect, kept.greeting))
        self._resumables.add(call, kept)
        try:
            await channel.accept()
        except BaseException:
            await call.close("client gone")
            raise
        await self._carry(call, kept, channel, None)

    async def _come_back(self, token: str, after: str, channel: SocketChannel) -> None:
        """Another socket of such a call."""
        call, kept = self._resumables.find(token)
        kept.check(after)
        await channel.accept()
        await self._carry(call, kept, channel, after)

    async def _carry(
        self, call: LiveCall, kept: KeptChannel, channel: SocketChannel, after: str | None
    ) -> None:
        """Until the connection, the call or this socket's turn ends."""
        await until_first(kept.carry(channel, after), call.wait_closed())
        if call.end_reason:
            await channel.close(*_closing(call))
        else:
            await channel.close(REPLACED, "Another connection took this one's place.")

    async def _serve_beside(self, call: LiveCall, channel: SocketChannel, dialect: Beta | None) -> None:
        """A line beside the call's own: it ends with the call, and ends nothing."""
        await channel.accept()
        beside = BesideChannel(channel)
        await until_first(
            call.switchboard.join(Line(beside, dialect)),
            beside.write(),
            beside.overrun.wait(),
            call.wait_closed(),
        )
        if beside.overrun.is_set():
            await channel.close(TRY_AGAIN_LATER, "The client does not read.")
        else:
            await channel.close(NORMAL, "The call is over.")


async def _upgrade_required(request: Request) -> Response:
    """Plain HTTP, as from a proxy that drops the upgrade; RFC 9110 section 15.5.22."""
    message = f"{PATH} is a WebSocket: ask for it with `Connection: Upgrade` and `Upgrade: websocket`."
    raise HTTPException(426, message, {"upgrade": "websocket", "connection": "upgrade"})


def _closing(call: LiveCall) -> tuple[int, str]:
    """Close code and reason, by why the call is over."""
    if call.expired:
        return GOING_AWAY, "Your session hit its maximum duration."
    if call.end_reason == "internal_error":
        return INTERNAL_ERROR, "The server failed."
    return (GOING_AWAY if call.end_reason == "server_shutdown" else NORMAL), call.end_reason[:100]


def _is_farewell(message: Message) -> bool:
    """Whether a client closed on purpose. A lost network has no code either, and then the server gives no reason."""
    code = message.get("code")
    return code == NORMAL or (code == NO_CODE and "reason" in message)


def _wants_beta(websocket: WebSocket) -> bool:
    header = websocket.headers.get("openai-beta", "")
    return "realtime=v1" in header or BETA_SUBPROTOCOL in websocket.scope.get("subprotocols", [])
