"""When the user speaks, pauses, goes on and has finished: voice probabilities in, edges out.

Time is counted in microphone samples at 16 kHz, so that a late event loop moves nothing. The end of a turn is
silence plus what the end-of-turn model and the words say of the pause: a pause is numbered, and judgements carry
its number, so that one that comes late, after the user went on, is ignored.
"""

from dataclasses import dataclass

from voice_agent.audio import MODEL_RATE_HZ, samples_to_ms
from voice_agent.turn.wording import is_open_ended, is_whole_question

WINDOW_SAMPLES = 512  # Silero's window: 32 ms


@dataclass(frozen=True, slots=True)
class Onset:
    """Speech began at this sample."""

    first_sample: int


@dataclass(frozen=True, slots=True)
class Pause:
    """The user fell silent after `last_voiced_sample`; judge it under `number`."""

    number: int
    last_voiced_sample: int


@dataclass(frozen=True, slots=True)
class Resume:
    """The user went on after the pause of this number."""

    number: int


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The turn is over; `why` is silence, finished, patience or length."""

    last_voiced_sample: int
    why: str


Edge = Onset | Pause | Resume | TurnEnd


@dataclass(frozen=True, slots=True)
class EndpointRules:
    """The knobs (config.TurnConfig says why each has its default). Times in ms of sound."""

    mode: str
    start_threshold: float
    end_threshold: float
    start_ms: int
    pause_ms: int
    server_silence_ms: int
    end_probability: float
    sure_ms: int
    asked_ms: int
    unsure_ms: int
    open_ms: int
    longest_ms: int


class Endpointer:
    """Follows one microphone. `window` takes each 32 ms window once, in order.

    State: `_onset` first sample of a run of voiced windows; `_speaking` whether a turn is open; `_last_voiced` end
    of its last voiced window; `_pause` number of the running pause or 0; judgements of that pause.
    """

    def __init__(self, rules: EndpointRules) -> None:
        self.rules = rules
        self._pauses = 0
        self._end = 0  # of the newest window
        self.reset()

    def reset(self) -> None:
        """Forget the turn: the next voiced window begins a new one."""
        self._speaking = False
        self._onset: int | None = None
        self._turn_first = 0
        self._last_voiced = 0
        self._voiced_samples = 0
        self._pause = 0
        self._probability: float | None = None
        self._text: str | None = None

    @property
    def speaking(self) -> bool:
        """Whether the user is making speech right now (not in a pause)."""
        return self._speaking and not self._pause

    @property
    def silence_ms(self) -> float:
        """Silence since the turn's last voiced window; 0 while the user speaks or no turn is open."""
        return samples_to_ms(self._end - self._last_voiced, MODEL_RATE_HZ) if self._pause else 0.0

    @property
    def voiced_ms(self) -> float:
        """Voiced sound of the turn so far."""
        return samples_to_ms(self._voiced_samples, MODEL_RATE_HZ)

    def window(self, probability: float, first_sample: int) -> list[Edge]:
        """Take the next window; returns the edges it caused, in order."""
        end = self._end = first_sample + WINDOW_SAMPLES
        threshold = self.rules.end_threshold if self.speaking else self.rules.start_threshold
        if probability >= threshold:
            return self._voiced(first_sample, end)
        return self._unvoiced(end)

    def judged(self, number: int, probability: float) -> None:
        """The end-of-turn model's opinion of a pause; the next window acts on it."""
        if number == self._pause:
            self._probability = probability

    def understood(self, number: int, text: str) -> None:
        """The words up to a pause, as far as they are known."""
        if number == self._pause:
            self._text = text

    def _voiced(self, first_sample: int, end: int) -> list[Edge]:
        if self._onset is None:
            self._onset = first_sample
        run_ms = samples_to_ms(end - self._onset, MODEL_RATE_HZ)
        if run_ms < self.rules.start_ms and not self.speaking:
            return []
        edges: list[Edge] = []
        if not self._speaking:
            self._speaking = True
            self._turn_first = self._onset
            self._voiced_samples = 0
            self._last_voiced = self._onset
            edges.append(Onset(self._onset))
        elif self._pause:
            edges.append(Resume(self._pause))
            self._pause = 0
        self._voiced_samples += end - max(self._last_voiced, self._onset)
        self._last_voiced = end
        return edges + self._too_long(end)

    def _unvoiced(self, end: int) -> list[Edge]:
        self._onset = None
        if not self._speaking:
            return []
        silence_ms = samples_to_ms(end - self._last_voiced, MODEL_RATE_HZ)
        edges: list[Edge] = []
        if not self._pause and silence_ms >= self.rules.pause_ms:
            self._pauses += 1
            self._pause = self._pauses
            self._probability = self._text = None
            edges.append(Pause(self._pause, self._last_voiced))
        why = self._over(silence_ms)
        if why:
            edges.append(TurnEnd(self._last_voiced, why))
            self.reset()
            return edges
        return edges + self._too_long(end)

    def _over(self, silence_ms: float) -> str:
        """Why the silence so far ends the turn, or nothing."""
        rules = self.rules
        if rules.mode == "none":
            return ""
        if rules.mode == "server":
            return "silence" if silence_ms >= rules.server_silence_ms else ""
        if self._text is not None and is_open_ended(self._text):
            return "patience" if silence_ms >= rules.open_ms else ""
        if silence_ms >= rules.unsure_ms:
            return "patience"
        # the words are waited for: they alone tell a pause inside a number from its end, and no answer can
        # start before them anyway; sound without a word ("so ...") is not known
        if not self._text:
            return ""
        sure = self._probability is not None and self._probability >= rules.end_probability
        asked = is_whole_question(self._text) and silence_ms >= rules.asked_ms
        return "finished" if asked or (sure and silence_ms >= rules.sure_ms) else ""

    def _too_long(self, end: int) -> list[Edge]:
        if self.rules.mode == "none" or not self._speaking:
            return []
        if samples_to_ms(end - self._turn_first, MODEL_RATE_HZ) < self.rules.longest_ms:
            return []
        last_voiced = self._last_voiced
        self.reset()
        return [TurnEnd(last_voiced, "length")]
