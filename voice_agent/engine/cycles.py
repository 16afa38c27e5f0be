"""What the GPU speech engine launches next: rows of the frame graph (Talker and Code Predictor) and VoiceBox batches.

Pure bookkeeping for one launch thread, which goes round: tell what came (`admit`, `append`, `ended`, `cancel`) and
which launches ended (`prefill_done`, `frames_done`, `render_done`), launch what `plan` says, tell the `endings`, sleep
until something comes or `wake_ns`. Urgency: first sounds before all; then whoever's
sound runs out soonest. Replies take a slot of the device when there is one and the cycle they would cause is short
enough; they wait for it in order, with a time limit, then are refused as busy.
"""

import math
from collections import deque
from collections.abc import Collection, Mapping

from voice_agent.clock import NS_PER_MS
from voice_agent.engine import render_choice
from voice_agent.engine.costs import Costs
from voice_agent.engine.launches import Cycle, Ending, FrameRow, Frames, Lanes, Prefill, Render, RenderRow
from voice_agent.engine.render_choice import Chosen, Moment
from voice_agent.engine.slot_stream import CyclePolicy, SlotStream, SpeechRequest
from voice_agent.engine.urgency import Key

POLL_NS = 5 * NS_PER_MS  # what changes slowly (leads, time limits) is looked at so often


