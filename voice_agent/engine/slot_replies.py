"""The replies that the engine of slots holds: opened and fed by messages, each ended by exactly one message.

What is launched for them, and when, is the launch thread's (slot_speech), which is the only caller: not thread-safe. Of
the device it knows where a reply's text lies and what stands before it.
"""

import logging

from voice_agent.clock import Clock, ms_between
from voice_agent.engine import slot_endings
from voice_agent.engine.cycles import CycleScheduler
from voice_agent.engine.lanes import Send
from voice_agent.engine.launches import Ending
from voice_agent.engine.messages import (
    Abort,
    Failed,
    Finished,
    Speak,
    SpeakEnd,
    SpeakText,
    ToEngine,
    primary_tag,
)
from voice_agent.engine.slot_reply import SlotReply, SoundShape
from voice_agent.engine.slot_stream import SpeechRequest
from voice_agent.engine.slot_work import SlotWork
from voice_agent.engine.urgency import Key
from voice_agent.engine.word_times import GrowingTimes
from voice_agent.models.qwen3_tts.config import RATE_HZ
from voice_agent.models.qwen3_tts.openings import Opening
from voice_agent.models.qwen3_tts.serving import Serving

logger = logging.getLogger(__name__)

FRAMES_PER_LETTER = 0.85  # about 15 letters a second at 12.5 frames


