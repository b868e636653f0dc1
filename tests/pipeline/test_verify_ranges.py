"""What a verification reads, in which pieces, and what it holds up meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq
import pytest

from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from relay.pipeline.source.partitions import DEAD, PartitionRange
from relay.pipeline.verify import job as verify
from relay.pipeline.verify.comparison import Comparison, Difference, RangeComparison
from relay.pipeline.verify.job import Compared
from tests.support.database import archives
from tests.support.lake.exporting import Rows, export

if TYPE_CHECKING:
    from tests.pipeline.conftest import Archived

FIRST = "queue_message_archive_20240501"
FUTURE = {"result": "failed", "archived_xid": "9000000000000"}
READ = "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint FROM pg_stat_user_tables WHERE relname = %s"
AT_WORK = """SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type IN ('client backend', 'parallel worker')"""
STATE = "SELECT verified_at, exported_xid::text::bigint, rows, difference IS NOT NULL FROM queue_message_export WHERE partition = %s"
ASIDE = """SELECT rows, difference IS NOT NULL,
        (SELECT coalesce(jsonb_object_agg(place, one -> 'code'), '{}') FROM jsonb_each(aside) AS a (place, one))
    FROM queue_message_export WHERE partition = 'queue_message_dead'"""
HOLDS = """SELECT extract(epoch FROM max(clock_timestamp() - xact_start))::float8 FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_xmin IS NOT NULL AND backend_type = 'client backend'"""
Verify = Callable[..., dict[str, Compared]]
Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def verified(lake: Lake, database: Database) -> Verify:
    """Verify and return what was found by partition."""

    def run(**options: Any) -> dict[str, Compared]:
        found = verify.run(lake=lake, database=database, say=lambda _line: None, **options).partitions
        return {one.partition: one for one in found}

    return run


def read(sql: Sql) -> int:
    """Rows of dead messages that were read so far. A session that ends counts what it read a moment after its client has gone."""
    while sql(AT_WORK)[0][0]:
        time.sleep(0.02)
    return int(sql(READ, DEAD)[0][0])


@pytest.fixture
def sql(database_url: str) -> Sql:
    """Run a statement as the owner."""

    def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(database_url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    return run


def test_dead_messages_that_were_verified_are_not_read_again(
    lake: Lake, database: Database, verified: Verify, sql: Sql, archived: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten new ones next to 100,000: about ten rows are read here, and there."""
    with database.connection() as connection:
        archives.insert_many(connection, 100_000, result="failed")
    export(lake, database)
    assert ("verified", 100_000) == (verified()[DEAD].state, sql(STATE, DEAD)[0][2])
    archived(*({"result": "failed"} for _ in range(10)))
    export(lake, database)
    database.close()
    before, there = read(sql), counted(monkeypatch)

    found = verified()[DEAD]

    database.close()
    assert ("verified", 10, 10) == (found.state, found.rows, found.lake_rows)
    assert read(sql) - before <= 100
    assert there["rows"] <= 100
    assert 100_010 == sql(STATE, DEAD)[0][2]


def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many rows are decoded of the lake from now on."""
    found, read = {"rows": 0}, pq.ParquetFile.iter_batches

    def counting(*arguments: Any, **more: Any) -> Iterator[Any]:
        for batch in read(*arguments, **more):
            found["rows"] += batch.num_rows
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counting)
    return found


def test_dead_messages_that_differ_are_put_aside(lake: Lake, database: Database, verified: Verify, sql: Sql, archived: Archived) -> None:
    """Retention continues with the others, even of the same transaction or later. A repaired row is no longer set aside."""
    [_, (xid, seq), *_] = archived(*({"result": "failed"} for _ in range(3)))
    held: Rows = []
    export(lake, database, lambda found: held.append(found.pop(1)) or found)  # type: ignore[func-returns-value]

    for new in (0, 4):
        archived(*({"result": "failed"} for _ in range(new)))
        export(lake, database)
        for _ in range(2):
            found = verified()[DEAD]
            assert ("differs", (Difference("missing", xid, seq),)) == (found.state, found.findings)
            assert [(3 + new, True, {f"{xid}/{seq}": "missing"})] == sql(ASIDE)
        assert [(new or 2,)] == sql("SELECT queue_message_delete_dead(now(), true)")
    archived({"result": "rejected"})
    export(lake, database, lambda found: [*held, *found])

    mended = verified()[DEAD]
    assert ("verified", 2) == (mended.state, mended.rows)
    assert [(8, False, {})] == sql(ASIDE)
    assert [(2,)] == sql("SELECT queue_message_delete_dead(now(), true)")


@pytest.mark.parametrize("kind", ["missing", "different", "doubled", "infinite", "foreign"])
def test_however_a_dead_message_differs_retention_keeps_it_alone(
    lake: Lake, database: Database, verified: Verify, sql: Sql, archived: Archived, kind: str
) -> None:
    """A row that no lake can hold, and one of another cluster's dump, as well."""
    bad = {"result": "failed", "seq": 77, **({"archived_xid": FUTURE["archived_xid"]} if kind == "foreign" else {})}
    archived({"result": "failed"}, bad, {"result": "failed"})

    def spoil(found: Rows) -> Rows:
        [one] = [row for row in found if row["seq"] == 77]
        others = [row for row in found if row["seq"] != 77]
        return others + {"different": [{**one, "error_detail": "x"}], "doubled": [one, one]}.get(kind, [])

    export(lake, database, spoil, foreign=True)
    if kind == "infinite":
        sql("SET session_replication_role = replica; UPDATE queue_message_dead SET archived_at = '-infinity' WHERE seq = 77")
    for _ in range(2):
        assert "differs" == verified()[DEAD].state
    archived({"result": "failed"})
    export(lake, database)
    verified()

    assert [(3,), (0,)] == [sql("SELECT queue_message_delete_dead(now(), true)")[0] for _ in range(2)]
    assert [(77,)] == sql("SELECT seq FROM queue_message_dead")


