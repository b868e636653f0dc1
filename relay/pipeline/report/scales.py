"""The scales of a report's plots: each axis has enough labels to be read, in common units."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from datetime import datetime, timedelta
from datetime import time as clock

from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from relay.pipeline.report.svg import Shape
from relay.pipeline.report.text import milliseconds

_SECOND, _MINUTE, _HOUR = 1e3, 6e4, 3.6e6
_DURATIONS = (
    *(digit * size for size in (0.1, 1.0, 10.0, 100.0, _SECOND) for digit in (1, 2, 5)),
    *(count * unit for unit in (_SECOND, _MINUTE) for count in (10, 20, 60, 120, 300)),
    *(count * _HOUR for count in (12, 24, 48)),
)
"""Durations in ms that a label may show. Their range, a tenth of a millisecond to two days, is wider than the range of the buckets."""
LEAST_MS = _DURATIONS[0]
_DAY = timedelta(days=1)
_INTERVALS = tuple(timedelta(minutes=minutes) for minutes in (5, 10, 15, 30, 60, 120, 180, 360, 720))
"""Intervals between labels, shorter than a day. Each is at most twice the one before, so that every plot has at least two labels."""
_SPACES: Mapping[Shape, int] = {"wide": 8, "narrow": 4}
"""How many intervals a time axis has room for."""
_DATES: Mapping[Shape, str] = {"wide": "%Y-%m-%d", "narrow": "%b %d"}


def durations(axes: Axes, low: float, high: float) -> None:
    """A logarithmic scale for durations in ms, which begins with a label and has at least a second label."""
    first = max(0, bisect_right(_DURATIONS, low) - 1)
    last = max(bisect_left(_DURATIONS, high), first + 1)
    labels = _DURATIONS[first : last + 1]
    axes.set_yscale("log")
    axes.set_ylim(labels[0], labels[-1])
    axes.yaxis.set_major_locator(FixedLocator(labels[:: -(-len(labels) // 5)]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: milliseconds(value)))


def counts(axes: Axes) -> None:
    """A scale from zero up, for counts."""
    axes.set_ylim(bottom=0, top=None if axes.dataLim.y1 > 0 else 1)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _count(value)))


def percents(axes: Axes, low: float, high: float) -> None:
    """A scale for shares in percent, with as many digits as are needed to distinguish them."""
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.10g} %"))


def time(axes: Axes, since: datetime, until: datetime, shape: Shape, *, least: timedelta = _INTERVALS[0]) -> None:
    """A scale of times in UTC with at least two labels, and no more than there is room for; labels are at least `least` apart."""
    interval = _interval((until - since) / _SPACES[shape], least)
    midnight = since.replace(hour=0, minute=0)
    first, last = -((midnight - since) // interval), (until - midnight) // interval
    marked = [midnight + place * interval for place in range(first, last + 1)]
    axes.set_xticks([_place(at) for at in marked], [f"{at:{_DATES[shape] if at.time() == clock.min else '%H:%M'}}" for at in marked])
    axes.set_xlim(_place(since), _place(until))


def _interval(wide: timedelta, least: timedelta) -> timedelta:
    """The shortest of `_INTERVALS`, or else of whole days, that is at least as long as both `wide` and `least`."""
    whole_days = -(-wide // _DAY) * _DAY
    return next((one for one in _INTERVALS if one >= max(wide, least)), max(whole_days, least))


def _place(at: datetime) -> float:
    return float(date2num(at))  # type: ignore[no-untyped-call]


def _count(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"
