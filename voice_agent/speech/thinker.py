"""The Thinker as one stream of text and tool calls, whether it runs in our engine or behind a URL.

A stream ends with exactly one Finished or Failed and raises nothing but cancellation. Closing it (`aclose`, or
`contextlib.aclosing` around the loop) aborts the Thinker at once: the engine's request, or the HTTP stream.

What the bytes of a remote answer mean is told in `completion`; here are only the connection and its time limits.
"""

import asyncio
import ipaddress
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, cast

import httpx
from msgspec import structs

from voice_agent.clock import NS_PER_S, Clock, ms_between, within
from voice_agent.engine.client import EngineClient
from voice_agent.engine.messages import Failed, Finished, TextDelta, Think, ToolCall
from voice_agent.errors import EngineError, RemoteProtocolError
from voice_agent.speech.completion import Completion, EventStream, ThinkResult, error_text

logger = logging.getLogger(__name__)

T = TypeVar("T")

ATTEMPTS = 2  # an answer without a word is asked for once more
CONNECT_S = 5.0
AFTER_END_S = 1.0  # how long the usage and [DONE] may lag behind the finish reason
MAX_BODY_CHARS = 1_000_000  # of an answer that is not streamed


class Thinker(Protocol):
    """Answers a conversation in pieces."""

    def stream(self, request: Think) -> AsyncGenerator[ThinkResult, None]:
        """Yield TextDelta and ToolCall, then one Finished or final Failed; close it early to abort."""
        ...


class EngineThinker:
    """The Thinker in our own engine process; `hidden` is what it is to leave of its states (see Think)."""

    def __init__(self, client: EngineClient, hidden: str = "") -> None:
        self._client = client
        self._hidden = hidden

    async def stream(self, request: Think) -> AsyncGenerator[ThinkResult, None]:
        """Pass the engine's results on; an engine that dies is a Failed that may be asked again."""
        if self._hidden:
            request = structs.replace(request, hidden=self._hidden)
        try:
            async with self._client.submit(request) as results:
                async for result in results:
                    if isinstance(result, TextDelta | ToolCall | Finished | Failed):
                        yield result
        except EngineError as error:
            yield Failed(request.request_id, request.epoch, error.code, str(error), error.retryable)


