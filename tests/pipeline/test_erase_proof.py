"""The proof of an erasure: a scan of every file below the archive's folder; files that are no part of the table, and other jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from relay.errors import ConflictError, UnreachableError
from relay.message import ERASED
from relay.pipeline.compact import job as compact
from relay.pipeline.erase import job as erase
from relay.pipeline.lake import data_files as data_files_module
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files
from relay.pipeline.metrics import job as metrics
from relay.pipeline.metrics import lake_state
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.verify import job as verify
from tests.pipeline.conftest import Archived
from tests.support.lake.adding import NOON
from tests.support.lake.compacting import data_files, meanwhile, quiet, rows_in
from tests.support.lake.contents import in_lake, in_postgres
from tests.support.lake.erasing import MARK, SECRET, erase_in_postgres, erased_in, files_with
from tests.support.lake.exporting import Rows, export
from tests.support.relays.cli import Cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A = str(UUID(int=1))
KEY = str(SECRET["ordering_key"])


def run(lake: Lake, database: Database, **options: Any) -> erase.Erased:
    """Erase the messages of the key."""
    return erase.run(lake=lake, database=database, **{"say": quiet, "keys": [KEY], **options})


@pytest.fixture
def secret(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """Two days of three files each; in two files of each day is a message that PostgreSQL has erased."""
    for place in range(3):
        rows = [{"archived_at": NOON + timedelta(days=day), **(SECRET if place else {})} for day in range(2)]
        archived(*rows, {"body": b"\x00"})
        export(lake, database)
    erase_in_postgres(database_url, f"ordering_key = '{KEY}'")


@pytest.mark.usefixtures("secret")
def test_after_at_once_no_byte_of_it_is_left(lake: Lake, database: Database, database_url: str) -> None:
    """Neither in any column of any file, nor in the log; before, each old file has it."""
    compact.run(lake=lake, database=database, say=quiet)
    before = files_with(lake, MARK)
    lines: list[str] = []

    done = run(lake, database, say=lines.append, at_once=True)

    assert (4, 2, 6, 0, 0) == (done.messages, done.files, done.removed, done.outside, done.exit_code)
    assert (6, []) == (len(before), files_with(lake, MARK))
    assert "6 files deleted that had left the table: a reader of an older version of the table now fails" in lines
    assert done.left is None
    assert in_postgres(database_url) == in_lake(lake)


@pytest.mark.usefixtures("secret")
def test_old_versions_are_counted_until_they_are_removed(lake: Lake, database: Database) -> None:
    """A file that compaction replaced before, and the compacted file itself; nothing else is removed at once."""
    compact.run(lake=lake, database=database, say=quiet)
    orphan = max(path for path in data_files(lake) if path.name in files_with(lake, MARK))
    orphan.with_name("part-of-a-killed-export.parquet").write_bytes(orphan.read_bytes())

    first = run(lake, database)

    assert (0, 7, 0, 11, 0) == (first.current, first.outside, first.unreadable, first.scanned, first.exit_code)
    advice = "`relay pipeline compact` removes such files once they are 168 hours old."
    assert f"7 files outside the table still have such contents: {advice}" == first.left

    second = run(lake, database, at_once=True)
    assert (0, 0, 6, 1, 5) == (second.messages, second.files, second.removed, second.outside, second.scanned)
    assert ["part-of-a-killed-export.parquet"] == files_with(lake, MARK)
    assert str(second.left).startswith("1 file outside the table still has such contents: ")


@pytest.mark.usefixtures("secret")
def test_a_file_that_cannot_be_read_is_no_proof(lake: Lake, database: Database) -> None:
    """The beginning of a file, as a killed job leaves it, may have the contents; the job does not know, and leaves it."""
    run(lake, database, at_once=True)
    [*_, last] = sorted(data_files(lake))
    last.with_name("part-cut.parquet").write_bytes(last.read_bytes()[:-9])
    last.with_name("part-1.parquet#1").write_bytes(b"PAR1")

    done = run(lake, database, at_once=True)

    assert (0, 2, 0, 0) == (done.outside, done.unreadable, done.removed, done.exit_code)
    assert "2 files outside the table cannot be read, and may have them" in str(done.left)
    assert last.with_name("part-cut.parquet").exists()


@pytest.mark.usefixtures("secret")
def test_a_file_whose_texts_are_views_is_read_too(lake: Lake, database: Database) -> None:
    """Another program may have written it so."""
    run(lake, database, at_once=True)
    [*_, last] = data_files(lake)
    rows = lake.dataset(TABLE).to_table(filter=pc.field("options") == ERASED).drop_columns("day")
    other = pa.schema([field.with_type(pa.string_view()) if field.type == pa.string() else field for field in rows.schema])
    for name, options in (("part-erased.parquet", ERASED), ("part-other.parquet", "{}")):
        texts = pa.nulls(len(rows), pa.string()).fill_null(options)
        pq.write_table(rows.set_column(rows.schema.get_field_index("options"), "options", texts).cast(other), last.with_name(name))

    done = run(lake, database, ids=rows["id"].to_pylist())

    assert (0, 1, 0, 8) == (done.current, done.outside, done.unreadable, done.scanned)


@pytest.mark.usefixtures("secret")
def test_a_run_that_finds_nothing_says_so(lake: Lake, database: Database) -> None:
    """This is the proof. The table's new version only keeps exports that have read before from committing."""
    run(lake, database, at_once=True)
    version = lake.opened(TABLE).version()

    done = run(lake, database)

    assert (0, 0, 0, 0, 0, None, 0) == (done.messages, done.files, done.current, done.outside, done.unreadable, done.left, done.exit_code)
    assert (6, version + 1) == (done.scanned, lake.opened(TABLE).version())


