"""export --again: rows that the lake lacks of a day below the export's bound are added, once, and other differences are named."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from relay.errors import ConflictError, LakeError, PipelineError
from relay.pipeline.export import again
from relay.pipeline.lake import epoch
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.epoch import OFFSET
from relay.pipeline.source import cluster as clusters
from relay.pipeline.source.columns import TABLE, schema_of
from relay.pipeline.source.database import Database
from relay.pipeline.verify import job as verify
from relay.pipeline.verify.comparison import Difference
from tests.pipeline.conftest import Archived
from tests.support.database.archives import insert_many
from tests.support.lake.adding import DAY, NEXT, NOON, AddAgain, faults, verified
from tests.support.lake.contents import files_below, in_lake, in_postgres
from tests.support.lake.exporting import Rows, export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
OLD = {"archived_xid": "3"}
"""By hand, or by a restore: below every offset."""


def forget(*seqs: int) -> Callable[[Rows], Rows]:
    """Spoils an export: these do not arrive."""
    return lambda rows: [row for row in rows if row["seq"] not in seqs]


@pytest.mark.parametrize("result", ["success", "discarded", "failed"])
def test_a_row_that_came_below_the_bound_is_added(
    archived: Archived, lake: Lake, database: Database, database_url: str, add_again: AddAgain, result: str
) -> None:
    """Neither an export nor a verification can help it; after this its day is verified."""
    archived({}, {"result": "failed"})
    export(lake, database)
    [(xid, seq)] = archived({"result": result, **OLD})
    export(lake, database)
    found = verify.run(lake=lake, database=database, say=lambda _: None, again=True).differing
    assert [(Difference("missing", xid, seq),)] == [one.findings for one in found]

    done = add_again()

    assert (1, 0, [(DAY, 1, 3, None)]) == (
        done.added,
        done.exit_code,
        [(one.day, one.added, one.rows, one.difference) for one in done.days],
    )
    assert in_postgres(database_url) == in_lake(lake)
    assert set() == verified(lake, database)


@pytest.mark.parametrize("lost", [forget(2), forget(1, 2, 3, 4), lambda _: []], ids=["one", "those of a day", "all"])
def test_what_an_export_has_lost_is_added(
    archived: Archived, lake: Lake, database: Database, database_url: str, add_again: AddAgain, lost: Callable[[Rows], Rows]
) -> None:
    """Of the days that are named, and of no other one."""
    archived({"seq": 1}, {"seq": 2}, {"seq": 3, "result": "rejected"}, {"seq": 4})
    archived(*({"seq": seq, "archived_at": NOON + timedelta(days=1)} for seq in (5, 6)))
    export(lake, database, lost)

    add_again(DAY)
    assert {1, 2, 3, 4} <= {row[1] for row in in_lake(lake)}
    add_again(DAY, NEXT)

    assert in_postgres(database_url) == in_lake(lake)
    assert set() == verified(lake, database)


def test_what_differs_is_named_and_left_as_it_is(archived: Archived, lake: Lake, database: Database, add_again: AddAgain) -> None:
    """Rows that are not the same, and such as the lake alone has; the one that is missing is added all the same."""
    xid = archived({"seq": 1}, {"seq": 2}, {"seq": 3})[0][0]

    def spoil(rows: Rows) -> Rows:
        return [{**rows[0], "routing_key": "other"}, {**rows[0], "seq": 9}, rows[1]]

    export(lake, database, spoil)

    done = add_again()

    assert (1, 5) == (done.added, done.exit_code)
    assert {Difference("different", xid, 1), Difference("extra", xid, 9)} == set(done.days[0].findings)
    assert "PostgreSQL has 3 rows and the lake 4; extra in the lake" in str(done.days[0].difference)
    assert [1, 2, 3, 9] == [row[1] for row in in_lake(lake)]
    assert {"differs"} == verified(lake, database)


def test_a_row_of_another_day_of_the_lake_is_added_no_second_time(
    archived: Archived, lake: Lake, database: Database, database_url: str, add_again: AddAgain
) -> None:
    """Somebody has changed when it was archived: the lake has it of the other day, and it stays one message."""
    [(xid, seq), _] = archived({"archived_at": NOON + timedelta(days=1)}, {})
    export(lake, database)
    with psycopg.connect(database_url) as owner:
        owner.execute("SET session_replication_role = replica")
        owner.execute("DELETE FROM queue_message_archive WHERE seq = %s", [seq])
    archived({"xid": str(xid), "seq": seq, **OLD})

    done = add_again()

    assert (0, (Difference("missing", xid, seq),)) == (done.added, done.days[0].findings)
    assert 2 == len(in_lake(lake))


def test_dead_messages_that_retention_has_deleted_are_no_difference(
    archived: Archived, lake: Lake, database: Database, database_url: str, add_again: AddAgain
) -> None:
    """Nor is a day that it has dropped: the lake alone has both, and what is left of the day is compared."""
    archived({}, {"result": "failed", "seq": 7}, {"result": "failed", "seq": 8})
    export(lake, database)
    archived({"result": "failed", "seq": 6, **OLD})
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("SET session_replication_role = replica")
        owner.execute("DELETE FROM queue_message_archive WHERE seq = 7")
        owner.execute("DROP TABLE queue_message_archive_20240501")

    done = add_again()

    assert (1, 0) == (done.added, done.exit_code)
    assert [6, 7, 8] == sorted(row[1] for row in in_lake(lake) if row[14] == "failed")


def test_dead_messages_of_a_dropped_day_come_back_behind_a_repair(
    archived: Archived, lake: Lake, database: Database, database_url: str, add_again: AddAgain
) -> None:
    """As docs/pipeline.md says of a lost file without a copy: PostgreSQL still has its dead messages."""
    archived({}, {"result": "failed", "seq": 7})
    export(lake, database)
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("DROP TABLE queue_message_archive_20240501")
    for file in Path(lake.place.url, TABLE).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(LakeError, match="which a copy of the lake alone may have"):
        add_again()
    lake.opened(TABLE).repair()

    done = add_again()

    assert (1, 0) == (done.added, done.exit_code)
    assert [7] == [row[1] for row in in_lake(lake)]


def test_rows_of_a_dump_are_added_too(archived: Archived, lake: Lake, database: Database, add_again: AddAgain) -> None:
    """Their transactions are of another cluster's future, and an export takes them when it begins alone."""
    archived({})
    export(lake, database)
    archived({"archived_xid": str(1 << 40), "seq": 50}, {"archived_xid": str(1 << 41), "seq": 51, "result": "failed"})

    assert 2 == add_again().added
    assert {50, 51} <= {row[1] for row in in_lake(lake)}


