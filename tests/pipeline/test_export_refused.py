"""Exports that cannot be: one sentence, an exit code, and neither the lake nor the archive changed."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from relay.errors import ConflictError, LakeError, PipelineError, UnreachableError
from relay.pipeline.export import distribute
from relay.pipeline.export import job as export
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from relay.pipeline.verify import job as verify
from tests.support.database.archives import insert
from tests.support.lake.contents import committed, files_below, in_lake, in_postgres
from tests.support.servers.logins import login

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Archived = Callable[..., list[tuple[int, int]]]
Export = Callable[..., export.Exported]
pytestmark = pytest.mark.spark
RACES = max(3, int(os.environ.get("FAULT_REPEATS", "3")) // 2)
"""Exports at once; the long form is FAULT_REPEATS=20."""


@pytest.mark.parametrize("time", range(1, RACES + 1))
def test_of_two_exports_at_once_one_wins_and_the_other_leaves_no_trace(
    time: int, archived: Archived, exported: Export, lake: Lake, database_url: str, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """Both have copied before either commits; the loser says so with an exit code of its own."""
    archived({})
    exported()
    archived(*({} for _ in range(10)))
    both, copy = threading.Barrier(2), distribute.copy

    def together(*arguments: Any) -> distribute.CopiedRange:
        written = copy(*arguments)
        both.wait(60)
        return written

    def one(_: int) -> export.Exported | PipelineError:
        with Database(database_url) as database:
            try:
                return export.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None)
            except PipelineError as error:
                return error

    monkeypatch.setattr(distribute, "copy", together)
    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(one, range(2)))

    [lost] = [end for end in ends if isinstance(end, ConflictError)]
    assert [10] == [end.rows for end in ends if isinstance(end, export.Exported)]
    assert (6, "Another export was faster: nothing of this batch is in the lake; the next run continues from there.") == (
        lost.exit_code,
        str(lost),
    )
    assert committed(lake) == files_below(lake)
    assert in_postgres(database_url) == in_lake(lake)


def test_a_login_that_may_not_read_the_archive_is_told_the_role(
    archived: Archived, spark: SparkSession, lake: Lake, database_url: str
) -> None:
    """No table is left half made."""
    archived({})

    with login(database_url) as nobody, Database(nobody) as database, pytest.raises(PipelineError, match="grant etl LOGIN") as refused:
        export.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None)

    assert 1 == refused.value.exit_code


def test_the_role_queue_message_etl_is_enough(archived: Archived, spark: SparkSession, lake: Lake, database_url: str) -> None:
    """For an export; to register it takes an operator, and the sentence says how."""
    archived({})

    with login(database_url, "queue_message_etl") as etl, Database(etl) as database:
        assert 1 == export.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None).rows
        with pytest.raises(PipelineError, match="relay config set export_registered true"):
            export.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None, register=True)


def test_a_server_that_is_away_leaves_no_lake(spark: SparkSession, lake: Lake, unused_tcp_port: int) -> None:
    """Exit code 4."""
    with Database(f"postgresql://x:hidden@127.0.0.1:{unused_tcp_port}/x") as away, pytest.raises(UnreachableError) as refused:
        export.run(lake=lake, database=away, spark=lambda: spark, say=lambda _: None)

    assert "hidden" not in str(refused.value)
    assert not Path(lake.place.url).exists()


def test_a_table_of_somebody_else_is_refused(archived: Archived, exported: Export, lake: Lake) -> None:
    """It was not made by an export."""
    archived({})
    lake.create("archive", pa.schema([("x", pa.int64())]))

    with pytest.raises(LakeError, match="was not made by `relay pipeline export`"):
        exported()

    assert 0 == lake.opened("archive").version()


def test_a_column_of_another_type_is_refused(archived: Archived, exported: Export, lake: Lake, database_url: str) -> None:
    """A lake cannot change a type; the archive's owner begins a new one."""
    archived({})
    exported()
    with psycopg.connect(database_url) as owner:
        owner.execute("ALTER TABLE queue_message_archive ADD extra int8")
    exported()
    with psycopg.connect(database_url) as owner:
        owner.execute("ALTER TABLE queue_message_archive ALTER extra TYPE text")
    version = lake.opened("archive").version()

    with pytest.raises(LakeError, match="column extra has another type"):
        exported()

    assert version == lake.opened("archive").version()


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["day"], "The archive has a column 'day', which is the name of the lake's own column day: rename it with ALTER TABLE "),
        (["Day"], "The archive has a column 'Day', which is the name of the lake's own column day: rename it with ALTER TABLE "),
        (
            ["Exchange"],
            "The archive's columns 'exchange' and 'Exchange' are one column to the lake, because only the case differs: rename it with ",
        ),
        (["extra", "EXTRA"], "The archive's columns 'extra' and 'EXTRA' are one column to the lake, "),
    ],
)
def test_a_column_that_the_lake_cannot_have_is_named(
    before: bool, names: list[str], sentence: str, archived: Archived, exported: Export, lake: Lake, database: Database, database_url: str
) -> None:
    """Before anything is exported or compared, in a new lake and in one that was fine; renamed it is a column like others."""
    archived({})
    if before:
        exported()
    kept = files_below(lake)
    with psycopg.connect(database_url) as owner:
        for name in names:
            owner.execute(sql.SQL("ALTER TABLE queue_message_archive ADD {} text").format(sql.Identifier(name)))

    jobs: list[Callable[[], object]] = [exported, lambda: verify.run(lake=lake, database=database, say=lambda _: None)]
    for job in jobs if before else jobs[:1]:
        with pytest.raises(PipelineError, match=f"^{sentence}"):
            job()
    assert kept == files_below(lake)

    with psycopg.connect(database_url) as owner:
        owner.execute(sql.SQL("ALTER TABLE queue_message_archive RENAME {} TO good").format(sql.Identifier(names[-1])))
    archived({})
    exported()
    assert 2 == lake.dataset("archive").count_rows()


