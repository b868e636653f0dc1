"""The report for everybody: words for each plot, headings in order, tables that say what a cell belongs to, contrast, and its size."""

from __future__ import annotations

import random
import re
from datetime import timedelta
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.metrics import aggregate, histogram
from relay.pipeline.report import run
from relay.pipeline.report.page import render
from relay.pipeline.source.columns import DAY
from relay.pipeline.source.database import Database
from tests.support.lake import reports

TEXT, SHAPES = 4.5, 3.0
"""Contrasts that WCAG 2.1 asks of text (1.4.3) and of what a plot is made of (1.4.11)."""
LARGEST = 2_000_000


class Elements(HTMLParser):
    """Elements of a page in their order, with their attributes, and the text of captions."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.found.append((tag, dict(attrs)))

    def of(self, *tags: str) -> list[dict[str, str | None]]:
        """Attributes of each element of these kinds."""
        return [attributes for tag, attributes in self.found if tag in tags]


@pytest.fixture(scope="module")
def page() -> Elements:
    """A page with every section."""
    return Elements(render(reports.busy()))


def test_each_plot_is_also_in_words(page: Elements) -> None:
    """A screen reader gets the plot's words, and the same words are below it for all."""
    plots = page.of("svg")

    assert len(plots) >= 12
    assert all(plot["role"] == "img" and len(plot["aria-label"] or "") > 40 for plot in plots)
    assert len(page.of("figcaption")) == len(page.of("figure")) == len(plots) / 2


def test_headings_are_in_order(page: Elements) -> None:
    """One of the first level, then no level is left out; each section is named by its own, and the contents lead to it."""
    levels = [int(tag[1]) for tag, _ in page.found if re.fullmatch("h[1-6]", tag)]
    sections = page.of("section")

    assert 1 == levels[0] == levels.count(1)
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert {section["aria-labelledby"] for section in sections} <= {heading["id"] for heading in page.of("h2")}
    assert [f"#{section['id']}" for section in sections] == [link["href"] for link in page.of("a")]


def test_cells_say_what_they_belong_to(page: Elements) -> None:
    """Every table has a caption, and every heading of it says whether it is of a column or of a row."""
    assert len(page.of("caption")) == len(page.of("table")) >= 10
    assert {"col", "row"} == {heading.get("scope") for heading in page.of("th")}


def test_changes_are_said_in_words() -> None:
    """More or less than in the time before, and what cannot be compared; nothing is left to a colour or an arrow."""
    page = render(reports.busy())

    assert "11 % more: 753,997 before" in page
    assert "27 % more: 48 ms before" in page
    assert ">none before</small>" in page
    assert "Changes are relative to the time before, 2026-02-23 09:00 to 2026-03-02 09:00." in page
    assert "there is nothing to compare with" in render(reports.tiny())


def test_a_message_is_named_by_the_command_that_shows_it() -> None:
    """A command that can be copied into a shell replaces the bare id."""
    assert "<bdi>relay show 0197f3a2-7c41-7b3e-9a5d-4f0c2b8e0000</bdi>" in render(reports.busy())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_stand_out(scheme: str) -> None:
    """Text contrasts with each ground behind it, and shapes with the ground of the plots."""
    colours = palette(scheme)

    for ground in ("page", "surface", "good-soft", "warn-soft", "bad-soft"):
        assert contrast(colours["ink"], colours[ground]) >= TEXT, ground
    for text in ("muted", "accent", "good", "warn", "bad"):
        assert min(contrast(colours[text], colours[ground]) for ground in ("page", "surface")) >= TEXT, text
    for state in ("good", "warn", "bad"):
        assert contrast(colours[state], colours[f"{state}-soft"]) >= TEXT, state
    shapes = ["published", "rejected", "failed", "lock-expired", "discarded", "p50", "p95", *(f"series-{place}" for place in range(6))]
    assert [] == [shape for shape in shapes if contrast(colours[shape], colours["surface"]) < SHAPES]


def test_a_year_of_data_fits(lake: Lake, database: Database, tmp_path: Path) -> None:
    """A year of hours that all differ, of five exchanges with errors of six kinds, makes a page of 2 MB at most."""
    fill(lake, days=366)

    done = run(
        lake=lake,
        database=database,
        say=lambda _: None,
        path=tmp_path / "year.html",
        since=reports.NOW - timedelta(days=365),
        now=reports.NOW,
    )

    assert done.dead > 366 * 24
    assert 200_000 < done.bytes <= LARGEST


def test_the_longest_time_of_hours_fits(lake: Lake, database: Database, tmp_path: Path) -> None:
    """No time has more steps than 32 days."""
    fill(lake, days=33)

    done = run(
        lake=lake,
        database=database,
        say=lambda _: None,
        path=tmp_path / "month.html",
        since=reports.NOW - timedelta(days=32),
        now=reports.NOW,
    )

    assert 200_000 < done.bytes <= LARGEST


def fill(lake: Lake, *, days: int) -> None:
    """Numbers of each hour of some days, as the metrics make them, with nothing regular about them."""
    chance = random.Random(13)
    noise = np.random.default_rng(13)
    first = (reports.NOW - timedelta(days=days)).replace(hour=0, minute=0)
    rows = [
        _hour(first + timedelta(hours=hour), name, chance)
        for hour in range(24 * days)
        for name in ("orders", "payments", "audit", "mail", "stock")
    ]
    table = pa.Table.from_pylist(rows, schema=pa.schema([field for field in aggregate.SCHEMA if field.name not in aggregate.HISTOGRAMS]))
    for name in aggregate.HISTOGRAMS:
        counts = pa.array(noise.integers(0, 500, len(rows) * histogram.BUCKETS))
        table = table.append_column(
            name, pa.ListArray.from_arrays(pa.array(range(0, len(counts) + 1, histogram.BUCKETS), pa.int32()), counts)
        )
    table = table.select(aggregate.SCHEMA.names).append_column(DAY, table["start"].cast(pa.timestamp("us")).cast(DAY.type))
    handle = lake.create("stats_hour", aggregate.SCHEMA.append(DAY))
    lake.append(handle, "stats_hour", table.cast(aggregate.SCHEMA.append(DAY)).to_batches())


def _hour(start: object, exchange: str, chance: random.Random) -> dict[str, object]:
    published, failed = chance.randrange(50_000), chance.randrange(1, 400)
    codes = f'{{"{chance.choice("abcdef")}": {failed}}}'
    zero = dict.fromkeys(("discarded", "rejected", "lock_expired"), 0)
    return zero | {
        "start": start, "exchange": exchange, "routing_key": chance.choice("xyz"), "published": published, "failed": failed,
        "attempts": published + failed, "codes": codes, "within_target": published * chance.randrange(80, 100) // 100, "target_ms": 1000,
    }  # fmt: skip


def palette(scheme: str) -> dict[str, str]:
    """The page's colours by name: dark ones replace light ones."""
    css = (files("relay.pipeline.report") / "page.css").read_text(encoding="utf-8")
    light, dark = css.partition("@media screen and (prefers-color-scheme: dark)")[::2]
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light))
    return found if scheme == "light" else found | dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", dark.partition("* {")[0]))


def contrast(one: str, other: str) -> float:
    """Contrast of two colours as WCAG 2.1 defines it, from 1 to 21."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.1 defines it."""
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
