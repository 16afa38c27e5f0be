"""What a picture's address may be: a data: URI that holds what it says, or https, which a Thinker's server may fetch.

A leaf, pure: base64 is read and the first bytes are compared, no picture is decoded and nothing is fetched. Formats:
those of OpenAI's vision guide (PNG, JPEG, WebP, GIF), of which Realtime takes PNG and JPEG.
"""

from urllib.parse import urlsplit

from voice_agent.base64_bytes import from_base64

STARTS = {
    "png": b"\x89PNG\r\n\x1a\n",
    "jpeg": b"\xff\xd8\xff",
    "webp": b"RIFF",
    "gif": b"GIF8",
}
REALTIME = ("png", "jpeg")
CHAT = ("png", "jpeg", "webp", "gif")
LONGEST_START = 8


def data_uri_fault(url: str, formats: tuple[str, ...]) -> str | None:
    """Say what is wrong with a picture in a data: URI, None if nothing is."""
    head, _, data = url.partition(",")
    kind = head.removeprefix("data:image/").removesuffix(";base64")
    if head != f"data:image/{kind};base64" or kind not in formats:
        return f"it is no data: URI of a picture as {', '.join(formats)} (data:image/png;base64,...)"
    try:
        start = from_base64(data)[:LONGEST_START]
    except ValueError as error:
        return f"it is not base64: {error}"
    return None if start.startswith(STARTS[kind]) else f"what it holds is no {kind}"


def address_fault(url: str) -> str | None:
    """Say what is wrong with a picture's address in chat completions, None if nothing is."""
    if url.startswith("data:"):
        return data_uri_fault(url, CHAT)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        return f"it is no address: {error}"
    if parts.scheme == "https" and parts.hostname:
        return None
    return "it is neither https nor a data: URI of a picture (data:image/png;base64,...)"
