"""The plots of a report over time: messages, latency bands, the share within the target, and dead messages by exchange and code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.figure import Figure

from relay.pipeline.report import scales
from relay.pipeline.report.model import DeadGroup, Figures, Latency, Moment, Report, ReportSpan
from relay.pipeline.report.svg import COLOURS, Plot, Shape, panels, plot
from relay.pipeline.report.text import length, milliseconds, number, percent, share, shown, when

Floats = npt.NDArray[np.float64]
NOT_PUBLISHED = ("rejected", "failed", "lock_expired", "discarded")
LATENCIES = {"wait": "Wait: due until claimed", "publish": "Publish: claimed until written", "confirm": "Confirm: written until confirmed"}
SERIES = 6
"""How many series the plot of dead messages has. Each is a pair of exchange and code; the last series adds up all further pairs."""


def throughput(report: Report) -> Plot:
    """Published messages by step, and in a panel below the messages that were not published."""
    steps = _Steps(report.span, report.numbers.moments)
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

    busiest = max(report.numbers.moments, key=lambda moment: moment.figures.counts.published)
    counts, most = report.numbers.total.counts, number(busiest.figures.counts.published)
    words = (
        f"Messages over time: {number(counts.published)} published, {number(counts.dead)} ended dead. "
        f"The busiest {each} began at {when(busiest.start)}, with {most} published."
    )
    return plot("throughput", draw, height=3.4, words=words)


def latency(report: Report) -> Plot | None:
    """Median, p95 and p99 of wait, publish and confirm over time, one panel each; None if nothing was measured."""
    steps = _Steps(report.span, report.numbers.moments)
    kinds = [kind for kind in LATENCIES if getattr(report.numbers.total, kind)]
    if not kinds:
        return None

    def draw(figure: Figure, shape: Shape) -> None:
        all_axes = panels(figure, len(kinds))
        for axes, kind in zip(all_axes, kinds, strict=True):
            _band(axes, steps, kind)
        steps.scale(all_axes[-1], shape)

    said = ", ".join(f"{kind} {_percentiles(getattr(report.numbers.total, kind))}" for kind in kinds)
    return plot("latency", draw, height=0.4 + 1.55 * len(kinds), words=f"Latency over time. Over the whole span: {said}.")


def attainment(report: Report) -> Plot | None:
    """The share of published messages that were confirmed within the target, over time; None if nothing was published."""
    steps = _Steps(report.span, report.numbers.moments)
    counts = report.numbers.total.counts
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


def dead(report: Report) -> tuple[Plot, tuple[tuple[str, str], ...]] | None:
    """Dead messages by exchange and code over time, and their share of all messages, with the legend; None without dead messages."""
    numbers, counts, each = report.numbers, report.numbers.total.counts, length(report.span.step)
    if not numbers.dead:
        return None
    steps, series = _Steps(report.span, numbers.moments), _series(numbers.dead)
    shares = 100 * steps.ratio(lambda f: f.counts.dead, lambda f: f.counts.settled)

    def draw(figure: Figure, shape: Shape) -> None:
        above, below = panels(figure, 2)
        above.set_title(f"Ended dead, each {each}")
        base = np.zeros(steps.count)
        for place, (_, counted) in enumerate(series):
            top = base + steps.placed(counted)
            above.stairs(top, steps.edges, baseline=base, fill=True, color=COLOURS[f"series-{place}"])
            base = top
        scales.counts(above)
        below.set_title("Share of all messages that ended dead")
        below.plot(steps.middles, shares, color=COLOURS["p50"], linewidth=1.4, marker="o", markersize=1.6)
        scales.percents(below, 0, float(np.nanmax(shares)) * 1.05 or 1)
        steps.scale(below, shape)

    worst = max(numbers.moments, key=lambda moment: moment.figures.counts.dead)
    words = (
        f"Dead messages over time: {number(counts.dead)}, {percent(counts.dead, counts.settled)} of all messages. "
        f"The worst {each} began at {when(worst.start)}, with {number(worst.figures.counts.dead)} of them. Most frequent: {series[0][0]}."
    )
    key = tuple((f"series-{place}", name) for place, (name, _) in enumerate(series))
    return plot("dead", draw, height=3.4, words=words), key


def _series(groups: Sequence[DeadGroup]) -> list[tuple[str, Counter[datetime]]]:
    """The most frequent groups by name; all further groups are added up as one."""
    named = groups if len(groups) <= SERIES else groups[: SERIES - 1]
    found = [(f"{shown(group.exchange, 40)}, {shown(group.code, 40)}", Counter(group.steps)) for group in named]
    if others := groups[len(named) :]:
        found.append((f"{len(others)} others", sum((Counter(group.steps) for group in others), Counter())))
    return found


class _Steps:
    """The steps of a span with their figures; a step in which nothing was settled has no figures."""

    def __init__(self, span: ReportSpan, moments: Sequence[Moment]) -> None:
        self._span = span
        self.count = max(1, round((span.until - span.since) / span.step))
        self.edges: Floats = np.array([date2num(span.since + span.step * place) for place in range(self.count + 1)])  # type: ignore[no-untyped-call]
        self._moments = {round((moment.start - span.since) / span.step): moment.figures for moment in moments}

    @property
    def middles(self) -> Floats:
        """The middle of each step, where its point is drawn."""
        middles: Floats = (self.edges[:-1] + self.edges[1:]) / 2
        return middles

    def of(self, value: Callable[[Figures], float | None], *, without: float = 0) -> Floats:
        """A value for each step; `without` is the value of a step without figures."""
        found = np.full(self.count, without, dtype=np.float64)
        for place, figures in self._moments.items():
            known = value(figures)
            found[place] = without if known is None else known
        return found

    def placed(self, counted: Mapping[datetime, int]) -> Floats:
        """Counts by the start of a step, as an array in the order of the steps."""
        found = np.zeros(self.count)
        for start, messages in counted.items():
            found[round((start - self._span.since) / self._span.step)] = messages
        return found

    def scale(self, axes: Axes, shape: Shape) -> None:
        """Label the time below a panel."""
        scales.time(axes, self._span.since, self._span.until, shape)

    def ratio(self, part: Callable[[Figures], float], whole: Callable[[Figures], float]) -> Floats:
        """A share for each step; NaN for a step in which nothing was counted."""
        return self.of(lambda figures: part(figures) / whole(figures) if whole(figures) else None, without=np.nan)


def _band(axes: Axes, steps: _Steps, kind: str) -> None:
    """Draw the median as a line, and bands up to p95 and p99, on a logarithmic scale; steps without measurements are gaps."""
    p50, p95, p99 = (
        steps.of(lambda f, which=which: _percentile(getattr(f, kind), which), without=np.nan)  # type: ignore[misc]
        for which in ("p50", "p95", "p99")
    )
    axes.set_title(LATENCIES[kind])
    for low, high, name in ((p95, p99, "p99"), (p50, p95, "p95")):
        axes.fill_between(steps.edges, np.append(low, low[-1]), np.append(high, high[-1]), step="post", color=COLOURS[name], linewidth=0)
    axes.plot(steps.edges, np.append(p99, p99[-1]), drawstyle="steps-post", color=COLOURS["p95"], linewidth=0.8)
    axes.plot(steps.edges, np.append(p50, p50[-1]), drawstyle="steps-post", color=COLOURS["p50"], linewidth=1.5)
    scales.durations(axes, float(np.nanmin(p50)), float(np.nanmax(p99)))


def _percentile(measured: Latency | None, which: str) -> float | None:
    # A logarithmic scale cannot show zero.
    return max(float(getattr(measured, which)), scales.LEAST_MS) if measured else None


def _percentiles(measured: Latency) -> str:
    return f"half within {milliseconds(measured.p50)}, 95 % within {milliseconds(measured.p95)}, 99 % within {milliseconds(measured.p99)}"
