"""The user's voice as one unbroken line of 20 ms frames, mono, 16 kHz, whatever the network did.

`MediaClock` is pure: decoded packets with their RTP time and their arrival go in, `MicrophoneFrame`s come out. Time is
the sender's while packets flow (so a drifting sender never adds up), and the wall clock's while none do (so a muted
or vanished sender is silence, not a standstill). `Microphone` is the thin shell around it; it knows no voice activity
and no turns.

What it relies on: RTP time tells the true length of a gap (RFC 3550 5.1, RFC 7587 4.1 for Opus DTX), and packets that
are out of order are so by at most 40 ms.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import numpy as np

from voice_agent.audio import FRAME_MS, MODEL_RATE_HZ, OPUS_RATE_HZ, MicrophoneFrame, Samples, silence
from voice_agent.clock import NS_PER_MS, NS_PER_S, Clock

PER_MS = OPUS_RATE_HZ // 1000  # RTP time; all positions below count it
PER_SAMPLE = OPUS_RATE_HZ // MODEL_RATE_HZ  # RTP time in a sample of the decoded sound
PIECE = FRAME_MS * PER_MS
FRAME_SAMPLES = MODEL_RATE_HZ * FRAME_MS // 1000
REORDER = 40 * PER_MS  # an early packet waits for the missing one until this much has come or gone by
SURELY_GAP = 200 * PER_MS  # nothing is reordered by this much: it is a pause of the sender, do not wait
STALL = 100 * PER_MS  # no packet for so long: silence by the wall clock from then on
MAX_LEAD = (
    1000 * PER_MS
)  # a backlog may put the line ahead of the wall clock by this much, the rest is dropped
MAX_BEHIND = 5000 * PER_MS  # nobody asked for so long: that time is left out
LEAK = 0.002  # of the sound's length goes off the lead: far above any crystal's drift and below notice
RESTART_AFTER_LATE = 10  # so many late packets in a row are a sender that began a new count
FADE_OUT = 10 * MODEL_RATE_HZ // 1000  # in samples
FADE_IN = 5 * MODEL_RATE_HZ // 2000
INBOX_FRAMES = 100  # 2 s
TICK_NS = FRAME_MS * NS_PER_MS
FLOWING_NS = 2 * TICK_NS  # packets that come at least so often move time on by themselves


class MediaClock:
    """Puts decoded frames in order on a line without holes.

    `_lead`: samples the line is ahead of the wall clock (negative: behind), leaking towards zero.
    `_next`: RTP time expected next, None before the first packet. `_filled`: silence put in since the last packet.
    `_early`: packets that wait for a missing one, by RTP time, and `_early_since_ns`.
    """

    def __init__(self, now_ns: int) -> None:
        self.dropped_late = 0
        self._wall_ns = now_ns
        self._lead = 0.0
        self._next: int | None = None
        self._filled = 0
        self._early: dict[int, Samples] = {}
        self._early_since_ns = now_ns
        self._late_in_a_row = 0
        self._line = _Line()

    def push(self, rtp_time: int, pcm: Samples, now_ns: int) -> list[MicrophoneFrame]:
        """Take a decoded packet: samples [T] at 16 kHz; its RTP time (48 kHz) may wrap at 32 bits."""
        self._pass_time(now_ns)
        ahead = self._ahead(rtp_time)
        if ahead < 0:
            self._late(rtp_time, pcm)
        elif 0 < ahead < SURELY_GAP and not self._filled:
            if not self._early:
                self._early_since_ns = now_ns
            self._early.setdefault(rtp_time, pcm)
        else:
            self._accept(rtp_time, pcm)
        self._take_early(now_ns)
        return self._line.frames()

    def tick(self, now_ns: int) -> list[MicrophoneFrame]:
        """Let time pass without a packet."""
        self._pass_time(now_ns)
        self._take_early(now_ns)
        while self._lead < -STALL:
            self._silence(PIECE)
            self._filled += PIECE
        return self._line.frames()

    def _pass_time(self, now_ns: int) -> None:
        self._lead -= (now_ns - self._wall_ns) * OPUS_RATE_HZ / NS_PER_S
        self._lead = max(self._lead, -MAX_BEHIND)
        self._wall_ns = now_ns

    def _ahead(self, rtp_time: int) -> int:
        """Samples between the expected time and this one, in 32-bit arithmetic."""
        if self._next is None:
            return 0
        return (rtp_time - self._next + (1 << 31)) % (1 << 32) - (1 << 31)

    def _late(self, rtp_time: int, pcm: Samples) -> None:
        """Drop a duplicate or a late packet, unless they all are late: then the sender counts anew."""
        self._late_in_a_row += 1
        if self._ahead(rtp_time) < -OPUS_RATE_HZ or self._late_in_a_row > RESTART_AFTER_LATE:
            self._next = None
            self._early.clear()
            self._accept(rtp_time, pcm)
        else:
            self.dropped_late += 1

    def _take_early(self, now_ns: int) -> None:
        """Accept what waits: whatever fits by now, and after 40 ms whatever there is."""
        while self._early:
            first = min(self._early, key=self._ahead)
            waiting = PER_SAMPLE * sum(len(pcm) for pcm in self._early.values())
            overdue = now_ns - self._early_since_ns >= REORDER // PER_MS * NS_PER_MS
            if self._ahead(first) > 0 and waiting <= REORDER and not overdue:
                return
            pcm = self._early.pop(first)
            if self._ahead(first) >= 0:
                self._accept(first, pcm)

    def _accept(self, rtp_time: int, pcm: Samples) -> None:
        """Put silence for what is missing, then the packet."""
        behind = max(0, round(-self._lead))
        missing = self._ahead(rtp_time) - self._filled
        if missing > behind + SURELY_GAP:  # more than the wall clock allows: the sender's count jumped
            missing = behind
        if missing > 0:
            self._silence(missing)
        length = PER_SAMPLE * len(pcm)
        self._next = rtp_time + length
        self._filled = 0
        self._late_in_a_row = 0
        if self._lead > MAX_LEAD:
            self.dropped_late += 1
            return
        self._line.sound(pcm)
        self._lead += length
        leak = LEAK * length
        self._lead -= max(-leak, min(leak, self._lead))

    def _silence(self, count: int) -> None:
        self._line.silence(count // PER_SAMPLE)
        self._lead += count


class _Line:
    """What goes out: soft edges at gaps, cutting into frames.

    `_marks` says of which kind the samples are that are not yet in a frame: [samples, concealed].
    """

    def __init__(self) -> None:
        self._tail = silence(0)  # the end of the sound, for its fade
        self._ready = silence(0)
        self._marks: deque[tuple[int, bool]] = deque()
        self._first_sample = 0
        self._silent = True

    def sound(self, pcm: Samples) -> None:
        if self._silent:
            pcm = pcm.copy()
            count = min(FADE_IN, len(pcm))
            pcm[:count] = pcm[:count] * np.linspace(0, 1, count)
            self._silent = False
        self._tail = pcm[-FADE_OUT:]
        self._put(pcm, concealed=False)

    def silence(self, count: int) -> None:
        """A gap: the last sound runs backwards into silence, so that no edge clicks."""
        gap = silence(count)
        faded = self._tail[::-1][:count]
        if len(faded):
            gap[: len(faded)] = faded * np.linspace(1, 0, len(faded))
            self._tail = self._tail[:0]
        self._silent = True
        self._put(gap, concealed=True)

    def frames(self) -> list[MicrophoneFrame]:
        """All frames that are whole."""
        frames: list[MicrophoneFrame] = []
        while len(self._ready) >= FRAME_SAMPLES:
            samples, self._ready = self._ready[:FRAME_SAMPLES], self._ready[FRAME_SAMPLES:]
            frames.append(MicrophoneFrame(samples, self._first_sample, self._mostly_concealed()))
            self._first_sample += FRAME_SAMPLES
        return frames

    def _put(self, pcm: Samples, *, concealed: bool) -> None:
        self._marks.append((len(pcm), concealed))
        self._ready = np.concatenate([self._ready, pcm])

    def _mostly_concealed(self) -> bool:
        """Whether over half of the next frame is no sound that came."""
        missing, wanted = 0, FRAME_SAMPLES
        while wanted:
            length, concealed = self._marks.popleft()
            part = min(length, wanted)
            wanted -= part
            missing += part if concealed else 0
            if length > part:
                self._marks.appendleft((length - part, concealed))
        return missing > FRAME_SAMPLES // 2


class Microphone:
    """A peer's sound as an iterator. Packets are put in as they come; nobody need send any.

    `frames` may be iterated by one consumer at a time and goes on until `close`. What comes while it is slow is kept,
    the newest 2 s of it; what came before the first call is not.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._inbox: deque[tuple[int, Samples, int]] = deque(maxlen=INBOX_FRAMES)
        self._came_ns = clock.now_ns()
        self._wake = asyncio.Event()
        self._ticking: asyncio.Task[None] | None = None
        self._media: MediaClock | None = None
        self._closed = False

    @property
    def listened_to(self) -> bool:
        """Whether what is put in is kept."""
        return self._media is not None and not self._closed

    def put(self, rtp_time: int, samples: Samples) -> None:
        """Take a decoded packet: samples [T] at 16 kHz, with its 32-bit RTP time."""
        if self.listened_to and len(samples):
            self._came_ns = self._clock.now_ns()
            self._inbox.append((rtp_time, samples, self._came_ns))
            self._wake.set()

    async def frames(self) -> AsyncIterator[MicrophoneFrame]:
        """Frames that follow each other without a hole; sample 0 is the moment of the first call."""
        if self._media is None and not self._closed:
            self._media = MediaClock(self._clock.now_ns())
            self._ticking = asyncio.create_task(self._tick(), name="microphone-tick")
        while self._media and not self._closed:
            self._wake.clear()
            while self._inbox:
                for frame in self._media.push(*self._inbox.popleft()):
                    yield frame
                if self._inbox:
                    await asyncio.sleep(0)  # a backlog is worked off beside everybody else
            for frame in self._media.tick(self._clock.now_ns()):
                yield frame
            if not self._closed:
                await self._wake.wait()

    async def close(self) -> None:
        """End the iteration and the task."""
        self._closed = True
        self._wake.set()
        if self._ticking:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        self._inbox.clear()

    async def _tick(self) -> None:
        """Wake the consumer each 20 ms while no packets do."""
        while True:
            now_ns = self._clock.now_ns()
            await self._clock.sleep_until(max(now_ns + TICK_NS, self._came_ns + FLOWING_NS))
            if self._clock.now_ns() - self._came_ns >= FLOWING_NS:
                self._wake.set()
