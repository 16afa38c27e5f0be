"""An OpenAI-compatible chat server that answers by a script: a real peer for everything that asks a Thinker.

    async with ScriptedThinker([answer("Hello there."), answer("Bye.", delay_ms=50)]) as server:
        ... server.url, server.requests, server.in_flight

Each request takes the next answer; the last one repeats. What a request must not contain (a tool call without its
output, an output without its call) is refused with 400, as OpenAI does, and noted in `problems`.
"""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import uvicorn

Receive = Callable[[], Any]
Send = Callable[[dict[str, Any]], Any]


# --- the steps of an answer -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """One delta of text."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """One delta of text that is not for the user."""

    text: str


@dataclass(frozen=True)
class Wait:
    """Nothing for so long."""

    ms: float


@dataclass(frozen=True)
class Call:
    """A tool call, its arguments streamed in pieces of so many characters."""

    name: str
    arguments: str
    call_id: str = "call_1"
    index: int = 0
    piece_chars: int = 4


@dataclass(frozen=True)
class Stall:
    """Nothing more, and the connection stays open."""


@dataclass(frozen=True)
class Forever:
    """The same text again and again."""

    text: str
    every_ms: float = 0


@dataclass(frozen=True)
class Raw:
    """Bytes as they are."""

    data: bytes


@dataclass(frozen=True)
class Drop:
    """The connection breaks."""


Step = Text | Reasoning | Wait | Call | Stall | Forever | Raw | Drop


@dataclass(frozen=True)
class Answer:
    """What one request is answered with; `chunk_bytes` cuts the whole stream into writes of that size."""

    steps: Sequence[Step] = ()
    finish: str | None = "stop"
    done_mark: bool = True
    usage: bool = True
    newline: str = "\n"
    chunk_bytes: int | None = None
    status: int = 200
    body: dict[str, Any] | str | None = None


def answer(text: str, delay_ms: float = 0, every_ms: float = 0) -> Answer:
    """The text word by word: the first after `delay_ms`, the others `every_ms` apart."""
    words = [word + " " for word in text.split(" ")]
    words[-1] = words[-1][:-1]
    steps: list[Step] = [Wait(delay_ms)]
    for word in words:
        steps += [Text(word), Wait(every_ms)]
    return Answer(steps)


# --- the server -------------------------------------------------------------------------------------------------


@dataclass
class ScriptedThinker:
    """Listens on a loopback port of its own while its `async with` lasts."""

    script: Sequence[Answer] | Callable[[dict[str, Any]], Answer]
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    problems: list[str] = field(default_factory=list[str])
    in_flight: int = 0
    aborted: int = 0
    url: str = ""
    _busy: asyncio.Event = field(default_factory=asyncio.Event)
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def __aenter__(self) -> Self:
        self._quiet.set()
        self.url = await self._stack.enter_async_context(serving(self._app)) + "/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def idle(self, timeout_s: float = 2) -> None:
        """Wait until no answer is being streamed; raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self._quiet.wait()

    async def streaming(self, timeout_s: float = 2) -> None:
        """Wait until an answer is being streamed; raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self._busy.wait()

    def _count(self, change: int) -> None:
        self.in_flight += change
        (self._busy if self.in_flight else self._quiet).set()
        (self._quiet if self.in_flight else self._busy).clear()

    async def _app(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["path"] == "/v1/models":
            await _send_json(send, 200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})
        elif scope["path"] != "/v1/chat/completions" or scope["method"] != "POST":
            await _send_json(send, 404, {"error": {"message": f"no such path: {scope['path']}"}})
        else:
            self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
            await self._complete(json.loads(await _read_body(receive)), receive, send)

    async def _complete(self, request: dict[str, Any], receive: Receive, send: Send) -> None:
        self.requests.append(request)
        problems = pairing_problems(request["messages"])
        self.problems += problems
        if problems:
            await _send_json(send, 400, {"error": {"message": problems[0], "type": "invalid_request_error"}})
            return
        chosen = self._choose(request)
        if chosen.status != 200 or chosen.body is not None:
            await _send_json(send, chosen.status, chosen.body)
            return
        await self._stream(chosen, receive, send)

    def _choose(self, request: dict[str, Any]) -> Answer:
        if callable(self.script):
            return self.script(request)
        return self.script[min(len(self.requests), len(self.script)) - 1]

    async def _stream(self, chosen: Answer, receive: Receive, send: Send) -> None:
        """Stream until the end or until the client hangs up, whichever comes first."""
        self._count(1)
        streaming = asyncio.create_task(_send_stream(chosen, send))
        hang_up = asyncio.create_task(_hang_up(receive))
        try:
            await asyncio.wait({streaming, hang_up}, return_when=asyncio.FIRST_COMPLETED)
            self.aborted += not streaming.done()
        finally:
            self._count(-1)
            hang_up.cancel()
            streaming.cancel()
            with suppress(asyncio.CancelledError):
                await hang_up
            with suppress(asyncio.CancelledError):
                await streaming


