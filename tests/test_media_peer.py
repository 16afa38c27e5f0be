# pyright: reportPrivateUsage=false
"""Real peers on loopback: life and death of a connection, and the bug cases of the media room."""

import asyncio
import gc
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from aiortc.rtp import RtpPacket

from tests.links import PIECE, Caller, Link, Packets, Voice, tone_48k
from voice_agent.audio import MicrophoneFrame, PcmChunk, Samples, dbfs
from voice_agent.config import IceServer
from voice_agent.errors import MediaError, OfferRejected, UnknownCall
from voice_agent.media.opus import OpusEncoder
from voice_agent.media.peer import Peer, PeerLimits, overdue

pytestmark = pytest.mark.loopback

QUICK = PeerLimits(connect_ms=1_000, silent_ms=400, disconnected_ms=400)


def reply(seconds: float, hz: float = 300) -> PcmChunk:
    return PcmChunk(tone_48k(hz, seconds)[::2].copy(), 24_000)


class Ears:
    """Collects a peer's microphone with the instant of each frame."""

    def __init__(self, peer: Peer) -> None:
        self.frames: list[MicrophoneFrame] = []
        self.at_s: list[float] = []
        self.task = asyncio.create_task(self._collect(peer))

    async def _collect(self, peer: Peer) -> None:
        async for frame in peer.microphone():
            self.frames.append(frame)
            self.at_s.append(asyncio.get_running_loop().time())

    def assert_unbroken(self) -> None:
        assert [f.first_sample for f in self.frames] == [320 * n for n in range(len(self.frames))]

    @property
    def sound(self) -> Samples:
        return np.concatenate([f.samples for f in self.frames])

    @property
    def loud(self) -> list[int]:
        return [n for n, f in enumerate(self.frames) if dbfs(f.samples) > -35]


@asynccontextmanager
async def call(caller: Caller, limits: PeerLimits | None = None) -> AsyncGenerator[Peer, None]:
    peer = Peer(limits=limits)
    try:
        async with caller:
            await caller.call(peer)
            yield peer
    finally:
        await peer.close()


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # a condition on somebody else's state
            await asyncio.sleep(0.01)


def pitch_hz(sound: Samples, rate_hz: int) -> float:
    spectrum = np.abs(np.fft.rfft(sound * np.hanning(len(sound)), 1 << 18))
    return float(np.argmax(spectrum)) * rate_hz / (1 << 18)


# --- what we rely on ------------------------------------------------------------------------------------------------


async def test_rtp_goes_past_aiortcs_sender_and_receiver_and_is_counted_there() -> None:
    caller = Caller(Voice(tone_48k(440, 10)))
    async with call(caller) as peer:
        receiver = peer._audio.receiver
        seen: list[object] = []

        async def taken(*args: object, **_: object) -> None:
            seen.append(args)

        receiver._handle_rtp_packet = taken  # type: ignore[method-assign]
        ears = Ears(peer)
        await until(lambda: len(ears.loud) > 10 and len(caller.rtp_arrivals) > 10)
        assert seen == []
        reports: dict[str, Any] = await peer._connection.getStats()
        counted = {report.type: report for report in reports.values()}
        assert counted["inbound-rtp"].packetsReceived >= 10 and counted["inbound-rtp"].packetsLost == 0
        assert counted["outbound-rtp"].packetsSent >= 10 and counted["outbound-rtp"].bytesSent > 30
        await until(lambda: bool(caller_reports(caller)))
    assert caller_reports(caller)[0].packetsSent > 0


def caller_reports(caller: Caller) -> list[Any]:
    """What the peer's own sender reports told the caller."""
    receiver: Any = caller.connection.getReceivers()[0]
    stats: dict[str, Any] = receiver._RTCRtpReceiver__stats
    return [report for report in stats.values() if report.type == "remote-outbound-rtp"]


def opus_type(caller: Caller) -> int:
    """The payload type that was agreed on."""
    section: Any = caller.connection.getTransceivers()[0]
    return int(section._codecs[0].payloadType)


