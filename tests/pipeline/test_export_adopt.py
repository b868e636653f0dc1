"""Exports after a failover and a restore, and from a standby: refused, then adopted; nothing lost, nothing doubled."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from relay import devservers
from relay.devservers.process import poll
from relay.errors import ConflictError, PipelineError
from relay.pipeline.export import job as export
from relay.pipeline.export.sizes import Sizes
from relay.pipeline.lake import epoch
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.epoch import OFFSET, LakeEpoch
from relay.pipeline.lake.target_table import prepare
from relay.pipeline.source import cluster as clusters
from relay.pipeline.source.columns import TABLE, schema_of
from relay.pipeline.source.database import Database
from relay.pipeline.source.ranges import STEP
from relay.pipeline.verify import job as verify
from relay.postgres.schema.migrate import migrate
from tests.support.database.archives import insert, insert_many
from tests.support.lake.contents import committed, files_below, in_lake, in_postgres
from tests.support.servers.shared import Databases, Say
from tests.support.servers.standby import Standby

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.faults]
ExportFrom = Callable[..., export.Exported]
VerifyFrom = Callable[[str], verify.Verified]


@pytest.fixture(scope="module")
def primary(say: Say) -> Iterator[devservers.Postgres]:
    """A server of these tests' own, with the schema."""
    with devservers.postgres(say=say, private=True) as server:
        migrate(server.url, schema="public")
        yield server


@pytest.fixture
def export_from(spark: SparkSession, lake: Lake) -> ExportFrom:
    """Export from a server into the test's lake."""

    def run(url: str, **options: Any) -> export.Exported:
        with Database(url) as database:
            return export.run(lake=lake, database=database, spark=lambda: spark, say=lambda _: None, **options)

    return run


@pytest.fixture
def verify_from(lake: Lake) -> VerifyFrom:
    """Compare a server with the test's lake."""

    def run(url: str) -> verify.Verified:
        with Database(url) as database:
            return verify.run(lake=lake, database=database, say=lambda _: None)

    return run


def add(url: str, *seqs: int, **values: object) -> None:
    """Archive messages with these numbers in one transaction."""
    with psycopg.connect(url) as connection:
        insert(connection, *({"seq": seq, **values} for seq in seqs))


def test_a_promoted_standby_is_refused_and_then_adopted(primary: devservers.Postgres, export_from: ExportFrom, lake: Lake) -> None:
    """What it archived with transaction ids that the lake had passed arrives too; what only the lost primary had stays in the lake."""
    add(primary.url, 1, 2, 3)
    export_from(primary.url, new_lake=True)
    with Standby(primary) as standby:
        with pytest.raises(PipelineError, match=r"RELAY_PIPELINE_DATABASE_URL names a standby"):
            export_from(standby.url)
        standby.promote()
        add(primary.url, 101)
        add(primary.url, 102)
        export_from(primary.url)
        add(standby.url, 201)
        before = in_lake(lake), files_below(lake)

        with pytest.raises(PipelineError, match=r"timeline 2 and the lake on 1.*--adopt"):
            export_from(standby.url)
        assert before == (in_lake(lake), files_below(lake))

        adopted = export_from(standby.url, adopt=True)
        assert (1, 3, 0, ("timeline",)) == (adopted.rows, adopted.known, adopted.differing, adopted.adopted)
        add(standby.url, 202)
        assert (1, 0) == ((later := export_from(standby.url)).rows, later.known)
        assert {1, 2, 3, 101, 102, 201, 202} == {row[1] for row in in_lake(lake)}
        assert set(in_postgres(standby.url)) <= set(in_lake(lake))
        assert 7 == len(in_lake(lake))
        with pytest.raises(PipelineError, match="timeline 1 and the lake on 2"):
            export_from(primary.url)


def test_a_replica_that_lags_exports_less_and_loses_nothing(primary: devservers.Postgres, lake: Lake, spark: SparkSession) -> None:
    """With its replay paused: what it has not got waits, however far the primary is, and the job says by how much it is behind."""
    words = list[str]()

    def run(replica: str) -> int:
        with Database(primary.url, replica=replica) as database:
            return export.run(lake=lake, database=database, spark=lambda: spark, say=words.append, new_lake=lake.open(TABLE) is None).rows

    add(primary.url, 500)
    with Standby(primary) as standby:
        run(standby.url)
        add(primary.url, 501)
        standby.catch_up()
        with psycopg.connect(standby.url, autocommit=True) as paused:
            paused.execute("SELECT pg_wal_replay_pause()")
            assert poll(lambda: paused.execute("SELECT pg_get_wal_replay_pause_state()").fetchone() == ("paused",), seconds=30)
            with psycopg.connect(primary.url) as late:
                insert(late, {"seq": 502})
                add(primary.url, 503)
                assert 1 == run(standby.url)
                said = r"the replica, which is [\d,]+ bytes of log behind the primary, and its replay is paused$"
                assert any(re.search(said, line) for line in words)
            assert 0 == run(standby.url)
            paused.execute("SELECT pg_wal_replay_resume()")
        standby.catch_up()
        assert 2 == run(standby.url)
        with pytest.raises(PipelineError, match="names no standby"):
            run(primary.url)
    assert set(in_postgres(primary.url)) == set(in_lake(lake))


