"""The ears of a session without a server: what the endpointer would have done with a sound under any knobs.

The one bench that imports the rooms: the real voice detector, end-of-turn model and recognizer hear each item once, and
the real endpointer is then run over what they said as often as wanted. A judgement comes as late as it would in a call
(`Latency`). What the models said is kept in the cache, by the sound's digest. Knows no items and no report.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from voice_agent.audio import MODEL_RATE_HZ, Samples, ms_to_samples, samples_to_ms, silence
from voice_agent.config import TurnConfig
from voice_agent.engine.families import load_recognizer
from voice_agent.engine.runtime import RecognizerModel, RecognizerOptions
from voice_agent.errors import WeightsError
from voice_agent.listening import JUDGED_SILENCE_MS, TAIL_MS
from voice_agent.media.end_of_turn import EndOfTurn
from voice_agent.media.vad import SileroNetwork, Vad
from voice_agent.models.store import Store
from voice_agent.turn.endpoint import WINDOW_SAMPLES, Endpointer, EndpointRules, Onset, Pause, TurnEnd
from voice_agent.turn.rules import endpoint_rules

BEHIND_MS = 6_000  # of quiet after an item: longer than any patience
NEVER_MS = 1_000_000
KEPT_VERSION = 4  # of what is kept in the cache


@dataclass(frozen=True, slots=True)
class Latency:
    """How long after a pause was noticed its judgement and its words are there, in ms."""

    judge_ms: float
    words_ms: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the models said of the pause after `last_voiced_sample`."""

    last_voiced_sample: int
    probability: float
    text: str


@dataclass(frozen=True, slots=True)
class Hearing:
    """An item as the models heard it: a probability for each window, and a judgement for each pause."""

    windows: list[float]
    judgements: dict[int, Judgement]
    truly_ends_sample: int


@dataclass(frozen=True, slots=True)
class Ending:
    """When the endpointer ended the turn (samples at 16 kHz) and why; "never" if it did not."""

    ended_sample: int
    last_voiced_sample: int
    why: str
    delay_ms: float  # after the true end; negative for one that was cut off

    @property
    def cut_off(self) -> bool:
        """Whether it came before the user had ended."""
        return self.delay_ms < 0


@dataclass
class OfflineEars:
    """The models, loaded when a sound is not in the cache; `recognizer` names a packaged one."""

    store: Store
    recognizer: str
    rules: EndpointRules
    prefix_ms: int
    _models: tuple[SileroNetwork, EndOfTurn, RecognizerModel] | None = field(default=None, init=False)

    def hear(self, samples: Samples, truly_ends_sample: int) -> Hearing:
        """Hear 16 kHz sound with quiet behind it. Raises WeightsError where a model is missing."""
        sound = np.concatenate([samples, silence(ms_to_samples(BEHIND_MS, MODEL_RATE_HZ))])
        kept = self._kept_at(sound)
        if kept.exists():
            return _read(kept, truly_ends_sample)
        silero, end_of_turn, recognizer = self._loaded()
        windows = [window.probability for window in Vad(silero).push(sound)]
        judgements: dict[int, Judgement] = {}
        turn_first = 0
        endpointer = Endpointer(_patient(self.rules))
        for number, probability in enumerate(windows):
            for edge in endpointer.window(probability, number * WINDOW_SAMPLES):
                if isinstance(edge, Onset):
                    turn_first = max(0, edge.first_sample - ms_to_samples(self.prefix_ms, MODEL_RATE_HZ))
                if isinstance(edge, Pause):
                    last = edge.last_voiced_sample
                    turn = sound[turn_first:last]
                    tail = sound[turn_first : last + ms_to_samples(TAIL_MS, MODEL_RATE_HZ)]
                    quiet = silence(ms_to_samples(JUDGED_SILENCE_MS, MODEL_RATE_HZ))
                    odds = end_of_turn.probability(np.concatenate([turn, quiet]))
                    text, _ = recognizer.transcribe(tail, "en")
                    judgements[last] = Judgement(last, odds, text.strip())
        hearing = Hearing(windows, judgements, truly_ends_sample)
        _write(kept, hearing)
        return hearing

    def _kept_at(self, sound: Samples) -> Path:
        fixed = (
            self.rules.start_threshold,
            self.rules.end_threshold,
            self.rules.start_ms,
            self.rules.pause_ms,
        )
        identity = f"{KEPT_VERSION}:{self.recognizer}:{self.prefix_ms}:{fixed}:".encode() + sound.tobytes()
        return self.store.folder / "bench" / f"heard-{hashlib.sha256(identity).hexdigest()[:20]}.json"

    def _loaded(self) -> tuple[SileroNetwork, EndOfTurn, RecognizerModel]:
        if self._models is None:
            silero = self.store.folder_of("silero-vad") / "silero_vad.onnx"
            smart_turn = next(self.store.folder_of("smart-turn").glob("*.onnx"), None)
            if smart_turn is None:
                raise WeightsError("the end-of-turn model is missing: run `voice-agent models pull`")
            options = RecognizerOptions("whisper", str(self.store.folder_of(self.recognizer)), threads=2)
            self._models = (SileroNetwork(silero), EndOfTurn(smart_turn), load_recognizer(options))
        return self._models


