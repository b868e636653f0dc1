"""The plots of a report: messages over time, latency bands, exchanges by hour of the day, and the share that came in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.dates import date2num
from matplotlib.figure import Figure

from relay.pipeline.report import scales
from relay.pipeline.report.model import Exchange, Figures, Latency, Moment, Report, Span
from relay.pipeline.report.svg import COLOURS, Plot, Shape, label_of, panels, plot, room_for
from relay.pipeline.report.text import label, length, milliseconds, number, share, when

Floats = npt.NDArray[np.float64]
NOT_PUBLISHED = ("rejected", "failed", "lock_expired", "discarded")
LATENCIES = {"wait": "Wait: due until claimed", "publish": "Publish: claimed until written", "confirm": "Confirm: written until confirmed"}
HEAT_ROWS = 15
"""Exchanges that the heat map names; all others are its last row."""


def throughput(report: Report) -> Plot:
    """Messages by step of time, and below them those that were not published."""
    steps = _Steps(report.span, report.moments)
    each = length(report.span.step)

    def draw(figure: Figure, shape: Shape) -> None:
        above, below = panels(figure, 2)
        above.set_title(f"Published, each {each}")
        above.stairs(steps.of(lambda f: f.counts.published), steps.edges, fill=True, color=COLOURS["published"])
        below.set_title(f"Not published, each {each}")
        base = np.zeros(steps.count)
        for result in NOT_PUBLISHED:
            top = base + steps.of(lambda f, result=result: getattr(f.counts, result))  # type: ignore[misc]
            below.stairs(top, steps.edges, baseline=base, fill=True, color=COLOURS[result.replace("_", "-")])
            base = top
        for axes in (above, below):
            scales.counts(axes)
        steps.scale(below, shape)

    busiest = max(report.moments, key=lambda moment: moment.figures.counts.published)
    counts, most = report.total.counts, number(busiest.figures.counts.published)
    words = (
        f"Messages over time: {number(counts.published)} published, most of them ({most}) in the {each} from {when(busiest.start)}; "
        f"{number(counts.dead)} ended dead."
    )
    return plot("throughput", draw, height=3.4, words=words)


def latency(report: Report) -> Plot | None:
    """Median, p95 and p99 of wait, publish and confirm over time, one panel each; None if nothing was measured."""
    steps = _Steps(report.span, report.moments)
    kinds = [kind for kind in LATENCIES if getattr(report.total, kind)]
    if not kinds:
        return None

    def draw(figure: Figure, shape: Shape) -> None:
        all_axes = panels(figure, len(kinds))
        for axes, kind in zip(all_axes, kinds, strict=True):
            _band(axes, steps, kind)
        steps.scale(all_axes[-1], shape)

    said = ", ".join(f"{kind} {_percentiles(getattr(report.total, kind))}" for kind in kinds)
    return plot("latency", draw, height=0.4 + 1.55 * len(kinds), words=f"Latency over time. Over the whole span: {said}.")


def heat(report: Report) -> tuple[Plot, tuple[tuple[str, str], ...]]:
    """Settled messages by exchange and hour of the day, and the key to its colours: (name of the colour, what it means)."""
    rows = _heat_rows(report.exchanges)
    cells = np.array([row.hours for row in rows], dtype=np.float64)
    bounds = _levels(cells.max())
    names = [label(row.name) for row in rows]

    def draw(figure: Figure, shape: Shape) -> None:
        figure.subplots_adjust(left=room_for(names, shape), right=0.995, top=0.995, bottom=0.34 / figure.get_figheight())
        axes = figure.subplots()
        colours = ListedColormap([COLOURS[f"heat-{level}"] for level in range(len(bounds) - 1)])
        axes.pcolormesh(cells, cmap=colours, norm=BoundaryNorm(bounds, colours.N), edgecolors=COLOURS["grid"], linewidth=0.4)
        axes.set_yticks(np.arange(len(rows)) + 0.5, [label_of(place) for place in range(len(rows))])
        hours = range(0, 25, 3 if shape == "wide" else 6)
        axes.set_xticks(list(hours), [f"{hour:02d}{':00' if shape == 'wide' else ''}" for hour in hours])
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        for tick in axes.get_xticklabels()[-1:]:
            tick.set_horizontalalignment("right")

    row, hour = np.unravel_index(int(cells.argmax()), cells.shape)
    words = f"Messages by exchange and hour of the day in UTC: the busiest is {names[row]} from {hour:02d}:00, with {number(cells.max())}."
    height = 0.42 + 0.27 * len(rows)
    return plot("heat", draw, height=height, words=words, labels=names), _heat_key(bounds)


def attainment(report: Report) -> Plot | None:
    """The share of published messages that came within the target, over time; None if nothing was published."""
    steps = _Steps(report.span, report.moments)
    counts = report.total.counts
    if not counts.published:
        return None
    shares = 100 * steps.ratio(lambda f: f.counts.within_target, lambda f: f.counts.published)

    def draw(figure: Figure, shape: Shape) -> None:
        [axes] = panels(figure, 1)
        axes.plot(steps.middles, shares, color=COLOURS["p50"], linewidth=1.4, marker="o", markersize=1.6)
        lowest = float(np.nanmin(shares))
        scales.percents(axes, max(0.0, lowest - max(0.5, (100 - lowest) * 0.15)), 100 + max(0.02, (100 - lowest) * 0.04))
        steps.scale(axes, shape)

    words = f"Share within the target over time: {share(counts.within_target, counts.published)} over the whole span."
    return plot("attainment", draw, height=1.9, words=words)


class _Steps:
    """The steps of a span with what was counted in each: nothing where no moment is."""

    def __init__(self, span: Span, moments: Sequence[Moment]) -> None:
        self._span = span
        self.count = max(1, round((span.until - span.since) / span.step))
        self.edges: Floats = np.array([date2num(span.since + span.step * place) for place in range(self.count + 1)])  # type: ignore[no-untyped-call]
        self._moments = {round((moment.start - span.since) / span.step): moment.figures for moment in moments}

    @property
    def middles(self) -> Floats:
        """Where a point of each step stands."""
        middles: Floats = (self.edges[:-1] + self.edges[1:]) / 2
        return middles

    def of(self, value: Callable[[Figures], float | None], *, without: float = 0) -> Floats:
        """A value of each step, and `without` where there is none."""
        found = np.full(self.count, without, dtype=np.float64)
        for place, figures in self._moments.items():
            known = value(figures)
            found[place] = without if known is None else known
        return found

    def scale(self, axes: Axes, shape: Shape) -> None:
        """Label the time below a panel."""
        scales.time(axes, self._span.since, self._span.until, shape)

    def ratio(self, part: Callable[[Figures], float], whole: Callable[[Figures], float]) -> Floats:
        """A share of each step; not a number where nothing was counted."""
        return self.of(lambda figures: part(figures) / whole(figures) if whole(figures) else None, without=np.nan)


def _band(axes: Axes, steps: _Steps, kind: str) -> None:
    """Median as a line, what lies between it and p95, and p99, as bands; on a scale of logarithms, gaps where nothing was measured."""
    p50, p95, p99 = (
        steps.of(lambda f, which=which: _percentile(getattr(f, kind), which), without=np.nan)  # type: ignore[misc]
        for which in ("p50", "p95", "p99")
    )
    axes.set_title(LATENCIES[kind])
    for low, high, name in ((p95, p99, "p99"), (p50, p95, "p95")):
        axes.fill_between(steps.edges, np.append(low, low[-1]), np.append(high, high[-1]), step="post", color=COLOURS[name], linewidth=0)
    axes.plot(steps.edges, np.append(p50, p50[-1]), drawstyle="steps-post", color=COLOURS["p50"], linewidth=1.5)
    scales.durations(axes, float(np.nanmin(p50)), float(np.nanmax(p99)))


def _percentile(measured: Latency | None, which: str) -> float | None:
    # A scale of logarithms has no zero.
    return max(float(getattr(measured, which)), scales.LEAST_MS) if measured else None


def _percentiles(measured: Latency) -> str:
    return f"half within {milliseconds(measured.p50)}, 95 % within {milliseconds(measured.p95)}, 99 % within {milliseconds(measured.p99)}"


def _heat_rows(exchanges: Sequence[Exchange]) -> list[Exchange]:
    rows = sorted(exchanges, key=lambda exchange: -sum(exchange.hours))
    named, others = (rows, []) if len(rows) <= HEAT_ROWS + 1 else (rows[:HEAT_ROWS], rows[HEAT_ROWS:])
    if others:
        hours = tuple(sum(hour) for hour in zip(*(exchange.hours for exchange in others), strict=True))
        named = [*named, Exchange(name=f"{len(others)} others", figures=others[0].figures, hours=hours)]
    return named


def _levels(highest: float) -> list[float]:
    """Bounds of the colours: none, then five steps that widen as squares do, so that the quiet and the busy hours are told apart."""
    if highest <= 5:  # noqa: PLR2004 - five colours for 1 to 5
        return [0, *(level - 0.5 for level in range(1, int(highest) + 2))]
    steps = sorted({max(1.0, _round(highest * (level / 5) ** 2)) for level in range(1, 5)} - {1.0})
    return [0, 0.5, *steps, highest + 1]


def _round(value: float) -> float:
    """Round to one digit."""
    size = 10.0 ** np.floor(np.log10(value))
    return float(np.round(value / size) * size)


def _heat_key(bounds: Sequence[float]) -> tuple[tuple[str, str], ...]:
    lows = [int(np.ceil(bound)) for bound in bounds[:-1]]
    highs = [int(np.ceil(bound)) - 1 for bound in bounds[1:]]
    return tuple(
        (f"heat-{level}", number(low) if low == high else f"{number(low)} to {number(high)}")
        for level, (low, high) in enumerate(zip(lows, highs, strict=True))
    )
