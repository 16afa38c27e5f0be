"""Whether a sound file is all there, told by the lengths that its container writes down.

Nothing is decoded. A file is cut off where it ends inside a frame, page, box or element; behind the last whole one
anything else may come (tags, padding). What was cut exactly between two of them, in a format that tells no length,
looks like a recording that was stopped, and is taken for one. Sources: RFC 3533 (Ogg), ISO/IEC 14496-12 (MP4), RFC 8794
(Matroska), ISO/IEC 11172-3, 13818-3 and -7 (MP3, ADTS), Multimedia Programming Interface 1.0 and EBU 3306 (WAV).
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

MOST_PIECES = 250_000  # looked at; an hour of sound in pieces of 20 ms has fewer
HEAD_BYTES = 65_536  # in which the first frame is looked for
TAIL_BYTES = 16_384  # where the last frames of a stream are looked for; one has 2,881 bytes at most
SKIPPED_FRAMES = 4  # of an MP3 that go to the coder's delay and to filling the last one
WAV_UNKNOWN = 0x7FFF_0000  # sizes from here on mean that the writer could not know


def ends_inside(data: bytes, demuxer: str) -> str:
    """What a file in this container ends in the middle of; "" if it is whole."""
    check, piece = CHECKS.get(demuxer, (None, ""))
    return piece if check and check(data) else ""


def _wav(data: bytes) -> bool:
    """RF64 has the true length in front."""
    wide = 0
    for name, length, at in islice(wav_chunks(data), MOST_PIECES):
        if name == b"ds64" and at + 16 <= len(data):
            wide = struct.unpack_from("<Q", data, at + 8)[0]
        if name == b"data":
            said = wide if wide and length >= WAV_UNKNOWN else length if length < WAV_UNKNOWN else 0
            return len(data) - at < said
    return False


def wav_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Name, length as written and first byte of each chunk, whose content is padded to even."""
    at = 12
    while at + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, at)
        at += 8
        yield name, length, at
        at += length + length % 2


def _ogg(data: bytes) -> bool:
    """Pages: a header with the sizes of what follows; a last size of 255 means that the packet goes on."""
    at = data.rfind(b"OggS")
    if at < 0 or len(data) < at + 27:
        return True
    sizes = data[at + 27 : at + 27 + data[at + 26]]
    end = at + 27 + len(sizes) + sum(sizes)
    if len(sizes) < data[at + 26] or end > len(data) or sizes[-1:] == b"\xff":
        return True
    return end < len(data) and b"OggS".startswith(data[end:])


BOXES = {b"ftyp", b"moov", b"moof", b"mdat", b"styp", b"sidx", b"mfra", b"free", b"skip", b"wide", b"uuid"}


def _mp4(data: bytes) -> bool:
    """Boxes: size, kind; size 1 means that a longer one follows, 0 that the box goes on to the end."""
    at = 0
    for _ in range(MOST_PIECES):
        if at + 8 > len(data):
            break
        size, kind = struct.unpack_from(">I4s", data, at)
        if size == 1 and at + 16 <= len(data):
            size = struct.unpack_from(">Q", data, at + 8)[0]
        if kind not in BOXES or size < 8:
            return False
        at += size
    return at > len(data)


SEGMENT, CLUSTER = b"\x18\x53\x80\x67", b"\x1f\x43\xb6\x75"
ELEMENTS = {  # those that stand in a segment or a cluster
    SEGMENT, CLUSTER, b"\x1a\x45\xdf\xa3", b"\x11\x4d\x9b\x74", b"\x15\x49\xa9\x66", b"\x16\x54\xae\x6b",
    b"\x1c\x53\xbb\x6b", b"\x12\x54\xc3\x67", b"\x10\x43\xa7\x70", b"\x19\x41\xa4\x69",
    b"\xec", b"\xbf", b"\xe7", b"\xa3", b"\xa0", b"\xa7", b"\xab",
}  # fmt: skip


def _matroska(data: bytes) -> bool:
    """Elements: identity and size, each as long as its first byte says; live ones do not know their size."""
    at = 0
    for _ in range(MOST_PIECES):
        if at >= len(data):
            break
        width = 9 - data[at].bit_length()
        if data[at : at + width] not in ELEMENTS:
            return False
        identity, at = data[at : at + width], at + width
        if at >= len(data):
            return True
        width = 9 - data[at].bit_length()
        size = int.from_bytes(data[at : at + width]) & ((1 << 7 * width) - 1)
        at += width
        if size == (1 << 7 * width) - 1:
            if identity not in {SEGMENT, CLUSTER}:
                return False
        else:
            at += size
    return at > len(data)


