"""The speech engine of slots: one launch thread between messages and the device, under the cycle scheduler.

Messages go into an inbox from the event loop; the thread drains it, looks which launches ended, asks the scheduler what
is next and launches it. It never waits for the device while anything could be launched. An exception here ends the
process, and with it every reply: what can go wrong with one reply alone is told by its row's code.
"""

import asyncio
import gc
import queue
import threading
import time
from collections import deque
from dataclasses import replace
from typing import Any

from voice_agent.clock import NS_PER_S, Clock, ms_between
from voice_agent.engine.costs import Costs
from voice_agent.engine.cycles import CycleScheduler
from voice_agent.engine.lanes import Send
from voice_agent.engine.launches import Cycle, Frames, Prefill, Render, RenderRow
from voice_agent.engine.messages import FromEngine, Loading, ToEngine
from voice_agent.engine.rehearsal import rehearse, replies
from voice_agent.engine.runtime import EngineSpec
from voice_agent.engine.slot_replies import SlotReplies
from voice_agent.engine.slot_reply import SlotReply
from voice_agent.engine.slot_stream import CyclePolicy
from voice_agent.engine.slot_work import SlotWork
from voice_agent.engine.urgency import Key
from voice_agent.models.qwen3_tts.config import RATE_HZ
from voice_agent.models.qwen3_tts.device import Launch
from voice_agent.models.qwen3_tts.openings import Opening
from voice_agent.models.qwen3_tts.serving import Serving, serve

POLL_S = 20e-6  # between looks at launches in flight
COLLECT_NS = 60 * NS_PER_S
BROKEN = -1


def load(spec: EngineSpec, send: Send, clock: Clock) -> "SlotSpeech":
    """Load weights, capture every graph; blocks for a minute."""
    if spec.talker is None:
        raise ValueError("a speech engine needs a talker")
    send(Loading(f"voice ({spec.talker.family})"))
    serving = serve(spec.talker, lambda stage: send(Loading(stage)))
    return SlotSpeech(serving, spec, send, clock)


