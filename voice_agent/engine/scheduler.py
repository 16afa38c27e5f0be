"""Which step the speech engine does next: pure bookkeeping of counts and instants, no samples, no device.

Urgency: replies without any sound yet come first, in the order in which they had something to say; then the reply
whose sound runs out soonest. Within a reply: decode what is encoded, and encode the next clause ahead of need as soon
as there is sound enough to cover it. A reply far ahead of its listener rests, so that no pipe floods and a newcomer
never waits behind work that nobody needs yet.
"""

from collections import deque
from dataclasses import dataclass, field

from voice_agent.clock import NS_PER_MS, NS_PER_S
from voice_agent.engine.runtime import EngineLimits
from voice_agent.engine.urgency import Key, Playout

ENCODE_AHEAD_NS = (
    800 * NS_PER_MS
)  # a clause takes 80-220 ms to encode on a laptop core; the rest is for a busy one


@dataclass(frozen=True, slots=True)
class Encode:
    """Turn the oldest waiting clause of this reply into latents."""

    key: Key


@dataclass(frozen=True, slots=True)
class Decode:
    """Turn a window of the reply's oldest latents into sound; `last` frees these latents."""

    key: Key
    first_frame: int
    frames: int
    last: bool


Step = Encode | Decode


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a frame sounds, how windows grow, and how far ahead of its listener a reply may run."""

    frame_ns: float
    ramp_frames: tuple[int, ...]
    quality_frames: int
    lead_ns: int
    lead_cap_ns: int

    @classmethod
    def of(cls, limits: EngineLimits, samples_per_frame: int, rate_hz: int) -> "Pace":
        """The pace of a model under these limits."""
        return cls(
            frame_ns=samples_per_frame * NS_PER_S / rate_hz,
            ramp_frames=limits.ramp_frames,
            quality_frames=limits.quality_frames,
            lead_ns=int(limits.lead_s * NS_PER_S),
            lead_cap_ns=int(limits.lead_cap_s * NS_PER_S),
        )


@dataclass(eq=False, slots=True)
class _Plan:
    """One reply: clauses to encode, frames left of encoded ones, and when its sound so far will have been played."""

    key: Key
    latency_first: bool
    clauses: int = 0
    frames_left: deque[int] = field(default_factory=deque[int])  # per encoded clause, oldest first
    first_frame: int = 0  # of the next window in the oldest one
    rung: int = 0  # of the ramp
    playout: Playout = field(default_factory=Playout)

    @property
    def has_work(self) -> bool:
        return self.clauses > 0 or bool(self.frames_left)


class SpeechScheduler:
    """Told what came in and what was done; says what to do next. One step is in hand at a time."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._plans: dict[Key, _Plan] = {}

    def open(self, key: Key, *, latency_first: bool) -> None:
        """A reply will be spoken."""
        self._plans[key] = _Plan(key, latency_first)

    def add_clause(self, key: Key, now_ns: int) -> None:
        """One more clause of it came in."""
        plan = self._plans[key]
        if not plan.has_work:
            plan.playout.wanted_ns = now_ns
        plan.clauses += 1

    def drop(self, key: Key) -> None:
        """Forget a reply that ended or was aborted; a result of its step in hand must not be told any more."""
        self._plans.pop(key, None)

    def has_work(self, key: Key) -> bool:
        """Whether anything that came in is still to be encoded or decoded."""
        return self._plans[key].has_work

    def next_step(self, now_ns: int) -> Step | None:
        """The most urgent step, None when every reply is done, waits for text, or rests."""
        limit_ns = self._limit_ns()
        due = [
            plan
            for plan in self._plans.values()
            if plan.has_work and plan.playout.lead_ns(now_ns) <= limit_ns
        ]
        return self._step_of(min(due, key=lambda plan: plan.playout.urgency()), now_ns) if due else None

    def wake_ns(self) -> int | None:
        """When a resting reply may go on if nothing else happens; None if none rests."""
        ends = [end for plan in self._plans.values() if plan.has_work and (end := plan.playout.runs_out_ns)]
        return min(ends) - self._limit_ns() if ends else None

    def encoded(self, key: Key, frames: int) -> None:
        """An Encode was done; zero frames: the clause has no sound."""
        plan = self._plans[key]
        plan.clauses -= 1
        if frames > 0:
            plan.frames_left.append(frames)

    def decoded(self, step: Decode, now_ns: int) -> None:
        """A Decode was done and its sound is on its way."""
        plan = self._plans[step.key]
        plan.frames_left[0] -= step.frames
        plan.first_frame += step.frames
        if plan.frames_left[0] <= 0:
            plan.frames_left.popleft()
            plan.first_frame = 0
        ran_dry = plan.playout.sounded(step.frames * self._pace.frame_ns / NS_PER_MS, now_ns)
        plan.rung = 1 if ran_dry else plan.rung + 1

    def _limit_ns(self) -> int:
        return self._pace.lead_ns if len(self._plans) > 1 else self._pace.lead_cap_ns

    def _step_of(self, plan: _Plan, now_ns: int) -> Step:
        covered = plan.playout.lead_ns(now_ns) >= ENCODE_AHEAD_NS
        if not plan.frames_left or (plan.clauses and len(plan.frames_left) == 1 and covered):
            return Encode(plan.key)
        left, frames = plan.frames_left[0], self._window(plan, now_ns)
        if left - frames < self._pace.ramp_frames[0]:
            frames = left  # no crumb: a window costs its context, however small
        return Decode(plan.key, plan.first_frame, frames, last=frames == left)

    def _window(self, plan: _Plan, now_ns: int) -> int:
        """Grows window by window; starts small again after the sound has run out."""
        if not plan.latency_first:
            return self._pace.quality_frames
        dry = plan.playout.is_dry(now_ns)
        return self._pace.ramp_frames[0 if dry else min(plan.rung, len(self._pace.ramp_frames) - 1)]