async def test_packets_that_are_none_or_empty_or_of_another_kind_are_let_go() -> None:
    caller = Caller(Voice())
    async with call(caller) as peer:
        ears = Ears(peer)
        taken: list[tuple[int, bytes]] = []

        def note(rtp_time: int, payload: bytes) -> None:
            taken.append((rtp_time, payload))

        peer._path._take = note
        payload_type = opus_type(caller)
        for kind, payload, padding in ((payload_type, b"", 0), (payload_type, b"", 9), (13, b"x", 0)):
            packet = RtpPacket(kind, 0, 7, 777, 1234, payload)
            packet.padding_size = padding
            await caller.send_rtp(packet)
        packet = RtpPacket(payload_type, 1, 8, 778, 1234, b"sound")
        packet.csrc, packet.padding_size = [5, 6], 3
        await caller.send_rtp(packet)
        await until(lambda: (778, b"sound") in taken)
        assert not [payload for rtp_time, payload in taken if rtp_time == 777]
        for garbage in (b"\x80", b"\x80" * 12, b"\x90" + bytes(40)):
            peer._path.received(garbage)
        heard = len(ears.frames)
        await until(lambda: len(ears.frames) > heard + 5)


async def test_the_count_of_sources_is_bounded() -> None:
    caller = Caller(Voice())
    async with call(caller) as peer:
        payload_type = opus_type(caller)
        seen: set[int] = set()

        def note(rtp_time: int, _payload: bytes) -> None:
            seen.add(rtp_time)

        peer._path._take = note
        for number in range(30):
            await caller.send_rtp(RtpPacket(payload_type, 0, 1, number, 5_000 + number, b"sound"))
        await until(lambda: len(seen) >= 30)
        assert len(peer._audio.receiver._RTCRtpReceiver__remote_streams) <= 8  # type: ignore[attr-defined]


# --- sound both ways --------------------------------------------------------------------------------------------


async def test_both_sides_hear_each_other_and_played_samples_are_exact() -> None:
    caller = Caller(Voice(tone_48k(440, 10)))
    async with call(caller) as peer:
        ears = Ears(peer)
        await peer.output.write("a", reply(0.6))
        peer.output.finish("a")
        assert await peer.output.drained("a") == 14_400
        await until(lambda: len(ears.loud) > 30)
        ears.assert_unbroken()
        assert pitch_hz(ears.sound[-8000:], 16_000) == pytest.approx(440, abs=3)
        heard = np.concatenate([samples for _, _, samples in caller.heard])
        loud = heard[np.abs(heard) > 3000]
        assert len(loud) > 10_000
        assert pitch_hz(heard, 48_000) == pytest.approx(300, abs=3)


