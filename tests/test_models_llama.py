import contextlib
import json
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model_weights import weights
from voice_agent.engine.context import fit_messages
from voice_agent.engine.messages import Think
from voice_agent.engine.runtime import ThinkerEnd, ThinkerOptions
from voice_agent.errors import EngineError, WeightsError
from voice_agent.models import llama
from voice_agent.models.tool_calls import ToolCallReader

CALL = '{"name": "weather", "arguments": {"city": "서울", "days": [1, 2]}}'
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
SYSTEM = {
    "role": "system",
    "content": "You are a helpful voice assistant. Answer in one or two short sentences.",
}


def never(_: str) -> bool:
    return False


# --- calls in text ----------------------------------------------------------------------------------------------


def read(pieces: list[str]) -> tuple[str, list[tuple[str, str]]]:
    reader, text = ToolCallReader(["weather"]), ""
    for piece in pieces:
        text += reader.feed(piece)
        if reader.complete:
            break
    text += reader.finish()
    return text, [(call.name, call.arguments) for call in reader.calls]


ONE = [("weather", '{"city": "서울", "days": [1, 2]}')]
CASES: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("Hello, how are you?", "Hello, how are you?", []),
    (CALL, "", ONE),
    (f"  {CALL}. The weather is fine.", "", ONE),
    (f"```json\n{CALL}\n```", "", ONE),
    (f"<tool_call>\n{CALL}\n</tool_call>", "", ONE),
    (f"Let me see. <tool_call>{CALL}</tool_call> Done.", "Let me see. ", ONE),
    (f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>", "", ONE * 2),
    ('{"name": "weather", "parameters": {}}', "", [("weather", "{}")]),
    ('{"type": "function", "function": {"name": "weather", "arguments": "{}"}}', "", [("weather", "{}")]),
    ('{"name": "Bob", "age": 3} is JSON.', '{"name": "Bob", "age": 3} is JSON.', []),
    ("{x} is a set, a < b", "{x} is a set, a < b", []),
    ("```python\nprint(1)\n```", "```python\nprint(1)\n```", []),
    ("<tool", "<tool", []),
    ("Is 3 < 4? <b>Yes</b>", "Is 3 < 4? <b>Yes</b>", []),
    ("<tool_call>not JSON</tool_call>", "", []),
    (f"<tool_call>{CALL[:20]}", "", []),  # cut off: dropped, never shown
    (CALL[:30], "", []),
    (f"Sure: {CALL}", f"Sure: {CALL}", []),  # in the middle of a text it is a text about JSON
    ("", "", []),
    ("   ", "   ", []),
]


@pytest.mark.parametrize(("text", "shown", "calls"), CASES)
def test_calls_are_found_and_text_is_shown(text: str, shown: str, calls: list[tuple[str, str]]) -> None:
    for size in (1, 2, 3, 7, 1_000):
        assert read([text[at : at + size] for at in range(0, len(text), size)]) == (shown, calls), size


@given(st.sampled_from(CASES), st.data())
def test_it_does_not_matter_how_the_text_is_cut(
    case: tuple[str, str, list[tuple[str, str]]], data: st.DataObject
) -> None:
    text, shown, calls = case
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert read(pieces) == (shown, calls)


@given(st.lists(st.text(alphabet='{}<>`"/tol_caname: \n서', max_size=6), max_size=20))
def test_any_text_is_shown_or_held_but_never_changed(pieces: list[str]) -> None:
    shown, calls = read(pieces)
    assert calls == []
    assert "".join(pieces).startswith(shown)
    assert "<tool_call>" not in shown


def test_a_call_that_never_ends_is_given_up() -> None:
    reader = ToolCallReader(["weather"])
    for _ in range(9_000):
        assert reader.feed("<tool_call>") == ""
        if reader.complete:
            return
    pytest.fail("it holds back without end")