def test_where_more_dead_messages_differ_than_are_named_later_ones_wait(
    lake: Lake, database: Database, verified: Verify, sql: Sql, archived: Archived
) -> None:
    """It cannot be known which they are, so the mark stays below them."""
    archived({"result": "failed"})
    export(lake, database)
    verified()
    archived(*({"result": "failed"} for _ in range(25)))
    export(lake, database, lambda _found: [])

    assert [20, 20] == [len(verified()[DEAD].findings) for _ in range(2)]
    assert [(1, True, {})] == sql(ASIDE)
    assert [(1,)] == sql("SELECT queue_message_delete_dead(now(), true)")
    assert [(25,)] == sql("SELECT count(*) FROM queue_message_dead")


def test_dead_messages_are_compared_from_the_beginning_where_nothing_holds(
    lake: Lake, database: Database, verified: Verify, sql: Sql, archived: Archived, tmp_path: Any
) -> None:
    """When asked, against another lake, and where another checksum was used."""
    archived(*({"result": "failed"} for _ in range(3)))
    export(lake, database)
    assert [("verified", 3), ("unchanged", 3), ("verified", 3)] == [
        (one.state, one.rows) for one in (verified(again=again)[DEAD] for again in (False, False, True))
    ]
    sql("UPDATE queue_message_export SET form = 1")
    assert "verified" == verified()[DEAD].state
    other = Lake(str(tmp_path / "other"))
    export(other, database)
    assert [3] == [one.rows for one in verify.run(lake=other, database=database, say=lambda _: None).partitions if one.partition == DEAD]


@pytest.mark.parametrize("position", [FUTURE["archived_xid"], str((1 << 64) - 1)])
def test_dead_messages_of_another_clusters_dump_are_compared_each_time(
    lake: Lake, database: Database, verified: Verify, sql: Sql, archived: Archived, position: str
) -> None:
    """Their ids are above every mark: one that is restored later, and is not in the lake, is not deleted."""
    archived({"result": "failed"}, FUTURE)
    export(lake, database, foreign=True)
    assert [("verified", 2), ("verified", 1)] == [(one.state, one.rows) for one in (verified()[DEAD] for _ in range(2))]

    [(xid, seq)] = archived({"result": "failed", "archived_xid": position})

    assert (Difference("missing", xid, seq),) == verified()[DEAD].findings
    assert [(2,)] == sql("SELECT queue_message_delete_dead(now(), true)")
    assert [(str(xid), seq)] == sql("SELECT xid::text, seq FROM queue_message_dead")


def test_days_that_another_checksum_verified_are_compared_once_more(
    lake: Lake, database: Database, verified: Verify, sql: Sql, archived: Archived
) -> None:
    """What one definition says is nothing to the other."""
    archived({})
    export(lake, database)
    verified()
    sql("UPDATE queue_message_export SET form = 1")

    assert ["verified", "unchanged"] == [verified()[FIRST].state for _ in range(2)]


@contextmanager
def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> Iterator[list[PartitionRange]]:
    """Act once, after the first range was compared; yields the ranges."""
    seen, compare = list[PartitionRange](), Comparison.compare

    def compared(self: Comparison, one: PartitionRange) -> RangeComparison:
        found = compare(self, one)
        seen.append(one)
        if len(seen) == 1:
            act()
        return found

    monkeypatch.setattr(Comparison, "compare", compared)
    yield seen


@pytest.fixture
def three(lake: Lake, database: Database) -> None:
    """A day of 15,000 rows in three transactions and 10,000 dead ones, exported."""
    for result, count in (("success", 3), ("failed", 2)):
        for _ in range(count):
            with database.connection() as connection:
                archives.insert_many(connection, 5_000, result=result)
    export(lake, database)


