"""The ears of a session: microphone frames in, edges of the user's turn out, and the sound of the turn kept.

The voice detector's network hears the windows of all sessions together, in the loop; the end-of-turn model runs on a
thread that all sessions share. Sessions only wait for both.
Sound is kept for one turn at its longest, so that a recognizer can have it from before the onset.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from voice_agent.audio import (
    MODEL_RATE_HZ,
    MicrophoneFrame,
    Samples,
    dbfs,
    ms_to_samples,
    samples_to_ms,
    silence,
)
from voice_agent.clock import Clock
from voice_agent.kept_sound import KeptSound
from voice_agent.turn.endpoint import Edge, Endpointer, Onset
from voice_agent.turn.loudness import Loudness

JUDGED_SILENCE_MS = 200  # silence behind the speech that the end-of-turn model was found to judge best with
TAIL_MS = 120  # sound after the last voiced window that the recognizer still gets: final plosives are quiet


class VoiceDetector(Protocol):
    """Voice probability for each 32 ms window (media.vad.LiveVad)."""

    async def push(self, samples: Samples) -> Sequence[tuple[float, int]]:
        """(probability, first sample) of each window these samples complete."""
        ...


class EndOfTurnModel(Protocol):
    """Probability that the speaker has finished (media.end_of_turn.EndOfTurn)."""

    def probability(self, samples: Samples) -> float:
        """From the turn's sound so far, int16 at 16 kHz."""
        ...


class EchoRemover(Protocol):
    """Takes the reply's own sound out of the microphone (media.echo.EchoCanceller)."""

    def played_with(self, samples: Samples) -> Samples | None:
        """What was played beside the microphone's next samples; None while no echo can be in them."""
        ...

    def clean(self, samples: Samples, played: Samples) -> Samples:
        """The samples without its echo."""
        ...


@dataclass(frozen=True)
class Ears:
    """What listening needs: the detector and the echo remover (one a session), the shared model, and its thread."""

    detector: VoiceDetector
    end_of_turn: EndOfTurnModel
    judge_thread: Executor
    echo: EchoRemover | None = None


class Listener:
    """Follows one microphone. State: the recent sound, when it arrived, and where the turn began."""

    def __init__(
        self, ears: Ears, endpointer: Endpointer, clock: Clock, prefix_ms: int, keep_ms: int
    ) -> None:
        self._ears = ears
        self.endpointer = endpointer
        self._clock = clock
        self.set_prefix(prefix_ms)
        self._kept = KeptSound(ms_to_samples(keep_ms, MODEL_RATE_HZ) + self._prefix_samples)
        self._turn_first = 0
        self._unseen_samples = 0  # that the detector was not asked about
        self.loudness = Loudness()

    def set_prefix(self, prefix_ms: int) -> None:
        """How much sound before an onset belongs to the turn."""
        self._prefix_samples = ms_to_samples(prefix_ms, MODEL_RATE_HZ)

    async def hear(self, frame: MicrophoneFrame, *, detect: bool = True) -> list[Edge]:
        """Take the next frame; returns the edges it caused. Without `detect` (push to talk) it is only kept."""
        arrival_ns = self._clock.now_ns()
        frame = self._without_echo(frame)
        self._kept.add(frame, arrival_ns)
        if not detect:
            self._unseen_samples += len(frame.samples)
            return []
        edges: list[Edge] = []
        for probability, first_sample in await self._ears.detector.push(frame.samples):
            edges += self._window(probability, self._unseen_samples + first_sample)
        return edges

    def _window(self, probability: float, first_sample: int) -> list[Edge]:
        edges = self.endpointer.window(probability, first_sample)
        for edge in edges:
            if isinstance(edge, Onset):
                self._turn_first = max(0, edge.first_sample - self._prefix_samples)
                self.loudness.begin()
        if self.endpointer.speaking and probability >= self.endpointer.rules.start_threshold:
            self.loudness.voiced(dbfs(self._kept.between(first_sample, self._kept.end_sample)))
        return edges

    def _without_echo(self, frame: MicrophoneFrame) -> MicrophoneFrame:
        """The frame as it came, unless what we played can be heard in it."""
        echo = self._ears.echo
        played = echo.played_with(frame.samples) if echo else None
        if echo is None or played is None:
            return frame
        return replace(frame, samples=echo.clean(frame.samples, played))

    async def finished_probability(self, until_sample: int) -> float:
        """Ask the end-of-turn model about the turn up to a sample."""
        loop = asyncio.get_running_loop()
        spoken = self._kept.between(self._turn_first, until_sample)
        samples = np.concatenate([spoken, silence(ms_to_samples(JUDGED_SILENCE_MS, MODEL_RATE_HZ))])
        return await loop.run_in_executor(
            self._ears.judge_thread, self._ears.end_of_turn.probability, samples
        )

    def turn_samples(self, until_sample: int) -> Samples:
        """The turn's sound from before its onset to a little after `until_sample`."""
        return self._kept.between(self._turn_first, until_sample + ms_to_samples(TAIL_MS, MODEL_RATE_HZ))

    def turn_samples_so_far(self) -> Samples:
        """The turn's sound from before its onset to now."""
        return self._kept.between(self._turn_first, self._kept.end_sample)

    def begin_turn(self) -> None:
        """A turn begins here without an onset (push to talk)."""
        self._turn_first = self._kept.end_sample

    @property
    def turn_start_ms(self) -> int:
        """Where the turn's sound begins, from the session's first sample."""
        return round(1000 * self._turn_first / MODEL_RATE_HZ)

    @property
    def turn_ms(self) -> float:
        """Sound of the turn so far."""
        return samples_to_ms(self._kept.end_sample - self._turn_first, MODEL_RATE_HZ)

    @property
    def end_sample(self) -> int:
        """Samples heard so far."""
        return self._kept.end_sample

    def arrival_ns(self, sample: int) -> int:
        """When the frame with this sample arrived; the oldest kept one for older samples."""
        arrival_ns = self._kept.arrival_ns(sample)
        return self._clock.now_ns() if arrival_ns is None else arrival_ns
