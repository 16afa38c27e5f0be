"""Items over a reply, against a server whose answers are known: real peers, real packets."""

import numpy as np
import pytest

from tests.test_bench_caller import CLOCK, HOLD_MS, tone_server, voiced
from voice_agent.audio import silence
from voice_agent.bench.caller import Caller
from voice_agent.bench.labelled import Item, ItemSound, Right
from voice_agent.bench.overlap import Outcome, over_reply

pytestmark = pytest.mark.loopback


async def put_over(right: Right, ms: float, reply_ms: float = 4000, *, softly: bool = False) -> Outcome:
    said = voiced(ms) // (300 if softly else 1)  # softly: the server does not hear it
    sound = np.concatenate([silence(960), said, silence(4800)]).astype(np.int16)
    item = ItemSound(Item("x-00", "barge", right), sound, 960, 960 + round(ms * 48))
    async with tone_server(reply_ms) as (_, url), Caller(url, CLOCK) as caller:
        return await over_reply(caller, CLOCK, voiced(300), item)


async def test_a_barge_in_that_stops_the_reply_is_obeyed():
    outcome = await put_over(Right.INTERRUPT, 500)
    assert (outcome.correct, outcome.did) == (True, "obeyed")
    assert outcome.stop_ms is not None
    assert HOLD_MS - 20 <= outcome.stop_ms <= HOLD_MS + 120


async def test_a_sound_of_listening_that_stops_the_reply_is_a_false_stop():
    outcome = await put_over(Right.IGNORE, 500)
    assert (outcome.correct, outcome.did, outcome.stop_ms) == (False, "stopped for good", None)


async def test_a_sound_the_reply_goes_on_through_is_ignored_and_adds_nothing():
    outcome = await put_over(Right.IGNORE, 300, softly=True)
    assert (outcome.correct, outcome.did) == (True, "ignored")
    assert outcome.added_ms == 0


async def test_a_reply_that_ends_by_itself_says_nothing_of_a_barge_in():
    outcome = await put_over(Right.INTERRUPT, 300, reply_ms=2500, softly=True)
    assert outcome.correct is None
    assert "by itself" in outcome.void


async def test_a_span_outside_of_the_sound_is_refused():
    async with tone_server() as (_, url), Caller(url, CLOCK) as caller:
        with pytest.raises(ValueError, match="no stretch"):
            await caller.say(silence(960), span=(0, 9000))
