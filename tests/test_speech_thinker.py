"""What a remote Thinker may do to us, against a real HTTP server that does it."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.fakes import Die, FakeEngine
from tests.fakes import Stall as EngineStall
from tests.scripted_thinker import (
    Answer,
    Call,
    Drop,
    Forever,
    Raw,
    Reasoning,
    ScriptedThinker,
    Stall,
    Text,
    Wait,
    answer,
)
from voice_agent.clock import ManualClock, MonotonicClock
from voice_agent.engine.messages import Failed, Finished, TextDelta, Think, ToolCall
from voice_agent.errors import RemoteProtocolError
from voice_agent.speech.completion import Completion, EventStream, Surrogates, ThinkResult, ToolMarkup
from voice_agent.speech.thinker import EngineThinker, RemoteThinker, Thinker, model_list_finding

TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "book", "parameters": {}}}]
HARD_TEXT = "\U0001fae0 \u9f9c O\u0308 \u00d6 안녕하세요"


def think(text: str = "Hi", **more: Any) -> Think:
    return Think("reply_1", 3, [{"role": "user", "content": text}], **more)


async def collect(thinker: Thinker, request: Think) -> list[ThinkResult]:
    async with aclosing(thinker.stream(request)) as results:
        return [result async for result in results]


async def ask(script: list[Answer], request: Think | None = None, **limits: float) -> list[ThinkResult]:
    async with (
        ScriptedThinker(script) as server,
        RemoteThinker(server.url, "m", None, MonotonicClock(), **limits) as thinker,
    ):
        return await collect(thinker, request or think())


def said(results: list[ThinkResult]) -> str:
    return "".join(result.text for result in results if isinstance(result, TextDelta))


def end_code(results: list[ThinkResult]) -> str:
    end = results[-1]
    assert isinstance(end, Finished | Failed)
    assert not any(isinstance(result, Finished | Failed) for result in results[:-1])
    return end.reason if isinstance(end, Finished) else end.code


# --- regular answers --------------------------------------------------------------------------------------------


async def test_text_comes_as_deltas_and_ends_with_usage_and_timings():
    results = await ask([answer("Hel lo wor ld")])
    assert said(results) == "Hel lo wor ld"
    assert len(results) == 5
    end = results[-1]
    assert isinstance(end, Finished)
    assert (end.request_id, end.epoch, end.reason) == ("reply_1", 3, "stop")
    assert end.usage == {"input_tokens": 7, "output_tokens": 3}
    assert 0 <= end.timings_ms["first_token"] <= end.timings_ms["total"]


async def test_white_space_between_pieces_is_kept():
    pieces = ["Hel", "lo", " ", "wor", "ld", " .", "\n", "Bye"]
    assert said(await ask([Answer([Text(piece) for piece in pieces])])) == "Hello world .\nBye"


async def test_the_request_carries_model_key_limits_and_tools():
    async with (
        ScriptedThinker([answer("Yes.")]) as server,
        RemoteThinker(server.url + "/", "big", "secret", MonotonicClock()) as thinker,
    ):
        await collect(
            thinker, think(tools=TOOLS, tool_choice="required", max_output_tokens=9, temperature=0.5)
        )
        request = server.requests[0]
        assert server.headers[0]["authorization"] == "Bearer secret"
    assert (request["model"], request["max_tokens"], request["temperature"]) == ("big", 9, 0.5)
    assert (request["tools"], request["tool_choice"], request["stream"]) == (TOOLS, "required", True)


async def test_no_tools_means_no_tool_choice_either():
    async with (
        ScriptedThinker([answer("Yes.")]) as server,
        RemoteThinker(server.url, "m", None, MonotonicClock()) as thinker,
    ):
        await collect(thinker, think())
        assert not {"tools", "tool_choice"} & server.requests[0].keys()
        assert "authorization" not in server.headers[0]


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 7])
async def test_characters_cut_by_the_network_arrive_whole(chunk_bytes: int):
    assert said(await ask([Answer([Text(HARD_TEXT)], chunk_bytes=chunk_bytes)])) == HARD_TEXT


async def test_crlf_comments_and_other_fields_are_read_over():
    extras = Raw(b": ping\r\n\r\nevent: note\r\nid: 4\r\nretry: 5\r\n\r\n")
    assert said(await ask([Answer([extras, Text("Yes"), extras], newline="\r\n")])) == "Yes"


async def test_reasoning_is_never_said():
    results = await ask([Answer([Reasoning("The user greets."), Text("Hello.")])])
    assert (said(results), end_code(results)) == ("Hello.", "stop")


async def test_a_server_that_does_not_stream_is_understood():
    message = {"role": "assistant", "content": "At once."}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    results = await ask([Answer(body=body)])
    assert (said(results), end_code(results)) == ("At once.", "stop")


async def test_a_missing_end_mark_does_not_hold_the_end_up():
    start = time.monotonic()
    results = await ask([Answer([Text("Yes."), Raw(b""), Text("")], done_mark=False)])
    assert (said(results), end_code(results)) == ("Yes.", "stop")
    assert time.monotonic() - start < 2


# --- tools ------------------------------------------------------------------------------------------------------


async def test_tool_calls_are_put_together_by_index():
    calls = [Call("book", '{"day": "Monday"}', "call_a"), Call("ring", "", "call_b", index=1)]
    results = await ask([Answer([Text("One moment."), *calls], finish="tool_calls")], think(tools=TOOLS))
    assert [(r.call_id, r.name, r.arguments) for r in results if isinstance(r, ToolCall)] == [
        ("call_a", "book", '{"day": "Monday"}'),
        ("call_b", "ring", "{}"),
    ]
    assert (said(results), end_code(results)) == ("One moment.", "tool_calls")


def test_pieces_of_two_calls_may_alternate():
    pieces = [
        {"index": 0, "id": "a", "function": {"name": "book", "arguments": '{"n"'}},
        {"index": 1, "id": "b", "function": {"name": "ring", "arguments": '{"m"'}},
        {"index": 0, "function": {"arguments": ": 1}"}},
        {"index": 1, "function": {"arguments": ": 2}"}},
    ]
    completion = Completion(think())
    for piece in pieces:
        assert completion.receive(json.dumps({"choices": [{"delta": {"tool_calls": [piece]}}]})) == []
    calls = [result for result in completion.finish() if isinstance(result, ToolCall)]
    assert [(call.name, call.arguments) for call in calls] == [("book", '{"n": 1}'), ("ring", '{"m": 2}')]


@pytest.mark.parametrize("arguments", ['{"day": ', "[1]", "nonsense", '{"day": "Monday"}}'])
async def test_unreadable_arguments_fail_the_reply_and_call_nothing(arguments: str):
    results = await ask([Answer([Text("Sure."), Call("book", arguments)], finish="tool_calls")])
    assert (said(results), end_code(results)) == ("Sure.", "tool_call_malformed")
    assert not any(isinstance(result, ToolCall) for result in results)


async def test_tool_markup_in_the_text_is_called_and_not_said():
    markup = '<tool_call>\n{"name": "book", "arguments": {"day": 1}}\n</tool_call>'
    results = await ask([Answer([Text("Let me see. ")] + [Text(letter) for letter in markup])])
    assert said(results) == "Let me see. "
    assert [r.arguments for r in results if isinstance(r, ToolCall)] == ['{"day": 1}']
    assert end_code(results) == "tool_calls"


@pytest.mark.parametrize(
    "markup", ["<tool_call>{", "<tool_call>{}</tool_call>", "<tool_call>book</tool_call>"]
)
async def test_broken_tool_markup_is_not_said_either(markup: str):
    results = await ask([Answer([Text("Well. "), Text(markup)])])
    assert (said(results), end_code(results)) == ("Well. ", "tool_call_malformed")


async def test_an_orphan_call_in_the_history_is_refused_by_name():
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "Book it"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "b", "arguments": "{}"}}
            ],
        },
    ]
    results = await ask([answer("never")], Think("reply_1", 3, history))
    end = results[-1]
    assert isinstance(end, Failed)
    assert (end.code, end.retryable) == ("thinker_rejected", False)
    assert "tool call without an output: call_1" in end.message
    output = {"role": "tool", "tool_call_id": "call_1", "content": "cancelled"}
    assert said(await ask([answer("Fine")], Think("reply_1", 3, [*history, output]))) == "Fine"


# --- irregular answers ------------------------------------------------------------------------------------------

EMPTY = {
    "only a role": Answer(),
    "only reasoning": Answer([Reasoning("Hm.")]),
    "only white space": Answer([Text(" \n")]),
    "only the end mark": Answer(finish=None, usage=False),
    "closed at once": Answer(finish=None, usage=False, done_mark=False),
}


@pytest.mark.parametrize("empty", EMPTY.values(), ids=EMPTY.keys())
async def test_an_empty_answer_is_asked_for_once_more(empty: Answer):
    results = await ask([empty, answer("Here I am.")])
    assert (said(results).strip(), end_code(results)) == ("Here I am.", "stop")


@pytest.mark.parametrize("empty", EMPTY.values(), ids=EMPTY.keys())
async def test_two_empty_answers_fail_at_once(empty: Answer):
    start = time.monotonic()
    async with (
        ScriptedThinker([empty]) as server,
        RemoteThinker(server.url, "m", None, MonotonicClock()) as thinker,
    ):
        results = await collect(thinker, think())
        assert len(server.requests) == 2
    assert end_code(results) == "thinker_empty"
    assert time.monotonic() - start < 2


@pytest.mark.parametrize("keep_alive", [b"", b": still here\n\n"])
async def test_a_stall_keeps_what_was_said_and_fails_after_the_idle_limit(keep_alive: bytes):
    steps = [Text("One two "), Text("three"), Raw(keep_alive), Stall()]
    clock = ManualClock()
    async with (
        ScriptedThinker([Answer(steps)]) as server,
        RemoteThinker(server.url, "m", None, clock, stall_s=20) as thinker,
        aclosing(thinker.stream(think())) as results,
    ):
        assert await anext(results) == TextDelta("reply_1", 3, "One two ")
        assert await anext(results) == TextDelta("reply_1", 3, "three")
        ending = asyncio.create_task(anext(results))
        await asyncio.sleep(0.05)  # the keep-alive comment crosses the socket
        await clock.advance_ms(19_900)
        assert not ending.done()
        await clock.advance_ms(200)
        end = await asyncio.wait_for(ending, 1)
        assert isinstance(end, Failed)
        assert (end.code, end.retryable) == ("thinker_stalled", True)
        await server.idle()
        assert server.aborted == 1


async def test_a_thinker_that_never_begins_fails_after_the_first_token_limit():
    results = await ask([Answer([Stall()])], first_token_s=0.1)
    assert end_code(results) == "thinker_stalled"


async def test_an_endless_answer_is_cut_at_its_length_and_the_stream_closed():
    async with (
        ScriptedThinker([Answer([Forever("on and ")])]) as server,
        RemoteThinker(server.url, "m", None, MonotonicClock()) as thinker,
    ):
        results = await collect(thinker, think(max_output_tokens=10))
        await server.idle()
    assert len(said(results)) == 80
    assert end_code(results) == "length"


async def test_endless_reasoning_is_cut_and_not_asked_for_again():
    forever = Answer([Reasoning("hm " * 20)] * 50 + [Stall()])
    async with (
        ScriptedThinker([forever]) as server,
        RemoteThinker(server.url, "m", None, MonotonicClock()) as thinker,
    ):
        assert end_code(await collect(thinker, think(max_output_tokens=10))) == "thinker_empty"
        assert len(server.requests) == 1


async def test_closing_the_stream_closes_the_connection_at_once():
    async with (
        ScriptedThinker([Answer([Text("Well"), Stall()])]) as server,
        RemoteThinker(server.url, "m", None, MonotonicClock()) as thinker,
    ):
        results = thinker.stream(think())
        await anext(results)
        assert server.in_flight == 1
        await results.aclose()
        await server.idle(0.5)
        assert server.aborted == 1


async def test_cancelling_the_reader_closes_the_connection_too():
    async with (
        ScriptedThinker([Answer([Wait(1), Stall()])]) as server,
        RemoteThinker(server.url, "m", None, MonotonicClock()) as thinker,
    ):
        reading = asyncio.create_task(collect(thinker, think()))
        await server.streaming()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await server.idle(0.5)


async def test_cancelling_the_reader_in_the_moment_of_the_answer_closes_the_connection_too(
    monkeypatch: pytest.MonkeyPatch,
):
    """The answer's head and the cancellation are there at once: a response that nobody took is closed all the same."""
    async with (
        ScriptedThinker([Answer([Stall()])]) as server,
        RemoteThinker(server.url, "m", None, MonotonicClock()) as thinker,
    ):
        send = httpx.AsyncClient.send

        async def send_and_cancel(*args: Any, **more: Any) -> httpx.Response:
            response = await send(*args, **more)
            reading.cancel()
            return response

        monkeypatch.setattr(httpx.AsyncClient, "send", send_and_cancel)
        reading = asyncio.create_task(collect(thinker, think()))
        with pytest.raises(asyncio.CancelledError):
            await reading
        await server.idle(0.5)


