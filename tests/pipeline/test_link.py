"""PostgreSQL and its lake know each other: copies and backups of either, another lake, and a kill between the two."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from relay import devservers
from relay.errors import LakeError, PipelineError
from relay.pipeline.export import beginning
from relay.pipeline.export import job as export
from relay.pipeline.lake import epoch
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.epoch import OFFSET, epoch_of, offset_of
from relay.pipeline.source import cluster as clusters
from relay.pipeline.source.columns import TABLE, schema_of
from relay.pipeline.source.database import Database
from relay.pipeline.verify import job as verify
from relay.postgres.schema.migrate import migrate
from tests.support.database.archives import insert
from tests.support.lake.contents import committed, files_below, in_lake, in_postgres
from tests.support.servers.shared import Say
from tests.support.servers.standby import Copy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Archived

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(300)]
Exported = Callable[..., export.Exported]
POSITION = "SELECT lake, epoch, pending, exported_xid::text::bigint, problem FROM queue_message_export_position"


@pytest.fixture(scope="module")
def server(say: Say) -> Iterator[devservers.Postgres]:
    """A server of these tests' own, with the schema."""
    with devservers.postgres(say=say, private=True) as made:
        migrate(made.url, schema="public")
        yield made


@pytest.fixture
def export_from(spark: SparkSession) -> Exported:
    """Export from a server into a lake."""

    def run(url: str, lake: Lake, **options: Any) -> export.Exported:
        with Database(url) as database:
            return export.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None, **options)

    return run


def add(url: str, *seqs: int) -> None:
    """Archive messages with these numbers, in one transaction."""
    with psycopg.connect(url) as connection:
        insert(connection, *({"seq": seq} for seq in seqs))


