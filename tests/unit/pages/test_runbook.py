"""Every alert leads to a section of the page of alerts that helps whom it wakes."""

from __future__ import annotations

import re

import pytest
import yaml  # type: ignore[import-untyped]

from tests import ROOT
from tests.support.pages import dashboard, docs

PAGE = ROOT / "docs" / "operations/alerts.md"
ALERTS = dashboard.alerts()
PARTS = ("Means", "Look", "Type", "Harmless")
TESTED = ROOT / "tests" / "support" / "pages" / "alerts_test.yml"


def sections() -> dict[str, str]:
    """The text under the name of each alert."""
    found = re.split(r"^### (Outbox\w+)$", docs.text_of(PAGE), flags=re.MULTILINE)
    return {name: re.split(r"^#", text, maxsplit=1, flags=re.MULTILINE)[0] for name, text in zip(found[1::2], found[2::2], strict=True)}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_leads_to_its_runbook(alert: dashboard.Alert) -> None:
    """Its annotation names a file of the repository and a heading there; it has a severity, a summary and a description."""
    file, _, anchor = alert.annotations["runbook"].partition("#")

    assert anchor in docs.anchors(ROOT / file)
    assert anchor == alert.name.lower()
    assert alert.labels["severity"] in {"info", "warning", "critical"}
    assert alert.annotations["summary"]
    assert alert.annotations["description"]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_runbook_says_what_it_means_where_to_look_what_to_type_and_when_it_is_harmless(alert: dashboard.Alert) -> None:
    """In this order, and the metrics that the alert watches are named."""
    section = sections()[alert.name]

    assert list(PARTS) == re.findall(r"^- \*\*(\w+)\*\*", section, re.MULTILINE)
    assert dashboard.metric_names(alert.query) <= set(re.findall(r"`(relay_\w+)`", section))


def test_runbooks_stand_in_the_order_of_the_alerts() -> None:
    """And there is none that no alert leads to."""
    assert list(sections()) == [alert.name for alert in ALERTS]


def test_every_alert_is_tested_to_fire_and_to_keep_quiet() -> None:
    """Each is expected of some trouble, and its metrics are there when all is well."""
    tests = yaml.safe_load(docs.text_of(TESTED))["tests"]
    calm = next(test for test in tests if test["name"] == "a healthy relay")
    there = {series["series"].partition("{")[0] for series in calm["input_series"]}

    assert set() == {alert.name for alert in ALERTS} - set(re.findall(r"Outbox\w+", docs.text_of(TESTED)))
    assert set() == set().union(*(dashboard.metric_names(alert.query) for alert in ALERTS)) - there - {"relay_silent_exchange_seconds"}
