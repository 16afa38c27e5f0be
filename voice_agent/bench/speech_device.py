"""A device that only takes time: launches cost what was recorded (or assumed), streams share it as a GPU's would.

For the scheduler's tests and the speech simulation: no tensors, no threads, no clock of its own. The frame graph is
bound by memory, the VoiceBox by arithmetic: side by side both run slower. Of the VoiceBox's two
streams the urgent one goes first and the other stands meanwhile.
"""

import itertools
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from voice_agent.engine.costs import Costs, RenderBucket
from voice_agent.engine.launches import Frames, Prefill, Render

ROW_BUCKETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PREFILL_BUCKETS = (32, 64, 128, 256)
RENDER_FRAMES, RENDER_ROWS = (1, 2, 3, 4, 6, 8, 12, 16), (1, 2, 4, 8, 16, 32)

LaneName = Literal["frames", "first", "follow"]
Launch = Frames | Prefill | Render


@dataclass(frozen=True, slots=True)
class DeviceCosts:
    """ms of a launch alone on the device: a + b x rows of a frame graph, c + d x frames of a VoiceBox launch.

    `frames_table` has measured frame graphs, by rows. Side by side a frame graph takes `overlap_slowdown` times as
    long, a VoiceBox launch `render_slowdown` times (as much, if that is 0).
    """

    cycle_ms: float
    cycle_row_ms: float
    render_ms: float
    render_frame_ms: float
    overlap_slowdown: float = 1.25
    render_slowdown: float = 0.0
    overlap: bool = True
    jitter: float = 0.03  # relative spread of a launch
    prefill_ms: float = 3.0  # of any length: bound by the weights
    host_ms: float = (
        0.15  # from its plan to its start where the stream was idle, and from its end to its notice
    )
    frames_table: Mapping[int, float] = field(default_factory=dict[int, float])

    def frames_ms(self, bucket: int) -> float:
        """A frame graph of so many rows."""
        return self.frames_table.get(bucket, self.cycle_ms + self.cycle_row_ms * bucket)

    def renders_ms(self, bucket: RenderBucket) -> float:
        """A VoiceBox launch, padding included."""
        return self.render_ms + self.render_frame_ms * bucket[0] * bucket[1]

    def launch_ms(self, what: Launch) -> float:
        """Any of them."""
        match what:
            case Frames():
                return self.frames_ms(what.bucket)
            case Prefill():
                return self.prefill_ms
            case Render():
                return self.renders_ms(what.bucket)

    def measured(self) -> Costs:
        """What a warm-up finds: every bucket, in the company that it will have."""
        frames, renders = self.slowdowns if self.overlap else (1.0, 1.0)
        shapes = itertools.product(RENDER_FRAMES, RENDER_ROWS)
        return Costs(
            {bucket: frames * self.frames_ms(bucket) for bucket in ROW_BUCKETS},
            {shape: renders * self.renders_ms(shape) for shape in shapes},
            dict.fromkeys(PREFILL_BUCKETS, frames * self.prefill_ms),
        )

    @property
    def slowdowns(self) -> tuple[float, float]:
        """Of frame graphs and of VoiceBox launches, side by side."""
        return self.overlap_slowdown, self.render_slowdown or self.overlap_slowdown


@dataclass(eq=False, slots=True)
class Launched:
    """One launch and how much of it is left."""

    what: Launch
    left_ms: float
    start_ms: float | None = None


@dataclass(eq=False)
class SimulatedDevice:
    """Launches in, their ends out; times in ms."""

    costs: DeviceCosts
    seed: int = 0
    now_ms: float = 0.0
    busy_ms: dict[LaneName, float] = field(default_factory=dict[LaneName, float])

    def __post_init__(self) -> None:
        """Nothing runs yet."""
        self._random = random.Random(self.seed)
        self._lanes: dict[LaneName, deque[Launched]] = {
            "frames": deque(),
            "first": deque(),
            "follow": deque(),
        }

    def launch(self, what: Launch) -> None:
        """Queue it behind what its stream does."""
        ms = self.costs.launch_ms(what) * max(0.5, self._random.gauss(1.0, self.costs.jitter))
        name: LaneName = "frames"
        if isinstance(what, Render) and self.costs.overlap:
            name = "first" if what.first_sound else "follow"
        lane = self._lanes[name]
        lane.append(Launched(what, ms + (0 if lane else self.costs.host_ms)))

    def next_end_ms(self) -> float | None:
        """When the next launch ends as things are; None when idle."""
        ends = [self.now_ms + lane[0].left_ms / rate for lane, rate in self._running()]
        return min(ends, default=None)

    def advance(self, until_ms: float) -> list[tuple[Launch, float]]:
        """Let time pass, never past a launch's end; returns what ended with the ms it took."""
        passed_ms = until_ms - self.now_ms
        done: list[tuple[Launch, float]] = []
        running = self._running()
        for lane, rate in running:
            head = lane[0]
            head.start_ms = self.now_ms if head.start_ms is None else head.start_ms
            head.left_ms -= passed_ms * rate
        self._count_busy(passed_ms)
        self.now_ms = until_ms
        for lane, _ in running:
            if lane[0].left_ms <= 1e-9:
                ended = lane.popleft()
                done.append((ended.what, until_ms - (ended.start_ms or 0.0)))
        return done

    def _running(self) -> list[tuple[deque[Launched], float]]:
        """The lanes that move, and how fast."""
        frames, first, follow = self._lanes["frames"], self._lanes["first"], self._lanes["follow"]
        lanes = (frames, first or follow)
        slowdowns = self.costs.slowdowns if all(lanes) else (1.0, 1.0)
        return [(lane, 1 / slower) for lane, slower in zip(lanes, slowdowns, strict=True) if lane]

    def _count_busy(self, ms: float) -> None:
        for name, lane in self._lanes.items():
            if lane:
                self.busy_ms[name] = self.busy_ms.get(name, 0.0) + ms
