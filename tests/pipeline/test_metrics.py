"""The job that keeps the numbers right: in the lake and in PostgreSQL, once, again when rows come late, never twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relay.errors import ConflictError, PipelineError
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.metrics import aggregate, lake_sink, postgres_sink
from relay.pipeline.metrics import job as metrics
from relay.pipeline.metrics.job import Computed
from relay.pipeline.source.database import Database
from tests.support.lake.rows import NOON, append, dead, row, table
from tests.support.servers.logins import login

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
TODAY, TOMORROW = NOON.date(), NOON.date() + timedelta(days=1)
ROWS = [
    row(1, wait=2), row(2, wait=30, routing_key="bill"), row(3, at=NOON + timedelta(minutes=6)),
    dead(4, "nack", at=NOON + timedelta(hours=1)),
    row(5, at=NOON + timedelta(days=1), confirm=2000), dead(6, "too_large", result="rejected", at=NOON + timedelta(days=1)),
]  # fmt: skip
Run = Callable[..., Computed]


@pytest.fixture
def run(lake: Lake, database: Database, spark: SparkSession) -> Run:
    """One run of the job."""
    return lambda **options: metrics.run(**{"lake": lake, "database": database, "spark": lambda: spark, "say": lambda _: None, **options})


def _rows(url: str, grain: str, columns: str = "*") -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        statement = f'SELECT {columns} FROM queue_message_stats_{grain} ORDER BY start, exchange COLLATE "C", routing_key COLLATE "C"'
        return connection.execute(statement.encode()).fetchall()


def _in_postgresql(url: str, grain: str) -> pa.Table:
    columns = ", ".join(f"{name}::text" if name == "codes" else name for name in aggregate.SCHEMA.names)
    return pa.Table.from_pylist(
        [dict(zip(aggregate.SCHEMA.names, one, strict=True)) for one in _rows(url, grain, columns)], schema=aggregate.SCHEMA
    )


def _everything(lake: Lake, url: str) -> tuple[object, ...]:
    """What a change would change: versions of the lake's tables, places and transactions of PostgreSQL's rows."""
    tables = [lake.opened(f"stats_{grain}") for grain in metrics.SPANS]
    return [one.version() for one in tables], [_rows(url, grain, "ctid, xmin, xmax, *") for grain in metrics.SPANS]


def test_numbers_are_the_same_in_lake_and_postgresql(run: Run, lake: Lake, database_url: str) -> None:
    """Windows, hours and days of two days, as counted without Spark, in both places; a run says what it did."""
    append(lake, *ROWS)
    done = run(target_ms=1000)

    assert (2, 6, 5, 0, TODAY, TOMORROW, 1) == (
        done.days, done.messages, done.windows, done.copied_days, done.first_day, done.last_day, done.archive_version,
    )  # fmt: skip
    windows = aggregate.count(table(ROWS), target_ms=1000)
    for grain, seconds in metrics.SPANS.items():
        expected = aggregate.merge(windows, seconds=seconds)
        assert expected.equals(lake_sink.read(lake, grain, [TODAY, TOMORROW]))
        assert expected.equals(_in_postgresql(database_url, grain))
        assert 1 == lake.opened(f"stats_{grain}").transaction_version(lake_sink.APPLICATION)


def test_postgresql_is_told_what_the_lake_has(run: Run, lake: Lake, database_url: str) -> None:
    """Files and rows of each table as the run left them, and when the numbers changed."""
    append(lake, *ROWS)

    run()

    with psycopg.connect(database_url) as connection:
        state = connection.execute("SELECT rows, files, exported_at <= computed_at FROM queue_message_lake_state").fetchone()
    assert (
        len(ROWS),
        sum(len(lake.opened(name).file_uris()) for name in ("archive", "stats_window", "stats_hour", "stats_day")),
        True,
    ) == state


def test_a_second_run_changes_nothing(run: Run, lake: Lake, database_url: str) -> None:
    """Neither the lake's versions nor a row of PostgreSQL; not even when every day is computed again."""
    append(lake, *ROWS)
    run()
    before = _everything(lake, database_url)

    assert (0, 0) == (run().days, run().windows)
    assert (2, 0) == ((done := run(again=[TODAY, TOMORROW])).days, done.windows)
    assert before == _everything(lake, database_url)