@pytest.mark.usefixtures("secret")
def test_a_deletion_that_is_cut_short_is_completed_by_the_next(lake: Lake, database: Database) -> None:
    """What is deleted is said, and the scan before has counted the rest."""
    run(lake, database)

    with pytest.MonkeyPatch.context() as patch:
        killed_at_second_deletion(patch)
        cut = run(lake, database, at_once=True)

    assert (1, 3, 4) == (cut.removed, cut.outside, cut.exit_code)
    words = "contents of 0 messages are erased and 1 old file deleted, and the next run continues from there: Nothing answers."
    assert f"The erasure was cut short: {words}" == cut.failure
    assert (0, 3, 0) == ((last := run(lake, database, at_once=True)).messages, last.removed, last.outside)
    assert [] == files_with(lake, MARK)


def killed_at_second_deletion(patch: pytest.MonkeyPatch) -> None:
    """Let the second deletion of a file fail."""
    delete, calls = data_files_module.delete_removed, list[str]()

    def failing(place: Any, table: str, path: str) -> None:
        calls.append(path)
        if len(calls) > 1:
            raise UnreachableError("Nothing answers.")
        delete(place, table, path)

    patch.setattr(erase, "delete_removed", failing)


@pytest.mark.usefixtures("secret")
@pytest.mark.parametrize("looked", [False, True], ids=["before the look", "after it"])
def test_a_compaction_meanwhile_is_a_conflict_and_keeps_the_contents_from_coming_back(
    lake: Lake, database: Database, monkeypatch: pytest.MonkeyPatch, looked: bool
) -> None:
    """Nothing is erased by halves, no row is doubled, and the next run completes it."""
    before = rows_in(lake)
    meanwhile(monkeypatch, lambda: compact.run(lake=lake, database=database, say=quiet), looked=looked)

    with pytest.raises(ConflictError, match="Another job rewrote the same files"):
        run(lake, database)

    assert (before, []) == (rows_in(lake), erased_in(lake))
    assert (4, 0) == ((done := run(lake, database)).messages, done.exit_code)
    assert before == rows_in(lake)


