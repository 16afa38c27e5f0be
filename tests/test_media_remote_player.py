import asyncio

import numpy as np
import pytest

from voice_agent.audio import PcmChunk
from voice_agent.clock import NS_PER_MS, ManualClock
from voice_agent.media.remote_player import RemotePlayer

RATE_HZ = 24_000


def sound(ms: int, level: int = 8000) -> PcmChunk:
    return PcmChunk(np.full(RATE_HZ * ms // 1000, level, dtype=np.int16), RATE_HZ)


def ms(samples: int) -> float:
    return 1000 * samples / RATE_HZ


class Stage:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sent: list[tuple[str, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.player = RemotePlayer(self.clock, self._send, self._room)

    def _send(self, reply_id: str, pcm: PcmChunk) -> None:
        self.sent.append((reply_id, len(pcm.samples)))

    async def _room(self) -> None:
        await self.gate.wait()

    def played_ms(self, reply_id: str = "a") -> float:
        return ms(self.player.played_samples(reply_id))


async def test_sound_goes_out_at_once_and_counts_as_played_as_time_passes() -> None:
    stage = Stage()
    await stage.player.write("a", sound(1000))
    await stage.player.write("a", sound(1000))
    assert len(stage.sent) == 2 and stage.played_ms() == 0
    await stage.clock.advance_ms(300)
    assert stage.played_ms() == 300
    await stage.clock.advance_ms(5000)
    assert stage.played_ms() == 2000  # never more than was sent


async def test_a_gap_in_what_was_sent_is_a_gap_in_what_was_played() -> None:
    stage = Stage()
    await stage.player.write("a", sound(100))
    await stage.clock.advance_ms(500)
    await stage.player.write("a", sound(100))
    assert (stage.played_ms(), stage.player.underruns) == (100, 1)
    await stage.clock.advance_ms(50)
    assert stage.played_ms() == 150


async def test_a_reply_behind_another_is_heard_after_it() -> None:
    stage = Stage()
    await stage.player.write("a", sound(1000))
    stage.player.finish("a")
    await stage.player.write("b", sound(1000))
    await stage.clock.advance_ms(1200)
    assert (stage.played_ms("a"), stage.played_ms("b")) == (1000, 200)


async def test_flush_stops_the_count_and_refuses_the_rest() -> None:
    stage = Stage()
    await stage.player.write("a", sound(1000))
    await stage.clock.advance_ms(400)
    assert ms(stage.player.flush()) == 400 and stage.player.refused("a")
    await stage.player.write("a", sound(1000))
    await stage.clock.advance_ms(400)
    assert (stage.played_ms(), len(stage.sent)) == (400, 1)
    await stage.player.write("b", sound(100))
    await stage.clock.advance_ms(50)
    assert stage.played_ms("b") == 50  # it did not have to wait for what was flushed


async def test_one_reply_can_be_refused_alone() -> None:
    stage = Stage()
    await stage.player.write("a", sound(500))
    await stage.player.write("b", sound(500))
    await stage.clock.advance_ms(700)
    assert ms(stage.player.refuse("b")) == 200
    assert not stage.player.refused("a") and stage.played_ms("a") == 500


async def test_drained_waits_until_all_will_have_been_played() -> None:
    stage = Stage()
    waiting = asyncio.create_task(stage.player.drained("a"))
    await stage.player.write("a", sound(1000))
    await stage.clock.advance_ms(1500)
    assert not waiting.done()  # more may come
    stage.player.finish("a")
    await stage.clock.advance_ms(1)
    assert ms(await waiting) == 1000


@pytest.mark.parametrize("how", ["flush", "refuse", "close"])
async def test_whoever_waits_is_let_go(how: str) -> None:
    stage = Stage()
    waiting = [asyncio.create_task(stage.player.drained("a")), asyncio.create_task(stage.player.audible("a"))]
    await stage.clock.advance_ms(10)
    {"flush": stage.player.flush, "refuse": lambda: stage.player.refuse("a"), "close": stage.player.close}[
        how
    ]()
    await stage.clock.advance_ms(1)
    assert [await task for task in waiting] == [0, None]
    await stage.player.write("a", sound(10))
    assert stage.sent == []


async def test_audible_is_the_first_loud_piece_and_none_for_a_reply_without_one() -> None:
    stage = Stage()
    waiting = asyncio.create_task(stage.player.audible("a"))
    await stage.player.write("a", sound(100, level=1))
    await stage.clock.advance_ms(20)
    assert not waiting.done()
    await stage.player.write("a", sound(100))
    await stage.clock.advance_ms(1)
    assert await waiting == 20 * NS_PER_MS
    stage.player.finish("b")
    assert await stage.player.audible("b") is None


async def test_sound_waits_while_the_transport_has_no_room_and_is_dropped_if_it_was_flushed_meanwhile() -> (
    None
):
    stage = Stage()
    stage.gate.clear()
    writing = asyncio.create_task(stage.player.write("a", sound(100)))
    await stage.clock.advance_ms(10)
    assert stage.sent == [] and not writing.done()
    stage.player.refuse("a")
    stage.gate.set()
    await writing
    assert stage.sent == []