class RemoteThinker:
    """An OpenAI-compatible `/chat/completions` at a base URL (the part before that path, `/v1` included).

    One connection pool for its life as a context manager. `first_token_s` limits the wait for the first piece
    (connecting included), `stall_s` the wait between pieces; comments that keep a connection alive are no piece.
    """

    def __init__(
        self,
        url: str,
        model: str,
        api_key: str | None,
        clock: Clock,
        stall_s: float = 20.0,
        first_token_s: float = 20.0,
    ) -> None:
        self._url = url.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
        self._model = model
        self._headers = {"accept": "text/event-stream"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._clock = clock
        self._stall_ns, self._first_ns = round(stall_s * NS_PER_S), round(first_token_s * NS_PER_S)
        self._http: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        """Open the connection pool; nothing is sent yet."""
        url = httpx.URL(self._url)
        self._http = httpx.AsyncClient(
            headers=self._headers,
            timeout=httpx.Timeout(None, connect=CONNECT_S),  # the rest is limited by the clock
            trust_env=not _is_loopback(url.host),
            verify=url.scheme != "http",  # reading the authorities' certificates takes 0.3 s
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the pool, and with it whatever still streams."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def probe(self) -> str:
        """Ask the server for its models; what is wrong, for whoever configured it, and empty if nothing is."""
        assert self._http is not None, "RemoteThinker is used inside `async with`"
        url = self._url.removesuffix("/chat/completions") + "/models"
        try:
            response = await self._http.get(url, timeout=CONNECT_S)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            return f"thinker.url: nothing answers at {url} ({reason}); every question will fail until it does"
        return model_list_finding(response.status_code, response.text, url, self._model)

    async def stream(self, request: Think) -> AsyncGenerator[ThinkResult, None]:
        """Yield the answer; one without a word is asked for once more, then is Failed("thinker_empty")."""
        for attempt in range(ATTEMPTS):
            answer = _Answer(Completion(request), self._clock)
            async with aclosing(self._attempt(request, answer)) as results:
                async for result in results:
                    if isinstance(result, Finished) and not answer.completion.visible:
                        break
                    yield result
                else:
                    return
            logger.warning(
                "Thinker gave an empty answer", extra={"reply": request.request_id, "attempt": attempt}
            )
            if result.reason == "length":  # it used its whole length up for reasoning, and would again
                break
        message = f"the Thinker at {self._url} gave an answer without a word"
        yield Failed(request.request_id, request.epoch, "thinker_empty", message)

    async def _attempt(self, request: Think, answer: "_Answer") -> AsyncGenerator[ThinkResult, None]:
        """One HTTP request; every way in which it can go wrong becomes a Failed."""
        completion = answer.completion
        try:
            async with aclosing(self._exchange(request, answer)) as results:
                async for result in results:
                    yield result
            return
        except TimeoutError:
            ending = self._overdue(answer)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            what_to_do = "is it running, and is its URL right in the configuration?"
            message = f"no connection to the Thinker at {self._url} ({error}): {what_to_do}"
            ending = completion.fail("thinker_unreachable", message, retryable=True)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            message = f"the connection to the Thinker at {self._url} broke: {error or type(error).__name__}"
            ending = completion.fail("thinker_broken_off", message, retryable=True)
        except RemoteProtocolError as error:
            ending = completion.fail(error.code, str(error))
        for result in ending:
            yield result

    async def _exchange(self, request: Think, answer: "_Answer") -> AsyncGenerator[ThinkResult, None]:
        assert self._http is not None, "RemoteThinker is used inside `async with`"
        completion, limit_ns = answer.completion, self._clock.now_ns() + self._first_ns
        body = self._http.build_request("POST", self._url, json=_body(request, self._model))
        opening = asyncio.ensure_future(self._http.send(body, stream=True))
        try:
            response = await within(self._clock, limit_ns, opening)
            pieces, events = aiter(response.aiter_bytes()), EventStream()
            if response.status_code != 200 or "json" in response.headers.get("content-type", ""):
                text = await within(self._clock, limit_ns, _whole_body(pieces))
                for result in _whole_answer(response.status_code, text, completion):
                    yield result
                return
            while not completion.ended:
                piece = await within(self._clock, limit_ns, _next(pieces))
                before = completion.progress
                for data in events.end() if piece is None else events.feed(piece):
                    for result in answer.stamped(completion.receive(data)):
                        yield result
                if piece is None:
                    for result in answer.stamped(_at_close(completion)):
                        yield result
                limit_ns = self._next_limit_ns(completion, before, limit_ns)
        finally:
            await _close(opening)

    def _next_limit_ns(self, completion: Completion, before: int, limit_ns: int) -> int:
        now_ns = self._clock.now_ns()
        if completion.finish_reason is not None:
            return min(limit_ns, now_ns + round(AFTER_END_S * NS_PER_S))
        return now_ns + self._stall_ns if completion.progress > before else limit_ns

    def _overdue(self, answer: "_Answer") -> list[ThinkResult]:
        """A time limit passed: the regular end if only the end mark is missing, else a stall."""
        if answer.completion.finish_reason is not None:
            return answer.stamped(answer.completion.finish())
        limit_ns = self._stall_ns if answer.completion.progress else self._first_ns
        message = f"the Thinker at {self._url} gave nothing for {limit_ns / NS_PER_S:g} s"
        return answer.completion.fail("thinker_stalled", message, retryable=True)


class _Answer:
    """A completion with the instants that its Finished reports."""

    def __init__(self, completion: Completion, clock: Clock) -> None:
        self.completion = completion
        self._clock, self._start_ns = clock, clock.now_ns()
        self._first_ms: float | None = None

    def stamped(self, results: list[ThinkResult]) -> list[ThinkResult]:
        """Note when the first piece came; put timings on the end."""
        return [self._stamp(result) for result in results]

    def _stamp(self, result: ThinkResult) -> ThinkResult:
        now_ms = ms_between(self._start_ns, self._clock.now_ns())
        if self._first_ms is None and isinstance(result, TextDelta | ToolCall):
            self._first_ms = now_ms
        if not isinstance(result, Finished):
            return result
        timings = {"first_token": self._first_ms or now_ms, "total": now_ms}
        return Finished(result.request_id, result.epoch, result.reason, result.usage, timings)


def model_list_finding(status: int, text: str, url: str, model: str) -> str:
    """What a list of models says about the configuration; servers without such a list say nothing."""
    if status in {401, 403}:
        return f"thinker.api_key: the server at {url} refuses it ({status})"
    if status >= 500:
        return f"thinker.url: the server at {url} answers {status}"
    try:
        listed: Any = json.loads(text)
        names = [str(entry["id"]) for entry in listed["data"]]
    except (ValueError, TypeError, LookupError):
        return ""
    if status != 200 or not names or model in names:
        return ""
    return f"thinker.model: the server at {url} has no {model!r}; it has {', '.join(names[:20])}"


def _at_close(completion: Completion) -> list[ThinkResult]:
    """The stream closed: regular if it had said why it ends, a break if it was in the middle of something."""
    if completion.finish_reason is not None or not completion.progress:
        return completion.finish()
    return completion.fail(
        "thinker_broken_off", "the Thinker's answer broke off before its end", retryable=True
    )


def _whole_answer(status: int, text: str, completion: Completion) -> list[ThinkResult]:
    """An answer that was not streamed: an error, or a completion in one piece."""
    if status == 200:
        return completion.receive(text) + completion.finish()
    try:
        body: Any = json.loads(text)
    except ValueError:
        body = {"message": text.strip()}
    reason = error_text(cast(dict[str, Any], body)) if isinstance(body, dict) else text[:500]
    again = status == 429 or status >= 500
    return completion.fail("thinker_rejected", f"the Thinker answered {status}: {reason}", retryable=again)


async def _close(opening: asyncio.Future[httpx.Response]) -> None:
    """Close a response that came, also when whoever waited for it was cancelled in the same moment."""
    if opening.done() and not opening.cancelled() and not opening.exception():
        await opening.result().aclose()


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    """The next piece; None at the end."""
    async for piece in pieces:
        return piece
    return None


async def _whole_body(pieces: AsyncIterator[bytes]) -> str:
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > MAX_BODY_CHARS:
            raise RemoteProtocolError("thinker_malformed", "the Thinker sent an endless body")
    return body.decode(errors="replace")


def _body(request: Think, model: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": request.messages,
        "max_tokens": request.max_output_tokens,
        "temperature": request.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.top_p < 1:  # what is not asked for is not sent: some servers know few parameters
        body["top_p"] = request.top_p
    if request.seed is not None:
        body["seed"] = request.seed
    if request.tools:
        body |= {"tools": request.tools, "tool_choice": _tool_choice(request.tool_choice)}
    return body


def _tool_choice(choice: str) -> str | dict[str, Any]:
    """A word of the API as it is; anything else is the name of the one function to call."""
    if choice in {"auto", "none", "required"}:
        return choice
    return {"type": "function", "function": {"name": choice}}


def _is_loopback(host: str) -> bool:
    """A proxy of the environment cannot reach this machine's own loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