def test_what_no_lake_can_hold_stays_a_difference(archived: Archived, lake: Lake, database: Database, add_again: AddAgain) -> None:
    """The others of its transaction are added."""
    archived({})
    export(lake, database)
    [(xid, seq), _] = archived({"expires_at": "infinity", **OLD}, OLD)

    done = add_again()

    assert (1, (Difference("missing", xid, seq),)) == (done.added, done.days[0].findings)


def test_what_the_next_export_takes_is_left_to_it(archived: Archived, lake: Lake, database: Database, add_again: AddAgain) -> None:
    """Nothing comes twice, whichever goes first."""
    archived({})
    export(lake, database)
    archived({"seq": 20}, {"seq": 21, **OLD})

    assert 1 == add_again().added
    export(lake, database)

    assert [20, 21] == sorted(row[1] for row in in_lake(lake))[-2:]
    assert 3 == len(in_lake(lake))


def test_days_without_rows_and_days_to_come_add_nothing(archived: Archived, lake: Lake, database: Database, add_again: AddAgain) -> None:
    """A session of Spark is not started for them."""
    archived({})
    export(lake, database)

    done = add_again(date(1, 1, 2), date(2024, 4, 30), date(9999, 12, 30))

    assert [(0, 0, None)] * 3 == [(one.added, one.rows, one.difference) for one in done.days]


def test_many_rows_are_added_by_ranges(database_url: str, lake: Lake, database: Database, add_again: AddAgain) -> None:
    """Of a transaction that is larger than a range too; only ranges that differ are copied."""
    with psycopg.connect(database_url) as owner:
        for first in (1, 20_001, 40_001):
            insert_many(owner, 12_000, first=first)
            owner.commit()
    export(lake, database, lambda rows: [row for row in rows if int(str(row["seq"])) < 20_001 or int(str(row["seq"])) % 3])

    done = add_again(rows=5_000)

    assert 8_000 == done.added
    assert in_postgres(database_url) == in_lake(lake)


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_job_that_fails_beside_its_commit_loses_and_doubles_nothing(
    archived: Archived,
    lake: Lake,
    database: Database,
    spark: SparkSession,
    add_again: AddAgain,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    """Before it no file is left; after it the result tells of the row, and the next run finds it."""
    archived({})
    export(lake, database)
    archived(OLD)
    files = files_below(lake)

    refused = pytest.raises(PipelineError, match="not today") if where == "before" else nullcontext()
    with faults(monkeypatch, lake, where), refused:
        done = again.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None, days=[DAY])
        assert (1, PipelineError.exit_code) == (done.added, done.exit_code)
        assert "not today" in str(done.failure)

    assert where == "after" or files == files_below(lake)
    assert (where == "before") == add_again().added
    assert 2 == len(in_lake(lake))


def test_of_two_at_once_one_gives_way(
    archived: Archived, lake: Lake, database: Database, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, add_again: AddAgain
) -> None:
    """An export that commits meanwhile is faster."""
    archived({})
    export(lake, database)
    archived(OLD)
    begin = epoch.begin

    def meanwhile(*values: Any) -> int:
        monkeypatch.setattr(epoch, "begin", begin)
        export(lake, database)
        return begin(*values)

    monkeypatch.setattr(epoch, "begin", meanwhile)
    with pytest.raises(ConflictError):
        again.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None, days=[DAY])

    assert 1 == add_again().added


def test_a_lake_that_is_not_this_servers_is_refused(
    archived: Archived, lake: Lake, database: Database, spark: SparkSession, tmp_path: Any
) -> None:
    """As by an export: without one, and after one into another place."""

    def run(into: Lake) -> None:
        again.run(lake=into, database=database, spark=lambda: spark, say=lambda _: None, days=[DAY])

    archived({})
    with pytest.raises(LakeError, match="no table archive yet"):
        run(lake)
    export(lake, database)
    with pytest.raises(PipelineError, match="and there is none in"):
        run(Lake(str(tmp_path / "other")))


def test_a_lake_of_an_older_version_is_taken_over_first(
    archived: Archived, lake: Lake, database: Database, database_url: str, add_again: AddAgain
) -> None:
    """As by an export: older versions, whose commits would undo the epoch, refuse it from then on."""
    archived(OLD)
    cluster = clusters.read(database)
    lake.create(TABLE, schema_of(database.columns()), properties={**cluster.properties, "outbox_relay.format": "1"})
    lake.append(lake.opened(TABLE), TABLE, [], offsets=[(OFFSET, cluster.safe)])

    assert 1 == add_again().added
    assert "2" == lake.opened(TABLE).metadata().configuration["outbox_relay.format"]
    assert in_postgres(database_url) == in_lake(lake)