async def test_a_closed_stream_has_closed_its_connection(monkeypatch: pytest.MonkeyPatch):
    """Not some time later, by whoever collects garbage."""
    closed = list[httpx.Response]()
    aclose = httpx.Response.aclose

    async def noted(response: httpx.Response) -> None:
        await aclose(response)
        closed.append(response)

    monkeypatch.setattr(httpx.Response, "aclose", noted)
    async with (
        ScriptedThinker([Answer([Text("Well"), Stall()])]) as server,
        RemoteThinker(server.url, "m", None, MonotonicClock()) as thinker,
    ):
        results = thinker.stream(think())
        await anext(results)
        await results.aclose()
        assert closed
        await server.idle(0.5)


async def test_an_error_status_is_told_with_the_servers_words():
    body = {"error": {"message": "no model of that name", "code": "model_not_found"}}
    end = (await ask([Answer(status=404, body=body)]))[-1]
    assert isinstance(end, Failed)
    assert end.message == "the Thinker answered 404: no model of that name"
    assert (end.code, end.retryable) == ("thinker_rejected", False)


@pytest.mark.parametrize(("status", "body"), [(503, "try later"), (429, {"detail": "try later"})])
async def test_an_overloaded_thinker_may_be_asked_again(status: int, body: Any):
    end = (await ask([Answer(status=status, body=body)]))[-1]
    assert isinstance(end, Failed)
    assert end.retryable
    assert "try later" in end.message


