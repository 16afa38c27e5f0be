"""The place of the watermark: once per reply, at the model's own rate, after the last gain, before the playout.

Later than that a resampler, a codec's gain or a second voice would blur it; earlier, a gain stage would undo its
level. Every way to the user's ear passes here, so no transport can forget it. For now the only one is "none",
which says so by name: nothing is embedded. Knows nothing of replies, transports or keys.
"""

from typing import Protocol

from voice_agent.audio import Samples, silence


class Watermarker(Protocol):
    """Marks one reply's sound as it streams by; a new one is made for each reply."""

    name: str

    def push(self, pcm: Samples, rate_hz: int) -> Samples:
        """Mark [T] int16 samples; may hold some back for its window. The rate must not change within a reply."""
        ...

    def flush(self) -> Samples:
        """Give what was held back, [T] int16, possibly empty. As many samples leave as came in."""
        ...


class PassThrough:
    """No watermark: the very samples that came in go out, at once."""

    name = "none"

    def push(self, pcm: Samples, rate_hz: int) -> Samples:
        """Return `pcm` itself, neither copied nor changed."""
        return pcm

    def flush(self) -> Samples:
        """Return nothing: nothing is ever held back."""
        return silence(0)
