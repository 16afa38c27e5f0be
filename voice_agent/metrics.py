"""The stamps of one turn on its way, and the parts they make.

Parts are cut along the critical path: each stage's part is the time it added after everything before it was done,
so what ran ahead costs nothing and the parts always sum to the total.
"""

from dataclasses import dataclass, field

from voice_agent.clock import ms_between

# the order of the way; `voiced` is the arrival of the last voiced microphone sample
STAGES = ("vad", "endpoint", "recognizer", "thinker", "clause", "talker", "playout")


@dataclass
class TurnTimeline:
    """Stamps in ns by stage, each the instant its work was done; the first stamp of a stage counts."""

    turn_id: str | None
    reply_id: str = ""
    voiced_ns: int | None = None
    stamps_ns: dict[str, int] = field(default_factory=dict[str, int])
    transcript: str = ""
    text: str = ""
    heard_text: str = ""
    status: str = "open"

    def stamp(self, stage: str, now_ns: int) -> None:
        """Note that a stage is done; only the first time counts."""
        self.stamps_ns.setdefault(stage, now_ns)

    def parts_ms(self) -> dict[str, float]:
        """What each stage added; empty until the reply was audible. Sums to `total_ms`."""
        if self.voiced_ns is None or "playout" not in self.stamps_ns:
            return {}
        parts: dict[str, float] = {}
        reached_ns = self.voiced_ns
        for stage in STAGES:
            done_ns = max(reached_ns, self.stamps_ns.get(stage, reached_ns))
            parts[stage] = ms_between(reached_ns, done_ns)
            reached_ns = done_ns
        return parts

    def total_ms(self) -> float | None:
        """Last voiced sample in to first audible sample out, at the server."""
        parts = self.parts_ms()
        return sum(parts.values()) if parts else None

    def as_json(self) -> dict[str, object]:
        """The form of the timeline endpoint."""
        total = self.total_ms()
        return {
            "turn_id": self.turn_id,
            "reply_id": self.reply_id,
            "transcript": self.transcript,
            "text": self.text,
            "heard_text": self.heard_text,
            "status": self.status,
            "parts_ms": {stage: round(ms, 1) for stage, ms in self.parts_ms().items()},
            "total_ms": None if total is None else round(total, 1),
        }