def test_a_row_that_was_settled_again_after_a_failover_is_counted(
    primary: devservers.Postgres, export_from: ExportFrom, lake: Lake
) -> None:
    """The same identity with another archived_at stays once in the lake, and the result says that it differs."""
    with Standby(primary) as standby:
        standby.promote()
        add(primary.url, 900, xid="77")
        export_from(primary.url, new_lake=True)
        add(standby.url, 901)
        add(standby.url, 900, xid="77", attempts=2)

        adopted = export_from(standby.url, adopt=True)

        assert 1 == adopted.differing
        assert [("77", 900)] == [(str(row[0]), row[1]) for row in in_lake(lake) if row[1] == 900]


def test_a_server_that_was_put_back_is_refused_and_then_adopted(databases: Databases, export_from: ExportFrom, lake: Lake) -> None:
    """A copy of its disk has the same timeline: a lake that is further says so, and `--adopt` makes it read everything again."""
    url = databases.url(databases.create_migrated())
    add(url, 1)
    export_from(url)
    lake.append(lake.opened(TABLE), TABLE, [], offsets=[(OFFSET, 1 << 40)])
    add(url, 2)

    with pytest.raises(PipelineError, match=r"The lake is at transaction 1099511627776 and PostgreSQL only at.*--adopt"):
        export_from(url)

    adopted = export_from(url, adopt=True)
    assert (1, 1, ("position",)) == (adopted.rows, adopted.known, adopted.adopted)
    add(url, 3)
    assert (1, 0) == ((later := export_from(url)).rows, later.known)
    assert [1, 2, 3] == sorted(row[1] for row in in_lake(lake))


def test_a_promotion_that_went_back_reads_everything(database: Database, lake: Lake) -> None:
    """A restore to a time makes a timeline too: a margin below the lake's offset would begin above all that the server has."""
    cluster = replace(clusters.read(database), timeline=1)
    columns = database.columns()
    lake.create(TABLE, schema_of(columns), properties=cluster.properties)
    lake.append(lake.opened(TABLE), TABLE, [], offsets=[(OFFSET, 1 << 40)])

    handle = lake.opened(TABLE)
    known = LakeEpoch(str(handle.metadata().id), offset=1 << 40)

    prepared = prepare(lake, handle, known, columns, replace(cluster, timeline=2), adopted=("timeline",))

    assert 0 == prepared.begin


@pytest.mark.parametrize(("lake_of", "begin"), [("this server", 1_000_000), ("another one", 0)])
def test_a_promotion_behind_an_export_of_a_copy_begins_where_the_server_itself_was(
    database: Database, lake: Lake, lake_of: str, begin: int
) -> None:
    """The copy has moved the lake's offset past what this server has exported there."""
    cluster = replace(clusters.read(database), timeline=1, next=6_000_000)
    columns = database.columns()
    lake.create(TABLE, schema_of(columns), properties=cluster.properties)
    lake.append(lake.opened(TABLE), TABLE, [], offsets=[(OFFSET, 5_000_000)])
    handle = lake.opened(TABLE)
    known = LakeEpoch(str(handle.metadata().id) if lake_of == "this server" else "another", offset=2_000_000)

    prepared = prepare(lake, handle, known, columns, replace(cluster, timeline=2), adopted=("timeline",))

    assert begin == prepared.begin


def test_another_database_is_refused_and_then_adopted(databases: Databases, export_from: ExportFrom, lake: Lake) -> None:
    """Of the same cluster: its archive is read whole, and rows with the same identity are known."""
    first, second = (databases.url(databases.create_migrated()) for _ in range(2))
    add(first, 1, xid="5")
    export_from(first)
    add(second, 1, xid="5")
    add(second, 2, xid="5")

    with pytest.raises(PipelineError, match="holds the archive of database"):
        export_from(second)

    assert (1, 1) == ((adopted := export_from(second, adopt=True)).rows, adopted.known)
    assert [(5, 1), (5, 2)] == [row[:2] for row in in_lake(lake)]


def spend_ids(connection: psycopg.Connection, *, up_to: int) -> None:
    """Takes transaction ids until `up_to` is taken; whatever else runs in the cluster takes some too."""
    while connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()[0][0] <= up_to:
        pass