def test_a_late_row_repairs_its_windows_and_no_other(run: Run, lake: Lake, database_url: str) -> None:
    """In a closed day its window, hour and day are written again; other rows stay where they are."""
    append(lake, *ROWS)
    run()
    before = {grain: set(_rows(database_url, grain, "ctid, start, routing_key")) for grain in metrics.SPANS}
    late = row(7, at=NOON + timedelta(minutes=1))
    append(lake, late)
    done = run()

    assert (1, 1, TODAY) == (done.days, done.windows, done.first_day)
    for grain, seconds in metrics.SPANS.items():
        [written] = set(_rows(database_url, grain, "ctid, start, routing_key")) - before[grain]
        assert "order" == written[2]
        expected = aggregate.merge(aggregate.count(table([*ROWS, late]), target_ms=1000), seconds=seconds)
        assert expected.equals(_in_postgresql(database_url, grain))
        assert expected.equals(lake_sink.read(lake, grain, [TODAY, TOMORROW]))


def test_any_cut_into_exports_gives_the_same_numbers(run: Run, lake: Lake, database_url: str) -> None:
    """Computed after each of several exports, with few named keys that change places meanwhile, the end is that of one export."""
    keys = ["a", "b", "b", "c", "c", "c", "a", "a", "a", "d"]
    rows = [row(number, routing_key=key, at=NOON + timedelta(minutes=number)) for number, key in enumerate(keys)]
    for low, high in ((0, 1), (1, 3), (3, 9), (9, 10)):
        append(lake, *rows[low:high])
        run(top_keys=2)
    cut = {grain: lake_sink.read(lake, grain, [TODAY]) for grain in metrics.SPANS}

    assert {"a", "c", "*other*"} == set(cut["window"]["routing_key"].to_pylist())
    assert all(numbers.equals(_in_postgresql(database_url, grain)) for grain, numbers in cut.items())
    whole = Lake(f"{lake.place.url}-whole")
    append(whole, *rows)
    run(lake=whole, top_keys=2)
    assert all(numbers.equals(lake_sink.read(whole, grain, [TODAY])) for grain, numbers in cut.items())


def test_many_exchanges_take_few_windows(run: Run, lake: Lake, database_url: str) -> None:
    """Those with the most messages are named in the lake and in PostgreSQL, the others are summed; the totals are those of all rows."""
    rows = [row(number, exchange=f"tenant {number // 2}" if number < 100 else "shop") for number in range(110)]
    append(lake, *rows)
    assert (110, 3) == ((done := run(top_exchanges=2)).messages, done.windows)

    for grain in metrics.SPANS:
        found = _rows(database_url, grain, "exchange, routing_key, published")
        assert [("*other*", "*other*", 98), ("shop", "order", 10), ("tenant 0", "order", 2)] == found
        assert lake_sink.read(lake, grain, [TODAY]).equals(_in_postgresql(database_url, grain))


def test_names_of_any_bytes_arrive_in_postgresql(run: Run, lake: Lake, database_url: str) -> None:
    """COPY has its own marks for nulls, ends, tabs and lines; names that look like them are names."""
    names = ["", "\\N", "\\.", "a\tb", "a\nb\r\n\\.\n", '"quoted"', "\\\\", "{1,2}", "NULL", "🐘\u202e", "\x01\x7f", "x" * 300]
    append(lake, *(row(number, exchange=name, routing_key=name) for number, name in enumerate(names)), dead(99, 'co"d\\e\n', exchange="z"))
    run()

    assert sorted([*names, "z"]) == [exchange for (exchange,) in _rows(database_url, "window", "exchange")]
    assert lake_sink.read(lake, "hour", [TODAY]).drop(["codes"]).equals(_in_postgresql(database_url, "hour").drop(["codes"]))
    assert ({'co"d\\e\n': 1},) in _rows(database_url, "day", "codes")


def test_postgresql_is_repaired_from_the_lake(run: Run, lake: Lake, database_url: str) -> None:
    """A restored database gets the days that it lacks or has older; days that it alone has stay."""
    append(lake, *ROWS)
    run()
    before = [_rows(database_url, grain) for grain in metrics.SPANS]
    with psycopg.connect(database_url) as connection:
        for grain in metrics.SPANS:
            connection.execute(f"DELETE FROM queue_message_stats_{grain} WHERE routing_key = 'bill' OR start >= '2026-03-03'".encode())
            copied = f"INSERT INTO queue_message_stats_{grain} SELECT start - interval '9 years', exchange, routing_key"
            rest = ", ".join(aggregate.SCHEMA.names[3:])
            connection.execute(f"{copied}, {rest} FROM queue_message_stats_{grain} WHERE start < '2026-03-02 12:05+00'".encode())

    done = run()
    assert (0, 2) == (done.days, done.copied_days)
    found = [_rows(database_url, grain) for grain in metrics.SPANS]
    assert before == [[one for one in rows if one[0].year == NOON.year] for rows in found]
    assert all(one for rows in found for one in rows if one[0].year == NOON.year - 9)
    assert 0 == run().copied_days


