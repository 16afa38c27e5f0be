"""LiveKit's OpenAI realtime plugin, unchanged, without a room: prints one JSON line of what it saw.

Arguments: the server's http:// address, two files of raw 24 kHz PCM: a question, and an interruption. Without the
second it only asks the question, whatever answers.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from livekit import rtc
from livekit.agents import llm
from livekit.plugins.openai import realtime
from openai.types.beta.realtime.session import TurnDetection

STORY = "Once upon a time an old sailor lived alone near the harbour and painted little wooden boats every evening."


class Watch:
    """A plugin's session with what it told."""

    def __init__(self, url: str) -> None:
        detection = TurnDetection(type="server_vad", create_response=True, interrupt_response=True)
        self.model = realtime.RealtimeModel(
            model="voice-agent", base_url=f"{url}/v1", api_key="x", turn_detection=detection
        )
        self.session = self.model.session()
        self.errors: list[str] = []
        self.types: list[str] = []
        self.generations: asyncio.Queue[Any] = asyncio.Queue()
        self.started, self.transcripts = 0, list[str]()
        self.session.on("error", lambda error: self.errors.append(repr(error)))
        self.session.on("openai_server_event_received", lambda event: self.types.append(event["type"]))
        self.session.on("generation_created", self.generations.put_nowait)
        self.session.on("input_speech_started", self._on_started)
        self.session.on("input_audio_transcription_completed", self._on_words)

    def _on_started(self, _event: Any) -> None:
        self.started += 1

    def _on_words(self, event: Any) -> None:
        if event.is_final:
            self.transcripts.append(event.transcript)

    async def speak(self, file: str) -> None:
        sound = Path(file).read_bytes()
        for at in range(0, len(sound), 960):
            piece = sound[at : at + 960]
            self.session.push_audio(rtc.AudioFrame(piece, 24_000, 1, len(piece) // 2))
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        await self.session.aclose()
        await self.model.aclose()


async def take(generation: Any) -> dict[str, Any]:
    """All of a generation."""
    seen: dict[str, Any] = {"text": "", "bytes": 0, "calls": []}
    async for message in generation.message_stream:
        seen["id"] = message.message_id
        async for text in message.text_stream:
            seen["text"] += str(text)
        async for frame in message.audio_stream:
            seen["bytes"] += len(frame.data) * 2
    async for call in generation.function_stream:
        seen["calls"].append(call)
    return seen


async def calls_a_tool(url: str) -> dict[str, Any]:
    watch = Watch(url)

    @llm.function_tool
    async def clock(zone: str) -> str:
        """The time in a zone."""
        return "noon"

    await watch.session.update_instructions('call clock {"zone": "KST"}')
    await watch.session.update_tools([clock])
    history = llm.ChatContext()
    history.add_message(role="user", content="What time is it?")
    await watch.session.update_chat_ctx(history)
    first = await take(await watch.session.generate_reply())
    (call,) = first["calls"]
    history = watch.session.chat_ctx.copy()
    history.items.append(
        llm.FunctionCallOutput(call_id=call.call_id, name=call.name, output="noon", is_error=False)
    )
    await watch.session.update_chat_ctx(history)
    second = await take(await watch.session.generate_reply())
    items = [item.type for item in watch.session.chat_ctx.items]
    await watch.close()
    return {
        "call": [call.name, call.arguments],
        "said": second["text"],
        "items": items,
        "errors": watch.errors,
    }


async def is_interrupted(url: str, question: str, stop: str) -> dict[str, Any]:
    watch = Watch(url)
    await watch.session.update_instructions(f"say {STORY}")
    await watch.speak(question)
    first = await take(await asyncio.wait_for(watch.generations.get(), 20))
    before = watch.started
    speaking = asyncio.create_task(watch.speak(stop))
    while watch.started == before:
        await asyncio.sleep(0.01)
    watch.session.interrupt()
    watch.session.truncate(message_id=first["id"], modalities=["audio", "text"], audio_end_ms=1200)
    await speaking
    second = await take(await asyncio.wait_for(watch.generations.get(), 20))
    await asyncio.sleep(0.5)
    await watch.close()
    return {
        "first": first["text"],
        "bytes": [first["bytes"], second["bytes"]],
        "truncated": watch.types.count("conversation.item.truncated"),
        "transcripts": watch.transcripts,
        "errors": watch.errors,
    }


async def is_answered(url: str, question: str) -> dict[str, Any]:
    watch = Watch(url)
    await watch.speak(question)
    reply = await take(await asyncio.wait_for(watch.generations.get(), 60))
    await watch.close()
    return {
        "heard": watch.transcripts,
        "said": reply["text"],
        "bytes": reply["bytes"],
        "errors": watch.errors,
    }


async def main() -> None:
    url, question, *rest = sys.argv[1:]
    if not rest:
        print(json.dumps(await is_answered(url, question)))
        return
    (stop,) = rest
    seen = {"tool": await calls_a_tool(url), "interruption": await is_interrupted(url, question, stop)}
    print(json.dumps(seen))


asyncio.run(main())
