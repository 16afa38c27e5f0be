"""One item of the labelled set put to a server while it speaks, or asked of it: what was done, and was that right?

Over a reply: ask, wait until the reply sounds, put the item 1.5 s into it, and see whether the reply is cleared or goes
on to its end. What was ignored must cost no word: the reply's sound is kept for whoever hears it again, `added_ms` is
the silence the hold put into it. A question with pauses: the server has waited if it commits the turn after its true
end. Nothing is judged by text here; an item that the reply's own end or pause spoilt is void.
"""

from dataclasses import dataclass
from typing import Any

from voice_agent.audio import Samples
from voice_agent.bench.caller import Caller
from voice_agent.bench.echo import EchoPath
from voice_agent.bench.labelled import ItemSound, Right
from voice_agent.bench.line import Sent, Stamped
from voice_agent.bench.measure import (
    BARGE_AFTER_MS,
    CLEARED_MARGIN_MS,
    QUIET_MS,
    REPLY_END_S,
    REPLY_S,
    STILL_SPEAKING_MS,
    TAIL_MS,
    told_turn,
    transcript_of,
)
from voice_agent.bench.sound import Window, first_voice, holes, last_voice
from voice_agent.clock import NS_PER_MS, Clock, ms_between

COMMIT_S = 12.0  # the longest patience, and some
VERDICT_MS = 3000.0  # after the item's end a reply that still sounds was not stopped by it
SHORTEST_HOLD_MS = 100.0  # less is a gap between words
JUST_NOW_MS = 50.0
REPLY_TOKENS = (
    60  # a quarter of a minute: small models tell a story for minutes, and what is ignored is waited out
)
WAIT_FOR_VOICE_S = 4.0
HOLD_WITHIN_MS = 1500.0  # a hold begins at the latest so long after the item's end


