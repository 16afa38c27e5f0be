"""Is somebody speaking? WebRTC's detector as the cheap first gate, Silero's network behind it.

`Vad` gives a probability for each 32 ms window. One for each microphone: it carries the network's state and belongs to
one thread at a time; the network is stateless and may be shared, also between threads. It knows no thresholds and no
turns.

Source: the Silero VAD v6 model card (512 new samples at 16 kHz behind 64 of the window before).
"""

from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import webrtcvad
from numpy.typing import NDArray

from voice_agent.audio import MODEL_RATE_HZ, Samples, silence
from voice_agent.media.onnx import load_session

WINDOW_SAMPLES = 512  # 32 ms
CONTEXT_SAMPLES = 64
GATE_SAMPLES = 480  # WebRTC's detector takes 10, 20 or 30 ms
GATE_MODE = 1  # 0-3: this one still lets soft onsets through
HANGOVER_WINDOWS = 10  # the network stays on so long after the gate last heard something: 320 ms
WARM_UP_WINDOWS = 4  # and hears so many windows again when it is woken, to have a past

State = NDArray[np.float32]  # [2, 1, 128]


class VadWindow(NamedTuple):
    """Probability of voice in the 32 ms that begin with `first_sample`."""

    probability: float
    first_sample: int


class SileroNetwork:
    """The weights in a session of one thread; stateless, the caller carries the state. Raises WeightsError."""

    def __init__(self, path: Path) -> None:
        self._session = load_session(path)

    def run(self, samples: NDArray[np.float32], state: State) -> tuple[float, State]:
        """One window [576] with its context, -1..1; returns the probability and the next state."""
        outputs: Any = self._session.run(
            None, {"input": samples[None], "state": state, "sr": np.array(MODEL_RATE_HZ, dtype=np.int64)}
        )
        return float(outputs[0][0, 0]), outputs[1]


class Vad:
    """Follows one microphone. `silero` is the weights' path, or a network that several share.

    State: samples short of a window, the position, the network's state with the last 64 samples it heard, and how
    many windows ago the gate heard something. About 0.3 ms a window while somebody speaks, 0.03 ms while nobody does.
    """

    def __init__(self, silero: Path | SileroNetwork) -> None:
        self._network = SileroNetwork(silero) if isinstance(silero, Path) else silero
        self._gate = webrtcvad.Vad(GATE_MODE)
        self._waiting = silence(0)
        self._first_sample = 0
        self._quiet_windows = HANGOVER_WINDOWS
        self._recent: deque[Samples] = deque(maxlen=WARM_UP_WINDOWS)
        self._forget()

    def push(self, samples: Samples) -> list[VadWindow]:
        """Take samples [T] at 16 kHz; returns the windows they complete."""
        self._waiting = np.concatenate([self._waiting, samples])
        windows: list[VadWindow] = []
        while len(self._waiting) >= WINDOW_SAMPLES:
            window, self._waiting = self._waiting[:WINDOW_SAMPLES], self._waiting[WINDOW_SAMPLES:]
            windows.append(VadWindow(self._probability(window), self._first_sample))
            self._first_sample += WINDOW_SAMPLES
        return windows

    def _probability(self, window: Samples) -> float:
        """Ask the network, unless the gate has heard nothing for a while: then 0."""
        heard = self._gate.is_speech(window[:GATE_SAMPLES].tobytes(), MODEL_RATE_HZ)
        asleep = self._quiet_windows >= HANGOVER_WINDOWS
        self._quiet_windows = 0 if heard else self._quiet_windows + 1
        probability = 0.0
        if heard and asleep:
            self._forget()
            for past in self._recent:
                self._ask(past)
        if heard or not asleep:
            probability = self._ask(window)
        self._recent.append(window)
        return probability

    def _ask(self, window: Samples) -> float:
        scaled = window.astype(np.float32) / np.float32(32768)
        floats: NDArray[np.float32] = np.concatenate([self._context, scaled], dtype=np.float32)
        probability, self._state = self._network.run(floats, self._state)
        self._context = floats[-CONTEXT_SAMPLES:]
        return probability

    def _forget(self) -> None:
        self._state: State = np.zeros((2, 1, 128), dtype=np.float32)
        self._context: NDArray[np.float32] = np.zeros(CONTEXT_SAMPLES, dtype=np.float32)
