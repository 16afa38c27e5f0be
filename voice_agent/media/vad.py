"""Is somebody speaking? WebRTC's detector as the cheap first gate, Silero's network behind it.

`VoiceWindows` follows one microphone and says what the network is to hear next; it runs nothing. `Vad` asks the network
at once, for files; `LiveVad` asks it together with all other live calls, because a window costs a third beside seven
others of what it costs alone. The network is stateless and may be shared, also between threads. Knows no thresholds and
no turns.

Source: the Silero VAD v6 model card (512 new samples at 16 kHz behind 64 of the window before).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import webrtcvad
from numpy.typing import NDArray

from voice_agent.audio import MODEL_RATE_HZ, Samples, silence
from voice_agent.media.onnx import RUN_ERRORS, load_session

WINDOW_SAMPLES = 512  # 32 ms
CONTEXT_SAMPLES = 64
GATE_SAMPLES = 480  # WebRTC's detector takes 10, 20 or 30 ms
GATE_MODE = 1  # 0-3: this one still lets soft onsets through
HANGOVER_WINDOWS = 10  # the network stays on so long after the gate last heard something: 320 ms
WARM_UP_WINDOWS = 4  # and hears so many windows again when it is woken, to have a past

FEW_ASKS = 2
GATHER_S = 0.008  # the shortest time between two runs for live calls; what comes meanwhile is heard together

Heard = NDArray[np.float32]  # [576]: a window behind the end of the one before, -1..1
State = NDArray[np.float32]  # [2, 128]


class VadWindow(NamedTuple):
    """Probability of voice in the 32 ms that begin with `first_sample`."""

    probability: float
    first_sample: int


class Ask(NamedTuple):
    """A window for the network, and what it remembers of those before."""

    heard: Heard
    state: State


class Answer(NamedTuple):
    """Probability of voice, and what the network remembers now."""

    probability: float
    state: State


class SileroNetwork:
    """The weights in a session of one thread; stateless, the caller carries the state. Raises WeightsError."""

    def __init__(self, path: Path) -> None:
        self._session = load_session(path)

    def run(self, asks: Sequence[Ask]) -> list[Answer]:
        """Windows of different microphones at once: about 0.2 ms for one, 0.08 each for eight."""
        heard = np.stack([ask.heard for ask in asks])  # [B, 576]
        states = np.stack([ask.state for ask in asks], axis=1)  # [2, B, 128]
        rate = np.array(MODEL_RATE_HZ, dtype=np.int64)
        outputs: Any = self._session.run(None, {"input": heard, "state": states, "sr": rate})
        probabilities, states = outputs[0][:, 0].tolist(), outputs[1]
        return [Answer(probability, states[:, n]) for n, probability in enumerate(probabilities)]


class VoiceWindows:
    """What the network is to hear of one microphone, without the network.

    State: samples short of a window, the position, the network's state with the last 64 samples it heard, and how
    many windows ago the gate heard something.
    """

    def __init__(self) -> None:
        self._gate = webrtcvad.Vad(GATE_MODE)
        self._waiting = silence(0)
        self._first_sample = 0
        self._quiet_windows = HANGOVER_WINDOWS
        self._recent: deque[Samples] = deque(maxlen=WARM_UP_WINDOWS)
        self._forget()

    def push(self, samples: Samples) -> Generator[Ask, Answer, list[VadWindow]]:
        """Take samples [T] at 16 kHz; yields what is to be asked, wants its answer, returns the windows completed."""
        self._waiting = np.concatenate([self._waiting, samples])
        windows: list[VadWindow] = []
        while len(self._waiting) >= WINDOW_SAMPLES:
            window, self._waiting = self._waiting[:WINDOW_SAMPLES], self._waiting[WINDOW_SAMPLES:]
            first_sample, self._first_sample = self._first_sample, self._first_sample + WINDOW_SAMPLES
            probability = yield from self._probability(window)
            windows.append(VadWindow(probability, first_sample))
        return windows

    def _probability(self, window: Samples) -> Generator[Ask, Answer, float]:
        """Ask the network, unless the gate has heard nothing for a while: then 0."""
        heard = self._gate.is_speech(window[:GATE_SAMPLES].tobytes(), MODEL_RATE_HZ)
        asleep = self._quiet_windows >= HANGOVER_WINDOWS
        self._quiet_windows = 0 if heard else self._quiet_windows + 1
        probability = 0.0
        if heard and asleep:
            self._forget()
            for past in self._recent:
                yield from self._ask(past)
        if heard or not asleep:
            probability = yield from self._ask(window)
        self._recent.append(window)
        return probability

    def _ask(self, window: Samples) -> Generator[Ask, Answer, float]:
        scaled = window.astype(np.float32) / np.float32(32768)
        heard: Heard = np.concatenate([self._context, scaled], dtype=np.float32)
        self._context = heard[-CONTEXT_SAMPLES:]
        probability, self._state = yield Ask(heard, self._state)
        return probability

    def _forget(self) -> None:
        self._state: State = np.zeros((2, 128), dtype=np.float32)
        self._context: NDArray[np.float32] = np.zeros(CONTEXT_SAMPLES, dtype=np.float32)


class Vad:
    """Follows one microphone in the calling thread. `silero` is the weights' path, or a network that several share."""

    def __init__(self, silero: Path | SileroNetwork) -> None:
        self._network = SileroNetwork(silero) if isinstance(silero, Path) else silero
        self._windows = VoiceWindows()

    def push(self, samples: Samples) -> list[VadWindow]:
        """Take samples [T] at 16 kHz; returns the windows they complete."""
        steps = self._windows.push(samples)
        try:
            ask = next(steps)
            while True:
                ask = steps.send(self._network.run([ask])[0])
        except StopIteration as done:
            return done.value