class CycleScheduler:
    """Slots, the line before them, and what is in flight. Instants in ns of one monotonic clock; not thread-safe."""

    def __init__(self, policy: CyclePolicy, costs: Costs) -> None:
        self.costs = costs
        self._policy = policy
        self._streams: dict[Key, SlotStream] = {}  # in slots
        self._waiting: dict[Key, SlotStream] = {}
        self._free = deque(range(policy.slots))
        self._endings: list[Ending] = []
        self._lanes = Lanes.of(policy)
        self._ahead_ns = int(policy.launch_ahead_ms * NS_PER_MS)
        self._last_was_frames = False
        self._last_was_prefill = False
        self._rows = 1  # of the newest frame graph

    # --- what comes in ------------------------------------------------------------------------------------------

    def admit(self, request: SpeechRequest, now_ns: int) -> None:
        """A reply wants to be spoken; it gets a slot at the next plan that has room. Full line: ends as busy."""
        if request.key in self._streams or request.key in self._waiting:
            raise ValueError(f"{request.key} is spoken already")
        if request.prefill_rows:
            self.costs.prefill_bucket(request.prefill_rows)  # raises ValueError if no graph holds it
        if len(self._waiting) >= self._policy.waiting_replies:
            self._endings.append(Ending(request.key, "busy", 0))
            return
        self._waiting[request.key] = SlotStream(request, self._policy, now_ns)

    def append(self, key: Key, rows: int, now_ns: int) -> None:
        """So many more rows of text of it are on the device; ignored for a reply that is over."""
        stream = self._find(key)
        if stream is None or rows <= 0:
            return
        if stream.text_rows == 0:
            stream.playout.wanted_ns = now_ns
        stream.text_rows += rows
        stream.moved_ns = now_ns

    def ended(self, key: Key, now_ns: int) -> None:
        """No more text of it comes."""
        stream = self._find(key)
        if stream is None or stream.text_ended:
            return
        stream.text_ended, stream.moved_ns = True, now_ns
        if stream.text_rows == 0:
            stream.stop_at(0, "stop")
        self._free_if_over(stream)

    def cancel(self, key: Key, why: str = "aborted") -> None:
        """Launch nothing more of it; its slot is free when what is in flight is done."""
        stream = self._find(key)
        if stream is not None and not stream.gone:
            stream.gone, stream.why = True, why
            self._free_if_over(stream)

    def frames_done(self, done: Frames, now_ns: int, took_ms: float, stopped: Collection[Key] = ()) -> None:
        """A frame graph ended; `stopped` are the replies whose row was the end of speech, which is no frame."""
        self._lanes.frames.done()
        self.costs.learn_frames(done.bucket, took_ms)
        for row in done.rows:
            stream = self._streams[row.key]
            stream.in_frames -= 1
            if row.key in stopped:
                stream.stop_at(stream.made, "stop")
            elif stream.total is None and not stream.gone:
                self._made_one(stream, now_ns)
            self._free_if_over(stream)

    def prefill_done(self, done: Prefill, now_ns: int, took_ms: float) -> None:
        """A prefill ended: the reply is a row from now on."""
        self._lanes.frames.done()
        self.costs.learn_prefill(done.bucket, took_ms)
        stream = self._streams[done.key]
        stream.in_frames -= 1
        stream.prefilled, stream.moved_ns = True, now_ns
        self._free_if_over(stream)

    def render_done(
        self, done: Render, now_ns: int, took_ms: float, heard_ms: Mapping[Key, float] | None = None
    ) -> None:
        """A VoiceBox launch ended; `heard_ms` where it was not all of its frames (silence that was cut)."""
        (self._lanes.first if done.first_sound else self._lanes.follow).done()
        self.costs.learn_render(done.bucket, took_ms)
        for row in done.rows:
            stream = self._streams[row.key]
            stream.in_renders -= 1
            ms = (heard_ms or {}).get(row.key)
            ms = stream.heard_ms(row.first_frame, row.frames) if ms is None else ms
            if ms > 0 and not stream.gone:
                stream.playout.sounded(ms, now_ns)
            self._free_if_over(stream)

    # --- what to do ---------------------------------------------------------------------------------------------

    def plan(self, now_ns: int) -> Cycle:
        """What to launch at this instant; call again after each call above, and at `wake_ns`."""
        self._let_in(now_ns)
        self._give_up_stalled(now_ns)
        able = [s for s in self._streams.values() if s.can_step(now_ns)]
        moment = self._moment(now_ns, len(able))
        if not self._policy.overlap:
            return self._plan_serial(moment, able)
        follow = self._follow_ups(
            moment
        )  # before first sounds, so that what is due rides with them only if it must
        renders = (*self._first_sounds(moment), *follow)
        prefill = self._prefill(now_ns, able)
        return Cycle(None if prefill else self._frames(now_ns, able), renders, prefill)

    def wake_ns(self, now_ns: int) -> int | None:
        """When `plan` may have something new although nothing happened; None if only events can change that."""
        if not self._streams and not self._waiting:
            return None
        lanes = (self._lanes.frames, self._lanes.first, self._lanes.follow)
        instants = [lane.ends_ns - self._ahead_ns for lane in lanes if lane.in_flight == 1]
        due_ns = render_choice.next_due_ns(self._moment(now_ns, self._rows))
        instants += [] if due_ns is None else [due_ns]
        return min((instant for instant in instants if instant > now_ns), default=now_ns + POLL_NS)

    def endings(self) -> list[Ending]:
        """Replies that are over since the last call."""
        told, self._endings = self._endings, []
        return told

    def underruns(self, key: Key) -> int:
        """How often a reply in a slot ran dry."""
        return self._streams[key].playout.underruns

    @property
    def in_slots(self) -> int:
        """Replies that hold a slot."""
        return len(self._streams)

    @property
    def in_line(self) -> int:
        """Replies that wait for one."""
        return len(self._waiting)

    # --- inside -------------------------------------------------------------------------------------------------

    def _plan_serial(self, moment: Moment, able: list[SlotStream]) -> Cycle:
        """One launch: first sounds, chunks that are due, frames, and long chunks between frames."""
        if not self._lanes.frames.takes(moment.now_ns, self._ahead_ns):
            return Cycle()
        if first := self._first_sounds(moment):
            return Cycle(None, tuple(first))
        hurry = any(s.wants_first_sound for s in able)
        idle = self._last_was_frames and (self._crowded or not hurry)
        if (idle or render_choice.overdue(moment)) and (follow := self._follow_ups(moment)):
            return Cycle(None, tuple(follow))
        if prefill := self._prefill(moment.now_ns, able):
            return Cycle(prefill=prefill)
        frames = self._frames(moment.now_ns, able)
        return Cycle(frames) if frames else Cycle(None, tuple(self._follow_ups(moment)))

    def _first_sounds(self, moment: Moment) -> list[Render]:
        if not self._lanes.first.takes(moment.now_ns, self._ahead_ns):
            return []
        return self._launch(render_choice.first_sounds(moment), moment.now_ns, first_sound=True)

    def _follow_ups(self, moment: Moment) -> list[Render]:
        if not self._lanes.follow.takes(moment.now_ns, self._ahead_ns):
            return []
        return self._launch(render_choice.follow_ups(moment), moment.now_ns, first_sound=False)

    def _launch(self, chosen: Chosen, now_ns: int, *, first_sound: bool) -> list[Render]:
        if not chosen:
            return []
        bucket = self.costs.render_bucket(max(frames for _, frames in chosen), len(chosen))
        rows: list[RenderRow] = []
        for stream, frames in chosen:
            rows.append(RenderRow(stream.request.key, _slot(stream), stream.rendered, frames))
            stream.rendered += frames
            stream.in_renders += 1
        lane = self._lanes.first if first_sound else self._lanes.follow
        lane.launch(now_ns, self.costs.render_ms(*bucket))
        self._last_was_frames = False
        return [Render(tuple(rows), bucket, first_sound)]

    def _prefill(self, now_ns: int, able: list[SlotStream]) -> Prefill | None:
        """The most urgent reply's own prefix; never two in a row while others could make frames."""
        if not self._lanes.frames.takes(now_ns, self._ahead_ns) or (able and self._last_was_prefill):
            return None
        waiting = [s for s in self._streams.values() if s.wants_prefill]
        if not waiting:
            return None
        stream = min(waiting, key=SlotStream.frame_urgency)
        rows = stream.request.prefill_rows
        bucket = self.costs.prefill_bucket(rows)
        stream.in_frames += 1
        self._lanes.frames.launch(now_ns, self.costs.prefill_ms(bucket))
        self._last_was_prefill = True
        return Prefill(stream.request.key, _slot(stream), rows, bucket)

    def _frames(self, now_ns: int, able: list[SlotStream]) -> Frames | None:
        if not able or not self._lanes.frames.takes(now_ns, self._ahead_ns):
            return None
        chosen = self._choose_rows(now_ns, able)
        bucket = self.costs.frame_bucket(len(chosen))
        rows: list[FrameRow] = []
        for stream in chosen:
            rows.append(FrameRow(stream.request.key, _slot(stream), stream.launched))
            stream.launched += 1
            stream.in_frames += 1
        self._lanes.frames.launch(now_ns, self.costs.frame_ms(bucket))
        self._last_was_frames, self._last_was_prefill = True, False
        self._rows = bucket
        return Frames(tuple(rows), bucket)

    def _choose_rows(self, now_ns: int, able: list[SlotStream]) -> list[SlotStream]:
        """All that can step; past the knee, while somebody waits for a first sound, those that need it, and fill."""
        hurry = any(s.wants_first_sound for s in able)
        able = self._pressed(now_ns, able) if hurry else able
        if len(able) <= self._policy.knee_rows or (not hurry and len(able) <= self.costs.most_rows):
            return able
        able.sort(key=SlotStream.frame_urgency)
        needed = sum(s.wants_first_sound or s.lead_ms(now_ns) < self._policy.rest_ms for s in able)
        needed = min(self.costs.most_rows, max(needed, self._policy.knee_rows))
        return able[: self.costs.frame_bucket(needed)]

    def _pressed(self, now_ns: int, able: list[SlotStream]) -> list[SlotStream]:
        """Without the quality-first rows that are well ahead, where a frame is shorter for it."""
        rest_ms = self._policy.quality_rest_ms
        pressed = [s for s in able if s.request.latency_first or s.lead_ms(now_ns) < rest_ms]
        return pressed if self.costs.frame_ms(len(pressed)) < self.costs.frame_ms(len(able)) else able

    def _let_in(self, now_ns: int) -> None:
        """Give slots in order of arrival; refuse who waited too long."""
        for key, stream in list(self._waiting.items()):
            if self._free and self._has_room(now_ns, stream.request.speed):
                stream.slot = self._free.popleft()
                self._streams[key] = self._waiting.pop(key)
                self._free_if_over(stream)
            elif now_ns - stream.came_ns >= _ns(self._policy.admit_wait_ms):
                del self._waiting[key]
                self._endings.append(Ending(key, "busy", 0))

    def _has_room(self, now_ns: int, speed: float) -> bool:
        """Whether one more keeps the cycle short, and all in slots within a share of real time."""
        rows = 1 + sum(s.can_step(now_ns) for s in self._streams.values())
        listeners = math.ceil(speed + sum(s.request.speed for s in self._streams.values()))
        cycle_ms = self.costs.frame_ms(rows) + (0 if self._policy.overlap else rows * self._render_row_ms())
        real_time_ms = self.costs.frame_ms(listeners) + listeners * self._render_row_ms()
        fits = cycle_ms <= self._policy.admit_cycle_ms or rows == 1
        return fits and real_time_ms <= self._policy.admit_share * self._policy.frame_ms

    @property
    def _crowded(self) -> bool:
        return len(self._streams) >= self._policy.crowded_share * self._policy.slots

    def _render_row_ms(self) -> float:
        """One frame's share of a long launch."""
        frames = self.costs.render_frames_at_least(self._policy.bulk_frames)
        return self.costs.render_ms(frames, 1) / frames

    def _give_up_stalled(self, now_ns: int) -> None:
        limit_ns = _ns(self._policy.text_wait_ms)
        for stream in list(self._streams.values()):
            stalled = stream.starved and not stream.in_frames
            if stalled and stream.total is None and now_ns - stream.moved_ns >= limit_ns:
                stream.stop_at(stream.made, "text_stalled")
                self._free_if_over(stream)

    def _made_one(self, stream: SlotStream, now_ns: int) -> None:
        stream.made += 1
        stream.moved_ns = now_ns
        if stream.made >= stream.most_frames():
            own = stream.made >= stream.request.most_frames
            stream.stop_at(stream.made, "length" if own else "runaway")

    def _free_if_over(self, stream: SlotStream) -> None:
        key = stream.request.key
        if not stream.is_over:
            return
        if self._streams.pop(key, None) is None:
            del self._waiting[key]
        else:
            self._free.append(_slot(stream))
        self._endings.append(Ending(key, stream.why, stream.made))

    def _find(self, key: Key) -> SlotStream | None:
        return self._streams.get(key) or self._waiting.get(key)

    def _moment(self, now_ns: int, rows: int) -> Moment:
        streams = self._streams.values()
        ready = [s for s in streams if s.made > s.rendered and not s.in_renders and not s.gone]
        return Moment(
            now_ns,
            sorted(ready, key=lambda s: s.deadline_ns),
            self.costs,
            self._policy,
            self.costs.frame_ms(rows),
            max(self._lanes.follow.left_ms(now_ns), self._lanes.first.left_ms(now_ns)),
            sum(s.playout.runs_out_ns is None for s in streams),
            self._crowded,
            any(s.wants_first_sound for s in streams),
        )


def _slot(stream: SlotStream) -> int:
    if stream.slot is None:
        raise ValueError(f"{stream.request.key} has no slot")
    return stream.slot


def _ns(ms: float) -> int:
    return int(ms * NS_PER_MS)
