"""The lines of a soak as one SVG: a small panel each, a tick for each fault, in colours that do on a light and a dark page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from tests.soak.slopes import Points

WIDTH, HEIGHT = 880, 92
"""Of a panel with its title, in pixels."""
LEFT, RIGHT, TOP, BOTTOM = 66, 10, 22, 8
LETTERS = 12
STYLE = (
    f"text {{ font: {LETTERS}px sans-serif; fill: #57606a }} .title {{ fill: #24292f }}"
    " .line { fill: none; stroke: #0969da; stroke-width: 1.3 }"
    " .frame { stroke: #8c959f; stroke-width: 0.6 } .fault { stroke: #cf222e; stroke-width: 0.7; opacity: 0.35 }"
    " @media (prefers-color-scheme: dark) { text { fill: #8b949e } .title { fill: #e6edf3 } .line { stroke: #58a6ff } }"
)


class Panel(NamedTuple):
    """One line, in several pieces where it was interrupted."""

    title: str
    pieces: Sequence[Points]


def drawn(panels: Sequence[Panel], faults: Sequence[float], seconds: float) -> str:
    """Panels above each other over the same time, with its scale below the last."""
    height = HEIGHT * len(panels) + 24
    body = "\n".join(_panel(panel, place * HEIGHT, faults, seconds) for place, panel in enumerate(panels))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="The lines of a soak">'
    return f"{head}\n<style>{STYLE}</style>\n{body}\n{_scale(seconds, HEIGHT * len(panels))}\n</svg>\n"


def _panel(panel: Panel, top: float, faults: Sequence[float], seconds: float) -> str:
    values = [value for piece in panel.pieces for _, value in piece]
    highest = max(values, default=1.0) or 1.0
    floor, ceiling = top + HEIGHT - BOTTOM, top + TOP
    parts = [f'<text class="title" x="{LEFT}" y="{top + 14}">{escape(panel.title)}</text>']
    parts += [f'<line class="fault" x1="{(x := _x(at, seconds)):.1f}" x2="{x:.1f}" y1="{ceiling}" y2="{floor}"/>' for at in faults]
    parts.append(f'<path class="frame" d="M{LEFT} {ceiling}V{floor}H{WIDTH - RIGHT}" fill="none"/>')
    parts += [f'<text x="{LEFT - 6}" y="{y}" text-anchor="end">{_short(value)}</text>' for y, value in ((ceiling + 8, highest), (floor, 0))]
    for piece in panel.pieces:
        points = " ".join(f"{_x(at, seconds):.1f},{floor - (floor - ceiling) * value / highest:.1f}" for at, value in piece)
        parts.append(f'<polyline class="line" points="{points}"/>')
    return "\n".join(parts)


def _scale(seconds: float, top: float) -> str:
    step = next((minutes for minutes in (1, 5, 10, 20, 30, 60) if seconds / 60 / minutes <= 8), 120)
    marks = range(0, int(seconds / 60) + 1, step)
    return "\n".join(f'<text x="{_x(60 * mark, seconds):.1f}" y="{top + 14}" text-anchor="middle">{mark} min</text>' for mark in marks)


def _x(at: float, seconds: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, at / seconds)


def _short(value: float) -> str:
    return f"{value / 1000:,.0f}k" if value >= 10_000 else f"{value:.3g}"