@pytest.mark.usefixtures("three")
def test_late_rows_between_two_ranges_change_nothing(
    lake: Lake, database: Database, verified: Verify, archived: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each range has its own snapshot; what comes meanwhile is above the bound, exported or not."""

    def late() -> None:
        archived({}, {"result": "failed"})
        export(lake, database)

    with between(monkeypatch, late) as ranges:
        found = verified(rows=5_000)

    assert 5 <= len(ranges)
    assert ("unexported", 15_000) == (found[FIRST].state, found[FIRST].rows)
    assert ("verified", 10_000) == (found[DEAD].state, found[DEAD].rows)


@pytest.mark.usefixtures("three")
def test_retention_between_two_ranges_is_no_difference(verified: Verify, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day that is gone was verified before; of dead messages the lake has more."""

    def retain() -> None:
        sql(f"DROP TABLE {FIRST}; SET relay.retention = 'on'; DELETE FROM queue_message_dead WHERE seq % 2 = 0")

    with between(monkeypatch, retain):
        found = verified(rows=5_000)

    assert FIRST not in found
    assert ("verified", 5_000, 10_000) == (found[DEAD].state, found[DEAD].rows, found[DEAD].lake_rows)


def test_a_difference_in_one_of_many_ranges_is_named(lake: Lake, database: Database, verified: Verify) -> None:
    """The other ranges are not read twice."""
    for _ in range(3):
        with database.connection() as connection:
            archives.insert_many(connection, 5_000)
    export(lake, database, lambda found: [*found[:7_000], *found[7_001:]])

    found = verified(rows=5_000)[FIRST]

    assert ("differs", ["missing"], 15_000, 14_999) == (
        found.state, [one.kind for one in found.findings], found.rows, found.lake_rows,
    )  # fmt: skip


def test_a_snapshot_is_never_held_for_longer_than_was_set(lake: Lake, database_url: str, database: Database, archived: Archived) -> None:
    """Rows of megabytes take their time: a range that takes too long is made smaller, and is right all the same."""
    wide = '{"text": "' + "é" * 4_000_000 + '"}'
    archived(*({"content": wide} for _ in range(20)))
    export(lake, database)
    with watched(database_url) as long:
        verify.run(lake=lake, database=database, say=lambda _: None)
    most = max(long) / 3
    with Database(database_url, snapshot_seconds=most) as hurried, watched(database_url) as short:
        found = verify.run(lake=lake, database=hurried, say=lambda _: None, again=True)

    assert (20, 0) == (found.rows, found.exit_code)
    assert max(short) < 2 * most


@contextmanager
def watched(url: str) -> Iterator[list[float]]:
    """How long snapshots of this database have been held, looked at again and again."""
    held, end = list[float](), threading.Event()

    def watch() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not end.wait(0.01):
                [(seconds,)] = connection.execute(HOLDS.encode()).fetchall()
                if seconds is not None:
                    held.append(seconds)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield held
    finally:
        end.set()
        thread.join()


ADD_UP = """
import resource, sys, time
from relay.pipeline.verify import lake_rows
from relay.pipeline.lake.target_table import TABLE
from relay.pipeline.verify.checksum import add_up
from relay.pipeline.source.ranges import BEYOND, RowRange
from relay.pipeline.source.database import Database
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files
from relay.pipeline.source.partitions import ArchivePartition, PartitionRange
from datetime import date

lake = Lake(sys.argv[1])
with Database(sys.argv[2]) as database:
    columns = database.columns()
paths = tuple(file.path for file in files(lake.opened(TABLE)))
one = PartitionRange(ArchivePartition.of_day("a day", date.fromisoformat(sys.argv[3])), RowRange(0, BEYOND), paths)
before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
rows = add_up(lake_rows.batches(lake.place, one, [column.name for column in columns]), columns).rows
print(rows, time.process_time() - begin, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def added_up(lake: Lake, url: str, day: str) -> tuple[int, float, float]:
    """Rows of a day of the lake, the CPU seconds that adding them up takes, and the MiB that it needs."""
    done = subprocess.run([sys.executable, "-c", ADD_UP, lake.place.url, url, day], capture_output=True, text=True, check=True)
    rows, seconds, mib = map(float, done.stdout.split())
    return int(rows), seconds, mib


@pytest.mark.parametrize("group", [20_000, 50_000])
def test_huge_rows_among_small_ones_cost_what_their_bytes_cost(
    lake: Lake, database_url: str, database: Database, archived: Archived, group: int
) -> None:
    """Three rows of 36 MB next to 20,000 others, alone or in one row group: memory for a few copies of one, and few batches."""
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    for days in (0, 1):
        with database.connection() as connection:
            archives.insert_many(connection, 20_000, archived_at=noon + timedelta(days=days))
    archived(*({"content": '{"text": "' + "x" * 36_000_000 + '"}', "archived_at": noon + timedelta(days=1)} for _ in range(3)))
    export(lake, database, group=group)

    small, wide = added_up(lake, database_url, "2024-05-01"), added_up(lake, database_url, "2024-05-02")

    assert (20_000, 20_003) == (small[0], wide[0])
    assert wide[1] < small[1] + 2
    assert wide[2] < 512
