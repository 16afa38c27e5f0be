"""Bodies nobody meant, made from the routes' own schemas and beside them: no 5xx, no hang, nothing left behind.

Bounded here; by hand longer: HTTP_FUZZ_EXAMPLES=2000 python -m pytest tests/test_http_fuzz.py
"""

import json
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import httpx
import psutil
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.live_server import LiveServer, at_most, config_file, in_hand, live_server
from voice_agent.api.chat_schema import ChatBody, SpeechBody
from voice_agent.media.containers import encode
from voice_agent.models.tones import sequence

pytestmark = pytest.mark.process

EXAMPLES = int(os.environ.get("HTTP_FUZZ_EXAMPLES", "40"))
# the tool's own list of border cases holds hundreds of texts of full length: by hand only
PHASES = tuple(Phase) if "HTTP_FUZZ_EXAMPLES" in os.environ else (Phase.reuse, Phase.generate, Phase.shrink)
LONGEST_S = 20.0
TOML = """
profile = "scripted"
[server]
max_requests = 2
[thinker.options]
texts = ["Yes."]
"""
bounded = settings(
    max_examples=EXAMPLES,
    phases=PHASES,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
    ],
)
WAV = encode(sequence(["hello"]), "wav", 24_000)


def json_route(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions.update(schema.pop("$defs", {}))
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {"post": {"requestBody": body, "responses": {"200": {"description": "An answer."}}}}


definitions: dict[str, Any] = {}
FORM = {
    "type": "object",
    "required": ["file", "model"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "model": {"type": "string"},
        "language": {"type": "string"},
        "response_format": {"enum": ["json", "text", "srt", "vtt", "verbose_json"]},
        "timestamp_granularities[]": {"type": "array", "items": {"enum": ["word", "segment"]}},
        "stream": {"type": "boolean"},
    },
}
FORM_ROUTE = {
    "post": {
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": FORM}}},
        "responses": {"200": {"description": "An answer."}},
    }
}
PATHS = {
    "/v1/chat/completions": json_route(ChatBody),
    "/v1/audio/speech": json_route(SpeechBody),
    "/v1/audio/transcriptions": FORM_ROUTE,
}
schema = schemathesis.openapi.from_dict(
    {
        "openapi": "3.1.0",
        "info": {"title": "voice-agent", "version": "1"},
        "paths": PATHS,
        "components": {"schemas": definitions},
    }
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    """One for all; when all is done it holds no more than before and still answers."""
    config = config_file(tmp_path_factory.mktemp("fuzz"), TOML)
    with live_server("--config", str(config), "--served-model-name", "m") as running:
        process = psutil.Process(running.process.pid)
        with httpx.Client(base_url=running.url, timeout=LONGEST_S) as client:
            assert client.post("/v1/chat/completions", json=GOOD).status_code == 200
        before, in_hand_before = process.num_fds(), in_hand(running)
        yield running
        time.sleep(1)
        assert process.num_fds() <= before + 4 and at_most(in_hand(running), in_hand_before)
        assert httpx.post(f"{running.url}/v1/chat/completions", json=GOOD).json()["choices"]
        log = "".join(running.lines)
        assert "Traceback" not in log, log[log.index("Traceback") - 300 :][:3_000]


GOOD: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi."}]}


def check(status: int, text: str) -> None:
    """An answer, or a refusal in OpenAI's shape."""
    assert status < 500, text
    if status >= 400:
        error = httpx.Response(status, text=text).json()["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["message"] and error["code"]


@schema.parametrize()  # pyright: ignore[reportUntypedFunctionDecorator] - schemathesis gives no types here
@bounded
def test_bodies_from_the_schema_and_beside_it(server: LiveServer, case: "schemathesis.Case[Any]") -> None:
    if isinstance(case.body, dict):
        cast(dict[str, Any], case.body)["model"] = "m"
    response = case.call(base_url=server.url, timeout=LONGEST_S)
    check(response.status_code, response.content.decode(errors="replace"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
KEYS = st.sampled_from(sorted(ChatBody.model_fields))


@bounded
@given(st.dictionaries(KEYS, json_values, max_size=4))
def test_a_good_body_with_any_of_its_values_replaced(server: LiveServer, changes: dict[str, Any]) -> None:
    with httpx.Client(timeout=LONGEST_S) as client:
        body = json.dumps(GOOD | changes).encode("utf-8", "surrogatepass")
        response = client.post(f"{server.url}/v1/chat/completions", content=body)
    check(response.status_code, response.text)


@bounded
@given(st.binary(max_size=400), st.sampled_from(["/v1/chat/completions", "/v1/audio/speech"]))
def test_any_bytes_for_a_body(server: LiveServer, body: bytes, path: str) -> None:
    response = httpx.post(f"{server.url}{path}", content=body, timeout=LONGEST_S)
    check(response.status_code, response.text)
    assert response.status_code >= 400


@bounded
@given(
    st.binary(max_size=300),
    st.sampled_from(["boundary=x", "", "boundary=", "boundary=\xe9", "boundary=" + "y" * 300]),
)
def test_any_bytes_for_a_form(server: LiveServer, body: bytes, boundary: str) -> None:
    headers = {b"content-type": f"multipart/form-data; {boundary}".strip().encode("latin-1")}
    wrapped = b"--x\r\n" + body + b"\r\n--x--\r\n"
    for content in (body, wrapped):
        url = f"{server.url}/v1/audio/transcriptions"
        response = httpx.post(url, content=content, headers=headers, timeout=LONGEST_S)
        check(response.status_code, response.text)


DAMAGE = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), min_size=1, max_size=6)


@bounded
@given(DAMAGE, st.sampled_from(["json", "srt", "verbose_json"]))
def test_a_damaged_sound_file(server: LiveServer, damage: list[tuple[int, int]], form: str) -> None:
    file = bytearray(WAV)
    for at, value in damage:
        file[at] = value
    data = {"model": "whisper-1", "response_format": form}
    url = f"{server.url}/v1/audio/transcriptions"
    response = httpx.post(url, data=data, files={"file": bytes(file)}, timeout=LONGEST_S)
    check(response.status_code, response.text)


def test_the_schemas_are_complete(tmp_path: Path) -> None:
    found = [cast(Any, operation).ok() for operation in schema.get_all_operations()]
    assert {operation.path for operation in found} == set(PATHS)
