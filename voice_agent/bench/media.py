"""`voice-agent bench media`: what a session costs the server's CPU, and how many one core carries until pacing slips.

Starts a server of its own with scripted engines (their own processes, whose CPU time is told apart) and callers in
another process (plain_caller). First sessions of each kind are held for a while: CPU time of the server's process, less
that of the same server without calls, divided by the sessions. Then the server gets one core for itself, and talking
WebRTC sessions are added until more than 1 % of the frames leave later than BOUND_MS after their instant, by the
server's own pacer. CPU time is a session's true cost on any machine; pacing only where nobody else needs the cores.
"""

import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import httpx

from voice_agent.audio import FRAME_MS
from voice_agent.bench import arguments
from voice_agent.bench.callers_process import CallersProcess, Calls, Count, Transport, callers_process
from voice_agent.bench.machine import commit, machine
from voice_agent.bench.own_server import OwnServer, Spent, own_server
from voice_agent.bench.prepared import APPEND_MS, Counts
from voice_agent.bench.questions import QUESTIONS
from voice_agent.bench.spoken import Voice, cache_folder
from voice_agent.errors import VoiceAgentError
from voice_agent.models.store import Store

ENOUGH = 0.95  # of what is due in each direction; below it the callers or the network were measured
BOUND_MS = 10.0  # half a frame: what every listener's jitter buffer takes without growing
SETTLE_S = 3.0  # handshakes and greetings are not what a session costs
TALK_SETTLE_S = 8.0  # until all have begun to talk
KINDS: tuple[tuple[Transport, bool], ...] = (
    ("webrtc", False),
    ("webrtc", True),
    ("websocket", False),
    ("websocket", True),
)
TOML = """
profile = "scripted"
[session]
max_sessions = 400
[thinker.options]
texts = ["Once upon a time an old sailor lived near the harbour. Every evening he painted little wooden boats there."]
first_ms = 100
piece_ms = 20
[talker]
max_jobs = 400
"""


@dataclass(frozen=True)
class Point:
    """One measurement: so many sessions of a kind for so long."""

    transport: Transport
    talks: bool
    sessions: int
    seconds: float
    spent: Spent
    counts: Counts  # what came at the callers
    pace: dict[str, float]  # frames by the server's pacer: p50_ms, p99_ms, max_ms late, n

    @property
    def faults(self) -> list[str]:
        """Why this is no measurement of what it is called; empty if it is one."""
        due = self.seconds * self.sessions * 1000
        interval_ms = FRAME_MS if self.transport == "webrtc" else APPEND_MS
        found: list[str] = []
        if self.counts.sent * interval_ms < ENOUGH * due:
            found.append("the callers sent too little")
        if self.transport == "webrtc" and self.counts.received_ms < ENOUGH * due:
            found.append("too little came back")
        if self.talks and not self.counts.answers:
            found.append("nobody was answered")
        return found

    @property
    def slipped(self) -> bool:
        """Whether frames left too late."""
        return self.pace.get("p99_ms", 0.0) > BOUND_MS


def main(argv: Sequence[str]) -> int:
    """Measure and print; 1 if a row is not what it is called (it says why), 2 if nothing could be measured."""
    parser = arguments.parser("voice-agent bench media", (__doc__ or "").split("\n")[0])
    sessions, seconds = arguments.whole(0), arguments.number(1)
    parser.add_argument("--sessions", type=sessions, default=8, help="of each kind, for the cost of one")
    parser.add_argument("--seconds", type=seconds, default=20.0, help="how long each kind is measured")
    parser.add_argument(
        "--ramp",
        type=_steps,
        default=(20, 30, 40, 50, 60),
        help="talking sessions on one core, e.g. 20,40; 0: none",
    )
    parser.add_argument("--ramp-seconds", type=seconds, default=10.0, help="how long each step is measured")
    parser.add_argument("--json", type=arguments.file_to_write, help="write the results here")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # our server ends with us
    try:
        questions = [Voice(Store(cache_folder())).sound(text) for text in QUESTIONS[:4]]
        with own_server(TOML) as server, callers_process(server.url, questions) as callers:
            bench = _Bench(server, callers)
            nothing = bench.nothing(options.seconds / 2)
            points = [
                bench.point(transport, talks, options.sessions, options.seconds)
                for transport, talks in (KINDS if options.sessions else ())
            ]
            ramp = bench.ramp(options.ramp, options.ramp_seconds)
    except (VoiceAgentError, httpx.HTTPError) as error:
        print(f"voice-agent: {error}", file=sys.stderr)
        return 2
    print("\n".join(table(nothing, points, ramp)))
    if options.json:
        options.json.write_text(json.dumps(_report(nothing, points, ramp), indent=1), encoding="utf-8")
    return 1 if any(point.faults for point in (*points, *_kept(ramp))) else 0


