"""What speech over a reply means: an interruption, or a sound to talk on through.

Step one, the hold, is cheap and early; step two, the verdict, waits for evidence but not for long. A verdict is one
of two words; None means "not yet". Nothing here knows how the evidence was got.
"""

from dataclasses import dataclass
from enum import Enum

from voice_agent.turn.wording import is_backchannel, words_of


class Verdict(Enum):
    """What to do with a held reply."""

    INTERRUPT = "interrupt"
    BACKCHANNEL = "backchannel"


@dataclass(frozen=True, slots=True)
class BargeInRules:
    """The knobs (config.TurnConfig). Times in ms."""

    hold_ms: float
    verdict_ms: float
    surely_speech_ms: float
    surely_not_listening_ms: float
    words_ms: float
    longest_backchannel_ms: float
    aside_db: float
    settle_ms: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of the speech over the reply so far.

    `speech_ms` is voiced sound, `since_hold_ms` time since the hold, `speaking` whether it goes on, `text` the words
    up to the last pause (None while unknown), `first_words` those of speech without a pause yet, `relative_db` how
    much louder than the user usually is, `silence_ms` how long the user has been silent.
    """

    speech_ms: float
    since_hold_ms: float
    speaking: bool
    text: str | None = None
    relative_db: float = 0.0
    silence_ms: float = 0.0
    first_words: str | None = None

    @property
    def begins_as_listening(self) -> bool:
        """Whether speech whose words are not all known begins like a sound of listening ("oh, I see").

        Its last word may be only the beginning of one: "oh, no" becomes "oh, nice".
        """
        if self.text is not None or not self.first_words:
            return False
        whole = self.first_words.split()[:-1]
        return is_backchannel(self.first_words) or is_backchannel(" ".join(whole))

    @property
    def wordless(self) -> bool:
        """Whether no word of it is known: it may be any sound, or the beginning of a word."""
        return not self.first_words if self.text is None else not self.text

    @property
    def described(self) -> str:
        """For the log, without what was said."""
        words = "words unknown" if self.text is None else f"{len(words_of(self.text))} words"
        sound = f"{self.speech_ms:.0f} ms of speech at {self.relative_db:+.0f} dB"
        return f"{sound}, {words}, {self.since_hold_ms:.0f} ms after the hold"


def should_hold(speech_ms: float, rules: BargeInRules, quiet_db: float = 0.0) -> bool:
    """Whether the overlap has lasted long enough to stop sending.

    `quiet_db` is its loudness if quiet talk was already heard over this reply and ignored: more of it holds nothing.
    """
    return speech_ms >= rules.hold_ms and quiet_db > -rules.aside_db


def decide(evidence: Evidence, rules: BargeInRules) -> Verdict | None:
    """The verdict as early as the evidence allows; `verdict_ms` after the hold, or later for one of two reasons.

    Speech that begins like a sound of listening, or of which no word is known, gets the time to end as one. And when
    the user is silent again nothing presses, since the reply is held: the words are waited for up to `words_ms`.
    """
    if evidence.relative_db <= -rules.aside_db:
        return _of_an_aside(evidence, rules)
    if evidence.text:
        verdict = _by_words(evidence.text)
        settled = evidence.silence_ms >= rules.settle_ms or evidence.since_hold_ms >= rules.verdict_ms
        return verdict if settled or verdict is Verdict.INTERRUPT else None
    unclear = evidence.begins_as_listening or evidence.wordless
    if evidence.speech_ms >= (rules.surely_not_listening_ms if unclear else rules.surely_speech_ms):
        return Verdict.INTERRUPT
    if evidence.since_hold_ms < rules.verdict_ms:
        return None
    if evidence.speaking:
        return None if unclear else Verdict.INTERRUPT
    return _of_silence(evidence, rules)


def _of_silence(evidence: Evidence, rules: BargeInRules) -> Verdict | None:
    """The user said something without a known word and is silent again."""
    if evidence.text is not None:
        return Verdict.BACKCHANNEL
    if evidence.since_hold_ms < rules.words_ms:
        return None
    short = evidence.speech_ms <= rules.longest_backchannel_ms
    return Verdict.BACKCHANNEL if short or evidence.begins_as_listening else Verdict.INTERRUPT


def _of_an_aside(evidence: Evidence, rules: BargeInRules) -> Verdict | None:
    """Somebody further away speaks: not for us, whatever the words; said once it is over, or at the deadline.

    A quiet first word may still be the user's ("okay, please stop"): the next one is louder.
    """
    over = not evidence.speaking and evidence.silence_ms >= rules.settle_ms
    if evidence.since_hold_ms < rules.verdict_ms and not over:
        return None
    return Verdict.BACKCHANNEL


def _by_words(text: str) -> Verdict:
    if not words_of(text) or is_backchannel(text):
        return Verdict.BACKCHANNEL
    return Verdict.INTERRUPT
