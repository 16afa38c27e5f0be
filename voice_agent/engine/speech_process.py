"""Talker and VoiceBox in one process, one step at a time on one thread, chosen by the scheduler.

Runs in a child. Latents never leave it: what goes out is sound with the words that begin in it, counted from the
reply's first sample without a hole.
"""

import functools
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from voice_agent.clock import NS_PER_S, Clock, ms_between
from voice_agent.engine import families
from voice_agent.engine.lanes import Send, failure
from voice_agent.engine.messages import (
    Abort,
    Failed,
    Finished,
    Loading,
    Speak,
    SpeakEnd,
    SpeakText,
    SpeechChunk,
    SpokenWord,
    ToEngine,
    Word,
    primary_tag,
)
from voice_agent.engine.runtime import (
    FASTEST,
    SLOWEST,
    EngineSpec,
    Latents,
    RowReader,
    TalkerModel,
    TalkerOptions,
)
from voice_agent.engine.scheduler import Decode, Encode, Pace, SpeechScheduler, Step
from voice_agent.engine.urgency import Key
from voice_agent.errors import EngineError, UnsupportedLanguage

if TYPE_CHECKING:
    from voice_agent.engine.slot_speech import SlotSpeech

logger = logging.getLogger(__name__)

SLOT_FAMILY = "qwen3-tts"  # speaks from slots of a device under the cycle scheduler
MAX_WAITING_CLAUSES = 1_000  # an answer of 512 tokens has some 100; more is a runaway sender


class VoiceBoxBroken(EngineError):
    """The model gave other samples than its frames stand for; word times would be wrong."""

    code = "voicebox_broken"


def load(spec: EngineSpec, send: Send, clock: Clock) -> "SpeechEngine | SlotSpeech":
    """Load and warm up the voice, with the smallest and the largest window; blocks for seconds."""
    if spec.talker is None:
        raise ValueError("a speech engine needs a talker")
    if spec.talker.family == SLOT_FAMILY:
        from voice_agent.engine import slot_speech

        return slot_speech.load(spec, send, clock)
    send(Loading(f"voice ({spec.talker.family})"))
    model = families.load_talker(spec.talker)
    _warm_up(model, spec.talker, spec)
    return SpeechEngine(model, spec, send, clock)


def _warm_up(model: TalkerModel, options: TalkerOptions, spec: EngineSpec) -> None:
    text = spec.warm_up_text
    words = [SpokenWord(text, 0, len(text))]
    latents = model.encode(words, options.voice or model.voices[0], 1.0, 0)
    for frames in {min(latents.frames, window) for window in spec.limits.ramp_frames} - {0}:
        model.decode(latents, 0, frames)


@dataclass(eq=False, slots=True)
class _Reply:
    """A reply being spoken: what waits, what is encoded, and how much of it is sound already."""

    speak: Speak
    opened_ns: int
    clauses: deque[SpeakText] = field(default_factory=deque[SpeakText])
    latents: deque[Latents] = field(default_factory=deque[Latents])
    samples: int = 0  # sent
    first_text_ns: int | None = None
    first_sound_ns: int | None = None
    ended: bool = False  # no more text comes
    ending: Finished | Failed | None = None  # decided, but its step is still in hand

    @property
    def key(self) -> Key:
        return self.speak.request_id, self.speak.epoch