# --- folders ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({}, "0 .gguf"),
        ({"a.gguf": b"GGUF", "b.gguf": b"GGUF"}, "2 .gguf"),
        ({"a.gguf": b"<html>"}, "not a GGUF"),
    ],
)
def test_a_folder_without_one_model_is_refused(tmp_path: Path, files: dict[str, bytes], error: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError, match=error):
        llama.find_model(tmp_path)


def test_the_first_part_of_a_split_model_is_taken(tmp_path: Path) -> None:
    for part in (2, 1):
        (tmp_path / f"m-0000{part}-of-00002.gguf").write_bytes(b"GGUF")
    assert llama.find_model(tmp_path).name == "m-00001-of-00002.gguf"


def test_a_killed_process_s_socket_is_removed_and_a_living_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "voice-agent-llama-empty").mkdir()
    with contextlib.ExitStack() as living:
        for name in ("dead", "alive", "young"):
            home = tmp_path / f"voice-agent-llama-{name}"
            home.mkdir()
            listener = living.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(home / "llm.sock"))
            if name == "alive":
                listener.listen()
            if name != "young":
                os.utime(home / "llm.sock", (1, 1))
        with pytest.raises(WeightsError, match="cannot be loaded"):
            (tmp_path / "m.gguf").write_bytes(b"GGUF but no more")
            llama.load(tmp_path, ThinkerOptions("llama", ""))
    assert sorted(path.name for path in tmp_path.glob("voice-*")) == [
        "voice-agent-llama-alive",
        "voice-agent-llama-empty",
        "voice-agent-llama-young",
    ]


# --- the model --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def homes() -> set[str]:
    return set(os.listdir(tempfile.gettempdir()))


@pytest.fixture(scope="module")
def model(homes: set[str]) -> Iterator[llama.Llama]:
    yield llama.load(weights("smollm2-135m"), ThinkerOptions("llama", "", threads=2, context_tokens=512))


def ask(model: llama.Llama, text: str, emit: Callable[[str], bool], **fields: Any) -> ThinkerEnd:
    fields = {"max_output_tokens": 12} | fields
    return model.stream(Think("r", 1, [SYSTEM, {"role": "user", "content": text}], **fields), emit)


@pytest.mark.weights
def test_it_answers_in_pieces_the_same_each_time(model: llama.Llama) -> None:
    first, again = list[str](), list[str]()
    end = ask(model, "What is the capital of France?", lambda piece: bool(first.append(piece)))
    ask(model, "What is the capital of France?", lambda piece: bool(again.append(piece)))
    assert first == again
    assert len([piece for piece in first if piece]) >= 5
    assert end.reason in {"stop", "length"}
    assert end.usage["completion_tokens"] <= 12


@pytest.mark.weights
def test_the_count_is_the_prompt_that_is_read(model: llama.Llama) -> None:
    messages = [SYSTEM, {"role": "user", "content": "Say 안녕 🌍, please."}]
    end = model.stream(Think("r", 1, messages, max_output_tokens=1), never)
    assert model.count_tokens(messages) == end.usage["prompt_tokens"]


@pytest.mark.weights
def test_the_instructions_were_read_in_advance(model: llama.Llama) -> None:
    assert ask(model, "Good evening!", never).usage["cached_tokens"] >= 20


@pytest.mark.weights
def test_no_piece_splits_a_character(model: llama.Llama) -> None:
    pieces = list[str]()
    ask(model, "Repeat: 🌍🌍🌍 안녕하세요", lambda piece: bool(pieces.append(piece)), max_output_tokens=24)
    assert "\ufffd" not in "".join(pieces)


@pytest.mark.weights
@pytest.mark.parametrize("stop_at", [1, 3])
def test_it_stops_at_the_piece_where_it_is_told(model: llama.Llama, stop_at: int) -> None:
    pieces = list[str]()
    end = ask(
        model,
        "Tell me a story.",
        lambda piece: len(pieces) == stop_at or bool(pieces.append(piece)) or len(pieces) == stop_at,
    )
    assert (end.reason, len(pieces)) == ("aborted", stop_at)
    assert ask(model, "Hello.", never).reason in {"stop", "length"}


