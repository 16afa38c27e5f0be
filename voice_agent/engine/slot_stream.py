"""One reply in the GPU speech engine, as the cycle scheduler sees it: counts of frames and instants, no tensors.

Frames are launched (a replay of the frame graph that is to make them was queued), made (it ended and they are sound),
rendered (given to the VoiceBox). The frame with index k needs k + 1 rows of text, or the text's end: a reply whose
text is late is left out of the batch and never fed padding.
"""

import math
from dataclasses import dataclass, field

from voice_agent.clock import NS_PER_MS
from voice_agent.engine.urgency import Key, Playout


@dataclass(frozen=True, slots=True)
class CyclePolicy:
    """How replies are served; one set for every load.

    A reply may start with `start_frames` audible frames while a cycle is shorter than `brisk_cycle_ms`, else with
    `loaded_start_frames`; while its text still comes, not before `start_text_rows` of it are there. Past `knee_rows`,
    rows that are `rest_ms` ahead of their listener stay out while somebody waits for a first sound; `lead_cap_ms`
    bounds what a latency-first reply renders ahead, ever. With `crowded_share` of the slots taken, slots are given back
    sooner, at the price of later first sounds. A reply whose end of speech never comes is cut after
    `frames_per_text_row` x rows + `spare_frames`.
    """

    frame_ms: float = 80.0
    slots: int = 128
    crowded_share: float = 0.5
    overlap: bool = True  # VoiceBox launches run beside the frame graph, on streams of their own
    start_frames: int = 1
    loaded_start_frames: int = 2
    brisk_cycle_ms: float = 6.0
    start_text_rows: int = 4  # 320 ms of speech in hand, should the writer falter
    start_hold_ms: float = 200.0  # text that stops before there is enough to start: so long
    quality_frames: int = 16  # a quality-first chunk
    quality_start_ms: float = 1_000.0  # a quality-first reply's first sound is due then, not at once
    quality_rest_ms: float = 500.0  # so far ahead, a quality-first reply makes way for first sounds
    bulk_frames: int = 12  # buffered frames that are worth a launch of their own
    ring_frames: int = 64  # codes a slot holds on the device before they are rendered
    knee_rows: int = 32
    rest_ms: float = 2_500.0
    lead_cap_ms: float = 20_000.0
    margin_ms: float = 4.0  # device to listener, and what no estimate knows
    render_growth: float = (
        3.0  # a follow-up launch grows to so many times the shortest one; twice that when crowded
    )
    launch_ahead_ms: float = 0.7  # so long before a launch ends, the next one is queued behind it
    admit_cycle_ms: float = 20.0  # a newcomer that would make cycles longer than this waits
    admit_share: float = 0.8  # of real time that all replies in slots may need
    admit_wait_ms: float = 1_000.0
    waiting_replies: int = 256
    text_wait_ms: float = 30_000.0  # no text and no end for so long: the sender is gone
    frames_per_text_row: int = 12  # speech takes about 4; a drawl, 8
    spare_frames: int = 38


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """A reply that asks to be spoken.

    `skipped_frames` at its start are made but never sound. `prefill_rows` of its own go before its first frame (an
    instruction, the end of a clip), in one launch that is never split; 0 where the cached prefix is all. The first
    `text_lead` rows of its text stand under a clip: its frames need so many more (fewer, below 0). Its frames are heard
    `speed` times as fast as they were made for.
    """

    key: Key
    latency_first: bool = True
    skipped_frames: int = 0
    most_frames: int = 8_192
    prefill_rows: int = 0
    text_lead: int = 0
    speed: float = 1.0