def test_a_column_that_differs_in_case_from_one_that_the_lake_keeps_is_named(
    archived: Archived, exported: Export, lake: Lake, database_url: str
) -> None:
    """The archive has dropped that, the lake has its values."""
    archived({})
    for change in ("ADD extra text", 'DROP extra, ADD "Extra" text'):
        with psycopg.connect(database_url) as owner:
            owner.execute(f"ALTER TABLE queue_message_archive {change}".encode())
        if change.startswith("ADD"):
            exported()

    with pytest.raises(PipelineError, match="columns 'extra' and 'Extra' are one column to the lake"):
        exported()


def test_a_folder_that_cannot_be_written_is_named(archived: Archived, spark: SparkSession, database: Database) -> None:
    """Not even by root."""
    archived({})

    with pytest.raises(LakeError, match=r"RELAY_LAKE_|permission"):
        export.run(lake=Lake("/sys/kernel/lake"), database=database, spark=lambda: spark, say=lambda _: None)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=False).returncode == 0
    if not mounted:
        pytest.skip("only root may mount the small file system that this test fills")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_leaves_the_lake_as_it_was(small_disk: Path, spark: SparkSession, database: Database, database_url: str) -> None:
    """The sentence says what to do, files of the failed batch are gone, and with room the next run is right."""
    lake = Lake(str(small_disk / "lake"))
    with psycopg.connect(database_url) as connection:
        insert(connection, {})
    export.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None)
    before = in_lake(lake)
    with psycopg.connect(database_url) as connection:
        insert(connection, {"body": os.urandom(3 << 20)}, {"body": os.urandom(3 << 20)})

    with pytest.raises(LakeError, match="no space left"):
        export.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None)
    assert before == in_lake(lake)
    assert committed(lake) == files_below(lake)

    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    export.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None)
    assert in_postgres(database_url) == in_lake(lake)
