"""When a reply's sound runs out at its listener, and which of two replies is more urgent: for every speech engine.

The listener is assumed to have no buffer: what arrives plays at once. A reply without sound comes before every one
that sounds, the longest waiting first; of those that sound, the one that runs out first. Knows no model, no device.
"""

from voice_agent.clock import NS_PER_MS

Key = tuple[str, int]  # request id, epoch


class Playout:
    """One reply at its listener: `wanted_ns` since when there is something to say, `runs_out_ns` None before sound."""

    __slots__ = ("runs_out_ns", "sounded_ms", "underruns", "wanted_ns")

    def __init__(self, wanted_ns: int = 0) -> None:
        self.wanted_ns = wanted_ns
        self.runs_out_ns: int | None = None
        self.sounded_ms = 0.0
        self.underruns = 0

    def sounded(self, ms: float, now_ns: int) -> bool:
        """So much more sound reached the listener; True if it had run out, or was the first."""
        dry = self.is_dry(now_ns)
        self.underruns += self.runs_out_ns is not None and self.runs_out_ns < now_ns
        starts_ns = now_ns if self.runs_out_ns is None else max(self.runs_out_ns, now_ns)
        self.runs_out_ns = starts_ns + int(ms * NS_PER_MS)
        self.sounded_ms += ms
        return dry

    def is_dry(self, now_ns: int) -> bool:
        """Whether the listener hears nothing at the moment."""
        return self.runs_out_ns is None or self.runs_out_ns <= now_ns

    def lead_ns(self, now_ns: int) -> int:
        """How much sound lies ahead of the listener; negative after it ran out, 0 before the first."""
        return 0 if self.runs_out_ns is None else self.runs_out_ns - now_ns

    def urgency(self) -> tuple[bool, int]:
        """Smaller is sooner."""
        return self.runs_out_ns is not None, self.wanted_ns if self.runs_out_ns is None else self.runs_out_ns
