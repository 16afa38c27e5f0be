"""The cycle scheduler against a simulated device: first audio and underruns at given loads, without a GPU.

`python -m voice_agent.bench.speech_simulation` prints the table. Replies come at random (Poisson), as long as in
public speech sets (lognormal, mean 52 frames of 80 ms, p95 91, cut to 16-140); the client plays what arrives at once
and has no buffer. What is measured is the scheduler's share: real costs come from the device, see `bench speech`.
"""

import heapq
import itertools
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from voice_agent.bench import arguments
from voice_agent.bench.load import reply_frames
from voice_agent.bench.speech_device import DeviceCosts, Launch, SimulatedDevice
from voice_agent.bench.statistics import nearest_rank
from voice_agent.clock import NS_PER_MS
from voice_agent.engine.cycles import CycleScheduler
from voice_agent.engine.launches import Cycle, Frames, Prefill
from voice_agent.engine.slot_stream import CyclePolicy, SpeechRequest
from voice_agent.engine.urgency import Key

FRAME_MS = 80.0
INGRESS_MS, EGRESS_MS = 1.5, 0.8  # request parsed and at the engine; sound from the device to the client
ONSET_MS = 10.0  # a real voice's quiet start, added to what is printed

MODELS = {
    "ours, serial": DeviceCosts(3.4, 0.03, 2.0, 0.04, overlap=False),
    "ours, overlapped": DeviceCosts(3.4, 0.03, 2.0, 0.04, overlap_slowdown=1.25),
    "pessimistic": DeviceCosts(5.0, 0.06, 3.0, 0.08, overlap_slowdown=1.4),
    "H200, plain": DeviceCosts(4.3, 0.024, 2.6, 0.079, 2.4, 1.3, frames_table={1: 3.43}),
    "H200, fused": DeviceCosts(4.3, 0.024, 0.75, 0.040, 2.0, 1.4, frames_table={1: 3.43}),
}  # the last two as recorded at 7df555b (docs/speech-engine.md), the fused codec's slowdowns assumed


@dataclass(frozen=True, slots=True)
class Plan:
    """One reply of the workload. `text` is (ms after it came, rows) in order; `never_stops`: no end of speech comes.

    Without `text_ends_ms` the text has no end either.
    """

    at_ms: float
    frames: int
    text: tuple[tuple[float, int], ...] = ((0.0, 40),)
    text_ends_ms: float | None = 0.0
    latency_first: bool = True
    skipped_frames: int = 0
    never_stops: bool = False
    cancel_ms: float | None = None
    prefill_rows: int = 0


@dataclass(slots=True)
class Outcome:
    """One reply at its client, in ms from its request; `first_ms` None: nothing came."""

    plan: Plan
    first_ms: float | None = None
    ends_ms: float = 0.0  # of playout, absolute
    last_ms: float = 0.0  # its last chunk, from its request
    underruns: int = 0
    longest_stall_ms: float = 0.0
    heard_ms: float = 0.0
    chunks: list[int] = field(default_factory=list[int])
    why: str = ""
    over_ms: float = 0.0

    def arrives(self, at_ms: float, frames: int) -> None:
        """A chunk of so many audible frames is there."""
        if self.first_ms is None:
            self.first_ms = at_ms - self.plan.at_ms
        elif at_ms > self.ends_ms:
            self.underruns += 1
            self.longest_stall_ms = max(self.longest_stall_ms, at_ms - self.ends_ms)
        self.ends_ms = max(self.ends_ms, at_ms) + frames * FRAME_MS
        self.heard_ms += frames * FRAME_MS
        self.last_ms = at_ms - self.plan.at_ms
        self.chunks.append(frames)


