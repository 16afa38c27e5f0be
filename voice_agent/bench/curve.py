"""The trade-off of false cut-offs against the wait after the end, as a picture (SVG, written here by hand).

Pure: numbers in, text out. Grey dots are settings, the line joins those that no other beats, the ring is the default.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 44, 52


@dataclass(frozen=True, slots=True)
class Point:
    """One setting: its median delay in ms, its share of false cut-offs, and its name."""

    delay_ms: float
    cut_offs: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class Goal:
    """The corner that settings should lie in."""

    delay_ms: float
    cut_offs: float


def best(points: Sequence[Point]) -> list[Point]:
    """Those that no other point beats, from quick to patient."""
    found: list[Point] = []
    for point in sorted(points, key=lambda point: (point.delay_ms, point.cut_offs)):
        if not found or point.cut_offs < found[-1].cut_offs:
            found.append(point)
    return found


def picture(points: Sequence[Point], default: Point, goal: Goal, title: str) -> str:
    """The SVG document. Raises ValueError without points."""
    if not points:
        raise ValueError("no points, no picture")
    most_ms = 100 * (int(max(goal.delay_ms, *(p.delay_ms for p in [*points, default])) / 100) + 1)
    most_share = max(0.2, *(p.cut_offs for p in [*points, default])) * 1.05

    def x(ms: float) -> float:
        return round(LEFT + ms / most_ms * (WIDTH - LEFT - RIGHT), 1)

    def y(share: float) -> float:
        return round(HEIGHT - BOTTOM - share / most_share * (HEIGHT - TOP - BOTTOM), 1)

    line = " ".join(f"{x(point.delay_ms)},{y(point.cut_offs)}" for point in best(points))
    dots = [
        f'<circle cx="{x(point.delay_ms)}" cy="{y(point.cut_offs)}" r="2.5" fill="#9aa5b1">'
        f"<title>{escape(_told(point))}</title></circle>"
        for point in points
    ]
    corner = (
        f'<rect x="{x(0)}" y="{y(goal.cut_offs)}" width="{round(x(goal.delay_ms) - x(0), 1)}" '
        f'height="{round(y(0) - y(goal.cut_offs), 1)}" fill="#2f9e44" fill-opacity="0.12"/>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            f'<text x="{LEFT}" y="24" font-size="15">{escape(title)}</text>',
            corner,
            *_axes(most_ms, most_share, x(0), y(0)),
            *dots,
            f'<polyline points="{line}" fill="none" stroke="#1c7ed6" stroke-width="2"/>',
            f'<circle cx="{x(default.delay_ms)}" cy="{y(default.cut_offs)}" r="6" fill="none" '
            'stroke="#e03131" stroke-width="2"/>',
            f'<text x="{x(default.delay_ms) + 10}" y="{y(default.cut_offs) - 6}" fill="#e03131">default: '
            f"{escape(_told(default))}</text>",
            "</svg>",
            "",
        ]
    )


def _axes(most_ms: int, most_share: float, left: float, bottom: float) -> list[str]:
    lines = [
        f'<path d="M{left},{TOP} V{bottom} H{WIDTH - RIGHT}" fill="none" stroke="#343a40"/>',
        f'<text x="{(WIDTH + LEFT) // 2}" y="{HEIGHT - 12}" text-anchor="middle">'
        "median end-of-turn delay, ms</text>",
        f'<text x="{LEFT}" y="{TOP - 6}">false cut-offs, % of the items</text>',
    ]
    for ms in range(0, most_ms + 1, 100 if most_ms <= 1200 else 500):
        at = round(LEFT + ms / most_ms * (WIDTH - LEFT - RIGHT), 1)
        lines.append(f'<text x="{at}" y="{bottom + 18}" text-anchor="middle">{ms}</text>')
    for percent in range(0, int(100 * most_share) + 1, 10):
        at = round(HEIGHT - BOTTOM - percent / 100 / most_share * (HEIGHT - TOP - BOTTOM), 1)
        lines.append(f'<text x="{left - 8}" y="{at + 4}" text-anchor="end">{percent}</text>')
        lines.append(f'<path d="M{left},{at} H{WIDTH - RIGHT}" stroke="#dee2e6" stroke-width="0.5"/>')
    return lines


def _told(point: Point) -> str:
    return f"{point.name} {100 * point.cut_offs:.0f} % cut off, {point.delay_ms:.0f} ms".strip()
