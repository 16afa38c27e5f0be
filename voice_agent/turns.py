"""The user's turns: opened at an onset, understood at every pause, committed or forgotten.

Working ahead: recognition starts at the first pause while the end-of-turn model decides; what was found for a pause
that the user spoke on after is thrown away. Knows no reply: the session asks it for words.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

import numpy as np

from voice_agent.audio import MODEL_RATE_HZ, Samples
from voice_agent.clock import NS_PER_S, Clock, within
from voice_agent.engine.client import EngineClient
from voice_agent.engine.messages import Failed, Transcribe, Transcript
from voice_agent.errors import EngineError, EngineStalled
from voice_agent.events import (
    SessionEvent,
    SpeechStarted,
    SpeechStopped,
    TranscriptionFailed,
    TurnCommitted,
    TurnTranscribed,
)
from voice_agent.listening import Listener
from voice_agent.metrics import TurnTimeline
from voice_agent.turn.endpoint import Pause, TurnEnd

logger = logging.getLogger(__name__)

RECOGNIZER_LIMIT_S = 15.0  # a 28 s turn takes 6 s on a busy laptop; after that nobody waits for an answer
LONGEST_PIECE_SAMPLES = 28 * MODEL_RATE_HZ
CUT_SEARCH_SAMPLES = 4 * MODEL_RATE_HZ
QUIET_SAMPLES = MODEL_RATE_HZ // 25  # 40 ms
LISTEN_IN_MS = 350  # of speech over a reply: its first words are heard without waiting for a pause, and again
COMMIT = "commit"  # why a turn ended: the client said so, and no voice detector has a word in it


def pieces(samples: Samples) -> list[Samples]:
    """Cut sound to what a recognizer hears at once, each cut at the quietest place near its end."""
    cut_pieces: list[Samples] = []
    while len(samples) > LONGEST_PIECE_SAMPLES:
        first = LONGEST_PIECE_SAMPLES - CUT_SEARCH_SAMPLES
        row = (
            np.abs(samples[first:LONGEST_PIECE_SAMPLES].astype(np.int32))
            .reshape(-1, QUIET_SAMPLES)
            .sum(axis=1)
        )
        cut = first + int(row.argmin()) * QUIET_SAMPLES
        cut_pieces.append(samples[:cut])
        samples = samples[cut:]
    return [*cut_pieces, samples]


@dataclass
class UserTurn:
    """A turn from its onset on.

    State: `pause` the one being judged; `text` the words up to it (None while unknown); `probability` that it ends
    the turn; `announced` whether the client knows that speech began; `committed` once it is over, `by_client` if the
    client said so; `first_words` of speech without a pause yet, heard by `listening_in` after `listened_ms` of it;
    `tasks` what runs for the present pause.
    """

    turn_id: str
    timeline: TurnTimeline
    start_ms: int
    pause: Pause | None = None
    text: str | None = None
    probability: float | None = None
    committed: bool = False
    announced: bool = False
    by_client: bool = False
    error: EngineError | None = None
    audio_seconds: float = 0.0
    tokens: int = 0
    first_words: str | None = None
    listened_ms: float = 0.0
    listening_in: asyncio.Task[None] | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def forget_pause(self) -> None:
        """The user went on: what was found for the pause is void."""
        for task in self.tasks:
            task.cancel()
        self.tasks.clear()
        self.pause = self.text = self.probability = self.error = None

    @property
    def working(self) -> bool:
        """Whether something still runs for it."""
        listening_in = self.listening_in is not None and not self.listening_in.done()
        return listening_in or any(not task.done() for task in self.tasks)


@dataclass(frozen=True)
class TurnPorts:
    """What turns need of their session; `language` is asked for each sound, `spawn` owns tasks, `understood` hears of
    words and judgements.
    """

    recognizer: EngineClient
    listener: Listener
    clock: Clock
    language: Callable[[], str]
    emit: Callable[[SessionEvent], None]
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    understood: Callable[[UserTurn], None]


class Turns:
    """At most one open turn, `current`; committed ones whose words are not yet known live on in their tasks."""

    def __init__(self, ports: TurnPorts) -> None:
        self._ports = ports
        self._known: list[UserTurn] = []  # whose tasks may still run
        self.current: UserTurn | None = None

    def open(self, *, announce: bool) -> None:
        """Begin a turn; unannounced while it may yet turn out to be none."""
        turn_id = token_hex(10)
        self._known = [turn for turn in self._known if turn.working]
        self.current = UserTurn(turn_id, TurnTimeline(turn_id), self._ports.listener.turn_start_ms)
        self._known.append(self.current)
        if announce:
            self.announce()

    @property
    def unheard(self) -> bool:
        """Whether the words of a committed turn are still being recognized."""
        return any(turn.committed and turn.text is None for turn in self._known)

    def working(self) -> list[str]:
        """Ids of turns that something still runs for."""
        return [turn.turn_id for turn in self._known if turn.working]

    def announce(self) -> None:
        """Tell, once, that the user speaks; dated back to the onset."""
        turn = self.current
        if turn and not turn.announced:
            turn.announced = True
            self._ports.emit(SpeechStarted(turn.turn_id, turn.start_ms))

    def work_ahead(self, pause: Pause, *, judge: bool) -> None:
        """Begin on a pause: its words, and (if asked) whether it ends the turn."""
        turn = self.current
        if not turn:
            return
        turn.timeline.voiced_ns = self._ports.listener.arrival_ns(pause.last_voiced_sample - 1)
        turn.timeline.stamps_ns["vad"] = self._ports.clock.now_ns()
        self._begin(turn, pause, judge=judge)

    def listen_in(self, speech_ms: float, every_ms: int = LISTEN_IN_MS) -> None:
        """Hear the first words of speech that goes on: over a reply, what it is must be known before it pauses."""
        turn = self.current
        if not turn or turn.pause or turn.working or speech_ms < turn.listened_ms + every_ms:
            return
        turn.listened_ms = speech_ms
        turn.listening_in = self._ports.spawn(self._hear_first_words(turn))

    def stop_listening_in(self) -> None:
        """The user paused: all the words so far are wanted, and at once."""
        if self.current and self.current.listening_in:
            self.current.listening_in.cancel()

    def drop_ahead(self) -> None:
        """The user went on."""
        if self.current:
            self.current.forget_pause()

    def forget(self) -> None:
        """What was said was not for us: as if it had not been."""
        self.drop_ahead()
        self.stop_listening_in()
        self.current = None

    def commit(self, end: TurnEnd) -> UserTurn | None:
        """The turn is over: tell so, and see that its words get known; returns it if they are."""
        turn = self.current
        if not turn:
            return None
        self.current = None
        turn.committed = True
        turn.by_client = end.why == COMMIT
        turn.timeline.voiced_ns = self._ports.listener.arrival_ns(end.last_voiced_sample - 1)
        turn.timeline.stamp("endpoint", self._ports.clock.now_ns())
        if not turn.by_client:
            self._tell_ended(turn, end)
        self._ports.emit(TurnCommitted(turn.turn_id))
        if turn.pause is None:
            self._begin(turn, Pause(0, end.last_voiced_sample), judge=False)
        return turn if turn.text is not None else None

    def transcribed(self, turn: UserTurn) -> str:
        """Tell the words of a committed turn; returns them, empty if there were none."""
        text = turn.text or ""
        turn.timeline.stamp("recognizer", self._ports.clock.now_ns())
        turn.timeline.transcript = text
        if turn.error:
            self._ports.emit(TranscriptionFailed(turn.turn_id, turn.error.code, turn.error.notice()))
        else:
            self._ports.emit(TurnTranscribed(turn.turn_id, text, turn.audio_seconds, turn.tokens))
        return text

    def _tell_ended(self, turn: UserTurn, end: TurnEnd) -> None:
        if not turn.announced:
            turn.announced = True
            self._ports.emit(SpeechStarted(turn.turn_id, turn.start_ms))
        self._ports.emit(SpeechStopped(turn.turn_id, round(1000 * end.last_voiced_sample / MODEL_RATE_HZ)))

    def _begin(self, turn: UserTurn, pause: Pause, *, judge: bool) -> None:
        turn.forget_pause()
        turn.pause = pause
        samples = self._ports.listener.turn_samples(pause.last_voiced_sample)
        turn.audio_seconds = len(samples) / MODEL_RATE_HZ
        if judge:
            turn.tasks.append(self._ports.spawn(self._judge(turn, pause)))
        turn.tasks.append(self._ports.spawn(self._recognize(turn, pause, samples)))

    async def _judge(self, turn: UserTurn, pause: Pause) -> None:
        turn.probability = await self._ports.listener.finished_probability(pause.last_voiced_sample)
        self._ports.listener.endpointer.judged(pause.number, turn.probability)
        if not turn.committed:
            self._ports.understood(turn)

    async def _recognize(self, turn: UserTurn, pause: Pause, samples: Samples) -> None:
        text = ""
        try:
            heard = await self._transcribe(turn.turn_id, samples)
            text, turn.tokens = heard.text, heard.tokens
        except EngineError as error:
            turn.error = error
        turn.text = text
        self._ports.listener.endpointer.understood(pause.number, text)
        self._ports.understood(turn)

    async def _hear_first_words(self, turn: UserTurn) -> None:
        samples = self._ports.listener.turn_samples_so_far()
        try:
            heard = await self._transcribe(f"{turn.turn_id}_first", samples)
        except EngineError as error:
            logger.info("turn %s: its first words are not known: %s", turn.turn_id, error)
            return
        turn.first_words = heard.text
        self._ports.understood(turn)

    async def _transcribe(self, turn_id: str, samples: Samples) -> Transcript:
        ports = self._ports
        work = transcribe_all(ports.recognizer, turn_id, samples, ports.language() or None)
        return await in_time(ports.clock, samples, work)


async def in_time(clock: Clock, samples: Samples, work: Awaitable[Transcript]) -> Transcript:
    """What is recognized in this sound, if it does not take too long; raises EngineStalled if it does."""
    limit_s = RECOGNIZER_LIMIT_S * len(pieces(samples))
    try:
        return await within(clock, clock.now_ns() + int(limit_s * NS_PER_S), work)
    except TimeoutError:
        raise EngineStalled(f"the recognizer took over {limit_s:g} s") from None


async def transcribe_all(
    recognizer: EngineClient, turn_id: str, samples: Samples, language: str | None
) -> Transcript:
    """The words in sound (int16, 16 kHz), of a very long one piece by piece. Raises EngineError."""
    heard = [await transcribe(recognizer, turn_id, piece, language) for piece in pieces(samples)]
    text = " ".join(one.text for one in heard if one.text)
    return Transcript(
        turn_id, heard[-1].epoch, text, heard[-1].language, tokens=sum(one.tokens for one in heard)
    )


async def transcribe(
    recognizer: EngineClient, turn_id: str, samples: Samples, language: str | None
) -> Transcript:
    """The words in sound (int16, 16 kHz, 30 s at most); empty if there are none. Raises EngineError."""
    pcm = samples.astype("<i2").tobytes()
    epoch = recognizer.next_epoch()
    async with recognizer.submit(Transcribe(turn_id, epoch, pcm, language)) as results:
        async for result in results:
            match result:
                case Transcript():
                    return result
                case Failed(code=code, message=message, retryable=retryable):
                    raise EngineError(message, code=code, retryable=retryable)
                case _:
                    continue
    return Transcript(turn_id, epoch, "", language or "")