class VoiceBatch:
    """The network for all live calls of a loop: at once while few ask, together once many do.

    Never more than one run is begun in 8 ms; so a lone caller's window (each 32 ms) never waits, and those of forty
    are heard ten at a time. Of one or two the loop takes the time itself, which is less than two hops to a thread;
    more are heard on `thread`. An ask whose caller is cancelled is left out.
    """

    def __init__(self, network: SileroNetwork, thread: Executor) -> None:
        self._network = network
        self._thread = thread
        self._asks: list[tuple[Ask, asyncio.Future[Answer]]] = []
        self._free_at = 0.0  # by the loop's clock

    async def ask(self, ask: Ask) -> Answer:
        """Wait for the answer to one window."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._asks.append((ask, answer))
        if len(self._asks) == 1:
            loop.call_at(max(self._free_at, loop.time()), self._run)
        return await answer

    def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pairs, self._asks = [pair for pair in self._asks if not pair[1].done()], []
        self._free_at = loop.time() + GATHER_S
        asks, waiting = [ask for ask, _ in pairs], [answer for _, answer in pairs]
        if len(asks) > FEW_ASKS:
            done = loop.run_in_executor(self._thread, self._network.run, asks)
            done.add_done_callback(lambda done: _hand_out(done.result, waiting))
        elif asks:
            _hand_out(lambda: self._network.run(asks), waiting)


def _hand_out(run: Callable[[], list[Answer]], waiting: list[asyncio.Future[Answer]]) -> None:
    """Give each that waits its answer, or what the run failed with."""
    try:
        answers = run()
    except RUN_ERRORS as error:
        for future in waiting:
            if not future.done():
                future.set_exception(error)
        return
    for future, answer in zip(waiting, answers, strict=True):
        if not future.done():
            future.set_result(answer)


class LiveVad:
    """Follows one microphone of the event loop, its windows heard together with the other calls'."""

    def __init__(self, batch: VoiceBatch) -> None:
        self._batch = batch
        self._windows = VoiceWindows()

    async def push(self, samples: Samples) -> list[VadWindow]:
        """Take samples [T] at 16 kHz; returns the windows they complete. Not to be used again once cancelled."""
        steps = self._windows.push(samples)
        try:
            ask = next(steps)
            while True:
                ask = steps.send(await self._batch.ask(ask))
        except StopIteration as done:
            return done.value
