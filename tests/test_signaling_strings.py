"""What signalling does with strings alone: offers, fragments, ICE servers."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signaling.ice import CREDENTIAL_LIFE_S, IceServer, IceServers, as_configuration, as_links
from signaling.sdp import Fragment, check_offer, parse_fragment
from tests.scripted_calls import CANDIDATE, OFFER
from voice_agent.errors import OfferRejected


def test_a_voice_offer_passes_with_either_line_end() -> None:
    check_offer(OFFER)
    check_offer(OFFER.replace("\r\n", "\n"))


def test_a_bundled_audio_section_may_have_port_0() -> None:
    check_offer(OFFER.replace("m=audio 9", "m=audio 0") + "a=bundle-only\r\n")


@pytest.mark.parametrize(
    ("sdp", "word"),
    [
        ("", "v=0"),
        ("garbage", "v=0"),
        ("v=0\r\n", "no audio"),
        (OFFER.replace("m=audio", "m=video"), "no audio"),
        (OFFER.replace("a=ice-ufrag", "a=x"), "ice-ufrag"),
        (OFFER.replace("a=fingerprint", "a=x"), "fingerprint"),
        (OFFER + "m=video 9 X 1\r\n" * 40, "40 media sections"[3:]),
    ],
)
def test_an_offer_that_is_none_is_refused_with_a_reason(sdp: str, word: str) -> None:
    with pytest.raises(OfferRejected, match=word):
        check_offer(sdp)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", Fragment((), True)),
        ("a=candidate:", Fragment((), True)),
        ("a=", Fragment((), True)),
        ("a=candidate:null\r\n", Fragment((), True)),
        ("a=end-of-candidates\r\n", Fragment((), True)),
        (f"a={CANDIDATE}\r\n", Fragment((CANDIDATE,), False)),
        (CANDIDATE, Fragment((CANDIDATE,), False)),
        (
            f"a=ice-ufrag:x\r\na=ice-pwd:y\r\nm=audio 9 X 0\r\na=mid:0\r\na={CANDIDATE}\r\na=end-of-candidates",
            Fragment((CANDIDATE,), True),
        ),
    ],
)
def test_fragments_as_browsers_send_them(text: str, fragment: Fragment) -> None:
    assert parse_fragment(text) == fragment


@pytest.mark.parametrize(
    "text",
    [
        "garbage",
        "a=candidate:1 2 3",
        "a=candidate:x 1 udp nine 192.0.2.1 1 typ host",
        '{"candidate":""}',
        "\x00\x01",
    ],
)
def test_a_fragment_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(OfferRejected) as refused:
        parse_fragment(text)
    assert refused.value.param == "candidate"


@given(st.text(max_size=200))
def test_any_text_is_taken_or_refused(text: str) -> None:
    for reader in (check_offer, parse_fragment):
        try:
            reader(text)
        except OfferRejected as refused:
            assert str(refused)


TURN = IceServer(("turn:turn.example.org:3478?transport=udp", "turns:turn.example.org:443"))
STUN = IceServer(("stun:stun.example.org",))


def test_turn_credentials_end_by_themselves_and_are_what_coturn_computes() -> None:
    ice = IceServers([STUN, TURN], "secret", lambda: 1000.0)
    stun, turn = ice.for_client()
    assert stun == STUN
    expiry, _, name = turn.username.partition(":")
    assert int(expiry) == 1000 + CREDENTIAL_LIFE_S and name
    digest = hmac.new(b"secret", turn.username.encode(), hashlib.sha1).digest()
    assert turn.credential == base64.b64encode(digest).decode()
    assert ice.for_client()[1].username != turn.username


def test_fixed_credentials_are_passed_on() -> None:
    fixed = IceServer(TURN.urls, "me", 'pass"word')
    assert IceServers([fixed], "secret").for_client() == (fixed,)
    assert as_configuration([STUN, fixed]) == {
        "iceServers": [
            {"urls": list(STUN.urls)},
            {"urls": list(TURN.urls), "username": "me", "credential": 'pass"word'},
        ]
    }
    assert as_links([STUN, fixed])[:2] == [
        '<stun:stun.example.org>; rel="ice-server"',
        '<turn:turn.example.org:3478?transport=udp>; rel="ice-server"; username="me"; '
        'credential="pass\\"word"; credential-type="password"',
    ]
    assert len(as_links([STUN, fixed])) == 3