def default_rules(turn: TurnConfig | None = None) -> EndpointRules:
    """The knobs as they are configured out of the box."""
    return endpoint_rules(turn or TurnConfig(), "semantic")


def ending(hearing: Hearing, rules: EndpointRules, latency: Latency) -> Ending:
    """Run the endpointer over an item; the first end of a turn counts."""
    endpointer = Endpointer(rules)
    due: list[tuple[int, Pause]] = []  # (sample at which words or judgement are there, of which pause)
    for number, probability in enumerate(hearing.windows):
        first = number * WINDOW_SAMPLES
        for edge in endpointer.window(probability, first):
            if isinstance(edge, TurnEnd):
                at = first + WINDOW_SAMPLES
                late_ms = samples_to_ms(at - hearing.truly_ends_sample, MODEL_RATE_HZ)
                return Ending(at, edge.last_voiced_sample, edge.why, late_ms)
            if isinstance(edge, Pause):
                due = [(first + WINDOW_SAMPLES, edge)]
        _deliver(endpointer, hearing, due, first + WINDOW_SAMPLES, latency)
    length = len(hearing.windows) * WINDOW_SAMPLES
    return Ending(length, 0, "never", samples_to_ms(length - hearing.truly_ends_sample, MODEL_RATE_HZ))


def _deliver(
    endpointer: Endpointer, hearing: Hearing, due: Sequence[tuple[int, Pause]], now: int, latency: Latency
) -> None:
    for noticed, pause in due:
        judgement = hearing.judgements.get(pause.last_voiced_sample)
        since_ms = samples_to_ms(now - noticed, MODEL_RATE_HZ)
        if judgement is None:
            continue
        if since_ms >= latency.judge_ms:
            endpointer.judged(pause.number, judgement.probability)
        if since_ms >= latency.words_ms:
            endpointer.understood(pause.number, judgement.text)


def _patient(rules: EndpointRules) -> EndpointRules:
    """Never ends a turn, so that every pause is heard."""
    return replace(
        rules,
        sure_ms=NEVER_MS,
        unsure_ms=NEVER_MS,
        open_ms=NEVER_MS,
        longest_ms=NEVER_MS,
        end_probability=2.0,
    )


def _read(path: Path, truly_ends_sample: int) -> Hearing:
    kept = json.loads(path.read_text())
    judgements = [Judgement(int(last), float(odds), str(text)) for last, odds, text in kept["pauses"]]
    windows = [float(value) for value in kept["windows"]]
    return Hearing(windows, {one.last_voiced_sample: one for one in judgements}, truly_ends_sample)


def _write(path: Path, hearing: Hearing) -> None:
    pauses = [[one.last_voiced_sample, one.probability, one.text] for one in hearing.judgements.values()]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"windows": [round(p, 4) for p in hearing.windows], "pauses": pauses}))
    part.replace(path)
