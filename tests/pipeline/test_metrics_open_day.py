"""The numbers of a day that is not over: a run reads what is new, whatever happened before, and the day is counted whole when it ends."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

from relay.errors import ConflictError, LakeError, PipelineError
from relay.pipeline.compact import job as compact
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files
from relay.pipeline.metrics import aggregate, lake_sink
from relay.pipeline.metrics import job as metrics
from relay.pipeline.metrics.job import Computed
from relay.pipeline.source.database import Database
from tests.support.lake.rows import append, dead, row, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
NOON = datetime.combine(datetime.now(UTC).date(), time(12), UTC)
"""Of today: the log says when numbers were written by the real clock."""
TODAY, TOMORROW = NOON.date(), NOON + timedelta(days=1)
FIRST = [row(1, at=NOON), row(2, at=NOON, routing_key="bill"), dead(3, "nack", at=NOON + timedelta(hours=1))]
SECOND = [row(4, at=NOON), row(5, at=NOON + timedelta(hours=2), routing_key="new"), row(6, at=NOON, exchange="mail")]
Rows = Sequence[dict[str, Any]]
Run = Callable[..., Computed]


@pytest.fixture
def run(lake: Lake, database: Database, spark: SparkSession) -> Run:
    """One run of the job, at noon of today."""
    usual = {"lake": lake, "database": database, "spark": lambda: spark, "say": lambda _: None, "now": NOON}
    return lambda **options: metrics.run(**{**usual, **options})


def _lose_files(lake: Lake) -> None:
    """Remove the archive's files, so that a job that still reads them fails."""
    for path in lake.opened("archive").file_uris():
        Path(path).unlink(missing_ok=True)


def _expected(rows: Rows, grain: str, target_ms: int = 1000) -> pa.Table:
    return aggregate.merge(aggregate.count(table(rows), target_ms=target_ms), seconds=metrics.SPANS[grain])


def _assert_counted(lake: Lake, url: str, rows: Rows, target_ms: int = 1000) -> None:
    """Each grain is that of a full count in the lake, and as many messages and places are in PostgreSQL."""
    with psycopg.connect(url) as connection:
        for grain in metrics.SPANS:
            expected = _expected(rows, grain, target_ms)
            assert expected.equals(lake_sink.read(lake, grain, [TODAY]))
            total = "count(*), coalesce(sum(published + discarded + rejected + failed + lock_expired), 0)"
            found = connection.execute(f"SELECT {total} FROM queue_message_stats_{grain}".encode()).fetchone()
            assert (expected.num_rows, len(rows)) == found


def test_a_run_reads_new_files_and_no_others(run: Run, lake: Lake, database_url: str) -> None:
    """The files that were counted are gone, and the numbers are those of all rows; so does the run after that."""
    append(lake, *FIRST)
    assert 3 == run().messages
    for more in (SECOND, [row(7, at=NOON)]):
        _lose_files(lake)
        append(lake, *more)
        done = run()
        assert (1, len(more)) == (done.days, done.messages)

    _assert_counted(lake, database_url, [*FIRST, *SECOND, row(7, at=NOON)])
    assert (0, 0) == (run().days, run().copied_days)


def test_a_day_that_is_over_is_counted_whole_and_once(run: Run, lake: Lake) -> None:
    """Its names are those of all its rows, in whatever order they came; before, the first ones stay."""
    past = NOON - timedelta(days=2)
    append(lake, row(1, at=past, routing_key="a"))
    run(top_keys=1, now=past)
    append(lake, *(row(number, at=past, routing_key="b") for number in range(2, 5)))
    _date(lake, past)
    run(top_keys=1, now=past)
    _date(lake, past)
    assert ["*other*", "a"] == lake_sink.read(lake, "day", [past.date()])["routing_key"].to_pylist()

    assert (1, 4) == ((done := run(top_keys=1)).days, done.messages)
    assert ["*other*", "b"] == lake_sink.read(lake, "day", [past.date()])["routing_key"].to_pylist()
    assert 0 == run(top_keys=1).days


