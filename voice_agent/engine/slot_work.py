"""What the engine of slots has done since it began, as running totals: launches of each stage, their rows and time.

Whoever reads them twice knows the mean of what lay between. No device, no clock: told by the launch thread.
"""

from dataclasses import asdict, dataclass, field

from voice_agent.engine.launches import Frames, Prefill, Render


@dataclass(eq=False)
class SlotWork:
    """Totals; `ended` counts replies by how they ended. Times are the device's own, in ms."""

    frames: int = 0
    frame_rows: int = 0
    frame_ms: float = 0.0
    renders: int = 0
    render_frames: int = 0
    render_ms: float = 0.0
    prefills: int = 0
    prefill_ms: float = 0.0
    ended: dict[str, int] = field(default_factory=dict[str, int])

    def did(self, launch: Frames | Prefill | Render, took_ms: float) -> None:
        """A launch ended."""
        match launch:
            case Frames():
                self.frames += 1
                self.frame_rows += len(launch.rows)
                self.frame_ms += took_ms
            case Render():
                self.renders += 1
                self.render_frames += sum(row.frames for row in launch.rows)
                self.render_ms += took_ms
            case Prefill():
                self.prefills += 1
                self.prefill_ms += took_ms

    def over(self, why: str) -> None:
        """A reply ended so."""
        self.ended[why] = self.ended.get(why, 0) + 1

    def totals(self) -> dict[str, float]:
        """All of it, flat."""
        found = asdict(self)
        ended = found.pop("ended")
        return found | {f"ended_{why}": count for why, count in ended.items()}
