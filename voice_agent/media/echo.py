"""The reply's own sound taken out of the microphone, so that an agent on a loudspeaker does not hear itself.

`PlayedSound` remembers what left for the user; `EchoCanceller` lines it up with the microphone and lets WebRTC's
AEC3 (what Chrome cancels with) find delay and room by itself, up to about half a second. It works only while played
sound can still come back: at all other times, and for a client that plays nothing back before, the microphone passes
through bit by bit. It knows no voice activity and no turns.

What it relies on: both sides count 20 ms frames of the same real time, and an echo is at least as late as `LEAD_MS`.
"""

from collections import deque
from itertools import islice

import numpy as np
from pywebrtc_audio import EchoCanceller as WebRtcCanceller

from voice_agent.audio import (
    MODEL_RATE_HZ,
    OPUS_RATE_HZ,
    Samples,
    dbfs,
    ms_to_samples,
    samples_to_ms,
    silence,
)
from voice_agent.clock import NS_PER_MS
from voice_agent.media.resample import Resampler

KEPT_MS = 2_000  # bursts of a late event loop reach no further back
ECHO_MS = 1_000  # so long after it left, sound may come back: network and buffers 500 ms, the room the rest
LEAD_MS = 20  # the line of played sound is ahead by so much: a frame that leaves so late is not missed
GAP_MS = 10  # a pace off by more was anchored anew: nothing was played in between
QUIET_FRAMES = 100  # 2 s: how long the line-up is watched for slack
SLACK_MS = 10  # slack that the delays of single frames do not explain
AEC_SAMPLES = MODEL_RATE_HZ // 100  # AEC3 works on 10 ms
RATIO = OPUS_RATE_HZ // MODEL_RATE_HZ
LOUD_DBFS = -40.0  # played sound that would be heard in the microphone if anything was
NO_ECHO_DB = -32.0  # a microphone so far below it hears nothing of it; speakerphones leak at -6 to -25
ABSENT_FRAMES = 50
PRESENT_FRAMES = 100


class PlayedSound:
    """The newest 2 s of what left, at 48 kHz, on one line of positions that follows the pace's instants."""

    def __init__(self) -> None:
        self.end = 0  # position behind the newest sample
        self.sound_end = -ms_to_samples(KEPT_MS, OPUS_RATE_HZ)  # behind the newest that is not silence
        self._frames: deque[tuple[int, Samples]] = deque()  # with the first position
        self._start_ns: int | None = None

    def add(self, samples: Samples, due_ns: int) -> None:
        """Take a frame [T] that left at its instant; time in which none left counts as silence."""
        if self._start_ns is None:
            self._start_ns = due_ns
        position = ms_to_samples((due_ns - self._start_ns) / NS_PER_MS, OPUS_RATE_HZ)
        if position - self.end > ms_to_samples(GAP_MS, OPUS_RATE_HZ):
            self.end = position
        self._frames.append((self.end, samples))
        self.end += len(samples)
        if samples.any():
            self.sound_end = self.end
        while self._frames[0][0] < self.end - ms_to_samples(KEPT_MS, OPUS_RATE_HZ):
            self._frames.popleft()

    def cut(self, first: int, end: int) -> Samples:
        """What left between two positions; silence where nothing is known."""
        piece = silence(end - first)
        for start, samples in reversed(self._frames):
            if start + len(samples) <= first:
                break
            low, high = max(first, start), min(end, start + len(samples))
            if low < high:
                piece[low - first : high - first] = samples[low - start : high - start]
        return piece


class EchoPresence:
    """Whether the microphone hears what is played at all: a headset or a browser's own canceller lets nothing through.

    Where there is no echo AEC3 would only eat the user's voice over a reply. What counts is how far the microphone is
    below loud played frames: absent once hardly any of a second of them came back (an echo is late, and has pauses),
    present again once half of two seconds did, which is longer than any barge-in that was not obeyed.
    """

    def __init__(self) -> None:
        self._far_below: deque[bool] = deque(maxlen=PRESENT_FRAMES)  # of each loud played frame
        self.absent = False  # until shown otherwise an echo is expected

    def observe(self, samples: Samples, played: Samples) -> None:
        """Take a frame of the microphone and what was played beside it."""
        played_db = dbfs(played)
        if played_db < LOUD_DBFS:
            return
        self._far_below.append(dbfs(samples) - played_db < NO_ECHO_DB)
        count, share = (PRESENT_FRAMES, 0.5) if self.absent else (ABSENT_FRAMES, 0.8)
        if len(self._far_below) >= count:
            self.absent = sum(islice(reversed(self._far_below), count)) > share * count


class EchoCanceller:
    """One for each microphone, in the event loop: what it takes is less than a hop to a thread.

    State: `_position` how far the line of played sound was taken, frame by frame with the microphone; `_slack` how
    far that was behind the newest, for the last frames; and AEC3's model of delay and room, kept between replies.
    """

    def __init__(self, played: PlayedSound) -> None:
        self._played = played
        self._position: int | None = None
        self._slack: deque[int] = deque(maxlen=QUIET_FRAMES)
        self._aec = WebRtcCanceller(MODEL_RATE_HZ, 1)
        self._presence = EchoPresence()
        self._resampler = Resampler(OPUS_RATE_HZ, MODEL_RATE_HZ)
        # The reference is 1.5 ms late, so that each frame comes out of the resampler whole.
        self._waiting = self._resampler.push(silence(self._resampler.lookahead + RATIO))

    def played_with(self, samples: Samples) -> Samples | None:
        """What was played [T * 3] at 48 kHz beside the microphone's next samples [T].

        None while no echo can be in them, or none ever is. Call it once for each frame, as it arrives: a call that is
        ahead of what left shows that earlier frames came late, and the lines are put together anew.
        """
        width = len(samples) * RATIO
        newest = self._played.end - ms_to_samples(LEAD_MS, OPUS_RATE_HZ)
        position = newest if self._position is None else self._position + width
        if not 0 <= self._played.end - position <= ms_to_samples(ECHO_MS, OPUS_RATE_HZ):
            position = newest
            self._slack.clear()
        behind = newest - position  # negative by what is left late just now
        self._position = position
        self._slack.append(behind)
        if position - width >= self._played.sound_end + ms_to_samples(ECHO_MS, OPUS_RATE_HZ):
            self._take_up_slack(position)
            return None
        played = self._played.cut(position - width, position)
        self._presence.observe(samples, played)
        return None if self._presence.absent else played

    def clean(self, samples: Samples, played: Samples) -> Samples:
        """The microphone's samples [T] without the echo of what was played [T * 3]; T is whole 10 ms."""
        if len(samples) % AEC_SAMPLES:
            raise ValueError(f"{len(samples)} samples are not whole 10 ms")
        self._waiting = np.concatenate([self._waiting, self._resampler.push(played)])
        reference, self._waiting = self._waiting[: len(samples)], self._waiting[len(samples) :]
        return self._aec.process(samples, reference)

    def _take_up_slack(self, position: int) -> None:
        """While nothing is played, follow a sender whose clock is slower than ours."""
        least = min(self._slack)
        if len(self._slack) == QUIET_FRAMES and samples_to_ms(least, OPUS_RATE_HZ) > SLACK_MS:
            self._position = position + least
            self._slack.clear()
