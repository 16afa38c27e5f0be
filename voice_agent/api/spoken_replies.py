"""What earlier spoken replies said, by their audio id, so that a client may refer to them instead of repeating them.

Texts only, for an hour, the newest thousand: an older one leaves without a word. One process's memory.
"""

from collections import OrderedDict
from collections.abc import Callable

KEPT_S = 3_600
MOST_REPLIES = 1_000


class SpokenReplies:
    """`now_s` gives unix seconds: the id's time of expiry is told to clients."""

    def __init__(self, now_s: Callable[[], float], most: int = MOST_REPLIES) -> None:
        self._now_s = now_s
        self._most = most
        self._texts: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def keep(self, audio_id: str, text: str, expires_at: float) -> None:
        """Remember a reply until its time."""
        self._texts[audio_id] = (text, expires_at)
        while len(self._texts) > self._most:
            self._texts.popitem(last=False)

    def text(self, audio_id: str) -> str | None:
        """What was said; None if it is not known (any more)."""
        text, expires_at = self._texts.get(audio_id, ("", 0.0))
        return text if expires_at > self._now_s() else None
