"""One question, or one barge-in, in a call: what is said, what is waited for, and what the stamps mean.

voice-to-voice  last voiced packet sent → arrival of the packet with which the reply's voice begins
network         voice-to-voice minus the server's own total: both ways, codecs, pacing, this client
stop            first voiced packet of a barge-in sent → arrival of the reply's last voiced packet, 300 ms of quiet
                behind it; what arrives within 200 ms of the server's "cleared" still belongs to the old reply
cancel          first voiced packet of a barge-in sent → the first timeline in which nothing that was in flight is
let go          the server's "cleared", which it says at its verdict → that same timeline; polled every 20 ms

A reply that sounds before the question is over, or never, is a failed turn: it has no number and is counted.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from voice_agent.audio import Samples
from voice_agent.bench.line import Sent, Stamped
from voice_agent.bench.sound import Hole, ReceivedSound, Window, first_voice, holes, is_quiet, last_voice
from voice_agent.clock import NS_PER_MS, Clock, ms_between

GREETING_S = 1.0  # a greeting that is not announced by then is none
REPLY_S = 40.0
REPLY_END_S = 90.0
TAIL_MS = 300.0  # sound still on its way when the server says it played the last
BEGUN_S = 1.0
BARGE_AFTER_MS = 1500.0
STILL_SPEAKING_MS = 300.0
QUIET_MS = 300.0
CLEARED_MARGIN_MS = 200.0
VERDICT_S = 6.0
CANCEL_S = 10.0
POLL_MS = 20.0
STAGES = ("recognizer", "thinker", "talker", "playout")


class Call(Protocol):
    """A call as a measurement sees it, over whichever transport; see caller.Caller."""

    sound: ReceivedSound
    events: list[Stamped]

    async def say(self, samples: Samples, begun: asyncio.Event | None = None) -> Sent: ...  # noqa: D102
    async def event(self, wanted: Callable[[Stamped], bool], timeout_s: float) -> Stamped | None: ...  # noqa: D102
    async def heard(self, condition: Callable[[], Any], timeout_s: float) -> bool: ...  # noqa: D102
    async def timeline(self) -> dict[str, Any]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Turn:
    """What one question gave; with `failure` set only the question and what was heard until then."""

    question: str
    voice_to_voice_ms: float | None = None
    failure: str | None = None
    transcript: str = ""  # the Thinker's text, as the server showed it
    reply: Samples | None = None  # 48 kHz, from just before its voice to its end
    holes: list[Hole] = field(default_factory=list[Hole])
    server_underruns: int = 0
    parts_ms: dict[str, float] = field(default_factory=dict[str, float])
    server_total_ms: float | None = None

    @property
    def network_ms(self) -> float | None:
        """What the server could not see of the voice-to-voice time."""
        if self.voice_to_voice_ms is None or self.server_total_ms is None:
            return None
        return self.voice_to_voice_ms - self.server_total_ms

    @property
    def sum_error_ms(self) -> float | None:
        """How far the server's parts are from its own total; they must make it up."""
        return None if self.server_total_ms is None else sum(self.parts_ms.values()) - self.server_total_ms


@dataclass(frozen=True, slots=True)
class Barge:
    """What one barge-in gave; `void` says why it measures nothing (the reply was silent by itself)."""

    stop_ms: float | None = None
    cancel_ms: float | None = None
    let_go_ms: float | None = None
    void: str | None = None
    failure: str | None = None


async def settle(caller: Call) -> None:
    """Let a greeting play to its end, if there is one."""
    if await caller.event(lambda stamped: stamped.kind == "response.created", GREETING_S) is not None:
        await caller.event(lambda stamped: stamped.kind == "output_audio_buffer.stopped", REPLY_END_S)
        await asyncio.sleep(TAIL_MS / 1000)


