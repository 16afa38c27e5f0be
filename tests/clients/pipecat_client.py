"""pipecat's OpenAI realtime service, unchanged, in a pipeline of its own: prints one JSON line of what it saw.

Arguments: the server's ws:// address, two files of raw 24 kHz PCM: a question, and an interruption. Without the second
it only asks the question, whatever answers.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from pipecat.adapters.schemas.function_schema import FunctionSchema
from pipecat.adapters.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    LLMContextFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime.events import (
    AudioConfiguration,
    AudioInput,
    InputAudioTranscription,
    SessionProperties,
    TurnDetection,
)
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.workers.runner import WorkerRunner


class Eye(FrameProcessor):
    """Notes what passes."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self.said = ""
        self.heard: list[str] = []
        self.errors: list[str] = []

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        match frame:
            case TTSAudioRawFrame():
                self.bytes += len(frame.audio)
            case TTSTextFrame():
                self.said += frame.text
            case TranscriptionFrame():
                self.heard.append(frame.text)
            case ErrorFrame():
                self.errors.append(frame.error)
            case _:
                pass
        await self.push_frame(frame, direction)


async def talk(url: str, instructions: str, tools: list[FunctionSchema], script: Any) -> dict[str, Any]:
    """Run a pipeline while a script plays the user."""
    properties = SessionProperties(
        audio=AudioConfiguration(
            input=AudioInput(
                transcription=InputAudioTranscription(), turn_detection=TurnDetection(type="server_vad")
            )
        )
    )
    settings = OpenAIRealtimeLLMService.Settings(
        model="voice-agent", system_instruction=instructions, session_properties=properties
    )
    service = OpenAIRealtimeLLMService(api_key="x", base_url=f"{url}/v1/realtime", settings=settings)
    calls: list[Any] = []

    async def clock(params: FunctionCallParams) -> None:
        calls.append(dict(params.arguments))
        await params.result_callback({"time": "noon"})

    if tools:
        service.register_function("clock", clock)
    context = (
        LLMContext([{"role": "user", "content": "What time is it?"}], ToolsSchema(tools))
        if tools
        else LLMContext([])
    )
    pair = LLMContextAggregatorPair(context)
    above, below = Eye(), Eye()
    pipeline = Pipeline([pair.user(), above, service, below, pair.assistant()])
    worker = PipelineWorker(
        pipeline,
        params=PipelineParams(audio_in_sample_rate=24_000, audio_out_sample_rate=24_000),
        idle_timeout_secs=None,
    )

    async def play() -> None:
        await worker.queue_frame(LLMContextFrame(context))
        await script(worker, below, calls)
        await worker.queue_frame(EndFrame())

    runner = WorkerRunner(handle_sigint=False)
    playing = asyncio.create_task(play())
    await runner.add_workers(worker)
    await runner.run()
    await playing
    messages = [m["role"] for m in context.get_messages() if isinstance(m, dict)]
    return {
        "bytes": below.bytes,
        "said": below.said,
        "heard": above.heard,
        "calls": calls,
        "messages": messages,
        "errors": above.errors + below.errors,
    }


async def until(test: Any) -> None:
    async with asyncio.timeout(40):
        while not test():
            await asyncio.sleep(0.02)


async def speak(worker: PipelineWorker, file: str) -> None:
    sound = Path(file).read_bytes()
    for at in range(0, len(sound), 960):
        await worker.queue_frame(InputAudioRawFrame(sound[at : at + 960], 24_000, 1))
        await asyncio.sleep(0.02)


async def main() -> None:
    url, question, *rest = sys.argv[1:]

    async def is_answered(worker: PipelineWorker, below: Eye, calls: list[Any]) -> None:
        await until(lambda: below.bytes > 0)
        await asyncio.sleep(8)  # it greets; that is played out
        before = below.bytes
        await speak(worker, question)
        await until(lambda: below.bytes > before)
        await asyncio.sleep(2)

    if not rest:
        print(json.dumps(await talk(url, "Answer in one short sentence.", [], is_answered)))
        return
    (stop,) = rest

    async def asks(worker: PipelineWorker, below: Eye, calls: list[Any]) -> None:
        await until(lambda: "noon" in below.said)

    async def interrupts(worker: PipelineWorker, below: Eye, calls: list[Any]) -> None:
        await until(lambda: below.bytes > 0)
        before = below.bytes
        await speak(worker, question)
        await until(lambda: below.bytes > before)
        before = below.bytes
        await speak(worker, stop)
        await until(lambda: below.bytes > before)
        await asyncio.sleep(0.5)

    zone = {"zone": {"type": "string"}}
    tool = FunctionSchema(name="clock", description="The time in a zone.", properties=zone, required=["zone"])
    story = "say Once upon a time an old sailor lived alone near the harbour and painted boats."
    seen = {
        "tool": await talk(url, 'call clock {"zone": "KST"}', [tool], asks),
        "interruption": await talk(url, story, [], interrupts),
    }
    print(json.dumps(seen))


asyncio.run(main())