class SpeechEngine:
    """Requests in, sound out through `send`; `handle` never waits for a step."""

    def __init__(self, model: TalkerModel, spec: EngineSpec, send: Send, clock: Clock) -> None:
        self._model = model
        self._spec = spec
        self._send = send
        self._clock = clock
        self._replies: dict[Key, _Reply] = {}
        pace = Pace.of(spec.limits, model.samples_per_frame, model.rate_hz)
        self._scheduler = SpeechScheduler(pace)
        self._in_hand: _Reply | None = None
        self._step_ns: int | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="speech", daemon=True).start()

    @property
    def describe(self) -> dict[str, Any]:
        """The voice: what it can speak, and at which rate."""
        return {
            "talker": self._spec.talker and self._spec.talker.family,
            "voices": list(self._model.voices),
            "languages": list(self._model.languages),
            "rate_hz": self._model.rate_hz,
            "samples_per_frame": self._model.samples_per_frame,
        }

    async def warm_up(self) -> None:
        """Nothing: `load` spoke a clause."""

    def handle(self, message: ToEngine) -> None:
        """Open, feed, end or abort a reply; what names none in flight is stale and dropped."""
        with self._changed:
            match message:
                case Speak():
                    self._open(message)
                case SpeakText() | SpeakEnd() | Abort():
                    reply = self._replies.get((message.request_id, message.epoch))
                    if reply is not None and reply.ending is None:
                        self._tell(reply, message)
                case _:
                    logger.warning("a speech engine cannot do %s", type(message).__name__)
            self._changed.notify()

    def in_flight(self) -> list[str]:
        """Ids of replies that have not ended."""
        with self._changed:
            return [request_id for request_id, _ in self._replies]

    def busy_ms(self) -> float:
        """How long the step in hand has run; 0 when idle."""
        step_ns = self._step_ns
        return 0.0 if step_ns is None else ms_between(step_ns, self._clock.now_ns())

    def work(self) -> dict[str, float]:
        """Nothing is counted."""
        return {}

    # --- what comes in, with the lock held ----------------------------------------------------------------------

    def _open(self, speak: Speak) -> None:
        for held in [held for held in self._replies.values() if held.speak.request_id == speak.request_id]:
            if held.speak.epoch >= speak.epoch:
                self._send(Finished(speak.request_id, speak.epoch, "aborted"))
                return
            self._conclude(held, Finished(*held.key, "aborted"))
        refusal = self._refusal(speak)
        if refusal is not None:
            self._send(refusal)
            return
        reply = _Reply(speak, self._clock.now_ns())
        self._replies[reply.key] = reply
        self._scheduler.open(reply.key, latency_first=speak.latency_first)

    def _refusal(self, speak: Speak) -> Failed | None:
        """Why this reply cannot be spoken at all."""
        if speak.voice and speak.voice not in self._model.voices:
            text = f"no voice {speak.voice!r}; there are {', '.join(self._model.voices)}"
            return Failed(speak.request_id, speak.epoch, "unknown_voice", text)
        if not SLOWEST <= speak.speed <= FASTEST:
            text = f"speed must be from {SLOWEST} to {FASTEST}"
            return Failed(speak.request_id, speak.epoch, "invalid_speed", text)
        if len(self._replies) >= self._spec.limits.queued_requests:
            return Failed(
                speak.request_id, speak.epoch, "busy", "too many replies are spoken", retryable=True
            )
        return None

    def _tell(self, reply: _Reply, message: SpeakText | SpeakEnd | Abort) -> None:
        match message:
            case Abort():
                self._conclude(reply, Finished(*reply.key, "aborted"))
            case SpeakEnd():
                reply.ended = True
                self._finish_if_done(reply)
            case SpeakText() if reply.ended:
                logger.warning("a clause came after the end of its reply")
            case SpeakText() if not message.words:
                pass  # nothing to say is no error
            case SpeakText() if not self._speaks(message.language):
                text = f"this voice speaks {', '.join(self._model.languages)}, not {message.language}"
                self._send(_clause_failed(reply, UnsupportedLanguage(text)))
            case SpeakText() if len(reply.clauses) >= MAX_WAITING_CLAUSES:
                self._conclude(reply, Failed(*reply.key, "busy", "too many clauses are waiting"))
            case SpeakText():
                now_ns = self._clock.now_ns()
                reply.first_text_ns = reply.first_text_ns or now_ns
                reply.clauses.append(message)
                self._scheduler.add_clause(reply.key, now_ns)

    def _speaks(self, language: str) -> bool:
        return primary_tag(language) in self._model.languages

    def _conclude(self, reply: _Reply, ending: Finished | Failed) -> None:
        """Free the reply now; if its step is in hand, it counts as in flight until that is over."""
        self._scheduler.drop(reply.key)
        if reply is self._in_hand:
            reply.ending = reply.ending or ending
        else:
            self._end(reply, ending)

    def _end(self, reply: _Reply, ending: Finished | Failed) -> None:
        self._scheduler.drop(reply.key)
        del self._replies[reply.key]
        self._send(ending)

    def _finish_if_done(self, reply: _Reply) -> None:
        if not reply.ended or reply is self._in_hand or self._scheduler.has_work(reply.key):
            return
        now_ns = self._clock.now_ns()
        timings_ms = {"total": ms_between(reply.opened_ns, now_ns)}
        if reply.first_text_ns is not None and reply.first_sound_ns is not None:
            timings_ms["first_sound"] = ms_between(reply.first_text_ns, reply.first_sound_ns)
        self._end(reply, Finished(*reply.key, "stop", timings_ms=timings_ms))

    # --- the worker ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                step = self._scheduler.next_step(self._clock.now_ns())
                if step is None:
                    self._changed.wait(self._rest_s())
                    continue
                reply = self._in_hand = self._replies[step.key]
                self._step_ns = self._clock.now_ns()
            settle = self._attempt(reply, step)
            with self._changed:
                self._in_hand = self._step_ns = None
                if reply.ending is not None:
                    self._end(reply, reply.ending)
                else:
                    settle()

    def _rest_s(self) -> float | None:
        wake_ns = self._scheduler.wake_ns()
        return None if wake_ns is None else max(0.001, (wake_ns - self._clock.now_ns()) / NS_PER_S)

    def _attempt(self, reply: _Reply, step: Step) -> Callable[[], None]:
        """Do the step without the lock; gives what to do about its outcome with the lock held."""
        try:
            return self._encode(reply) if isinstance(step, Encode) else self._decode(reply, step)
        except UnsupportedLanguage as error:
            return functools.partial(self._skip_clause, reply, error)
        except Exception as error:  # noqa: BLE001 - one reply's supervisor: the others go on whatever a model raises
            logger.warning("a reply failed", exc_info=not isinstance(error, EngineError))
            return functools.partial(self._end, reply, failure(*reply.key, error))

    def _encode(self, reply: _Reply) -> Callable[[], None]:
        voice = reply.speak.voice or (self._spec.talker and self._spec.talker.voice) or self._model.voices[0]
        clause = reply.clauses[0]
        if clause.rows and isinstance(self._model, RowReader):
            self._model.read(clause.rows)
        latents = self._model.encode(clause.words, voice, reply.speak.speed, reply.speak.seed)

        def settle() -> None:
            reply.clauses.popleft()
            if latents.frames > 0:
                reply.latents.append(latents)
            self._scheduler.encoded(reply.key, latents.frames)
            self._finish_if_done(reply)

        return settle

    def _decode(self, reply: _Reply, step: Decode) -> Callable[[], None]:
        latents = reply.latents[0]
        pcm = self._model.decode(latents, step.first_frame, step.frames)
        if len(pcm) != step.frames * self._model.samples_per_frame:
            raise VoiceBoxBroken(f"{len(pcm)} samples for {step.frames} frames")
        words = _words_in(latents, step, reply.samples, self._model.samples_per_frame)
        sound = pcm.astype("<i2", copy=False).tobytes()
        chunk = SpeechChunk(*reply.key, sound, self._model.rate_hz, reply.samples, words)

        def settle() -> None:
            now_ns = self._clock.now_ns()
            reply.first_sound_ns = reply.first_sound_ns or now_ns
            reply.samples += len(pcm)
            if step.last:
                reply.latents.popleft()
            self._send(chunk)
            self._scheduler.decoded(step, now_ns)
            self._finish_if_done(reply)

        return settle

    def _skip_clause(self, reply: _Reply, error: UnsupportedLanguage) -> None:
        reply.clauses.popleft()
        self._send(_clause_failed(reply, error))
        self._scheduler.encoded(reply.key, 0)
        self._finish_if_done(reply)


def _clause_failed(reply: _Reply, error: UnsupportedLanguage) -> Failed:
    return Failed(*reply.key, error.code, str(error), final=False)


def _words_in(latents: Latents, step: Decode, sent_samples: int, samples_per_frame: int) -> list[Word]:
    """The words that begin in a window; one that begins behind the clause's end belongs to its last window."""
    origin = sent_samples - step.first_frame * samples_per_frame  # the clause's first sample in the reply
    end_frame = latents.frames + 1 if step.last else step.first_frame + step.frames
    return [
        Word(
            word.start_char,
            word.end_char,
            origin + min(word.first_frame, latents.frames) * samples_per_frame,
            origin + min(word.end_frame, latents.frames) * samples_per_frame,
            word.exact,
        )
        for word in latents.words
        if step.first_frame <= min(word.first_frame, latents.frames) < end_frame
    ]