async def ask(caller: Call, clock: Clock, question: str, samples: Samples, *, to_end: bool = True) -> Turn:
    """Say a question, hear the reply to its end (or only its first second), and read what the server says of it."""
    begin_ns = clock.now_ns()
    sent = await caller.say(samples)
    await caller.heard(lambda: first_voice(caller.sound.windows, sent.last_voiced_ns), REPLY_S)
    voice = first_voice(caller.sound.windows, sent.last_voiced_ns)
    if voice is None:
        state = (await caller.timeline()).get("state", "unknown")
        why = f"no reply within {REPLY_S:g} s, the session is {state}{_server_error(caller, begin_ns)}"
        return Turn(question, failure=why)
    early = first_voice(caller.sound.windows, begin_ns)
    if early is not None and early.arrival_ns < sent.last_voiced_ns:
        return Turn(question, failure="the reply began before the question was over")
    if not to_end:
        return await _begun(caller, question, sent, voice)
    end = await _reply_end(caller, voice.arrival_ns)
    if end is None:
        return Turn(question, failure=f"the reply did not end within {REPLY_END_S:g} s")
    reply = caller.sound.samples(max(0, voice.first_sample - 4800))
    voice_ms = ms_between(sent.last_voiced_ns, voice.arrival_ns)
    timeline = await caller.timeline()
    joined = told_turn(timeline, end.event.get("response_id"))
    return Turn(
        question,
        voice_to_voice_ms=voice_ms,
        transcript=transcript_of(caller, end.event.get("response_id")),
        reply=reply,
        holes=holes(reply),
        server_underruns=int(timeline.get("underruns") or 0),
        parts_ms=cast(dict[str, float], joined.get("parts_ms") or {}),
        server_total_ms=joined.get("total_ms"),
    )


async def _begun(caller: Call, question: str, sent: Sent, voice: Window) -> Turn:
    """A turn of which a second was heard: its times, and the gaps in that second."""
    await asyncio.sleep(BEGUN_S)
    timeline = await caller.timeline()
    joined = told_turn(timeline, None)
    return Turn(
        question,
        voice_to_voice_ms=ms_between(sent.last_voiced_ns, voice.arrival_ns),
        holes=holes(caller.sound.samples(max(0, voice.first_sample - 4800))),
        server_underruns=int(timeline.get("underruns") or 0),
        parts_ms=cast(dict[str, float], joined.get("parts_ms") or {}),
        server_total_ms=joined.get("total_ms"),
    )


async def time_to_voice(caller: Call, samples: Samples) -> float | None:
    """Voice-to-voice alone; None if no reply came."""
    sent = await caller.say(samples)
    await caller.heard(lambda: first_voice(caller.sound.windows, sent.last_voiced_ns), REPLY_S)
    voice = first_voice(caller.sound.windows, sent.last_voiced_ns)
    return None if voice is None else ms_between(sent.last_voiced_ns, voice.arrival_ns)


async def interrupt(caller: Call, clock: Clock, question: Samples, barge: Samples) -> Barge:
    """Ask for a long reply, speak over it 1.5 s after it began, and time how it stops."""
    asked = await caller.say(question)
    await caller.heard(lambda: first_voice(caller.sound.windows, asked.last_voiced_ns), REPLY_S)
    voice = first_voice(caller.sound.windows, asked.last_voiced_ns)
    if voice is None:
        return Barge(failure="no reply to speak over")
    await clock.sleep_until(voice.arrival_ns + round(BARGE_AFTER_MS * NS_PER_MS))
    held = in_flight(await caller.timeline())
    begun = asyncio.Event()
    speaking = asyncio.create_task(caller.say(barge, begun))
    emptied = asyncio.create_task(_emptied_ns(caller, clock, held, begun))
    try:
        sent = await speaking
        stop = await _stop(caller, sent)
        emptied_ns = await emptied
    finally:
        speaking.cancel()
        emptied.cancel()
        await asyncio.gather(speaking, emptied, return_exceptions=True)
    if held and emptied_ns is None and stop.stop_ms is not None:
        return Barge(failure=f"something of the reply was still in flight after {CANCEL_S:g} s")
    cleared = await _cleared(caller, sent)
    if stop.stop_ms is None or emptied_ns is None or cleared is None:
        return stop
    return Barge(
        stop.stop_ms,
        cancel_ms=ms_between(sent.first_voiced_ns, emptied_ns),
        let_go_ms=max(0.0, ms_between(cleared.arrival_ns, emptied_ns)),
    )


async def hear_out(caller: Call, since_ns: int) -> None:
    """Wait until the reply that came after a barge-in was played, or none seems to come."""
    cleared = await caller.event(
        lambda stamped: stamped.kind == "output_audio_buffer.cleared" and stamped.arrival_ns > since_ns, 0.1
    )
    if cleared is not None:
        after_ns = cleared.arrival_ns
        await caller.event(
            lambda stamped: stamped.kind == "output_audio_buffer.stopped" and stamped.arrival_ns > after_ns,
            REPLY_S,
        )
    await asyncio.sleep(TAIL_MS / 1000)


