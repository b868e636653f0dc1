"""What the provisioned dashboards and the alert rules ask of Prometheus and PostgreSQL, read from their files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

from tests import ROOT

DOCKER = ROOT / "docker"
DASHBOARDS = sorted((DOCKER / "grafana/dashboards").glob("*.json"))
ALERTS = DOCKER / "prometheus/alerts.yml"
PROMETHEUS_OWN = {"up", "job", "instance", "le"}
"""Names that come from Prometheus and from its format, not from the relay."""
_NOT_METRICS = {"abs", "absent", "by", "clamp_min", "histogram_quantile", "increase", "max", "min", "rate", "sum", "time"}
_INTERVAL_SECONDS = 60


class Panel(NamedTuple):
    """One query of one panel."""

    title: str
    source: str
    """uid of the data source."""
    query: str
    legend: str


def boards() -> list[dict[str, Any]]:
    """The dashboards as Grafana reads them."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in DASHBOARDS]


def panels() -> list[Panel]:
    """Every query of every panel of every dashboard."""
    return [
        Panel(panel["title"], target["datasource"]["uid"], target.get("expr") or target["rawSql"], target.get("legendFormat", ""))
        for board in boards()
        for panel in board["panels"]
        for target in panel.get("targets", [])
    ]


class Alert(NamedTuple):
    """One alert rule."""

    name: str
    query: str
    labels: dict[str, str]
    annotations: dict[str, str]


def alerts() -> list[Alert]:
    """Every alert rule, in their order."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]
    return [Alert(rule["alert"], rule["expr"], rule["labels"], rule["annotations"]) for rule in rules]


def alert_expressions() -> list[str]:
    """PromQL of every alert rule."""
    return [alert.query for alert in alerts()]


def expand_promql(expression: str) -> str:
    """Put a fixed interval in for Grafana's."""
    return expression.replace("$__rate_interval", "1m")


def expand_sql(statement: str) -> str:
    """Put in what Grafana's PostgreSQL data source would, for the last hour in steps of a minute."""
    step = _INTERVAL_SECONDS
    statement = re.sub(
        r"\$__timeGroupAlias\((\w+), \$__interval\)", rf'floor(extract(epoch FROM \1) / {step}) * {step} AS "time"', statement
    )
    statement = statement.replace("$__timeFrom()", "now() - interval '1 hour'").replace("$__timeTo()", "now()")
    statement = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 BETWEEN now() - interval '1 hour' AND now()", statement)
    if "$" in statement:
        raise AssertionError(f"a macro that this does not know is left: {statement}")
    return statement


def metric_names(expression: str) -> set[str]:
    """Names of time series in a PromQL expression."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\bby \([^)]*\)', " ", expression)
    return set(re.findall(r"[a-z_]\w*", bare)) - _NOT_METRICS - PROMETHEUS_OWN


def label_names(expression: str, legend: str = "") -> set[str]:
    """Names of labels in a PromQL expression and in a legend."""
    return set(_labels(expression, legend)) - PROMETHEUS_OWN


def _labels(expression: str, legend: str) -> Iterator[str]:
    for group in re.findall(r"\bby \(([^)]*)\)", expression):
        yield from (name.strip() for name in group.split(","))
    yield from re.findall(r"[{,]\s*(\w+)\s*[=!]", expression)
    yield from re.findall(r"\{\{\s*(\w+)\s*\}\}", legend)


def as_rules() -> str:
    """Every PromQL query of the dashboard as a recording rule, for promtool."""
    rules = [
        f"      - record: panel_{number}\n        expr: {json.dumps(expand_promql(panel.query))}"
        for number, panel in enumerate(panels())
        if panel.source == "outbox-metrics"
    ]
    return "\n".join(["groups:", "  - name: dashboard", "    rules:", *rules, ""])