@asynccontextmanager
async def serving(app: Any) -> AsyncGenerator[str]:
    """Serve an ASGI app on a loopback port in this loop; gives the base URL, hangs up on everybody at the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, log_level="critical", lifespan="off", interface="asgi3")
    server = _Server(config)
    task = asyncio.create_task(server.serve([listener]))
    await server.up.wait()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.over.set()
        await task


class _Server(uvicorn.Server):
    """Leaves the signals of the test process alone and says when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self.over = asyncio.Event()

    async def main_loop(self) -> None:
        await self.over.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Hang up at once: there is nobody to be polite to."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve(sockets)


class _Broken(Exception):
    """Makes uvicorn cut the connection in the middle of a chunked body."""


async def _send_stream(chosen: Answer, send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if chosen.chunk_bytes is None:
        async for data in _events(chosen):
            await _send_piece(send, data)
    else:
        whole = b"".join([data async for data in _events(chosen)])
        for start in range(0, len(whole), chosen.chunk_bytes):
            await _send_piece(send, whole[start : start + chosen.chunk_bytes])
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_piece(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})
    await asyncio.sleep(0)  # so that the reader sees this piece by itself


async def _events(chosen: Answer) -> AsyncIterator[bytes]:
    end = (chosen.newline * 2).encode()
    yield _chunk({"role": "assistant", "content": ""}) + end
    for step in chosen.steps:
        match step:
            case Wait(ms):
                if ms:
                    await asyncio.sleep(ms / 1000)
            case Stall():
                await asyncio.Event().wait()
            case Drop():
                raise _Broken
            case Raw(data):
                yield data
            case Forever(text, every_ms):
                while True:
                    yield _chunk({"content": text}) + end
                    await asyncio.sleep(every_ms / 1000)
            case Text() | Reasoning() | Call():
                for delta in _deltas(step):
                    yield _chunk(delta) + end
    if chosen.finish is not None:
        yield _chunk({}, chosen.finish) + end
    if chosen.usage:
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        yield b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + end
    if chosen.done_mark:
        yield b"data: [DONE]" + end


def _deltas(step: Text | Reasoning | Call) -> Iterable[dict[str, Any]]:
    match step:
        case Text(text):
            yield {"content": text}
        case Reasoning(text):
            yield {"content": None, "reasoning_content": text}
        case Call():
            function = {"name": step.name, "arguments": ""}
            head = {"index": step.index, "id": step.call_id, "type": "function", "function": function}
            yield {"tool_calls": [head]}
            for start in range(0, len(step.arguments), step.piece_chars):
                piece = step.arguments[start : start + step.piece_chars]
                yield {"tool_calls": [{"index": step.index, "function": {"arguments": piece}}]}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "scripted", "choices": [choice]}
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode()


def pairing_problems(messages: list[dict[str, Any]]) -> list[str]:
    """What OpenAI would refuse: calls without an output right behind them, outputs without a call."""
    problems: list[str] = []
    open_calls: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_calls:
                problems.append(f"tool output without its call: {message.get('tool_call_id')}")
            open_calls.discard(message.get("tool_call_id", ""))
            continue
        problems += [f"tool call without an output: {call_id}" for call_id in sorted(open_calls)]
        open_calls = {call["id"] for call in message.get("tool_calls") or []}
        for call in message.get("tool_calls") or []:
            problems += _argument_problems(call["function"]["arguments"])
    return problems + [f"tool call without an output: {call_id}" for call_id in sorted(open_calls)]


def _argument_problems(arguments: str) -> list[str]:
    try:
        json.loads(arguments)
    except ValueError:
        return [f"tool arguments are not JSON: {arguments!r}"]
    return []


async def _send_json(send: Send, status: int, body: dict[str, Any] | str | None) -> None:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    kind = b"text/plain" if isinstance(body, str) else b"application/json"
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": data})


async def _read_body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
