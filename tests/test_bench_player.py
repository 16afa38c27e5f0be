"""A loudspeaker without a buffer: what it plays when, gaps, and what a stop drops."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.audio import OPUS_RATE_HZ, Samples
from voice_agent.bench.player import Player
from voice_agent.bench.sound import ReceivedSound, first_voice, holes
from voice_agent.clock import NS_PER_MS, NS_PER_S

LOUD = 8_000


def loud(ms: float) -> Samples:
    return np.full(round(ms * OPUS_RATE_HZ / 1000), LOUD, np.int16)


def ms(value: float) -> int:
    return round(value * NS_PER_MS)


def test_the_first_piece_plays_as_it_comes_and_the_next_behind_it() -> None:
    sound = ReceivedSound()
    player = Player(sound, 0)
    player.push(loud(200), ms(107))
    player.push(loud(100), ms(150))
    player.advance(ms(500))
    voice = first_voice(sound.windows, 0)
    assert voice is not None and abs(voice.arrival_ns - ms(107)) < ms(0.1)
    assert holes(sound.samples()) == [] and not player.playing
    played = np.flatnonzero(sound.samples())
    assert len(played) == len(loud(300)) and played[-1] - played[0] == len(played) - 1


def test_a_piece_that_comes_late_leaves_a_gap() -> None:
    sound = ReceivedSound()
    player = Player(sound, 0)
    player.push(loud(100), ms(40))
    player.push(loud(100), ms(190))
    player.advance(ms(400))
    (hole,) = holes(sound.samples())
    assert abs(hole.duration_ms - 50) < 0.1


def test_a_stop_drops_what_was_not_played() -> None:
    sound = ReceivedSound()
    player = Player(sound, 0)
    player.push(loud(1000), 0)
    assert player.clear(ms(390)) == len(loud(600))  # a window that has begun is heard
    player.advance(ms(2000))
    assert len(np.flatnonzero(sound.samples())) == len(loud(400))
    assert sound.windows[-1].arrival_ns >= ms(1960)  # silence goes on


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 130)), max_size=20))
def test_whatever_comes_is_played_once_and_in_time(pieces: list[tuple[int, int]]) -> None:
    sound, now = ReceivedSound(), 0
    player = Player(sound, 0)
    for wait_ms, length_ms in pieces:
        now += ms(wait_ms)
        player.push(loud(length_ms), now)
    now += 4 * NS_PER_S
    player.advance(now)
    assert len(np.flatnonzero(sound.samples())) == sum(len(loud(length)) for _, length in pieces)
    starts = [window.arrival_ns for window in sound.windows]
    assert starts == sorted(starts) and sound.late_packets == 0
    for window in sound.windows:
        assert abs(window.arrival_ns - window.first_sample * NS_PER_S // OPUS_RATE_HZ) <= 1
