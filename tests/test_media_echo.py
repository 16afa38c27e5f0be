"""The echo canceller: how played sound and microphone are lined up, and what is left of a reply that comes back."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.browser_rig import spoken
from tests.model_weights import to_model_rate, weights
from voice_agent.audio import MODEL_RATE_HZ, OPUS_RATE_HZ, Samples, samples_to_ms, silence
from voice_agent.clock import NS_PER_MS
from voice_agent.config import TurnConfig
from voice_agent.media.echo import ECHO_MS, LEAD_MS, EchoCanceller, EchoPresence, PlayedSound
from voice_agent.media.vad import SileroNetwork, Vad
from voice_agent.turn.endpoint import Endpointer
from voice_agent.turn.rules import endpoint_rules

FRAME = 960  # at 48 kHz
HEARD = 320  # at 16 kHz
REPLIES = [
    "Once upon a time an old sailor lived alone near the harbour, and painted little wooden boats.",
    "The capital of France is Paris, which lies on the river Seine and has two million inhabitants.",
    "Sure, I can help you with that. First, open the settings, then choose the network tab.",
]
USER = ["Stop it, please, I have heard enough of this.", "Wait, what about tomorrow?", "Actually, forget it."]
PAUSE_MS = 1500
NOTICED_MS = 400


# --- lining up ----------------------------------------------------------------------------------------------------


def loud(value: int) -> Samples:
    return np.full(FRAME, value, dtype=np.int16)


class Line:
    """A paced output's sound and the canceller that reads it."""

    def __init__(self) -> None:
        self.played = PlayedSound()
        self.canceller = EchoCanceller(self.played)
        self.now_ms = 0

    def leave(self, samples: Samples) -> None:
        self.played.add(samples, self.now_ms * NS_PER_MS)
        self.now_ms += 20

    def beside(self) -> int | None:
        """The last value of what was played beside the next frame."""
        piece = self.canceller.played_with(silence(HEARD))
        return None if piece is None else int(piece[-1])


def test_a_microphone_beside_which_nothing_was_ever_played_is_left_alone() -> None:
    line = Line()
    assert line.beside() is None
    for _ in range(10):
        line.leave(silence(FRAME))
        assert line.beside() is None


