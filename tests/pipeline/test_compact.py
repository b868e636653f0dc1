"""Compaction of closed days, and what a vacuum may take."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relay.errors import LakeError, PipelineError
from relay.pipeline.compact import job as compact
from relay.pipeline.compact.packing import packs
from relay.pipeline.lake import witness
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.lake.delta_log import files
from relay.pipeline.lake.epoch import offset_of
from relay.pipeline.rewriting import Rewriter
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.verify import job as verify
from tests.support.lake.compacting import data_files, quiet, rows_in
from tests.support.lake.damaging import flip, make_due
from tests.support.lake.exporting import Rows, export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Archived

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
FIRST = NOON.date()


@pytest.mark.usefixtures("many_files")
def test_only_days_that_are_over_become_one_file(lake: Lake, database: Database) -> None:
    """A second run finds nothing to do."""
    lines: list[str] = []
    first = compact.run(lake=lake, database=database, say=lines.append, now=NOON + timedelta(days=1))

    assert ((date(2024, 5, 1),), 6, 4, 0) == (first.days, first.files_before, first.files_after, first.removed)
    assert "2024-05-01: 3 files became 1" in lines
    assert ((), 4) == ((second := compact.run(lake=lake, database=database, say=quiet, now=NOON)).days, second.files_after)


@pytest.mark.usefixtures("many_files")
def test_a_compacted_lake_is_still_what_was_archived(lake: Lake, database: Database) -> None:
    """Rows, types and the export's place are as before, and an export continues from there."""
    before = lake.dataset("archive").to_table().sort_by([("xid", "ascending"), ("seq", "ascending")])
    bound = offset_of(lake.opened("archive"))

    compact.run(lake=lake, database=database, say=quiet)

    assert before == lake.dataset("archive").to_table().sort_by([("xid", "ascending"), ("seq", "ascending")])
    assert bound == offset_of(lake.opened("archive"))
    found = verify.run(lake=lake, database=database, say=quiet, again=True)
    assert (9, {"verified"}) == (found.rows, {one.state for one in found.partitions})
    assert export(lake, database)


def test_an_export_that_was_reading_meanwhile_commits(lake: Lake, database: Database, archived: Archived) -> None:
    """Compaction between an export's load and its commit neither refuses it nor loses a row."""
    for _ in range(2):
        archived({})
        export(lake, database)
    archived({})

    def compacted(found: Rows) -> Rows:
        assert compact.run(lake=lake, database=database, say=quiet).days
        return found

    export(lake, database, compacted)

    found = verify.run(lake=lake, database=database, say=quiet)
    assert (3, 0) == (found.rows, found.exit_code)


@pytest.mark.usefixtures("many_files")
def test_files_of_nobody_go_after_a_week(lake: Lake, database: Database) -> None:
    """What a killed export left, and what compaction replaced, once both are older than 168 hours; nothing younger."""
    day = Path(lake.place.url) / "archive" / "day=2024-05-01"
    for name in ("old.parquet", "young.parquet"):
        (day / name).write_bytes(b"not even Parquet")
    past = time.time() - 169 * 3600
    os.utime(day / "old.parquet", (past, past))

    assert 1 == compact.run(lake=lake, database=database, say=quiet).removed
    assert (False, True) == ((day / "old.parquet").exists(), (day / "young.parquet").exists())


@pytest.mark.usefixtures("many_files")
def test_a_shorter_retention_is_refused(lake: Lake, database: Database) -> None:
    """With a sentence, before anything is done."""
    with pytest.raises(PipelineError, match="at least 168 hours"):
        compact.run(lake=lake, database=database, say=quiet, retention_hours=167)

    assert 6 == len(lake.opened("archive").file_uris())


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(file.read_bytes()[:-1])])
def test_a_file_that_is_gone_or_cut_stops_it_before_anything_is_rewritten_or_removed(
    lake: Lake, database: Database, damage: Callable[[Path], object]
) -> None:
    """Older versions may be what the file can be restored from; the sentence names it."""
    before = lake.opened("archive").version()
    file = max(Path(lake.place.url, "archive").rglob("*.parquet"))
    damage(file)

    with pytest.raises(LakeError, match=rf"Of 6 files .* 1 are missing or of another size .*{file.name}"):
        compact.run(lake=lake, database=database, say=quiet)

    assert before == lake.opened("archive").version()


def file_of(lake: Lake, day: date = FIRST) -> Path:
    """The only file of a day."""
    [found] = [file for file in files(lake.opened(TABLE)) if file.day == day]
    return Path(lake.place.url, TABLE, found.path)