@dataclass(frozen=True, slots=True)
class Heard:
    """What the server says was heard of a reply, all it wrote, and the reply's sound as it was received."""

    stored: str
    written: str
    samples: Samples


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done about an item. `correct` is None where nothing can be said; `void` then says why."""

    name: str
    kind: str
    correct: bool | None = None
    did: str = ""
    void: str = ""
    stop_ms: float | None = None
    added_ms: float | None = None
    delay_ms: float | None = None  # true end to commit; negative if it was cut off
    heard: Heard | None = None

    @property
    def said(self) -> str:
        """For people."""
        times = {"stop": self.stop_ms, "added": self.added_ms, "delay": self.delay_ms}
        shown = ", ".join(f"{name} {ms:.0f} ms" for name, ms in times.items() if ms is not None)
        mark = {True: "right", False: "WRONG", None: "void"}[self.correct]
        return f"{mark}: {self.void or self.did}{', ' if shown else ''}{shown}"


async def over_reply(caller: Caller, clock: Clock, question: Samples, sound: ItemSound) -> Outcome:
    """Put an item over a reply."""
    item = sound.item
    if item.kind == "echo":
        caller.echoing(EchoPath(item.level_db, item.delay_ms))
    caller.send(
        {"type": "session.update", "session": {"type": "realtime", "max_output_tokens": REPLY_TOKENS}}
    )
    asked = await caller.say(question)
    await caller.heard(lambda: first_voice(caller.sound.windows, asked.last_voiced_ns), REPLY_S)
    voice = first_voice(caller.sound.windows, asked.last_voiced_ns)
    if voice is None:
        return Outcome(item.name, item.kind, void="no reply to speak over")
    if item.kind == "echo" and not item.text:
        sent = Sent(voice.arrival_ns, voice.arrival_ns)
    else:
        await clock.sleep_until(voice.arrival_ns + round(BARGE_AFTER_MS * NS_PER_MS))
        await caller.heard(lambda: _sounds_now(caller, clock), WAIT_FOR_VOICE_S)
        sent = await caller.say(sound.samples, span=(sound.first_sample, sound.end_sample))
        before = last_voice(caller.sound.windows, sent.first_voiced_ns)
        if before is None or ms_between(before.arrival_ns, sent.first_voiced_ns) > STILL_SPEAKING_MS:
            return Outcome(item.name, item.kind, void="the reply was in a pause or over as the item began")
    ended = await _reply_over(caller, voice.arrival_ns, sent, wait=item.right is Right.IGNORE)
    if ended is None:
        return Outcome(item.name, item.kind, void=f"the reply did not end within {REPLY_END_S:g} s")
    return await _judged(caller, sound, (voice, sent), ended)


async def asked_with_pauses(caller: Caller, sound: ItemSound) -> Outcome:
    """Say a question with pauses, or in noise, and see when the server takes the turn for over."""
    item = sound.item
    begin = len(caller.events)
    sent = await caller.say(sound.samples, span=(sound.first_sample, sound.end_sample))
    committed = await caller.event(
        lambda stamped: (
            stamped.kind == "input_audio_buffer.committed" and stamped.arrival_ns > sent.first_voiced_ns
        ),
        COMMIT_S,
    )
    if committed is None:
        return Outcome(item.name, item.kind, correct=False, did="never committed")
    delay_ms = ms_between(sent.last_voiced_ns, committed.arrival_ns)
    turns = sum(stamped.kind == "input_audio_buffer.committed" for stamped in caller.events[begin:])
    if delay_ms < 0:
        return Outcome(item.name, item.kind, correct=False, did="cut off", delay_ms=delay_ms)
    if item.kind == "noise" and not await _answered(caller, sent):
        return Outcome(item.name, item.kind, correct=False, did="not answered", delay_ms=delay_ms)
    did = "waited" if turns <= 1 else f"made {turns} turns of it"
    return Outcome(item.name, item.kind, correct=turns <= 1, did=did, delay_ms=delay_ms)


async def _answered(caller: Caller, sent: Sent) -> bool:
    await caller.heard(lambda: first_voice(caller.sound.windows, sent.last_voiced_ns), REPLY_S)
    return first_voice(caller.sound.windows, sent.last_voiced_ns) is not None


async def _reply_over(caller: Caller, since_ns: int, sent: Sent, *, wait: bool) -> Stamped | None:
    """How the reply ended; `.started` stands for one that should have been stopped and was not."""

    def over(stamped: Stamped) -> bool:
        known = ("output_audio_buffer.cleared", "output_audio_buffer.stopped")
        return stamped.kind in known and stamped.arrival_ns > since_ns

    ended = await caller.event(over, REPLY_END_S if wait else VERDICT_MS / 1000)
    if ended is None and not wait:
        return Stamped(sent.last_voiced_ns, {"type": "output_audio_buffer.started"})
    return ended


async def _judged(caller: Caller, sound: ItemSound, begun: tuple[Window, Sent], ended: Stamped) -> Outcome:
    item, (voice, sent) = sound.item, begun
    if ended.kind == "output_audio_buffer.cleared":
        return await _stopped(caller, sound, begun, ended)
    if item.right is Right.INTERRUPT:
        natural = ended.kind == "output_audio_buffer.stopped"
        why = "the reply ended by itself before a verdict was due"
        if natural and ms_between(sent.first_voiced_ns, ended.arrival_ns) < VERDICT_MS:
            return Outcome(item.name, item.kind, void=why)
        return Outcome(item.name, item.kind, correct=False, did="went on")
    await caller.heard(lambda: _sound_until(caller, ended.arrival_ns, TAIL_MS), 5)
    heard = await _heard(caller, voice, ended, len(caller.sound.windows))
    added_ms = _held_ms(caller, sent)
    return Outcome(item.name, item.kind, correct=True, did="ignored", added_ms=added_ms, heard=heard)


async def _stopped(caller: Caller, sound: ItemSound, begun: tuple[Window, Sent], ended: Stamped) -> Outcome:
    item, (voice, sent) = sound.item, begun
    await caller.heard(lambda: _sound_until(caller, ended.arrival_ns, CLEARED_MARGIN_MS + QUIET_MS), 5)
    windows = caller.sound.windows
    last = last_voice(windows, ended.arrival_ns + round(CLEARED_MARGIN_MS * NS_PER_MS))
    assert last is not None  # the reply's own voice at the least
    heard = await _heard(caller, voice, ended, caller.sound.position(last.arrival_ns) + 3)
    stop_ms = ms_between(sent.first_voiced_ns, last.arrival_ns)
    right = item.right is Right.INTERRUPT
    if right and stop_ms <= 0:
        return Outcome(
            item.name, item.kind, void="the reply was silent by itself as the item began", heard=heard
        )
    return Outcome(
        item.name,
        item.kind,
        correct=right,
        did="obeyed" if right else "stopped for good",
        stop_ms=stop_ms if right else None,
        heard=heard,
    )


async def _heard(caller: Caller, voice: Window, ended: Stamped, end_window: int) -> Heard | None:
    """The reply that ended, from just before its voice up to a window; None if the server does not tell."""
    response_id = ended.event.get("response_id")
    told: dict[str, Any] = told_turn(await caller.timeline(), response_id)
    if "heard_text" not in told:
        return None
    windows = caller.sound.windows[:end_window]
    end_sample = windows[-1].first_sample + windows[-1].samples
    samples = caller.sound.samples(max(0, voice.first_sample - 4800), end_sample)
    written = str(told.get("text") or "") or transcript_of(caller, response_id)
    return Heard(str(told["heard_text"]), written, samples)


def _held_ms(caller: Caller, sent: Sent) -> float:
    """Silence that a sender without anything to send put in, from the item on until a hold would have ended."""
    first = caller.sound.windows[caller.sound.position(sent.first_voiced_ns)].first_sample
    until_ns = sent.last_voiced_ns + round(HOLD_WITHIN_MS * NS_PER_MS)
    position = min(caller.sound.position(until_ns), len(caller.sound.windows) - 1)
    latest = caller.sound.windows[position].first_sample
    found = holes(caller.sound.samples(first), SHORTEST_HOLD_MS)
    return sum(hole.duration_ms for hole in found if first + hole.first_sample <= latest)


def _sounds_now(caller: Caller, clock: Clock) -> bool:
    """Whether the reply is in the middle of a word: no pause of its own hides what the item does to it."""
    now_ns = clock.now_ns()
    last = last_voice(caller.sound.windows, now_ns)
    return last is not None and ms_between(last.arrival_ns, now_ns) < JUST_NOW_MS


def _sound_until(caller: Caller, instant_ns: int, behind_ms: float) -> bool:
    return caller.sound.windows[-1].arrival_ns > instant_ns + round(behind_ms * NS_PER_MS)
