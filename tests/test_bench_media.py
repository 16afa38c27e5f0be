"""The media bench: its cheap callers' script, what makes a row no measurement, its table, and the whole once."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.model_weights import weights
from voice_agent.bench.media import Point, each_ms, main, table
from voice_agent.bench.own_server import Spent
from voice_agent.bench.plain_caller import Pacer, PlainCaller
from voice_agent.bench.prepared import PATIENCE_S, Counts, Spoken, Talk
from voice_agent.clock import NS_PER_S, ManualClock

SPOKEN = Spoken([b"room 0", b"room 1"], [[b"what", b"is it"], [b"who"]])
NOTHING = Spent(0.1, 0.02)
HEARD = Counts(sent=4000, received_ms=80_000, packets=4000, checked=80, answers=3)
TALKING = Point(
    "webrtc", True, 4, 20.0, Spent(10.0, 1.2), HEARD, {"p50_ms": 0.5, "p99_ms": 3.0, "max_ms": 7.0}
)


def test_a_caller_asks_waits_for_the_answer_and_asks_the_next_question() -> None:
    counts = Counts()
    talk = Talk(SPOKEN, 0, counts, asks_ns=100)
    assert [talk.next(now) for now in (0, 100, 120)] == [b"room 1", b"what", b"is it"]
    assert talk.next(140) in SPOKEN.room
    talk.answered()
    assert talk.next(160) == b"who"
    assert (counts.sent, counts.answers, counts.given_up) == (5, 1, 0)


def test_an_answer_nobody_asked_for_does_not_count() -> None:
    counts = Counts()
    Talk(SPOKEN, 0, counts, asks_ns=None).answered()
    assert counts.answers == 0


def test_an_answer_that_does_not_come_is_given_up_and_the_next_question_asked() -> None:
    counts = Counts()
    talk = Talk(SPOKEN, 1, counts, asks_ns=0)
    assert talk.next(0) == b"who"
    assert talk.next(int(PATIENCE_S * NS_PER_S) + 1) == b"what"
    assert (counts.answers, counts.given_up) == (0, 1)


def test_an_idle_caller_never_asks() -> None:
    talk = Talk(SPOKEN, 0, Counts(), asks_ns=None)
    assert {talk.next(second * NS_PER_S) for second in range(100)} == set(SPOKEN.room)


class Sending(PlainCaller):
    """A caller without a connection: notes when it was to send."""

    def __init__(self) -> None:
        self.sent_ms: list[int] = []

    def send_next(self, now_ns: int) -> None:
        """Note it."""
        self.sent_ms.append(now_ns // 1_000_000)


async def test_the_pacer_spreads_its_callers_and_lives_through_a_hang_up_while_it_waits() -> None:
    clock = ManualClock()
    pacer = Pacer(clock)
    first, second, third = Sending(), Sending(), Sending()
    pacer.callers = [first, second]
    task = asyncio.create_task(pacer.run())
    await clock.advance_ms(100)
    assert first.sent_ms == [20, 40, 60, 80, 100] and second.sent_ms == [10, 30, 50, 70, 90]
    pacer.callers = []  # it waits for its next instant meanwhile
    await clock.advance_ms(20)
    assert len(first.sent_ms) + len(second.sent_ms) == 10
    pacer.callers = [third]
    await asyncio.sleep(0.05)
    await clock.advance_ms(60)
    assert not task.done() and len(third.sent_ms) >= 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("counts", "faults"),
    [
        (HEARD, []),
        (replace(HEARD, sent=3700), ["the callers sent too little"]),
        (replace(HEARD, received_ms=70_000), ["too little came back"]),
        (replace(HEARD, answers=0), ["nobody was answered"]),
    ],
)
def test_a_row_says_why_it_is_no_measurement(counts: Counts, faults: list[str]) -> None:
    point = replace(TALKING, counts=counts)
    assert point.faults == faults
    assert any("NOT VALID" in line for line in table(NOTHING, [point], [])) == bool(faults)


def test_a_silent_websocket_gets_no_sound_and_is_a_measurement() -> None:
    counts = Counts(sent=800)
    assert replace(TALKING, transport="websocket", talks=False, counts=counts).faults == []


def test_a_session_costs_what_the_calls_added() -> None:
    assert each_ms(TALKING, NOTHING) == pytest.approx((1000 * (0.5 - 0.1) / 4, 1000 * (0.06 - 0.02) / 4))


def test_the_table_tells_how_many_a_core_carried() -> None:
    pace = {"p50_ms": 2.0, "p99_ms": 12.0, "max_ms": 40.0}
    late = replace(TALKING, sessions=8, pace=pace)
    lines = table(NOTHING, [TALKING], [TALKING, late])
    assert lines[-1].endswith("with 4 talking sessions")
    assert not any("NOT VALID" in line for line in lines)


def test_a_cost_is_not_valid_where_frames_left_late_and_too_few() -> None:
    starved = replace(TALKING, counts=replace(HEARD, received_ms=50_000), pace={"p99_ms": 90.0})
    assert starved.slipped and starved.faults == ["too little came back"]


@pytest.mark.slow
@pytest.mark.loopback
@pytest.mark.weights
def test_all_kinds_are_measured_one_after_the_other(tmp_path: Path) -> None:
    weights("piper-joe")
    file = tmp_path / "media.json"
    assert main(["--sessions", "1", "--seconds", "12", "--ramp", "0", "--json", str(file)]) in {0, 1}
    rows = json.loads(file.read_text())["sessions"]
    assert [row["counts"]["sent"] > 0 for row in rows] == [True] * 4
    assert [row["counts"]["answers"] > 0 for row in rows] == [False, True, False, True]