class SlotReplies:
    """Replies by key in `held`, at most `most` of them; one more is refused as busy.

    `send` takes what is told, and `work` counts what was done; both may be exchanged while nothing is held.
    """

    def __init__(
        self, serving: Serving, scheduler: CycleScheduler, send: Send, clock: Clock, *, voice: str, most: int
    ) -> None:
        self.held: dict[Key, SlotReply] = {}
        self.send = send
        self.work = SlotWork()
        self._serving = serving
        self._device = serving.device
        self._scheduler = scheduler
        self._clock = clock
        self._voice = voice
        self._most = most
        self._shape = SoundShape(RATE_HZ, self._device.samples_per_frame)

    @property
    def usual_voice(self) -> str:
        """Who speaks where a reply names nobody: the configured voice, or the first there is."""
        return self._voice or self._serving.voices[0]

    def take(self, message: ToEngine) -> None:
        """Do what it asks, or say why not; what belongs to no held reply is ignored."""
        match message:
            case Speak():
                self._open(message)
            case SpeakText() | SpeakEnd() | Abort():
                reply = self.held.get((message.request_id, message.epoch))
                if reply is not None and not reply.failed:
                    self._tell(reply, message)
            case _:
                logger.warning("a speech engine cannot do %s", type(message).__name__)

    def fail(self, key: Key) -> None:
        """The model went wrong with it: nothing more of it is heard, and it ends as broken."""
        reply = self.held.get(key)
        if reply is not None and not reply.failed:
            reply.failed = True
            self._scheduler.cancel(key, "broken")

    def end(self, ending: Ending) -> None:
        """The scheduler is done with it."""
        reply = self.held.get(ending.key)
        if reply is not None:
            self._finish(reply, ending.why)

    def _open(self, speak: Speak) -> None:
        for earlier in [one for one in self.held.values() if one.speak.request_id == speak.request_id]:
            if earlier.speak.epoch >= speak.epoch:
                self.send(Finished(speak.request_id, speak.epoch, "aborted"))
                return
            self._stop(earlier, "aborted")
        refusal = slot_endings.refusal(speak, self._serving.voices)
        if refusal is None and len(self.held) >= self._most:
            refusal = slot_endings.busy(speak)
        if refusal is not None:
            self.send(refusal)
            return
        times = GrowingTimes([], FRAMES_PER_LETTER)
        reply = SlotReply(speak, self._shape, self._serving.new_text(), times, self._clock.now_ns())
        self.held[reply.key] = reply

    def _tell(self, reply: SlotReply, message: SpeakText | SpeakEnd | Abort) -> None:
        match message:
            case Abort():
                self._stop(reply, "aborted")
            case SpeakEnd() if not reply.ended:
                self._add(reply, reply.close_text(self._serving.end_token))
                if reply.admitted:
                    self._scheduler.ended(reply.key, self._clock.now_ns())
                else:
                    self._finish(reply, "stop")
            case SpeakText() if reply.ended:
                logger.warning("a clause came after the end of its reply")
            case SpeakText() if primary_tag(message.language) not in self._serving.languages:
                text = f"this voice speaks {', '.join(self._serving.languages)}, not {message.language}"
                self.send(Failed(*reply.key, "unsupported_language", text, final=False))
            case SpeakText():
                if reply.opening is None and not self._begin(reply, message.language):
                    return
                reply.first_text_ns = reply.first_text_ns or self._clock.now_ns()
                self._add(reply, reply.add_words(message.words))
            case _:
                pass

    def _begin(self, reply: SlotReply, language: str) -> bool:
        """Find what stands before its text; False if that is too long and the reply was refused."""
        speak, serving = reply.speak, self._serving
        reply.language = primary_tag(language)
        voice = speak.voice or self.usual_voice
        opening = self._device.openings.open(voice, reply.language, serving.instruction(speak.instructions))
        if not self._scheduler.costs.holds_prefill(opening.prefill_rows):
            self._device.openings.close(opening)
            del self.held[reply.key]
            self.send(slot_endings.too_long(speak, opening.prefill_rows))
            return False
        reply.opening = opening
        return True

    def _add(self, reply: SlotReply, tokens: list[int]) -> None:
        """More tokens: onto the device if it has a slot, and told to the scheduler, which admits at the first."""
        if not tokens:
            return
        now_ns, spoken = self._clock.now_ns(), len(tokens) - (1 if reply.ended else 0)
        opening, speak = reply.opening, reply.speak
        if opening is None:
            raise ValueError("a reply with text has a beginning")
        if reply.slot is not None:
            known = len(opening.known) + len(reply.tokens) - len(tokens)
            self._device.append(reply.slot, known, tokens)
        if not reply.admitted:
            reply.admitted = True
            most = self._most_frames(reply, opening)
            rows, lead = opening.prefill_rows, opening.text_lead
            self._scheduler.admit(
                SpeechRequest(reply.key, speak.latency_first, 0, most, rows, lead, speak.speed), now_ns
            )
        self._scheduler.append(reply.key, spoken, now_ns)

    def _most_frames(self, reply: SlotReply, opening: Opening) -> int:
        room = self._device.sizes.length - max(opening.length, opening.before) - 1
        return min(room, reply.speak.most_frames or room)

    def _stop(self, reply: SlotReply, why: str) -> None:
        """Nothing more is launched for it; it ends when what is in flight has."""
        if reply.admitted:
            self._scheduler.cancel(reply.key, why)
        else:
            self._finish(reply, why)

    def _finish(self, reply: SlotReply, why: str) -> None:
        """Its last message; the slot is the scheduler's again."""
        del self.held[reply.key]
        if reply.opening:
            self._device.openings.close(reply.opening)
        self.work.over(why)
        if slot_endings.is_whole(why) and (rest := reply.rest()) is not None:
            self.send(rest)
        if why == "runaway" and self._serving.frames_per_token is None:
            logger.warning("a reply had no end of speech within %d frames", reply.frames)
        self.send(slot_endings.ending(reply.key, why, reply.frames, self._timings(reply)))

    def _timings(self, reply: SlotReply) -> dict[str, float]:
        timings_ms = {"total": ms_between(reply.opened_ns, self._clock.now_ns())}
        if reply.first_text_ns is not None and reply.first_sound_ns is not None:
            timings_ms["first_sound"] = ms_between(reply.first_text_ns, reply.first_sound_ns)
        return timings_ms