async def test_stereo_with_one_silent_side_keeps_its_length_and_pitch() -> None:
    """C02."""
    left = np.concatenate([np.zeros(24_000, np.int16), tone_48k(440, 1.0)])
    caller = Caller(Voice(np.stack([left, np.zeros_like(left)], axis=1)))
    async with call(caller) as peer:
        ears = Ears(peer)
        await asyncio.sleep(1.8)
    assert 20 * len(ears.loud) == pytest.approx(1000, abs=60)
    middle = ears.loud[len(ears.loud) // 2]
    assert pitch_hz(ears.sound[(middle - 20) * 320 : (middle + 20) * 320], 16_000) == pytest.approx(
        440, abs=3
    )


async def test_a_dtx_gap_has_its_true_length() -> None:
    """C03: two tones with 1 s between them, in which one packet each 400 ms comes."""
    encoder = OpusEncoder()
    sound = tone_48k(440, 0.4)
    schedule = [(n, encoder.encode(sound[n * PIECE : (n + 1) * PIECE])) for n in range(20)]
    quiet = [encoder.encode(np.zeros(PIECE, np.int16)) for _ in range(10)][-1]
    schedule += [(20, quiet), (40, quiet), (60, quiet)]
    schedule += [(n + 70, encoder.encode(sound[n * PIECE : (n + 1) * PIECE])) for n in range(20)]
    caller = Caller(Packets(schedule))
    async with call(caller) as peer:
        ears = Ears(peer)
        await asyncio.sleep(2.2)
    ears.assert_unbroken()
    gaps = np.diff(ears.loud)
    assert 20 * (int(gaps.max()) - 1) == pytest.approx(1000, abs=60)


async def test_silence_goes_on_when_the_sender_sends_nothing_and_sound_comes_back() -> None:
    """C04 and C15: off at the start, then on, off, and on again."""
    caller = Caller(Voice(tone_48k(440, 20)))
    caller.sender.replaceTrack(None)
    async with call(caller) as peer:
        ears = Ears(peer)
        for _ in range(2):
            quiet_from = len(ears.frames)
            await asyncio.sleep(0.5)
            assert len(ears.frames) - quiet_from >= 15
            assert not np.concatenate([f.samples for f in ears.frames[-10:]]).any()
            caller.sender.replaceTrack(Voice(tone_48k(440, 20)))
            wanted = len(ears.loud) + 10
            await until(lambda wanted=wanted: len(ears.loud) > wanted)
            caller.sender.replaceTrack(None)
        ears.assert_unbroken()


async def test_an_ended_track_is_parked_and_costs_nothing() -> None:
    """C12."""
    caller = Caller(Voice(tone_48k(440, 20)))
    async with call(caller) as peer:
        ears = Ears(peer)
        await until(lambda: len(ears.loud) > 5)
        caller.voice.stop()
        await asyncio.sleep(0.2)
        before_frames, before_cpu = len(ears.frames), time.process_time()
        await asyncio.sleep(1.0)
        assert time.process_time() - before_cpu < 0.25
        assert 40 <= len(ears.frames) - before_frames <= 60


async def test_a_frame_comes_soon_after_its_packet() -> None:
    """C16: at most 60 ms on a clean link."""
    caller = Caller(Voice(tone_48k(440, 20)))
    async with call(caller) as peer:
        ears = Ears(peer)
        arrivals: list[float] = []
        take = peer._path._take

        def stamped(rtp_time: int, payload: bytes) -> None:
            arrivals.append(asyncio.get_running_loop().time())
            take(rtp_time, payload)

        peer._path._take = stamped
        await until(lambda: len(ears.loud) > 10)
        first = len(ears.frames)
        await until(lambda: len(ears.frames) > first + 50)
    # Packet n of the stamped ones completes frame m for a fixed m - n: the delay is that of the nearest arrival.
    delays = [min(at - a for a in arrivals if a <= at) for at in ears.at_s[first : first + 50]]
    assert sorted(delays)[45] < 0.060
    assert sorted(delays)[25] < 0.020


async def test_the_pacer_lives_through_interruptions() -> None:
    """C06: one stream, timestamps 960 apart, no hole."""
    caller = Caller()
    async with call(caller) as peer:
        for n in range(10):
            await peer.output.write(f"r{n}", reply(1.0))
            await asyncio.sleep(0.1)
            peer.output.hold()
            await asyncio.sleep(0.04)
            peer.output.flush()
        arrivals = list(caller.rtp_arrivals)
    stamps = [(b[2] - a[2]) % (1 << 32) for a, b in zip(arrivals, arrivals[1:], strict=False)]
    gaps = sorted(b[0] - a[0] for a, b in zip(arrivals, arrivals[1:], strict=False))
    assert set(stamps) == {PIECE}
    assert len(arrivals) == pytest.approx((arrivals[-1][0] - arrivals[0][0]) / 0.02, abs=4)
    assert gaps[-4] < 0.040


async def test_a_lossy_jittery_link_leaves_an_unbroken_line() -> None:
    caller = Caller(Voice(tone_48k(440, 20)), Link(loss=0.1, jitter_ms=30))
    async with call(caller) as peer:
        ears = Ears(peer)
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(1.5)
        elapsed_ms = 1000 * (asyncio.get_running_loop().time() - began)
    ears.assert_unbroken()
    assert 20 * len(ears.frames) == pytest.approx(elapsed_ms, abs=160)
    assert pitch_hz(ears.sound[8000:], 16_000) == pytest.approx(440, abs=3)
    concealed = sum(frame.concealed for frame in ears.frames)
    unsent = max(0, len(ears.frames) - caller.link.sent)  # a busy machine's caller falls behind its clock
    assert 1 <= concealed <= unsent + 0.35 * len(ears.frames)


async def test_a_lost_packet_stalls_nothing() -> None:
    caller = Caller(Voice(tone_48k(440, 20)), Link(lose=lambda number: number % 25 == 24))
    async with call(caller) as peer:
        ears = Ears(peer)
        await until(lambda: len(ears.loud) > 70)
        gaps = sorted(np.diff(ears.at_s[20:]))
    assert gaps[-2] < 0.15


# --- offers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offer", ["", "garbage", "v=0\r\n", "x" * 1_000_000])
async def test_garbage_is_refused_and_the_peer_can_still_answer(offer: str) -> None:
    peer = Peer()
    async with Caller() as caller:
        with pytest.raises(OfferRejected):
            await peer.answer(offer)
        await caller.call(peer)
    await peer.close()


async def test_broken_attributes_inside_a_real_offer_are_refused() -> None:
    async with Caller() as caller:
        offer = await caller.offer()
        for good, bad in [
            ("a=setup:actpass", "a=setup:sideways"),
            ("a=rtcp-mux", "a=x"),
            ("a=rtpmap:96 opus/48000/2", "a=rtpmap:opus/48000/2 opus/48000/2"),
            ("a=candidate:", "a=candidate:x "),
            ("m=audio ", "m=audio x"),
            ("a=sendrecv", "a=sendonly"),
            ("a=sctp-port:5000", "a=sctp-port:many"),
        ]:
            assert good in offer, good
            peer = Peer()
            with pytest.raises(OfferRejected):
                await peer.answer(offer.replace(good, bad))
            await peer.close()


async def test_video_beside_audio_is_rejected_and_audio_works() -> None:
    caller = Caller(Voice(tone_48k(440, 10)))
    caller.connection.addTransceiver("video")
    async with caller:
        offer = await caller.offer()
        peer = Peer()
        answer = await peer.answer(offer)
        lines = [line for line in answer.split("\r\n") if line.startswith("m=")]
        assert [line.split()[0] for line in lines] == ["m=audio", "m=video", "m=application"]
        assert lines[1].split()[1] == "0"
        assert len(peer._connection.getTransceivers()) == 1
        await peer.close()


async def test_names_that_do_not_resolve_delay_nothing() -> None:
    """C11: the offer's only candidate is an mDNS name; the caller's checks come from elsewhere."""
    peer = Peer()
    async with Caller() as caller:
        lines = (await caller.offer()).split("\r\n")
        name = "a=candidate:1 1 udp 2130706431 1f0f4e43-0a51-4c3c-9c2a-1c1d1e1f2021.local 5001 typ host"
        kept = [line for line in lines if not line.startswith("a=candidate:")]
        at = next(n for n, line in enumerate(kept) if line.startswith("a=mid:"))
        began = time.monotonic()
        answer = await peer.answer("\r\n".join([*kept[: at + 1], name, *kept[at + 1 :]]))
        assert time.monotonic() - began < 0.5
        await caller.accept(answer)
        await asyncio.wait_for(peer.connected(), 3)
    await peer.close()


async def test_trickle_takes_end_marks_refuses_garbage_and_connects() -> None:
    """C07."""
    peer = Peer()
    async with Caller() as caller:
        offer = await caller.offer()
        candidates = [line for line in offer.split("\r\n") if line.startswith("a=candidate:")]
        answer = await peer.answer(
            "\r\n".join(line for line in offer.split("\r\n") if line not in candidates)
        )
        await peer.add_candidates("a=candidate:\r\n")
        await peer.add_candidates("")
        await peer.add_candidates("a=mid:0\r\na=end-of-candidates\r\n")
        with pytest.raises(OfferRejected):
            await peer.add_candidates("garbage")
        with pytest.raises(OfferRejected, match="restart"):
            await peer.add_candidates("a=ice-ufrag:other\r\n" + candidates[0])
        await peer.add_candidates("a=mid:0\r\n" + "\r\n".join(candidates))
        await peer.add_candidates("a=mid:0\r\na=candidate:9 1 udp 1 not-an-address 5000 typ host\r\n")
        await peer.add_candidates("a=mid:0\r\na=candidate:9 2 udp 1 192.0.2.77 5000 typ host\r\n")
        await caller.accept(answer)
        await asyncio.wait_for(peer.connected(), 5)
    await peer.close()
    with pytest.raises(UnknownCall):
        await peer.add_candidates("")
    with pytest.raises(UnknownCall):
        await peer.answer(offer)


async def test_an_inactive_direction_is_a_pause() -> None:
    """C13: offered again as inactive, then as sendrecv, on the same call."""
    caller = Caller(Voice(tone_48k(440, 30)))
    async with call(caller) as peer:
        ears = Ears(peer)
        await until(lambda: len(ears.loud) > 5)
        transceiver = caller.connection.getTransceivers()[0]
        for direction in ("inactive", "sendrecv"):
            transceiver.direction = direction
            await caller.connection.setLocalDescription(await caller.connection.createOffer())
            await caller.accept(await peer.answer(caller.connection.localDescription.sdp))
        loud = len(ears.loud)
        await until(lambda: len(ears.loud) > loud + 20)
        await peer.output.write("a", reply(0.2))
        peer.output.finish("a")
        assert await asyncio.wait_for(peer.output.drained("a"), 2) == 4_800


# --- the channel -----------------------------------------------------------------------------------------------------


async def test_events_sent_before_the_channel_opens_arrive_first() -> None:
    """C09: the caller opens its channel half a second after its sound is connected."""
    caller = Caller(channel=False)
    other = caller.connection.createDataChannel("something-else")
    async with call(caller) as peer:
        sent = [f"event {n}" for n in range(50)]
        for text in sent[:40]:
            peer.channel.send(text)
        await until(lambda: other.readyState == "open")
        await asyncio.sleep(0.5)
        messages: list[str] = []
        late = caller.connection.createDataChannel("oai-events")
        late.on("message", messages.append)
        await until(lambda: peer.channel.open)
        for text in sent[40:]:
            peer.channel.send(text)
        late.send("from the caller")
        await until(lambda: len(messages) == 50)
        assert messages == sent
        incoming = peer.channel.messages()
        assert await asyncio.wait_for(anext(incoming), 1) == "from the caller"


OPEN, TEXT, CONTROL = b"\x03", 51, 50  # RFC 8832, RFC 8831


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        (TEXT, b"\xff", "\udcff"),
        (CONTROL, OPEN + bytes(11), None),
        (CONTROL, OPEN + bytes(7) + b"\0\x01\0\0\xff", None),
        (CONTROL, OPEN, None),
        (CONTROL, b"\x02", None),
        (CONTROL, b"\x63", None),
        (99, b"what is this", None),
    ],
)
async def test_no_message_on_a_channel_ends_the_call(kind: int, data: bytes, text: str | None) -> None:
    caller = Caller()
    async with call(caller) as peer:
        assert caller.channel is not None
        await until(lambda: peer.channel.open)
        incoming = peer.channel.messages()
        association: Any = caller.channel.transport
        for stream in (caller.channel.id, 77):
            await association._send(stream, kind, data)
        caller.channel.send("and on")
        told = [await asyncio.wait_for(anext(incoming), 5)]
        if text is not None:
            assert told == [text]
            told = [await asyncio.wait_for(anext(incoming), 5)]
        assert told == ["and on"] and peer.is_connected


