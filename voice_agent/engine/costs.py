"""What a launch takes on the device, learnt from every launch: for the cycle scheduler's predictions.

A launch replays a captured graph, so it has the size of a bucket: rows for the frame graph and for a prefill,
(frames, rows) for the VoiceBox. Every bucket is measured while warming up, in the company that it will have; later
the figures follow the load. Which buckets exist is read off those first figures.
"""

from bisect import bisect_left
from collections.abc import Mapping

WEIGHT = 0.1  # of the newest measurement: ten launches, some 40 ms, make two thirds of an estimate
MOST_OUTLIER = 4.0  # times the estimate: one hiccup of the host must not close admission

RenderBucket = tuple[int, int]  # frames, rows


class Costs:
    """Estimates in ms per bucket. Raises ValueError without buckets, or if asked for more than the largest holds."""

    def __init__(
        self,
        frames_ms: Mapping[int, float],
        render_ms: Mapping[RenderBucket, float],
        prefill_ms: Mapping[int, float] | None = None,
    ) -> None:
        if not frames_ms or not render_ms:
            raise ValueError("costs need at least one measured bucket of each kind")
        self._frames_ms = dict(sorted(frames_ms.items()))
        self._render_ms = dict(render_ms)
        self._prefill_ms = dict(sorted((prefill_ms or {}).items()))
        self._covering: dict[RenderBucket, RenderBucket] = {}
        self.most_rows = max(frames_ms)
        self.most_render_frames = max(frames for frames, _ in render_ms)
        self._most_rows_of: dict[int, int] = {}
        self._lengths = sorted({frames for frames, _ in render_ms})

    def frame_bucket(self, rows: int) -> int:
        """The smallest frame graph for so many rows."""
        for bucket in self._frames_ms:
            if bucket >= rows:
                return bucket
        raise ValueError(f"{rows} rows are more than the largest frame graph's {self.most_rows}")

    def frame_ms(self, rows: int) -> float:
        """One cycle of Talker and Code Predictor; past the largest graph, as many of it as it takes."""
        rounds, rest = divmod(max(1, rows), self.most_rows)
        whole_ms = rounds * self._frames_ms[self.most_rows]
        return whole_ms + (self._frames_ms[self.frame_bucket(rest)] if rest else 0.0)

    def prefill_bucket(self, rows: int) -> int:
        """The smallest prefill graph for so many rows of one reply."""
        for bucket in self._prefill_ms:
            if bucket >= rows:
                return bucket
        raise ValueError(f"{rows} rows are more than the largest prefill graph holds")

    def holds_prefill(self, rows: int) -> bool:
        """Whether there is a prefill graph for so many rows; none are needed for none."""
        return rows == 0 or any(bucket >= rows for bucket in self._prefill_ms)

    def prefill_ms(self, bucket: int) -> float:
        """One reply's prefill."""
        return self._prefill_ms[bucket]

    def render_bucket(self, frames: int, rows: int) -> RenderBucket:
        """The smallest VoiceBox graph for so many frames of so many rows."""
        wanted = (frames, rows)
        if wanted not in self._covering:
            fits = [held for held in self._render_ms if held[0] >= frames and held[1] >= rows]
            if not fits:
                raise ValueError(f"no VoiceBox graph holds {frames} frames of {rows} rows")
            self._covering[wanted] = min(fits, key=lambda held: (held[0] * held[1], held))
        return self._covering[wanted]

    def render_ms(self, frames: int, rows: int) -> float:
        """One VoiceBox launch."""
        return self._render_ms[self.render_bucket(frames, rows)]

    def most_render_rows(self, frames: int) -> int:
        """How many rows of so many frames one VoiceBox launch takes at most; 0 if no graph is that long."""
        if frames not in self._most_rows_of:
            fits = [rows for held, rows in self._render_ms if held >= frames]
            self._most_rows_of[frames] = max(fits, default=0)
        return self._most_rows_of[frames]

    def render_frames_at_least(self, frames: int) -> int:
        """The shortest VoiceBox graph that holds so many frames, or the longest there is."""
        place = bisect_left(self._lengths, frames)
        return self._lengths[min(place, len(self._lengths) - 1)]

    def learn_frames(self, bucket: int, took_ms: float) -> None:
        """A frame graph took so long."""
        self._frames_ms[bucket] = _learnt(self._frames_ms[bucket], took_ms)

    def learn_prefill(self, bucket: int, took_ms: float) -> None:
        """A prefill graph took so long."""
        self._prefill_ms[bucket] = _learnt(self._prefill_ms[bucket], took_ms)

    def learn_render(self, bucket: RenderBucket, took_ms: float) -> None:
        """A VoiceBox graph took so long."""
        self._render_ms[bucket] = _learnt(self._render_ms[bucket], took_ms)


def _learnt(estimate_ms: float, took_ms: float) -> float:
    return estimate_ms + WEIGHT * (min(took_ms, MOST_OUTLIER * estimate_ms) - estimate_ms)
