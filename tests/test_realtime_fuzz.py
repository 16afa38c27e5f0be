"""Conversations nobody meant, over WebSockets against the running server: any events in any order.

Whatever comes, each event out is one that the SDK knows, each response ends once, each item is added once, and the
session answers until the client goes; nothing is left behind. Bounded here; by hand longer:
REALTIME_FUZZ_EXAMPLES=500 python -m pytest tests/test_realtime_fuzz.py
"""

import asyncio
import json
import os
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Generator
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect

from tests.live_server import LiveServer, at_most, in_hand
from tests.realtime_server import realtime_server
from tests.realtime_wire import TOOL, Json
from tests.test_api_realtime_types import GA

pytestmark = pytest.mark.process
EXAMPLES = int(os.environ.get("REALTIME_FUZZ_EXAMPLES", "10"))
PATIENCE_S = 20
IDS = st.sampled_from(["a", "b", "c", "root", "resp_x", "item_"])
ENCODINGS = ["audio/pcm", "audio/pcmu", "audio/pcma"]


def sound(seed: int, ms: int) -> str:
    """Noise, loud or quiet, as base64."""
    noise = np.random.default_rng(seed).normal(0, [3, 6000][seed % 2], 24 * ms).clip(-32_000, 32_000)
    return b64encode(noise.astype("<i2").tobytes()).decode()


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Any of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def kind(which: str, /, **fields: Any) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({"type": st.just(which), **fields})


sounds = st.builds(sound, st.integers(0, 9), st.sampled_from([0, 10, 120, 400, 1500]))
formats = st.sampled_from([{"type": encoding} for encoding in ENCODINGS])
detections = st.none() | st.sampled_from(
    [
        {"type": "server_vad"},
        {"type": "server_vad", "silence_duration_ms": 100, "idle_timeout_ms": 5000},
        {"type": "server_vad", "create_response": False, "threshold": 0.0},
        {"type": "semantic_vad", "eagerness": "high", "interrupt_response": False},
    ]
)
transcriptions = st.none() | some(
    model=st.sampled_from(["whisper-1", "x"]), language=st.sampled_from(["en", "ko"])
)
modalities = st.sampled_from([["audio"], ["text"]])
instructions = st.sampled_from(
    ["say Yes. And no. And much more than that.", "slowly One two three four.", "call clock {}", "recite", ""]
)
sessions = st.fixed_dictionaries(
    {"type": st.just("realtime")},
    optional={
        "instructions": instructions,
        "output_modalities": modalities,
        "tools": st.sampled_from([[], [TOOL]]),
        "audio": some(
            input=some(format=formats, turn_detection=detections, transcription=transcriptions),
            output=some(format=formats, speed=st.sampled_from([0.25, 1.5])),
        ),
        "latency_first": st.booleans(),
    },
)
parts = st.one_of(
    kind("input_text", text=st.text(max_size=20)),
    kind("input_audio", audio=sounds),
    kind("input_audio", transcript=st.text(max_size=9)),
)
items = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("message"),
            "role": st.sampled_from(["user", "system"]),
            "content": st.lists(parts, max_size=3),
        },
        optional={"id": IDS},
    ),
    kind("message", role=st.just("assistant"), content=st.just([{"type": "output_text", "text": "Said."}])),
    kind("function_call", call_id=IDS, name=st.just("clock"), arguments=st.sampled_from(["{}", "["])),
    kind("function_call_output", call_id=IDS, output=st.text(max_size=9)),
)
responses = some(
    instructions=instructions,
    output_modalities=modalities,
    conversation=st.sampled_from(["auto", "none"]),
    input=st.lists(items | kind("item_reference", id=IDS), max_size=3),
    metadata=st.just({"a": "b"}),
    max_output_tokens=st.sampled_from([1, 20, "inf"]),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
events = st.one_of(
    kind("session.update", session=sessions),
    kind("conversation.item.create", item=items),
    st.fixed_dictionaries(
        {"type": st.just("conversation.item.create"), "item": items}, optional={"previous_item_id": IDS}
    ),
    kind("conversation.item.delete", item_id=IDS),
    kind("conversation.item.retrieve", item_id=IDS),
    kind(
        "conversation.item.truncate", item_id=IDS, content_index=st.just(0), audio_end_ms=st.integers(0, 3000)
    ),
    kind("response.create", response=responses),
    kind("response.create"),
    kind("response.cancel"),
    kind("input_audio_buffer.append", audio=sounds),
    kind("input_audio_buffer.append", audio=sounds),
    kind("input_audio_buffer.commit"),
    kind("input_audio_buffer.clear"),
    kind("output_audio_buffer.clear"),
    st.dictionaries(st.sampled_from(["type", "session", "x"]), anything, max_size=3),
)
walks = st.lists(st.tuples(events, st.sampled_from([0, 0, 0, 0.02, 0.2])), min_size=1, max_size=15)


class Watch:
    """What came over one connection, each event looked at."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.events: list[Json] = []
        self.open_replies: set[str] = set()
        self.changed = asyncio.Event()
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for frame in self.connection:
            event: Json = json.loads(frame)
            GA[event["type"]].validate_json(frame, strict=True)
            if event["type"] == "response.created":
                self.open_replies.add(event["response"]["id"])
            elif event["type"] == "response.done":
                self.open_replies.remove(event["response"]["id"])
            self.events.append(event)
            self.changed.set()

    async def until(self, test: Any) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not test():
                self.changed.clear()
                waiting = asyncio.create_task(self.changed.wait())
                await asyncio.wait({waiting, self.reading}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if self.reading.done():
                    self.reading.result()
                    raise AssertionError(f"closed: {self.connection.close_code}")

    def answered(self, event_id: str) -> bool:
        return any(event.get("error", {}).get("event_id") == event_id for event in self.events)


async def walked(url: str, walk: list[tuple[Json, float]]) -> None:
    async with connect(f"{url.replace('http', 'ws')}/v1/realtime", max_size=None) as connection:
        watch = Watch(connection)
        for event, pause_s in walk:
            await connection.send(json.dumps(event))
            await asyncio.sleep(pause_s)
        await connection.send(json.dumps({"type": "nothing", "event_id": "the last"}))
        await watch.until(lambda: watch.answered("the last"))
        await watch.until(lambda: not watch.open_replies)
        added = Counter(e["item"]["id"] for e in watch.events if e["type"] == "conversation.item.added")
        assert not added or max(added.values()) == 1
        ids = [event["event_id"] for event in watch.events]
        assert len(set(ids)) == len(ids)
        watch.reading.cancel()
        await asyncio.gather(watch.reading, return_exceptions=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    """One for all; when all is done it holds no more than before."""
    with realtime_server(tmp_path_factory.mktemp("fuzz")) as running:
        process = psutil.Process(running.process.pid)
        asyncio.run(walked(running.url, [({"type": "response.create"}, 0)]))
        time.sleep(1)
        before, in_hand_before = (process.num_fds(), process.num_threads()), in_hand(running)
        yield running
        time.sleep(2)
        assert process.num_fds() <= before[0] + 2 and process.num_threads() <= before[1] + 1
        assert at_most(in_hand(running), in_hand_before)
        asyncio.run(walked(running.url, [({"type": "response.create"}, 0)]))
        log = "".join(running.lines)
        assert "Traceback" not in log, log[log.index("Traceback") - 300 :][:3_000]


@settings(
    max_examples=EXAMPLES,
    phases=(Phase.generate, Phase.shrink),
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
@given(walks)
def test_any_events_in_any_order(server: LiveServer, walk: list[tuple[Json, float]]) -> None:
    asyncio.run(walked(server.url, walk))
