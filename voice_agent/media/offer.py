"""What of an SDP offer we take, as text: one Opus microphone and one data channel, nothing else.

Sections we do not take (video above all) never reach aiortc, so no decoder, socket or queue is made for them; the
answer gets a rejected section in their place. mDNS candidates are set apart, because aiortc would wait a second for
each name that does not resolve. End-of-candidates is left out: a peer may always turn up from an address it never
named, and the connect time-out is ours.

Sources: RFC 8866 (SDP), RFC 3264 section 6 (rejecting), RFC 9143 (BUNDLE), RFC 8840 (trickle fragments).
"""

import re
from dataclasses import dataclass

from voice_agent.errors import OfferRejected

MAX_BYTES = 64 * 1024
MAX_CANDIDATES = 64
LINE_END = "\r\n"
_LINE = re.compile(r"^[a-z]=[^\x00]*$")
_LOCAL_NAME = re.compile(r"^a=candidate:(?:\S+ ){4}\S+\.local ", re.IGNORECASE)
_OPUS = re.compile(r"^a=rtpmap:\d+ opus/48000", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Section:
    """One m= section: its lines, the m= line first."""

    lines: tuple[str, ...]

    @property
    def fields(self) -> list[str]:
        """Kind, port, protocol, formats."""
        return self.lines[0][2:].split()

    @property
    def kind(self) -> str:
        """audio, video, application or whatever was written."""
        return self.fields[0] if self.fields else ""

    @property
    def mid(self) -> str:
        """The section's name, empty if it has none."""
        return self.value("mid") or ""

    def value(self, attribute: str) -> str | None:
        """The first a=attribute:value."""
        prefix = f"a={attribute}:"
        return next((line[len(prefix) :].strip() for line in self.lines if line.startswith(prefix)), None)

    def has(self, attribute: str) -> bool:
        """Whether a=attribute stands there."""
        return f"a={attribute}" in self.lines

    @property
    def refused(self) -> bool:
        """Switched off by the offerer itself; port 0 means something else inside a bundle."""
        return len(self.fields) > 1 and self.fields[1] == "0" and not self.has("bundle-only")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An ICE candidate as text behind "candidate:", and the section it was sent for."""

    text: str
    mid: str


@dataclass(frozen=True, slots=True)
class Offer:
    """An offer read: `sdp` is what aiortc gets; `refused` the sections left out, by their index."""

    sdp: str
    refused: tuple[tuple[int, Section], ...]
    local_names: tuple[Candidate, ...]
    ice_ufrag: str
    audio_mid: str
    bundle: tuple[str, ...]
    listens: bool  # whether the offerer wants to hear us


def read_offer(sdp: str) -> Offer:
    """Check an offer and take out what we do not serve; raises OfferRejected with a sentence for the caller."""
    session, sections = _split(sdp)
    audio = _choose_audio(sections)
    channel = next((s for s in sections if s.kind == "application" and not s.refused), None)
    kept = [section for section in sections if section in (audio, channel)]
    refused = tuple((n, section) for n, section in enumerate(sections) if section not in kept)
    _check_transport(session, kept)
    bundle = _bundle(session, [section.mid for section in kept])
    lines = [line for line in session.lines if not line.startswith("a=group:")]
    lines += [f"a=group:BUNDLE {' '.join(bundle)}"] if bundle else []
    lines += [line for section in kept for line in _kept_lines(section)]
    names = [
        Candidate(line.removeprefix("a=candidate:"), section.mid)
        for section in kept
        for line in section.lines
        if _LOCAL_NAME.match(line)
    ]
    return Offer(
        sdp=LINE_END.join(lines) + LINE_END,
        refused=refused,
        local_names=tuple(names[:MAX_CANDIDATES]),
        ice_ufrag=audio.value("ice-ufrag") or session.value("ice-ufrag") or "",
        audio_mid=audio.mid,
        bundle=tuple(bundle),
        listens=not (audio.has("sendonly") or audio.has("inactive")),
    )


def complete_answer(answer_sdp: str, offer: Offer) -> str:
    """Put a rejected section into the answer for each one that was left out of the offer."""
    session, sections = _split(answer_sdp)
    for index, section in offer.refused:
        sections.insert(index, _rejection(section))
    lines = [*session.lines, *(line for section in sections for line in section.lines)]
    return LINE_END.join(lines) + LINE_END


def read_fragment(text: str) -> tuple[str | None, list[Candidate]]:
    """Read a trickle fragment: its ice-ufrag if it names one, and its candidates. Raises OfferRejected.

    An empty candidate and end-of-candidates are marks without consequence.
    """
    if len(text.encode()) > MAX_BYTES:
        raise OfferRejected(f"A fragment may have {MAX_BYTES} bytes at most.", "candidate")
    ufrag: str | None = None
    mid = ""
    candidates: list[Candidate] = []
    for line in (line.strip() for line in text.splitlines()):
        content = line.removeprefix("a=")
        if content.startswith("mid:"):
            mid = content.removeprefix("mid:").strip()
        elif content.startswith("ice-ufrag:"):
            ufrag = content.removeprefix("ice-ufrag:").strip()
        elif content.startswith("candidate:"):
            candidates += _candidate(content.removeprefix("candidate:").strip(), mid)
        elif content not in ("", "null", "end-of-candidates") and not _LINE.match(line):
            raise OfferRejected("This is no trickle-ice-sdpfrag.", "candidate")
    return ufrag, candidates


def _candidate(text: str, mid: str) -> list[Candidate]:
    """None for an empty one. RFC 8839 5.1: foundation component transport priority address port "typ" type."""
    if text in ("", "null"):
        return []
    fields = text.split()
    numbers = [fields[n] for n in (1, 3, 5)] if len(fields) >= 8 else [""]
    if not all(number.isascii() and number.isdigit() and len(number) <= 10 for number in numbers):
        raise OfferRejected("This is no ICE candidate.", "candidate")
    if fields[6] != "typ" or int(fields[5]) > 65_535:
        raise OfferRejected("This is no ICE candidate.", "candidate")
    return [Candidate(text, mid)]


def _split(sdp: str) -> tuple[Section, list[Section]]:
    """The session's lines and the m= sections."""
    if len(sdp.encode()) > MAX_BYTES:
        raise OfferRejected(f"An offer may have {MAX_BYTES} bytes at most.")
    lines = [line for line in sdp.replace("\r\n", "\n").split("\n") if line]
    if not lines or lines[0] != "v=0" or not all(_LINE.match(line) for line in lines):
        raise OfferRejected("The offer is not SDP.")
    starts = [n for n, line in enumerate(lines) if line.startswith("m=")]
    ends = [*starts[1:], len(lines)]
    sections = [Section(tuple(lines[a:b])) for a, b in zip(starts, ends, strict=True)] if starts else []
    return Section(tuple(lines[: starts[0]] if starts else lines)), sections


def _choose_audio(sections: list[Section]) -> Section:
    audio = [section for section in sections if section.kind == "audio" and not section.refused]
    if not audio:
        raise OfferRejected("The offer has no audio section; add a microphone track before createOffer().")
    for section in audio:
        if any(_OPUS.match(line) for line in section.lines):
            return section
    raise OfferRejected("The offer's audio has no Opus at 48 kHz.")


def _check_transport(session: Section, kept: list[Section]) -> None:
    """Refuse what aiortc would only trip over after the answer was sent."""
    for section in kept:
        for attribute in ("ice-ufrag", "ice-pwd", "fingerprint"):
            if not (section.value(attribute) or session.value(attribute)):
                raise OfferRejected(f"The offer's {section.kind} section has no {attribute}.")
        if sum(line.startswith("a=mid:") for line in section.lines) > 1:
            raise OfferRejected(f"The offer's {section.kind} section has two mids.")


def _bundle(session: Section, mids: list[str]) -> list[str]:
    """The sections we take that share a transport; aiortc trips over names of sections that are not there."""
    if len(set(mids)) < len(mids):
        raise OfferRejected("Two sections of the offer have the same mid.")
    group = session.value("group") or ""
    return [mid for mid in group.split()[1:] if mid in mids] if group.startswith("BUNDLE") else []


def _kept_lines(section: Section) -> list[str]:
    """A section without mDNS names, end marks, and candidates beyond the limit."""
    kept: list[str] = []
    candidates = 0
    for line in section.lines:
        candidates += line.startswith("a=candidate:")
        too_many = line.startswith("a=candidate:") and candidates > MAX_CANDIDATES
        if line != "a=end-of-candidates" and not too_many and not _LOCAL_NAME.match(line):
            kept.append(line)
    return kept


def _rejection(section: Section) -> Section:
    kind, _port, protocol, *formats = [*section.fields, "RTP/SAVPF"][:3] + (section.fields[3:] or ["0"])
    lines = [f"m={kind} 0 {protocol} {' '.join(formats)}", "c=IN IP4 0.0.0.0", "a=inactive"]
    return Section(tuple(lines + ([f"a=mid:{section.mid}"] if section.mid else [])))