# --- the end ---------------------------------------------------------------------------------------------------------


async def test_a_caller_that_hangs_up_ends_everything() -> None:
    caller = Caller(Voice(tone_48k(440, 10)))
    async with call(caller) as peer:
        ears = Ears(peer)
        await peer.output.write("a", reply(7.0))
        await peer.output.write("a", reply(7.0))
        blocked = asyncio.create_task(peer.output.write("a", reply(7.0)))
        drained = asyncio.create_task(peer.output.drained("a"))
        await asyncio.sleep(0.2)
        await caller.hang_up()
        assert await asyncio.wait_for(peer.closed(), 2) == "remote_closed"
        await asyncio.wait_for(asyncio.gather(ears.task, blocked, drained), 1)
        assert 0 < drained.result() < 24_000


async def test_a_caller_that_vanishes_is_noticed_and_leaves_nothing() -> None:
    """C18."""
    caller = Caller(Voice(tone_48k(440, 10)))
    peer = Peer(limits=QUICK)
    async with caller:
        await caller.call(peer)
        ears = Ears(peer)
        await asyncio.sleep(0.3)
        caller.link.dead = True
        assert await asyncio.wait_for(peer.closed(), 3) == "disconnected"
        await asyncio.wait_for(ears.task, 1)
    assert own_tasks() == []