def sql(url: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Run a statement as the owner."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def seqs(lake: Lake) -> list[int]:
    """The numbers of the messages in the lake."""
    return sorted(row[1] for row in in_lake(lake))


def distrusted(url: str) -> bool:
    """Whether this server knows that its lake was not found as it should be, so that it drops nothing."""
    return sql(url, "SELECT queue_message_lake_seen()") == [(None,)]


@pytest.mark.parametrize("first", ["server", "copy"])
def test_a_copy_of_the_server_and_the_server_never_export_to_one_lake(
    server: devservers.Postgres, export_from: Exported, lake: Lake, first: str
) -> None:
    """The one that comes second is refused before it exports or drops anything; its own rows arrive once an operator adopts the lake."""
    add(server.url, 1)
    export_from(server.url, lake, new_lake=True)
    with Copy(server) as copy:
        add(server.url, 101)
        add(copy.url, 201)
        one, other = (server.url, copy.url) if first == "server" else (copy.url, server.url)
        export_from(one, lake)
        before = in_lake(lake), files_below(lake), lake.opened(TABLE).version()

        with pytest.raises(PipelineError, match=r"commits that this server knows nothing of.*--adopt"):
            export_from(other, lake)
        with Database(other) as database, pytest.raises(PipelineError, match=r"commits that this server knows nothing of"):
            verify.run(lake=lake, database=database, say=lambda _: None)
        assert before == (in_lake(lake), files_below(lake), lake.opened(TABLE).version())
        assert (False, True) == (distrusted(one), distrusted(other))

        assert ("strange",) == export_from(other, lake, adopt=True).adopted
        assert {1, 101, 201} <= set(seqs(lake))
        assert len(set(in_lake(lake))) == len(in_lake(lake))
        with pytest.raises(PipelineError, match=r"knows nothing of"):
            export_from(one, lake)
    sql(server.url, "TRUNCATE queue_message_archive")


def test_a_server_that_was_restored_from_a_backup_is_refused(server: devservers.Postgres, export_from: Exported, lake: Lake) -> None:
    """Its transactions have the ids of others that are in the lake already."""
    add(server.url, 1)
    export_from(server.url, lake, new_lake=True)
    with Copy(server) as backup:
        add(server.url, 3)
        export_from(server.url, lake)
        add(backup.url, 2)
        with pytest.raises(PipelineError, match=r"knows nothing of"):
            export_from(backup.url, lake)
        export_from(backup.url, lake, adopt=True)
    assert [1, 2, 3] == seqs(lake)
    sql(server.url, "TRUNCATE queue_message_archive")


def test_an_older_copy_of_the_lake_is_refused_and_then_filled(
    exported: Exported, archived: Archived, lake: Lake, database: Database, database_url: str
) -> None:
    """Adopted it gets what PostgreSQL has, and nothing counts as verified that was compared with the newer one."""
    archived({"seq": 1})
    exported()
    shutil.copytree(lake.place.url, f"{lake.place.url}-copy")
    archived({"seq": 2})
    exported()
    assert not verify.run(lake=lake, database=database, say=lambda _: None).differing
    shutil.rmtree(lake.place.url)
    shutil.copytree(f"{lake.place.url}-copy", lake.place.url)

    for adopt in (False, True):
        if adopt:
            assert ("older",) == exported(adopt=True).adopted
        else:
            with pytest.raises(PipelineError, match=r"an older copy than PostgreSQL last saw"):
                exported()
        assert adopt != distrusted(database_url)
    assert in_postgres(database_url) == in_lake(lake)
    assert [(0,)] == sql(database_url, "SELECT count(*) FROM queue_message_export WHERE verified_at IS NOT NULL")
    assert 0 == exported().rows


def test_two_copies_of_the_lake_never_take_turns(
    exported: Exported, archived: Archived, lake: Lake, export_from: Exported, database_url: str
) -> None:
    """The one that has missed a commit is refused."""
    archived({"seq": 1})
    exported()
    other = Lake(shutil.copytree(lake.place.url, f"{lake.place.url}-copy"))
    archived({"seq": 2})
    export_from(database_url, other)
    archived({"seq": 3})

    with pytest.raises(PipelineError, match=r"an older copy"):
        exported()
    assert [1] == seqs(lake)


def test_a_mistyped_lake_is_not_made(
    exported: Exported, archived: Archived, lake: Lake, database: Database, database_url: str, export_from: Exported
) -> None:
    """Nothing is there afterwards, retention waits, and the right lake continues. A new lake must be asked for."""
    archived({"seq": 1})
    exported()
    verify.run(lake=lake, database=database, say=lambda _: None)
    archived({"seq": 2})
    other = Lake(f"{lake.place.url}-mistyped")

    for options in ({}, {"adopt": True}):
        with pytest.raises(PipelineError, match=r"there is none in .*-mistyped: put it back.*--new-lake"):
            export_from(database_url, other, **options)
    assert not Path(other.place.url).exists()
    assert distrusted(database_url)
    assert 1 == exported().rows
    assert not distrusted(database_url)

    assert 2 == export_from(database_url, other, new_lake=True).rows
    assert [(0,)] == sql(database_url, "SELECT count(*) FROM queue_message_export WHERE verified_at IS NOT NULL")
    with pytest.raises(PipelineError, match=r"is the lake .*: correct"):
        exported()
    with pytest.raises(PipelineError, match=r"There is a lake in"):
        export_from(database_url, other, new_lake=True)
    assert [1, 2] == seqs(lake) == seqs(other)


def test_a_lake_that_was_emptied_is_told_of(
    exported: Exported, archived: Archived, lake: Lake, database: Database, database_url: str
) -> None:
    """Its log alone, or all of it: every job that looks says so, and nothing is dropped."""
    archived({"seq": 1})
    exported()
    shutil.rmtree(Path(lake.place.url, TABLE, "_delta_log"))

    for job in (exported, lambda: verify.run(lake=lake, database=database, say=lambda _: None)):
        with pytest.raises(PipelineError, match=r"there is none in"):
            job()
        assert distrusted(database_url)


STEPS: list[tuple[Any, str, str]] = [
    (beginning, "tie", "before"),
    (beginning, "tie", "after"),
    (epoch, "begin", "after"),
    (export, "prepare", "after"),
    (Lake, "commit", "before"),
    (Lake, "commit", "after"),
    (epoch, "settle", "after"),
    (epoch, "seen", "before"),
]
KILLS = [(how, *step) for how in ("first", "later", "adopt", "new_lake") for step in (STEPS if how == "later" else STEPS[:4])]


class _Killed(BaseException):
    """In place of a signal."""


@dataclass
class Kill:
    """A step of the export before or after which it is killed."""

    place: Any
    name: str
    when: str

    def now(self, patched: pytest.MonkeyPatch) -> None:
        """Let the next export meet it."""
        usual = getattr(self.place, self.name)

        def killed(*given: Any, **named: Any) -> Any:
            if self.when == "after":
                usual(*given, **named)
            raise _Killed

        patched.setattr(self.place, self.name, killed)


@pytest.mark.parametrize(("how", "place", "name", "when"), KILLS, ids=[f"{how}-{when}-{name}" for how, _, name, when in KILLS])
def test_a_kill_between_postgresql_and_the_lake_is_made_good(
    archived: Archived, export_from: Exported, lake: Lake, database_url: str, how: str, place: Any, name: str, when: str
) -> None:
    """The next run completes what is half done, asks an operator only where the first did, and has every row once."""
    target = lake
    if how != "first":
        archived({"seq": 1})
        export_from(database_url, lake)
    if how == "adopt":
        sql(database_url, "UPDATE queue_message_export_position SET epoch = 1")
    if how == "new_lake":
        target = Lake(f"{lake.place.url}-new")
    archived({"seq": 2})
    options = {how: True} if how in {"adopt", "new_lake"} else {}

    with pytest.MonkeyPatch.context() as patched:
        Kill(place, name, when).now(patched)
        with pytest.raises(_Killed):
            export_from(database_url, target, **options)
    try:
        export_from(database_url, target)
    except PipelineError:
        assert options
        export_from(database_url, target, **options)

    assert in_postgres(database_url) == in_lake(target)
    assert [_tied(target)] == sql(database_url, POSITION)
    assert 0 == export_from(database_url, target).rows


def _tied(lake: Lake) -> tuple[Any, ...]:
    """What PostgreSQL has to know of a lake."""
    handle = lake.opened(TABLE)
    return str(handle.metadata().id), epoch_of(handle), [], offset_of(handle), None


def test_a_lake_of_an_older_version_is_taken_over(
    exported: Exported, archived: Archived, lake: Lake, database: Database, database_url: str
) -> None:
    """Neither side has an epoch; from then on both have, and the older version, whose commits carry none, refuses the lake by its form."""
    archived({"seq": 1})
    _older(lake, database, offset=5)
    sql(database_url, "SELECT queue_message_export_progress('5')")

    assert 1 == exported().rows

    assert "2" == lake.opened(TABLE).metadata().configuration["outbox_relay.format"]
    assert [_tied(lake)] == sql(database_url, POSITION)


def test_a_lake_of_an_older_version_that_is_behind_is_refused(
    exported: Exported, archived: Archived, lake: Lake, database: Database, database_url: str
) -> None:
    """PostgreSQL has noted more than it holds, so it is another lake or an older copy."""
    archived({"seq": 1})
    _older(lake, database, offset=4)
    sql(database_url, "SELECT queue_message_export_progress('5')")

    with pytest.raises(PipelineError, match=r"an older copy"):
        exported()


def _older(lake: Lake, database: Database, *, offset: int) -> None:
    """A lake as the version before epochs has left it."""
    properties = {**clusters.read(database).properties, "outbox_relay.format": "1"}
    lake.create(TABLE, schema_of(database.columns()), properties=properties)
    lake.append(lake.opened(TABLE), TABLE, [], offsets=[(OFFSET, offset)])


def test_a_newer_pipeline_refuses_an_older_schema_before_it_writes(
    exported: Exported, archived: Archived, lake: Lake, database_url: str
) -> None:
    """In a sentence that says what to do."""
    archived({})
    sql(database_url, "ALTER TABLE queue_message_export_position DROP COLUMN pending")

    with pytest.raises(PipelineError, match=r"run `relay migrate`"):
        exported()
    assert not Path(lake.place.url).exists()


def test_a_form_that_nobody_knows_is_refused(exported: Exported, archived: Archived, lake: Lake) -> None:
    """As of a later version."""
    archived({})
    exported()
    lake.opened(TABLE).alter.set_table_properties({"outbox_relay.format": "3"}, raise_if_not_exists=False)

    with pytest.raises(LakeError, match=r"is of form 3, this version knows 2"):
        exported()
    assert committed(lake) == files_below(lake)