@pytest.mark.parametrize("grain", ["window", "hour", "day"])
def test_the_count_of_a_day_that_is_over_is_completed_in_both_places(
    run: Run, lake: Lake, database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch, grain: str
) -> None:
    """PostgreSQL goes away after each of the lake's tables: as many messages with other names are no sign that all was written."""
    past = NOON - timedelta(days=2)
    append(lake, row(1, at=past, routing_key="a"))
    run(top_keys=1, now=past)
    append(lake, *(row(number, at=past, routing_key="b") for number in range(2, 5)))
    _date(lake, past)
    run(top_keys=1, now=past)
    _date(lake, past)
    replace = lake_sink.replace

    def cut(*values: Any, **options: Any) -> bool:
        done = replace(*values, **options)
        if values[1] == grain:
            with psycopg.connect(database_url, autocommit=True) as other, database.connection() as held:
                other.execute("SELECT pg_terminate_backend(%s)", [held.info.backend_pid])
        return done

    with monkeypatch.context() as patched, suppress(PipelineError):
        patched.setattr(lake_sink, "replace", cut)
        run(top_keys=1)
    run(top_keys=1)
    with psycopg.connect(database_url) as connection:
        for grain_ in metrics.SPANS:
            assert ["*other*", "b"] == lake_sink.read(lake, grain_, [past.date()])["routing_key"].to_pylist()
            found = connection.execute(f"SELECT routing_key FROM queue_message_stats_{grain_} ORDER BY 1".encode()).fetchall()
            assert [("*other*",), ("b",)] == found


def test_a_day_whose_numbers_stay_is_looked_at_once_when_it_is_over(run: Run, lake: Lake) -> None:
    """The day's numbers are written again though they are the same: else each run would count it."""
    past = NOON - timedelta(days=2)
    append(lake, row(1, at=past))
    run(now=past)
    _date(lake, past)

    assert (1, 0) == ((done := run()).days, done.windows)
    assert 0 == run().days


