"""From voice probabilities to the edges of speech, with hysteresis, counted in samples; pure."""

from dataclasses import dataclass

from voice_agent.audio import MODEL_RATE_HZ, ms_to_samples
from voice_agent.media.vad import WINDOW_SAMPLES, VadWindow


@dataclass(frozen=True, slots=True)
class SpeechBegan:
    """Voice that lasted began with this sample."""

    first_sample: int


@dataclass(frozen=True, slots=True)
class SpeechEnded:
    """Silence lasts; `end_sample` is one past the last voiced sample."""

    end_sample: int


@dataclass(frozen=True, slots=True)
class GateRules:
    """Thresholds of probability, and how long voice or silence must last."""

    start_threshold: float = 0.5
    end_threshold: float = 0.35
    min_speech_ms: int = 64
    min_silence_ms: int = 200


class SpeechGate:
    """Edges with hysteresis; pure. Between the thresholds nothing changes.

    `_run_first` is the first sample of a run of voiced windows not yet long enough, `_quiet_since` that of a silence
    not yet long enough; `_voiced_end` is one past the last voiced sample.
    """

    def __init__(self, rules: GateRules | None = None) -> None:
        self._rules = rules or GateRules()
        self._min_speech = ms_to_samples(self._rules.min_speech_ms, MODEL_RATE_HZ)
        self._min_silence = ms_to_samples(self._rules.min_silence_ms, MODEL_RATE_HZ)
        self.speaking = False
        self._run_first: int | None = None
        self._quiet_since: int | None = None
        self._voiced_end = 0

    def update(self, window: VadWindow) -> SpeechBegan | SpeechEnded | None:
        """Take the next window; returns the edge it brings, if any."""
        end_sample = window.first_sample + WINDOW_SAMPLES
        if window.probability >= self._rules.start_threshold:
            self._quiet_since = None
            self._voiced_end = end_sample
            return self._voiced(window.first_sample, end_sample)
        if window.probability < self._rules.end_threshold:
            return self._unvoiced(window.first_sample, end_sample)
        if self._quiet_since is None:
            self._voiced_end = end_sample
        return None

    def _voiced(self, first_sample: int, end_sample: int) -> SpeechBegan | None:
        if self.speaking:
            return None
        if self._run_first is None:
            self._run_first = first_sample
        if end_sample - self._run_first < self._min_speech:
            return None
        self.speaking = True
        return SpeechBegan(self._run_first)

    def _unvoiced(self, first_sample: int, end_sample: int) -> SpeechEnded | None:
        self._run_first = None
        if not self.speaking:
            return None
        if self._quiet_since is None:
            self._quiet_since = first_sample
        if end_sample - self._quiet_since < self._min_silence:
            return None
        self.speaking = False
        self._quiet_since = None
        return SpeechEnded(self._voiced_end)