@pytest.mark.parametrize("grain", ["window", "hour", "day"])
def test_who_is_slower_says_so_and_the_next_run_repairs_what_is_half_there(
    run: Run, lake: Lake, database_url: str, monkeypatch: pytest.MonkeyPatch, grain: str
) -> None:
    """Another run commits between its look at the lake and its commit; PostgreSQL gets nothing before windows and hours are in the lake."""
    append(lake, *ROWS)
    numbers = aggregate.merge(aggregate.count(table(ROWS), target_ms=1000), seconds=metrics.SPANS[grain])
    read, others = lake_sink._read, list[bool]()

    def overtaken(lake: Any, grain_: str, handle: Any, days: Any) -> pa.Table:
        found = read(lake, grain_, handle, days)
        if grain_ == grain and not others:
            others.append(True)
            lake_sink.replace(lake, grain, numbers, days, archive_version=1)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(lake_sink, "_read", overtaken)
        with pytest.raises(ConflictError, match="faster"):
            run()
    assert (grain == "day") == bool(_rows(database_url, "window"))
    run()
    for grain_, seconds in metrics.SPANS.items():
        expected = aggregate.merge(aggregate.count(table(ROWS), target_ms=1000), seconds=seconds)
        assert expected.equals(_in_postgresql(database_url, grain_))
        assert expected.equals(lake_sink.read(lake, grain_, [TODAY, TOMORROW]))


def test_numbers_of_a_later_archive_stay(run: Run, lake: Lake) -> None:
    """A run that began before another one and ends after it does not put its older numbers back."""
    append(lake, *ROWS)
    run()
    before = lake_sink.read(lake, "day", [TODAY, TOMORROW])

    with pytest.raises(ConflictError, match="faster"):
        lake_sink.replace(lake, "day", before.slice(0, 1), [TODAY, TOMORROW], archive_version=0)

    assert before.equals(lake_sink.read(lake, "day", [TODAY, TOMORROW]))


def test_an_archive_that_was_made_anew_is_counted(run: Run, lake: Lake) -> None:
    """Its versions begin at 0 again, below those that were counted before."""
    for _ in range(3):
        append(lake, *ROWS)
    run()
    shutil.rmtree(f"{lake.place.url}/archive")
    append(lake, *ROWS)

    run()

    expected = aggregate.merge(aggregate.count(table(ROWS), target_ms=1000), seconds=metrics.SPANS["day"])
    assert expected.equals(lake_sink.read(lake, "day", [TODAY, TOMORROW]))


