"""Which replies' frames the VoiceBox renders next, and how many of each: pure choices over counts and instants.

The urgent reply is the anchor, compatible rows fill its launch. Chunks have no table: a chunk is what is buffered when
it must leave, cut only where a crowd of deadlines needs many short chunks soon rather than few long ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from voice_agent.clock import NS_PER_MS
from voice_agent.engine.costs import Costs
from voice_agent.engine.slot_stream import CyclePolicy, SlotStream

Chosen = list[tuple[SlotStream, int]]  # a reply and how many of its frames


@dataclass(frozen=True, slots=True)
class Moment:
    """What a choice is made upon: the instant, the replies with frames ready (nearest deadline first), estimates."""

    now_ns: int
    ready: Sequence[SlotStream]
    costs: Costs
    policy: CyclePolicy
    cycle_ms: float  # of the frame graph as it is now
    queue_ms: float  # until the VoiceBox is free
    newcomers: int = 0  # replies in slots that wait for their first sound
    crowded: bool = False
    hurried: bool = False  # somebody who asked for speed waits for a first sound

    def slack_ms(self, stream: SlotStream) -> float:
        """Until it runs dry."""
        return (stream.deadline_ns - self.now_ns) / NS_PER_MS

    @property
    def budget_ms(self) -> float:
        """How long a launch may grow by rows that are not urgent."""
        growth = self.policy.render_growth * (2 if self.crowded else 1)
        return growth * self.costs.render_ms(1, 1)

    @property
    def reserve_ms(self) -> float:
        """What a lone chunk needs from now to its listener, were a launch and all first sounds to go before it."""
        launch_ms = max(self.budget_ms, self.costs.render_ms(self.costs.most_render_frames, 1))
        return self.queue_ms + self._first_sounds_ms + launch_ms + self.cycle_ms + self.policy.margin_ms

    @property
    def _first_sounds_ms(self) -> float:
        frames = self.costs.render_frames_at_least(self.policy.loaded_start_frames + 1)
        rounds, rest = divmod(self.newcomers, self.costs.most_render_rows(frames))
        whole_ms = self.costs.render_ms(frames, self.costs.most_render_rows(frames)) if rounds else 0.0
        return rounds * whole_ms + (self.costs.render_ms(frames, rest) if rest else 0.0)


def start_frames(policy: CyclePolicy, cycle_ms: float) -> int:
    """Audible frames a first sound needs: one more where frames come slowly, since its end is then nearer."""
    return policy.start_frames if cycle_ms < policy.brisk_cycle_ms else policy.loaded_start_frames


def first_sounds(moment: Moment) -> Chosen:
    """Every reply that waits for its first sound and has enough; rows near their deadline ride along."""
    audible = start_frames(moment.policy, moment.cycle_ms)
    starting = [s for s in moment.ready if s.wants_first_sound and s.may_start(audible, moment.now_ns)]
    if not starting:
        return []
    starting.sort(key=lambda s: s.playout.wanted_ns)
    frames = moment.costs.render_frames_at_least(min(starting[0].ready, starting[0].start_frames(audible)))
    rows = starting[: moment.costs.most_render_rows(frames)]
    return _filled(moment, frames, rows, overdue(moment))


def follow_ups(moment: Moment) -> Chosen:
    """Chunks that must leave now, else long ones that are worth a launch, else none."""
    due = overdue(moment)
    if not due:
        return _bulk(moment)
    frames = _frames_for(moment, due)
    rows = due[: moment.costs.most_render_rows(frames)]
    return _filled(moment, frames, rows, _compatible(moment, frames))


def overdue(moment: Moment) -> list[SlotStream]:
    """The replies whose chunks must leave now, nearest deadline first, for all deadlines to be met.

    Demand bound: the k-th must still be met after k rows in front of it. If any would not, all up to it are due.
    """
    row_ms, reserve_ms = _row_ms(moment), moment.reserve_ms
    sounding, due = _sounding(moment), 0
    for place, stream in enumerate(sounding):
        if moment.slack_ms(stream) < reserve_ms + place * row_ms:
            due = place + 1
    return sounding[:due]


def next_due_ns(moment: Moment) -> int | None:
    """When a chunk will be due if nothing else happens; None if none is buffered."""
    row_ms = _row_ms(moment)
    slacks = [moment.slack_ms(s) - place * row_ms for place, s in enumerate(_sounding(moment))]
    return moment.now_ns + int((min(slacks) - moment.reserve_ms) * NS_PER_MS) if slacks else None


def _sounding(moment: Moment) -> list[SlotStream]:
    return [s for s in moment.ready if not s.in_renders and not s.wants_first_sound]


def _pressing(moment: Moment) -> list[SlotStream]:
    """Those that may have a chunk before it is due: who asked for quality makes way for first sounds."""
    free = moment.crowded or not moment.hurried
    return [s for s in _sounding(moment) if free or s.request.latency_first]


def _row_ms(moment: Moment) -> float:
    rows = moment.costs.most_render_rows(1)
    return moment.costs.render_ms(1, rows) / rows


def _frames_for(moment: Moment, due: Sequence[SlotStream]) -> int:
    """As long a chunk as lets all that are due share one launch within the budget."""
    longest = moment.costs.render_frames_at_least(max(s.ready for s in due))
    if len(due) == 1:
        return longest
    for frames in range(longest, 1, -1):
        rows = moment.costs.most_render_rows(frames)
        if len(due) <= rows and moment.costs.render_ms(frames, len(due)) <= moment.budget_ms:
            return frames
    return 1


def _bulk(moment: Moment) -> Chosen:
    """Long chunks that nobody waits for."""
    worth = [s for s in _pressing(moment) if s.all_made or s.ready >= _worth_frames(moment.policy, s)]
    if not worth:
        return []
    frames = moment.costs.render_frames_at_least(worth[0].ready)
    return _filled(moment, frames, worth[:1], _compatible(moment, frames))


def _compatible(moment: Moment, frames: int) -> list[SlotStream]:
    """Who neither leaves most of a row of so many frames empty, nor most of its own frames behind."""
    near = [s for s in _pressing(moment) if frames <= 2 * s.ready <= 3 * frames]
    whole = moment.policy.quality_frames
    return [s for s in near if s.request.latency_first or s.all_made or whole <= min(s.ready, frames)]


def _worth_frames(policy: CyclePolicy, stream: SlotStream) -> int:
    return policy.bulk_frames if stream.request.latency_first else policy.quality_frames


def _filled(moment: Moment, frames: int, rows: Sequence[SlotStream], more: Sequence[SlotStream]) -> Chosen:
    """The rows, and more while the launch holds them and stays within its budget."""
    chosen = list(rows)
    most = moment.costs.most_render_rows(frames)
    for stream in more:
        if len(chosen) >= most:
            break
        if stream in chosen:
            continue
        if moment.costs.render_ms(frames, len(chosen) + 1) > moment.budget_ms:
            break
        chosen.append(stream)
    return [(stream, min(stream.ready, frames)) for stream in chosen]
