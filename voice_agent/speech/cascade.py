"""One answer through the stages: Thinker's text → clauses → spoken words → Talker and VoiceBox → watermark → sink.

The stages overlap: the Talker speaks the first clause while the Thinker writes the second. The cascade knows neither
turns nor transports; it is handed a sink. Cancelling `run` leaves both streams' blocks, which aborts the engines.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

import numpy as np
from msgspec import structs

from voice_agent.audio import PcmChunk, WordTime
from voice_agent.clock import NS_PER_S, Clock, within
from voice_agent.engine.client import EngineClient, EngineStream
from voice_agent.engine.messages import (
    Failed,
    Finished,
    Result,
    SpeechChunk,
    TextDelta,
    Think,
    ToolCall,
)
from voice_agent.errors import EngineError, EngineStalled
from voice_agent.speech.ask import Answer, Ask, Sink
from voice_agent.speech.speaking import Speaking, Stock
from voice_agent.speech.thinker import Thinker
from voice_agent.speech.watermark import Watermarker

logger = logging.getLogger(__name__)

STALL_GRACE_S = 1.0  # a Thinker with a limit of its own is to name the fault first


class Cascade:
    """Thinker and speech engine as one stage; many runs at a time."""

    def __init__(
        self,
        thinker: Thinker,
        talker: EngineClient,
        watermarker: Callable[[], Watermarker],
        clock: Clock,
        languages: Callable[[], tuple[str, ...]] = tuple,
        stall_s: float = 20.0,
        by_word: Callable[[], bool] = lambda: False,
    ) -> None:
        self._thinker = thinker
        self._talker = talker
        self._watermarker = watermarker
        self._clock = clock
        self._stall_s = stall_s + STALL_GRACE_S
        self._languages = languages  # that the voice speaks; empty while unknown
        self._by_word = by_word  # whether the voice takes text as it comes, not clause by clause
        self._thinking: set[str] = set()
        self._epochs = itertools.count(1)  # tells a second attempt from the first

    def thinking(self) -> list[str]:
        """Reply ids the Thinker works on."""
        return list(self._thinking)

    def speaking(self) -> list[str]:
        """Reply ids the speech engine works on."""
        return self._talker.in_flight()

    async def run(self, ask: Ask, sink: Sink) -> Answer:
        """Answer to the end. Raises EngineError; cancellation aborts every stage at once.

        A Thinker that fails in mid-answer does not silence the Talker: see `Sink.breaks_off`.
        """
        if ask.speak is None:
            return await self._think(ask, sink, Speaking(ask, None, sink, (), self._clock, by_word=False))
        ask = replace(ask, speak=structs.replace(ask.speak, epoch=next(self._epochs)))
        assert ask.speak
        async with self._talker.submit(ask.speak) as stream:
            try:
                languages, by_word = self._languages(), self._by_word()
                speaking = Speaking(ask, stream, sink, languages, self._clock, by_word=by_word)
                hearing = self._hear(stream, sink, speaking.stock, overlap=ask.overlap)
                async with asyncio.TaskGroup() as group:
                    group.create_task(hearing, name="speech")
                    thinking = group.create_task(self._think_aloud(ask, sink, speaking), name="think")
            except* EngineError as failures:
                raise _first(failures) from None
        if isinstance(answer := thinking.result(), EngineError):
            raise answer
        return answer

    async def read_ahead(self, ask: Ask) -> None:
        """Let the Thinker read a conversation whose last words are still coming; what it would say is thrown away.

        Raises nothing but cancellation: what is wrong with the Thinker, the answer itself will tell.
        """
        assert isinstance(ask.think, Think), "there is nothing to read ahead of a given text"
        think = structs.replace(ask.think, epoch=next(self._epochs), max_output_tokens=1)
        async with aclosing(self._thinker.stream(think)) as results:
            async for result in results:
                if isinstance(result, Failed):
                    logger.info("reading ahead failed: %s", result.code)

    async def _think_aloud(self, ask: Ask, sink: Sink, speaking: Speaking) -> Answer | EngineError:
        """The answer, or why it broke off where what was written is spoken all the same; else raises that."""
        try:
            return await self._think(ask, sink, speaking)
        except EngineError as error:
            if not speaking.fed or (error.retryable and sink.may_start_over()):
                raise
            speaking.end()
            sink.breaks_off(error)
            return error

    async def _think(self, ask: Ask, sink: Sink, speaking: Speaking) -> Answer:
        if isinstance(ask.think, str):
            sink.text(ask.think)
            speaking.write(ask.think)
            speaking.end()
            return Answer("stop", {})
        think = structs.replace(ask.think, epoch=next(self._epochs))
        self._thinking.add(ask.reply_id)
        try:
            return await self._follow(think, speaking, sink)
        finally:
            self._thinking.discard(ask.reply_id)

    async def _follow(self, think: Think, speaking: Speaking, sink: Sink) -> Answer:
        async with aclosing(self._thinker.stream(think)) as results:
            while True:
                result = await self._within_stall(anext(results))
                match result:
                    case TextDelta(text=text, rows=rows):
                        sink.stamp("thinker")
                        sink.text(text)
                        speaking.write(text, rows)
                    case ToolCall():
                        sink.stamp("thinker")
                        sink.tool_call(result)
                    case Finished(reason=reason, usage=usage):
                        speaking.end()
                        return Answer(reason, usage)
                    case Failed(code=code, message=message, retryable=retryable):
                        raise EngineError(message, code=code, retryable=retryable)
                    case _:
                        raise EngineError(f"the Thinker sent {type(result).__name__}")

    async def _hear(self, stream: EngineStream, sink: Sink, stock: Stock, *, overlap: bool) -> None:
        """Pass on what the VoiceBox renders, marked once, at the model's own rate."""
        watermarker = self._watermarker()
        rate_hz = 0
        waiting: list[PcmChunk] = []  # without overlap all of it, until the end
        async for result in stream:
            match result:
                case SpeechChunk(rate_hz=rate_hz):
                    marked = watermarker.push(np.frombuffer(result.pcm, dtype="<i2"), rate_hz)
                    chunk = PcmChunk(marked, rate_hz, _word_times(result))
                    stock.rendered(chunk)
                    if overlap:
                        sink.stamp("talker")
                        await sink.sound(chunk)
                    else:
                        waiting.append(chunk)
                case Failed(final=False, code=code):
                    logger.warning("reply %s: a clause stays silent: %s", result.request_id, code)
                case Failed(code=code, message=message, retryable=retryable):
                    raise EngineError(message, code=code, retryable=retryable)
                case Finished():
                    break
                case _:
                    raise EngineError(f"the speech engine sent {type(result).__name__}")

        tail = watermarker.flush()
        if len(tail):
            waiting.append(PcmChunk(tail, rate_hz))
        for chunk in waiting:
            sink.stamp("talker")
            await sink.sound(chunk)

    async def _within_stall(self, pending: Awaitable[Result]) -> Result:
        """Wait for the next result, but not for ever."""
        try:
            return await within(self._clock, self._clock.now_ns() + int(self._stall_s * NS_PER_S), pending)
        except TimeoutError:
            raise EngineStalled(f"the Thinker gave nothing for {self._stall_s:.0f} s") from None


def _word_times(chunk: SpeechChunk) -> tuple[WordTime, ...]:
    return tuple(
        WordTime(w.start_char, w.end_char, w.first_sample, w.end_sample, w.exact) for w in chunk.words
    )


def _first(failures: BaseExceptionGroup[EngineError]) -> EngineError:
    """The cause that is worth telling: one task failed, the others were cancelled for it."""
    found = failures.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
