"""The export into a folder: what arrives, what is left alone, and what it says."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg
import pytest

from relay.pipeline.export import distribute
from relay.pipeline.export import job as export
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.source.ranges import STEP
from tests.support.database.archives import insert, insert_many
from tests.support.lake.contents import committed, files_below, in_lake, in_postgres
from tests.support.lake.hostile import HOSTILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Archived = Callable[..., list[tuple[int, int]]]
Export = Callable[..., export.Exported]
pytestmark = pytest.mark.spark


def test_hostile_rows_arrive_byte_for_byte(archived: Archived, exported: Export, lake: Lake, database_url: str) -> None:
    """Long numbers, control characters, quotes, emoji, the first and last year, empty and null: as PostgreSQL prints them."""
    archived(*HOSTILE)

    assert len(HOSTILE) == exported().rows

    assert in_postgres(database_url) == in_lake(lake)


def test_an_export_with_nothing_new_commits_nothing(archived: Archived, exported: Export, lake: Lake) -> None:
    """Zero rows, the same version of the table, the same offset."""
    archived({}, {})
    first = exported()
    version = lake.opened("archive").version()

    second = exported()

    assert (0, 0, first.end, first.end) == (second.rows, second.batches, second.start, second.end)
    assert version == lake.opened("archive").version()


def test_an_export_with_nothing_new_starts_no_spark(
    archived: Archived, exported: Export, lake: Lake, database: Database, database_url: str
) -> None:
    """Although transactions that archived nothing have moved the safe bound: a session takes seconds and hundreds of megabytes."""
    archived({}, {})
    exported()
    with psycopg.connect(database_url) as other:
        other.execute("SELECT pg_current_xact_id()")

    def started() -> SparkSession:
        raise AssertionError("a session was started")

    done = export.run(lake=lake, database=database, spark=started, say=lambda _: None)

    assert (0, None) == (done.rows, done.failure)


def test_an_empty_archive_makes_an_empty_table(exported: Export, lake: Lake) -> None:
    """Readers find it, and the next export begins at the beginning."""
    assert 0 == exported().rows
    assert [] == in_lake(lake)


def test_rows_of_a_transaction_that_commits_late_are_not_lost(archived: Archived, exported: Export, lake: Lake, database_url: str) -> None:
    """An open writer holds the safe bound back, and what is behind it counts as lag."""
    archived({"exchange": "early"})
    exported()
    with psycopg.connect(database_url) as writer:
        insert(writer, {"exchange": "late", "seq": 100})
        archived({"exchange": "in between"})
        waiting = exported()
        writer.commit()

    assert (0, True) == (waiting.rows, (waiting.lag_seconds or 0) > 3600)
    assert (2, 0.0) == ((done := exported()).rows, done.lag_seconds)
    assert in_postgres(database_url) == in_lake(lake)


def test_what_was_rolled_back_never_arrives(archived: Archived, exported: Export, lake: Lake, database_url: str) -> None:
    """Its number is passed over."""
    with psycopg.connect(database_url) as writer:
        insert(writer, {"exchange": "never"})
        writer.rollback()
    archived({})

    exported()

    assert [(1,)] == [(len(in_lake(lake)),)]
    assert in_postgres(database_url) == in_lake(lake)


def test_batches_are_whole_transactions(exported: Export, lake: Lake, database_url: str) -> None:
    """Three transactions, of which the one in the middle is larger than a batch: three commits, no transaction in two of them."""
    for count in (STEP // 2, 3 * STEP, STEP // 2):
        with psycopg.connect(database_url) as connection:
            insert_many(connection, count)

    done = exported(batch_rows=STEP, cut_rows=STEP)

    assert (4 * STEP, 3) == (done.rows, done.batches)
    assert in_postgres(database_url) == in_lake(lake)
    assert committed(lake) == files_below(lake)


def test_a_huge_transaction_is_spread_over_tasks_of_one_commit(
    exported: Export, lake: Lake, database_url: str, spark: SparkSession
) -> None:
    """By its numbers: none twice, none missing; a task's statements write to one file."""
    with psycopg.connect(database_url) as connection:
        insert_many(connection, 10 * STEP)

    done = exported(cut_rows=STEP)

    assert (10 * STEP, 1, distribute.slots(spark)) == (done.rows, done.batches, done.files)
    assert 10 * STEP == len({row[:2] for row in in_lake(lake)})


def test_a_first_load_leaves_no_file_that_is_much_larger_than_a_full_one(exported: Export, lake: Lake, database_url: str) -> None:
    """Whatever the contents have: 200 of 120 kB, of which a compression saves half, in files of 2 MB and a group of rows at most."""
    with psycopg.connect(database_url) as connection:
        for _ in range(200):
            insert(connection, {"content": json.dumps({"x": secrets.token_hex(60_000)})})

    exported(full=2 << 20)

    sizes = [file.size for file in files(lake.opened(TABLE))]
    assert len(sizes) >= 2
    assert max(sizes) < 10 << 20
    assert in_postgres(database_url) == in_lake(lake)


def test_a_column_that_the_archive_gains_arrives(archived: Archived, exported: Export, lake: Lake, database_url: str) -> None:
    """Null in older files; one that the archive loses is null from then on."""
    archived({})
    exported()
    with psycopg.connect(database_url) as owner:
        owner.execute("ALTER TABLE queue_message_archive ADD tenant int8, ADD amount numeric, DROP handled_by CASCADE")
    with psycopg.connect(database_url) as connection:
        insert(connection, {"tenant": 7, "amount": "1.500"}, leave_out="handled_by")

    exported()

    table = lake.dataset("archive").to_table().sort_by("seq")
    assert [(None, None, "relay-1"), (7, "1.500", None)] == list(
        zip(*(table[name].to_pylist() for name in ("tenant", "amount", "handled_by")), strict=True)
    )


def test_progress_names_rows_rate_and_lag(archived: Archived, spark: SparkSession, lake: Lake, database: Database) -> None:
    """One line a batch."""
    archived({}, {})
    said: list[str] = []

    export.run(lake=lake, database=database, spark=lambda: spark, say=said.append)

    [line] = said
    assert line.startswith("2 rows exported, ")
    assert line.endswith(" a second; 0 s behind")


def test_registering_is_said_and_lasts(archived: Archived, exported: Export) -> None:
    """From then on the core drops only verified days."""
    assert not exported().registered
    assert exported(register=True).registered
    assert exported().registered