async def test_an_error_in_mid_stream_ends_the_reply():
    error = Raw(b'data: {"error": {"message": "out of memory"}}\n\n')
    results = await ask([Answer([Text("So "), error, Text("lost")])])
    assert (said(results), end_code(results)) == ("So ", "thinker_error")


@pytest.mark.parametrize("data", [b"data: {oops\n\n", b"data: 7\n\n", b"data: \xff\xfe\n\n"])
async def test_garbage_in_the_stream_fails_the_reply(data: bytes):
    assert end_code(await ask([Answer([Text("So "), Raw(data)])])) == "thinker_malformed"


@pytest.mark.parametrize("steps", [[Text("So "), Drop()], [Text("So ")]])
async def test_a_broken_stream_is_no_regular_end(steps: list[Any]):
    results = await ask([Answer(steps, finish=None, usage=False, done_mark=False)])
    assert (said(results), end_code(results)) == ("So ", "thinker_broken_off")


async def test_a_refused_connection_names_the_url_and_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    async with RemoteThinker(url, "m", None, MonotonicClock()) as thinker:
        end = (await collect(thinker, think()))[-1]
    assert isinstance(end, Failed)
    assert (end.code, end.retryable) == ("thinker_unreachable", True)
    assert url in end.message
    assert "is it running" in end.message


