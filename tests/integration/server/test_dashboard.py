"""The dashboard and the alert rules ask for what the relay really exports and what the database really answers."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from relay import events
from relay.message import SUCCESS, Archive, Result
from relay.observability.metrics import Metrics
from relay.observability.peer_gauges import PEERS
from relay.ports import SettleRow
from relay.queries.statements import Statements
from tests import ROOT
from tests.integration.server.promtool import promtool, said_wrong
from tests.support.database.queue import MadeStore, Queue
from tests.support.pages import dashboard
from tests.support.servers.logins import login
from tests.support.servers.shared import Say

SQL_PANELS = [panel for panel in dashboard.panels() if panel.source == "outbox-archive"]
METRIC_QUERIES = [(panel.query, panel.legend) for panel in dashboard.panels() if panel.source == "outbox-metrics"]
ALERT_QUERIES = [(expression, "") for expression in dashboard.alert_expressions()]
HISTORY = """
    INSERT INTO queue_message_stats_@grain@
    SELECT date_trunc('hour', now()), exchange, 'key', 90, 1, 2, 3, 4, 110, '{"nack": 3, "too_large": 2, "lock_expired": 4}',
        buckets, buckets, buckets, 80, 1000
    FROM unnest('{shop,mail}'::text[]) AS exchange,
        (SELECT array_agg(CASE WHEN n IN (3, 4, 7) THEN 30 ELSE 0 END) AS buckets FROM generate_series(1, 35) n) AS counted
"""
"""What `relay pipeline metrics` writes."""


@pytest.fixture
async def busy_queue(queue: Queue, store: MadeStore) -> Queue:
    """A queue after successes, one dead message of each kind, a retry and a parked key, with an export."""
    await queue.sql("SELECT queue_message_config_set('export_registered', 'true')")
    await queue.insert(20, exchange="shop", routing_key="order.placed")
    await queue.insert(1, exchange="missing")
    batch = await store.batch()
    outcomes = [SUCCESS] * 19 + [Archive(Result.REJECTED, "too_large", "17 MB."), Archive(Result.FAILED, "no_exchange", "There is none.")]
    rows = [SettleRow(claim, outcome, 1500, 2500) for claim, outcome in zip(batch.claims, outcomes, strict=True)]
    assert [] == await store.archive(batch, rows, again=False)
    await queue.insert(3, ordering_key="customer 7")
    await queue.sql("SELECT queue_message_key_park('customer 7', 'looks wrong', 'me')")
    for grain in ("window", "hour", "day"):
        await queue.sql(HISTORY.replace("@grain@", grain))
    return queue


@pytest.fixture
async def exported(busy_queue: Queue) -> dict[str, set[str]]:
    """Labels by name of every time series that a relay exports once everything has happened to it."""
    metrics = Metrics(*PEERS)
    metrics.watch(in_flight=lambda: 1, silent=lambda: {"shop": 1.0})
    [status] = await busy_queue.sql(Statements("public")["read_gauges"].decode())
    metrics.queue({**status[0], "clock_skew_seconds": 0.0})
    for event in (
        events.ListenUp(),
        events.BatchClaimed("fresh", 1, 1, 0.1),
        events.BatchSettled(1, 0.1, {"success": 1}, 0.1),
        events.MessageDead("id", "failed", "nack", "No.", "shop"),
        events.LocksSwept(1, 1),
        events.MaintenanceFailed("sweep", "No."),
    ):
        metrics.sink(event)
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.render()[0].decode()):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


@pytest.mark.ids("A40")
async def test_every_metric_of_dashboard_and_alerts_is_exported(exported: dict[str, set[str]]) -> None:
    """Each name is a time series of the relay's, and each label one that its series has."""
    for query, legend in METRIC_QUERIES + ALERT_QUERIES:
        names = dashboard.metric_names(query)
        assert names or "up" in query
        assert names <= exported.keys(), query
        assert dashboard.label_names(query, legend) <= set().union(*(exported[name] for name in names)), query


@pytest.mark.ids("D10", "A40")
async def test_every_panel_on_the_archive_finds_rows(busy_queue: Queue) -> None:
    """An operator's login, which sees no payload, runs each statement after a demo load and gets rows."""
    with login(busy_queue.url, "queue_message_operator") as operator, psycopg.connect(operator) as connection:
        connection.read_only = True
        for panel in SQL_PANELS:
            cursor = connection.execute(dashboard.expand_sql(panel.query).encode())
            rows = cursor.fetchall()
            # What is in the lake is unknown before its first run; tests/pipeline/test_report_views.py has one.
            assert "queue_message_lake_" in panel.query or any(value is not None for row in rows for value in row), panel.title
            columns = [column.name for column in cursor.description or []]
            assert ("time" in columns) == any(word in panel.query for word in ("$__timeGroup", 'AS "time"'))
            assert not {"content", "body", "options"}.intersection(columns)


def test_dashboards_do_not_take_each_others_place() -> None:
    """Grafana knows a dashboard by its uid, and a panel by its id; none covers another."""
    boards = dashboard.boards()
    assert len({board["uid"] for board in boards}) == len({board["title"] for board in boards}) == len(boards) == 2
    for board in boards:
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
        places = [
            (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
            for panel in board["panels"]
            for x in range(panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["h"])
        ]
        assert len(places) == len(set(places))
        assert max(x for x, _ in places) < 24


def test_each_trouble_that_operators_must_hear_of_has_an_alert() -> None:
    """Dead messages and their rate, old ones, no relay, a blocked broker, a dead LISTEN, the sweep, open transactions, clocks."""
    asked = set().union(*(dashboard.metric_names(query) for query, _ in ALERT_QUERIES))

    assert {
        "relay_queue_dead_unacknowledged", "relay_queue_oldest_seconds", "relay_broker_up", "relay_broker_blocked", "relay_database_up",
        "relay_listen_up", "relay_stranded_total", "relay_swept_total", "relay_queue_partition_days_ahead", "relay_messages_total",
        "relay_queue_oldest_transaction_seconds", "relay_export_lag_seconds", "relay_clock_skew_seconds", "relay_failures_total",
    } <= asked  # fmt: skip
    assert any("absent(up{" in query for query, _ in ALERT_QUERIES)


@pytest.mark.ids("A40")
@pytest.mark.timeout(600)
def test_prometheus_understands_rules_and_queries(tmp_path: Path, say: Say) -> None:
    """Its own checker accepts configuration, alerts and every query, and its rule tests fire each alert and none without need."""
    program = promtool(say)
    queries = tmp_path / "queries.yml"
    queries.write_text(dashboard.as_rules(), encoding="utf-8")
    tasks = (
        ("check", "config", str(dashboard.DOCKER / "prometheus/prometheus.yml")),
        ("check", "rules", str(dashboard.ALERTS), str(queries)),
        ("test", "rules", str(ROOT / "tests/support/pages/alerts_test.yml")),
    )
    assert [] == [wrong for task in tasks if (wrong := said_wrong(program, *task))]