@pytest.mark.weights
def test_a_conversation_beyond_the_context_is_refused(model: llama.Llama) -> None:
    with pytest.raises(EngineError) as caught:
        ask(model, "long " * 600, never)
    assert caught.value.code == "context_length_exceeded"
    assert ask(model, "Hello.", never).reason in {"stop", "length"}


USED = [
    {"role": "user", "content": "What is the weather in Paris?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    {"role": "assistant", "content": "It rains."},
]
TWICE = [USED[0], USED[3], {"role": "assistant", "content": "Take an umbrella."}]
PAIR = [{"role": "user", "content": "And what now?"}, {"role": "assistant", "content": "Now we wait for it."}]


@pytest.mark.weights
@pytest.mark.parametrize("piece", [USED, USED[:3], USED[:2], TWICE])
@pytest.mark.parametrize("at", [0, 20, 40])
def test_a_conversation_beyond_the_context_is_cut_wherever_the_template_takes_it(
    model: llama.Llama, piece: list[dict[str, Any]], at: int
) -> None:
    before, after = PAIR * at, PAIR * (40 - at)
    asked = [SYSTEM, *before, *piece, *after, {"role": "user", "content": "Shall we go?"}]
    fitted = fit_messages(asked, model.count_tokens, 400)
    assert 150 < model.count_tokens(fitted) <= 400
    assert fitted[0] == SYSTEM and fitted[1:] == asked[1 - len(fitted) :]
    answer = model.stream(Think("r", 1, fitted, tools=[TOOL], max_output_tokens=1), never)
    assert answer.reason in {"stop", "length"}


@pytest.mark.weights
@pytest.mark.parametrize("choice", ["required", "weather"])
def test_a_demanded_call_is_made_and_nothing_is_said(model: llama.Llama, choice: str) -> None:
    pieces = list[str]()
    end = ask(
        model,
        "What is the weather in Paris?",
        lambda piece: bool(pieces.append(piece)),
        tools=[TOOL],
        tool_choice=choice,
        max_output_tokens=80,
    )
    assert "".join(pieces) == ""
    assert (end.reason, [call.name for call in end.tool_calls]) == ("tool_calls", ["weather"])
    assert set(json.loads(end.tool_calls[0].arguments)) == {"city"}


@pytest.mark.weights
def test_no_call_is_made_when_none_is_wanted(model: llama.Llama) -> None:
    pieces = list[str]()
    end = ask(model, "Hello.", lambda piece: bool(pieces.append(piece)), tools=[TOOL], tool_choice="none")
    assert end.tool_calls == []
    assert "".join(pieces)


@pytest.mark.weights
def test_nobody_reaches_the_model_without_its_key(model: llama.Llama, homes: set[str]) -> None:
    new = [Path(tempfile.gettempdir(), name) for name in set(os.listdir(tempfile.gettempdir())) - homes]
    home = next(path for path in new if path.name.startswith("voice-agent-llama-"))
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    transport = httpx.HTTPTransport(uds=str(home / "llm.sock"))
    with httpx.Client(transport=transport, base_url="http://x") as stranger:
        assert stranger.post("/v1/chat/completions", json={"messages": []}).status_code == 401
        assert stranger.post("/tokenize", json={"content": "x"}).status_code == 401


@pytest.mark.weights
@pytest.mark.parametrize(
    "messages",
    [
        [{"role": 5}],
        USED[:2],
        TWICE,
        [{"role": "assistant", "tool_calls": [{"id": "c1"}]}, USED[0]],
        [
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}],
            }
        ],
    ],
)
def test_messages_the_template_cannot_take_are_the_asker_s_fault(
    model: llama.Llama, messages: list[dict[str, Any]]
) -> None:
    with pytest.raises(EngineError) as counted:
        model.count_tokens(messages)
    with pytest.raises(EngineError) as answered:
        model.stream(Think("r", 1, messages, max_output_tokens=1), never)
    assert counted.value.code == answered.value.code == "invalid_request"
    assert ask(model, "Hello.", never).reason in {"stop", "length"}
