"""One answer through the stages: Thinker's text → clauses → spoken words → Talker and VoiceBox → watermark → sink.

The stages overlap: the Talker speaks the first clause while the Thinker writes the second. The cascade knows neither
turns nor transports; it is handed a sink. Cancelling `run` leaves both streams' blocks, which aborts the engines.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from msgspec import structs

from voice_agent.audio import PcmChunk, WordTime
from voice_agent.clock import NS_PER_MS, NS_PER_S, Clock, within
from voice_agent.engine.client import EngineClient, EngineStream
from voice_agent.engine.messages import (
    Failed,
    Finished,
    Result,
    RowsRef,
    Speak,
    SpeakEnd,
    SpeakText,
    SpeechChunk,
    SpokenWord,
    TextDelta,
    Think,
    ToolCall,
)
from voice_agent.errors import EngineError, EngineStalled
from voice_agent.speech.clauses import Clause, ClauseSplitter
from voice_agent.speech.speakable import Speakable
from voice_agent.speech.thinker import Thinker
from voice_agent.speech.watermark import Watermarker

logger = logging.getLogger(__name__)

STALL_GRACE_S = 1.0  # a Thinker with a limit of its own is to name the fault first
URGENT_MS = 500  # what the Talker may need for a clause on a busy laptop


@dataclass(frozen=True)
class Ask:
    """What to answer and how: `think` for the Thinker, or the text itself (a greeting); `speak` None is text only.

    Without `overlap` each stage waits for the end of the one before, for comparison.
    """

    reply_id: str
    think: Think | str
    speak: Speak | None
    overlap: bool = True
    language_hint: str = "en"

    @property
    def same_again(self) -> bool:
        """Whether a second run writes the same words."""
        return isinstance(self.think, str) or self.think.temperature == 0


@dataclass(frozen=True)
class Answer:
    """How a run ended: finish reason (stop, length, tool_calls) and token counts."""

    reason: str
    usage: dict[str, int]


class Sink(Protocol):
    """Where a reply's pieces go. `sound` may wait (the output is full); the others return at once."""

    def text(self, delta: str) -> None:
        """The next piece of written text."""
        ...

    async def sound(self, pcm: PcmChunk) -> None:
        """The next piece of sound, with the words that begin in it."""
        ...

    def tool_call(self, call: ToolCall) -> None:
        """A whole function call."""
        ...

    def unspoken(self, start_char: int, end_char: int, language: str) -> None:
        """This range of the text has captions only, since the voice has not its language; the reply goes on."""
        ...

    def stamp(self, stage: str) -> None:
        """A stage gave its first result: thinker, clause or talker."""
        ...


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
        """Answer to the end. Raises EngineError; cancellation aborts every stage at once."""
        if ask.speak is None:
            return await self._think(ask, sink, _Speaking(ask, None, sink, (), self._clock, by_word=False))
        ask = replace(ask, speak=structs.replace(ask.speak, epoch=next(self._epochs)))
        assert ask.speak
        async with self._talker.submit(ask.speak) as stream:
            try:
                languages, by_word = self._languages(), self._by_word()
                speaking = _Speaking(ask, stream, sink, languages, self._clock, by_word=by_word)
                hearing = self._hear(stream, sink, speaking.stock, overlap=ask.overlap)
                async with asyncio.TaskGroup() as group:
                    group.create_task(hearing, name="speech")
                    thinking = group.create_task(self._think(ask, sink, speaking), name="think")
                return thinking.result()
            except* EngineError as failures:
                raise _first(failures) from None

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

    async def _think(self, ask: Ask, sink: Sink, speaking: "_Speaking") -> Answer:
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

    async def _follow(self, think: Think, speaking: "_Speaking", sink: Sink) -> Answer:
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
                        speaking.end()
                        raise EngineError(message, code=code, retryable=retryable)
                    case _:
                        raise EngineError(f"the Thinker sent {type(result).__name__}")

    async def _hear(self, stream: EngineStream, sink: Sink, stock: "Stock", *, overlap: bool) -> None:
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


class Stock:
    """How much sound there is in hand, if playing began with the first chunk: tells when a piece is urgent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends_ns = 0  # when the sound rendered so far will have been played
        self._sent_char = 0
        self._rendered_char = 0

    def sent(self, end_char: int) -> None:
        """A clause up to this character went to the Talker."""
        self._sent_char = end_char

    def rendered(self, chunk: PcmChunk) -> None:
        """Sound came back."""
        self._ends_ns = max(self._ends_ns, self._clock.now_ns()) + int(chunk.duration_ms * NS_PER_MS)
        if chunk.words:
            self._rendered_char = chunk.words[-1].end_char

    def runs_dry(self) -> bool:
        """Whether all that was sent is rendered and will have been played before a next piece could be."""
        if not self._ends_ns or self._rendered_char < self._sent_char:
            return False
        return self._ends_ns - self._clock.now_ns() < URGENT_MS * NS_PER_MS


class _Speaking:
    """Cuts the written text into clauses, or words, and sends them, made speakable, to an open Speak request."""

    def __init__(
        self,
        ask: Ask,
        stream: EngineStream | None,
        sink: Sink,
        languages: tuple[str, ...],
        clock: Clock,
        *,
        by_word: bool,
    ) -> None:
        self._stream = stream
        self._sink = sink
        self._languages = languages
        self.stock = Stock(clock)
        self._speak = ask.speak
        self._overlap = ask.overlap
        self._text = ""
        self._rows: RowsRef | None = None  # of what was written since the last clause that was sent
        soon = ask.speak.latency_first if ask.speak else True
        self._clauses = ClauseSplitter(soon, by_word=by_word)
        self._by_word = by_word
        self._speakable = Speakable(ask.language_hint)

    def write(self, delta: str, rows: RowsRef | None = None) -> None:
        if rows:
            self._rows = RowsRef(rows.key, self._rows.first_row, rows.end_row) if self._rows else rows
        if self._overlap and self._stream:
            self._send(self._clauses.push(delta))
            if self.stock.runs_dry():
                self._send(self._clauses.hurry())
        else:
            self._text += delta

    def end(self) -> None:
        if self._stream and self._speak:
            self._send([*self._clauses.push(self._text), *self._clauses.end()])
            self._stream.push(SpeakEnd(self._speak.request_id, self._speak.epoch))

    def _send(self, clauses: list[Clause]) -> None:
        assert self._stream and self._speak
        pieces: list[tuple[list[SpokenWord], str]] = []
        for clause in clauses:
            words = self._speakable.words(clause)
            language = self._speakable.language
            if words and self._languages and language not in self._languages:
                self._sink.unspoken(clause.start_char, clause.end_char, language)
            elif words and self._by_word and pieces and pieces[-1][1] == language:
                pieces[-1][0].extend(words)  # words that came at once are one message
            elif words:
                pieces.append((words, language))
        for words, language in pieces:
            self._sink.stamp("clause")
            self.stock.sent(words[-1].end_char)
            rows, self._rows = self._rows, None
            self._stream.push(SpeakText(self._speak.request_id, self._speak.epoch, words, language, rows))


def _word_times(chunk: SpeechChunk) -> tuple[WordTime, ...]:
    return tuple(
        WordTime(w.start_char, w.end_char, w.first_sample, w.end_sample, w.exact) for w in chunk.words
    )


def _first(failures: BaseExceptionGroup[EngineError]) -> EngineError:
    """The cause that is worth telling: one task failed, the others were cancelled for it."""
    found = failures.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