async def test_a_filtered_answer_is_named_as_such():
    assert end_code(await ask([Answer([Text("I ")], finish="content_filter")])) == "content_filter"


async def test_two_replies_stream_side_by_side():
    async with (
        ScriptedThinker([answer("one two three", every_ms=5)]) as server,
        RemoteThinker(server.url, "m", None, MonotonicClock()) as thinker,
    ):
        both = await asyncio.gather(collect(thinker, think("a")), collect(thinker, think("b")))
    assert [said(results) for results in both] == ["one two three"] * 2


# --- the engine's Thinker ---------------------------------------------------------------------------------------


async def test_the_engines_results_pass_through():
    engine = FakeEngine(MonotonicClock(), says=[["Hel", "lo."]])
    results = await collect(EngineThinker(engine), think())
    assert (said(results), end_code(results)) == ("Hello.", "stop")


async def test_a_dead_engine_is_a_failure_that_may_be_asked_again():
    engine = FakeEngine(MonotonicClock(), says=[["Hel", Die()]])
    results = await collect(EngineThinker(engine), think())
    end = results[-1]
    assert isinstance(end, Failed)
    assert (said(results), end.code, end.retryable) == ("Hel", "engine_died", True)


async def test_closing_aborts_in_the_engine():
    engine = FakeEngine(MonotonicClock(), says=[["Hel", EngineStall()]])
    results: AsyncGenerator[ThinkResult, None] = EngineThinker(engine).stream(think())
    await anext(results)
    await results.aclose()
    assert engine.aborted == ["reply_1"]
    assert engine.in_flight() == []


# --- the parsers ------------------------------------------------------------------------------------------------


def cut(data: bytes, cuts: list[int], feed: Callable[[bytes], list[str]]) -> list[str]:
    edges = [0, *sorted(min(at, len(data)) for at in cuts), len(data)]
    return [event for start, end in zip(edges, edges[1:], strict=False) for event in feed(data[start:end])]