async def test_a_muted_caller_is_not_taken_for_a_vanished_one() -> None:
    limits = PeerLimits(silent_ms=900, disconnected_ms=900)  # RTCP comes each 0.5-1.5 s
    caller = Caller()
    async with call(caller, limits) as peer:
        caller.sender.replaceTrack(None)
        await asyncio.sleep(2.5)
        assert peer._closing is None


async def test_a_caller_that_never_connects_gives_up_its_place() -> None:
    peer = Peer(limits=QUICK)
    async with Caller() as caller:
        await peer.answer(await caller.offer())
        with pytest.raises(MediaError, match="connect_timeout"):
            await asyncio.wait_for(peer.connected(), 3)
        assert not peer.is_connected
    assert await peer.closed() == "connect_timeout"
    await asyncio.sleep(0.1)
    assert own_tasks() == []


async def test_close_is_idempotent_at_any_time() -> None:
    fresh = Peer()
    await asyncio.gather(fresh.close(), fresh.close())
    await fresh.close("disconnected")
    assert await fresh.closed() == "closed"
    early = Peer()
    async with Caller() as caller:
        answer = await early.answer(await caller.offer())
        await caller.accept(answer)
        await asyncio.sleep(0.02)
        await early.close()
    await asyncio.sleep(0.1)
    assert own_tasks() == []


