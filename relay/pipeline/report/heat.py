"""Heat maps of a report: when messages are settled, by exchange and hour of the day, and by day and hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from relay.pipeline.report import scales
from relay.pipeline.report.model import ExchangeFigures, ReportSpan
from relay.pipeline.report.svg import COLOURS, Plot, Shape, label_of, plot, room_for
from relay.pipeline.report.text import label, number

Floats = npt.NDArray[np.float64]
Key = tuple[tuple[str, str], ...]
"""The legend of a plot: pairs of a colour's name and its meaning."""
EXCHANGES = 15
"""How many exchanges are named; all other exchanges share the last row."""
_RECTANGLE = (Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY)
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
_OUTSIDE = -1.0
"""A value for cells without a count: it is below every level, so nothing is drawn."""


def by_exchange(exchanges: Sequence[ExchangeFigures]) -> tuple[Plot, Key]:
    """Settled messages by exchange and hour of the day."""
    rows = _rows(exchanges)
    cells = np.array([row.hours for row in rows], dtype=np.float64)
    names = [label(row.name) for row in rows]

    def draw(figure: Figure, shape: Shape) -> None:
        figure.subplots_adjust(left=room_for(names, shape), right=0.995, top=0.995, bottom=0.34 / figure.get_figheight())
        axes = figure.subplots()
        _cells(axes, cells, np.arange(25, dtype=np.float64), edge=COLOURS["grid"])
        axes.set_yticks(np.arange(len(rows)) + 0.5, [label_of(place) for place in range(len(rows))])
        hours = range(0, 25, 3 if shape == "wide" else 6)
        axes.set_xticks(list(hours), [f"{hour:02d}{':00' if shape == 'wide' else ''}" for hour in hours])
        for tick in axes.get_xticklabels()[-1:]:
            tick.set_horizontalalignment("right")

    row, hour = np.unravel_index(int(cells.argmax()), cells.shape)
    words = f"Messages by exchange and hour of the day in UTC: the busiest is {names[row]} from {hour:02d}:00, with {number(cells.max())}."
    return plot("heat", draw, height=0.42 + 0.27 * len(rows), words=words, labels=names), _key(_levels(cells.max()))


def by_day(span: ReportSpan, hours: Mapping[datetime, int]) -> tuple[Plot, Key]:
    """Settled messages by day and hour, at least one message in all; hours outside the span stay empty."""
    first = span.since.replace(hour=0, minute=0)
    days = -((first - span.until) // _DAY)
    cells = np.full((24, days), _OUTSIDE)
    for place in range(24 * days):
        hour = first + place * _HOUR
        if hour + _HOUR > span.since and hour < span.until:
            cells[place % 24, place // 24] = hours.get(hour, 0)
    edges = np.array([float(date2num(first)) + day for day in range(days + 1)])  # type: ignore[no-untyped-call]

    def draw(figure: Figure, shape: Shape) -> None:
        axes = figure.subplots()
        _cells(axes, cells, edges)
        axes.set_yticks([0, 6, 12, 18], ["00:00", "06:00", "12:00", "18:00"])
        scales.time(axes, first, first + days * _DAY, shape, least=_DAY)

    busiest = max(hours, key=lambda hour: hours[hour])
    words = f"Messages by day and hour in UTC: the busiest hour began {busiest:%Y-%m-%d %H:%M}, with {number(hours[busiest])}."
    return plot("days", draw, height=2.5, words=words), _key(_levels(cells.max()))


def _cells(axes: Axes, cells: Floats, edges: Floats, *, edge: str | None = None) -> None:
    """Draw cells in the colours of their levels, the first row on top. All cells of a level are one shape, so that the SVG stays small."""
    bounds = _levels(cells.max())
    levels = np.searchsorted(bounds, cells, side="right") - 1
    for level in range(len(bounds) - 1):
        rectangles = [_corners(row, edges[first], edges[last]) for row, first, last in _runs(levels == level, whole=edge is not None)]
        if rectangles:
            path = Path(np.concatenate(rectangles), _RECTANGLE * len(rectangles))
            colour = COLOURS[f"heat-{level}"]
            axes.add_patch(PathPatch(path, facecolor=colour, edgecolor=edge or colour, linewidth=0.4))
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(len(cells), 0)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _runs(chosen: npt.NDArray[np.bool_], *, whole: bool) -> list[tuple[int, int, int]]:
    """Row, first and last edge of each chosen cell (`whole`), or of each run of chosen cells side by side."""
    if whole:
        return [(int(row), int(column), int(column) + 1) for row, column in np.argwhere(chosen)]
    changes = np.diff(np.pad(chosen, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    begins, ends = np.argwhere(changes == 1), np.argwhere(changes == -1)
    return [(int(row), int(first), int(last)) for (row, first), (_, last) in zip(begins, ends, strict=True)]


def _corners(row: int, left: float, right: float) -> Floats:
    return np.array([(left, row), (right, row), (right, row + 1), (left, row + 1), (left, row)], dtype=np.float64)


def _rows(exchanges: Sequence[ExchangeFigures]) -> list[ExchangeFigures]:
    rows = sorted(exchanges, key=lambda exchange: -sum(exchange.hours))
    named, others = (rows, []) if len(rows) <= EXCHANGES + 1 else (rows[:EXCHANGES], rows[EXCHANGES:])
    if others:
        hours = tuple(sum(hour) for hour in zip(*(exchange.hours for exchange in others), strict=True))
        named = [*named, ExchangeFigures(name=f"{len(others)} others", figures=others[0].figures, hours=hours)]
    return named


def _levels(highest: float) -> list[float]:
    """Bounds of the colours: zero, then five steps that grow quadratically, so that quiet and busy hours can be distinguished."""
    if highest <= 5:  # noqa: PLR2004 - five colours for 1 to 5
        return [0, *(level - 0.5 for level in range(1, int(highest) + 2))]
    steps = sorted({max(1.0, _round(highest * (level / 5) ** 2)) for level in range(1, 5)} - {1.0})
    return [0, 0.5, *steps, highest + 1]


def _round(value: float) -> float:
    """Round to one digit."""
    size = 10.0 ** np.floor(np.log10(value))
    return float(np.round(value / size) * size)


def _key(bounds: Sequence[float]) -> Key:
    lows = [int(np.ceil(bound)) for bound in bounds[:-1]]
    highs = [int(np.ceil(bound)) - 1 for bound in bounds[1:]]
    return tuple(
        (f"heat-{level}", number(low) if low == high else f"{number(low)} to {number(high)}")
        for level, (low, high) in enumerate(zip(lows, highs, strict=True))
    )