# --- frames one after another --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame's header: what all of a stream share, its bytes and samples, and its rate."""

    kind: bytes
    size: int
    samples: int
    rate_hz: int


Reader = Callable[[bytes, int], Frame | None]
_L1 = (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448)
_L2 = (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384)
_L3 = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_LOW_L1 = (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256)
_LOW = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
KBIT_S = {
    (True, 3): _L1,
    (True, 2): _L2,
    (True, 1): _L3,
    (False, 3): _LOW_L1,
    (False, 2): _LOW,
    (False, 1): _LOW,
}
RATES_HZ = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}


def mpeg_frame(data: bytes, at: int) -> Frame | None:
    """The MPEG audio frame (layers 1 to 3) that begins here; None if none does, or it does not tell its size."""
    head = data[at : at + 4]
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bit_rate, rate, padding = head[2] >> 4, head[2] >> 2 & 3, head[2] >> 1 & 1
    if version == 1 or layer == 0 or bit_rate in {0, 15} or rate == 3:
        return None
    first = version == 3  # MPEG 1; 2 and 2.5 have half the rates, and half the samples in layer 3
    rate_hz, bits_s = RATES_HZ[version][rate], 1000 * KBIT_S[first, layer][bit_rate - 1]
    samples = 384 if layer == 3 else 576 if layer == 1 and not first else 1152
    size = (
        4 * (12 * bits_s // rate_hz + padding) if layer == 3 else samples // 8 * bits_s // rate_hz + padding
    )
    return Frame(bytes([head[1] & 0xFE, head[2] & 0x0C]), size, samples, rate_hz)


def _adts_frame(data: bytes, at: int) -> Frame | None:
    head = data[at : at + 7]
    if len(head) < 6 or head[0] != 0xFF or head[1] & 0xF6 != 0xF0:
        return None
    size = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    return Frame(bytes([head[1], head[2]]), size, 1024, 0) if size >= 7 else None


def _first_pair(data: bytes, at: int, until: int, read: Reader) -> int:
    """Where a frame begins behind which another of its kind begins; -1 if nowhere."""
    while (at := data.find(b"\xff", at, until)) >= 0:
        frame = read(data, at)
        after = read(data, at + frame.size) if frame else None
        if frame and after and after.kind == frame.kind:
            return at
        at += 1
    return -1


def _ends_in_frame(data: bytes, read: Reader) -> bool:
    at = max(0, len(data) - TAIL_BYTES)
    while (at := _first_pair(data, at, len(data), read)) >= 0:
        begin = data[at : at + 2]
        while frame := read(data, at):
            at += frame.size
        if at >= len(data):
            return at > len(data)
        if len(data) - at < 7 and begin.startswith(data[at : at + 2]):
            return True
    return False


def said_mp3_s(data: bytes) -> float:
    """How long an MP3 says that it is at least (Xing's or LAME's table in its first frame); 0.0 if it does not say."""
    at = 10 + int("".join(f"{byte:07b}" for byte in data[6:10]), 2) if data[:3] == b"ID3" else 0
    at = _first_pair(data, at, at + HEAD_BYTES, mpeg_frame)
    frame = mpeg_frame(data, at) if at >= 0 else None
    if frame is None:
        return 0.0
    head = data[at : at + min(frame.size, 200)]
    table = max(head.find(b"Xing"), head.find(b"Info"))
    if table < 0 or len(head) < table + 12 or not head[table + 7] & 1:
        return 0.0
    frames = int.from_bytes(head[table + 8 : table + 12])
    return max(0, frames - SKIPPED_FRAMES) * frame.samples / frame.rate_hz


CHECKS: dict[str, tuple[Callable[[bytes], bool], str]] = {
    "wav": (_wav, "its sound"),
    "ogg": (_ogg, "a page"),
    "mov": (_mp4, "a box"),
    "matroska": (_matroska, "an element"),
    "mp3": (lambda data: _ends_in_frame(data, mpeg_frame), "a frame"),
    "aac": (lambda data: _ends_in_frame(data, _adts_frame), "a frame"),
}
