"""Every axis of every plot of a report tells its scale, whatever was counted: at least two labels, none in another's way."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from relay.pipeline.report import heat, plots, scales, svg
from relay.pipeline.report.data import span_of
from relay.pipeline.report.model import Counts, DeadGroup, ExchangeFigures, Figures, Latency, Moment, Numbers, Report
from relay.pipeline.report.svg import Plot, Shape
from tests.pipeline.plot_axes import faults
from tests.support.lake import reports

DAY_MS = 86_400_000.0
"""The highest percentile that a histogram gives: the lower bound of its open bucket."""

counts = st.one_of(st.integers(0, 20), st.integers(0, 10**9))


@st.composite
def latencies(draw: st.DrawFn) -> Latency:
    """Percentiles in their order, as far apart as histograms have them."""
    p50 = draw(st.floats(0.0, 7.0).map(lambda power: min(10**power, DAY_MS)))
    p95 = min(p50 * draw(st.floats(1, 100)), DAY_MS)
    return Latency(p50, p95, min(p95 * draw(st.floats(1, 100)), DAY_MS))


@st.composite
def figures(draw: st.DrawFn) -> Figures:
    """Counts of a step, of which at least one message was published."""
    published = draw(counts) + 1
    within = draw(st.one_of(st.just(published), st.integers(0, published)))
    others = {result: draw(st.one_of(st.just(0), counts)) for result in plots.NOT_PUBLISHED}
    settled = replace(Counts(published, attempts=published, within_target=within), **others)
    return Figures(settled, *(draw(latencies()) for _ in range(3)))


class Made(NamedTuple):
    """A report that is named by its time alone where it fails."""

    report: Report

    def __repr__(self) -> str:
        """The time that decides the labels."""
        return repr(self.report.span)


@st.composite
def made(draw: st.DrawFn) -> Made:
    """A report of any length with one to three steps that have messages."""
    until = reports.NOW + timedelta(minutes=draw(st.integers(0, 5 * 366 * 1440)))
    long = timedelta(minutes=draw(st.one_of(st.integers(1, 3 * 1440), st.integers(1, 3 * 366 * 1440))))
    span = span_of(until - long, until, now=until)
    steps = int((span.until - span.since) / span.step)
    places = sorted(draw(st.sets(st.integers(0, steps - 1), min_size=1, max_size=3)))
    moments = tuple(Moment(span.since + place * span.step, draw(figures())) for place in places)
    hours = tuple(draw(st.lists(counts, min_size=24, max_size=24)))
    total, names = moments[0].figures, ("orders", "payments")
    numbers = Numbers(
        total,
        moments=moments,
        exchanges=tuple(ExchangeFigures(name, total, hours) for name in names),
        hours={moment.start.replace(minute=0): moment.figures.counts.settled for moment in moments},
        dead=tuple(DeadGroup(name, "code", 1, {moments[0].start: draw(counts)}) for name in names),
    )
    return Made(replace(reports.busy(), span=span, numbers=numbers))


def drawn(report: Report) -> list[Plot | None]:
    """Every plot of a report."""
    numbers, dead = report.numbers, plots.dead(report)
    over_time = [plots.throughput(report), plots.latency(report), plots.attainment(report), dead and dead[0]]
    return [*over_time, heat.by_exchange(numbers.exchanges)[0], heat.by_day(report.span, numbers.hours)[0]]


# What a second draws takes minutes to shrink, and on a busy machine a draw takes long.
@pytest.mark.timeout(300)
@settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(made())
def test_every_axis_has_labels_that_stand_apart(one: Made) -> None:
    """Over generated lengths, counts and latencies, on a desktop and on a phone."""
    found = [fault for plot in drawn(one.report) if plot for svg in (plot.wide, plot.narrow) for fault in faults(svg)]

    assert [] == found


@pytest.mark.parametrize("p50", [1.1, 2.3, 11.5, 4_100.0, 61_000.0, 15_000_000.0])
def test_latencies_between_powers_of_ten_have_labels(p50: float) -> None:
    """A wait of 11 to 19 ms had an axis without any label, one of 4 to 6 hours an axis with one label twice."""
    measured = Latency(p50, p50 * 1.2, p50 * 1.4)
    moment = Moment(reports.SPAN.since, Figures(Counts(published=1), measured, measured, measured))
    plot = plots.latency(replace(reports.busy(), numbers=Numbers(moment.figures, moments=(moment,))))

    assert plot is not None
    assert [] == faults(plot.wide) + faults(plot.narrow)


@pytest.mark.parametrize("shape", ["wide", "narrow"])
def test_labels_keep_all_their_digits(shape: str) -> None:
    """Coordinates are shortened, and the shares of an axis are not: a few dead messages of a million are 0.0002 % of them."""

    def draw(figure: Figure, _: Shape) -> None:
        scales.percents(figure.subplots(), 0, 0.0007)

    found = getattr(svg.plot("shares", draw, height=2, words="Shares."), shape)

    assert [] == [share for share in ("0.0002 %", "0.0004 %", "0.0006 %") if share not in found]