@dataclass(eq=False, slots=True)
class SlotStream:
    """The state of one; `slot` is None while it waits for one, `total` None until the last frame is known."""

    request: SpeechRequest
    policy: CyclePolicy
    came_ns: int
    playout: Playout = field(init=False)
    slot: int | None = None
    text_rows: int = 0
    text_ended: bool = False
    launched: int = 0
    made: int = 0
    rendered: int = 0
    total: int | None = None
    why: str = ""  # it ended; empty while it goes on
    moved_ns: int = 0  # when text or a frame came last
    in_frames: int = 0  # launches it is part of, not done yet
    in_renders: int = 0
    prefilled: bool = False
    gone: bool = False  # cancelled: nothing more is launched for it

    def __post_init__(self) -> None:
        """Start waiting."""
        self.playout = Playout(self.came_ns)
        self.moved_ns = self.came_ns
        self.prefilled = self.request.prefill_rows == 0

    @property
    def frame_ms(self) -> float:
        """How long its listener hears one frame."""
        return self.policy.frame_ms / self.request.speed

    @property
    def ready(self) -> int:
        """Frames that wait for the VoiceBox."""
        return 0 if self.gone else self.made - self.rendered

    @property
    def wants_first_sound(self) -> bool:
        """Whether a listener who asked for speed hears nothing yet."""
        return self.request.latency_first and self.playout.runs_out_ns is None and not self.gone

    @property
    def all_made(self) -> bool:
        """Whether no more frames come."""
        return self.total is not None and self.made >= self.total

    @property
    def is_over(self) -> bool:
        """Whether its slot can be given to another."""
        idle = self.in_frames == 0 and self.in_renders == 0
        return idle and (self.gone or (self.all_made and self.rendered >= self.made))

    @property
    def deadline_ns(self) -> int:
        """When the listener runs out of sound that was rendered; for a first sound, when it was wanted."""
        if self.playout.runs_out_ns is not None:
            return self.playout.runs_out_ns
        return self.playout.wanted_ns + self._patience_ns

    @property
    def _patience_ns(self) -> int:
        return 0 if self.request.latency_first else int(self.policy.quality_start_ms * NS_PER_MS)

    def most_frames(self) -> int:
        """How many frames it may make, by its own limit and by the length of its text."""
        if not self.text_ended:
            return self.request.most_frames
        by_text = self.policy.spare_frames + self.policy.frames_per_text_row * self.text_rows
        return min(self.request.most_frames, by_text)

    @property
    def wants_prefill(self) -> bool:
        """Whether its own prefill is to be launched; its text, or its first row, is part of that."""
        waits = not self.prefilled and self.in_frames == 0 and not self.starved and self.text_rows > 0
        return waits and not self.gone and self.total is None

    @property
    def starved(self) -> bool:
        """Whether its next frame's text has not come yet."""
        return self.launched + self.request.text_lead >= self.text_rows and not self.text_ended

    def can_step(self, now_ns: int) -> bool:
        """Whether the frame graph may make one more frame of it."""
        if not self.prefilled or self.gone or self.total is not None or self.starved:
            return False
        if self.launched - self.rendered >= self.policy.ring_frames or self.launched >= self.most_frames():
            return False
        return not self.request.latency_first or self.lead_ms(now_ns) < self.policy.lead_cap_ms

    def lead_ms(self, now_ns: int) -> float:
        """Sound ahead of the listener, made but unrendered frames included."""
        return self.playout.lead_ns(now_ns) / NS_PER_MS + (self.launched - self.rendered) * self.frame_ms

    def frame_urgency(self) -> tuple[bool, float]:
        """Order in the frame graph: first sounds, then who runs out soonest, frames on the way included."""
        ahead_ns = (self.launched - self.rendered) * self.frame_ms * NS_PER_MS
        first = self.wants_first_sound
        return not first, self.playout.wanted_ns if first else self.deadline_ns + ahead_ns

    def start_frames(self, audible_frames: int) -> int:
        """Frames of a first sound that is to last as long as so many do at speed 1 (or longer)."""
        return math.ceil(audible_frames * max(1.0, self.request.speed)) + self.request.skipped_frames

    def may_start(self, audible_frames: int, now_ns: int) -> bool:
        """Whether enough is buffered for a first sound."""
        if self.in_renders or not self.ready:
            return False
        lasts = self.text_ended or self.text_rows >= self.policy.start_text_rows
        enough = lasts and self.ready >= self.start_frames(audible_frames)
        return enough or self.all_made or now_ns - self.moved_ns >= self.policy.start_hold_ms * NS_PER_MS

    def heard_ms(self, first_frame: int, frames: int) -> float:
        """How long these frames sound."""
        skipped = min(frames, max(0, self.request.skipped_frames - first_frame))
        return (frames - skipped) * self.frame_ms

    def stop_at(self, frames: int, why: str) -> None:
        """Its last frame is known; the first reason stays."""
        if self.total is None:
            self.total, self.why = frames, why
