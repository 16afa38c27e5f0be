"""What callers that cost little say: a room's noise and questions in it, encoded before, and when they say it.

A `Talk` asks its question, waits for the answer's end and asks the next one, or leaves the microphone open for ever.
Knows no transport.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass

import av
import numpy as np

from voice_agent.audio import FRAME_MS, OPUS_RATE_HZ, WIRE_RATE_HZ, Samples, silence
from voice_agent.bench.sound import WINDOW_SAMPLES
from voice_agent.bench.spoken import to_rate
from voice_agent.bench.synthesis import mixed, steady
from voice_agent.clock import NS_PER_S

ROOM_DBFS, ROOM_S = -62.0, 2  # an open microphone in a quiet room, again and again
BIT_RATE = 32_000  # as browsers send speech
APPEND_MS = 100  # what LiveKit's plugin appends at once
PATIENCE_S = 30.0  # an answer that has not ended by then is given up, and counted


@dataclass(frozen=True, slots=True)
class Spoken:
    """What callers send: a room's noise without end, and questions in it; packets of 20 ms or pieces of 100 ms."""

    room: Sequence[bytes]
    questions: Sequence[Sequence[bytes]]


@dataclass(slots=True)
class Counts:
    """Of all callers of a process since they were last looked at."""

    sent: int = 0  # packets, or appends
    received_ms: float = 0.0  # of sound
    packets: int = 0  # with sound
    checked: int = 0  # packets that were decrypted and were right
    answers: int = 0  # heard to their end
    given_up: int = 0

    def clear(self) -> None:
        """Begin anew."""
        self.sent = self.packets = self.checked = self.answers = self.given_up = 0
        self.received_ms = 0.0


class Talk:
    """Which piece is due: the room's noise, or the question until it is said. First asks at `asks_ns`; None: never."""

    def __init__(self, spoken: Spoken, number: int, counts: Counts, asks_ns: int | None) -> None:
        self._spoken = spoken
        self._counts = counts
        self._asks_ns = asks_ns
        self._question = number % len(spoken.questions)
        self._at = 0
        self._room_at = number * 7
        self._waits_until_ns: int | None = None  # for an answer

    def answered(self) -> None:
        """An answer was heard to its end."""
        if self._waits_until_ns is not None:
            self._waits_until_ns = None
            self._counts.answers += 1

    def next(self, now_ns: int) -> bytes:
        """The piece that is due."""
        self._counts.sent += 1
        if self._waits_until_ns is not None and now_ns > self._waits_until_ns:
            self._waits_until_ns = None
            self._counts.given_up += 1
        if self._asks_ns is not None and self._waits_until_ns is None and now_ns >= self._asks_ns:
            return self._said(now_ns)
        self._room_at = (self._room_at + 1) % len(self._spoken.room)
        return self._spoken.room[self._room_at]

    def _said(self, now_ns: int) -> bytes:
        question = self._spoken.questions[self._question]
        piece, self._at = question[self._at], self._at + 1
        if self._at == len(question):
            self._at, self._question = 0, (self._question + 1) % len(self._spoken.questions)
            self._waits_until_ns = now_ns + int(PATIENCE_S * NS_PER_S)
        return piece


def packets(questions: Sequence[Samples]) -> Spoken:
    """Questions in a room, as Opus of 20 ms."""
    room = _room()
    return Spoken(_encoded(room), [_encoded(_in_room(question, room, FRAME_MS)) for question in questions])


def appends(questions: Sequence[Samples]) -> Spoken:
    """Questions in a room, as whole append events of 100 ms."""
    room = _room()
    return Spoken(_events(room), [_events(_in_room(question, room, APPEND_MS)) for question in questions])


def _room() -> Samples:
    return steady("pink", ROOM_S * OPUS_RATE_HZ, ROOM_DBFS, 1)


def _in_room(question: Samples, room: Samples, piece_ms: int) -> Samples:
    padded = np.concatenate([question, silence(-len(question) % (OPUS_RATE_HZ * piece_ms // 1000))])
    return mixed(padded, np.resize(room, len(padded)))


def _encoded(samples: Samples) -> list[bytes]:
    codec = av.CodecContext.create("libopus", "w")
    codec.bit_rate, codec.format, codec.layout, codec.sample_rate = BIT_RATE, "s16", "mono", OPUS_RATE_HZ
    codec.options = {"application": "voip", "frame_duration": "20", "fec": "1", "packet_loss": "5"}
    found: list[bytes] = []
    for at in range(0, len(samples), WINDOW_SAMPLES):
        piece = np.ascontiguousarray(samples[at : at + WINDOW_SAMPLES]).reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(piece, format="s16", layout="mono")
        frame.sample_rate = OPUS_RATE_HZ
        found += [bytes(packet) for packet in codec.encode(frame)]
    return found


def _events(samples: Samples) -> list[bytes]:
    pcm = to_rate(samples, OPUS_RATE_HZ, WIRE_RATE_HZ)
    size = WIRE_RATE_HZ * APPEND_MS // 1000
    return [
        json.dumps(
            {
                "type": "input_audio_buffer.append",
                "audio": base64.b64encode(pcm[at : at + size].tobytes()).decode(),
            }
        ).encode()
        for at in range(0, len(pcm) // size * size, size)
    ]
