"""What the speech bench does with bytes: answers of every framing, each server's dialect, and what a listener hears."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.bench.http_answer import AnswerReader, BadAnswer
from voice_agent.bench.listener import Listener, onset_sample
from voice_agent.bench.load import Job, open_loop
from voice_agent.bench.sentences import MEAN_CHARACTERS, SENTENCES
from voice_agent.bench.speech_servers import RATE_HZ, SERVERS, Asking, NotSound, SoundReader, check_answer
from voice_agent.bench.statistics import nearest_rank
from voice_agent.clock import NS_PER_MS
from voice_agent.errors import ConfigError

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: audio/pcm\r\n\r\n"
WHOLE = CHUNKED + b"3\r\nabc\r\n5;x=1\r\ndefgh\r\n0\r\nTrailer: 1\r\n\r\n"
BY_LENGTH = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nabcdefgh"


@given(st.lists(st.integers(1, len(WHOLE)), max_size=12), st.sampled_from([WHOLE, BY_LENGTH]))
def test_an_answer_reads_the_same_however_it_is_cut(cuts: list[int], answer: bytes) -> None:
    reader, places = AnswerReader(), sorted({0, *(cut for cut in cuts if cut < len(answer)), len(answer)})
    pieces = [p for a, b in zip(places, places[1:], strict=False) for p in reader.feed(answer[a:b])]
    assert b"".join(pieces) == b"abcdefgh"
    assert reader.done and reader.keeps_open and reader.status == 200


def test_an_answer_without_length_ends_with_its_connection() -> None:
    reader = AnswerReader()
    assert reader.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\n\r\nabc") == [b"abc"]
    assert not reader.done
    reader.end()
    assert reader.done and not reader.keeps_open


@pytest.mark.parametrize(
    "answer",
    [b"", CHUNKED, WHOLE[:-2], BY_LENGTH[:-1], b"HTTP/1.1 200 OK\r\n"],
    ids=["nothing", "no chunk", "no end", "short", "half a head"],
)
def test_an_answer_that_breaks_off_is_told(answer: bytes) -> None:
    reader = AnswerReader()
    reader.feed(answer)
    with pytest.raises(BadAnswer, match="ended before"):
        reader.end()


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0\r\n\r\n", CHUNKED + b"-3\r\n", CHUNKED + b"3\r\nabcd\r\n", b"x" * 70_000]
)
def test_what_is_no_http_is_refused(answer: bytes) -> None:
    with pytest.raises(BadAnswer):
        AnswerReader().feed(answer)


def sound(ms: float, level_dbfs: float = -20.0, offset: int = 0) -> bytes:
    """A tone of that RMS level."""
    t = np.arange(int(RATE_HZ * ms / 1000))
    tone = 32768 * 10 ** (level_dbfs / 20) * 2**0.5 * np.sin(2 * np.pi * 440 * t / RATE_HZ)
    return (tone + offset).astype("<i2").tobytes()


def listener(*chunks: tuple[float, bytes]) -> Listener:
    made = Listener(RATE_HZ)
    for at_ms, pcm in chunks:
        made.arrives(pcm, int(at_ms * NS_PER_MS))
    return made


def test_sound_that_comes_in_time_has_no_gap() -> None:
    heard = listener((30, sound(80)), (109, sound(80)), (150, sound(80))).heard(0)
    assert (heard.first_ms, heard.audible_ms, heard.last_ms, heard.sound_ms) == (30, 30, 150, 240)
    assert heard.stalls_ms == []


def test_each_late_chunk_is_a_stall_of_its_own_however_short() -> None:
    heard = listener((30, sound(80)), (110.5, sound(80)), (200.5, sound(80))).heard(0)
    assert heard.stalls_ms == pytest.approx([0.5, 10.0])


def test_the_audible_instant_lies_after_quiet_sound_and_stalls_before_it() -> None:
    heard = listener((30, sound(80, -60)), (130, sound(20, -60) + sound(100))).heard(10 * NS_PER_MS)
    assert heard.first_ms == 20
    assert heard.quiet_ms == pytest.approx(100, abs=10)
    assert heard.audible_ms == pytest.approx(
        120 + 20, abs=10
    )  # starts at 130, 20 ms quiet, 10 before the request
    assert heard.stalls_ms == [20]


def test_an_odd_byte_waits_for_its_other_half() -> None:
    pcm = sound(80)
    heard = listener((1, pcm[:1]), (5, pcm[1:101]), (6, pcm[101:])).heard(0)
    assert heard.first_ms == 5 and heard.sound_ms == 80 and heard.stalls_ms == []


def test_nothing_and_nothing_audible() -> None:
    assert listener().heard(0).first_ms is None
    quiet = listener((3, sound(2_000, -46))).heard(0)
    assert quiet.first_ms == 3 and quiet.audible_ms is None
    assert onset_sample(np.frombuffer(sound(500, -44), "<i2"), RATE_HZ) == 0


def test_an_offset_is_not_audible_a_loud_click_is_and_late_speech_is_found() -> None:
    click = np.zeros(RATE_HZ, np.int16)
    click[4_805:4_810] = 30_000
    assert onset_sample(click, RATE_HZ) is not None  # two windows that overlap both hold it
    assert onset_sample(np.full(RATE_HZ, 9_000, np.int16), RATE_HZ) is None
    late = np.frombuffer(sound(1_500, -70) + sound(200), "<i2")
    assert onset_sample(late, RATE_HZ) == pytest.approx(1.5 * RATE_HZ, abs=RATE_HZ // 100)


JOB = Job(0.0, "Two words.", 40)


@pytest.mark.parametrize("name", SERVERS)
def test_every_dialect_asks_for_a_stream_of_the_text(name: str) -> None:
    body = json.loads(Asking(SERVERS[name], model="m", voice="v").body(JOB))
    assert (body["input"], body["model"], body["voice"]) == ("Two words.", "m", "v")
    assert body["response_format"] == ("wav" if name == "mstar" else "pcm")
    assert body.get("stream") is (None if name == "ours" else True)


def test_lengths_are_forced_where_a_field_is_known_or_given() -> None:
    assert json.loads(Asking(SERVERS["nari"], force_lengths=True).body(JOB))["max_new_tokens"] == 40
    assert json.loads(Asking(SERVERS["ours"], force_lengths=True).body(JOB))["max_new_tokens"] == 40
    given_field = Asking(SERVERS["mstar"], force_lengths=True, length_field="frames")
    assert json.loads(given_field.body(JOB))["frames"] == 40
    with pytest.raises(ConfigError, match="--length-field"):
        Asking(SERVERS["mstar"], force_lengths=True).body(JOB)


def test_quality_first_is_asked_of_ours_only_and_extra_fields_win() -> None:
    ours = Asking(SERVERS["ours"], extra={"response_format": "flac", "seed": 3})
    body = json.loads(ours.body(JOB, latency_first=False))
    assert (body["latency_first"], body["response_format"], body["seed"]) == (False, "flac", 3)
    assert "latency_first" not in json.loads(Asking(SERVERS["nari"]).body(JOB))


def wav_head(rate_hz: int = RATE_HZ, bits: int = 16) -> bytes:
    form = (1).to_bytes(2, "little") + (1).to_bytes(2, "little") + rate_hz.to_bytes(4, "little")
    form += (rate_hz * 2).to_bytes(4, "little") + (2).to_bytes(2, "little") + bits.to_bytes(2, "little")
    listed = b"LIST" + (3).to_bytes(4, "little") + b"abc\0"
    return (
        b"RIFF\xff\xff\xff\xffWAVEfmt " + (16).to_bytes(4, "little") + form + listed + b"data\xff\xff\xff\xff"
    )


@given(st.integers(1, 80))
def test_a_wav_that_streams_is_read_past_its_header(cut: int) -> None:
    data, reader = wav_head() + b"samples!", SoundReader(wav=True)
    assert reader.feed(data[:cut]) + reader.feed(data[cut:]) == b"samples!"


@pytest.mark.parametrize("head", [wav_head(22_050), wav_head(bits=8), b"ID3" + bytes(40)])
def test_a_wav_of_another_kind_is_refused(head: bytes) -> None:
    with pytest.raises(NotSound):
        SoundReader(wav=True).feed(head)


def test_answers_that_are_no_sound_are_named() -> None:
    assert check_answer(200, {"content-type": "audio/pcm", "x-sample-rate": "24000"}) is None
    assert check_answer(503, {}) == "status 503"
    assert (
        check_answer(200, {"content-type": "application/json; charset=utf-8"})
        == "content type application/json"
    )
    assert check_answer(200, {"x-sample-rate": "16000"}) == "a rate of 16000 Hz instead of 24000"


def test_the_load_is_the_same_every_time_and_as_heavy_as_it_says() -> None:
    jobs = open_loop(40, 10, 60, seed=0)
    assert jobs == open_loop(40, 10, 60, seed=0) != open_loop(40, 10, 60, seed=1)
    counted = [job for job in jobs if job.counts]
    assert len(counted) / 60 == pytest.approx(40, rel=0.08)
    assert min(job.at_s for job in counted) >= 10 and max(job.at_s for job in jobs) < 70
    frames = [job.frames for job in jobs]
    assert sum(frames) / len(frames) == pytest.approx(52, rel=0.05)
    assert nearest_rank(frames, 95) == pytest.approx(91, abs=5)
    assert min(frames) >= 16 and max(frames) <= 140
    for rps, seconds in ((0, 1), (1, 0)):
        with pytest.raises(ConfigError):
            open_loop(rps, 0, seconds, 0)


def test_the_texts_are_sentences_of_8_to_20_words_and_all_come_before_any_comes_twice() -> None:
    assert len(set(SENTENCES)) == len(SENTENCES) >= 60
    assert all(8 <= len(text.split()) <= 20 for text in SENTENCES)
    assert 60 < MEAN_CHARACTERS < 80
    texts = [job.text for job in open_loop(100, 0, 2, 0)]
    assert set(texts[: len(SENTENCES)]) == set(SENTENCES)
