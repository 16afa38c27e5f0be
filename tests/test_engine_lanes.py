"""A lane's bookkeeping: one ending for each request, whatever happens to it."""

import queue
import threading
import time
from collections.abc import Iterator

import pytest

from voice_agent.clock import MonotonicClock
from voice_agent.engine.lanes import Job, Lane, Lanes, Work
from voice_agent.engine.messages import Failed, Finished, FromEngine, Transcript


class Post(queue.Queue[FromEngine]):
    """What the lane sent."""

    def next(self) -> FromEngine:
        return self.get(timeout=5)


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def lane_of(post: Post, capacity: int = 2) -> Lane:
    return Lane("lane", post.put, MonotonicClock(), capacity)


def held_by(gate: threading.Event, running: threading.Event | None = None) -> Work:
    """Work that goes on until the gate opens, deaf to an abort meanwhile, as a model step is."""

    def work(job: Job) -> Transcript:
        if running:
            running.set()
        gate.wait(5)
        return Transcript(job.request_id, job.epoch, "done", "en")

    return work


def quick(job: Job) -> Transcript:
    return Transcript(job.request_id, job.epoch, "quick", "en")


def run_one(lane: Lane, gate: threading.Event) -> None:
    running = threading.Event()
    lane.put("running", 1, held_by(gate, running))
    assert running.wait(5)


def test_a_full_lane_fails_the_newcomer_as_busy_and_keeps_the_others(
    post: Post, gate: threading.Event
) -> None:
    lane = lane_of(post)
    run_one(lane, gate)
    for name in ("a", "b", "c"):
        lane.put(name, 1, quick)
    refused = post.next()
    assert (
        isinstance(refused, Failed)
        and refused.request_id == "c"
        and refused.code == "busy"
        and refused.retryable
    )
    assert lane.in_flight() == ["running", "a", "b"]
    gate.set()
    assert [getattr(post.next(), "request_id", "") for _ in range(3)] == ["running", "a", "b"]


def test_the_result_of_a_step_that_was_aborted_is_dropped(post: Post, gate: threading.Event) -> None:
    lane = lane_of(post)
    run_one(lane, gate)
    lane.abort("running", 1)
    assert lane.in_flight() == ["running"] and post.empty()
    gate.set()
    assert post.next() == Finished("running", 1, "aborted")


def test_an_abort_of_another_attempt_is_ignored(post: Post, gate: threading.Event) -> None:
    lane = lane_of(post)
    run_one(lane, gate)
    lane.abort("running", 2)
    lane.abort("unknown", 1)
    gate.set()
    assert isinstance(post.next(), Transcript)


def test_a_newer_attempt_ends_the_older_and_an_older_one_ends_itself(
    post: Post, gate: threading.Event
) -> None:
    lane = lane_of(post)
    run_one(lane, gate)
    lane.put("a", 5, quick)
    lane.put("a", 4, quick)
    assert post.next() == Finished("a", 4, "aborted")
    lane.put("a", 6, quick)
    assert post.next() == Finished("a", 5, "aborted")
    gate.set()
    assert [post.next() for _ in range(2)][1] == Transcript("a", 6, "quick", "en")


def test_busy_tells_how_long_a_step_has_not_moved(post: Post, gate: threading.Event) -> None:
    lane = lane_of(post)
    assert lane.busy_ms() == 0
    run_one(lane, gate)
    first = lane.busy_ms()
    assert 0 <= first < lane.busy_ms()
    gate.set()
    post.next()


def test_who_gives_way_goes_on_when_the_lane_is_idle_or_after_the_limit(
    post: Post, gate: threading.Event
) -> None:
    lane = lane_of(post)
    lane.wait_idle(60)  # nothing to wait for
    run_one(lane, gate)
    lane.wait_idle(0.01)  # not for ever
    assert lane.in_flight() == ["running"]
    waiter = threading.Thread(target=lane.wait_idle, args=(60,))
    waiter.start()
    gate.set()
    waiter.join(5)
    assert not waiter.is_alive()


def test_lanes_work_beside_each_other_and_a_request_goes_where_the_fewest_are(
    post: Post, gate: threading.Event
) -> None:
    lanes = Lanes([lane_of(post), lane_of(post)])
    running = threading.Event()
    lanes.put("held", 1, held_by(gate, running))
    assert running.wait(5)
    lanes.put("quick", 1, quick)  # behind `held` it would wait for the gate
    assert post.next() == Transcript("quick", 1, "quick", "en")
    assert lanes.in_flight() == ["held"] and lanes.busy_ms() > 0
    lanes.put("held", 2, quick)  # to the lane that holds the older one, which ends first
    lanes.abort("held", 1)
    gate.set()
    assert [post.next(), post.next()] == [
        Finished("held", 1, "aborted"),
        Transcript("held", 2, "quick", "en"),
    ]


def test_several_lanes_are_waited_for_within_one_limit(post: Post, gate: threading.Event) -> None:
    busy = [lane_of(post) for _ in range(4)]
    for lane in busy:
        run_one(lane, gate)
    began_s = time.monotonic()
    Lanes(busy).wait_idle(0.5)
    assert 0.5 <= time.monotonic() - began_s < 1.5  # four limits are 2 s
