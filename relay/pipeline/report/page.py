"""Renders a report as one HTML file that needs no other file, fetches nothing and runs no script."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup, escape

from relay.pipeline.report import heat, plots, tables
from relay.pipeline.report.model import Report
from relay.pipeline.report.summary import before, cards, compared, dead_words, empty, facts, inventory_facts, state, verdict
from relay.pipeline.report.text import milliseconds, shown, when

_THROUGHPUT_KEY = (
    ("published", "published"), ("rejected", "rejected"), ("failed", "failed"), ("lock-expired", "lock expired"),
    ("discarded", "discarded"),
)  # fmt: skip
_LATENCY_KEY = (("p50", "median"), ("p95", "up to p95"), ("p99", "up to p99"))


_SECTIONS = (
    ("totals", "In short", "cards"), ("time", "Messages over time", "throughput"), ("latency", "Latency", "latency"),
    ("target", "On time", "attainment"), ("exchanges", "Exchanges", "heat"), ("days", "By day and hour", "days"),
    ("ended-dead", "Dead messages", "dead_plot"), ("errors", "Top errors", ""), ("slow", "Slowest keys", "slow_routing"),
    ("dead", "Dead messages not acknowledged", ""), ("quality", "Data quality", ""), ("lake", "State of the lake", ""),
)  # fmt: skip
"""Id and title of each section, and the part of the page that the section needs; without this part the section is left out."""


def render(report: Report) -> str:
    """Write a report as HTML; the same report gives the same text."""
    template = _environment().get_template("page.html.j2")
    page = {**_words(report), **_plots(report), **_tables(report)}
    return template.render(page={**page, "contents": _contents(page)})


def _contents(page: Mapping[str, Any]) -> dict[str, str]:
    """Titles of the sections that the page has, by id."""
    return {id_: title for id_, title, part in _SECTIONS if not part or getattr(page[part], "rows", page[part])}


def _environment() -> jinja2.Environment:
    folder = files(__package__)
    loader = jinja2.FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8"))
    environment = jinja2.Environment(autoescape=True, loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["words"] = _sentence
    return environment


def _sentence(text: str) -> Markup:
    """A sentence of the report's own, with text between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped in the same breath


def _words(report: Report) -> dict[str, Any]:
    span = report.span
    return {
        "since": when(span.since)[:16],
        "until": when(span.until)[:16],
        "state": state(report),
        "verdict": verdict(report),
        "empty": empty(report),
        "cards": cards(report) if report.numbers.total.counts.settled else (),
        "dead_words": dead_words(report),
        "compared": compared(report),
        "facts": facts(report),
        "inventory_facts": inventory_facts(report.inventory),
        "made_at": when(report.made_at),
        "lake": shown(report.lake, 200),
        "target_words": _target(report),
    }


def _target(report: Report) -> str:
    limits = " or ".join(milliseconds(target) for target in report.numbers.targets_ms)
    changed = " (the target was changed within this time)" if len(report.numbers.targets_ms) > 1 else ""
    return f"A message is on time if the broker confirms it within {limits} after it was due{changed}."


def _plots(report: Report) -> dict[str, Any]:
    if not report.numbers.total.counts.settled:
        return dict.fromkeys(("throughput", "latency", "attainment", "heat", "days", "dead_plot"))
    by_exchange, by_day, dead = (
        heat.by_exchange(report.numbers.exchanges),
        heat.by_day(report.span, report.numbers.hours),
        plots.dead(report),
    )
    latency = plots.latency(report)
    return {
        "throughput": plots.throughput(report),
        "throughput_key": _THROUGHPUT_KEY,
        "latency": latency,
        "latency_words": f"{latency.words} The scale is logarithmic." if latency else "",
        "latency_key": _LATENCY_KEY,
        "attainment": plots.attainment(report),
        "heat": by_exchange[0],
        "heat_key": by_exchange[1],
        "days": by_day[0],
        "days_key": by_day[1],
        "dead_plot": dead and dead[0],
        "dead_key": dead and dead[1],
    }


def _tables(report: Report) -> dict[str, Any]:
    return {
        "latency_table": tables.latency(report.numbers.total, before(report)),
        "exchanges": tables.exchanges(report.numbers.exchanges, report.before.exchanges),
        "dead_groups": tables.dead_groups(report.numbers, report.before),
        "failing_keys": tables.failing_keys(report.numbers, report.before),
        "failures": tables.failures(report.failures),
        "slow_routing": tables.slow_keys(report.slow_keys, "routing"),
        "slow_ordering": tables.slow_keys(report.slow_keys, "ordering"),
        "dead": tables.dead(report.unacknowledged),
        "partitions": tables.partitions(report.quality),
        "day_sizes": tables.day_sizes(report.inventory),
        "lake_tables": tables.lake_tables(report.inventory),
    }