@pytest.mark.usefixtures("secret")
def test_a_compaction_that_loses_brings_nothing_back(lake: Lake, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has read the contents before they were erased."""
    meanwhile(monkeypatch, lambda: run(lake, database))

    with pytest.raises(ConflictError, match="Another job rewrote the same files"):
        compact.run(lake=lake, database=database, say=quiet)

    assert 4 == len(erased_in(lake))
    compact.run(lake=lake, database=database, say=quiet)
    assert (0, 4) == (run(lake, database).messages, len(erased_in(lake)))


@pytest.mark.usefixtures("secret")
def test_what_an_export_adds_before_the_last_scan_is_an_exit_code(
    lake: Lake, database: Database, archived: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contents that came into the table meanwhile are found, and the next run erases them."""

    def spoiled(rows: Rows) -> Rows:
        return [{**row, **{name: value for name, value in SECRET.items() if name in row}} for row in rows]

    def act() -> None:
        archived({})
        export(lake, database, spoiled)

    meanwhile(monkeypatch, act)
    done = run(lake, database)

    assert (1, 5, 4) == (done.current, done.exit_code, done.messages)
    assert "1 file of the table still has such contents, because another job wrote meanwhile: run this again." == done.left
    assert (1, 0) == ((again := run(lake, database)).messages, again.exit_code)


@pytest.mark.parametrize("others", [4, 0])
def test_an_export_that_has_read_before_brings_nothing_back(
    lake: Lake, database: Database, database_url: str, archived: Archived, request: pytest.FixtureRequest, others: int
) -> None:
    """It may have read contents that were erased since, whether the lake had others or none; the next export does its work."""
    if others:
        request.getfixturevalue("secret")
    else:
        archived({})
        export(lake, database)
    archived(SECRET)

    def erased(found: Rows) -> Rows:
        erase_in_postgres(database_url, f"ordering_key = '{KEY}'")
        assert others == run(lake, database).messages
        return found

    with pytest.raises(ConflictError, match="nothing of this batch is in the lake; the next run continues from there"):
        export(lake, database, erased)
    export(lake, database)

    assert in_postgres(database_url) == in_lake(lake)
    assert 0 == run(lake, database, at_once=True).outside
    assert [] == files_with(lake, MARK)


@pytest.mark.usefixtures("secret")
def test_the_log_says_that_data_changed(lake: Lake, database: Database) -> None:
    """A program that follows the table must not take it for a compaction; neither does the report, nor is it an export."""
    exported = lake_state.read(lake).jobs

    run(lake, database)

    log = max(Path(lake.place.url, TABLE, "_delta_log").glob("*.json")).read_text().splitlines()
    actions = [action for line in log for name, action in json.loads(line).items() if name in {"add", "remove"}]
    assert [True] * 8 == [action["dataChange"] for action in actions]
    assert exported == lake_state.read(lake).jobs
    assert 0 == len({"exported"} ^ exported.keys())


@pytest.mark.spark
@pytest.mark.usefixtures("secret")
def test_numbers_and_verification_are_as_before(lake: Lake, database: Database, database_url: str, spark: SparkSession) -> None:
    """Tasks of Spark do the same work; no day is counted again, and both sides are equal."""

    def count() -> metrics.Computed:
        return metrics.run(lake=lake, database=database, spark=lambda: spark, say=quiet)

    assert 2 == count().days
    numbers = {grain: lake.dataset(f"stats_{grain}").to_table() for grain in metrics.SPANS}

    done = run(lake, database, spark=lambda: spark, at_once=True)

    assert (4, 4, 4, 0) == (done.messages, done.files, done.removed, done.exit_code)
    assert (0, 0, 0) == ((again := count()).days, again.copied_days, again.exit_code)
    assert numbers == {grain: lake.dataset(f"stats_{grain}").to_table() for grain in metrics.SPANS}
    found = verify.run(lake=lake, database=database, say=quiet, again=True)
    assert (9, {"verified"}) == (found.rows, {one.state for one in found.partitions})
    assert in_postgres(database_url) == in_lake(lake)


@pytest.fixture
def pipeline(cli: Cli, lake: Lake) -> Cli:
    """The command line, with the test's lake."""
    cli.env["RELAY_LAKE_URL"] = lake.place.url
    return cli


@pytest.mark.usefixtures("secret")
def test_the_command(pipeline: Cli, lake: Lake) -> None:
    """Nothing that it prints has a key, and without an option it does nothing."""
    words = ("pipeline", "erase", "--ordering-key", KEY, A)
    assert "Nothing says which messages to erase: give ids or --ordering-key." in pipeline.refused("pipeline", "erase", code=2)

    found = pipeline.json(*words)
    assert (4, 4, ["2024-05-01", "2024-05-02"], 0) == tuple(found[name] for name in ("messages", "outside", "days", "exit_code"))
    assert "168 hours" in found["left"]
    said = pipeline(*words, "--at-once")
    assert "4 files deleted" in pipeline.stderr
    assert "0 messages erased; none of 6 files has contents of such messages" == said.splitlines()[-1]
    assert MARK not in said + pipeline.stderr


def test_the_command_takes_a_place(pipeline: Cli, lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """As `relay show` prints it, if other messages have the id."""
    [(xid, seq), _] = archived({"id": A, **SECRET}, {"id": A})
    export(lake, database)
    erase_in_postgres(database_url)

    pipeline("pipeline", "erase", A, code=1)
    assert f"Several messages have the id {A}, and nothing was erased" in pipeline.stderr
    assert 1 == pipeline.json("pipeline", "erase", f"{A}@{xid}/{seq}")["messages"]
    assert [seq] == erased_in(lake)


def test_a_conflict_after_a_commit_is_part_of_the_result(
    lake: Lake, database: Database, database_url: str, archived: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what is erased, and that no scan has proved it."""
    monkeypatch.setattr(erase, "AT_ONCE", 1)
    for _ in range(2):
        archived(SECRET)
        export(lake, database)
    erase_in_postgres(database_url)
    replace: Callable[..., None] = Lake.replace

    def second(self: Lake, *given: Any, **named: Any) -> None:
        replace(self, *given, **named)
        meanwhile(monkeypatch, lambda: compact.run(lake=lake, database=database, say=quiet))

    monkeypatch.setattr(Lake, "replace", second)
    done = run(lake, database)

    assert (1, 6) == (done.messages, done.exit_code)
    assert "The erasure was cut short: contents of 1 message are erased and 0 old files deleted, and no scan has proved it yet, and" in str(
        done.failure
    )
    monkeypatch.undo()
    assert 1 == run(lake, database).messages
    with psycopg.connect(database_url) as owner:
        assert owner.execute("SELECT count(*) FROM queue_message_archive").fetchone() == (len(files(lake.opened(TABLE))) + 1,)