LINE = st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"]), max_size=12)


@given(
    st.lists(st.lists(LINE, min_size=1, max_size=3), max_size=4),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 200), max_size=12),
    st.booleans(),
)
def test_events_are_the_same_wherever_the_bytes_are_cut(
    events: list[list[str]], newline: str, cuts: list[int], last_open: bool
):
    text = ":hi" + newline
    for lines in events:
        text += "".join(f"data: {line}{newline}" for line in lines) + "event: x" + newline + newline
    if last_open and events:
        text = text.removesuffix(newline)
    stream = EventStream()
    got = cut(text.encode(), cuts, stream.feed) + stream.end()
    assert got == ["\n".join(lines) for lines in events]


def test_a_byte_order_mark_is_no_part_of_the_first_field():
    assert EventStream().feed(b"\xef\xbb\xbfdata:x\n\n") == ["x"]


def test_an_endless_line_is_refused():
    stream = EventStream()
    with pytest.raises(RemoteProtocolError):
        for _ in range(20):
            stream.feed(b"x" * 100_000)


def test_endless_lines_of_one_event_are_refused():
    stream = EventStream()
    with pytest.raises(RemoteProtocolError):
        for _ in range(200):
            stream.feed(b"data: " + b"x" * 9_990 + b"\n")


PROSE = st.lists(st.sampled_from(["a", " ", "<", ">", "<tool", "_call", "/tool_call>"]), max_size=6).map(
    "".join
)


@given(PROSE, st.text(st.sampled_from("{}:x"), max_size=6), PROSE, st.lists(st.integers(0, 60), max_size=8))
def test_markup_is_found_wherever_it_is_cut(before: str, call: str, after: str, cuts: list[int]):
    assume(not any("<tool_call>" in prose for prose in (before, after)))
    text = f"{before}<tool_call>{call}</tool_call>{after}"
    edges = [0, *sorted(min(at, len(text)) for at in cuts), len(text)]
    markup = ToolMarkup()
    spoken = "".join(markup.feed(text[a:b]) for a, b in zip(edges, edges[1:], strict=False)) + markup.end()
    assert (spoken, markup.calls) == (before + after, [call])


KEYS = ["choices", "delta", "content", "tool_calls", "function", "index", "id", "name", "error", "usage"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
)


@given(JSON)
def test_no_json_whatsoever_breaks_the_completion(chunk: Any):
    completion = Completion(think())
    results = completion.receive(json.dumps(chunk)) + completion.finish()
    assert sum(isinstance(result, Finished | Failed) for result in results) == 1
    assert completion.receive(json.dumps(chunk)) == []


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["A \ud83d", "\ude00 b"], "A \U0001f600 b"),
        (["\ud83d", "\ude00"], "\U0001f600"),
        (["A \ud83d", "b"], "A \ufffdb"),
        (["end \ud83d"], "end \ufffd"),
        (["\ude00 start"], "\ufffd start"),
    ],
)
def test_a_character_cut_in_halves_over_two_chunks_is_joined(pieces: list[str], text: str) -> None:
    surrogates = Surrogates()
    joined = "".join(surrogates.feed(piece) for piece in pieces) + surrogates.end()
    assert joined == text
    joined.encode()


# --- before the first question ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "words"), [("scripted", ""), ("other", "no 'other'; it has scripted")])
async def test_a_probe_says_whether_the_model_is_there(model: str, words: str) -> None:
    async with (
        ScriptedThinker([]) as server,
        RemoteThinker(server.url, model, None, MonotonicClock()) as thinker,
    ):
        found = await thinker.probe()
        assert words in found and bool(found) == bool(words)


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (401, "{}", "thinker.api_key"),
        (403, "no", "thinker.api_key"),
        (503, "", "answers 503"),
        (404, "not found", ""),
        (200, "<html>", ""),
        (200, "[1]", ""),
        (200, '{"data": []}', ""),
        (200, '{"data": [{"id": "m"}]}', ""),
        (200, '{"data": [{"id": "a"}, {"id": "b"}]}', "it has a, b"),
    ],
)
def test_what_a_list_of_models_says(status: int, text: str, words: str) -> None:
    found = model_list_finding(status, text, "http://x/v1/models", "m")
    assert words in found and bool(found) == bool(words)


async def test_a_probe_says_that_nothing_answers() -> None:
    async with RemoteThinker("http://127.0.0.1:9/v1", "m", None, MonotonicClock()) as thinker:
        assert "http://127.0.0.1:9/v1/models" in await thinker.probe()