class Simulation:
    """A workload, a scheduler and a device; `run` returns every reply's outcome, none left out."""

    def __init__(
        self, plans: Sequence[Plan], device: DeviceCosts, policy: CyclePolicy, *, seed: int = 0
    ) -> None:
        self.device = SimulatedDevice(device, seed)
        self.scheduler = CycleScheduler(policy, device.measured())
        self.outcomes: dict[Key, Outcome] = {}
        self.most_in_slots = 0
        self.frame_rows: list[int] = []
        self._events: list[tuple[float, int, str, Key, int]] = []
        self._order = itertools.count()
        self._standing: list[Plan] = []
        for plan in plans:
            self._add(plan)

    def keep_running(self, plan: Plan) -> None:
        """Whenever this reply is over, it is asked for again."""
        self._standing.append(plan)
        self._add(plan)

    def run(self, until_ms: float = math.inf) -> list[Outcome]:
        """Until all is over, or until an instant."""
        while self.device.now_ms < until_ms:
            self._take_events()
            self._launch(self.scheduler.plan(self._now_ns))
            self._end_replies()
            next_ms = self._next_ms()
            if next_ms is None or next_ms > until_ms:
                break
            for what, took_ms in self.device.advance(max(next_ms, self.device.now_ms)):
                self._done(what, took_ms)
        return list(self.outcomes.values())

    @property
    def _now_ns(self) -> int:
        return round(self.device.now_ms * NS_PER_MS)

    def _add(self, plan: Plan) -> None:
        key = (f"reply {next(self._order)}", 1)
        self.outcomes[key] = Outcome(plan)
        start_ms = plan.at_ms + INGRESS_MS
        self._at(start_ms, "admit", key)
        for ms, rows in plan.text:
            self._at(start_ms + ms, "text", key, rows)
        if plan.text_ends_ms is not None:
            self._at(start_ms + plan.text_ends_ms, "end", key)
        if plan.cancel_ms is not None:
            self._at(start_ms + plan.cancel_ms, "cancel", key)

    def _at(self, ms: float, what: str, key: Key, rows: int = 0) -> None:
        heapq.heappush(self._events, (ms, next(self._order), what, key, rows))

    def _take_events(self) -> None:
        while self._events and self._events[0][0] <= self.device.now_ms:
            _, _, what, key, rows = heapq.heappop(self._events)
            plan = self.outcomes[key].plan
            match what:
                case "admit":
                    request = SpeechRequest(
                        key, plan.latency_first, plan.skipped_frames, prefill_rows=plan.prefill_rows
                    )
                    self.scheduler.admit(request, self._now_ns)
                case "text":
                    self.scheduler.append(key, rows, self._now_ns)
                case "end":
                    self.scheduler.ended(key, self._now_ns)
                case _:
                    self.scheduler.cancel(key)

    def _launch(self, cycle: Cycle) -> None:
        for launch in (*cycle.renders, cycle.prefill, cycle.frames):
            if launch is not None:
                self.device.launch(launch)
        self.most_in_slots = max(self.most_in_slots, self.scheduler.in_slots)

    def _done(self, what: Launch, took_ms: float) -> None:
        if isinstance(what, Prefill):
            self.scheduler.prefill_done(what, self._now_ns, took_ms)
            return
        if isinstance(what, Frames):
            self.frame_rows.append(len(what.rows))
            plans = {row.key: self.outcomes[row.key].plan for row in what.rows}
            stopped = [row.key for row in what.rows if _stops(plans[row.key], row.frame)]
            self.scheduler.frames_done(what, self._now_ns, took_ms, stopped)
            return
        for row in what.rows:
            outcome = self.outcomes[row.key]
            skipped = min(row.frames, max(0, outcome.plan.skipped_frames - row.first_frame))
            if row.frames > skipped:
                outcome.arrives(self.device.now_ms + EGRESS_MS, row.frames - skipped)
        self.scheduler.render_done(what, self._now_ns, took_ms)

    def _end_replies(self) -> None:
        for ending in self.scheduler.endings():
            outcome = self.outcomes[ending.key]
            outcome.why, outcome.over_ms = ending.why, self.device.now_ms - outcome.plan.at_ms
            if outcome.plan in self._standing:
                again = outcome.plan
                self._standing.remove(again)
                self.keep_running(_moved(again, self.device.now_ms))

    def _next_ms(self) -> float | None:
        wake_ns = self.scheduler.wake_ns(self._now_ns)
        instants = [
            self._events[0][0] if self._events else None,
            self.device.next_end_ms(),
            None if wake_ns is None else wake_ns / NS_PER_MS + 1e-6,
        ]
        return min((instant for instant in instants if instant is not None), default=None)


