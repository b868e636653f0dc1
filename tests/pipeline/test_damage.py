"""What counts as damage of a lake's file: its bytes, and never that somebody could not reach them."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from relay.errors import LakeError, PipelineError
from relay.pipeline.export import again
from relay.pipeline.lake import damage, witness
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.lake.delta_log import files
from relay.pipeline.lake.footers import FooterCheck
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.spark.items import Carrier
from tests.pipeline.conftest import Archived
from tests.support.lake.adding import DAY
from tests.support.lake.damaging import flip, make_due
from tests.support.lake.exporting import export
from tests.support.servers.object_store import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def checked(lake: Lake) -> FooterCheck:
    """What the lake's files must be."""
    return FooterCheck(lake.place, schema_of(lake.opened(TABLE)))


def found(lake: Lake) -> dict[str, str]:
    """What is wrong with the lake's files as this process reads them, by path."""
    carrier = Carrier(None, lambda _line: None, most=1)
    return {file.path: words for file, words in damage.unreadable(checked(lake), files(lake.opened(TABLE)), carrier)}


@contextmanager
def no_more_files() -> Iterator[None]:
    """This process can open no further file."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_file_that_cannot_be_opened_for_too_many_others_is_not_damaged(lake: Lake, database: Database, archived: Archived) -> None:
    """The error is the machine's, and the file is as it was."""
    archived({})
    export(lake, database)
    every, carrier = files(lake.opened(TABLE)), Carrier(None, lambda _line: None, most=1)

    check = checked(lake)
    with no_more_files(), pytest.raises(LakeError, match="Too many open files"):
        list(damage.unreadable(check, every, carrier))

    assert {} == found(lake)


def test_a_file_that_a_store_refuses_is_not_damaged(
    bucket: Lake, object_store: ObjectStore, database: Database, archived: Archived
) -> None:
    """Keys may run out between the listing and the reading."""
    archived({})
    export(bucket, database)
    every, carrier = files(bucket.opened(TABLE)), Carrier(None, lambda _line: None, most=1)

    check = checked(bucket)
    with object_store.knowing_nobody(), pytest.raises(LakeError, match="refuses access"):
        list(damage.unreadable(check, every, carrier))

    assert {} == found(bucket)


def cut(path: Path) -> None:
    """Leave the beginning."""
    path.write_bytes(path.read_bytes()[:100])


def spoil_names(path: Path) -> None:
    """Let the footer's names of columns be no UTF-8."""
    path.write_bytes(path.read_bytes().replace(b"routing_key", b"routing\xffkey"))


@pytest.mark.parametrize("spoil", [Path.unlink, cut, flip, spoil_names])
def test_a_file_that_is_missing_or_cannot_be_decoded_is_damaged(
    lake: Lake, database: Database, archived: Archived, spoil: Callable[[Path], object]
) -> None:
    """Its sentence says what to do."""
    archived({})
    export(lake, database)
    [file] = files(lake.opened(TABLE))
    spoil(Path(lake.place.url, TABLE, file.path))

    words = found(lake)[file.path]
    assert words.startswith(f"the file archive/{file.path} of the lake {lake.place.url} is missing or damaged: put it back from a copy, ")
    assert "cannot be read" not in words
    assert ")" == words[-1]


@pytest.fixture
def unmounted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: SparkSession, database: Database, archived: Archived) -> Lake:
    """A lake of two files in a folder that this process has, and Spark's do not: they began elsewhere."""
    assert spark.sparkContext.parallelize([0]).map(lambda _: os.getcwd()).first() != str(tmp_path)  # noqa: PTH109 - the workers have no Path
    monkeypatch.chdir(tmp_path)
    lake = Lake("/proc/self/cwd/lake")
    for _ in range(2):
        archived({})
        export(lake, database)
    return lake


@pytest.mark.spark
def test_files_that_tasks_alone_cannot_read_are_not_forgotten(unmounted: Lake, database: Database, spark: SparkSession) -> None:
    """As on hosts that lack the lake's folder: the run fails and says so, and the table names what it named."""
    version = unmounted.opened(TABLE).version()

    with pytest.raises(PipelineError, match="see that each of Spark's hosts reaches the lake"):
        again.run(lake=unmounted, database=database, spark=lambda: spark, say=lambda _line: None, days=[DAY])

    assert version == unmounted.opened(TABLE).version()
    assert {} == found(unmounted)


@pytest.mark.spark
def test_files_that_tasks_alone_cannot_read_say_nothing_of_the_lake(
    unmounted: Lake, database: Database, spark: SparkSession, database_url: str
) -> None:
    """No day is called damaged, and the lake is no less seen than before."""
    witness.run(unmounted, database, lambda _line: None)
    make_due(database_url)

    with pytest.raises(PipelineError, match="see that each of Spark's hosts reaches the lake"):
        witness.run(unmounted, database, lambda _line: None, lambda: spark)

    with psycopg.connect(database_url) as owner:
        assert (None,) == owner.execute("SELECT problem FROM queue_message_lake").fetchone()
        assert [] == owner.execute("SELECT damage FROM queue_message_export WHERE damage IS NOT NULL").fetchall()