def test_what_was_played_is_handed_on_frame_by_frame_until_no_echo_can_come() -> None:
    line = Line()
    seen: list[int | None] = []
    for value in [1, 2, 3] + [0] * (ECHO_MS // 20 + 5):
        line.leave(loud(value))
        seen.append(line.beside())
    assert seen[:5] == [0, 1, 2, 3, 0]
    assert seen.index(None) == 4 + ECHO_MS // 20


def test_microphone_frames_that_come_in_a_burst_keep_their_place() -> None:
    line = Line()
    line.leave(loud(1))
    assert line.beside() == 0
    for value in (2, 3, 4):
        line.leave(loud(value))
    assert [line.beside() for _ in range(3)] == [1, 2, 3]


def test_frames_that_leave_now_before_and_now_behind_the_microphones_are_each_handed_on_once() -> None:
    line = Line()
    line.leave(loud(1))
    seen = [line.beside()]
    for value in range(2, 30, 2):
        seen.append(line.beside())  # its frame is a moment late
        line.leave(loud(value))
        line.leave(loud(value + 1))
        seen.append(line.beside())
    assert seen == list(range(29))


def test_a_first_frame_that_came_late_is_made_up_for() -> None:
    line = Line()
    for value in (1, 2, 3, 4):
        line.leave(loud(value))
    assert line.beside() == 3  # this one was spoken beside frame 1, so two more come at once
    assert [line.beside(), line.beside()] == [4, 3]
    line.leave(loud(5))
    assert line.beside() == 4


def test_a_microphone_that_falls_behind_is_caught_up_while_nothing_is_played() -> None:
    line = Line()
    for value in range(1, 6):
        line.leave(loud(value))
        if value != 3:  # a frame of the microphone got lost
            line.beside()
    for _ in range(ECHO_MS // 20 + 110):
        line.leave(silence(FRAME))
        line.beside()
    line.leave(loud(7))
    line.leave(loud(8))
    line.beside()
    assert line.beside() == 7


def test_a_microphone_that_stood_for_seconds_starts_from_now() -> None:
    line = Line()
    line.leave(loud(1))
    line.beside()
    for value in range(2, 152):
        line.leave(loud(value))
    assert line.beside() == 150


def test_a_pace_that_was_anchored_anew_leaves_a_hole_of_silence() -> None:
    played = PlayedSound()
    played.add(loud(1), 0)
    played.add(loud(2), 320 * NS_PER_MS)
    piece = played.cut(0, played.end)
    assert len(piece) == 340 * OPUS_RATE_HZ // 1000
    assert list(piece[[0, FRAME, -FRAME - 1, -1]]) == [1, 0, 0, 2]


def test_of_played_sound_two_seconds_are_kept_and_the_rest_is_silence() -> None:
    played = PlayedSound()
    for index in range(500):
        played.add(loud(9), index * 20 * NS_PER_MS)
    piece = played.cut(0, played.end)
    assert np.count_nonzero(piece) <= 2.05 * OPUS_RATE_HZ
    assert piece[-1] == 9 and piece[-2 * OPUS_RATE_HZ + FRAME] == 9


def test_frames_of_odd_length_are_refused() -> None:
    with pytest.raises(ValueError, match="10 ms"):
        Line().canceller.clean(silence(333), silence(999))


# --- speech -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network() -> SileroNetwork:
    return SileroNetwork(weights("silero-vad") / "silero_vad.onnx")


@pytest.fixture(scope="module")
def replies() -> list[Samples]:
    return [spoken(text) for text in REPLIES]


@pytest.fixture(scope="module")
def user() -> list[Samples]:
    return [to_model_rate(spoken(text), OPUS_RATE_HZ) for text in USER]


def room(seed: int) -> NDArray[np.float64]:
    """A light reverb: 200 ms that decay by 60 dB, 9 dB below the direct sound."""
    length = MODEL_RATE_HZ // 5
    tail = np.random.default_rng(seed).standard_normal(length) * 10 ** (-3 * np.arange(length) / length)
    tail *= 10 ** (-9 / 20) / np.linalg.norm(tail)
    tail[0] = 1
    return tail


def played_sound(replies: list[Samples]) -> Samples:
    pause = silence(PAUSE_MS * OPUS_RATE_HZ // 1000)
    sound = np.concatenate([pause, *itertools.chain.from_iterable((reply, pause) for reply in replies)])
    return sound[: len(sound) // FRAME * FRAME]


def echo_of(sound: Samples, delay_ms: int, level_db: float, *, reverb: bool) -> NDArray[np.float64]:
    """What comes back at the microphone, with its faint noise; the way of the frame itself takes 20 ms."""
    heard = to_model_rate(sound, OPUS_RATE_HZ).astype(np.float64) * 10 ** (level_db / 20)
    if reverb:
        heard = np.convolve(heard, room(delay_ms))[: len(heard)]
    late = (delay_ms + 20) * MODEL_RATE_HZ // 1000
    heard = np.concatenate([np.zeros(late), heard])[: len(sound) // 3]
    return heard + np.random.default_rng(1).standard_normal(len(heard)) * 4


def cleaned(sound: Samples, microphone: NDArray[np.float64]) -> Samples:
    """Both in step through a canceller, as a session does it."""
    line = Line()
    pieces: list[Samples] = []
    samples = np.clip(microphone, -32768, 32767).astype(np.int16)
    for index in range(len(sound) // FRAME):
        line.leave(sound[index * FRAME : (index + 1) * FRAME])
        piece = samples[index * HEARD : (index + 1) * HEARD]
        played = line.canceller.played_with(piece)
        pieces.append(piece if played is None else line.canceller.clean(piece, played))
    return np.concatenate(pieces)


def holds(network: SileroNetwork, samples: Samples) -> list[int]:
    """Samples at which speech over a reply would have held it."""
    config = TurnConfig()
    endpointer, vad = Endpointer(endpoint_rules(config, "semantic")), Vad(network)
    found: list[int] = []
    for probability, first in vad.push(samples):
        endpointer.window(probability, first)
        if endpointer.voiced_ms >= config.hold_ms:
            found.append(first + 512)
            endpointer.reset()
    return found


def level(samples: NDArray[np.float64]) -> float:
    """Root mean square of the parts that are not silence."""
    squares = np.square(samples[: len(samples) // HEARD * HEARD].reshape(-1, HEARD)).mean(axis=1)
    return float(np.sqrt(squares[squares > squares.max() / 1000].mean()))


@pytest.mark.weights
@pytest.mark.parametrize("reverb", [False, True])
@pytest.mark.parametrize("level_db", [-15, -10])
@pytest.mark.parametrize("delay_ms", [LEAD_MS, 80, 150, 250, 300])
def test_a_reply_that_comes_back_never_holds_itself(
    network: SileroNetwork, replies: list[Samples], delay_ms: int, level_db: float, reverb: bool
) -> None:
    sound = played_sound(replies)
    echo = echo_of(sound, delay_ms, level_db, reverb=reverb)
    assert holds(network, echo.astype(np.int16)), "the echo must be one that would be taken for speech"
    assert holds(network, cleaned(sound, echo)) == []


@pytest.mark.weights
@pytest.mark.parametrize("louder_db", [3, 10])
@pytest.mark.parametrize("level_db", [-15, -10])
@pytest.mark.parametrize("delay_ms", [80, 250])
def test_a_user_who_speaks_over_the_echo_is_noticed_within_400_ms(
    network: SileroNetwork,
    replies: list[Samples],
    user: list[Samples],
    delay_ms: int,
    level_db: float,
    louder_db: float,
) -> None:
    sound = played_sound(replies)
    microphone = echo_of(sound, delay_ms, level_db, reverb=True)
    wanted = level(microphone) * 10 ** (louder_db / 20)
    first_voiced: list[int] = []
    at = PAUSE_MS * OPUS_RATE_HZ // 1000
    at += len(replies[0]) + at  # the first reply is what AEC3 learns the room from
    for reply, words in zip(replies[1:], user[1:], strict=True):
        start = (at + OPUS_RATE_HZ * 3 // 2) // 3  # 1.5 s into the reply
        microphone[start : start + len(words)] += words * (wanted / level(words.astype(np.float64)))
        first_voiced.append(start + int(np.argmax(np.abs(words) > 0.05 * np.abs(words).max())))
        at += len(reply) + PAUSE_MS * OPUS_RATE_HZ // 1000
    found = holds(network, cleaned(sound, microphone))
    for first in first_voiced:
        after = [samples_to_ms(hold - first, MODEL_RATE_HZ) for hold in found if hold > first]
        assert after and after[0] <= NOTICED_MS


@pytest.mark.weights
def test_speech_while_nothing_is_played_passes_bit_by_bit(
    replies: list[Samples], user: list[Samples]
) -> None:
    """After a reply too, once its echo must be over: so the detector's probabilities are the same."""
    quiet = silence(3 * len(user[0]) // FRAME * FRAME)
    sound = np.concatenate([played_sound(replies[:1]), quiet])
    microphone = np.zeros(len(sound) // 3)
    microphone[-len(quiet) // 3 :] = user[0][: len(quiet) // 3]
    out = cleaned(sound, microphone)
    assert np.array_equal(out[-len(quiet) // 3 :], microphone[-len(quiet) // 3 :].astype(np.int16))


def test_a_microphone_that_hears_nothing_of_a_reply_is_left_alone_also_when_the_user_speaks_over_it() -> None:
    rng = np.random.default_rng(1)
    presence = EchoPresence()
    played = (rng.standard_normal(960) * 3000).astype(np.int16)
    hush = (rng.standard_normal(320) * 3).astype(np.int16)
    voice = (rng.standard_normal(320) * 3000).astype(np.int16)
    for _ in range(50):
        presence.observe(hush, played)
    assert presence.absent
    for _ in range(45):  # 0.9 s over the reply
        presence.observe(voice, played)
    assert presence.absent


def test_an_echo_is_expected_at_first_and_found_when_it_begins_later() -> None:
    rng = np.random.default_rng(1)
    presence = EchoPresence()
    played = (rng.standard_normal(960) * 3000).astype(np.int16)
    echo = (rng.standard_normal(320) * 500).astype(np.int16)
    for _ in range(30):
        presence.observe(echo, played)
    assert not presence.absent
    presence.absent = True
    for _ in range(120):
        presence.observe(echo, played)
    assert not presence.absent