def poisson(rps: float, seconds: float, seed: int, skipped_frames: int = 1) -> list[Plan]:
    """Replies of random length at random instants, whole text at once."""
    draw = random.Random(seed)
    plans: list[Plan] = []
    at_ms = draw.expovariate(rps) * 1000
    while at_ms < seconds * 1000:
        frames = reply_frames(draw)
        plans.append(Plan(at_ms, frames, ((0.0, max(1, frames // 4)),), skipped_frames=skipped_frames))
        at_ms += draw.expovariate(rps) * 1000
    return plans


def row_of(outcomes: Sequence[Outcome]) -> str:
    """p95 first audio with a real voice's onset, share of replies that ran dry, longest stall, p95 end to end."""
    firsts = [math.inf if o.first_ms is None else o.first_ms + ONSET_MS for o in outcomes]
    dry = sum(o.underruns > 0 for o in outcomes) / len(outcomes)
    stall_ms = max(o.longest_stall_ms for o in outcomes)
    ends = [o.last_ms for o in outcomes]
    return (
        f"{nearest_rank(firsts, 50):7.1f}{nearest_rank(firsts, 95):7.1f}{nearest_rank(firsts, 99):7.1f}"
        f"{100 * dry:10.2f}{stall_ms:9.1f}{nearest_rank(ends, 50):9.0f}{nearest_rank(ends, 95):7.0f}"
    )


def main(argv: Sequence[str]) -> int:
    """Print the table; returns the exit status."""
    name = "python -m voice_agent.bench.speech_simulation"
    parser = arguments.parser(name, "the cycle scheduler on assumed costs")
    parser.add_argument("--rps", type=arguments.number(0.1), nargs="+", default=[10, 30, 40, 60])
    parser.add_argument("--seconds", type=arguments.number(0.1), default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--costs", choices=sorted(MODELS), nargs="+", default=list(MODELS))
    parser.add_argument(
        "--skipped", type=arguments.whole(0), default=1, help="frames at a reply's start that never sound"
    )
    parser.add_argument(
        "--quality-jobs",
        type=arguments.whole(0),
        default=0,
        help="quality-first replies that always run beside",
    )
    options = parser.parse_args(argv)
    print(
        f"{'costs':18}{'RPS':>5}{'n':>6}{'p50':>7}{'p95':>7}{'p99':>7}{'dry %':>10}{'stall':>9}{'e2e p50':>9}{'p95':>7}"
    )
    for name in options.costs:
        costs = MODELS[name]
        for rps in options.rps:
            plans = poisson(rps, options.seconds, options.seed, options.skipped)
            simulation = Simulation(plans, costs, CyclePolicy(overlap=costs.overlap), seed=options.seed)
            for _ in range(options.quality_jobs):
                simulation.keep_running(Plan(0.0, 140, ((0.0, 40),), latency_first=False))
            limit_ms = (options.seconds + 20) * 1000 if options.quality_jobs else math.inf
            everyone = simulation.run(limit_ms)
            outcomes = [o for o in everyone if o.plan.latency_first]
            if not outcomes:
                print(f"{name:18}{rps:5.0f}{0:6}   nobody asked within {options.seconds:g} s")
                continue
            heard_ms = sum(o.heard_ms for o in everyone if not o.plan.latency_first)
            slow = (
                f"   quality {heard_ms / simulation.device.now_ms:.0f} x real" if options.quality_jobs else ""
            )
            print(f"{name:18}{rps:5.0f}{len(outcomes):6}{row_of(outcomes)}{slow}", flush=True)
    return 0


def _stops(plan: Plan, frame: int) -> bool:
    return frame == plan.frames and not plan.never_stops


def _moved(plan: Plan, at_ms: float) -> Plan:
    return Plan(at_ms, plan.frames, plan.text, plan.text_ends_ms, plan.latency_first, plan.skipped_frames)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
