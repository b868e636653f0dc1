"""The views and the function that dashboards read: they say what the report says of the same lake and the same archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.rows import dict_row

from relay.pipeline.compact import job as compact
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.metrics import aggregate, lake_state, postgres_sink
from relay.pipeline.report.data import collect, span_of
from relay.pipeline.report.model import Report
from relay.pipeline.source.columns import DAY
from relay.pipeline.source.database import Database
from tests.support.lake import rows as lake_rows
from tests.support.lake.rows import NOON, dead, row
from tests.support.pages import dashboard
from tests.support.servers.logins import login

NOW = NOON + timedelta(hours=6)
GRAINS = {"window": aggregate.WINDOW_SECONDS, "hour": aggregate.HOUR_SECONDS, "day": aggregate.DAY_SECONDS}
BEFORE = NOON - timedelta(days=7)
ROWS = [
    *(row(number, wait=40 * number, at=NOON - timedelta(hours=number)) for number in range(1, 9)),
    *(row(number, wait=9, attempts=2, at=BEFORE - timedelta(hours=number)) for number in range(20, 25)),
    row(30, exchange="billing", routing_key="invoice", result="discarded", claimed_at=None, published_at=None, confirmed_at=None),
    dead(40, "no_exchange", result="rejected", at=NOON - timedelta(days=2)),
    dead(41, "no_exchange", result="rejected"),
    dead(42, None, exchange="billing", routing_key="invoice", result="lock_expired"),
    dead(43, "max_attempts", exchange="billing", routing_key="invoice", attempts=12),
    dead(44, "max_attempts", exchange="billing", routing_key="invoice", attempts=12, at=BEFORE - timedelta(days=1)),
]
Ask = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def counted(lake: Lake, database: Database) -> Lake:
    """The rows in the lake, and their numbers there and in PostgreSQL, as the metrics write them."""
    lake_rows.append(lake, *ROWS)
    windows = aggregate.count(lake_rows.table(ROWS), target_ms=100)
    numbers = {grain: aggregate.merge(windows, seconds=seconds) for grain, seconds in GRAINS.items()}
    for grain, rows in numbers.items():
        handle = lake.create(f"stats_{grain}", aggregate.SCHEMA.append(DAY))
        lake.append(handle, f"stats_{grain}", rows.append_column(DAY, rows["start"].cast(DAY.type)).to_batches())
    with postgres_sink.replacing(database, {one["day"] for one in ROWS}, numbers):
        pass
    lake_state.record(lake, database)
    return lake


@pytest.fixture
def report(counted: Lake, database: Database, archived: Callable[..., object]) -> Report:
    """The report of a week, on whole hours as dashboards add them up."""
    archived({"archived_at": NOON}, {"result": "failed", "error_code": "late", "archived_at": NOON})
    return collect(counted, database, span_of(NOW - timedelta(days=7), NOW, now=NOW), now=NOW, say=lambda _: None)


@pytest.fixture
def ask(database_url: str) -> Iterator[Ask]:
    """Rows of a statement, as a login that is nothing but an operator, as Grafana's is."""
    with login(database_url, "queue_message_operator") as url, psycopg.connect(url, row_factory=dict_row) as connection:

        def rows(statement: LiteralString, *values: object) -> list[dict[str, Any]]:
            return connection.execute(statement, values or None).fetchall()

        yield rows


def test_the_comparison_is_that_of_the_report(report: Report, ask: Ask) -> None:
    """Totals of the week and of the one before, latencies from the same histograms."""
    found = {
        one["figure"]: (one["value"], one["before"])
        for one in ask("SELECT * FROM queue_message_stats_compare(%s, %s)", report.span.since, report.span.until)
    }
    now, before = report.numbers.total, report.before.total

    assert (8, 5) == (now.counts.published, before.counts.published)
    for name in ("published", "discarded", "dead"):
        assert found[name] == (getattr(now.counts, name), getattr(before.counts, name))
    assert found["tries each"] == pytest.approx((now.counts.tries_each, before.counts.tries_each))
    assert found["on time"] == pytest.approx((now.counts.on_time, before.counts.on_time))
    for name in ("wait", "publish", "confirm"):
        assert found[f"{name} p95 ms"] == (getattr(now, name).p95, getattr(before, name).p95)


def test_nothing_before_is_null(counted: Lake, ask: Ask) -> None:
    """A time before that has no numbers gives nulls, and one without any no rows."""
    assert counted
    [first, *_] = ask("SELECT * FROM queue_message_stats_compare(%s, %s)", NOON - timedelta(days=400), NOW)

    assert (13, None) == (first["value"], first["before"])
    assert [] == ask("SELECT * FROM queue_message_stats_compare('2020-01-01', '2020-02-01')")