async def test_a_cancelled_close_still_closes() -> None:
    peer = Peer()
    closing = asyncio.create_task(peer.close())
    await asyncio.sleep(0)
    closing.cancel()
    assert await asyncio.wait_for(peer.closed(), 2) == "closed"


async def test_ten_calls_leave_no_task_thread_or_descriptor() -> None:
    async def one() -> None:
        caller = Caller(Voice(tone_48k(440, 1)))
        async with call(caller) as peer:
            ears = Ears(peer)
            await peer.output.write("a", reply(0.1))
            await asyncio.sleep(0.1)
        await ears.task

    await one()
    before = (descriptors(), decoder_threads())
    for _ in range(10):
        await one()
    await asyncio.sleep(0.1)
    gc.collect()
    assert own_tasks() == []
    assert (descriptors(), decoder_threads()) == before


def test_overdue_counts_from_the_start_before_and_from_the_last_datagram_after() -> None:
    limits = PeerLimits()
    assert overdue(limits, waited_ms=14_999, silent_ms=99_999) is None
    assert overdue(limits, waited_ms=15_000, silent_ms=0) == "connect_timeout"
    assert overdue(limits, waited_ms=None, silent_ms=9_999) is None
    assert overdue(limits, waited_ms=None, silent_ms=10_000) == "disconnected"


async def test_ice_servers_are_handed_to_aiortc_as_configured() -> None:
    peer = Peer([IceServer(("turn:turn.example:3478",), "user", "secret")])
    await peer.close()


def own_tasks() -> list[str]:
    """Every task besides the test's own."""
    return [t.get_name() for t in asyncio.all_tasks() if t is not asyncio.current_task()]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def decoder_threads() -> int:
    return sum("decoder" in thread.name for thread in threading.enumerate())
