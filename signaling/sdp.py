"""What can be told about an offer or a trickled fragment from its text alone.

Only what makes a clear refusal cheap is looked at, before a seat is taken; the peer reads the rest. It knows no
codecs and no transports. Sources: RFC 8866 (SDP), RFC 8840 (trickle-ice-sdpfrag).
"""

from dataclasses import dataclass

from voice_agent.errors import OfferRejected

MAX_SDP_BYTES = 64 * 1024
MAX_SECTIONS = 32
CANDIDATE_FIELDS = 8  # foundation, component, transport, priority, address, port, "typ", type


@dataclass(frozen=True, slots=True)
class Fragment:
    """A trickled piece: candidate lines ("candidate:..."), and whether they were the last."""

    candidates: tuple[str, ...] = ()
    ended: bool = False


def check_offer(sdp: str) -> None:
    """Refuse what is no offer for a voice call; raises OfferRejected with a sentence for the caller."""
    lines = sdp.replace("\r\n", "\n").split("\n")
    if lines[0] != "v=0":
        raise OfferRejected("The offer is not SDP: its first line must be 'v=0'.")
    sections = [line.removeprefix("m=").split() for line in lines if line.startswith("m=")]
    if len(sections) > MAX_SECTIONS:
        raise OfferRejected(f"The offer has {len(sections)} media sections; {MAX_SECTIONS} are the most.")
    audio = [section for section in sections if section and section[0] == "audio"]
    if not audio:
        raise OfferRejected(
            "The offer has no audio section (m=audio). Add a microphone track before createOffer()."
        )
    for attribute in ("a=ice-ufrag:", "a=ice-pwd:", "a=fingerprint:"):
        if not any(line.startswith(attribute) for line in lines):
            raise OfferRejected(f"The offer has no {attribute[2:-1]} attribute, which WebRTC needs.")


def parse_fragment(text: str) -> Fragment:
    """Read a trickle fragment; an empty candidate is an end mark, as browsers send it. Raises OfferRejected."""
    candidates: list[str] = []
    ended = not text.strip()
    for line in text.replace("\r\n", "\n").split("\n"):
        content = line.strip()
        if content.removeprefix("a=") in {"", "candidate:", "candidate:null", "null", "end-of-candidates"}:
            ended = ended or bool(content)
        elif content.removeprefix("a=").startswith("candidate:"):
            candidates.append(_candidate(content.removeprefix("a=")))
        elif len(content) < 2 or content[1] != "=" or not content[0].isalpha():
            raise OfferRejected(f"Not a line of a trickle-ice-sdpfrag: {content[:80]!r}.", "candidate")
    return Fragment(tuple(candidates), ended)


def _candidate(text: str) -> str:
    fields = text.split()
    numbers_ok = len(fields) >= CANDIDATE_FIELDS and all(
        fields[n].isascii() and fields[n].isdigit() for n in (1, 3, 5)
    )
    if not numbers_ok or fields[6] != "typ":
        raise OfferRejected(f"Not an ICE candidate: {text[:80]!r}.", "candidate")
    return text
