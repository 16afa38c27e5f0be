"""A server for stock Realtime clients: a Thinker that does what the instructions say, the tone Talker, any words heard.

Instructions are the script: `say TEXT`, `slowly TEXT` (a word each 0.2 s), `call NAME JSON` (then says what the call
gave), `recite` (the conversation as JSON). So one server does for all clients, and they can look into its history.
"""

import asyncio
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.browser_rig import BROWSER_RATE_HZ, spoken
from tests.live_server import LiveServer, config_file, live_server
from tests.scripted_thinker import Answer, Call, ScriptedThinker, Text, answer
from voice_agent.audio import Samples, silence
from voice_agent.media.resample import Resampler

HEARD = "Tell me something."
TOML = """
profile = "scripted"
[session]
max_sessions = 16
[thinker]
url = "{url}"
model = "scripted"
stall_s = 10
[recognizer.options]
text = "Tell me something."
[server]
drain_s = 1
"""


def by_instructions(request: dict[str, Any]) -> Answer:
    """The answer that the first system message asks for."""
    messages: list[dict[str, Any]] = request["messages"]
    kind, _, rest = (
        messages[0]["content"].partition(" ") if messages[0]["role"] == "system" else ("say", "", "Yes.")
    )
    match kind:
        case "slowly":
            return answer(rest, every_ms=200)
        case "recite":
            return Answer([Text(json.dumps(messages[1:]))])
        case "call":
            name, _, arguments = rest.partition(" ")
            if messages[-1]["role"] == "tool":
                return answer(f"It is {messages[-1]['content']}.")
            return Answer([Text("Let me look."), Call(name, arguments)], finish="tool_calls")
        case _:
            return answer(rest or "Yes.")


@contextmanager
def thinking() -> Generator[ScriptedThinker]:
    """The Thinker on a thread of its own: tests have an event loop each."""
    thinker = ScriptedThinker(by_instructions)
    ready, loop, over = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def live() -> None:
        async with thinker:
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[live()])
    thread.start()
    try:
        assert ready.wait(20)
        yield thinker
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(20)
        loop.close()


@contextmanager
def realtime_server(
    folder: Path, extra: str = "", environment: dict[str, str] | None = None
) -> Generator[LiveServer]:
    """The server in front of that Thinker; `extra` is more TOML."""
    with thinking() as thinker:
        config = config_file(folder, TOML.format(url=thinker.url) + extra)
        arguments = ("--config", str(config), "--log-level", "info")
        with live_server(*arguments, environment=environment) as server:
            yield server
        assert not thinker.problems, thinker.problems


def question(*texts_and_pauses: str | int) -> Samples:
    """Speech at 24 kHz with silence around it, long enough to end a turn."""
    sound = spoken(300, *(texts_and_pauses or (HEARD,)), 1500)
    resampler = Resampler(BROWSER_RATE_HZ, 24_000)
    return np.concatenate([resampler.push(sound), resampler.flush(), silence(0)])
