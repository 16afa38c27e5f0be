"""One reply from its first thought to its last heard word.

A reply may be thought ahead, before the user's turn is certain: until `go_live` nothing of it is told or played, and
throwing it away leaves no trace. What was played decides what the history keeps.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from msgspec import structs

from voice_agent.audio import AudioOutput, PcmChunk, ms_to_samples, samples_to_ms
from voice_agent.clock import NS_PER_MS, Clock
from voice_agent.commands import CreateReply
from voice_agent.engine.messages import Speak, Think, ToolCall
from voice_agent.errors import EngineError, UnsupportedLanguage
from voice_agent.events import (
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    ReplyDone,
    ReplyStarted,
    ReplyStatus,
    ReplyText,
    ReplyToolCall,
    ReplyTruncated,
    SessionError,
    SessionEvent,
)
from voice_agent.metrics import TurnTimeline
from voice_agent.session_settings import SessionSettings
from voice_agent.speech.ask import Answer, Ask
from voice_agent.speech.cascade import Cascade
from voice_agent.speech.languages import language_of
from voice_agent.turn.heard import HeardText

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReplyPorts:
    """What a reply needs of its session."""

    cascade: Cascade
    output: AudioOutput
    clock: Clock
    emit: Callable[[SessionEvent], None]
    min_delay_ms: int = 0
    aside_output: AudioOutput | None = None  # for replies outside the conversation; None: the same


class ReplyRun:
    """One answer in flight; implements the cascade's sink.

    State: `text` written so far, `heard` the words by sample, `live` set once it may be told and played, `done` set
    when ReplyDone was sent, `rate_hz` of its sound.
    """

    def __init__(self, ports: ReplyPorts, ask: Ask, timeline: TurnTimeline) -> None:
        self._ports = ports
        self._ask = ask
        self.reply_id = ask.reply_id
        self.timeline = timeline
        self.text_so_far = ""
        self.tool_calls: list[ToolCall] = []
        self.heard = HeardText()
        self.live = asyncio.Event()
        self.done = False
        self.request: CreateReply | None = None  # of the client, if it asked for this reply
        self.heard_s = 0.0  # of the user's sound in what it answers
        self._sound_samples = 0
        self._rate_hz = 0
        self._wrote_sound = False
        self._told_chars = 0
        self._stopped = False
        self._started_over = False
        self._unspoken: UnsupportedLanguage | None = None

    # the sink

    def text(self, delta: str) -> None:
        """Take written text; told at once when live."""
        if self._stopped:
            return
        self.text_so_far += delta
        self.heard.add_text(delta)
        if self.live.is_set():
            self._tell_text()

    async def sound(self, pcm: PcmChunk) -> None:
        """Take sound; waits until the reply is live and the output has room."""
        await self.live.wait()
        if not self._wrote_sound:
            await self._ports.clock.sleep_until(self._not_before_ns())
        if self._stopped:
            return  # the reader was awake already when the reply was stopped
        self.heard.add_words(pcm.words)
        self._rate_hz = pcm.rate_hz
        self._wrote_sound = True
        self._sound_samples += len(pcm.samples)
        await self._ports.output.write(self.reply_id, pcm)

    def tool_call(self, call: ToolCall) -> None:
        """Take a function call; told once live, so that no tool runs before the turn is certain."""
        if self._stopped:
            return
        # an id of our own: some Thinkers give every first call the same one
        call = structs.replace(call, call_id=f"call_{token_hex(10)}")
        self.tool_calls.append(call)
        if self.live.is_set():
            self._tell_call(call)

    def unspoken(self, start_char: int, end_char: int, language: str) -> None:
        """A clause has captions only; say so once and go on."""
        self.heard.skip(start_char, end_char)
        if not self._unspoken and not self._stopped:
            self._unspoken = UnsupportedLanguage(f"the voice does not speak {language!r}: captions only")
            if self.live.is_set():
                self._tell_unspoken()

    def stamp(self, stage: str) -> None:
        """Note a stage's first result."""
        self.timeline.stamp(stage, self._ports.clock.now_ns())

    def may_start_over(self) -> bool:
        """Whether nothing was played or called, and what was shown will be written again word for word; once."""
        same_words = self._ask.same_again or not self._told_chars
        return not self._started_over and not self._wrote_sound and not self.tool_calls and same_words

    def breaks_off(self, error: EngineError) -> None:
        """Say at once what happened; the reply fails when what was written has been spoken."""
        logger.warning("reply %s breaks off: %s%s", self.reply_id, error.code, error.kept_back())
        if self.live.is_set() and not self._stopped:
            self._ports.emit(SessionError(error.code, error.notice()))

    # its life

    def go_live(self, turn_id: str | None) -> None:
        """The turn is certain: tell what there is and let the sound out."""
        if self.live.is_set():
            return
        emit = self._ports.emit
        self.timeline.turn_id = turn_id
        self.timeline.reply_id = self.reply_id
        metadata = self.request.metadata if self.request else None
        emit(ReplyStarted(self.reply_id, turn_id, metadata, self._ask.speak is None, self.request))
        self.live.set()
        self._tell_text()
        for call in self.tool_calls:
            self._tell_call(call)
        self._tell_unspoken()

    async def run(self) -> None:
        """Answer and play to the end. Ends quietly on EngineError, after saying so; cancellation passes through."""
        try:
            answer = await self._answer()
        except EngineError as error:
            await self.live.wait()
            logger.warning("reply %s failed: %s%s", self.reply_id, error.code, error.kept_back())
            self._finish("failed", error.code, error.notice())
        else:
            await self.live.wait()
            status: ReplyStatus = "incomplete" if answer.reason == "length" else "completed"
            reason = "max_output_tokens" if status == "incomplete" else None
            self._finish(status, reason, None, answer.usage)
        await self._play_out()

    def stop(self, reason: str) -> str:
        """Drop what was not played; returns the text that was heard. The task's owner cancels `run` besides."""
        emit = self._ports.emit
        self._stopped = True
        if self._wrote_sound and not self._is_aside:
            self._ports.output.flush()
        played = self._ports.output.refuse(self.reply_id) if self._wrote_sound else 0
        heard = self.heard.at(played)
        self.timeline.heard_text = heard
        if not self.live.is_set():
            return ""
        if self._wrote_sound:
            emit(PlayoutCleared(self.reply_id))
        if not self.done:
            self._finish("cancelled", reason, None)
        self.timeline.status = "interrupted"
        emit(ReplyTruncated(self.reply_id, heard, self._played_ms(played)))
        return heard

    def truncate(self, audio_end_ms: int) -> ReplyTruncated:
        """What was heard, when the client says how much it played."""
        heard = self.heard.at(ms_to_samples(audio_end_ms, self._rate_hz)) if self._rate_hz else ""
        self.timeline.heard_text = heard
        return ReplyTruncated(self.reply_id, heard, audio_end_ms, by_client=True)

    @property
    def sound_ms(self) -> int:
        """Length of the sound so far."""
        return self._played_ms(self._sound_samples)

    @property
    def _is_aside(self) -> bool:
        return self.request is not None and self.request.aside

    def heard_so_far(self) -> str:
        """The words that have left for the user."""
        return self.heard.at(self._ports.output.played_samples(self.reply_id))

    async def _answer(self) -> Answer:
        """Run the cascade; once more if an engine died before any of it was played."""
        try:
            return await self._ports.cascade.run(self._ask, self)
        except EngineError as error:
            if not error.retryable or not self.may_start_over():
                raise
            logger.warning("reply %s: trying again after %s", self.reply_id, error.code)
            self._started_over = True
            self.text_so_far, self.heard, self._unspoken = "", HeardText(), None
            return await self._ports.cascade.run(self._ask, self)

    async def _play_out(self) -> None:
        """Wait for the last sample to leave."""
        if not self._wrote_sound:
            return
        self._ports.output.finish(self.reply_id)
        await self._ports.output.drained(self.reply_id)
        self.timeline.heard_text = self.heard_so_far()
        self._ports.emit(PlayoutStopped(self.reply_id))

    async def watch_sound(self) -> None:
        """Tell when the first audible sample has left."""
        instant_ns = await self._ports.output.audible(self.reply_id)
        if instant_ns is None:
            return
        self.timeline.stamp("playout", instant_ns)
        self._ports.emit(PlayoutStarted(self.reply_id))
        parts = {stage: round(ms) for stage, ms in self.timeline.parts_ms().items()}
        logger.info("turn %s reply %s is heard: %s", self.timeline.turn_id, self.reply_id, parts)

    def _finish(
        self, status: ReplyStatus, reason: str | None, error: str | None, usage: dict[str, int] | None = None
    ) -> None:
        self.done = True
        self.timeline.status = status
        self.timeline.text = self.text_so_far
        said_s = self._sound_samples / self._rate_hz if self._rate_hz else 0.0
        done = ReplyDone(self.reply_id, status, self.text_so_far, reason, error, usage, self.heard_s, said_s)
        self._ports.emit(done)

    def _tell_text(self) -> None:
        """Show what was not shown yet; of a second attempt only what is new."""
        if delta := self.text_so_far[self._told_chars :]:
            self._told_chars += len(delta)
            self._ports.emit(ReplyText(self.reply_id, delta))

    def _tell_unspoken(self) -> None:
        if self._unspoken:
            self._ports.emit(SessionError(self._unspoken.code, str(self._unspoken)))

    def _tell_call(self, call: ToolCall) -> None:
        self._ports.emit(ReplyToolCall(self.reply_id, call.call_id, call.name, call.arguments))

    def _not_before_ns(self) -> int:
        """The instant before which the first sound would be uncannily soon."""
        voiced_ns = self.timeline.voiced_ns
        return 0 if voiced_ns is None else voiced_ns + self._ports.min_delay_ms * NS_PER_MS

    def _played_ms(self, played: int) -> int:
        return round(samples_to_ms(played, self._rate_hz)) if self._rate_hz else 0


def thinking_ask(settings: SessionSettings, messages: list[dict[str, Any]], hint_text: str = "") -> Ask:
    """Ask the Thinker to answer these messages under these settings."""
    reply_id = token_hex(10)
    think = Think(
        request_id=reply_id,
        epoch=0,
        messages=messages,
        tools=list(settings.tools),
        tool_choice=settings.tool_choice,
        max_output_tokens=settings.max_output_tokens,
        temperature=settings.temperature,
    )
    return Ask(reply_id, think, _speak(reply_id, settings), settings.overlap, language_of(hint_text, "en"))


def saying_ask(settings: SessionSettings, text: str) -> Ask:
    """Ask that a given text be said (a greeting)."""
    reply_id = token_hex(10)
    return Ask(reply_id, text, _speak(reply_id, settings), settings.overlap, language_of(text, "en"))


def _speak(reply_id: str, settings: SessionSettings) -> Speak | None:
    if settings.text_only:
        return None
    return Speak(reply_id, 0, settings.voice, settings.latency_first, settings.speed)