class SlotSpeech:
    """See child.Engine. `handle` may be called from any thread and never waits."""

    def __init__(
        self, serving: Serving, spec: EngineSpec, send: Send, clock: Clock, policy: CyclePolicy | None = None
    ) -> None:
        self._serving = serving
        self._device = serving.device
        self._spec = spec
        self._clock = clock
        sizes = self._device.sizes
        policy = policy or _policy(sizes.slots, serving.frames_per_token)
        self._scheduler = CycleScheduler(policy, Costs(*self._device.measure()))
        self._replies = SlotReplies(
            serving,
            self._scheduler,
            send,
            clock,
            voice=(spec.talker and spec.talker.voice) or "",
            most=policy.slots + policy.waiting_replies,
        )
        self._launched: list[Launch] = []
        self._inbox: deque[ToEngine] = deque()
        self._changed = threading.Condition()
        self._moved_ns: int | None = None
        self._collected_ns = clock.now_ns()
        threading.Thread(target=self._run, name="speech slots", daemon=True).start()

    @property
    def describe(self) -> dict[str, Any]:
        """The voices, and what is captured."""
        return {
            "talker": self._spec.talker and self._spec.talker.family,
            "voices": list(self._serving.voices),
            "languages": list(self._serving.languages),
            "rate_hz": RATE_HZ,
            "samples_per_frame": self._device.samples_per_frame,
            "slots": self._device.sizes.slots,
            "instructed": list(self._serving.instructed),
            "forced_lengths": self._serving.random,
            "by_word": True,
            "codec": self._device.codec,
            "frame_ms_tried": {str(size): ms for size, ms in self._device.chosen.items()},
            "frame_ms": {
                str(size): round(self._scheduler.costs.frame_ms(size), 2) for size in self._device.sizes.rows
            },
        }

    async def warm_up(self) -> None:
        """Speak to nobody what a caller's first reply would else find to be done once and for all."""
        await asyncio.to_thread(self._rehearse)

    def _rehearse(self) -> None:
        serving, send, heard = self._serving, self._replies.send, queue.SimpleQueue[FromEngine]()
        self._replies.send = heard.put
        try:
            wanted = replies(serving.voices, serving.instructed, self._replies.usual_voice)
            rehearse(self.handle, heard, wanted, self._spec.warm_up_text, serving.languages[0])
        finally:
            self._replies.send, self._replies.work = send, SlotWork()

    def handle(self, message: ToEngine) -> None:
        """Put it where the launch thread finds it."""
        self._inbox.append(message)
        with self._changed:
            self._changed.notify()

    def in_flight(self) -> list[str]:
        """Ids of replies that have not ended."""
        return [request_id for request_id, _ in list(self._replies.held)]

    def busy_ms(self) -> float:
        """How long nothing has ended although something is in flight."""
        moved_ns = self._moved_ns
        return 0.0 if moved_ns is None else ms_between(moved_ns, self._clock.now_ns())

    def work(self) -> dict[str, float]:
        """What the device did so far (see slot_work)."""
        return self._replies.work.totals()

    # --- the launch thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()  # what a reply holds has no cycles; a collection would cost a frame
        due_ns: int | None = None
        while True:
            changed = self._drain() + self._settle()
            now_ns = self._clock.now_ns()
            if changed or (due_ns is not None and now_ns >= due_ns):
                self._launch(self._scheduler.plan(now_ns))
                for ending in self._scheduler.endings():
                    self._replies.end(ending)
                due_ns = self._scheduler.wake_ns(self._clock.now_ns())
            self._rest(due_ns)

    def _rest(self, due_ns: int | None) -> None:
        if self._inbox:
            return
        if self._launched:
            time.sleep(POLL_S)
            return
        self._moved_ns = None
        self._collect()
        with self._changed:
            if not self._inbox:
                self._changed.wait(
                    None if due_ns is None else max(0.0, (due_ns - self._clock.now_ns()) / NS_PER_S)
                )

    def _collect(self) -> None:
        """Automatic collection is off; idle moments do it, seldom."""
        now_ns = self._clock.now_ns()
        if not self._replies.held and now_ns - self._collected_ns > COLLECT_NS:
            gc.collect()
            self._collected_ns = now_ns

    def _drain(self) -> int:
        """Take every message that came; returns how many."""
        count = 0
        while self._inbox:
            self._replies.take(self._inbox.popleft())
            count += 1
        return count

    def _settle(self) -> int:
        """Tell the scheduler what ended; returns how much did."""
        ended = [launch for launch in self._launched if launch.done()]
        if not ended:
            return 0
        self._launched = [launch for launch in self._launched if launch not in ended]
        self._moved_ns = self._clock.now_ns()
        for launch in sorted(
            ended, key=lambda launch: not isinstance(launch.what, Render)
        ):  # sound leaves first
            match launch.what:
                case Frames():
                    self._frames_ended(launch, launch.what)
                case Prefill():
                    self._prefill_ended(launch, launch.what)
                case _:
                    self._render_ended(launch, launch.what)
        return len(ended)

    # --- launches -----------------------------------------------------------------------------------------------

    def _launch(self, cycle: Cycle) -> None:
        for render in cycle.renders:
            rows = [self._render_row(row) for row in render.rows]
            self._in_flight(self._device.render(render, render.bucket, rows, urgent=render.first_sound))
        if cycle.prefill is not None:
            prefill, reply = cycle.prefill, self._replies.held[cycle.prefill.key]
            opening = self._enter(reply, prefill.slot)
            launch = self._device.prefill(prefill, prefill.bucket, prefill.slot, opening, reply.tokens)
            self._in_flight(launch)
        if cycle.frames is not None:
            for row in cycle.frames.rows:
                if row.frame == 0 and self._replies.held[row.key].slot is None:
                    self._enter(self._replies.held[row.key], row.slot)
            slots = [row.slot for row in cycle.frames.rows]
            self._in_flight(self._device.make_frames(cycle.frames, cycle.frames.bucket, slots))

    def _in_flight(self, launch: Launch) -> None:
        self._moved_ns = self._moved_ns or self._clock.now_ns()
        self._launched.append(launch)

    def _render_row(self, row: RenderRow) -> list[int]:
        """As the device counts: the frames of a clip come before the reply's, and its codec has heard them."""
        opening = self._replies.held[row.key].opening
        first = row.first_frame + (opening.before if opening else 0)
        return [row.slot, first, row.frames, int(first == 0)]

    def _enter(self, reply: SlotReply, slot: int) -> Opening:
        opening, speak = reply.opening, reply.speak
        if opening is None:
            raise ValueError("a reply in a slot has a beginning")
        reply.slot = slot
        temperature = self._serving.told.temperature if speak.temperature is None else speak.temperature
        self._device.enter(slot, opening, reply.tokens, speak.seed, temperature)
        return opening

    def _prefill_ended(self, launch: Launch, prefill: Prefill) -> None:
        reply = self._replies.held[prefill.key]
        if reply.opening:
            self._device.keep(prefill.slot, reply.opening)
        took_ms = launch.took_ms()
        self._scheduler.prefill_done(prefill, self._clock.now_ns(), took_ms)
        self._replies.work.did(prefill, took_ms)

    def _frames_ended(self, launch: Launch, frames: Frames) -> None:
        now_ns, took_ms = self._clock.now_ns(), launch.took_ms()
        codes: list[int] = launch.answer.tolist()
        rows = list(zip(frames.rows, codes, strict=False))
        for row, code in rows:
            if code == BROKEN:
                self._replies.fail(row.key)
        stopped = [row.key for row, code in rows if code == self._serving.end_code]
        self._scheduler.frames_done(frames, now_ns, took_ms, stopped)
        self._replies.work.did(frames, took_ms)

    def _render_ended(self, launch: Launch, render: Render) -> None:
        sounds, heard_ms = launch.answer.numpy(), dict[Key, float]()
        for place, row in enumerate(render.rows):
            reply = self._replies.held.get(row.key)
            if reply is None or reply.failed:
                continue
            chunk = reply.sound(sounds[place, : row.frames * self._device.samples_per_frame], row.frames)
            heard_ms[row.key] = 0.0
            if chunk is not None:
                self._replies.send(chunk)
                heard_ms[row.key] = len(chunk.pcm) / 2 / RATE_HZ * 1e3
                reply.first_sound_ns = reply.first_sound_ns or self._clock.now_ns()
        took_ms = launch.took_ms()
        self._scheduler.render_done(render, self._clock.now_ns(), took_ms, heard_ms)
        self._replies.work.did(render, took_ms)


def _policy(slots: int, frames_per_token: int | None) -> CyclePolicy:
    """The one set for every load; a voice that never ends is cut at the pace of its text."""
    policy = CyclePolicy(slots=slots)
    if frames_per_token is None:
        return policy
    return replace(policy, frames_per_text_row=frames_per_token, spare_frames=0)
