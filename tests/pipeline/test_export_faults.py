"""Exports that are killed, and servers that go away under them: the lake ends with exactly the archive's rows."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from relay import devservers
from relay.devservers.process import poll
from relay.errors import UnreachableError
from relay.pipeline.export import job as export
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from relay.pipeline.source.ranges import STEP
from relay.postgres.schema.migrate import migrate
from tests.pipeline import exporter
from tests.support.database.archives import insert, insert_many
from tests.support.lake.contents import committed, compare, files_below, in_lake, in_postgres, strangers
from tests.support.servers.shared import Say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.slow]

REPEATS = int(os.environ.get("FAULT_REPEATS", "2"))
"""Kills; the long form is FAULT_REPEATS=20 with FAULT_ROWS=200000."""
ROWS = int(os.environ.get("FAULT_ROWS", "20000"))
Export = Callable[..., export.Exported]


@contextmanager
def writers(url: str) -> Iterator[None]:
    """Writers that keep transactions open, commit them late, or roll them back, until the end; each ends cleanly."""
    over = threading.Event()
    with psycopg.connect(url) as connection:
        insert(connection, {})

    def write(number: int) -> None:
        chance = random.Random(number)
        first = 1_000_000_000 * (number + 1)
        while not over.is_set():
            with psycopg.connect(url) as connection:
                insert_many(connection, chance.randrange(1, 200), first=first)
                first += 1_000
                over.wait(chance.random())
                if chance.random() < 0.3:
                    connection.rollback()

    threads = [threading.Thread(target=write, args=[number]) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def kill_in_mid_batch(url: str, lake: Lake, chance: random.Random) -> None:
    """Start an export of many batches, a file each, and kill its process group at a random moment after it has begun to write."""
    before = files_below(lake)
    wanted = chance.randrange(1, ROWS // STEP + 1)
    process = exporter.start(url, lake.place.url, batch_rows=STEP)
    poll(lambda: process.poll() is not None or len(files_below(lake) - before) >= wanted, seconds=120)
    time.sleep(chance.random() / 2)  # the random moment
    os.killpg(process.pid, signal.SIGKILL)
    # The test does not wait for the pipes: Spark's Python workers have a group of their own, and end once they miss their JVM.
    process.wait()
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()


@pytest.mark.timeout(120 + 120 * REPEATS)
def test_a_killed_export_loses_and_doubles_nothing(exported: Export, lake: Lake, database_url: str, say: Say) -> None:
    """With -9, in mid-batch, while writers hold transactions open; what is left over belongs to no table, and every reader reads."""
    chance = random.Random(4)
    with writers(database_url):
        for number in range(REPEATS):
            with psycopg.connect(database_url) as connection:
                insert_many(connection, ROWS)
            kill_in_mid_batch(database_url, lake, chance)
            assert 0 == strangers(database_url, lake)
            say(f"kill {number + 1} of {REPEATS}: {len(files_below(lake))} files, {len(committed(lake))} of them in the lake")
    exported()

    found = compare(database_url, lake)
    say(f"{REPEATS} kills: {found.rows} rows, {found.lost} lost, {found.doubled} doubled or strange, {found.different} different")
    assert (0, 0, 0) == (found.lost, found.doubled, found.different)
    assert REPEATS * ROWS < found.rows
    assert committed(lake) <= files_below(lake)


def test_what_a_killed_export_leaves_a_vacuum_removes(exported: Export, lake: Lake, database_url: str) -> None:
    """Files that no commit names, once they are old enough."""
    with psycopg.connect(database_url) as connection:
        insert_many(connection, 10)
    exported()
    orphan = next(iter(committed(lake))).replace("part-", "part-orphan-")
    path = f"{lake.place.url}/archive/{orphan}"
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(b"PAR1")
    os.utime(path, (0, 0))

    lake.opened("archive").vacuum(retention_hours=168, dry_run=False, full=True)

    assert committed(lake) == files_below(lake)
    assert 10 == len(in_lake(lake))


class Slow(Database):
    """A database whose rows come one in five milliseconds, so that a test can come in between."""

    def statement(self, name: str) -> bytes:
        """As it is, but for the rows of a cut."""
        return super().statement(name) + (b" AND pg_sleep(0.005) IS NOT NULL" if name == "read_cut" else b"")


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_in_mid_read_fails_the_export_and_the_next_is_right(
    mode: devservers.Mode, say: Say, spark: SparkSession, lake: Lake
) -> None:
    """With a sentence and the exit code of a server that is away; no file of the batch is left."""
    with devservers.postgres(say=say, private=True) as server:
        migrate(server.url, schema="public")
        with psycopg.connect(server.url) as connection:
            insert(connection, {})
            insert_many(connection, STEP)
        restart = threading.Thread(target=_restart_in_mid_read, args=[server, mode])
        restart.start()
        with Slow(server.url) as slow, pytest.raises(UnreachableError, match="PostgreSQL does not answer") as failed:
            export.run(lake=lake, database=slow, spark=lambda: spark, say=lambda _: None)
        restart.join()
        assert (4, set()) == (failed.value.exit_code, files_below(lake))

        with Database(server.url) as database:
            assert STEP + 1 == export.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None).rows
        assert in_postgres(server.url) == in_lake(lake)


def _restart_in_mid_read(server: devservers.Postgres, mode: devservers.Mode) -> None:
    reading = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'COPY %' AND wait_event = 'PgSleep')"
    with psycopg.connect(server.url, autocommit=True) as connection:
        poll(lambda: connection.execute(reading).fetchone() == (True,), seconds=60)
    server.restart(mode)


@pytest.mark.timeout(300)
def test_it_runs_on_a_cluster_of_processes(lake: Lake, database_url: str, tmp_path: str) -> None:
    """An executor of its own gets everything by pickle: driver, tasks, columns, options."""
    with psycopg.connect(database_url) as connection:
        insert_many(connection, 3 * STEP)
    process = exporter.start(
        database_url,
        lake.place.url,
        master="local-cluster[1,1,1024]",
        spark={"spark.executorEnv.PYTHONPATH": os.getcwd(), "spark.executor.memory": "1g"},  # noqa: PTH109
        cut_rows=STEP,
    )
    said, errors = process.communicate(timeout=240)

    assert 0 == process.returncode, f"{said} {errors}"
    assert 3 * STEP == json.loads(said.splitlines()[-1])["rows"]
    assert in_postgres(database_url) == in_lake(lake)
    [password] = {part for part in [psycopg.conninfo.conninfo_to_dict(database_url).get("password")] if part}
    assert str(password) not in said + errors