def test_rows_of_a_dump_are_taken_once(database_url: str, export_from: ExportFrom, lake: Lake) -> None:
    """A dump brings ids of another cluster's future: a new lake takes them at once, and never again when the counter gets there."""
    with psycopg.connect(database_url) as connection:
        [[following]] = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        insert(connection, *({"seq": number, "archived_xid": str(following + number)} for number in (300, 310, 1_000_000)))
    assert 3 == export_from(database_url).rows

    with psycopg.connect(database_url, autocommit=True) as connection:
        spend_ids(connection, up_to=following + 310)
    for _ in range(20):
        with psycopg.connect(database_url) as connection:
            insert_many(connection, 1)
    later = export_from(database_url)

    assert (20, 2) == (later.rows, later.known)
    assert in_postgres(database_url) == in_lake(lake)
    assert committed(lake) == files_below(lake)


def test_an_adoption_that_was_cut_short_is_done_again(
    databases: Databases,
    export_from: ExportFrom,
    verify_from: VerifyFrom,
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until the adoption is complete, every job refuses; the error names the archive that began it."""
    first, second = (databases.url(databases.create_migrated()) for _ in range(2))
    here, there = (conninfo_to_dict(url)["dbname"] for url in (first, second))
    add(first, 1)
    export_from(first)
    add(first, 3)
    add(second, 2)

    def broken(*_: object) -> None:
        raise PipelineError("cut short")

    with monkeypatch.context() as patched:
        patched.setattr(export, "take_over", broken)
        ended = export_from(second, adopt=True)
    assert (str(ended.failure).endswith(": cut short"), ended.exit_code) == (True, PipelineError.exit_code)
    for job in (export_from, verify_from):
        with pytest.raises(PipelineError, match=r"^An adoption of the lake by this archive was cut short: run `relay .* --adopt` again"):
            job(second)
        # The offset is the second one's by now, and beyond this row of the first.
        with pytest.raises(PipelineError, match=rf"the archive of database {there} \(this is {here}\) was cut short: run it again there;"):
            job(first)
    export_from(first, adopt=True)
    export_from(second, adopt=True)

    assert [1, 2, 3] == sorted(row[1] for row in in_lake(lake))


def test_a_row_that_another_batch_of_an_adoption_brings_again_is_known(
    primary: devservers.Postgres, export_from: ExportFrom, lake: Lake
) -> None:
    """It was settled again by a later transaction, after a batch's worth of others."""
    with Standby(primary) as standby:
        standby.promote()
        add(primary.url, 800, xid="78")
        export_from(primary.url, new_lake=True)
        with psycopg.connect(standby.url) as connection:
            insert_many(connection, STEP, first=10_000)
        add(standby.url, 800, xid="78", attempts=2)

        adopted = export_from(standby.url, adopt=True, sizes=Sizes(batch_rows=STEP))

        assert (True, 1) == (adopted.batches > 1, adopted.differing)
        assert 1 == sum(1 for row in in_lake(lake) if row[1] == 800)


def test_an_export_that_was_under_way_gives_way_to_an_adoption(
    databases: Databases, export_from: ExportFrom, lake: Lake, spark: SparkSession
) -> None:
    """Its offset would pass what the adoption has yet to read."""
    first, second = (databases.url(databases.create_migrated()) for _ in range(2))
    add(first, 1)
    export_from(first)
    for start in (10_000, 20_000):
        with psycopg.connect(second) as connection:
            insert_many(connection, STEP, first=start)
    add(first, 2)
    with Database(first) as old, Database(second) as new:
        cluster = clusters.read(old)
        prepared = prepare(lake, lake.opened(TABLE), epoch.read(old), old.columns(), cluster)
        under_way = export._Export(lake, old, lambda: spark, lambda _line: None, cluster, prepared, Sizes(STEP, STEP))
        refused = list[str]()

        def meanwhile(_line: str) -> None:
            if not refused:
                with pytest.raises(ConflictError) as error:
                    under_way.work()
                refused.append(str(error.value))

        export.run(lake=lake, database=new, spark=lambda: spark, say=meanwhile, adopt=True, sizes=Sizes(batch_rows=STEP))

    assert ["Another export has adopted the lake meanwhile: the next run continues from there, or says what to do."] == refused
    assert set(in_postgres(second)) <= set(in_lake(lake))


def test_an_adoption_that_cannot_begin_leaves_the_lake_as_it_was(databases: Databases, export_from: ExportFrom, lake: Lake) -> None:
    """Where Spark does not start nothing was read, so the previous server continues."""
    first, second = (databases.url(databases.create_migrated()) for _ in range(2))
    add(first, 1)
    export_from(first)

    def broken() -> SparkSession:
        raise PipelineError("no Java")

    with Database(second) as database, pytest.raises(PipelineError, match="no Java"):
        export.run(lake=lake, database=database, spark=broken, say=lambda _line: None, adopt=True)
    add(first, 2)

    assert 1 == export_from(first).rows
