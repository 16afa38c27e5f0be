"""Reading offers and fragments: what is taken, what is refused, and that nothing else happens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.errors import OfferRejected
from voice_agent.media.offer import (
    MAX_BYTES,
    MAX_CANDIDATES,
    Candidate,
    complete_answer,
    read_fragment,
    read_offer,
)

TRANSPORT = """c=IN IP4 0.0.0.0
a=ice-ufrag:abcd
a=ice-pwd:abcdefghijklmnopqrstuv
a=fingerprint:sha-256 AA:BB
a=setup:actpass
a=rtcp-mux
"""
SESSION = "v=0\no=- 1 2 IN IP4 127.0.0.1\ns=-\nt=0 0\na=group:BUNDLE 0 1 2\n"
AUDIO = f"m=audio 9 UDP/TLS/RTP/SAVPF 111 0\n{TRANSPORT}a=mid:0\na=sendrecv\na=rtpmap:111 opus/48000/2\n"
VIDEO = f"m=video 9 UDP/TLS/RTP/SAVPF 96\n{TRANSPORT}a=mid:1\na=sendrecv\na=rtpmap:96 AV1/90000\n"
DATA = f"m=application 9 UDP/DTLS/SCTP webrtc-datachannel\n{TRANSPORT}a=mid:2\na=sctp-port:5000\n"
HOST = "a=candidate:1 1 udp 2130706431 192.0.2.9 5000 typ host\n"
LOCAL = "a=candidate:2 1 udp 2130706431 1f0f4e43-0a51-4c3c-9c2a-1c1d1e1f2021.local 5001 typ host\n"


def test_video_is_taken_out_and_rejected_in_its_place() -> None:
    offer = read_offer(SESSION + AUDIO + VIDEO + DATA)
    assert "m=video" not in offer.sdp
    assert "a=group:BUNDLE 0 2\r\n" in offer.sdp
    assert offer.bundle == ("0", "2")
    answer = complete_answer("v=0\r\nm=audio 1 X 111\r\na=mid:0\r\nm=application 1 X Y\r\na=mid:2\r\n", offer)
    assert [line.split()[:2] for line in answer.split("\r\n") if line.startswith("m=")] == [
        ["m=audio", "1"],
        ["m=video", "0"],
        ["m=application", "1"],
    ]
    assert "m=video 0 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=inactive\r\na=mid:1\r\n" in answer


def test_a_bundle_names_only_sections_that_are_there() -> None:
    offer = read_offer(SESSION.replace("BUNDLE 0 1 2", "BUNDLE x 2 y 0") + AUDIO + DATA)
    assert offer.bundle == ("2", "0")
    assert offer.sdp.count("a=group:") == 1
    assert "a=group:BUNDLE 2 0\r\n" in offer.sdp


def test_only_the_first_audio_section_is_taken() -> None:
    second = AUDIO.replace("a=mid:0", "a=mid:1")
    offer = read_offer(SESSION + AUDIO + second + DATA)
    assert offer.audio_mid == "0"
    assert [index for index, _ in offer.refused] == [1]


def test_mdns_names_and_end_marks_are_set_apart() -> None:
    offer = read_offer(SESSION + AUDIO + HOST + LOCAL + "a=end-of-candidates\n" + DATA)
    assert ".local" not in offer.sdp
    assert "end-of-candidates" not in offer.sdp
    assert "192.0.2.9" in offer.sdp
    assert [name.mid for name in offer.local_names] == ["0"]


def test_candidates_beyond_the_limit_are_left_out() -> None:
    offer = read_offer(SESSION + AUDIO + HOST * 300)
    assert offer.sdp.count("a=candidate:") == MAX_CANDIDATES


def test_a_bundled_section_with_port_zero_is_not_switched_off() -> None:
    bundled = AUDIO.replace("m=audio 9", "m=audio 0") + "a=bundle-only\n"
    assert read_offer(SESSION + VIDEO + bundled).audio_mid == "0"


@pytest.mark.parametrize(
    ("sdp", "words"),
    [
        ("", "not SDP"),
        ("hello", "not SDP"),
        ("{}", "not SDP"),
        (SESSION + "garbage\n" + AUDIO, "not SDP"),
        (SESSION, "no audio"),
        (SESSION + VIDEO + DATA, "no audio"),
        (SESSION + AUDIO.replace("m=audio 9", "m=audio 0"), "no audio"),
        (SESSION + AUDIO.replace("opus", "PCMU"), "no Opus"),
        (SESSION + AUDIO.replace("a=ice-pwd", "a=x"), "ice-pwd"),
        (SESSION + AUDIO.replace("a=fingerprint", "a=x"), "fingerprint"),
        (SESSION + AUDIO + "a=mid:7\n", "two mids"),
        (SESSION + AUDIO + DATA.replace("a=mid:2", "a=mid:0"), "same mid"),
        (SESSION + AUDIO + "a=x:" + "y" * MAX_BYTES, "bytes at most"),
        ("x" * 1_000_000, "bytes at most"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_sentence(sdp: str, words: str) -> None:
    with pytest.raises(OfferRejected, match=words):
        read_offer(sdp)


@given(
    st.lists(
        st.one_of(
            st.sampled_from([*SESSION.splitlines(), *AUDIO.splitlines(), *VIDEO.splitlines()]), st.text()
        ),
        max_size=40,
    )
)
def test_any_text_is_read_or_refused(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        offer = read_offer(text)
    except OfferRejected:
        return
    assert "m=audio" in offer.sdp


@pytest.mark.parametrize(
    "text", ["", "\r\n", "a=candidate:", "a=candidate: ", "candidate:", "null", "candidate:null"]
)
def test_an_empty_candidate_is_an_end_mark(text: str) -> None:
    """C07."""
    assert read_fragment(text) == (None, [])


def test_a_fragment_tells_its_section_and_its_ufrag() -> None:
    text = f"a=ice-ufrag:abcd\r\na=ice-pwd:x\r\nm=audio 9 X 0\r\na=mid:7\r\n{HOST}a=end-of-candidates\r\n"
    ufrag, candidates = read_fragment(text)
    assert ufrag == "abcd"
    assert candidates == [Candidate("1 1 udp 2130706431 192.0.2.9 5000 typ host", "7")]


@pytest.mark.parametrize(
    "text",
    [
        "garbage",
        "a=candidate:garbage",
        "a=candidate:1 1 udp x 192.0.2.9 5000 typ host",
        "a=candidate:1 1 udp 1 192.0.2.9 99999 typ host",
        "a=candidate:1 1 udp 1 192.0.2.9 5000 tip host",
        '{"candidate": "x"}',
        "a=x:" + "y" * MAX_BYTES,
    ],
)
def test_garbage_in_a_fragment_is_refused(text: str) -> None:
    with pytest.raises(OfferRejected):
        read_fragment(text)


@given(st.one_of(st.text(), st.text().map(lambda text: "a=candidate:" + text)))
def test_any_fragment_is_read_or_refused(text: str) -> None:
    try:
        _, candidates = read_fragment(text)
    except OfferRejected:
        return
    assert all(len(candidate.text.split()) >= 8 for candidate in candidates)
