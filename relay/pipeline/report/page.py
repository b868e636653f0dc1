"""The page: a report as one HTML file that needs nothing else, fetches nothing and runs nothing."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup, escape

from relay.pipeline.report import plots, tables
from relay.pipeline.report.model import Report
from relay.pipeline.report.summary import cards, dead_words, empty, facts, state, verdict
from relay.pipeline.report.text import milliseconds, shown, when

_THROUGHPUT_KEY = (
    ("published", "published"), ("rejected", "rejected"), ("failed", "failed"), ("lock-expired", "lock expired"),
    ("discarded", "discarded"),
)  # fmt: skip
_LATENCY_KEY = (("p50", "median"), ("p95", "up to p95"), ("p99", "up to p99"))


def render(report: Report) -> str:
    """Write a report as HTML; the same report gives the same text."""
    template = _environment().get_template("page.html.j2")
    return template.render(page={**_words(report), **_plots(report), **_tables(report)})


def _environment() -> jinja2.Environment:
    folder = files(__package__)
    loader = jinja2.FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8"))
    environment = jinja2.Environment(autoescape=True, loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["words"] = _sentence
    return environment


def _sentence(text: str) -> Markup:
    """A sentence of the report's own, with what stands between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped in the same breath


def _words(report: Report) -> dict[str, Any]:
    span = report.span
    return {
        "since": when(span.since)[:16],
        "until": when(span.until)[:16],
        "state": state(report),
        "verdict": verdict(report),
        "empty": empty(report),
        "cards": cards(report) if report.total.counts.settled else (),
        "dead_words": dead_words(report),
        "facts": facts(report),
        "made_at": when(report.made_at),
        "lake": shown(report.lake, 200),
        "target_words": _target(report),
    }


def _target(report: Report) -> str:
    limits = " or ".join(milliseconds(target) for target in report.targets_ms)
    changed = " (the target was changed within this time)" if len(report.targets_ms) > 1 else ""
    return f"A message is on time if the broker confirms it within {limits} from when it was due{changed}."


def _plots(report: Report) -> dict[str, Any]:
    if not report.total.counts.settled:
        return {"throughput": None, "latency": None, "attainment": None, "heat": None}
    heat, heat_key = plots.heat(report)
    latency = plots.latency(report)
    return {
        "throughput": plots.throughput(report),
        "throughput_key": _THROUGHPUT_KEY,
        "latency": latency,
        "latency_words": f"{latency.words} The scale is logarithmic." if latency else "",
        "latency_key": _LATENCY_KEY,
        "attainment": plots.attainment(report),
        "heat": heat,
        "heat_key": heat_key,
    }


def _tables(report: Report) -> dict[str, Any]:
    return {
        "latency_table": tables.latency(report.total),
        "exchanges": tables.exchanges(report.exchanges),
        "failures": tables.failures(report.failures),
        "slow_routing": tables.slow_keys(report.slow_keys, "routing"),
        "slow_ordering": tables.slow_keys(report.slow_keys, "ordering"),
        "dead": tables.dead(report.unacknowledged),
        "partitions": tables.partitions(report.quality),
    }
