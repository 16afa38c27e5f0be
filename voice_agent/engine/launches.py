"""What the cycle scheduler hands to the launch thread and hears back, and the device's streams as it pictures them.

Rows name slots: what belongs to a reply stays on the device, the host sends only which slots take part.
"""

from dataclasses import dataclass, field

from voice_agent.clock import NS_PER_MS
from voice_agent.engine.costs import RenderBucket
from voice_agent.engine.slot_stream import CyclePolicy
from voice_agent.engine.urgency import Key


@dataclass(frozen=True, slots=True)
class FrameRow:
    """One row of a frame graph: makes frame `frame` of the reply in `slot`. Frame 0: the slot is new to the reply."""

    key: Key
    slot: int
    frame: int


@dataclass(frozen=True, slots=True)
class RenderRow:
    """One row of a VoiceBox launch: so many frames from `first_frame` on, as sound. First frame 0: reset its state."""

    key: Key
    slot: int
    first_frame: int
    frames: int


@dataclass(frozen=True, slots=True)
class Frames:
    """One replay of the frame graph of `bucket` rows."""

    rows: tuple[FrameRow, ...]
    bucket: int


@dataclass(frozen=True, slots=True)
class Prefill:
    """One reply's own prefix, by the prefill graph of `bucket` rows, on the frame graph's stream."""

    key: Key
    slot: int
    rows: int
    bucket: int


@dataclass(frozen=True, slots=True)
class Render:
    """One replay of the VoiceBox graph of `bucket` (frames, rows); `first_sound` ones go on the urgent stream."""

    rows: tuple[RenderRow, ...]
    bucket: RenderBucket
    first_sound: bool


@dataclass(frozen=True, slots=True)
class Cycle:
    """What to launch now; nothing at all is a normal value. At most one of `frames` and `prefill`."""

    frames: Frames | None = None
    renders: tuple[Render, ...] = ()
    prefill: Prefill | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """A reply is over and nothing of it is in flight; its slot is free.

    `why`: stop (end of speech), length (its own limit), runaway (no end of speech for its text's length), text_stalled
    (no text and no end of it came), busy (no slot in time; nothing was made), or what `cancel` said.
    """

    key: Key
    why: str
    frames: int


@dataclass(eq=False, slots=True)
class Lane:
    """A stream of the device: launches in order, and when the last is predicted to end."""

    in_flight: int = 0
    ends_ns: int = 0

    def takes(self, now_ns: int, ahead_ns: int) -> bool:
        """Whether one more may be queued: when idle, or so long before the only one ends."""
        return self.in_flight == 0 or (self.in_flight == 1 and self.ends_ns - now_ns <= ahead_ns)

    def launch(self, now_ns: int, ms: float) -> None:
        """One more was queued that takes so long."""
        self.ends_ns = max(now_ns, self.ends_ns if self.in_flight else 0) + int(ms * NS_PER_MS)
        self.in_flight += 1

    def done(self) -> None:
        """The oldest ended."""
        self.in_flight -= 1

    def left_ms(self, now_ns: int) -> float:
        """Until all that was queued will have ended."""
        return max(0.0, (self.ends_ns - now_ns) / NS_PER_MS) if self.in_flight else 0.0


@dataclass(eq=False, slots=True)
class Lanes:
    """The frame graph's stream and the VoiceBox's two; one and the same where nothing overlaps."""

    frames: Lane = field(default_factory=Lane)
    first: Lane = field(default_factory=Lane)
    follow: Lane = field(default_factory=Lane)

    @classmethod
    def of(cls, policy: CyclePolicy) -> "Lanes":
        """Three streams, or one by three names."""
        one = Lane()
        return cls() if policy.overlap else cls(one, one, one)