def reread(lake: Lake, database: Database, database_url: str) -> list[str]:
    """The days of which a look that reads each file finds one damaged."""
    make_due(database_url)
    return list(witness.run(lake, database, quiet).damage)


@pytest.mark.usefixtures("many_files")
def test_a_changed_byte_is_found_in_what_it_wrote(lake: Lake, database: Database, database_url: str) -> None:
    """Its pages carry checksums, as those of an export do."""
    compact.run(lake=lake, database=database, say=quiet)
    assert [] == reread(lake, database, database_url)

    flip(file_of(lake))

    assert ["queue_message_archive_20240501"] == reread(lake, database, database_url)


@pytest.mark.usefixtures("many_files")
def test_a_changed_byte_is_not_written_anew_as_if_it_was_right(lake: Lake, database: Database) -> None:
    """The damaged file stays as it is, so that it can be restored; compaction leaves no unfinished file in the folder."""
    before, found = lake.opened(TABLE).version(), data_files(lake)
    flip(max(found))

    with pytest.raises(LakeError, match=rf"^The file archive/.*{max(found).name} of the lake .* is missing or damaged"):
        compact.run(lake=lake, database=database, say=quiet)

    assert (before, sorted(found)) == (lake.opened(TABLE).version(), sorted(data_files(lake)))


@pytest.mark.usefixtures("many_files")
def test_files_with_other_rows_than_the_log_names_are_not_replaced(lake: Lake) -> None:
    """This holds whatever copy restored them; nothing is left of the new file."""
    handle, found = lake.opened(TABLE), data_files(lake)
    rewriter = Rewriter(lake.place, TABLE, schema_of(handle), "part-test")
    [first, *_] = packs(files(handle), FIRST + timedelta(days=1))
    more = first._replace(files=(*first.files[:-1], first.files[-1]._replace(rows=7)))

    named = rf"^The file archive/{more.files[-1].path} of the lake .* \(it has 2 rows, and the table's log says 7\)\.$"
    with pytest.raises(LakeError, match=named):
        rewriter(more.files)

    assert sorted(found) == sorted(data_files(lake))


@pytest.mark.spark
@pytest.mark.usefixtures("many_files")
def test_tasks_write_the_same_files(lake: Lake, database: Database, spark: SparkSession) -> None:
    """Where there are several to write; the log says that no row has changed by it."""
    before = lake.dataset(TABLE).to_table().sort_by([("xid", "ascending"), ("seq", "ascending")])

    done = compact.run(lake=lake, database=database, say=quiet, spark=lambda: spark)

    assert (6, 2) == (done.files_before, done.files_after)
    assert before == lake.dataset(TABLE).to_table().sort_by([("xid", "ascending"), ("seq", "ascending")])
    log = max(Path(lake.place.url, TABLE, "_delta_log").glob("*.json")).read_text().splitlines()
    actions = [action for line in log for name, action in json.loads(line).items() if name in {"add", "remove"}]
    assert [False] * 8 == [action["dataChange"] for action in actions]


@pytest.mark.spark
@pytest.mark.usefixtures("many_files")
def test_an_error_of_a_task_is_said_as_it_is(lake: Lake, database: Database, spark: SparkSession) -> None:
    """And what other tasks have written goes."""
    found = data_files(lake)
    flip(max(found))

    with pytest.raises(LakeError, match=rf"^The file archive/.*{max(found).name} of the lake .* is missing or damaged"):
        compact.run(lake=lake, database=database, say=quiet, spark=lambda: spark)

    assert sorted(found) == sorted(data_files(lake))


def test_files_grow_no_larger_than_they_may(lake: Lake, database: Database, archived: Archived) -> None:
    """A day becomes several of them, each of one stretch of transactions; a row that is larger by itself stays by itself."""
    for _ in range(6):
        archived({"body": secrets.token_bytes(50_000)})
        export(lake, database)
    archived({"body": secrets.token_bytes(200_000)})
    export(lake, database)
    before = rows_in(lake)

    done = compact.run(lake=lake, database=database, say=quiet, full=130_000)

    assert (7, 4) == (done.files_before, done.files_after)
    made = sorted(files(lake.opened(TABLE)), key=lambda file: file.oldest or 0)
    assert all(left.newest < right.oldest for left, right in pairwise(made) if left.newest is not None and right.oldest is not None)
    assert [True] * 3 + [False] == [file.size < 130_000 for file in made]
    assert before == rows_in(lake)
