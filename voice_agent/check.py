"""The self test without a microphone: the Talker asks a question, a whole session answers it, we listen.

The sound goes through the same session as a call's, paced in real time; only the network is left out.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import numpy as np

from voice_agent.agent import default_settings
from voice_agent.audio import MODEL_RATE_HZ, OPUS_RATE_HZ, MicrophoneFrame, Samples, silence
from voice_agent.clock import NS_PER_MS, Clock, MonotonicClock
from voice_agent.config import Config
from voice_agent.engine.messages import (
    Failed,
    Speak,
    SpeakEnd,
    SpeakText,
    SpeechChunk,
    SpokenWord,
)
from voice_agent.engines import Engines, cascade_of, running_engines, start_engines, store_of
from voice_agent.errors import ConfigError, EngineError
from voice_agent.events import (
    PlayoutStopped,
    ReplyDone,
    SessionError,
    SessionEvent,
    TranscriptionFailed,
    TurnTranscribed,
)
from voice_agent.media.paced import PacedOutput
from voice_agent.media.resample import Resampler
from voice_agent.session import VoiceSession
from voice_agent.session_parts import SessionParts
from voice_agent.shared_ears import SharedEars
from voice_agent.turns import transcribe

QUESTION = "What is the capital of France?"
FRAME_SAMPLES = MODEL_RATE_HZ // 50
PATIENCE_S = 60.0


async def check(config: Config, tell: Callable[[str], None]) -> int:
    """Run the self test; returns 0 if the question was heard and answered in speech."""
    if config.turn.mode == "none" or config.talker.family == "scripted":
        raise ConfigError(
            "check needs a voice that speaks and turn detection: not profile scripted, not turn.mode none"
        )
    clock = MonotonicClock()
    store = store_of(config)
    ears = SharedEars.load(store)
    try:
        async with running_engines(config, store, clock, tell) as engines:
            await start_engines(engines, config)
            question = await _spoken(engines, QUESTION)
            return await _converse(config, engines, ears, question, tell)
    except TimeoutError:
        tell(f"failed: nothing was answered within {PATIENCE_S:.0f} s")
        return 1
    finally:
        ears.close()


async def _converse(
    config: Config, engines: Engines, ears: SharedEars, question: Samples, tell: Callable[[str], None]
) -> int:
    clock = MonotonicClock()
    output = PacedOutput(clock)
    events: asyncio.Queue[SessionEvent] = asyncio.Queue()
    parts = SessionParts(
        recognizer=engines.thinker_process,
        cascade=cascade_of(engines, config, clock),
        ears=ears.ears(output.sound if config.turn.cancel_echo else None),
        output=output,
        clock=clock,
        turn=config.turn,
        conversation=replace(config.session, greeting=""),
        language=config.recognizer.language,
    )
    session = VoiceSession(
        "check", parts, default_settings(config), _microphone(question, clock), events.put_nowait
    )
    heard: list[Samples] = []
    tell(f'asking:   "{QUESTION}"')
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        running = [group.create_task(session.run()), group.create_task(_listen(output, heard))]
        answered = await _follow(events, tell)
        for task in running:
            task.cancel()
    if not answered:
        return 1
    tell(f'heard:    "{await _recognized(engines, np.concatenate(heard))}"')
    turn = session.timelines[-1]
    for stage, ms in turn.parts_ms().items():
        tell(f"  {stage:<11}{ms:7.0f} ms")
    tell(f"  {'total':<11}{turn.total_ms() or 0:7.0f} ms  from your last sound to the first of the answer")
    return 0


async def _follow(events: asyncio.Queue[SessionEvent], tell: Callable[[str], None]) -> bool:
    """Say what happens until the answer was played or failed."""
    while True:
        match await events.get():
            case TurnTranscribed(text=text):
                tell(f'understood: "{text}"')
            case ReplyDone(status=status, text=text, error=error):
                tell(f'answered: "{text}"' if status != "failed" else f"failed: {error}")
                if status == "failed" or not text:
                    return False
            case PlayoutStopped():
                return True
            case TranscriptionFailed(message=message) | SessionError(message=message):
                tell(f"failed: {message}")
                return False
            case _:
                pass


async def _microphone(question: Samples, clock: Clock) -> AsyncIterator[MicrophoneFrame]:
    """The question with silence around it, in real time, and silence for as long as it takes."""
    padded = np.concatenate([silence(MODEL_RATE_HZ // 2), question])
    start_ns, first = clock.now_ns(), 0
    while True:
        piece = padded[first : first + FRAME_SAMPLES]
        piece = np.concatenate([piece, silence(FRAME_SAMPLES - len(piece))])
        await clock.sleep_until(start_ns + 20 * NS_PER_MS * (first // FRAME_SAMPLES + 1))
        yield MicrophoneFrame(piece, first)
        first += FRAME_SAMPLES


async def _listen(output: PacedOutput, heard: list[Samples]) -> None:
    """Take what would go over the wire."""
    while True:
        _, samples = await output.next_frame()
        heard.append(samples)


async def _spoken(engines: Engines, text: str) -> Samples:
    """A sentence in the Talker's voice, at the microphone's rate."""
    engine = engines.talker
    request = Speak("check-question", engine.next_epoch(), "", latency_first=False)
    words = [SpokenWord(word, 0, 0) for word in text.split()]
    pieces: list[Samples] = []
    async with engine.submit(request) as stream:
        stream.push(SpeakText(request.request_id, request.epoch, words, "en"))
        stream.push(SpeakEnd(request.request_id, request.epoch))
        async for result in stream:
            match result:
                case SpeechChunk(pcm=pcm, rate_hz=rate_hz):
                    pieces.append(_at_model_rate(np.frombuffer(pcm, dtype="<i2"), rate_hz))
                case Failed(code=code, message=message):
                    raise EngineError(message, code=code)
                case _:
                    pass
    return np.concatenate(pieces) if pieces else silence(0)


async def _recognized(engines: Engines, samples: Samples) -> str:
    """What the recognizer makes of the answer's sound."""
    sound = _at_model_rate(samples, OPUS_RATE_HZ)
    return (await transcribe(engines.thinker_process, "check-answer", sound, None)).text


def _at_model_rate(samples: Samples, rate_hz: int) -> Samples:
    resampler = Resampler(rate_hz, MODEL_RATE_HZ)
    return np.concatenate([resampler.push(samples), resampler.flush()])