class _Bench:
    """A server and its callers."""

    def __init__(self, server: OwnServer, callers: CallersProcess) -> None:
        self._server = server
        self._callers = callers

    def nothing(self, seconds: float) -> Spent:
        """What the server spends in a second without any call."""
        time.sleep(SETTLE_S)
        before = self._server.spent()
        time.sleep(seconds)
        spent = self._server.spent().since(before)
        return Spent(spent.server_s / seconds, spent.engines_s / seconds)

    def point(self, transport: Transport, talks: bool, sessions: int, seconds: float) -> Point:
        """Hold so many sessions of a kind; they are hung up afterwards."""
        try:
            self._callers.tell(Calls(sessions, transport, talks))
            time.sleep(TALK_SETTLE_S if talks else SETTLE_S)
            return self._held(transport, talks, sessions, seconds)
        finally:
            self._callers.tell(Calls(0))

    def ramp(self, steps: Sequence[int], seconds: float) -> list[Point]:
        """Add talking sessions, the server on a core of its own, until frames leave late."""
        points: list[Point] = []
        if steps:
            self._server.apart()
        for sessions in steps:
            self._callers.tell(Calls(sessions, "webrtc", talks=True))
            time.sleep(TALK_SETTLE_S)
            points.append(self._held("webrtc", True, sessions, seconds))
            if points[-1].slipped:
                break
        self._callers.tell(Calls(0))
        return points

    def _held(self, transport: Transport, talks: bool, sessions: int, seconds: float) -> Point:
        self._callers.tell(Count())
        before, began_s = self._server.spent(), time.monotonic()
        time.sleep(seconds)
        spent, lasted_s = self._server.spent().since(before), time.monotonic() - began_s
        counts = self._callers.tell(Count())
        pace = httpx.get(f"{self._server.url}/operator/pace?seconds={lasted_s}", trust_env=False).json()
        return Point(transport, talks, sessions, lasted_s, spent, counts, pace)


def table(nothing: Spent, points: Sequence[Point], ramp: Sequence[Point]) -> list[str]:
    """The report for people; CPU in ms a second."""
    lines = [
        f"without calls: {1000 * nothing.server_s:.1f} ms/s of CPU in the server's process, "
        f"{1000 * nothing.engines_s:.1f} in its engines",
        f"{'a session':24}{'server ms/s':>12}{'engines ms/s':>14}{'a core':>8}{'answers':>9}{'sound':>7}",
    ]
    for point in points:
        server_ms, engines_ms = each_ms(point, nothing)
        name = f"{point.transport}, {'talking' if point.talks else 'idle'}"
        lines.append(
            f"{name:24}{server_ms:12.2f}{engines_ms:14.2f}{1000 / server_ms:8.0f}{point.counts.answers:9}"
            f"{_sound(point):7.2f}{_doubts(point)}"
        )
    if ramp:
        lines.append(
            f"{'talking on one core':24}{'core used':>12}{'p50 late':>10}{'p99 late':>10}{'max':>8}"
            f"{'answers':>9}{'sound':>7}"
        )
    for point in ramp:
        pace = point.pace
        lines.append(
            f"{point.sessions:<24}{100 * point.spent.server_s / point.seconds:10.0f} %{pace.get('p50_ms', 0):7.2f} ms"
            f"{pace.get('p99_ms', 0):7.2f} ms{pace.get('max_ms', 0):8.1f}"
            f"{point.counts.answers:9}{_sound(point):7.2f}{'' if point.slipped else _doubts(point)}"
        )
    if ramp:
        kept = max((point.sessions for point in _kept(ramp)), default=0)
        lines.append(f"pace kept (p99 at most {BOUND_MS:g} ms late) with {kept} talking sessions")
    return lines


def _kept(ramp: Sequence[Point]) -> list[Point]:
    """The steps at which frames left in time; that sound is missing in the others is their result."""
    return [point for point in ramp if not point.slipped]


def _sound(point: Point) -> float:
    """Seconds of sound that a session got in a second: 1 by WebRTC; by WebSocket only while it is answered."""
    return point.counts.received_ms / 1000 / point.seconds / point.sessions


def _doubts(point: Point) -> str:
    return "  NOT VALID: " + ", ".join(point.faults) if point.faults else ""


def each_ms(point: Point, nothing: Spent) -> tuple[float, float]:
    """CPU ms a second for one session, in the server's process and in the engines."""
    server_s = point.spent.server_s / point.seconds - nothing.server_s
    engines_s = point.spent.engines_s / point.seconds - nothing.engines_s
    return 1000 * server_s / point.sessions, 1000 * engines_s / point.sessions


def _report(nothing: Spent, points: Sequence[Point], ramp: Sequence[Point]) -> dict[str, Any]:
    sides = [each_ms(point, nothing) for point in points]
    return {
        "command": sys.argv,
        "commit": commit(),
        "machine": machine(),
        "bound_ms": BOUND_MS,
        "nothing": asdict(nothing),
        "sessions": [
            {**asdict(point), "server_ms_per_s": server_ms, "engines_ms_per_s": engines_ms}
            for point, (server_ms, engines_ms) in zip(points, sides, strict=True)
        ],
        "ramp": [asdict(point) for point in ramp],
    }


def _steps(text: str) -> tuple[int, ...]:
    return tuple(step for step in arguments.several(arguments.whole(0))(text) if step)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
