"""The stock Agents SDK (openai-agents) over its RealtimeRunner against the running server: a tool, an interruption."""

import asyncio
import json
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner, RealtimeSession
from agents.realtime.model_inputs import RealtimeModelSendRawMessage

from tests.live_server import LiveServer
from tests.realtime_server import HEARD, question, realtime_server
from voice_agent.audio import Samples

pytestmark = [pytest.mark.process, pytest.mark.weights]
STORY = "Once upon a time an old sailor lived alone near the harbour and painted little wooden boats every evening."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    with realtime_server(tmp_path_factory.mktemp("agents")) as running:
        yield running


class Watch:
    """All events of a session; `until` waits for one."""

    def __init__(self, session: RealtimeSession) -> None:
        self.session = session
        self.events: list[Any] = []
        self._came = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.session:
            self.events.append(event)
            self._came.set()

    async def until(self, wanted: Callable[[Any], bool], timeout_s: float = 30) -> Any:
        try:
            async with asyncio.timeout(timeout_s):
                while not (found := [event for event in self.events if wanted(event)]):
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            pytest.fail(f"it never came: {[event.type for event in self.events]}")
        return found[0]

    async def raw(self, kind: str) -> Any:
        """A server event as it came."""

        def is_it(event: Any) -> bool:
            data: Any = getattr(event, "data", None)
            return getattr(data, "type", "") == "raw_server_event" and data.data.get("type") == kind

        return (await self.until(is_it)).data.data

    def problems(self) -> list[Any]:
        return [
            e
            for e in self.events
            if e.type == "error" or getattr(getattr(e, "data", None), "type", "") == "error"
        ]

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


def runner(agent: RealtimeAgent[Any]) -> RealtimeRunner:
    return RealtimeRunner(agent, config={"model_settings": {"model_name": "voice-agent"}})


def where(server: LiveServer) -> Any:
    return {"url": f"{server.url.replace('http', 'ws')}/v1/realtime?model=voice-agent", "api_key": "x"}


async def speak(session: RealtimeSession, sound: Samples) -> None:
    start = asyncio.get_running_loop().time()
    for n, at in enumerate(range(0, len(sound), 480)):
        await session.send_audio(sound[at : at + 480].astype("<i2").tobytes())
        await asyncio.sleep(max(0, start + n * 0.02 - asyncio.get_running_loop().time()))


async def test_a_tool_is_called_once_and_its_result_is_spoken(server: LiveServer) -> None:
    calls: list[str] = []

    @function_tool
    def clock(zone: str) -> str:
        """The time in a zone."""
        calls.append(zone)
        return "noon"

    agent = RealtimeAgent[Any](name="A", instructions='call clock {"zone": "KST"}', tools=[clock])
    async with await runner(agent).run(model_config=where(server)) as session:
        watch = Watch(session)
        await session.send_message("What time is it?")
        await watch.until(lambda event: event.type == "tool_end")

        def told(event: Any) -> bool:
            return event.type == "history_updated" and "It is noon." in str(event.history)

        history = (await watch.until(told)).history
        assert calls == ["KST"] and watch.problems() == []
        assert [item.role for item in history if item.type == "message"] == ["user", "assistant", "assistant"]
        await watch.close()


async def test_an_interruption_leaves_what_was_heard(server: LiveServer) -> None:
    speech, interruption = question(), question("Stop it, please, I have heard enough of this.")
    agent = RealtimeAgent[Any](name="A", instructions=f"say {STORY}")
    async with await runner(agent).run(model_config=where(server)) as session:
        watch = Watch(session)
        await speak(session, speech)
        sound = await watch.until(lambda event: event.type == "audio")
        assert np.frombuffer(sound.audio.data, dtype="<i2").any()
        await speak(session, interruption)
        await watch.until(lambda event: event.type == "audio_interrupted")
        truncated = await watch.raw("conversation.item.truncated")
        assert 0 < truncated["audio_end_ms"] < 6000

        def heard(event: Any) -> bool:
            return (
                event.type == "history_updated" and len(event.history) >= 3 and HEARD in str(event.history[0])
            )

        await watch.until(heard)
        recite: Any = {
            "type": "response.create",
            "other_data": {
                "response": {"conversation": "none", "instructions": "recite", "output_modalities": ["text"]}
            },
        }
        await watch.raw("response.done")
        await session.model.send_event(RealtimeModelSendRawMessage(message=recite))
        done = await watch.raw("response.output_text.done")
        cut = json.loads(done["text"])[1]
        assert cut["role"] == "assistant" and cut["content"] != STORY and STORY.startswith(cut["content"])
        assert watch.problems() == []
        await watch.close()
