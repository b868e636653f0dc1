"""How many connections a job's tasks have open, and what those are called."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import conninfo_to_dict

from relay.pipeline.export import distribute
from relay.pipeline.export import job as export
from relay.pipeline.export.sizes import Sizes
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from relay.pipeline.spark.tasks import by_number, named
from relay.pipeline.verify import job as verify
from tests.support.database import archives
from tests.support.lake import exporting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Archived

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

DAYS = 50
OPEN = """
    SELECT pid, application_name, backend_start, coalesce(state_change, backend_start), clock_timestamp() FROM pg_stat_activity
    WHERE datname = current_database() AND application_name ~ ' [0-9]+/[0-9]+$'
"""
CLOSED = timedelta(seconds=1)
"""A server process may still be seen for so long after its client has closed the connection: one that did nothing since is no open one."""


class Look(NamedTuple):
    """A server process of a task, as it was seen."""

    pid: int
    name: str
    began: datetime
    active: datetime
    """When it last began or ended a statement."""
    seen: datetime


@contextmanager
def watched(url: str) -> Iterator[list[Look]]:
    """The connections that tasks have open, looked at again and again."""
    looks, end = list[Look](), threading.Event()

    def watch() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not end.wait(0.002):
                looks.extend(map(Look._make, connection.execute(OPEN.encode()).fetchall()))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield looks
    finally:
        end.set()
        thread.join()


def most_at_once(looks: Sequence[Look]) -> int:
    """How many connections were open at the same time."""
    last = {(look.pid, look.began): look for look in looks}.values()
    ends = [(look.began, look.seen if look.seen - look.active > CLOSED else look.active) for look in last]
    return max(sum(began <= moment <= end for began, end in ends) for moment, _ in ends)


@pytest.fixture
def days(lake: Lake, database: Database, archived: Archived) -> None:
    """Fifty days, of one range each."""
    archived(*({"archived_at": archives.SETTLED + timedelta(days=day)} for day in range(DAYS)))
    exporting.export(lake, database)


@pytest.mark.usefixtures("days")
@pytest.mark.parametrize("most", [1, 2])
def test_a_verification_opens_no_more_than_was_set(spark: SparkSession, lake: Lake, database_url: str, most: int) -> None:
    """Each task goes through its ranges, and says which of how many it is."""
    with Database(database_url, connections=most) as database, watched(database_url) as seen:
        found = verify.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None)

    assert (DAYS, 0) == (found.rows, found.exit_code)
    assert most_at_once(seen) <= most
    assert {f"outbox-relay pipeline verify {part}/{most}" for part in range(1, most + 1)} == {look.name for look in seen}


@pytest.mark.slow
@pytest.mark.usefixtures("days")
def test_nor_where_there_are_many_slots(lake: Lake, database_url: str) -> None:
    """As the command does it, by its setting."""
    env = {**os.environ, "RELAY_DATABASE_URL": database_url, "RELAY_LAKE_URL": lake.place.url, "RELAY_PIPELINE_CONNECTIONS": "3"}
    code = "from relay.cli.main import main; main()"
    with watched(database_url) as seen:
        words = [sys.executable, "-c", code, "pipeline", "verify", "--master", "local[16]"]
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stderr
    assert 2 <= most_at_once(seen) <= 3
    assert {f"outbox-relay pipeline verify {part}/3" for part in (1, 2, 3)} == {look.name for look in seen}


def test_an_export_opens_no_more_than_was_set(spark: SparkSession, lake: Lake, database_url: str) -> None:
    """However many statements it takes."""
    with psycopg.connect(database_url) as owner:
        for _ in range(8):
            archives.insert_many(owner, 5_000)
            owner.commit()
    with Database(database_url, connections=1) as database, watched(database_url) as seen:
        done = export.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None, sizes=Sizes(cut_rows=5_000))

    assert (40_000, distribute.slots(spark)) == (done.rows, done.files)
    assert 1 == most_at_once(seen)
    assert {"outbox-relay pipeline export 1/1"} == {look.name for look in seen}


def test_a_name_is_never_longer_than_postgresql_keeps(spark: SparkSession) -> None:
    """One of the user's own is cut, the part is not; outside of a task it is as it is."""
    conninfo = f"application_name={'a' * 70} dbname=shop"

    def read(_: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"conninfo": named(conninfo)}])

    names = [str(conninfo_to_dict(row.conninfo)["application_name"]) for row in by_number(spark, 2, read, "conninfo string").collect()]

    assert [f"{'a' * 59} 1/2", f"{'a' * 59} 2/2"] == sorted(names)
    assert conninfo == named(conninfo)