def test_a_database_that_goes_away_at_the_commit_catches_up(
    run: Run, lake: Lake, database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its days stay due, and the next run writes them in both places."""
    append(lake, *ROWS)
    replace = lake_sink.replace

    def cut(*values: Any, **options: Any) -> bool:
        done = replace(*values, **options)
        if values[1] == "hour":
            with psycopg.connect(database_url, autocommit=True) as other, database.connection() as held:
                other.execute("SELECT pg_terminate_backend(%s)", [held.info.backend_pid])
        return done

    with monkeypatch.context() as patched, suppress(PipelineError):
        patched.setattr(lake_sink, "replace", cut)
        run()
    assert [] == _rows(database_url, "day")
    done = run()
    assert (2, 0) == (done.days, done.copied_days)
    assert lake_sink.read(lake, "window", [TODAY, TOMORROW]).equals(_in_postgresql(database_url, "window"))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda file: file.unlink(), r"^The file archive/.* of the lake .* is missing or damaged"),
        (
            lambda file: pq.write_table(pa.table({"exchange": ["shop"], "routing_key": ["order"]}), file),
            r"^Spark could not count the messages of 2026-03-02 to 2026-03-03: see its logs and run this again",
        ),
    ],
    ids=["missing", "another"],
)
def test_a_failure_of_a_task_is_a_sentence_and_changes_nothing(
    run: Run, lake: Lake, database_url: str, damage: Callable[[Path], None], sentence: str
) -> None:
    """The log names a file that is missing, as after a wrong vacuum; or a file lacks columns that it should have."""
    append(lake, *ROWS)
    [*_, file] = lake.opened("archive").file_uris()
    damage(Path(file))

    with pytest.raises(PipelineError, match=sentence):
        run()
    assert ([], []) == (_rows(database_url, "window"), lake.days("stats_window"))


def test_a_lock_that_stays_is_a_sentence_and_changes_nothing(
    run: Run, lake: Lake, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has locked the numbers and forgot it; when that is over the next run writes them."""
    monkeypatch.setattr(postgres_sink, "LOCK_WAIT_MS", 50)
    append(lake, *ROWS)
    with psycopg.connect(database_url) as other:
        other.execute("LOCK TABLE queue_message_stats_day IN ROW EXCLUSIVE MODE")
        with pytest.raises(PipelineError, match=r"^Another session kept queue_message_stats_day locked for 0.05 s"):
            run()
        assert [] == lake.days("stats_window")
    assert 2 == run().days


def test_a_first_run_reads_the_numbers_once(run: Run, lake: Lake, database: Database, database_url: str) -> None:
    """VACUUM has seen the table empty, so PostgreSQL plans for no row. A plan that reads it again for each row reads 200,000 pages."""
    append(lake, *(row(number, at=NOON + number * timedelta(minutes=5)) for number in range(2000)))
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE queue_message_stats_window")
    assert run().windows == 2000
    with database.connection() as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        pages = connection.execute(
            "SELECT heap_blks_hit FROM pg_statio_user_tables WHERE relname = 'queue_message_stats_window'"
        ).fetchone()
    assert pages is not None
    assert 2000 < pages[0] < 20_000


def test_windows_that_were_dropped_stay_dropped(run: Run, lake: Lake, database_url: str) -> None:
    """By the pipeline's role; hours, days and the lake keep theirs, and a late row brings its day back."""
    append(lake, *ROWS)
    run()
    kept = [_rows(database_url, grain) for grain in ("hour", "day")]
    with login(database_url, "queue_message_etl") as etl, psycopg.connect(etl) as connection:
        connection.execute("DELETE FROM queue_message_stats_window WHERE start < '2026-03-03 00:00+00'::timestamptz")

    assert (0, 0, 0) == ((done := run()).days, done.windows, done.copied_days)
    assert {TOMORROW} == {one[0].date() for one in _rows(database_url, "window")}
    assert kept == [_rows(database_url, grain) for grain in ("hour", "day")]
    assert 4 == lake_sink.read(lake, "window", [TODAY]).num_rows
    append(lake, row(7))
    assert 4 == run().windows


def test_a_new_target_holds_for_days_that_are_computed(run: Run, lake: Lake, database_url: str) -> None:
    """A closed day keeps its own until it is asked for; a day has one target."""
    append(lake, *ROWS)
    run(target_ms=1)
    append(lake, row(8, at=NOON + timedelta(days=1)))
    run(target_ms=5000)
    within = "start::date, target_ms, sum(within_target) OVER (PARTITION BY start::date)"
    assert {(TODAY, 1, 0), (TOMORROW, 5000, 2)} == set(_rows(database_url, "window", within))

    run(target_ms=5000, again=[TODAY, date(1999, 1, 1)])
    assert {(TODAY, 5000, 3), (TOMORROW, 5000, 2)} == set(_rows(database_url, "window", within))


def test_the_role_of_the_pipeline_is_enough_and_others_do_not_write(run: Run, lake: Lake, database_url: str) -> None:
    """A login of queue_message_etl does the whole job; the operator reads and no more; a relay does not even read."""
    append(lake, *ROWS)
    with login(database_url, "queue_message_etl") as etl, Database(etl) as database:
        assert 2 == run(database=database).days
        append(lake, row(7))
        assert 1 == run(database=database).windows
    with login(database_url, "queue_message_operator") as operator, psycopg.connect(operator, autocommit=True) as connection:
        total = "SELECT queue_message_percentile(queue_message_buckets_sum(wait), 0.5) FROM queue_message_stats_day"
        assert connection.execute(total.encode()).fetchone() is not None
        for table_ in ("window", "hour", "day"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"DELETE FROM queue_message_stats_{table_}".encode())
    with (
        login(database_url, "queue_message_relay") as relay,
        psycopg.connect(relay) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("TABLE queue_message_stats_day")


def test_a_lake_without_an_archive_is_nothing_to_do(run: Run, database_url: str) -> None:
    """No days, and nothing made; a target of nothing is refused with a sentence."""
    done = run()

    assert (0, 0, None, None) == (done.days, done.messages, done.first_day, done.archive_version)
    with pytest.raises(PipelineError, match="at least 1"):
        run(target_ms=0)
    with pytest.raises(PipelineError, match="at least 1"):
        run(top_exchanges=0)


def test_days_are_computed_by_few_rows_at_once(run: Run, lake: Lake, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake of years is not computed as one; each group says what it counts."""
    append(lake, *(row(number, at=NOON + timedelta(days=number)) for number in range(5)))
    monkeypatch.setattr(metrics, "_ROWS_AT_ONCE", 2)
    said: list[str] = []

    assert 5 == run(say=said.append).days
    groups = ["2026-03-02 to 2026-03-03: 2", "2026-03-04 to 2026-03-05: 2", "2026-03-06: 1"]
    assert groups == [one.split(" message")[0] for one in said]
    assert {NOON.date() + timedelta(days=number): 1 for number in range(5)} == postgres_sink.messages_by_day(database)