def test_dead_messages_by_exchange_and_code_are_those_of_the_report(report: Report, ask: Ask) -> None:
    """Counts by step, and the failure rate from what the exchange settled."""
    span = (report.span.since, report.span.until)
    found = ask("SELECT start, exchange, code, messages FROM queue_message_stats_dead WHERE start >= %s AND start < %s", *span)
    settled = ask("SELECT exchange, sum(settled) AS n FROM queue_message_stats_settled WHERE start >= %s AND start < %s GROUP BY 1", *span)

    assert {("shop", "no_exchange", 2), ("billing", None, 1), ("billing", "max_attempts", 1)} == {
        (one.exchange, one.code, one.messages) for one in report.numbers.dead
    }
    assert {(one["start"], one["exchange"], one["code"], one["messages"]) for one in found} == {
        (start, one.exchange, one.code, messages) for one in report.numbers.dead for start, messages in one.steps.items()
    }
    assert {one["exchange"]: one["n"] for one in settled} == {one.name: one.figures.counts.settled for one in report.numbers.exchanges}


def test_hours_and_keys_are_those_of_the_report(report: Report, ask: Ask) -> None:
    """The heat map's cells, and routing keys with what they settled and what ended dead."""
    span = (report.span.since, report.span.until)
    hours = ask("SELECT start, sum(settled) AS n FROM queue_message_stats_settled WHERE start >= %s AND start < %s GROUP BY 1", *span)
    keys = ask(
        "SELECT exchange, routing_key, sum(settled) AS settled, sum(dead) AS dead FROM queue_message_stats_settled "
        "WHERE start >= %s AND start < %s GROUP BY 1, 2 HAVING sum(dead) > 0",
        *span,
    )

    assert {one["start"]: one["n"] for one in hours} == report.numbers.hours
    assert {("shop", "order", 10, 2), ("billing", "invoice", 3, 2)} == {
        (one.exchange, one.key, one.settled, one.dead) for one in report.numbers.keys
    }
    assert {tuple(one.values()) for one in keys} == {(one.exchange, one.key, one.settled, one.dead) for one in report.numbers.keys}


def test_sizes_are_those_of_the_report(report: Report, ask: Ask) -> None:
    """Bytes of each partition here, files, rows and bytes of each day there, and the lake in one row."""
    here = {one["day"]: one["bytes"] for one in ask("SELECT day, bytes FROM queue_message_archive_size")}
    lake = {one["day"]: one for one in ask("SELECT * FROM queue_message_lake_day WHERE name = 'archive'")}
    [state] = ask("SELECT * FROM queue_message_lake_state")

    days = report.inventory.days
    assert {day.day: day.bytes for day in days if day.bytes is not None} == here
    assert {None, NOON.date()} <= set(here)
    assert {day.day: (day.lake_files, day.lake_rows, day.lake_bytes) for day in days if day.lake_files} == {
        day: (one["files"], one["rows"], one["bytes"]) for day, one in lake.items()
    }
    assert {one["day"] for one in ROWS} == set(lake)
    tables = report.inventory.tables
    assert (sum(one.files for one in tables), sum(one.bytes for one in tables)) == (state["files"], state["bytes"])
    assert len(ROWS) == state["rows"] == sum(one["rows"] for one in lake.values())
    assert (state["exported_at"], state["computed_at"]) == (report.inventory.exported_at, report.inventory.computed_at)
    assert (None, None) == (state["compacted_at"], report.inventory.compacted_at)


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda lake, database: compact.run(lake=lake, database=database, say=lambda _: None),
        lambda lake, _: lake.opened("archive").optimize.compact(),
    ],
    ids=["by the job", "by another program"],
)
def test_a_compaction_is_told_and_days_that_went_are_forgotten(
    counted: Lake, database: Database, ask: Ask, rewrite: Callable[[Lake, Database], object]
) -> None:
    """The record follows the lake: one file less, the time of the compaction, and no day that the lake lacks."""
    lake_rows.append(counted, row(50))
    database.fetch("write_lake_days", {"name": ["gone"], "day": [date(2020, 1, 1)], "files": [1], "rows": [1], "bytes": [1]})
    exported = lake_state.read(counted).jobs["exported"]
    rewrite(counted, database)

    lake_state.record(counted, database)

    [state] = ask("SELECT exported_at, compacted_at >= exported_at AS later FROM queue_message_lake_state")
    assert (exported, True) == (state["exported_at"], state["later"])
    assert [{"files": 1, "rows": 13}] == ask(
        "SELECT files, rows FROM queue_message_lake_day WHERE name = 'archive' AND day = %s", NOON.date()
    )
    assert [] == ask("SELECT FROM queue_message_lake_day WHERE name = 'gone'")


def test_every_panel_on_the_history_is_answered(report: Report, ask: Ask) -> None:
    """Grafana's login may ask what each panel asks."""
    assert report
    history = next(board for board in dashboard.boards() if board["uid"] == "outbox-relay-history")
    queries = [target["rawSql"] for panel in history["panels"] for target in panel.get("targets", [])]

    assert len(queries) > 20
    for query in queries:
        ask(dashboard.expand_sql(query))