def in_flight(timeline: Mapping[str, Any]) -> set[tuple[str, str]]:
    """(stage, id) of everything that a timeline says is in flight."""
    stages = cast(Mapping[str, list[str]], timeline.get("in_flight") or {})
    return {(stage, work_id) for stage in STAGES for work_id in stages.get(stage, [])}


async def _stop(caller: Call, sent: Sent) -> Barge:
    """Find where the reply stopped; needs 300 ms of sound behind it."""
    windows = caller.sound.windows
    before = last_voice(windows, sent.first_voiced_ns)
    if before is None or ms_between(before.arrival_ns, sent.first_voiced_ns) > STILL_SPEAKING_MS:
        return Barge(void="the reply was in a pause or over when the barge-in began")
    cleared = await _cleared(caller, sent)
    if cleared is None:
        return Barge(failure=f"the reply was not cleared within {VERDICT_S:g} s")
    margin_ns = round((CLEARED_MARGIN_MS + QUIET_MS) * NS_PER_MS)
    await caller.heard(lambda: windows[-1].arrival_ns > cleared.arrival_ns + margin_ns, REPLY_S)
    last = last_voice(windows, cleared.arrival_ns + round(CLEARED_MARGIN_MS * NS_PER_MS))
    if last is None or not is_quiet(windows, last, QUIET_MS):
        return Barge(failure="the reply went on after it was cleared")
    stop_ms = ms_between(sent.first_voiced_ns, last.arrival_ns)
    return Barge(stop_ms) if stop_ms > 0 else Barge(void="the reply ended by itself as the barge-in began")


async def _cleared(caller: Call, sent: Sent) -> Stamped | None:
    """The server's word that the reply is dropped; it is sent at the verdict."""
    return await caller.event(
        lambda stamped: (
            stamped.kind == "output_audio_buffer.cleared" and stamped.arrival_ns > sent.first_voiced_ns
        ),
        VERDICT_S,
    )


async def _emptied_ns(
    caller: Call, clock: Clock, held: set[tuple[str, str]], begun: asyncio.Event
) -> int | None:
    """When a timeline first showed nothing of `held`; None if there was nothing, or it never ended."""
    await begun.wait()
    if not held:
        return None
    limit_ns = clock.now_ns() + round(CANCEL_S * 1000 * NS_PER_MS)
    while (asked_ns := clock.now_ns()) < limit_ns:
        if not held & in_flight(await caller.timeline()):
            return clock.now_ns()
        await clock.sleep_until(asked_ns + round(POLL_MS * NS_PER_MS))
    return None


async def _reply_end(caller: Call, since_ns: int) -> Stamped | None:
    """The event that says the reply, or the one that replaced it, was played to its end."""
    end = await caller.event(
        lambda stamped: stamped.kind == "output_audio_buffer.stopped" and stamped.arrival_ns > since_ns,
        REPLY_END_S,
    )
    await asyncio.sleep(TAIL_MS / 1000)
    return end


def transcript_of(caller: Call, response_id: str | None) -> str:
    """All of a reply's text, tools' lead-ins included."""
    done = [s.event for s in caller.events if s.kind == "response.output_audio_transcript.done"]
    return " ".join(
        str(event.get("transcript", "")) for event in done if event.get("response_id") == response_id
    )


def told_turn(timeline: Mapping[str, Any], response_id: str | None) -> dict[str, Any]:
    """The timeline's turn for this reply (the wire may put a prefix before its id); its last one where ids differ."""
    turns = cast(list[dict[str, Any]], timeline.get("turns") or [])
    named = (turn for turn in turns if turn.get("reply_id") and str(response_id).endswith(turn["reply_id"]))
    return next(named, turns[-1] if turns else {})


def _server_error(caller: Call, since_ns: int) -> str:
    """What the server said went wrong since then, for the person who reads the report."""
    for stamped in caller.events:
        if stamped.arrival_ns < since_ns:
            continue
        response = cast(dict[str, Any], stamped.event.get("response") or {})
        details = cast(dict[str, Any], response.get("status_details") or {})
        error: Any = stamped.event.get("error") or details.get("error")
        if isinstance(error, dict):
            return f": {cast(dict[str, Any], error).get('message')}"
    return ""
