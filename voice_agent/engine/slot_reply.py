"""One reply in the engine of slots: its text as tokens, its sound as it goes out, its words' times. No device.

Sound is cut before the first word (leading_silence), brought to the reply's speed (stretch) and counted from the first
sample that is sent.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from voice_agent.audio import Samples
from voice_agent.engine.leading_silence import LeadingSilence
from voice_agent.engine.messages import Speak, SpeechChunk, SpokenWord, Word
from voice_agent.engine.runtime import FrameWord
from voice_agent.engine.stretch import Stretch
from voice_agent.engine.urgency import Key
from voice_agent.engine.word_times import GrowingTimes
from voice_agent.models.qwen3_tts.openings import Opening


class Text(Protocol):
    """Text that comes in pieces, as token ids that no later piece changes."""

    def add(self, piece: str) -> list[int]: ...  # noqa: D102
    def close(self) -> list[int]: ...  # noqa: D102


@dataclass(frozen=True)
class SoundShape:
    """How the family's sound is counted."""

    rate_hz: int
    samples_per_frame: int


@dataclass(eq=False)
class SlotReply:
    """What the launch thread knows of a reply; `slot` is None until its first frame is launched."""

    speak: Speak
    shape: SoundShape
    text: Text
    times: GrowingTimes
    opened_ns: int
    silence: LeadingSilence = field(init=False)
    stretch: Stretch | None = field(init=False)  # None at speed 1
    tokens: list[int] = field(default_factory=list[int])
    language: str = ""
    opening: Opening | None = None  # known with its first text
    slot: int | None = None
    admitted: bool = False
    ended: bool = False  # no more text comes
    failed: bool = False  # its Failed was sent
    frames: int = 0  # rendered
    sent_samples: int = 0
    first_text_ns: int | None = None
    first_sound_ns: int | None = None
    _at_char: int | None = None  # behind the last word's text

    def __post_init__(self) -> None:
        """Nothing was heard yet."""
        rate_hz, speed = self.shape.rate_hz, self.speak.speed
        self.silence = LeadingSilence(rate_hz)
        self.stretch = None if speed == 1.0 else Stretch(rate_hz, speed)

    @property
    def key(self) -> Key:
        """Id and epoch."""
        return self.speak.request_id, self.speak.epoch

    def add_words(self, words: list[SpokenWord]) -> list[int]:
        """Tokens that are new; a space stands wherever the written text has a gap."""
        pieces: list[str] = []
        for word in words:
            apart = self._at_char is not None and word.start_char > self._at_char
            pieces.append(f" {word.text}" if apart else word.text)
            self._at_char = word.end_char
        self.times.add(words)
        return self._new_tokens(self.text.add("".join(pieces)))

    def close_text(self, end_token: int) -> list[int]:
        """The last tokens, the end's included if there were any."""
        self.ended = True
        rest = self.text.close()
        return self._new_tokens([*rest, end_token] if rest or self.tokens else [])

    def _new_tokens(self, tokens: list[int]) -> list[int]:
        self.tokens += tokens
        return tokens

    def sound(self, samples: Samples, frames: int) -> SpeechChunk | None:
        """The next rendered frames; None while nothing of them is to be heard yet."""
        self.frames += frames
        heard = self.silence.push(samples)
        if self.stretch is not None:
            heard = self.stretch.push(heard)
        if not len(heard):
            return None
        return self._chunk(heard, self.times.grown(self.frames))

    def rest(self) -> SpeechChunk | None:
        """What was held back and the words that have no time yet; None if there is neither."""
        heard, words = self.silence.finish(), self.times.ended(self.frames)
        if self.stretch is not None:
            heard = np.concatenate([self.stretch.push(heard), self.stretch.finish()])
        return self._chunk(heard, words) if len(heard) or words else None

    def _chunk(self, samples: Samples, words: list[FrameWord]) -> SpeechChunk:
        first, self.sent_samples = self.sent_samples, self.sent_samples + len(samples)
        sound = samples.astype("<i2", copy=False).tobytes()
        return SpeechChunk(*self.key, sound, self.shape.rate_hz, first, [self._word(word) for word in words])

    def _word(self, word: FrameWord) -> Word:
        cut, frame = self.silence.cut_samples, self.shape.samples_per_frame
        speed = self.speak.speed
        first, end = (round(max(0, at * frame - cut) / speed) for at in (word.first_frame, word.end_frame))
        return Word(word.start_char, word.end_char, first, end, word.exact)
