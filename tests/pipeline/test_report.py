"""The report of a real lake and a real database: what is collected, from where, and the file that is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from relay.errors import LakeError, PipelineError, UnreachableError
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.metrics import aggregate
from relay.pipeline.report import run
from relay.pipeline.report.data import collect, span_of
from relay.pipeline.report.model import Counts, Report
from relay.pipeline.source.columns import DAY, schema_of
from relay.pipeline.source.database import Database
from tests.support.lake.rows import COLUMNS, NOON, dead, row
from tests.support.lake.rows import table as archive_table
from tests.support.servers.logins import login

NOW = NOON + timedelta(hours=3)
Archived = Callable[..., list[tuple[int, int]]]
Rows = Sequence[dict[str, Any]]


def silent(_: str) -> None:
    """Discard progress."""


def export(lake: Lake, *rows: dict[str, Any], end: int = 1) -> None:
    """Put archive rows into the lake."""
    handle = lake.open("archive") or lake.create("archive", schema_of(COLUMNS))
    lake.append(handle, "archive", archive_table(rows).to_batches(), offsets=[("outbox-relay/export", end)])


def count(lake: Lake, *rows: dict[str, Any], target_ms: int = 10) -> None:
    """Put the numbers of archive rows into the lake, as the metrics would."""
    windows = aggregate.count(archive_table(rows), target_ms=target_ms)
    for name, seconds in (("stats_window", aggregate.WINDOW_SECONDS), ("stats_hour", aggregate.HOUR_SECONDS)):
        numbers = aggregate.merge(windows, seconds=seconds)
        numbers = numbers.append_column(DAY, numbers["start"].cast(pa.date32()))
        handle = lake.open(name) or lake.create(name, pa.schema([*aggregate.SCHEMA, DAY]))
        lake.append(handle, name, numbers.to_batches())


def collected(lake: Lake, database: Database, since: datetime = NOON - timedelta(hours=1), until: datetime = NOW) -> Report:
    """The report of a few hours."""
    return collect(lake, database, span_of(since, until, now=NOW), now=NOW, say=silent)


def test_counts_come_from_the_numbers_by_time_and_exchange(lake: Lake, database: Database) -> None:
    """Routing keys are added up, results kept apart, percentiles taken from all, and what lies outside the time is left out."""
    rows = [
        row(1, wait=40, attempts=2),
        row(2, routing_key="other"),
        row(3, exchange="billing", at=NOON + timedelta(hours=1, minutes=7)),
        dead(4, "no_exchange", result="rejected"),
        row(5, result="discarded", claimed_at=None, published_at=None, confirmed_at=None),
        row(6, at=NOON - timedelta(hours=2)),
    ]
    count(lake, *rows)

    report = collected(lake, database)

    assert Counts(3, 1, 1, 0, 0, 6, 2) == report.numbers.total.counts
    assert report.numbers.total.wait is not None
    assert 30 < report.numbers.total.wait.p99 <= 50
    assert [(NOON, 4), (NOON + timedelta(hours=1, minutes=5), 1)] == [
        (one.start, one.figures.counts.settled) for one in report.numbers.moments
    ]
    assert [("billing", 1), ("shop", 4)] == [(one.name, one.figures.counts.settled) for one in report.numbers.exchanges]
    assert {"billing": {13: 1}, "shop": {12: 4}} == {
        one.name: {hour: number for hour, number in enumerate(one.hours) if number} for one in report.numbers.exchanges
    }
    assert (10,) == report.numbers.targets_ms


def test_the_same_hour_of_several_days_is_one(lake: Lake, database: Database) -> None:
    """Over a week the numbers of hours are read, and the hour of the day counts messages of all days; a changed target is reported."""
    days = [row(number, at=NOON - timedelta(days=number, minutes=-10)) for number in range(1, 4)]
    count(lake, *days[:2])
    count(lake, days[2], target_ms=500)

    report = collected(lake, database, since=NOW - timedelta(days=7))

    assert timedelta(hours=1) == report.span.step
    assert [3] == [one.hours[12] for one in report.numbers.exchanges]
    assert [NOON - timedelta(days=3), NOON - timedelta(days=2), NOON - timedelta(days=1)] == [one.start for one in report.numbers.moments]
    assert (10, 500) == report.numbers.targets_ms


def test_a_year_has_a_step_for_each_day(lake: Lake, database: Database) -> None:
    """Two hours of one day are one moment."""
    count(lake, row(1), row(2, at=NOON + timedelta(hours=2)))

    report = collected(lake, database, since=NOW - timedelta(days=365))

    assert [(datetime(2026, 3, 2, tzinfo=UTC), 2)] == [(one.start, one.figures.counts.published) for one in report.numbers.moments]


def test_errors_have_their_latest_example(lake: Lake, database: Database) -> None:
    """Codes are counted over all files and days, the most frequent first, each with the message that failed last."""
    export(lake, dead(1, "late", at=NOON + timedelta(minutes=9), error_detail="the last"), dead(2, "late", at=NOON), dead(3, None))
    export(lake, dead(4, "late", error_detail="not the last"), row(5), dead(6, "late", at=NOW + timedelta(days=1)), end=2)

    failures = collected(lake, database).failures

    assert [("late", 3, "the last"), (None, 1, None)] == [(one.code, one.messages, one.detail) for one in failures]
    assert [("shop", "order"), ("shop", "order")] == [(one.exchange, one.routing_key) for one in failures]
    assert (f"00000000-0000-0000-0000-{1:012}", NOON + timedelta(minutes=9)) == (failures[0].id, failures[0].at)


def test_the_slowest_keys_are_those_of_the_slowest_message(lake: Lake, database: Database) -> None:
    """A way begins when a message was due: later than its creation where it was delayed, but not where a retry delayed it."""
    confirmed = NOON - timedelta(milliseconds=1)
    delayed = confirmed - timedelta(seconds=2)
    export(
        lake,
        row(1, routing_key="slow", wait=5_000),
        row(2, routing_key="slow", wait=1_000),
        row(3, routing_key="delayed", wait=90_000, available_at=delayed),
        row(4, routing_key="retried", wait=60_000, available_at=delayed, attempts=2),
        row(5, routing_key="ordered", wait=20, ordering_key="customer-1"),
        dead(6, "late", routing_key="dead", wait=1e6),
    )

    slowest = collected(lake, database).slow_keys

    assert [("retried", 60_004), ("slow", 5_004), ("delayed", 2_000), ("ordered", 24)] == [
        (one.key, one.longest_ms) for one in slowest if one.kind == "routing"
    ]
    assert [(2, 3_004.0)] == [(one.messages, one.mean_ms) for one in slowest if one.key == "slow"]
    assert ["customer-1"] == [one.key for one in slowest if one.kind == "ordering"]


def test_dead_letters_wait_until_they_are_acknowledged(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """The newest come first, of any time; an acknowledged one is gone, and so are successes."""
    archived({"result": "failed", "error_code": "old", "archived_at": NOON - timedelta(days=300)})
    archived({"result": "rejected", "error_code": "new", "archived_at": NOON}, {"result": "success", "archived_at": NOON})
    [(xid, seq)] = archived({"result": "failed", "error_code": "seen", "archived_at": NOON})
    with psycopg.connect(database_url) as connection:
        connection.execute("INSERT INTO queue_message_dead_ack (xid, seq) VALUES (%s::text::xid8, %s)", [str(xid), seq])

    waiting = collected(lake, database).unacknowledged

    assert (2, NOON - timedelta(days=300)) == (waiting.total, waiting.oldest)
    assert ["new", "old"] == [one.code for one in waiting.newest]


def test_verdicts_of_the_verification_are_told(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """A day is verified, different with what differs, not compared, or not over; a dropped day keeps its verdict.

    What was compared with another lake was not compared with this one.
    """
    archived(*({"archived_at": NOON - timedelta(days=ago)} for ago in (0, 1, 2, 3)))
    with psycopg.connect(database_url) as connection:
        connection.execute(
            """INSERT INTO queue_message_export (partition, rows, verified_at, difference, damage, lake)
            VALUES ('queue_message_archive_20260228', 1, now(), NULL, NULL, 'a'),
                ('queue_message_archive_20260227', 1, NULL, '1 row is missing.', NULL, 'a'),
                ('queue_message_archive_20260301', 1, now(), NULL, NULL, 'b'),
                ('queue_message_archive_20250101', 7, now(), NULL, NULL, 'a'),
                ('queue_message_archive_20250102', 7, now(), NULL, 'a file is missing', 'a'),
                ('queue_message_archive_20250103', 7, now(), NULL, NULL, 'b')"""
        )
        connection.execute("INSERT INTO queue_message_export_position (exported_xid, lake, epoch) VALUES ('7', 'a', 1)")

    quality = collected(lake, database).quality
    verdicts = {one.day: (one.verdict, one.rows, one.difference) for one in quality.partitions if one.day and one.day < date(2026, 3, 3)}

    assert ("verified", 7, None) == verdicts[date(2025, 1, 1)]
    assert ("differs", 7, "a file is missing") == verdicts[date(2025, 1, 2)]
    assert date(2025, 1, 3) not in verdicts
    assert ("differs", 1, "1 row is missing.") == verdicts[date(2026, 2, 27)]
    assert ("verified", 1, None) == verdicts[date(2026, 2, 28)]
    assert ("unverified", 1, None) == verdicts[date(2026, 3, 1)]
    assert ("open", None, None) == verdicts[date(2026, 3, 2)]


def test_the_lag_is_that_of_what_the_lake_lacks(lake: Lake, database: Database, archived: Archived) -> None:
    """Unknown without an export, nothing while all is there, then the age of the oldest message that is not."""
    assert collected(lake, database).quality.lake.lag_seconds is None
    [(xid, _)] = archived({"archived_at": datetime.now(UTC) - timedelta(hours=1)})
    export(lake, row(1), end=xid + 1)
    assert 0 == collected(lake, database).quality.lake.lag_seconds

    archived({"archived_at": datetime.now(UTC) - timedelta(hours=1)})

    lag = collected(lake, database).quality.lake.lag_seconds
    assert lag is not None
    assert 3600 <= lag < 3700


def test_a_page_is_written_in_one_step(lake: Lake, database: Database, tmp_path: Path) -> None:
    """The job replaces the file, which others may read, leaves no other file next to it, and says what the page says."""
    rows = [row(1), row(2), dead(3, "late", error_detail="the broker is away")]
    export(lake, *rows)
    count(lake, *rows)
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "report.html").write_text("old")
    (tmp_path / "usual").touch()

    said: list[str] = []
    done = run(lake=lake, database=database, say=said.append, path=folder / "report.html", now=NOW)

    page = (folder / "report.html").read_text(encoding="utf-8")
    assert [folder / "report.html"] == list(folder.iterdir())
    assert (tmp_path / "usual").stat().st_mode == (folder / "report.html").stat().st_mode
    assert "the broker is away" in page
    assert "The numbers count each of the 3 messages that the lake has of this time." in page
    assert (3, 1, len(page.encode())) == (done.messages, done.dead, done.bytes)
    assert "3 messages read so far" in said


def test_neither_contents_nor_credentials_are_on_the_page(database: Database, tmp_path: Path) -> None:
    """Contents, bodies, options and storage options stay where they are."""
    lake = Lake(str(tmp_path / "lake"), {"AWS_SECRET_ACCESS_KEY": "hunter2-of-the-lake"})
    secret = dead(1, "late", content='{"card": "4242-4242"}', body=b"4242-4242", options='{"headers": {"card": "4242-4242"}}')
    export(lake, secret)
    count(lake, secret)

    run(lake=lake, database=database, say=silent, path=tmp_path / "report.html", now=NOW)

    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "late" in page
    assert "4242" not in page
    assert "hunter2" not in page


def test_an_empty_lake_gives_a_page(lake: Lake, database: Database, tmp_path: Path) -> None:
    """Before the first export there is a page already, and no lake is made by it."""
    done = run(lake=lake, database=database, say=silent, path=tmp_path / "report.html", now=NOW)

    assert 0 == done.messages
    assert "The lake is empty" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not Path(lake.place.url).exists()


def test_the_pipelines_role_may_make_a_report(lake: Lake, database_url: str, tmp_path: Path) -> None:
    """A login that is nothing but a member of queue_message_etl is enough."""
    export(lake, row(1))

    with login(database_url, "queue_message_etl") as url, Database(url) as database:
        done = run(lake=lake, database=database, say=silent, path=tmp_path / "report.html", now=NOW)

    assert done.bytes > 0


def test_what_cannot_be_done_is_one_sentence(lake: Lake, database: Database, tmp_path: Path) -> None:
    """A folder that is not there, a time that ends before it begins, and a server that is away."""
    with pytest.raises(PipelineError, match=r"^The report cannot be written to .*No such file or directory.*\.$"):
        run(lake=lake, database=database, say=silent, path=tmp_path / "nowhere" / "report.html", now=NOW)
    with pytest.raises(
        PipelineError, match=r"^The report's time would end before it begins: 2026-03-02 15:00 must be before 2026-03-01 15:00\.$"
    ):
        run(lake=lake, database=database, say=silent, path=tmp_path / "report.html", since=NOW, until=NOW - timedelta(days=1))
    with pytest.raises(UnreachableError), Database("host=127.0.0.1 port=1") as away:
        run(lake=lake, database=away, say=silent, path=tmp_path / "report.html", now=NOW)
    assert not (tmp_path / "report.html").exists()


def test_numbers_of_another_form_are_refused(lake: Lake, database: Database) -> None:
    """Numbers that lack a column are not taken for none."""
    schema = pa.schema([("start", pa.timestamp("us", "UTC")), DAY])
    rows = pa.RecordBatch.from_pylist([{"start": NOON, "day": NOON.date()}], schema=schema)
    lake.append(lake.create("stats_window", schema), "stats_window", [rows])

    with pytest.raises(
        LakeError, match=r"^The table stats_window of .* lacks attempts, codes, .*: remove it and run `relay pipeline metrics`\.$"
    ):
        collected(lake, database)


@pytest.mark.parametrize(
    ("long", "step"),
    [(timedelta(hours=30), timedelta(minutes=5)), (timedelta(days=20), timedelta(hours=1)), (timedelta(days=100), timedelta(days=1))],
)
def test_a_span_is_widened_to_whole_steps(long: timedelta, step: timedelta) -> None:
    """Both ends lie on a border of the step, and nothing that was asked for is left out."""
    until = datetime(2026, 3, 9, 8, 31, 7, tzinfo=UTC)

    span = span_of(until - long, until, now=until)

    midnight = datetime(2026, 3, 9, tzinfo=UTC)
    assert step == span.step
    assert (timedelta(0), timedelta(0)) == ((span.since - midnight) % step, (span.until - midnight) % step)
    assert span.since <= until - long < span.since + step
    assert span.until - step < until <= span.until