def _date(lake: Lake, when: datetime) -> None:
    """Let the log say that all numbers were written then."""
    for log in Path(lake.place.url).glob("stats_*/_delta_log/*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["modificationTime"] = int(when.timestamp() * 1000)
        log.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("grain", ["window", "hour", "day"])
def test_a_run_that_was_killed_between_its_tables_is_completed(
    run: Run, lake: Lake, database_url: str, monkeypatch: pytest.MonkeyPatch, grain: str
) -> None:
    """Nothing is counted twice or left out, before the first table, the second and the third; what the windows count is not read again."""
    append(lake, *FIRST)
    run()
    _lose_files(lake)
    append(lake, *SECOND)
    replace = lake_sink.replace

    def cut(*values: Any, **options: Any) -> bool:
        if values[1] == grain:
            raise LakeError("the machine stops")
        return replace(*values, **options)

    with monkeypatch.context() as patched, suppress(LakeError):
        patched.setattr(lake_sink, "replace", cut)
        run()
    if grain != "window":
        _lose_some(lake, SECOND)
    assert (1, 3 if grain == "window" else 0) == ((done := run()).days, done.messages)
    _assert_counted(lake, database_url, [*FIRST, *SECOND])


def _lose_some(lake: Lake, rows: Rows) -> None:
    for file in files(lake.opened("archive")):
        if file.newest in {one["archived_xid"] for one in rows}:
            Path(lake.place.table("archive"), file.path).unlink()


def test_rewritten_files_are_counted_whole(run: Run, lake: Lake, database: Database, database_url: str) -> None:
    """A compaction that finds the day over, by a clock that is ahead, leaves nothing twice."""
    append(lake, *FIRST[:2])
    append(lake, FIRST[2])
    run()
    assert compact.run(lake=lake, database=database, say=lambda _: None, now=TOMORROW).days
    append(lake, *SECOND)

    assert 6 == run().messages
    _assert_counted(lake, database_url, [*FIRST, *SECOND])


def test_late_rows_of_another_day_leave_the_open_one_as_it_is(run: Run, lake: Lake) -> None:
    """A closed day is counted whole; then the open one, whose windows are of an older version than the table's last, is counted right."""
    past = NOON - timedelta(days=9)
    append(lake, row(20, at=past), *FIRST)
    run()
    append(lake, row(21, at=past))
    assert (1, 2) == ((done := run()).days, done.messages)
    append(lake, row(22, at=past), *SECOND)

    assert (2, 3 + 3) == ((done := run()).days, done.messages)
    _assert_counted_in_lake(lake, [*FIRST, *SECOND])
    assert 3 == sum(aggregate.messages(lake_sink.read(lake, "day", [past.date()])).to_pylist())


def _assert_counted_in_lake(lake: Lake, rows: Rows) -> None:
    for grain in metrics.SPANS:
        assert _expected(rows, grain).equals(lake_sink.read(lake, grain, [TODAY]))


def test_another_target_counts_the_day_whole(run: Run, lake: Lake, database_url: str) -> None:
    """A day has one target."""
    append(lake, *FIRST)
    run(target_ms=1)
    append(lake, *SECOND)

    assert 6 == run(target_ms=5000).messages
    _assert_counted(lake, database_url, [*FIRST, *SECOND], target_ms=5000)


def test_a_day_that_is_asked_for_is_counted_whole(run: Run, lake: Lake, database_url: str) -> None:
    """Also where only new files would be read."""
    append(lake, *FIRST)
    run()
    append(lake, *SECOND)

    assert 6 == run(again=[TODAY]).messages
    _assert_counted(lake, database_url, [*FIRST, *SECOND])


@pytest.mark.parametrize("taken", [1, 2, 3])
def test_rows_that_were_taken_again_count_once(run: Run, lake: Lake, database_url: str, taken: int) -> None:
    """A lost file left the table, and its rows came with another one, all of them or as many as there still were."""
    append(lake, *FIRST)
    run()
    handle = lake.opened("archive")
    [lost] = files(handle)
    append(lake, *FIRST[:taken])
    lake.commit(lake.opened("archive"), "archive", [], removed=[lost])
    append(lake, *SECOND)

    assert taken + 3 == run().messages
    _assert_counted(lake, database_url, [*FIRST[:taken], *SECOND])


def test_an_archive_without_that_version_is_counted_whole(run: Run, lake: Lake, database_url: str) -> None:
    """The archive was made again, or its log was cleaned up."""
    append(lake, *FIRST)
    append(lake, *SECOND)
    run()
    shutil.rmtree(f"{lake.place.url}/archive")
    append(lake, *FIRST, row(9, at=NOON))

    assert 4 == run().messages
    _assert_counted(lake, database_url, [*FIRST, row(9, at=NOON)])


@pytest.mark.parametrize("more", [SECOND, []], ids=["new", "none"])
@pytest.mark.parametrize("grains", [["window"], ["hour"], ["day"], ["window", "hour", "day"]], ids="-".join)
def test_numbers_that_were_lost_are_counted_whole(run: Run, lake: Lake, database_url: str, grains: list[str], more: Rows) -> None:
    """A statistics table of the lake is gone, and so are PostgreSQL's; it makes no difference whether rows have come."""
    append(lake, *FIRST)
    run()
    for grain in grains:
        shutil.rmtree(f"{lake.place.url}/stats_{grain}")
    with psycopg.connect(database_url) as connection:
        connection.execute("TRUNCATE queue_message_stats_window, queue_message_stats_hour, queue_message_stats_day")
    append(lake, *more)

    assert 3 + len(more) == run().messages
    _assert_counted(lake, database_url, [*FIRST, *more])


@pytest.mark.parametrize("later", [[], [row(7, at=NOON)]])
def test_runs_at_once_count_nothing_twice(run: Run, lake: Lake, database_url: str, spark: SparkSession, later: Rows) -> None:
    """Another run writes while this one counts, of the same version or of a later one; then this one gives way."""
    append(lake, *FIRST)
    run()
    append(lake, *SECOND)

    def overtaken() -> SparkSession:
        if later:
            append(lake, *later)
        run()
        return spark

    with pytest.raises(ConflictError, match="faster") if later else suppress(ConflictError):
        run(spark=overtaken)
    _assert_counted(lake, database_url, [*FIRST, *SECOND, *later])


def test_a_day_that_ends_while_it_is_counted_is_left_to_the_next_run(
    run: Run, lake: Lake, database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was counted in parts before its end must not look like what was counted after it."""
    append(lake, *FIRST)
    run()
    append(lake, *SECOND)
    days, one = iter([TODAY, TOMORROW.date()]), database.one
    monkeypatch.setattr(database, "one", lambda name, *values: (next(days),) if name == "read_today" else one(name, *values))

    with pytest.raises(ConflictError, match=f"^{TODAY} was over before"):
        run()
    monkeypatch.undo()
    _assert_counted(lake, database_url, FIRST)
    assert 6 == run(now=TOMORROW).messages
    _assert_counted(lake, database_url, [*FIRST, *SECOND])
