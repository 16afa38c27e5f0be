"""First sound and underruns over the load, as a picture (SVG, written here by hand). Pure: reports in, text out.

Blue is audible first sound (p50 dashed, p95 full), the red bars are the share of replies that ran dry, the green band
is where p95 should lie. A lost percentile breaks the line.
"""

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 60, 48, 56


def picture(points: Sequence[dict[str, Any]], limit_ms: float, title: str) -> str:
    """The SVG document of the open-loop points. Raises ValueError without any."""
    shown = sorted((p for p in points if p["loop"] == "open"), key=lambda p: p["load"])
    if not shown:
        raise ValueError("no open-loop points, no picture")
    times = [ms for p in shown for name in ("p50", "p95") if (ms := p["audible_ms"][name]) is not None]
    scale = _Scale(shown[-1]["load"] * 1.05, max(limit_ms, *times, 1.0) * 1.15)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            f'<text x="{LEFT}" y="24" font-size="15">{escape(title)}</text>',
            f'<rect x="{LEFT}" y="{scale.y(limit_ms)}" width="{WIDTH - LEFT - RIGHT}" '
            f'height="{round(scale.y(0) - scale.y(limit_ms), 1)}" fill="#2f9e44" fill-opacity="0.12"/>',
            *_axes(scale, shown),
            *(_bar(scale, p) for p in shown if p["underrun_share"] > 0),
            *_line(scale, shown, "p50", 'stroke-dasharray="5 4"'),
            *_line(scale, shown, "p95", ""),
            *(_dot(scale, p) for p in shown),
            "</svg>",
            "",
        ]
    )


class _Scale:
    """Loads and milliseconds to places; shares of 0-100 % share the height."""

    def __init__(self, most_load: float, most_ms: float) -> None:
        self.most_load, self.most_ms = most_load, most_ms

    def x(self, load: float) -> float:
        return round(LEFT + load / self.most_load * (WIDTH - LEFT - RIGHT), 1)

    def y(self, ms: float) -> float:
        return round(HEIGHT - BOTTOM - ms / self.most_ms * (HEIGHT - TOP - BOTTOM), 1)


def _axes(scale: _Scale, points: Sequence[dict[str, Any]]) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    lines = [
        f'<path d="M{LEFT},{TOP} V{bottom} H{right} V{TOP}" fill="none" stroke="#343a40"/>',
        f'<text x="{(LEFT + right) // 2}" y="{HEIGHT - 14}" text-anchor="middle">requests a second</text>',
        f'<text x="{LEFT}" y="{TOP - 8}" fill="#1c7ed6">audible first sound, ms (p50 dashed, p95)</text>',
        f'<text x="{right}" y="{TOP - 8}" text-anchor="end" fill="#e03131">replies that ran dry, %</text>',
    ]
    for p in points:
        x = scale.x(p["load"])
        lines.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{p["load"]:g}</text>')
    step = next(
        step for step in (10, 20, 50, 100, 200, 500, 1_000, 5_000, 100_000) if scale.most_ms / step <= 10
    )
    for ms in range(0, int(scale.most_ms) + 1, step):
        lines.append(f'<text x="{LEFT - 8}" y="{scale.y(ms) + 4}" text-anchor="end">{ms}</text>')
        lines.append(f'<path d="M{LEFT},{scale.y(ms)} H{right}" stroke="#dee2e6" stroke-width="0.5"/>')
    for percent in range(0, 101, 20):
        y = scale.y(scale.most_ms * percent / 100)
        lines.append(f'<text x="{right + 8}" y="{y + 4}">{percent}</text>')
    return lines


def _bar(scale: _Scale, p: dict[str, Any]) -> str:
    x, y = scale.x(p["load"]), scale.y(scale.most_ms * p["underrun_share"])
    height = round(scale.y(0) - y, 1)
    title = f"<title>{100 * p['underrun_share']:.2f} % of the replies ran dry</title>"
    return f'<rect x="{x - 5}" y="{y}" width="10" height="{height}" fill="#e03131" fill-opacity="0.5">{title}</rect>'


def _line(scale: _Scale, points: Sequence[dict[str, Any]], rank: str, style: str) -> list[str]:
    runs: list[list[str]] = [[]]
    for p in points:
        ms = p["audible_ms"][rank]
        if ms is None:
            runs.append([])
        else:
            runs[-1].append(f"{scale.x(p['load'])},{scale.y(ms)}")
    return [
        f'<polyline points="{" ".join(run)}" fill="none" stroke="#1c7ed6" stroke-width="2" {style}/>'
        for run in runs
        if len(run) > 1
    ]


def _dot(scale: _Scale, p: dict[str, Any]) -> str:
    ms, passes = p["audible_ms"]["p95"], p["verdict"]["passes"]
    place = f'cx="{scale.x(p["load"])}" cy="{scale.y(scale.most_ms if ms is None else ms)}"'
    said = "lost" if ms is None else f"{ms:.1f} ms"
    fill = "#1c7ed6" if passes else "#ffffff"
    title = f"<title>{p['load']:g} a second: p95 {said}</title>"
    return f'<circle {place} r="4" fill="{fill}" stroke="#1c7ed6" stroke-width="2">{title}</circle>'
