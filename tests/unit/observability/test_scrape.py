"""What tests read on a relay's page of metrics: a metric that is not there is no zero."""

from __future__ import annotations

import pytest

from relay import events
from relay.observability.metrics import Metrics
from tests.support.relays.scrape import value_of


@pytest.fixture
def metrics() -> Metrics:
    """A relay's metrics before anything has happened."""
    return Metrics("broker")


def read(metrics: Metrics, name: str, **labels: str) -> float:
    """Its value on the page."""
    return value_of(metrics.render()[0].decode(), name, **labels)


@pytest.mark.parametrize("name", ["relay_typo_total", "relay_dead", "relay_lock_lost", "relay_queue_waiting", "relay_messages"])
def test_a_metric_that_is_not_on_the_page_is_an_error(metrics: Metrics, name: str) -> None:
    """Misspelt, with its ending left out, or not looked up yet."""
    with pytest.raises(LookupError, match=f"no metric {name} "):
        read(metrics, name)


@pytest.mark.parametrize("name", ["relay_dead_total", "relay_lock_lost_total", "relay_broker_up", "relay_claim_seconds_count"])
def test_a_metric_of_which_nothing_was_counted_yet_is_zero(metrics: Metrics, name: str) -> None:
    """Also one whose labels come with the first message."""
    assert 0 == read(metrics, name)


def test_what_has_the_labels_is_summed(metrics: Metrics) -> None:
    """All of it where no label is named, and nothing of others."""
    for code in ("unroutable", "unroutable", "body_too_large"):
        metrics.sink(events.MessageDead("id", "rejected", code, "a sentence", "e"))

    assert (3, 2, 0) == tuple(read(metrics, "relay_dead_total", **labels) for labels in ({}, {"code": "unroutable"}, {"code": "nacked"}))
