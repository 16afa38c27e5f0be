"""A caller on a loudspeaker: what it hears comes back through its microphone, later, quieter and with the room in it.

Server, network and Talker are real; the Thinker is scripted so that replies are long.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.browser_rig import spoken
from tests.live_server import LiveServer, config_file, live_server
from tests.model_weights import weights
from tests.scripted_thinker import ScriptedThinker, answer
from voice_agent.audio import OPUS_RATE_HZ, Samples, silence
from voice_agent.bench.caller import Caller
from voice_agent.bench.sound import VOICED_DBFS
from voice_agent.clock import MonotonicClock, ms_between

pytestmark = [pytest.mark.loopback, pytest.mark.weights, pytest.mark.slow]

FRAME = 960
ECHO_DB = -15
RESTART = 5  # so many frames missed at once are a buffer that begins anew
REPLIES = [
    "Once upon a time an old sailor lived alone near the harbour, and painted little wooden boats every evening.",
    "The capital of France is Paris, which lies on the river Seine and has about two million inhabitants.",
    "Sure, I can help you with that. First, open the settings, and then choose the tab for the network.",
    "Your appointment is on Tuesday morning. Please bring your passport, and arrive a little early.",
    "Whales are mammals, because they breathe air, are warm blooded, and feed their young with milk.",
]
LONG = " ".join(REPLIES)
TOML = """
profile = "scripted"
[thinker]
url = "{url}"
model = "scripted"
[recognizer.options]
text = "Tell me something."
[talker]
family = "piper"
model = "piper-joe"
"""


class Loudspeaker:
    """Hears what a caller receives and puts it, late and quiet, under what the caller sends."""

    def __init__(self, caller: Caller, delay_ms: int, level_db: float = ECHO_DB) -> None:
        microphone: Any = caller._microphone  # pyright: ignore[reportPrivateUsage]
        self.echoed = 0.0  # loudest sample that was put under
        self._own = microphone._next
        self._gain = 10 ** (level_db / 20)
        self._delay = [silence(FRAME)] * (delay_ms // 20)
        self._buffer = deque(self._delay)
        self._heard_any = False
        self._owed = 0  # frames that were missed: their sound is left out, so that the delay stays
        self._room = _room()
        self._ring = np.zeros(len(self._room) - 1)
        self._sound = caller.sound
        self._add = caller.sound.add
        cast(Any, self._sound).add = self._hear
        microphone._next = self._next

    def _hear(self, rtp_time: int, samples: Samples, arrival_ns: int) -> None:
        self._add(rtp_time, samples, arrival_ns)
        self._heard_any = True
        if self._owed:
            self._owed -= 1
        else:
            self._buffer.append(samples)

    def _next(self) -> Samples:
        if not self._heard_any:
            return self._own()
        if not self._buffer:
            self._owed += 1
        if self._owed > RESTART:
            self._owed = 0
            self._buffer.extend(self._delay)
        heard = self._buffer.popleft() if self._buffer else silence(FRAME)
        echo = self._reverberant(heard.astype(np.float64) * self._gain)
        self.echoed = max(self.echoed, float(np.abs(echo).max()))
        return np.clip(self._own() + echo, -32768, 32767).astype(np.int16)

    def _reverberant(self, sound: NDArray[Any]) -> NDArray[np.float64]:
        whole = np.convolve(np.concatenate([self._ring, sound]), self._room, mode="valid")
        self._ring = np.concatenate([self._ring, sound])[-len(self._ring) :]
        return whole


def _room() -> NDArray[np.float64]:
    """Light reverb: 60 ms of reflections 9 dB below the direct sound."""
    length = OPUS_RATE_HZ * 60 // 1000
    tail = np.random.default_rng(3).standard_normal(length) * 10 ** (-2 * np.arange(length) / length)
    tail *= 10 ** (-9 / 20) / np.linalg.norm(tail)
    tail[0] = 1
    return tail


@asynccontextmanager
async def serving(tmp_path: Path, rounds: int = 1) -> AsyncGenerator[LiveServer]:
    script = [*(answer(text) for text in REPLIES * rounds), *[answer(LONG)] * 3]
    async with ScriptedThinker(script) as thinker:
        config = config_file(tmp_path, TOML.format(url=thinker.url))
        context = live_server("--config", str(config), "--log-level", "info")
        server = await asyncio.to_thread(context.__enter__)
        try:
            yield server
        finally:
            await asyncio.to_thread(context.__exit__, None, None, None)


def count(caller: Caller, kind: str) -> int:
    return sum(stamped.kind == kind for stamped in caller.events)


async def reached(caller: Caller, kind: str, number: int, timeout_s: float = 40) -> None:
    found = await caller.event(lambda _: count(caller, kind) >= number, timeout_s)
    assert found, "\n".join(stamped.kind for stamped in caller.events[-40:])


async def spoken_to_their_end(caller: Caller, question: Samples, replies: int) -> None:
    """Ask again and again; each reply is spoken whole, and nothing but the questions is taken for speech."""
    for number in range(1, replies + 1):
        await caller.say(question)
        await reached(caller, "output_audio_buffer.stopped", number)
        await asyncio.sleep(1.5)
    assert count(caller, "output_audio_buffer.cleared") == 0
    assert count(caller, "input_audio_buffer.speech_started") == replies
    assert count(caller, "input_audio_buffer.committed") == replies


def stopped_ms(caller: Caller, since_ns: int, until_ns: int) -> float:
    """From an instant to the last loud packet of the reply that was being played then."""
    windows = [w for w in caller.sound.windows if since_ns < w.arrival_ns < until_ns]
    loud = [w.arrival_ns for w in windows if w.level_dbfs > VOICED_DBFS]
    return ms_between(since_ns, loud[-1]) if loud else 0.0


@pytest.mark.parametrize("delay_ms", [40, 80, 160, 240, 300])
async def test_ten_replies_of_fifty_that_come_back_never_interrupt_themselves(
    tmp_path: Path, delay_ms: int
) -> None:
    weights("piper-joe")
    question = (spoken("Tell me something.") * 10 ** ((ECHO_DB + 3) / 20)).astype(np.int16)
    async with serving(tmp_path, rounds=2) as server, Caller(server.url, MonotonicClock()) as caller:
        loudspeaker = Loudspeaker(caller, delay_ms)
        await spoken_to_their_end(caller, question, 2 * len(REPLIES))
        assert loudspeaker.echoed > 500
        assert not [line for line in server.lines if "so hold" in line]


@pytest.mark.parametrize("delay_ms", [80, 240])
async def test_five_replies_on_a_loudspeaker_are_spoken_to_their_end_and_a_true_barge_in_stops_the_sixth(
    tmp_path: Path, delay_ms: int
) -> None:
    weights("piper-joe")
    user = 10 ** ((ECHO_DB + 3) / 20)  # always as loud as this: 3 dB above the echo
    question, stop = (
        (spoken(text) * user).astype(np.int16)
        for text in ("Tell me something.", "Stop it, please, I have heard enough of this.")
    )
    async with serving(tmp_path) as server, Caller(server.url, MonotonicClock()) as caller:
        loudspeaker = Loudspeaker(caller, delay_ms)
        await spoken_to_their_end(caller, question, len(REPLIES))
        assert loudspeaker.echoed > 500
        assert not [line for line in server.lines if "so hold" in line]

        await caller.say(question)
        await reached(caller, "output_audio_buffer.started", 6)
        await asyncio.sleep(2)
        sent = await caller.say(stop)
        await reached(caller, "output_audio_buffer.cleared", 1, 5)
        cleared = next(s for s in caller.events if s.kind == "output_audio_buffer.cleared")
        assert cleared.arrival_ns > sent.first_voiced_ns
        stopped = stopped_ms(caller, sent.first_voiced_ns, cleared.arrival_ns + 100_000_000)
        assert 0 < stopped <= 600, stopped
        assert [line for line in server.lines if "so hold" in line]
